/*
 * Calls of the library for C, to be counted: count DEVICE PEER MOVE [flush]. `rust.rs` makes the same moves, and
 * crates/xsk-libxdp/tests/libxdp/moves.c those of packets one by one on libxdp.
 *
 * `counted` makes a move of one batch, and with `flush` hands it to the kernel, whose part is not counted. No other call
 * comes to the chunks of the packets that it sends.
 */
#include "check.h"

enum {
	ROUNDS = 128,
	BATCH = 64
};

static struct weir_xsk_socket *here, *there;
static struct weir_xsk_frame frames[BATCH];
static uint64_t sum;
static long moved;

static int look(struct weir_xsk_frame *packet, void *context)
{
	(void)context;
	sum += packet->len + *packet->data;
	return WEIR_XSK_RECYCLE;
}

static inline void swap_addresses(uint8_t *packet)
{
	uint8_t address[6];

	memcpy(address, packet, 6);
	memcpy(packet, packet + 6, 6);
	memcpy(packet + 6, address, 6);
}

static int forward(struct weir_xsk_frame *packet, void *context)
{
	(void)context;
	swap_addresses(packet->data);
	return WEIR_XSK_SEND;
}

static uint32_t write_packet(uint8_t *room, uint32_t size, void *context)
{
	(void)room;
	(void)size;
	(void)context;
	return 64;
}

static int receive_each(void)
{
	return weir_xsk_receive_each(there, BATCH, look, NULL);
}

static int forward_each(void)
{
	return weir_xsk_forward_each(there, BATCH, forward, NULL);
}

static int send_each(void)
{
	return weir_xsk_send_each(here, BATCH, write_packet, NULL);
}

static int receive_frames(void)
{
	int count = weir_xsk_recv(there, frames, BATCH);

	for (int i = 0; i < count; i++)
		sum += frames[i].len + *frames[i].data;
	return weir_xsk_free(there, frames, count);
}

static int forward_frames(void)
{
	int count = weir_xsk_recv(there, frames, BATCH);

	for (int i = 0; i < count; i++)
		swap_addresses(frames[i].data);
	return weir_xsk_send(there, frames, count);
}

static int send_frames(void)
{
	int count = weir_xsk_alloc(here, frames, BATCH);

	for (int i = 0; i < count; i++)
		frames[i].len = 64;
	return weir_xsk_send(here, frames, count);
}

static const struct {
	const char *name;
	int (*move)(void);
	int sends;
} moves[] = {
	{ "receive_each", receive_each, 0 },	 { "forward_each", forward_each, 0 },
	{ "send_each", send_each, 1 },		 { "receive_frames", receive_frames, 0 },
	{ "forward_frames", forward_frames, 0 }, { "send_frames", send_frames, 1 },
};

/* The part that is counted; `flushed` is the socket to flush, or NULL. */
__attribute__((noinline)) void counted(int i, struct weir_xsk_socket *flushed)
{
	moved += moves[i].move();
	if (flushed)
		weir_xsk_flush(flushed);
}

static void drain(struct weir_xsk_socket *socket)
{
	for (int empty = 0; empty < 3; empty++)
		while (OK(weir_xsk_receive_each(socket, BATCH, look, NULL)) > 0)
			empty = 0;
}

int main(int argc, char **argv)
{
	struct weir_xsk_umem *umem = umem_of(16384);
	int i = 0, flush = argc == 5 && strcmp(argv[4], "flush") == 0;

	CHECK(argc == 4 + flush);
	while (strcmp(moves[i].name, argv[3]) != 0)
		CHECK(++i < (int)(sizeof(moves) / sizeof(moves[0])));
	OK(weir_xsk_open(umem, argv[1], 0, NULL, &here));
	OK(weir_xsk_open(umem, argv[2], 0, NULL, &there));
	/* The first is not counted: it gets free chunks for those after it. */
	for (int round = -1; round < ROUNDS; round++) {
		struct weir_xsk_socket *sender = moves[i].sends ? here : there;

		if (!moves[i].sends) {
			send_each();
			OK(weir_xsk_flush(here));
			OK(weir_xsk_wait(there, WEIR_XSK_RECEIVE, 1000));
		}
		if (round >= 0)
			counted(i, flush ? sender : NULL);
		else
			moves[i].move();
		if (!flush || round < 0)
			OK(weir_xsk_flush(sender));
		drain(moves[i].sends ? there : here);
	}
	CHECK(moved > ROUNDS * BATCH / 2);
	printf("%ld packets\n", moved);
	return EXIT_SUCCESS;
}
