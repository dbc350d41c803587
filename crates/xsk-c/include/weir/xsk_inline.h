/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The functions of weir/xsk.h that move packets, inlined: they do what the library's do, on the rings themselves, and
 * call the library where that takes more: an empty RX ring, a kernel that asks to be woken, no free chunk at hand, packets
 * of several chunks. Programs include weir/xsk.h, which includes this unless WEIR_XSK_CHECKED is defined.
 *
 * They check as much as the inlined functions of other libraries do. A frame that was sent or freed already, one of
 * another UMEM, and `data` and `len` outside the chunk are not found; WEIR_XSK_CHECKED finds them.
 */
#ifndef WEIR_XSK_INLINE_H
#define WEIR_XSK_INLINE_H

#ifndef WEIR_XSK_H
#error "include weir/xsk.h"
#endif

#define WEIR_XSK_INLINE static inline __attribute__((always_inline, unused))
#define WEIR_XSK_LIKELY(condition) __builtin_expect(!!(condition), 1)

/* Of a view: the functions may receive, and send; one of them is under way. Else the library has the socket. */
#define WEIR_XSK_VIEW_RECEIVES 1u
#define WEIR_XSK_VIEW_SENDS 2u
#define WEIR_XSK_VIEW_BUSY 4u
/* A handle is the place of the view; the bits below this size count the sockets in that place. */
#define WEIR_XSK_VIEW_SIZE 512u
/* In the flags of a ring: the kernel asks to be woken. */
#define WEIR_XSK_RING_WAKE 1u

/* A ring, and the place of the program's side in it; the indices run freely. */
struct weir_xsk_ring {
	uint32_t *producer;
	uint32_t *consumer;
	uint32_t *flags;
	void *slots;
	uint32_t next;	/* the next slot to read or to write */
	uint32_t limit; /* the first one that cannot be */
	uint32_t mask;
	uint32_t reserved;
};

/* The part of a socket that these functions use, between the library's calls. */
struct weir_xsk_view {
	uint32_t moves;	 /* WEIR_XSK_VIEW_RECEIVES and those below it */
	uint32_t frames; /* those that the program got, less those that it gave */
	uint64_t received;
	struct weir_xsk_ring rx;
	struct weir_xsk_ring tx;
	struct weir_xsk_ring fill;
	struct weir_xsk_ring completion;
	uint8_t *memory;
	uint32_t *owners; /* of each chunk; 0 is the program */
	uint32_t *free;	  /* indices of free chunks */
	uint32_t free_count;
	uint32_t free_room;
	uint32_t chunks;
	uint32_t chunk_shift;
	uint32_t frame_offset; /* of an empty packet in its chunk */
	uint32_t lacking;      /* chunks that FILL lacks */
	uint32_t credit;       /* packets to take from RX before the library looks after it */
	uint32_t receiving;    /* owners: the kernel, to receive and to send */
	uint32_t sending;
};

/* A slot of RX and TX: struct xdp_desc, with length and options in one number, so that they are written at once. */
struct weir_xsk_desc {
	uint64_t addr;
	uint64_t size;
};

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define WEIR_XSK_LEN_SHIFT 0
#else
#define WEIR_XSK_LEN_SHIFT 32
#endif

WEIR_XSK_INLINE uint32_t weir_xsk_inline_len(const struct weir_xsk_desc *desc)
{
	return (uint32_t)(desc->size >> WEIR_XSK_LEN_SHIFT);
}

/* Writes a packet of one chunk, without options. */
WEIR_XSK_INLINE void weir_xsk_inline_write(struct weir_xsk_desc *desc, uint64_t addr, uint32_t len)
{
	desc->addr = addr;
	desc->size = (uint64_t)len << WEIR_XSK_LEN_SHIFT;
}

/* The packet of a descriptor, in chunks of `size` bytes. Its address was read once. */
WEIR_XSK_INLINE void weir_xsk_inline_show(struct weir_xsk_frame *packet,
					  const struct weir_xsk_desc *desc, uint64_t addr,
					  uint8_t *memory, uint64_t size)
{
	packet->data = memory + addr;
	packet->len = weir_xsk_inline_len(desc);
	packet->room = (uint32_t)(size - (addr & (size - 1)));
}

WEIR_XSK_INLINE struct weir_xsk_view *weir_xsk_inline_view(struct weir_xsk_socket *socket)
{
	return (struct weir_xsk_view *)((uintptr_t)socket & ~(uintptr_t)(WEIR_XSK_VIEW_SIZE - 1));
}

WEIR_XSK_INLINE uint32_t weir_xsk_inline_min(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Whether the functions may move packets in these ways. */
WEIR_XSK_INLINE int weir_xsk_inline_may(struct weir_xsk_socket *socket, uint32_t moves)
{
	return socket && (weir_xsk_inline_view(socket)->moves & moves) == moves;
}

/* Whether they may use the free chunks. */
WEIR_XSK_INLINE int weir_xsk_inline_is_free(struct weir_xsk_socket *socket)
{
	return weir_xsk_inline_may(socket, WEIR_XSK_VIEW_RECEIVES) ||
	       weir_xsk_inline_may(socket, WEIR_XSK_VIEW_SENDS);
}

/* Slots that can be read. */
WEIR_XSK_INLINE uint32_t weir_xsk_inline_filled(struct weir_xsk_ring *ring)
{
	if (ring->limit == ring->next) {
		/* Acquire: the kernel wrote the slots before its index. */
		uint32_t producer = __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE);

		/* An impossible index is the library's to count. */
		if (producer - ring->next <= ring->mask + 1)
			ring->limit = producer;
	}
	return ring->limit - ring->next;
}

/* Slots that can be written, read again from the kernel when fewer than `want` are known. */
WEIR_XSK_INLINE uint32_t weir_xsk_inline_room(struct weir_xsk_ring *ring, uint32_t want)
{
	if (ring->limit - ring->next < want) {
		/* Acquire: the kernel read the slots before it moved its index. */
		uint32_t limit = __atomic_load_n(ring->consumer, __ATOMIC_ACQUIRE) + ring->mask + 1;

		if (limit - ring->next <= ring->mask + 1)
			ring->limit = limit;
	}
	return ring->limit - ring->next;
}

/* Slots from an index on that lie next to each other. */
WEIR_XSK_INLINE uint32_t weir_xsk_inline_run(const struct weir_xsk_ring *ring, uint32_t index)
{
	return ring->mask + 1 - (index & ring->mask);
}

WEIR_XSK_INLINE struct weir_xsk_desc *weir_xsk_inline_desc(const struct weir_xsk_ring *ring,
							   uint32_t index)
{
	return (struct weir_xsk_desc *)ring->slots + (index & ring->mask);
}

WEIR_XSK_INLINE uint64_t *weir_xsk_inline_addr(const struct weir_xsk_ring *ring, uint32_t index)
{
	return (uint64_t *)ring->slots + (index & ring->mask);
}

/* Publishes what was written: release, so that the kernel sees the slots first. */
WEIR_XSK_INLINE void weir_xsk_inline_publish(struct weir_xsk_ring *ring, uint32_t next)
{
	ring->next = next;
	__atomic_store_n(ring->producer, next, __ATOMIC_RELEASE);
}

/* Releases what was read: release, so that the kernel writes the slots after our reads. */
WEIR_XSK_INLINE void weir_xsk_inline_release(struct weir_xsk_ring *ring, uint32_t next)
{
	ring->next = next;
	__atomic_store_n(ring->consumer, next, __ATOMIC_RELEASE);
}

/* Packets to take from RX, at most `max`, after the library has looked after the rings if they need it. */
WEIR_XSK_INLINE uint32_t weir_xsk_inline_received(struct weir_xsk_socket *socket,
						  struct weir_xsk_view *view, uint32_t max)
{
	uint32_t count = weir_xsk_inline_min(weir_xsk_inline_filled(&view->rx), max);

	if (count == 0 || count > view->credit ||
	    (__atomic_load_n(view->fill.flags, __ATOMIC_RELAXED) & WEIR_XSK_RING_WAKE)) {
		if (weir_xsk_look_after(socket, 0) < 0)
			return 0;
		count = weir_xsk_inline_min(view->rx.limit - view->rx.next, max);
	}
	return count;
}

/* Ends a burst of received packets, of which `lost` did not return to FILL. */
WEIR_XSK_INLINE void weir_xsk_inline_end(struct weir_xsk_view *view, uint32_t from, uint32_t to,
					 uint32_t lost, uint32_t moves)
{
	uint32_t count = from - view->rx.next;

	view->credit -= weir_xsk_inline_min(view->credit, count);
	view->lacking += lost;
	view->received += count;
	weir_xsk_inline_publish(&view->fill, to);
	weir_xsk_inline_release(&view->rx, from);
	view->moves = moves;
}

WEIR_XSK_INLINE int weir_xsk_inline_receive_each(struct weir_xsk_socket *socket, uint32_t max,
						 weir_xsk_each *each, void *context)
{
	struct weir_xsk_view *view = weir_xsk_inline_view(socket);
	uint32_t count, left, from, to, wrong = 0, kept = 0, moves;

	if (!each || !weir_xsk_inline_may(socket, WEIR_XSK_VIEW_RECEIVES))
		return weir_xsk_receive_each(socket, max, each, context);
	count = weir_xsk_inline_received(socket, view, max);
	left = count = weir_xsk_inline_min(count, weir_xsk_inline_room(&view->fill, count));
	if (count == 0)
		return 0;
	from = view->rx.next;
	to = view->fill.next;
	moves = view->moves;
	view->moves = WEIR_XSK_VIEW_BUSY;
	while (left > 0) {
		const struct weir_xsk_desc *in = weir_xsk_inline_desc(&view->rx, from), *end;
		uint64_t *const start = weir_xsk_inline_addr(&view->fill, to), *out = start;
		uint32_t run = weir_xsk_inline_min(left, weir_xsk_inline_run(&view->rx, from));
		const uint64_t size = 1ull << view->chunk_shift;
		uint8_t *const memory = view->memory;

		run = weir_xsk_inline_min(run, weir_xsk_inline_run(&view->fill, to));
		for (end = in + run; in < end; in++) {
			const uint64_t addr = in->addr;
			struct weir_xsk_frame packet;
			int verdict;

			weir_xsk_inline_show(&packet, in, addr, memory, size);
			packet.handle[0] = packet.handle[1] = 0;
			verdict = each(&packet, context);
			if (verdict == WEIR_XSK_KEEP) {
				view->owners[addr >> view->chunk_shift] = 0;
				kept++;
				continue;
			}
			wrong += verdict != WEIR_XSK_RECYCLE;
			*out++ = addr & -size;
		}
		from += run;
		to += (uint32_t)(out - start);
		left -= run;
	}
	view->frames += kept;
	weir_xsk_inline_end(view, from, to, kept, moves);
	return wrong ? weir_xsk_refuse_callback(WEIR_XSK_RECYCLE) : (int)count;
}

/* Lends chunks for receiving that FILL lacks: those of sent packets, then free ones. */
WEIR_XSK_INLINE void weir_xsk_inline_refill(struct weir_xsk_view *view)
{
	uint32_t room = weir_xsk_inline_min(view->lacking,
					    weir_xsk_inline_room(&view->fill, view->lacking));
	uint32_t left = weir_xsk_inline_min(room, weir_xsk_inline_filled(&view->completion));
	uint32_t from = view->completion.next, to = view->fill.next, lent = view->free_count;
	const uint32_t shift = view->chunk_shift, chunks = view->chunks;
	uint32_t *const owners = view->owners;
	const uint32_t receiving = view->receiving;

	while (left > 0) {
		const uint64_t *in = weir_xsk_inline_addr(&view->completion, from);
		uint64_t *out = weir_xsk_inline_addr(&view->fill, to);
		uint32_t next = weir_xsk_inline_run(&view->fill, to);
		uint64_t run, i;

		next = weir_xsk_inline_min(next, weir_xsk_inline_run(&view->completion, from));
		run = weir_xsk_inline_min(left, next);
		for (i = 0; i < run; i++) {
			const uint64_t index = in[i] >> shift;

			/* No chunk: the library's to count. */
			if (!WEIR_XSK_LIKELY(index < chunks))
				break;
			owners[index] = receiving;
			out[i] = index << shift;
		}
		from += (uint32_t)i;
		to += (uint32_t)i;
		left = i < run ? 0 : left - (uint32_t)i;
	}
	if (from != view->completion.next)
		weir_xsk_inline_release(&view->completion, from);
	left = weir_xsk_inline_min(room - (to - view->fill.next), lent);
	view->free_count -= left;
	while (left > 0) {
		uint64_t *out = weir_xsk_inline_addr(&view->fill, to), *end;
		uint32_t run = weir_xsk_inline_min(left, weir_xsk_inline_run(&view->fill, to));

		for (end = out + run; out < end; out++) {
			const uint32_t index = view->free[--lent];

			owners[index] = receiving;
			*out = (uint64_t)index << shift;
		}
		to += run;
		left -= run;
	}
	if (to != view->fill.next) {
		view->lacking -= to - view->fill.next;
		weir_xsk_inline_publish(&view->fill, to);
	}
}

/*
 * Frees the chunks of sent packets. The library gets more when fewer than `want` are free, and takes those for which
 * there is no place.
 */
WEIR_XSK_INLINE void weir_xsk_inline_stock(struct weir_xsk_socket *socket,
					   struct weir_xsk_view *view, uint32_t want)
{
	const uint32_t filled = weir_xsk_inline_filled(&view->completion);
	const uint32_t room = view->free_room - view->free_count;
	uint32_t left = weir_xsk_inline_min(filled, room);
	uint32_t from = view->completion.next, count = view->free_count;
	const uint32_t shift = view->chunk_shift, chunks = view->chunks;
	uint32_t *const owners = view->owners;

	while (left > 0) {
		const uint64_t *in = weir_xsk_inline_addr(&view->completion, from);
		uint32_t *out = view->free + count;
		const uint64_t run =
			weir_xsk_inline_min(left, weir_xsk_inline_run(&view->completion, from));
		uint64_t i;

		for (i = 0; i < run; i++) {
			const uint64_t index = in[i] >> shift;

			/* No chunk: the library's to count. */
			if (!WEIR_XSK_LIKELY(index < chunks))
				break;
			owners[index] = 0;
			out[i] = (uint32_t)index;
		}
		from += (uint32_t)i;
		count += (uint32_t)i;
		left = i < run ? 0 : left - (uint32_t)i;
	}
	if (from != view->completion.next) {
		view->free_count = count;
		weir_xsk_inline_release(&view->completion, from);
	}
	if (count < want || filled > room)
		weir_xsk_look_after(socket, want);
}

WEIR_XSK_INLINE int weir_xsk_inline_forward_each(struct weir_xsk_socket *socket, uint32_t max,
						 weir_xsk_each *each, void *context)
{
	struct weir_xsk_view *view = weir_xsk_inline_view(socket);
	uint32_t count, left, from, to, over, wrong = 0, kept = 0, moves;

	if (!each || !weir_xsk_inline_may(socket, WEIR_XSK_VIEW_RECEIVES | WEIR_XSK_VIEW_SENDS))
		return weir_xsk_forward_each(socket, max, each, context);
	weir_xsk_inline_refill(view);
	count = weir_xsk_inline_received(socket, view, max);
	count = weir_xsk_inline_min(count, weir_xsk_inline_room(&view->fill, count));
	left = count = weir_xsk_inline_min(count, weir_xsk_inline_room(&view->tx, count));
	if (count == 0)
		return 0;
	from = view->rx.next;
	to = view->fill.next;
	over = view->tx.next;
	moves = view->moves;
	view->moves = WEIR_XSK_VIEW_BUSY;
	while (left > 0) {
		const struct weir_xsk_desc *in = weir_xsk_inline_desc(&view->rx, from), *end;
		struct weir_xsk_desc *const first = weir_xsk_inline_desc(&view->tx, over),
					    *tx = first;
		uint32_t run = weir_xsk_inline_min(left, weir_xsk_inline_run(&view->rx, from));
		const uint32_t shift = view->chunk_shift;
		const uint64_t size = 1ull << shift;
		uint8_t *const memory = view->memory;
		uint32_t *const owners = view->owners;
		const uint32_t sending = view->sending;

		run = weir_xsk_inline_min(run, weir_xsk_inline_run(&view->tx, over));
		for (end = in + run; in < end; in++) {
			const uint64_t addr = in->addr;
			struct weir_xsk_frame packet;
			int verdict;

			weir_xsk_inline_show(&packet, in, addr, memory, size);
			packet.handle[0] = packet.handle[1] = 0;
			verdict = each(&packet, context);
			if (WEIR_XSK_LIKELY(verdict == WEIR_XSK_SEND)) {
				owners[addr >> shift] = sending;
				weir_xsk_inline_write(tx++, (uint64_t)(packet.data - memory),
						      packet.len);
			} else if (verdict == WEIR_XSK_KEEP) {
				owners[addr >> shift] = 0;
				kept++;
			} else {
				wrong += verdict != WEIR_XSK_RECYCLE;
				*weir_xsk_inline_addr(&view->fill, to++) = addr & -size;
			}
		}
		from += run;
		over += (uint32_t)(tx - first);
		left -= run;
	}
	view->frames += kept;
	kept += over - view->tx.next;
	view->tx.next = over;
	weir_xsk_inline_end(view, from, to, kept, moves);
	return wrong ? weir_xsk_refuse_callback(WEIR_XSK_SEND) : (int)count;
}

WEIR_XSK_INLINE int weir_xsk_inline_send_each(struct weir_xsk_socket *socket, uint32_t max,
					      weir_xsk_write *write, void *context)
{
	struct weir_xsk_view *view = weir_xsk_inline_view(socket);
	uint32_t left, over, free, moves, room, too_long = 0;

	if (!write || !weir_xsk_inline_may(socket, WEIR_XSK_VIEW_SENDS))
		return weir_xsk_send_each(socket, max, write, context);
	left = weir_xsk_inline_min(max, weir_xsk_inline_room(&view->tx, max));
	weir_xsk_inline_stock(socket, view, left);
	left = weir_xsk_inline_min(left, view->free_count);
	over = view->tx.next;
	free = view->free_count;
	room = (1u << view->chunk_shift) - view->frame_offset;
	moves = view->moves;
	view->moves = WEIR_XSK_VIEW_BUSY;
	while (left > 0) {
		struct weir_xsk_desc *const first = weir_xsk_inline_desc(&view->tx, over),
					    *tx = first;
		const struct weir_xsk_desc *const end =
			first + weir_xsk_inline_min(left, weir_xsk_inline_run(&view->tx, over));
		const uint32_t *index = view->free + free;
		const uint32_t shift = view->chunk_shift;
		const uint64_t offset = view->frame_offset;
		uint8_t *const memory = view->memory;
		uint32_t *const owners = view->owners;
		const uint32_t sending = view->sending;

		for (; tx < end; tx++) {
			const uint64_t chunk = *--index, addr = (chunk << shift) + offset;
			const uint32_t len = write(memory + addr, room, context);

			if (!WEIR_XSK_LIKELY(len - 1 < room)) {
				too_long = len;
				break;
			}
			owners[chunk] = sending;
			weir_xsk_inline_write(tx, addr, len);
		}
		left = tx < end ? 0 : left - (uint32_t)(tx - first);
		over += (uint32_t)(tx - first);
		free -= (uint32_t)(tx - first);
	}
	left = over - view->tx.next;
	view->tx.next = over;
	view->free_count = free;
	view->moves = moves;
	return too_long ? weir_xsk_refuse_callback(-1) : (int)left;
}

WEIR_XSK_INLINE int weir_xsk_inline_recv(struct weir_xsk_socket *socket,
					 struct weir_xsk_frame *frames, uint32_t max)
{
	struct weir_xsk_view *view = weir_xsk_inline_view(socket);
	struct weir_xsk_frame *frame = frames;
	uint32_t count, left, from;

	if (!frames || !weir_xsk_inline_may(socket, WEIR_XSK_VIEW_RECEIVES))
		return weir_xsk_recv(socket, frames, max);
	left = count = weir_xsk_inline_received(socket, view, max);
	if (count == 0)
		return 0;
	from = view->rx.next;
	while (left > 0) {
		const struct weir_xsk_desc *in = weir_xsk_inline_desc(&view->rx, from), *end;
		uint32_t run = weir_xsk_inline_min(left, weir_xsk_inline_run(&view->rx, from));
		const uint32_t shift = view->chunk_shift;
		const uint64_t size = 1ull << shift;
		uint8_t *const memory = view->memory;
		uint32_t *const owners = view->owners;

		for (end = in + run; in < end; in++, frame++) {
			const uint64_t addr = in->addr;

			weir_xsk_inline_show(frame, in, addr, memory, size);
			owners[addr >> shift] = 0;
		}
		from += run;
		left -= run;
	}
	view->frames += count;
	weir_xsk_inline_end(view, from, view->fill.next, count, view->moves);
	return (int)count;
}

WEIR_XSK_INLINE int weir_xsk_inline_alloc(struct weir_xsk_socket *socket,
					  struct weir_xsk_frame *frames, uint32_t count)
{
	struct weir_xsk_view *view = weir_xsk_inline_view(socket);
	struct weir_xsk_frame *frame = frames;
	const uint32_t *index, *end;
	uint32_t shift, room;
	uint8_t *start;

	if (!frames || !weir_xsk_inline_is_free(socket))
		return weir_xsk_alloc(socket, frames, count);
	if (view->free_count < count)
		weir_xsk_inline_stock(socket, view, count);
	count = weir_xsk_inline_min(count, view->free_count);
	index = view->free + view->free_count;
	shift = view->chunk_shift;
	room = (1u << shift) - view->frame_offset;
	start = view->memory + view->frame_offset;
	for (end = index - count; index > end; frame++) {
		index--;
		frame->data = start + ((uint64_t)*index << shift);
		frame->len = 0;
		frame->room = room;
	}
	view->free_count -= count;
	view->frames += count;
	return (int)count;
}

WEIR_XSK_INLINE int weir_xsk_inline_send(struct weir_xsk_socket *socket,
					 const struct weir_xsk_frame *frames, uint32_t count)
{
	struct weir_xsk_view *view = weir_xsk_inline_view(socket);
	const struct weir_xsk_frame *frame = frames;
	uint32_t left, over;

	if (!frames || !weir_xsk_inline_may(socket, WEIR_XSK_VIEW_SENDS))
		return weir_xsk_send(socket, frames, count);
	/* The chunks of packets sent before: no other call may come to them. */
	weir_xsk_inline_refill(view);
	weir_xsk_inline_stock(socket, view, 0);
	left = count = weir_xsk_inline_min(count, weir_xsk_inline_room(&view->tx, count));
	over = view->tx.next;
	while (left > 0) {
		struct weir_xsk_desc *tx = weir_xsk_inline_desc(&view->tx, over);
		uint32_t run = weir_xsk_inline_min(left, weir_xsk_inline_run(&view->tx, over));
		const struct weir_xsk_desc *const end = tx + run;
		const uint32_t shift = view->chunk_shift;
		uint8_t *const memory = view->memory;
		uint32_t *const owners = view->owners;
		const uint32_t sending = view->sending;

		for (; tx < end; tx++, frame++) {
			const uint64_t addr = (uint64_t)(frame->data - memory);

			owners[addr >> shift] = sending;
			weir_xsk_inline_write(tx, addr, frame->len);
		}
		over += run;
		left -= run;
	}
	view->tx.next = over;
	view->frames -= count;
	return (int)count;
}

WEIR_XSK_INLINE int weir_xsk_inline_free(struct weir_xsk_socket *socket,
					 const struct weir_xsk_frame *frames, uint32_t count)
{
	struct weir_xsk_view *view = weir_xsk_inline_view(socket);
	const struct weir_xsk_frame *frame = frames, *end;
	uint32_t to, left, *out;

	if (!frames || !weir_xsk_inline_is_free(socket))
		return weir_xsk_free(socket, frames, count);
	/* To FILL, as far as it lacks chunks. */
	left = weir_xsk_inline_min(count, view->lacking);
	left = weir_xsk_inline_min(left, weir_xsk_inline_room(&view->fill, left));
	if (view->free_room - view->free_count < count - left)
		return weir_xsk_free(socket, frames, count);
	view->lacking -= left;
	to = view->fill.next;
	while (left > 0) {
		uint64_t *slot = weir_xsk_inline_addr(&view->fill, to), *last;
		uint32_t run = weir_xsk_inline_min(left, weir_xsk_inline_run(&view->fill, to));
		const uint32_t shift = view->chunk_shift;
		uint8_t *const memory = view->memory;
		uint32_t *const owners = view->owners;
		const uint32_t receiving = view->receiving;

		for (last = slot + run; slot < last; slot++, frame++) {
			const uint64_t index = (uint64_t)(frame->data - memory) >> shift;

			owners[index] = receiving;
			*slot = index << shift;
		}
		to += run;
		left -= run;
	}
	if (to != view->fill.next)
		weir_xsk_inline_publish(&view->fill, to);
	out = view->free + view->free_count;
	for (end = frames + count; frame < end; frame++)
		*out++ = (uint32_t)((uint64_t)(frame->data - view->memory) >> view->chunk_shift);
	view->free_count = (uint32_t)(out - view->free);
	view->frames -= count;
	return (int)count;
}

WEIR_XSK_INLINE int weir_xsk_inline_wait(struct weir_xsk_socket *socket, uint32_t events,
					 uint32_t timeout_ms)
{
	if (events == WEIR_XSK_RECEIVE && weir_xsk_inline_may(socket, WEIR_XSK_VIEW_RECEIVES) &&
	    weir_xsk_inline_filled(&weir_xsk_inline_view(socket)->rx) > 0)
		return WEIR_XSK_RECEIVE;
	return weir_xsk_wait(socket, events, timeout_ms);
}

WEIR_XSK_LAYOUT(struct weir_xsk_ring, 48);
WEIR_XSK_LAYOUT(struct weir_xsk_view, 272);

#define weir_xsk_umem_create weir_xsk_umem_create_unchecked
#define weir_xsk_receive_each weir_xsk_inline_receive_each
#define weir_xsk_forward_each weir_xsk_inline_forward_each
#define weir_xsk_send_each weir_xsk_inline_send_each
#define weir_xsk_recv weir_xsk_inline_recv
#define weir_xsk_alloc weir_xsk_inline_alloc
#define weir_xsk_send weir_xsk_inline_send
#define weir_xsk_free weir_xsk_inline_free
#define weir_xsk_wait weir_xsk_inline_wait

#endif
