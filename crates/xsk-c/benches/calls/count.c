/* Calls of the library for C, to be counted: count DEVICE PEER MOVE. `rust.rs` makes the same moves. */
#include "check.h"

enum {
	ROUNDS = 128,
	BATCH = 64
};

static struct weir_xsk_socket *here, *there;
static struct weir_xsk_frame frames[BATCH];
static uint64_t sum;

static int look(struct weir_xsk_frame *packet, void *context)
{
	(void)context;
	sum += (uintptr_t)packet->data + packet->len;
	return WEIR_XSK_RECYCLE;
}

static int forward(struct weir_xsk_frame *packet, void *context)
{
	(void)packet;
	(void)context;
	return WEIR_XSK_SEND;
}

static uint32_t write_packet(uint8_t *room, uint32_t size, void *context)
{
	(void)room;
	(void)size;
	(void)context;
	return 64;
}

static void receive_each(void)
{
	weir_xsk_receive_each(there, BATCH, look, NULL);
}

static void forward_each(void)
{
	weir_xsk_forward_each(there, BATCH, forward, NULL);
}

static void send_each(void)
{
	weir_xsk_send_each(here, BATCH, write_packet, NULL);
}

static void receive_frames(void)
{
	int count = weir_xsk_recv(there, frames, BATCH);

	for (int i = 0; i < count; i++)
		sum += (uintptr_t)frames[i].data + frames[i].len;
	weir_xsk_free(there, frames, count);
}

static void forward_frames(void)
{
	weir_xsk_send(there, frames, weir_xsk_recv(there, frames, BATCH));
}

static void send_frames(void)
{
	int count = weir_xsk_alloc(here, frames, BATCH);

	for (int i = 0; i < count; i++)
		frames[i].len = 64;
	weir_xsk_send(here, frames, count);
}

static const struct {
	const char *name;
	void (*move)(void);
	int sends;
} moves[] = {
	{ "receive_each", receive_each, 0 },	 { "forward_each", forward_each, 0 },
	{ "send_each", send_each, 1 },		 { "receive_frames", receive_frames, 0 },
	{ "forward_frames", forward_frames, 0 }, { "send_frames", send_frames, 1 },
};

/* The part that is counted. */
__attribute__((noinline)) void counted(int i)
{
	moves[i].move();
}

static void drain(struct weir_xsk_socket *socket)
{
	OK(weir_xsk_flush(socket));
	while (OK(weir_xsk_receive_each(socket, BATCH, look, NULL)) > 0)
		;
}

int main(int argc, char **argv)
{
	struct weir_xsk_statistics counts = { .size = sizeof(counts) };
	struct weir_xsk_umem *umem = umem_of(16384);
	int i = 0;

	CHECK(argc == 4);
	while (strcmp(moves[i].name, argv[3]) != 0)
		CHECK(++i < (int)(sizeof(moves) / sizeof(moves[0])));
	OK(weir_xsk_open(umem, argv[1], 0, NULL, &here));
	OK(weir_xsk_open(umem, argv[2], 0, NULL, &there));
	for (int round = 0; round < ROUNDS; round++) {
		if (!moves[i].sends) {
			send_each();
			OK(weir_xsk_flush(here));
			OK(weir_xsk_reclaim(here));
		}
		counted(i);
		drain(here);
		OK(weir_xsk_flush(there));
		drain(moves[i].sends ? there : here);
		OK(weir_xsk_reclaim(here));
		OK(weir_xsk_reclaim(there));
	}
	OK(weir_xsk_statistics(there, &counts));
	CHECK(counts.received == ROUNDS * BATCH);
	return EXIT_SUCCESS;
}
