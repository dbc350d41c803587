/* Receives packets from one queue of a device and counts them: rxdrop DEVICE [QUEUE]. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
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
		fprintf(stderr, "rxdrop: %s\n", weir_xsk_error());
		exit(EXIT_FAILURE);
	}
	return result;
}

struct counts {
	uint64_t packets, bytes;
};

static int count(struct weir_xsk_frame *packet, void *context)
{
	struct counts *counts = context;

	counts->packets++;
	counts->bytes += packet->len;
	return WEIR_XSK_RECYCLE;
}

static void print_mode(struct weir_xsk_socket *socket)
{
	static const char *const names[] = { "auto", "skb", "drv", "zc", "copy" };
	char refusal[512];

	printf("mode %s\n", names[check(weir_xsk_mode(socket))]);
	for (uint32_t i = 0; weir_xsk_refusal(socket, i, refusal, sizeof(refusal)) >= 0; i++)
		printf("  %s\n", refusal);
}

int main(int argc, char **argv)
{
	struct weir_xsk_socket_options options = { .size = sizeof(options),
						   .tx_ring = WEIR_XSK_NONE };
	struct weir_xsk_socket *socket;
	struct weir_xsk_umem *umem;
	struct counts counts = { 0 };
	time_t shown = time(NULL);

	if (argc < 2) {
		fprintf(stderr, "usage: rxdrop DEVICE [QUEUE]\n");
		return EXIT_FAILURE;
	}
	signal(SIGINT, stop);
	signal(SIGTERM, stop);
	setvbuf(stdout, NULL, _IOLBF, 0);

	check(weir_xsk_umem_create(NULL, &umem));
	check(weir_xsk_open(umem, argv[1], argc > 2 ? atoi(argv[2]) : 0, &options, &socket));
	print_mode(socket);
	while (!stopped) {
		check(weir_xsk_wait(socket, WEIR_XSK_RECEIVE, 1000));
		check(weir_xsk_receive_each(socket, 64, count, &counts));
		if (time(NULL) != shown) {
			printf("%lu packets, %lu bytes\n", (unsigned long)counts.packets,
			       (unsigned long)counts.bytes);
			shown = time(NULL);
		}
	}
	check(weir_xsk_close(socket));
	check(weir_xsk_umem_close(umem));
	printf("%lu packets, %lu bytes\n", (unsigned long)counts.packets,
	       (unsigned long)counts.bytes);
	return EXIT_SUCCESS;
}
