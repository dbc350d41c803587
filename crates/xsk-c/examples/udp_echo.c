/*
 * Answers UDP packets over IPv4 to a port with their own text: udp_echo DEVICE PORT. All other packets
 * reach the network stack. It waits in an event loop of its own.
 */
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <net/ethernet.h>
#include <poll.h>
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
		fprintf(stderr, "udp_echo: %s\n", weir_xsk_error());
		exit(EXIT_FAILURE);
	}
	return result;
}

static void swap(uint8_t *one, uint8_t *other, size_t bytes)
{
	uint8_t kept[ETH_ALEN];

	memcpy(kept, one, bytes);
	memcpy(one, other, bytes);
	memcpy(other, kept, bytes);
}

/* The checksums are sums, so exchanging addresses and ports leaves them right. */
static int answer(struct weir_xsk_frame *packet, void *context)
{
	uint8_t *ip = packet->data + sizeof(struct ether_header), *udp;
	size_t headers = sizeof(struct ether_header) + sizeof(struct iphdr);

	(void)context;
	if (packet->len < headers)
		return WEIR_XSK_RECYCLE;
	udp = ip + (ip[0] & 15) * 4;
	if (udp < ip + sizeof(struct iphdr) ||
	    udp + sizeof(struct udphdr) > packet->data + packet->len)
		return WEIR_XSK_RECYCLE;
	swap(packet->data, packet->data + ETH_ALEN, ETH_ALEN);
	swap(ip + offsetof(struct iphdr, saddr), ip + offsetof(struct iphdr, daddr), 4);
	swap(udp, udp + 2, 2);
	return WEIR_XSK_SEND;
}

/* Sleeps until there are packets, for a second at most. */
static void sleep_until_ready(struct weir_xsk_socket *socket)
{
	struct pollfd fd = { .fd = check(weir_xsk_fd(socket)), .events = POLLIN };
	int timeout_ms;

	if (check(weir_xsk_prepare(socket, WEIR_XSK_RECEIVE, &timeout_ms)) != 0)
		return;
	/* A signal can come just before the sleep, and would not end it. */
	if (timeout_ms < 0 || timeout_ms > 1000)
		timeout_ms = 1000;
	poll(&fd, 1, timeout_ms);
}

int main(int argc, char **argv)
{
	struct weir_xsk_rule rule = { .protocol = IPPROTO_UDP, .family = AF_INET };
	struct weir_xsk_socket_options options = { .size = sizeof(options), .rules = &rule };
	struct weir_xsk_socket *socket;
	struct weir_xsk_umem *umem;

	if (argc < 3 || atoi(argv[2]) < 1 || atoi(argv[2]) > 65535) {
		fprintf(stderr, "usage: udp_echo DEVICE PORT\n");
		return EXIT_FAILURE;
	}
	rule.destination_port = atoi(argv[2]);
	options.rule_count = 1;
	signal(SIGINT, stop);
	signal(SIGTERM, stop);
	setvbuf(stdout, NULL, _IOLBF, 0);

	check(weir_xsk_umem_create(NULL, &umem));
	check(weir_xsk_open(umem, argv[1], 0, &options, &socket));
	printf("ready\n");
	while (!stopped) {
		sleep_until_ready(socket);
		check(weir_xsk_forward_each(socket, 64, answer, NULL));
		check(weir_xsk_flush(socket));
	}
	check(weir_xsk_close(socket));
	check(weir_xsk_umem_close(umem));
	return EXIT_SUCCESS;
}
