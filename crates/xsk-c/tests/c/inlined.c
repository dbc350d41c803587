/* What the inlined calls find of misuse, and what becomes of frames that nobody frees: inlined DEVICE PEER MODE. */
#include "check.h"
#include <sys/wait.h>
#include <unistd.h>

#ifdef WEIR_XSK_CHECKED
#error "this is about the inlined calls"
#endif

enum {
	CHUNKS = 512
};

static struct weir_xsk_umem *umem;
static struct weir_xsk_socket *here, *there;

static int say_99(struct weir_xsk_frame *packet, void *context)
{
	(void)packet;
	(void)context;
	return 99;
}

/* Writes one packet, and then too much. */
static uint32_t write_too_much(uint8_t *room, uint32_t size, void *context)
{
	int *written = context;

	packet_write(room, 0);
	return (*written)++ == 0 ? PACKET : size + 1;
}

/* Each inlined function refuses the handle with the error. */
static void refuse_moves(int code, struct weir_xsk_socket *socket)
{
	struct weir_xsk_frame frame = { 0 };

	REFUSED(code, weir_xsk_receive_each(socket, 1, recycle, NULL));
	REFUSED(code, weir_xsk_forward_each(socket, 1, recycle, NULL));
	REFUSED(code, weir_xsk_send_each(socket, 1, write_packet_0, NULL));
	REFUSED(code, weir_xsk_recv(socket, &frame, 1));
	REFUSED(code, weir_xsk_alloc(socket, &frame, 1));
	REFUSED(code, weir_xsk_send(socket, &frame, 1));
	REFUSED(code, weir_xsk_free(socket, &frame, 1));
	REFUSED(code, weir_xsk_wait(socket, WEIR_XSK_RECEIVE, 0));
}

static void arguments(void)
{
	REFUSED(EFAULT, weir_xsk_receive_each(here, 1, NULL, NULL));
	REFUSED(EFAULT, weir_xsk_forward_each(here, 1, NULL, NULL));
	REFUSED(EFAULT, weir_xsk_send_each(here, 1, NULL, NULL));
	REFUSED(EFAULT, weir_xsk_recv(here, NULL, 1));
	REFUSED(EFAULT, weir_xsk_alloc(here, NULL, 1));
	REFUSED(EFAULT, weir_xsk_send(here, NULL, 1));
	REFUSED(EFAULT, weir_xsk_free(here, NULL, 1));
	refuse_moves(EFAULT, NULL);
}

/* The socket is in a call; but any thread reads its counters. */
static int use_socket(struct weir_xsk_frame *packet, void *context)
{
	struct weir_xsk_statistics statistics = { .size = sizeof(statistics) };
	struct weir_xsk_frame more;

	(void)packet;
	(void)context;
	refuse_moves(EBUSY, there);
	REFUSED(EBUSY, weir_xsk_flush(there));
	REFUSED(EBUSY, weir_xsk_reclaim(there));
	REFUSED(EBUSY, weir_xsk_close(there));
	OK(weir_xsk_statistics(there, &statistics));
	CHECK(OK(weir_xsk_alloc(here, &more, 1)) == 1);
	CHECK(OK(weir_xsk_free(here, &more, 1)) == 1);
	return WEIR_XSK_RECYCLE;
}

static void callbacks(void)
{
	int written = 0;

	deliver(here, there, 1);
	REFUSED(EINVAL, weir_xsk_receive_each(there, 8, say_99, NULL));
	deliver(here, there, 1);
	REFUSED(EINVAL, weir_xsk_forward_each(there, 8, say_99, NULL));
	deliver(here, there, 1);
	CHECK(OK(weir_xsk_receive_each(there, 8, use_socket, NULL)) == 1);
	deliver(here, there, 1);
	CHECK(OK(weir_xsk_forward_each(there, 8, use_socket, NULL)) == 1);
	REFUSED(EMSGSIZE, weir_xsk_send_each(here, 8, write_too_much, &written));
	/* The one before is sent. */
	OK(weir_xsk_flush(here));
	wait_for_packet(there);
	CHECK(OK(weir_xsk_receive_each(there, 8, recycle, NULL)) == 1);
	check_accounts(umem, CHUNKS, 0);
}

static int keep(struct weir_xsk_frame *packet, void *context)
{
	struct weir_xsk_frame **next = context;

	*(*next)++ = *packet;
	return WEIR_XSK_KEEP;
}

static int forward(struct weir_xsk_frame *packet, void *context)
{
	(void)packet;
	(void)context;
	return WEIR_XSK_SEND;
}

enum {
	BURST = 4
};

/* Waits until a burst is in RX, without a call of the library, which would look after the rings. */
static void wait_for_burst(struct weir_xsk_socket *socket)
{
	struct weir_xsk_view *view = weir_xsk_inline_view(socket);

	for (int tries = 0; tries < 10000; tries++) {
		if (__atomic_load_n(view->rx.producer, __ATOMIC_ACQUIRE) - view->rx.next >= BURST)
			return;
		usleep(1000);
	}
	CHECK(!"a burst in 10 seconds");
}

static void deliver_burst(void)
{
	CHECK(OK(weir_xsk_send_each(here, BURST, write_packet_0, NULL)) == BURST);
	OK(weir_xsk_flush(here));
	wait_for_burst(there);
}

static struct weir_xsk_accounting accounts(void)
{
	struct weir_xsk_accounting it = { .size = sizeof(it) };

	OK(weir_xsk_umem_accounting(umem, &it));
	CHECK(it.free + it.held + it.receiving + it.sending + it.retired == CHUNKS);
	return it;
}

/* So many bursts are more in the program and its free chunks, lent for receiving, and lent for sending. */
static void check_change(struct weir_xsk_accounting before, int ours, int receiving, int sending)
{
	struct weir_xsk_accounting now = accounts();

	CHECK(now.free + now.held == before.free + before.held + ours * BURST);
	CHECK(now.receiving == before.receiving + receiving * BURST);
	CHECK(now.sending == before.sending + sending * BURST);
}

/* Each call writes the owners of the chunks that it moves, and FILL never gets more than its chunks. */
static void owners(void)
{
	struct weir_xsk_frame frames[BURST], *next = frames;
	struct weir_xsk_accounting before;

	deliver_burst();
	before = accounts();
	CHECK(OK(weir_xsk_receive_each(there, BURST, recycle, NULL)) == BURST);
	check_change(before, 0, 0, 0);
	deliver_burst();
	before = accounts();
	CHECK(OK(weir_xsk_receive_each(there, BURST, keep, &next)) == BURST);
	check_change(before, 1, -1, 0);
	check_accounts(umem, CHUNKS, BURST);
	CHECK(OK(weir_xsk_free(there, frames, BURST)) == BURST);
	check_change(before, 0, 0, 0);
	deliver_burst();
	before = accounts();
	CHECK(OK(weir_xsk_recv(there, frames, BURST)) == BURST);
	check_change(before, 1, -1, 0);
	CHECK(OK(weir_xsk_free(there, frames, BURST)) == BURST);
	check_change(before, 0, 0, 0);
	deliver_burst();
	before = accounts();
	next = frames;
	CHECK(OK(weir_xsk_forward_each(there, BURST, keep, &next)) == BURST);
	check_change(before, 1, -1, 0);
	CHECK(OK(weir_xsk_free(there, frames, BURST)) == BURST);
	for (int round = 0; round < 100; round++) {
		deliver_burst();
		before = accounts();
		if (round % 2) {
			CHECK(OK(weir_xsk_forward_each(there, BURST, forward, NULL)) == BURST);
		} else {
			CHECK(OK(weir_xsk_recv(there, frames, BURST)) == BURST);
			CHECK(OK(weir_xsk_send(there, frames, BURST)) == BURST);
		}
		OK(weir_xsk_flush(there));
		wait_for_burst(here);
		CHECK(OK(weir_xsk_receive_each(here, BURST, recycle, NULL)) == BURST);
		CHECK(accounts().receiving <= 2 * 64);
	}
	OK(weir_xsk_reclaim(here));
	OK(weir_xsk_reclaim(there));
	CHECK(accounts().sending == 0);
	check_accounts(umem, CHUNKS, 0);
}

/* Calls after each other, without one of the library between them, lend FILL what it lacks, and no more. */
static void refill(void)
{
	struct weir_xsk_frame frames[32];

	/* Chunks at hand. */
	CHECK(OK(weir_xsk_alloc(there, frames, 32)) == 32);
	CHECK(OK(weir_xsk_free(there, frames, 32)) == 32);
	for (int burst = 0; burst < 6; burst++)
		CHECK(OK(weir_xsk_send_each(here, BURST, write_packet_0, NULL)) == BURST);
	OK(weir_xsk_flush(here));
	for (int burst = 0; burst < 6; burst++) {
		wait_for_burst(there);
		CHECK(OK(weir_xsk_forward_each(there, BURST, forward, NULL)) == BURST);
		CHECK(accounts().receiving <= 2 * 64);
	}
	OK(weir_xsk_flush(there));
	while (OK(weir_xsk_receive_each(here, 64, recycle, NULL)) > 0)
		;
}

/* A full TX ring takes no more, and packets wait in RX. */
static void full_ring(void)
{
	struct weir_xsk_frame frames[BURST];

	for (int burst = 0; burst < 64 / BURST; burst++) {
		deliver_burst();
		CHECK(OK(weir_xsk_forward_each(there, BURST, forward, NULL)) == BURST);
	}
	deliver_burst();
	CHECK(OK(weir_xsk_forward_each(there, BURST, forward, NULL)) == 0);
	CHECK(OK(weir_xsk_send_each(there, 1, write_packet_0, NULL)) == 0);
	CHECK(OK(weir_xsk_recv(there, frames, BURST)) == BURST);
	CHECK(packet_is(frames[0].data, frames[0].len, 0));
	CHECK(OK(weir_xsk_send(there, frames, BURST)) == 0);
	CHECK(OK(weir_xsk_free(there, frames, BURST)) == BURST);
	for (int received = 0; received < 64;) {
		OK(weir_xsk_flush(there));
		received += OK(weir_xsk_receive_each(here, 64, recycle, NULL));
	}
	check_accounts(umem, CHUNKS, 0);
}

static void missing_rings(void)
{
	struct weir_xsk_socket_options options = { .size = sizeof(options),
						   .rx_ring = WEIR_XSK_NONE };
	struct weir_xsk_socket *socket;
	struct weir_xsk_frame frame;

	OK(weir_xsk_open(umem, "spare0", 0, &options, &socket));
	REFUSED(EOPNOTSUPP, weir_xsk_recv(socket, &frame, 1));
	REFUSED(EOPNOTSUPP, weir_xsk_receive_each(socket, 1, recycle, NULL));
	REFUSED(EOPNOTSUPP, weir_xsk_forward_each(socket, 1, recycle, NULL));
	OK(weir_xsk_close(socket));
	refuse_moves(EBADF, socket);
	options.rx_ring = options.fill_chunks = 64;
	options.tx_ring = WEIR_XSK_NONE;
	OK(weir_xsk_open(umem, "spare0", 0, &options, &socket));
	CHECK(OK(weir_xsk_alloc(socket, &frame, 1)) == 1);
	frame.len = PACKET;
	REFUSED(EOPNOTSUPP, weir_xsk_send(socket, &frame, 1));
	REFUSED(EOPNOTSUPP, weir_xsk_send_each(socket, 1, write_packet_0, NULL));
	REFUSED(EOPNOTSUPP, weir_xsk_forward_each(socket, 1, recycle, NULL));
	OK(weir_xsk_close(socket));
	/* The frame outlives its socket. */
	check_accounts(umem, CHUNKS, 1);
	CHECK(OK(weir_xsk_free(here, &frame, 1)) == 1);
	check_accounts(umem, CHUNKS, 0);
}

/* A child has no sockets of its parent, which has them still. */
static void children(void)
{
	int status;
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		refuse_moves(EBADF, here);
		_exit(EXIT_SUCCESS);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS);
	deliver(here, there, 1);
	CHECK(OK(weir_xsk_receive_each(there, 8, recycle, NULL)) == 1);
}

/* Pages of this process's address space. */
static long pages(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	long count = 0;

	CHECK(file && fscanf(file, "%ld", &count) == 1);
	fclose(file);
	return count;
}

/* Frames that were never freed do not keep their memory. */
static void leaks(void)
{
	enum {
		ROUNDS = 16,
		LARGE = 4096
	};
	struct weir_xsk_socket_options options = { .size = sizeof(options),
						   .rx_ring = WEIR_XSK_NONE };
	struct weir_xsk_frame frames[64];
	long before = 0;

	for (int round = 0; round < ROUNDS; round++) {
		struct weir_xsk_umem *large = umem_of(LARGE);
		struct weir_xsk_socket *socket;

		OK(weir_xsk_open(large, "spare0", 0, &options, &socket));
		CHECK(OK(weir_xsk_alloc(socket, frames, 64)) == 64);
		check_accounts(large, LARGE, 64);
		OK(weir_xsk_umem_close(large));
		OK(weir_xsk_close(socket));
		if (round == 1)
			before = pages();
	}
	/* Each has 2048 pages and more. */
	CHECK(pages() - before < (ROUNDS - 2) * 2048 / 2);
}

int main(int argc, char **argv)
{
	CHECK(argc == 4);
	umem = umem_of(CHUNKS);
	here = socket_on(umem, argv[1], atoi(argv[3]), WEIR_XSK_POLL);
	there = socket_on(umem, argv[2], atoi(argv[3]), WEIR_XSK_POLL);
	arguments();
	callbacks();
	owners();
	refill();
	full_ring();
	missing_rings();
	children();
	leaks();
	OK(weir_xsk_close(here));
	OK(weir_xsk_close(there));
	refuse_moves(EBADF, here);
	check_accounts(umem, CHUNKS, 0);
	OK(weir_xsk_umem_close(umem));
	printf("the inlined calls refused what they can\n");
	return EXIT_SUCCESS;
}
