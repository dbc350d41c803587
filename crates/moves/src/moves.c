// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The moves of a packet through the four rings with libxdp's inline functions, as
 * xdpsock makes them, on rings in plain memory.
 */
#include <stdint.h>
#include <string.h>

#include <xdp/xsk.h>

#define SLOTS 2048
#define CHUNK 2048
#define PACKET 64

#define always_inline inline __attribute__((always_inline))

/* `Words` in crates/xsk/src/testing/moves.rs. */
struct words {
	__u32 *producer;
	__u32 *consumer;
	__u32 *flags;
	void *slots;
};

struct rings {
	struct words rx, tx, fill, completion;
};

static struct xsk_ring_cons rx, completion;
static struct xsk_ring_prod tx, fill;
/* Completions come in any order, so a program has to keep a list of free frames. */
static __u64 free_frames[SLOTS];
static __u32 free_count;
static char *area;

static void lay_out_cons(struct xsk_ring_cons *ring, const struct words *words)
{
	*ring = (struct xsk_ring_cons){
		.cached_prod = *words->producer,
		.cached_cons = *words->consumer,
		.mask = SLOTS - 1,
		.size = SLOTS,
		.producer = words->producer,
		.consumer = words->consumer,
		.ring = words->slots,
		.flags = words->flags,
	};
}

static void lay_out_prod(struct xsk_ring_prod *ring, const struct words *words)
{
	*ring = (struct xsk_ring_prod){
		.cached_prod = *words->producer,
		.cached_cons = *words->consumer + SLOTS,
		.mask = SLOTS - 1,
		.size = SLOTS,
		.producer = words->producer,
		.consumer = words->consumer,
		.ring = words->slots,
		.flags = words->flags,
	};
}

/* Takes rings whose chunks are lent already, and the start of the packets' memory. */
void moves_take_over(const struct rings *rings, void *memory)
{
	lay_out_cons(&rx, &rings->rx);
	lay_out_cons(&completion, &rings->completion);
	lay_out_prod(&tx, &rings->tx);
	lay_out_prod(&fill, &rings->fill);
	area = memory;
}

/* Takes zeroed rings and the start of the packets' memory, and lends every chunk. */
void moves_set_up(const struct rings *rings, void *memory)
{
	struct xdp_desc *descs = rings->rx.slots;
	__u32 at = 0;

	moves_take_over(rings, memory);
	for (free_count = 0; free_count < SLOTS; free_count++)
		free_frames[free_count] = free_count * CHUNK;
	for (__u64 i = 0; i < SLOTS; i++)
		descs[i] = (struct xdp_desc){ .addr = i * CHUNK + 256, .len = PACKET };
	xsk_ring_prod__reserve(&fill, SLOTS, &at);
	for (__u64 i = 0; i < SLOTS; i++)
		*xsk_ring_prod__fill_addr(&fill, at++) = i * CHUNK;
	xsk_ring_prod__submit(&fill, SLOTS);
}

/* Work on a received packet: a constant argument where it is passed on, so that it is inlined. */
typedef __u64 (*work_fn)(void *packet, __u32 len);

static always_inline __u64 place(void *packet, __u32 len)
{
	return (uintptr_t)packet + len;
}

static always_inline __u64 sum(void *packet, __u32 len)
{
	__u64 words[PACKET / sizeof(__u64)];
	__u64 total = 0;

	if (len != PACKET)
		return 0;
	memcpy(words, packet, sizeof(words));
	for (size_t i = 0; i < PACKET / sizeof(*words); i++)
		total += words[i];
	return total;
}

static always_inline __u64 none(void *packet, __u32 len)
{
	(void)packet;
	(void)len;
	return 0;
}

static always_inline __u64 swap_macs(void *packet, __u32 len)
{
	char *macs = packet;
	char destination[6];

	if (len != PACKET)
		return 0;
	memcpy(destination, macs, 6);
	memmove(macs, macs + 6, 6);
	memcpy(macs + 6, destination, 6);
	return 0;
}

static always_inline __u64 receive(__u32 batch, work_fn work)
{
	__u32 rx_at = 0, fill_at = 0;
	__u64 total = 0;
	__u32 packets = xsk_ring_cons__peek(&rx, batch, &rx_at);

	if (!packets || xsk_ring_prod__reserve(&fill, packets, &fill_at) != packets)
		return 0;
	for (__u32 i = 0; i < packets; i++) {
		const struct xdp_desc *desc = xsk_ring_cons__rx_desc(&rx, rx_at++);
		__u64 addr = xsk_umem__add_offset_to_addr(desc->addr);

		total += work(xsk_umem__get_data(area, addr), desc->len);
		*xsk_ring_prod__fill_addr(&fill, fill_at++) = xsk_umem__extract_addr(desc->addr);
	}
	xsk_ring_prod__submit(&fill, packets);
	xsk_ring_cons__release(&rx, packets);
	return total;
}

/* Receives a batch and lends its chunks again. Returns the sum of lengths and places. */
__u64 moves_receive(__u32 batch)
{
	return receive(batch, place);
}

/* The same; returns the sum of the packets' words. */
__u64 moves_receive_sum(__u32 batch)
{
	return receive(batch, sum);
}

/* Sends a batch. Returns how many packets that were. */
__u32 moves_send(__u32 batch)
{
	__u32 at = 0;

	if (free_count < batch || xsk_ring_prod__reserve(&tx, batch, &at) != batch)
		return 0;
	for (__u32 i = 0; i < batch; i++) {
		struct xdp_desc *desc = xsk_ring_prod__tx_desc(&tx, at++);

		desc->addr = free_frames[--free_count];
		desc->len = PACKET;
		desc->options = 0;
	}
	xsk_ring_prod__submit(&tx, batch);
	return batch;
}

/* Takes completions back. Returns how many. */
__u32 moves_complete(__u32 batch)
{
	__u32 at = 0;
	__u32 packets = xsk_ring_cons__peek(&completion, batch, &at);

	for (__u32 i = 0; i < packets; i++)
		free_frames[free_count++] = *xsk_ring_cons__comp_addr(&completion, at++);
	xsk_ring_cons__release(&completion, packets);
	return packets;
}

static always_inline __u32 forward(__u32 batch, work_fn work)
{
	__u32 rx_at = 0, at = 0, fill_at = 0;
	__u32 completed = xsk_ring_cons__peek(&completion, batch, &at);
	__u32 packets;

	if (completed) {
		if (xsk_ring_prod__reserve(&fill, completed, &fill_at) != completed)
			return 0;
		for (__u32 i = 0; i < completed; i++)
			*xsk_ring_prod__fill_addr(&fill, fill_at++) =
				*xsk_ring_cons__comp_addr(&completion, at++);
		xsk_ring_prod__submit(&fill, completed);
		xsk_ring_cons__release(&completion, completed);
	}
	packets = xsk_ring_cons__peek(&rx, batch, &rx_at);
	if (!packets || xsk_ring_prod__reserve(&tx, packets, &at) != packets)
		return 0;
	for (__u32 i = 0; i < packets; i++) {
		const struct xdp_desc *from = xsk_ring_cons__rx_desc(&rx, rx_at++);
		struct xdp_desc *to = xsk_ring_prod__tx_desc(&tx, at++);
		__u64 addr = xsk_umem__add_offset_to_addr(from->addr);

		work(xsk_umem__get_data(area, addr), from->len);
		to->addr = from->addr;
		to->len = from->len;
		to->options = 0;
	}
	xsk_ring_prod__submit(&tx, packets);
	xsk_ring_cons__release(&rx, packets);
	return packets;
}

/* Receives a batch and sends it on, as l2fwd does; completions go to FILL. */
__u32 moves_forward(__u32 batch)
{
	return forward(batch, none);
}

/* The same, with the MAC addresses swapped. */
__u32 moves_forward_swapped(__u32 batch)
{
	return forward(batch, swap_macs);
}
