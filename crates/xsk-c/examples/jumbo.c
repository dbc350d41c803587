/* Returns every packet of one queue of a device to its sender, jumbo frames as well: jumbo DEVICE [QUEUE]. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/xsk.h>

enum {
	PACKETS = 64,
	FRAMES = PACKETS + WEIR_XSK_MAX_FRAGMENTS
};

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
		fprintf(stderr, "jumbo: %s\n", weir_xsk_error());
		exit(EXIT_FAILURE);
	}
	return result;
}

/* The first of a packet's frames has the headers. */
static void swap_addresses(struct weir_xsk_frame *first)
{
	uint8_t to[6];

	if (first->len < 14)
		return;
	memcpy(to, first->data, 6);
	memcpy(first->data, first->data + 6, 6);
	memcpy(first->data + 6, to, 6);
}

static void answer(struct weir_xsk_socket *socket)
{
	static struct weir_xsk_frame frames[FRAMES];
	static uint32_t counts[PACKETS];
	struct weir_xsk_frame *packet = frames;
	int packets = check(weir_xsk_recv_fragments(socket, frames, FRAMES, counts, PACKETS));

	for (int i = 0; i < packets; i++) {
		swap_addresses(packet);
		/* When TX is full, the packet is dropped. */
		if (check(weir_xsk_send_fragments(socket, packet, counts[i])) == 0)
			check(weir_xsk_free(socket, packet, counts[i]));
		packet += counts[i];
	}
}

int main(int argc, char **argv)
{
	struct weir_xsk_umem_options options = { .size = sizeof(options),
						 .flags = WEIR_XSK_FRAGMENTS };
	struct weir_xsk_socket *socket;
	struct weir_xsk_umem *umem;

	if (argc < 2) {
		fprintf(stderr, "usage: jumbo DEVICE [QUEUE]\n");
		return EXIT_FAILURE;
	}
	signal(SIGINT, stop);
	signal(SIGTERM, stop);
	setvbuf(stdout, NULL, _IOLBF, 0);

	check(weir_xsk_umem_create(&options, &umem));
	check(weir_xsk_open(umem, argv[1], argc > 2 ? atoi(argv[2]) : 0, NULL, &socket));
	printf("ready\n");
	while (!stopped) {
		check(weir_xsk_wait(socket, WEIR_XSK_RECEIVE, 100));
		answer(socket);
		check(weir_xsk_flush(socket));
	}
	check(weir_xsk_close(socket));
	check(weir_xsk_umem_close(umem));
	return EXIT_SUCCESS;
}
