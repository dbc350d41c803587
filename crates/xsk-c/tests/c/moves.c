/* Packets between two sockets by each call, their bytes checked: moves DEVICE PEER MODE. */
#include "check.h"
#include <poll.h>

enum {
	ROUNDS = 300,
	BATCH = 16,
	CHUNKS = 512
};

static struct weir_xsk_umem *umem;

/* Waits for a packet in an event loop. */
static void poll_for_packet(struct weir_xsk_socket *socket)
{
	struct pollfd fd = { .fd = OK(weir_xsk_fd(socket)), .events = POLLIN };
	int timeout_ms = -2;

	for (int tries = 0; tries < 100; tries++) {
		if (OK(weir_xsk_prepare(socket, WEIR_XSK_RECEIVE, &timeout_ms)) & WEIR_XSK_RECEIVE)
			return;
		CHECK(timeout_ms >= -1);
		poll(&fd, 1, timeout_ms < 0 || timeout_ms > 100 ? 100 : timeout_ms);
	}
	CHECK(!"no packet in 10 seconds");
}

static void send_frames(struct weir_xsk_socket *socket, uint32_t number)
{
	struct weir_xsk_frame frames[BATCH];

	while (OK(weir_xsk_alloc(socket, frames, BATCH)) != BATCH)
		CHECK(!"free chunks");
	for (int i = 0; i < BATCH; i++) {
		CHECK(frames[i].len == 0 && frames[i].room == 2048 - 16);
		frames[i].len = PACKET;
		packet_write(frames[i].data, number + i);
	}
	CHECK(OK(weir_xsk_send(socket, frames, BATCH)) == BATCH);
	OK(weir_xsk_flush(socket));
}

/* Fills `frames` with BATCH packets. */
static void receive_frames(struct weir_xsk_socket *socket, struct weir_xsk_frame *frames,
			   void (*wait)(struct weir_xsk_socket *))
{
	for (int have = 0; have < BATCH;) {
		wait(socket);
		have += OK(weir_xsk_recv(socket, frames + have, BATCH - have));
	}
}

/* Sends by arrays, and returns each received frame by the other socket without a copy. */
static void by_arrays(struct weir_xsk_socket *here, struct weir_xsk_socket *there,
		      void (*wait)(struct weir_xsk_socket *))
{
	struct weir_xsk_frame frames[BATCH];

	for (uint32_t round = 0; round < ROUNDS; round++) {
		uint32_t number = round * BATCH;

		send_frames(here, number);
		receive_frames(there, frames, wait);
		for (int i = 0; i < BATCH; i++)
			CHECK(packet_is(frames[i].data, frames[i].len, number + i));
		check_accounts(umem, CHUNKS, BATCH);
		/* Received there, and sent by the same socket: back to `here`. */
		CHECK(OK(weir_xsk_send(there, frames, BATCH)) == BATCH);
		OK(weir_xsk_flush(there));
		receive_frames(here, frames, wait);
		for (int i = 0; i < BATCH; i++)
			CHECK(packet_is(frames[i].data, frames[i].len, number + i));
		/* Received here, freed there: both are on the one UMEM. */
		CHECK(OK(weir_xsk_free(there, frames, BATCH)) == BATCH);
	}
	check_accounts(umem, CHUNKS, 0);
}

struct writing {
	uint32_t number;
};

static uint32_t write_packet(uint8_t *room, uint32_t size, void *context)
{
	struct writing *writing = context;

	CHECK(size == 2048 - 16);
	packet_write(room, writing->number++);
	return PACKET;
}

struct seen {
	uint32_t number;
	struct weir_xsk_frame kept[ROUNDS];
	int kept_count;
};

/* Keeps one of 16, and drops the others. */
static int look(struct weir_xsk_frame *packet, void *context)
{
	struct seen *seen = context;
	uint32_t number = seen->number++;

	CHECK(packet_is(packet->data, packet->len, number));
	if (number % 16 != 3)
		return WEIR_XSK_RECYCLE;
	seen->kept[seen->kept_count++] = *packet;
	return WEIR_XSK_KEEP;
}

static void by_callbacks(struct weir_xsk_socket *here, struct weir_xsk_socket *there)
{
	struct writing writing = { 0 };
	static struct seen seen;

	memset(&seen, 0, sizeof(seen));
	for (uint32_t round = 0; round < ROUNDS; round++) {
		uint32_t sent = 0;

		while (sent < BATCH) {
			sent += OK(weir_xsk_send_each(here, BATCH - sent, write_packet, &writing));
			OK(weir_xsk_flush(here));
		}
		while (seen.number < writing.number) {
			wait_for_packet(there);
			OK(weir_xsk_receive_each(there, 64, look, &seen));
		}
		/* A kept packet stays as it was while others come. */
		if (round % 8 == 7) {
			for (int i = 0; i < 8; i++) {
				struct weir_xsk_frame *frame = &seen.kept[i];

				CHECK(packet_is(frame->data, frame->len,
						(round - 7 + i) * BATCH + 3));
			}
			check_accounts(umem, CHUNKS, 8);
			CHECK(OK(weir_xsk_free(there, seen.kept, 8)) == 8);
			seen.kept_count = 0;
		}
	}
	CHECK(OK(weir_xsk_free(there, seen.kept, seen.kept_count)) == seen.kept_count);
	check_accounts(umem, CHUNKS, 0);
}

/* Sends packets back, of other lengths: one byte less in front for odd ones, and one more for others. */
static int shift(struct weir_xsk_frame *packet, void *context)
{
	struct seen *seen = context;
	uint32_t number = seen->number++;

	CHECK(packet_is(packet->data, packet->len, number));
	if (number % 2) {
		packet->data++;
		packet->len--;
	} else {
		packet->data--;
		packet->len++;
		packet->data[0] = number;
	}
	return WEIR_XSK_SEND;
}

static int look_shifted(struct weir_xsk_frame *packet, void *context)
{
	struct seen *seen = context;
	uint32_t number = seen->number++;
	uint8_t expected[PACKET + 1];

	packet_write(expected + 1, number);
	expected[0] = number;
	if (number % 2)
		CHECK(packet->len == PACKET - 1 &&
		      memcmp(packet->data, expected + 2, PACKET - 1) == 0);
	else
		CHECK(packet->len == PACKET + 1 && memcmp(packet->data, expected, PACKET + 1) == 0);
	return WEIR_XSK_RECYCLE;
}

static void forward(struct weir_xsk_socket *here, struct weir_xsk_socket *there)
{
	struct seen forwarded = { 0 }, returned = { 0 };

	for (uint32_t round = 0; round < ROUNDS; round++) {
		uint32_t until = (round + 1) * BATCH;

		send_frames(here, round * BATCH);
		while (forwarded.number < until) {
			wait_for_packet(there);
			OK(weir_xsk_forward_each(there, 64, shift, &forwarded));
			OK(weir_xsk_flush(there));
		}
		while (returned.number < until) {
			wait_for_packet(here);
			OK(weir_xsk_receive_each(here, 64, look_shifted, &returned));
		}
	}
	check_accounts(umem, CHUNKS, 0);
}

int main(int argc, char **argv)
{
	struct weir_xsk_statistics counts = { .size = sizeof(counts) };

	CHECK(argc == 4);
	for (uint32_t waiting = WEIR_XSK_ADAPTIVE; waiting <= WEIR_XSK_BUSY_POLL; waiting++) {
		uint32_t mode = atoi(argv[3]);
		struct weir_xsk_socket *here, *there;

		umem = umem_of(CHUNKS);
		here = socket_on(umem, argv[1], mode, waiting);
		there = socket_on(umem, argv[2], mode, waiting);
		CHECK(OK(weir_xsk_mode(here)) == (int)mode);
		by_arrays(here, there, wait_for_packet);
		by_arrays(here, there, poll_for_packet);
		by_callbacks(here, there);
		forward(here, there);
		OK(weir_xsk_reclaim(here));
		OK(weir_xsk_statistics(here, &counts));
		CHECK(counts.sent == 4ul * ROUNDS * BATCH);
		CHECK(counts.received == 3ul * ROUNDS * BATCH);
		CHECK(counts.completed <= counts.sent && counts.invalid_descs == 0);
		/* The memory stays until the last socket is closed. */
		OK(weir_xsk_umem_close(umem));
		send_frames(here, 1);
		OK(weir_xsk_close(here));
		OK(weir_xsk_close(there));
	}
	printf("all packets as they were sent\n");
	return EXIT_SUCCESS;
}
