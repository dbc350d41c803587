/*
 * Random calls with good, used and forged handles, beside a record of which are good: random DEVICE PEER SEED. Without
 * WEIR_XSK_CHECKED with good ones alone.
 */
#include "check.h"

#ifdef WEIR_XSK_CHECKED
#define IS_CHECKED 1
#else
#define IS_CHECKED 0
#endif

enum {
	CHUNKS = 256,
	HANDLES = 64,
	STEPS = 20000
};

static struct weir_xsk_umem *umem;
static struct weir_xsk_socket *sockets[2];

/* Frames that were ours once; some are still. */
static struct weir_xsk_frame frames[HANDLES];
static int is_ours[HANDLES];

static uint64_t state;

static uint32_t random_below(uint32_t limit)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (state >> 33) % limit;
}

static int count_ours(void)
{
	int count = 0;

	for (int i = 0; i < HANDLES; i++)
		count += is_ours[i];
	return count;
}

/* A place whose frame is not ours. */
static int free_place(void)
{
	for (int tries = 0; tries < 4 * HANDLES; tries++) {
		int i = random_below(HANDLES);

		if (!is_ours[i])
			return i;
	}
	return -1;
}

static void take(struct weir_xsk_socket *socket, int received)
{
	int i = free_place();

	if (i < 0)
		return;
	is_ours[i] = received ? OK(weir_xsk_recv(socket, &frames[i], 1))
			      : OK(weir_xsk_alloc(socket, &frames[i], 1));
	if (is_ours[i] && received)
		CHECK(frames[i].len == PACKET);
}

/* Sends or frees a frame, ours or not; either way, it is not ours afterwards. */
static void give(struct weir_xsk_socket *socket, int send)
{
	int i = random_below(HANDLES), result;
	struct weir_xsk_frame frame = frames[i];

	if (!is_ours[i] && !IS_CHECKED)
		return;
	if (send && is_ours[i]) {
		frame.len = PACKET;
		packet_write(frame.data, i);
	}
	result = send ? weir_xsk_send(socket, &frame, 1) : weir_xsk_free(socket, &frame, 1);
	if (!is_ours[i])
		CHECK(result == -ESTALE);
	else if (result == 0) /* TX is full. */
		CHECK(send);
	else
		CHECK(result == 1);
	is_ours[i] -= result == 1;
}

/* The same of several frames as one packet, which this UMEM has only of one: else, all stay as they were. */
static void give_together(struct weir_xsk_socket *socket)
{
	int places[4], count = 1 + random_below(4), are_good = 1, result;
	struct weir_xsk_frame packet[4];

	for (int i = 0; i < count; i++) {
		places[i] = random_below(HANDLES);
		packet[i] = frames[places[i]];
		are_good &= is_ours[places[i]];
		for (int j = 0; j < i; j++)
			are_good &= places[j] != places[i];
		if (!are_good && !IS_CHECKED)
			return;
		if (is_ours[places[i]]) {
			packet[i].len = PACKET;
			packet_write(packet[i].data, i);
		}
	}
	result = weir_xsk_send_fragments(socket, packet, count);
	if (!are_good)
		CHECK(result == -ESTALE);
	else if (count > 1)
		CHECK(result == -EOPNOTSUPP);
	else
		CHECK(result == 0 || result == 1);
	is_ours[places[0]] -= result == 1;
}

static void forge(struct weir_xsk_socket *socket)
{
	struct weir_xsk_frame frame = frames[random_below(HANDLES)];

	if (!IS_CHECKED)
		return;
	/* The low bits of the second could make it the handle of another frame of ours. */
	if (random_below(2))
		frame.handle[0] ^= 1ull << random_below(64);
	else
		frame.handle[1] ^= 1ull << (32 + random_below(32));
	CHECK(weir_xsk_free(socket, &frame, 1) < 0);
}

static int decide(struct weir_xsk_frame *packet, void *context)
{
	int verdict = random_below(3), i = free_place();

	(void)context;
	CHECK(packet->len == PACKET);
	if (verdict != WEIR_XSK_KEEP)
		return verdict;
	if (i < 0)
		return WEIR_XSK_RECYCLE;
	frames[i] = *packet;
	is_ours[i] = 1;
	return WEIR_XSK_KEEP;
}

int main(int argc, char **argv)
{
	struct weir_xsk_statistics counts = { .size = sizeof(counts) };

	CHECK(argc == 4);
	state = strtoull(argv[3], NULL, 10);
	umem = umem_of(CHUNKS);
	for (int i = 0; i < 2; i++)
		sockets[i] = socket_on(umem, argv[1 + i], WEIR_XSK_DRV, WEIR_XSK_POLL);
	for (int step = 0; step < STEPS; step++) {
		struct weir_xsk_socket *socket = sockets[random_below(2)];

		switch (random_below(8)) {
		case 0:
			take(socket, 0);
			break;
		case 1:
			take(socket, 1);
			break;
		case 2:
			give(socket, 0);
			break;
		case 3:
			give(socket, 1);
			break;
		case 4:
			forge(socket);
			break;
		case 5:
			OK(weir_xsk_flush(socket));
			break;
		case 6:
			OK(weir_xsk_forward_each(socket, 4, decide, NULL));
			break;
		case 7:
			give_together(socket);
			break;
		}
		if (step % 64 == 0)
			check_accounts(umem, CHUNKS, count_ours());
	}
	for (int i = 0; i < HANDLES; i++)
		if (is_ours[i])
			CHECK(OK(weir_xsk_free(sockets[i % 2], &frames[i], 1)) == 1);
	check_accounts(umem, CHUNKS, 0);
	for (int i = 0; i < 2; i++) {
		OK(weir_xsk_statistics(sockets[i], &counts));
		CHECK(counts.received > 100 && counts.invalid_descs == 0);
	}
	OK(weir_xsk_close(sockets[0]));
	OK(weir_xsk_close(sockets[1]));
	check_accounts(umem, CHUNKS, 0);
	OK(weir_xsk_umem_close(umem));
	printf("every handle was as it should be\n");
	return EXIT_SUCCESS;
}
