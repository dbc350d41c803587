/*
 * Answers UDP packets over IPv4 and IPv6 to a port with their own text: udp_echo DEVICE PORT. All other packets
 * reach the network stack. It waits in an event loop of its own.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
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

static void swap(uint8_t *pair, size_t bytes)
{
	uint8_t kept[sizeof(struct in6_addr)];

	memcpy(kept, pair, bytes);
	memcpy(pair, pair + bytes, bytes);
	memcpy(pair + bytes, kept, bytes);
}

/*
 * Exchanges the addresses in an IP header, and gives it an answer's time to live. Returns its length, or 0 for a packet with
 * IP options, which an answer would have to obey, or a VLAN tag.
 */
static size_t answer_ip(uint8_t *ip, uint16_t type)
{
	if (type == ETHERTYPE_IP && ip[0] == 0x45) {
		ip[offsetof(struct iphdr, ttl)] = IPDEFTTL;
		swap(ip + offsetof(struct iphdr, saddr), sizeof(struct in_addr));
		return sizeof(struct iphdr);
	}
	if (type == ETHERTYPE_IPV6) {
		ip[offsetof(struct ip6_hdr, ip6_hlim)] = IPDEFTTL;
		swap(ip + offsetof(struct ip6_hdr, ip6_src), sizeof(struct in6_addr));
		return sizeof(struct ip6_hdr);
	}
	return 0;
}

/* The socket's rule leaves UDP alone. */
static int answer(struct weir_xsk_frame *packet, void *context)
{
	uint8_t *ip = packet->data + sizeof(struct ether_header);
	int sum = check(weir_xsk_checksum_check(packet->data, packet->len));
	uint16_t type;
	size_t header;

	(void)context;
	/*
	 * XDP comes before the network stack, which drops packets that were damaged. Others have all their headers. A packet
	 * to a group of hosts, as a broadcast, has no address to answer from.
	 */
	if (sum == WEIR_XSK_SUM_UNKNOWN || sum == WEIR_XSK_SUM_WRONG || packet->data[0] & 1)
		return WEIR_XSK_RECYCLE;
	memcpy(&type, ip - sizeof(type), sizeof(type));
	header = answer_ip(ip, ntohs(type));
	if (header == 0)
		return WEIR_XSK_RECYCLE;
	swap(packet->data, ETH_ALEN);
	swap(ip + header, sizeof(in_port_t));
	/* The sum of a local sender is partial, so the exchange alone is not enough. */
	check(weir_xsk_checksum_write(packet->data, packet->len));
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
	struct weir_xsk_rule rule = { .protocol = IPPROTO_UDP };
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
