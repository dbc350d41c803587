/* Every misuse is refused, and nothing breaks: misuse DEVICE PEER debug|release. */
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	CHUNKS = 256
};

static struct weir_xsk_umem *umem, *other_umem;
static struct weir_xsk_socket *here, *there;

/* Each function that is for the socket's thread refuses the handle with the error. */
static void refuse_use(int code, struct weir_xsk_socket *socket)
{
	struct weir_xsk_frame frame = { 0 }, frames[WEIR_XSK_MAX_FRAGMENTS];
	struct weir_xsk_tx_request request = { .size = sizeof(request) };
	struct weir_xsk_tx_timestamp timestamp;
	struct weir_xsk_rx_hints hints;
	uint32_t count;

	REFUSED(code, weir_xsk_close(socket));
	REFUSED(code, weir_xsk_fault(socket));
	REFUSED(code, weir_xsk_receive_each(socket, 1, recycle, NULL));
	REFUSED(code, weir_xsk_forward_each(socket, 1, recycle, NULL));
	REFUSED(code, weir_xsk_send_each(socket, 1, write_packet_0, NULL));
	REFUSED(code, weir_xsk_recv(socket, &frame, 1));
	REFUSED(code, weir_xsk_alloc(socket, &frame, 1));
	REFUSED(code, weir_xsk_send(socket, &frame, 1));
	REFUSED(code, weir_xsk_free(socket, &frame, 1));
	REFUSED(code, weir_xsk_recv_fragments(socket, frames, WEIR_XSK_MAX_FRAGMENTS, &count, 1));
	REFUSED(code, weir_xsk_send_fragments(socket, &frame, 1));
	REFUSED(code, weir_xsk_recv_with_hints(socket, &frame, &hints, 1));
	REFUSED(code, weir_xsk_send_with(socket, &frame, 1, &request));
	REFUSED(code, weir_xsk_take_timestamp(socket, &timestamp));
	REFUSED(code, weir_xsk_flush(socket));
	REFUSED(code, weir_xsk_reclaim(socket));
	REFUSED(code, weir_xsk_wait(socket, WEIR_XSK_RECEIVE, 0));
	REFUSED(code, weir_xsk_prepare(socket, WEIR_XSK_RECEIVE, NULL));
}

/* Each function refuses the handle with the error. */
static void refuse_socket(int code, struct weir_xsk_socket *socket)
{
	struct weir_xsk_statistics statistics = { .size = sizeof(statistics) };
	char text[64];

	refuse_use(code, socket);
	REFUSED(code, weir_xsk_mode(socket));
	REFUSED(code, weir_xsk_napi_id(socket));
	REFUSED(code, weir_xsk_refusal(socket, 0, text, sizeof(text)));
	REFUSED(code, weir_xsk_has_rx_hints(socket));
	REFUSED(code, weir_xsk_tx_support(socket));
	REFUSED(code, weir_xsk_fd(socket));
	REFUSED(code, weir_xsk_statistics(socket, &statistics));
}

/* Each function for any thread answers, whatever call the socket is in. */
static void ask(struct weir_xsk_socket *socket)
{
	struct weir_xsk_statistics statistics = { .size = sizeof(statistics) };
	char text[64];

	OK(weir_xsk_mode(socket));
	OK(weir_xsk_napi_id(socket));
	REFUSED(ENOENT, weir_xsk_refusal(socket, 99, text, sizeof(text)));
	OK(weir_xsk_has_rx_hints(socket));
	OK(weir_xsk_tx_support(socket));
	OK(weir_xsk_fd(socket));
	OK(weir_xsk_statistics(socket, &statistics));
}

static void umems(void)
{
	struct {
		struct weir_xsk_umem_options options;
		uint32_t newer;
	} it = { .options = { .size = sizeof(it) }, .newer = 1 };
	struct weir_xsk_accounting accounting = { .size = sizeof(accounting) };
	struct weir_xsk_umem_options options = { .size = 0 };
	struct weir_xsk_umem *made;

	REFUSED(EFAULT, weir_xsk_umem_create(NULL, NULL));
	REFUSED(EINVAL, weir_xsk_umem_create(&options, &made));
	options.size = 4;
	REFUSED(EINVAL, weir_xsk_umem_create(&options, &made));
	options.size = sizeof(options);
	options.flags = 0x80;
	REFUSED(EINVAL, weir_xsk_umem_create(&options, &made));
	options.flags = 0;
	options.reserved = 1;
	REFUSED(EINVAL, weir_xsk_umem_create(&options, &made));
	options.reserved = 0;
	options.numa_node = 1;
	REFUSED(EINVAL, weir_xsk_umem_create(&options, &made));
	options.numa_node = 0;
	options.flags = WEIR_XSK_UNALIGNED;
	options.chunk_size = 2047;
	REFUSED(EINVAL, weir_xsk_umem_create(&options, &made));
	options.chunk_size = 4097;
	REFUSED(EINVAL, weir_xsk_umem_create(&options, &made));
	options.flags = 0;
	options.chunk_size = 3000;
	REFUSED(EINVAL, weir_xsk_umem_create(&options, &made));
	REFUSED(E2BIG, weir_xsk_umem_create(&it.options, &made));
	it.newer = 0;
	OK(weir_xsk_umem_create(&it.options, &made));
	REFUSED(EFAULT, weir_xsk_umem_accounting(made, NULL));
	accounting.size = 1;
	REFUSED(EINVAL, weir_xsk_umem_accounting(made, &accounting));
	accounting.size = sizeof(accounting);
	OK(weir_xsk_umem_close(made));
	REFUSED(EBADF, weir_xsk_umem_close(made));
	REFUSED(EBADF, weir_xsk_umem_accounting(made, &accounting));
	REFUSED(EFAULT, weir_xsk_umem_close(NULL));
	REFUSED(EBADF, weir_xsk_umem_close((struct weir_xsk_umem *)&it));
	REFUSED(EBADF, weir_xsk_umem_close((struct weir_xsk_umem *)here));
}

/* Opening with options that `change` has changed is refused. */
#define OPTION(code, device, change)                                                    \
	do {                                                                            \
		struct weir_xsk_socket_options options = { .size = sizeof(options) };   \
		change;                                                                 \
		REFUSED(code, weir_xsk_open(other_umem, device, 0, &options, &opened)); \
	} while (0)

static void opening(const char *device)
{
	struct weir_xsk_rule rule = { .protocol = 1 };
	struct weir_xsk_socket *opened;

	REFUSED(EFAULT, weir_xsk_open(NULL, device, 0, NULL, &opened));
	REFUSED(EFAULT, weir_xsk_open(other_umem, NULL, 0, NULL, &opened));
	REFUSED(EFAULT, weir_xsk_open(other_umem, device, 0, NULL, NULL));
	REFUSED(EBADF, weir_xsk_open((struct weir_xsk_umem *)here, device, 0, NULL, &opened));
	REFUSED(EINVAL, weir_xsk_open(other_umem, "\xff\xfe", 0, NULL, &opened));
	REFUSED(ENODEV, weir_xsk_open(other_umem, "none0", 0, NULL, &opened));
	REFUSED(ERANGE, weir_xsk_open(other_umem, device, 99, NULL, &opened));
	OPTION(EINVAL, device, options.size = 8);
	OPTION(EINVAL, device, options.mode = 9);
	OPTION(EINVAL, device, options.flags = 0x80);
	OPTION(EINVAL, device, options.program_fd = 1);
	OPTION(EINVAL, device, options.map_fd = 1);
	OPTION(EINVAL, device, options.flags = WEIR_XSK_OWN_MAP; options.program_fd = 1);
	OPTION(EINVAL, device, options.flags = WEIR_XSK_OWN_MAP | WEIR_XSK_OWN_PROGRAM);
	OPTION(EINVAL, device, options.flags = WEIR_XSK_OWN_MAP; options.program_of = here);
	OPTION(EINVAL, device, options.flags = WEIR_XSK_OWN_PROGRAM; options.program_of = here);
	OPTION(EINVAL, device, options.reserved = 8);
	OPTION(EINVAL, device, options.waiting = 4);
	OPTION(EINVAL, device, options.rx_ring = 3);
	OPTION(EINVAL, device, options.fill_ring = WEIR_XSK_NONE);
	OPTION(EOPNOTSUPP, "spare0", options.mode = WEIR_XSK_ZC);
	OPTION(EFAULT, device, options.rule_count = 1);
	OPTION(EINVAL, device, options.rules = &rule);
	OPTION(EINVAL, device, options.rules = &rule; options.rule_count = 1);
	OPTION(EBADF, device, options.program_of = (struct weir_xsk_socket *)&rule);
	/* Another UMEM cannot have the queue of an open socket, whose program is attached. */
	OPTION(EEXIST, device, options.mode = WEIR_XSK_SKB);
}

static void sockets(void)
{
	int no_socket;

	refuse_socket(EFAULT, NULL);
	refuse_socket(EBADF, (struct weir_xsk_socket *)&no_socket);
	refuse_socket(EBADF, (struct weir_xsk_socket *)umem);
	refuse_socket(EBADF, (struct weir_xsk_socket *)(uintptr_t)-1);
}

static void arguments(void)
{
	struct weir_xsk_statistics statistics = { .size = 0 };
	_Alignas(16) char bytes[sizeof(struct weir_xsk_frame) + 8];
	struct weir_xsk_frame *crooked = (void *)(bytes + 1);

	REFUSED(EFAULT, weir_xsk_receive_each(here, 1, NULL, NULL));
	REFUSED(EFAULT, weir_xsk_forward_each(here, 1, NULL, NULL));
	REFUSED(EFAULT, weir_xsk_send_each(here, 1, NULL, NULL));
	REFUSED(EFAULT, weir_xsk_recv(here, NULL, 1));
	REFUSED(EFAULT, weir_xsk_alloc(here, NULL, 1));
	REFUSED(EFAULT, weir_xsk_send(here, NULL, 1));
	REFUSED(EFAULT, weir_xsk_free(here, NULL, 1));
	REFUSED(EINVAL, weir_xsk_alloc(here, crooked, 1));
	REFUSED(EINVAL, weir_xsk_send(here, crooked, 1));
	REFUSED(EFAULT, weir_xsk_refusal(here, 0, NULL, 8));
	REFUSED(ENOENT, weir_xsk_refusal(here, 99, bytes, 8));
	REFUSED(ENOENT, weir_xsk_refusal(here, 99, NULL, 0));
	REFUSED(EINVAL, weir_xsk_wait(here, 0, 0));
	REFUSED(EINVAL, weir_xsk_wait(here, 4, 0));
	REFUSED(EINVAL, weir_xsk_prepare(here, 0, NULL));
	REFUSED(EFAULT, weir_xsk_statistics(here, NULL));
	REFUSED(EINVAL, weir_xsk_statistics(here, &statistics));
	REFUSED(EFAULT, weir_xsk_checksum_check(NULL, 60));
	REFUSED(EFAULT, weir_xsk_checksum_complete(NULL, 60));
	REFUSED(EFAULT, weir_xsk_checksum_write(NULL, 60));
}

/* A frame of `here` with a packet in it. */
static struct weir_xsk_frame frame(void)
{
	struct weir_xsk_frame it;

	CHECK(OK(weir_xsk_alloc(here, &it, 1)) == 1);
	it.len = PACKET;
	packet_write(it.data, 0);
	return it;
}

static void used_up(void)
{
	struct weir_xsk_frame it = frame(), copy = it, three[3];

	CHECK(OK(weir_xsk_send(here, &it, 1)) == 1);
	REFUSED(ESTALE, weir_xsk_send(here, &it, 1));
	REFUSED(ESTALE, weir_xsk_free(here, &it, 1));
	REFUSED(ESTALE, weir_xsk_send(here, &copy, 1));
	it = copy = frame();
	CHECK(OK(weir_xsk_free(there, &it, 1)) == 1);
	REFUSED(ESTALE, weir_xsk_free(here, &copy, 1));
	REFUSED(ESTALE, weir_xsk_send(here, &it, 1));
	/* Twice in one array. */
	three[0] = three[1] = frame();
	three[2] = frame();
	CHECK(OK(weir_xsk_send(here, three, 3)) == 1);
	REFUSED(ESTALE, weir_xsk_send(here, three + 1, 2));
	CHECK(OK(weir_xsk_send(here, three + 2, 1)) == 1);
	OK(weir_xsk_flush(here));
}

static void made_up(void)
{
	struct weir_xsk_frame it = frame(), wrong = { 0 };

	REFUSED(ESTALE, weir_xsk_send(here, &wrong, 1));
	REFUSED(ESTALE, weir_xsk_free(here, &wrong, 1));
	for (int bit = 0; bit < 128; bit++) {
		wrong = it;
		wrong.handle[bit / 64] ^= 1ull << bit % 64;
		CHECK(weir_xsk_free(here, &wrong, 1) < 0);
	}
	CHECK(OK(weir_xsk_free(here, &it, 1)) == 1);
	check_accounts(umem, CHUNKS, 0);
}

/* A frame is sent only as it lies in its chunk, and stays the program's otherwise. */
static void out_of_bounds(void)
{
	struct weir_xsk_frame it = frame(), wrong = it;
	const struct {
		long offset;
		uint32_t len;
	} places[] = {
		{ 0, 0 },      { 0, UINT32_MAX }, { 0, it.room + 1 }, { -17, 64 },     { 2048, 64 },
		{ -2048, 64 }, { it.room, 1 },	  { 1, it.room },     { 1L << 40, 1 },
	};

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		wrong.data = (uint8_t *)((uintptr_t)it.data + places[i].offset);
		wrong.len = places[i].len;
		REFUSED(EINVAL, weir_xsk_send(here, &wrong, 1));
	}
	wrong.data = NULL;
	REFUSED(EINVAL, weir_xsk_send(here, &wrong, 1));
	check_accounts(umem, CHUNKS, 1);
	CHECK(OK(weir_xsk_send(here, &it, 1)) == 1);
	OK(weir_xsk_flush(here));
}

static void wrong_umem(void)
{
	struct weir_xsk_socket_options options = { .size = sizeof(options),
						   .rx_ring = WEIR_XSK_NONE };
	struct weir_xsk_frame ours = frame(), theirs;
	struct weir_xsk_socket *sender;

	OK(weir_xsk_open(other_umem, "spare0", 0, &options, &sender));
	CHECK(OK(weir_xsk_mode(sender)) == WEIR_XSK_COPY);
	CHECK(OK(weir_xsk_alloc(sender, &theirs, 1)) == 1);
	theirs.len = PACKET;
	REFUSED(EXDEV, weir_xsk_send(here, &theirs, 1));
	REFUSED(EXDEV, weir_xsk_free(here, &theirs, 1));
	REFUSED(EXDEV, weir_xsk_send(sender, &ours, 1));
	REFUSED(EXDEV, weir_xsk_free(sender, &ours, 1));
	REFUSED(EOPNOTSUPP, weir_xsk_recv(sender, &ours, 1));
	REFUSED(EOPNOTSUPP, weir_xsk_receive_each(sender, 1, recycle, NULL));
	REFUSED(EOPNOTSUPP, weir_xsk_forward_each(sender, 1, recycle, NULL));
	CHECK(OK(weir_xsk_free(here, &ours, 1)) == 1);
	CHECK(OK(weir_xsk_free(sender, &theirs, 1)) == 1);
	OK(weir_xsk_close(sender));
	refuse_socket(EBADF, sender);

	options.rx_ring = options.fill_chunks = 64;
	options.tx_ring = WEIR_XSK_NONE;
	options.program_of = here;
	REFUSED(EXDEV, weir_xsk_open(other_umem, "spare0", 0, &options, &sender));
	options.program_of = NULL;
	OK(weir_xsk_open(other_umem, "spare0", 0, &options, &sender));
	CHECK(OK(weir_xsk_alloc(sender, &theirs, 1)) == 1);
	theirs.len = PACKET;
	REFUSED(EOPNOTSUPP, weir_xsk_send(sender, &theirs, 1));
	REFUSED(EOPNOTSUPP, weir_xsk_send_each(sender, 1, write_packet_0, NULL));
	REFUSED(EOPNOTSUPP, weir_xsk_forward_each(sender, 1, recycle, NULL));
	OK(weir_xsk_close(sender));
	/* The frame outlives its socket, and needs another on its UMEM to be freed. */
	OK(weir_xsk_open(other_umem, "spare0", 0, &options, &sender));
	CHECK(OK(weir_xsk_free(sender, &theirs, 1)) == 1);
	OK(weir_xsk_close(sender));
}

static int say_99(struct weir_xsk_frame *packet, void *context)
{
	(void)packet;
	(void)context;
	return 99;
}

static int say_send(struct weir_xsk_frame *packet, void *context)
{
	(void)packet;
	(void)context;
	return WEIR_XSK_SEND;
}

static int send_outside(struct weir_xsk_frame *packet, void *context)
{
	(void)context;
	packet->len = packet->room + 1;
	return WEIR_XSK_SEND;
}

static int send_nothing(struct weir_xsk_frame *packet, void *context)
{
	(void)context;
	packet->len = 0;
	return WEIR_XSK_SEND;
}

/* Takes a copy, and does not keep the packet. */
static int copy_frame(struct weir_xsk_frame *packet, void *context)
{
	*(struct weir_xsk_frame *)context = *packet;
	return WEIR_XSK_RECYCLE;
}

/* Uses the frame while it is the library's still. */
static int free_and_keep(struct weir_xsk_frame *packet, void *context)
{
	REFUSED(ESTALE, weir_xsk_free(here, packet, 1));
	*(struct weir_xsk_frame *)context = *packet;
	return WEIR_XSK_KEEP;
}

static int use_socket(struct weir_xsk_frame *packet, void *context)
{
	struct weir_xsk_frame more;

	(void)context;
	refuse_use(EBUSY, there);
	ask(there);
	CHECK(OK(weir_xsk_alloc(here, &more, 1)) == 1);
	CHECK(OK(weir_xsk_free(here, &more, 1)) == 1);
	(void)packet;
	return WEIR_XSK_RECYCLE;
}

static uint32_t write_too_much(uint8_t *room, uint32_t size, void *context)
{
	(void)room;
	(void)context;
	return size + 1;
}

static void callbacks(int debug)
{
	struct weir_xsk_frame it;

	deliver(here, there, 1);
	REFUSED(EINVAL, weir_xsk_receive_each(there, 8, say_99, NULL));
	deliver(here, there, 1);
	REFUSED(EINVAL, weir_xsk_receive_each(there, 8, say_send, NULL));
	deliver(here, there, 1);
	REFUSED(EINVAL, weir_xsk_forward_each(there, 8, say_99, NULL));
	deliver(here, there, 1);
	REFUSED(EINVAL, weir_xsk_forward_each(there, 8, send_outside, NULL));
	deliver(here, there, 1);
	REFUSED(EINVAL, weir_xsk_forward_each(there, 8, send_nothing, NULL));
	deliver(here, there, 1);
	CHECK(OK(weir_xsk_receive_each(there, 8, use_socket, NULL)) == 1);
	deliver(here, there, 1);
	CHECK(OK(weir_xsk_receive_each(there, 8, copy_frame, &it)) == 1);
	REFUSED(ESTALE, weir_xsk_free(there, &it, 1));
	if (debug)
		CHECK(it.data[0] == 0x5a && it.data[PACKET - 1] == 0x5a);
	deliver(here, there, 1);
	CHECK(OK(weir_xsk_receive_each(there, 8, free_and_keep, &it)) == 1);
	CHECK(packet_is(it.data, it.len, 0));
	CHECK(OK(weir_xsk_free(there, &it, 1)) == 1);
	if (debug)
		CHECK(it.data[0] == 0x5a && it.data[PACKET - 1] == 0x5a);
	REFUSED(EMSGSIZE, weir_xsk_send_each(here, 8, write_too_much, NULL));
	check_accounts(umem, CHUNKS, 0);
	/* After all that, packets are received as ever. */
	deliver(here, there, 4);
	CHECK(OK(weir_xsk_receive_each(there, 8, recycle, NULL)) > 0);
}

static void *wait_long(void *socket)
{
	int result;

	/* The other thread may be the first. */
	do
		result = weir_xsk_wait(socket, WEIR_XSK_RECEIVE, 2000);
	while (result == -EBUSY);
	OK(result);
	return NULL;
}

/*
 * While one thread waits, another is refused; but it reads the counters, and the program serves more
 * queues.
 */
static void threads(const char *device)
{
	struct weir_xsk_socket_options options = { .size = sizeof(options),
						   .rx_ring = 64,
						   .tx_ring = WEIR_XSK_NONE,
						   .fill_chunks = 16,
						   .program_of = there };
	struct weir_xsk_statistics before = { .size = sizeof(before) }, now = before;
	struct weir_xsk_socket *second;
	pthread_t waiting;
	int result;

	while (OK(weir_xsk_receive_each(there, 64, recycle, NULL)) > 0)
		;
	OK(weir_xsk_statistics(there, &before));
	CHECK(before.received > 0);
	CHECK(pthread_create(&waiting, NULL, wait_long, there) == 0);
	do
		result = weir_xsk_reclaim(there);
	while (result >= 0);
	CHECK(result == -EBUSY);
	ask(there);
	/* What the waiting counts. */
	do
		OK(weir_xsk_statistics(there, &now));
	while (now.sleeps == before.sleeps);
	CHECK(now.received == before.received);
	refuse_use(EBUSY, there);
	OK(weir_xsk_open(umem, device, 1, &options, &second));
	REFUSED(EBUSY, weir_xsk_reclaim(there));
	OK(weir_xsk_close(second));
	CHECK(pthread_join(waiting, NULL) == 0);
	OK(weir_xsk_reclaim(there));
}

static atomic_int is_over;
static atomic_long reads;

/* Reads counters, which only grow, until the worker is done. */
static void *read_counters(void *socket)
{
	struct weir_xsk_statistics before = { .size = sizeof(before) }, now = before;

	while (!is_over) {
		OK(weir_xsk_statistics(socket, &now));
		CHECK(now.received >= before.received && now.wakeups >= before.wakeups);
		before = now;
		reads++;
	}
	return NULL;
}

/* Threads read the counters of a socket that works. */
static void watched_worker(void)
{
	struct weir_xsk_statistics before = { .size = sizeof(before) }, now = before;
	pthread_t readers[2];
	uint64_t received = 0;

	OK(weir_xsk_statistics(there, &before));
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&readers[i], NULL, read_counters, there) == 0);
	while (reads < 1000) {
		deliver(here, there, 4);
		received += OK(weir_xsk_receive_each(there, 64, recycle, NULL));
	}
	is_over = 1;
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(readers[i], NULL) == 0);
	OK(weir_xsk_statistics(there, &now));
	CHECK(now.received - before.received == received);
}

/* A child has no sockets of its parent, which has them still. */
static void children(void)
{
	struct weir_xsk_accounting accounting = { .size = sizeof(accounting) };
	int status;
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		refuse_socket(EBADF, here);
		REFUSED(EBADF, weir_xsk_umem_accounting(umem, &accounting));
		REFUSED(EBADF, weir_xsk_umem_close(umem));
		OK(weir_xsk_umem_close(umem_of(CHUNKS)));
		_exit(EXIT_SUCCESS);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS);
	check_accounts(umem, CHUNKS, 0);
}

int main(int argc, char **argv)
{
	CHECK(argc == 4);
	CHECK(weir_xsk_error()[0] == 0);
	umem = umem_of(CHUNKS);
	other_umem = umem_of(CHUNKS);
	here = socket_on(umem, argv[1], WEIR_XSK_DRV, WEIR_XSK_ADAPTIVE);
	there = socket_on(umem, argv[2], WEIR_XSK_DRV, WEIR_XSK_ADAPTIVE);
	umems();
	opening(argv[1]);
	sockets();
	arguments();
	used_up();
	made_up();
	out_of_bounds();
	wrong_umem();
	while (OK(weir_xsk_receive_each(there, 64, recycle, NULL)) > 0)
		;
	callbacks(strcmp(argv[3], "debug") == 0);
	threads(argv[2]);
	watched_worker();
	children();
	OK(weir_xsk_close(here));
	OK(weir_xsk_close(there));
	check_accounts(umem, CHUNKS, 0);
	OK(weir_xsk_umem_close(umem));
	OK(weir_xsk_umem_close(other_umem));
	refuse_socket(EBADF, here);
	printf("every misuse was refused\n");
	return EXIT_SUCCESS;
}
