/* Packets in unaligned chunks between two sockets, their bytes and their room: unaligned DEVICE PEER MODE. */
#include "check.h"

enum {
	CHUNKS = 512,
	CHUNK = 3000,
	HEADROOM = 16,
	/* Bytes behind the first of an allocated and of a received packet. */
	ROOM = CHUNK - HEADROOM,
	RECEIVED_ROOM = CHUNK - 256 - HEADROOM,
	LEN = 1400,
	BATCH = 16,
	ROUNDS = 100,
	SHIFT = 20,
	PAGE = 4096
};

static struct weir_xsk_umem *umem;
static struct weir_xsk_socket *here, *there;

/* Packets whose bytes lay across two pages. */
static uint32_t straddling;

static uint8_t byte_at(uint32_t at, uint32_t number)
{
	return number * 31 + at * 7 + at / 251;
}

/* A packet of LEN bytes, whose first HEADER are as those of packet_write(). */
static void write_long(uint8_t *bytes, uint32_t number)
{
	packet_write(bytes, number);
	for (uint32_t i = PACKET; i < LEN; i++)
		bytes[i] = byte_at(i, number);
}

/* Whether these are the bytes of packet `number` from `skipped` on. */
static int is_long(const uint8_t *bytes, uint32_t len, uint32_t number, uint32_t skipped)
{
	uint8_t expected[LEN];

	write_long(expected, number);
	return len == LEN - skipped && memcmp(bytes, expected + skipped, len) == 0;
}

/* A packet as it was received: its room ends with its chunk. */
static void look_at(const struct weir_xsk_frame *packet)
{
	CHECK(packet->room == RECEIVED_ROOM);
	straddling += (uintptr_t)packet->data % PAGE + packet->len > PAGE;
}

/* The rooms of all frames at once overlap nowhere, and are all that can be sent. */
static void rooms(void)
{
	static struct weir_xsk_frame frames[CHUNKS];
	uint32_t count = OK(weir_xsk_alloc(here, frames, CHUNKS)), across = 0;

	CHECK(count > CHUNKS / 4);
	for (uint32_t i = 0; i < count; i++) {
		CHECK(frames[i].room == ROOM);
		across += (uintptr_t)frames[i].data % PAGE + ROOM > PAGE;
		memset(frames[i].data - HEADROOM, (int)i, HEADROOM + ROOM);
	}
	CHECK(across > count / 4);
	for (uint32_t i = 0; i < count; i++)
		for (uint32_t at = 0; at < HEADROOM + ROOM; at++)
			CHECK(frames[i].data[(int)at - HEADROOM] == (uint8_t)i);
	for (uint32_t i = 0; i < count; i++) {
		struct weir_xsk_frame wrong = frames[i];

		wrong.len = ROOM + 1;
		REFUSED(EINVAL, weir_xsk_send(here, &wrong, 1));
		wrong.len = LEN;
		wrong.data += CHUNK;
		REFUSED(EINVAL, weir_xsk_send(here, &wrong, 1));
		wrong.data -= 2 * CHUNK;
		REFUSED(EINVAL, weir_xsk_send(here, &wrong, 1));
		wrong.data = frames[i].data - HEADROOM - 1;
		REFUSED(EINVAL, weir_xsk_send(here, &wrong, 1));
	}
	CHECK(OK(weir_xsk_free(here, frames, count)) == (int)count);
	check_accounts(umem, CHUNKS, 0);
}

static void receive_frames(struct weir_xsk_socket *socket, struct weir_xsk_frame *frames)
{
	for (int have = 0; have < BATCH;) {
		wait_for_packet(socket);
		have += OK(weir_xsk_recv(socket, frames + have, BATCH - have));
	}
}

/* There by arrays, and back in the same chunks with SHIFT bytes less in front, or as many more. */
static void by_arrays(void)
{
	struct weir_xsk_frame frames[BATCH];

	for (uint32_t round = 0; round < ROUNDS; round++) {
		uint32_t number = round * BATCH;
		int shift = round % 2 ? SHIFT : -SHIFT;

		CHECK(OK(weir_xsk_alloc(here, frames, BATCH)) == BATCH);
		for (int i = 0; i < BATCH; i++) {
			frames[i].len = LEN;
			write_long(frames[i].data, number + i);
		}
		CHECK(OK(weir_xsk_send(here, frames, BATCH)) == BATCH);
		OK(weir_xsk_flush(here));
		receive_frames(there, frames);
		check_accounts(umem, CHUNKS, BATCH);
		for (int i = 0; i < BATCH; i++) {
			look_at(&frames[i]);
			CHECK(is_long(frames[i].data, frames[i].len, number + i, 0));
			frames[i].data += shift;
			frames[i].len -= shift;
			if (shift < 0)
				memset(frames[i].data, 0xee, SHIFT);
		}
		CHECK(OK(weir_xsk_send(there, frames, BATCH)) == BATCH);
		OK(weir_xsk_flush(there));
		receive_frames(here, frames);
		for (int i = 0; i < BATCH; i++) {
			uint8_t *data = frames[i].data;

			look_at(&frames[i]);
			if (shift > 0) {
				CHECK(is_long(data, frames[i].len, number + i, SHIFT));
				continue;
			}
			for (int at = 0; at < SHIFT; at++)
				CHECK(data[at] == 0xee);
			CHECK(is_long(data + SHIFT, frames[i].len - SHIFT, number + i, 0));
		}
		CHECK(OK(weir_xsk_free(there, frames, BATCH)) == BATCH);
	}
	check_accounts(umem, CHUNKS, 0);
}

struct seen {
	uint32_t number;
	struct weir_xsk_frame kept[BATCH];
	int kept_count;
};

static uint32_t write_packet(uint8_t *room, uint32_t size, void *context)
{
	CHECK(size == ROOM);
	write_long(room, (*(uint32_t *)context)++);
	return LEN;
}

/* Keeps every fourth packet, and sends the others back, with SHIFT bytes less in front. */
static int shift_or_keep(struct weir_xsk_frame *packet, void *context)
{
	struct seen *seen = context;
	uint32_t number = seen->number++;

	look_at(packet);
	CHECK(is_long(packet->data, packet->len, number, 0));
	if (number % 4 == 3) {
		seen->kept[seen->kept_count++] = *packet;
		return WEIR_XSK_KEEP;
	}
	packet->data += SHIFT;
	packet->len -= SHIFT;
	return WEIR_XSK_SEND;
}

/* The packets that were sent back, in order. */
static int look_shifted(struct weir_xsk_frame *packet, void *context)
{
	struct seen *seen = context;
	uint32_t number = seen->number++;

	look_at(packet);
	CHECK(is_long(packet->data, packet->len, number / 3 * 4 + number % 3, SHIFT));
	return WEIR_XSK_RECYCLE;
}

static void by_callbacks(void)
{
	struct seen forwarded = { 0 }, returned = { 0 };
	uint32_t written = 0;

	for (uint32_t round = 0; round < ROUNDS; round++) {
		CHECK(OK(weir_xsk_send_each(here, BATCH, write_packet, &written)) == BATCH);
		OK(weir_xsk_flush(here));
		while (forwarded.number < written) {
			wait_for_packet(there);
			OK(weir_xsk_forward_each(there, 64, shift_or_keep, &forwarded));
			OK(weir_xsk_flush(there));
		}
		while (returned.number < written / 4 * 3) {
			wait_for_packet(here);
			OK(weir_xsk_receive_each(here, 64, look_shifted, &returned));
		}
		CHECK(forwarded.kept_count == BATCH / 4);
		for (int i = 0; i < BATCH / 4; i++) {
			struct weir_xsk_frame *it = &forwarded.kept[i], wrong = *it;

			CHECK(is_long(it->data, it->len, round * BATCH + 4 * i + 3, 0));
			wrong.len = RECEIVED_ROOM + 1;
			REFUSED(EINVAL, weir_xsk_send(there, &wrong, 1));
		}
		CHECK(OK(weir_xsk_free(there, forwarded.kept, BATCH / 4)) == BATCH / 4);
		forwarded.kept_count = 0;
	}
	check_accounts(umem, CHUNKS, 0);
}

int main(int argc, char **argv)
{
	struct weir_xsk_umem_options options = { .size = sizeof(options),
						 .chunks = CHUNKS,
						 .chunk_size = CHUNK,
						 .headroom = HEADROOM,
						 .flags = WEIR_XSK_UNALIGNED };
	struct weir_xsk_statistics counts = { .size = sizeof(counts) };
	uint32_t mode;

	CHECK(argc == 4);
	mode = atoi(argv[3]);
	OK(weir_xsk_umem_create(&options, &umem));
	here = socket_on(umem, argv[1], mode, WEIR_XSK_ADAPTIVE);
	there = socket_on(umem, argv[2], mode, WEIR_XSK_ADAPTIVE);
	CHECK(OK(weir_xsk_mode(here)) == (int)mode);
	rooms();
	by_arrays();
	by_callbacks();
	CHECK(straddling > ROUNDS * BATCH / 4);
	OK(weir_xsk_statistics(there, &counts));
	CHECK(counts.received == 2 * ROUNDS * BATCH);
	CHECK(counts.fragmented == 0 && counts.invalid_descs == 0);
	OK(weir_xsk_close(here));
	OK(weir_xsk_close(there));
	check_accounts(umem, CHUNKS, 0);
	OK(weir_xsk_umem_close(umem));
	printf("all packets as they were sent\n");
	return EXIT_SUCCESS;
}
