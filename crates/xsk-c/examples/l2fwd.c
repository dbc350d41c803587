/* Returns every packet of one queue of a device to its sender: l2fwd DEVICE [QUEUE]. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/xsk.h>

static volatile sig_atomic_t stopped;

static void stop(int signal)
{
	(void)signal;
	stopped = 1;
}

/* Returns what the library returned, unless that is an error. */
static int check(int result)
{
	if (result < 0) {
		fprintf(stderr, "l2fwd: %s\n", weir_xsk_error());
		exit(EXIT_FAILURE);
	}
	return result;
}

static int answer(struct weir_xsk_frame *packet, void *context)
{
	uint8_t to[6];

	(void)context;
	if (packet->len < 14)
		return WEIR_XSK_RECYCLE;
	memcpy(to, packet->data, 6);
	memcpy(packet->data, packet->data + 6, 6);
	memcpy(packet->data + 6, to, 6);
	return WEIR_XSK_SEND;
}

int main(int argc, char **argv)
{
	struct weir_xsk_statistics statistics = { .size = sizeof(statistics) };
	struct weir_xsk_socket *socket;
	struct weir_xsk_umem *umem;

	if (argc < 2) {
		fprintf(stderr, "usage: l2fwd DEVICE [QUEUE]\n");
		return EXIT_FAILURE;
	}
	signal(SIGINT, stop);
	signal(SIGTERM, stop);
	setvbuf(stdout, NULL, _IOLBF, 0);

	check(weir_xsk_umem_create(NULL, &umem));
	check(weir_xsk_open(umem, argv[1], argc > 2 ? atoi(argv[2]) : 0, NULL, &socket));
	printf("ready\n");
	while (!stopped) {
		check(weir_xsk_wait(socket, WEIR_XSK_RECEIVE, 100));
		check(weir_xsk_forward_each(socket, 64, answer, NULL));
		check(weir_xsk_flush(socket));
	}
	check(weir_xsk_statistics(socket, &statistics));
	check(weir_xsk_close(socket));
	check(weir_xsk_umem_close(umem));
	printf("%lu received, %lu sent\n", (unsigned long)statistics.received,
	       (unsigned long)statistics.sent);
	return EXIT_SUCCESS;
}
