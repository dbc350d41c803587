/*
 * Datagrams that get a VLAN tag beside their bytes arrive with it and the hash of their flow as hints, in mode DRV:
 * hints DEVICE PEER MODE VLAN.
 */
#include "check.h"
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	CHUNKS = 512,
	FLOWS = 16,
	ROUNDS = 4,
	IP = HEADER,
	UDP = IP + 20,
	PAYLOAD = UDP + 8,
	LEN = PAYLOAD + 32,
	PORT = 9000
};

static const char *device, *peer;
static uint32_t mode, vlan;
static struct weir_xsk_socket *sender, *receiver;
static int packets;

/* A UDP datagram of a flow to PORT. */
static void write_datagram(uint8_t *bytes, uint32_t flow, uint32_t round)
{
	static const uint8_t headers[PAYLOAD] = { 2,	      0,	  0, 0,	 0,  1,	   2, 0, 0,
						  0,	      0,	  2, 8,	 0,  0x45, 0, 0, 60,
						  0,	      0,	  0, 0,	 64, 17,   0, 0, 10,
						  7,	      0,	  1, 10, 7,  0,	   2, 0, 0,
						  PORT / 256, PORT % 256, 0, 40, 0,  0 };

	memcpy(bytes, headers, PAYLOAD);
	bytes[UDP] = 200;
	bytes[UDP + 1] = flow;
	memset(bytes + PAYLOAD, (int)round, LEN - PAYLOAD);
}

/* Through the network stack, where the packets get their tag. */
static void send_tagged(uint32_t round)
{
	struct sockaddr_ll to = { .sll_family = AF_PACKET,
				  .sll_protocol = htons(0x0800),
				  .sll_ifindex = if_nametoindex(device) };

	for (uint32_t i = 0; i < FLOWS; i++) {
		uint8_t bytes[LEN];

		/* In another order each time, so that hints of other packets are noticed. */
		write_datagram(bytes, (i * (2 * round + 1) + round) % FLOWS, round);
		CHECK(sendto(packets, bytes, LEN, 0, (void *)&to, sizeof(to)) == LEN);
	}
}

/* Past the network stack, and so without a tag. */
static void send_untagged(uint32_t round)
{
	for (uint32_t flow = 0; flow < FLOWS; flow++) {
		struct weir_xsk_frame frame;

		CHECK(OK(weir_xsk_alloc(sender, &frame, 1)) == 1);
		frame.len = LEN;
		write_datagram(frame.data, flow, round);
		CHECK(OK(weir_xsk_send(sender, &frame, 1)) == 1);
	}
	OK(weir_xsk_flush(sender));
}

static void check_hints(const struct weir_xsk_rx_hints *hints, int tagged)
{
	uint32_t expected = WEIR_XSK_HINT_HASH | (tagged ? WEIR_XSK_HINT_VLAN : 0);

	if (mode == WEIR_XSK_SKB)
		expected = 0;
	/* A veth has no clock. */
	CHECK(hints->flags == expected);
	CHECK(hints->timestamp == 0 && hints->reserved == 0);
	CHECK((hints->hash != 0) == (expected != 0));
	/* XDP_RSS_L4: of addresses and ports, which not every kernel finds past the network stack. */
	if (tagged || !expected)
		CHECK(hints->hash_kind == (expected ? 8 : 0));
	CHECK(hints->vlan_protocol == (expected & WEIR_XSK_HINT_VLAN ? 0x8100 : 0));
	CHECK((hints->vlan_tci & 0xfff) == (expected & WEIR_XSK_HINT_VLAN ? vlan : 0));
}

/* Receives one datagram of each flow; notes or compares the hash of those with a tag. */
static void receive(uint32_t *hashes, uint32_t round, int tagged)
{
	struct weir_xsk_rx_hints hints[FLOWS];
	struct weir_xsk_frame frames[FLOWS];
	int seen = 0;

	while (seen < FLOWS) {
		int received;

		wait_for_packet(receiver);
		memset(hints, 0xff, sizeof(hints));
		received = OK(weir_xsk_recv_with_hints(receiver, frames, hints, FLOWS - seen));
		for (int i = 0; i < received; i++) {
			uint8_t expected[LEN];
			uint32_t flow;

			CHECK(frames[i].len == LEN);
			flow = frames[i].data[UDP + 1];
			CHECK(flow < FLOWS);
			write_datagram(expected, flow, round);
			CHECK(memcmp(frames[i].data, expected, LEN) == 0);
			check_hints(&hints[i], tagged);
			if (!tagged)
				continue;
			CHECK(hashes[flow] == 0 || hashes[flow] == hints[i].hash);
			hashes[flow] = hints[i].hash;
		}
		CHECK(OK(weir_xsk_free(receiver, frames, received)) == received);
		seen += received;
	}
}

/* Most flows have a hash of their own. */
static void check_hashes(const uint32_t *hashes)
{
	int same = 0;

	for (int i = 0; i < FLOWS; i++)
		for (int j = 0; j < i; j++)
			same += hashes[i] == hashes[j];
	CHECK(same <= 2);
}

static void bad_arguments(void)
{
	struct weir_xsk_frame frame;
	struct weir_xsk_rx_hints hints;

	REFUSED(EFAULT, weir_xsk_recv_with_hints(receiver, NULL, &hints, 1));
	REFUSED(EFAULT, weir_xsk_recv_with_hints(receiver, &frame, NULL, 1));
	REFUSED(EINVAL,
		weir_xsk_recv_with_hints(receiver, &frame, (void *)((char *)&hints + 1), 1));
	REFUSED(EOPNOTSUPP, weir_xsk_recv_with_hints(sender, &frame, &hints, 1));
	CHECK(OK(weir_xsk_recv_with_hints(receiver, &frame, &hints, 0)) == 0);
	CHECK(OK(weir_xsk_recv_with_hints(receiver, &frame, &hints, 1)) == 0);
}

static void exchange(struct weir_xsk_umem *umem)
{
	uint32_t hashes[FLOWS] = { 0 };

	for (uint32_t round = 0; round < ROUNDS; round++) {
		send_tagged(round);
		receive(hashes, round, 1);
		send_untagged(round);
		receive(hashes, round, 0);
	}
	if (mode == WEIR_XSK_DRV)
		check_hashes(hashes);
	bad_arguments();
	check_accounts(umem, CHUNKS, 0);
}

/* In chunks of a size, of a socket with hints and of one without. */
static void run(uint32_t chunk_size, uint32_t flags)
{
	struct weir_xsk_umem_options of_umem = { .size = sizeof(of_umem),
						 .chunks = CHUNKS,
						 .chunk_size = chunk_size,
						 .headroom = 64,
						 .flags = flags };
	struct weir_xsk_rule rule = { .protocol = IPPROTO_UDP, .destination_port = PORT };
	struct weir_xsk_socket_options options = { .size = sizeof(options),
						   .mode = mode,
						   .tx_ring = WEIR_XSK_NONE,
						   .fill_chunks = 128,
						   .flags = WEIR_XSK_RX_HINTS,
						   .rules = &rule,
						   .rule_count = 1 };
	struct weir_xsk_socket_options sends = { .size = sizeof(sends), .rx_ring = WEIR_XSK_NONE };
	struct weir_xsk_umem *umem;
	char text[256];

	OK(weir_xsk_umem_create(&of_umem, &umem));
	OK(weir_xsk_open(umem, device, 0, &sends, &sender));
	OK(weir_xsk_open(umem, peer, 0, &options, &receiver));
	CHECK(OK(weir_xsk_has_rx_hints(receiver)) == (mode == WEIR_XSK_DRV));
	CHECK(OK(weir_xsk_has_rx_hints(sender)) == 0);
	if (mode == WEIR_XSK_DRV)
		REFUSED(ENOENT, weir_xsk_refusal(receiver, 0, text, sizeof(text)));
	else
		CHECK(OK(weir_xsk_refusal(receiver, 0, text, sizeof(text))) > 0);
	exchange(umem);
	OK(weir_xsk_close(receiver));
	OK(weir_xsk_close(sender));
	OK(weir_xsk_umem_close(umem));
}

int main(int argc, char **argv)
{
	CHECK(argc == 5);
	device = argv[1];
	peer = argv[2];
	mode = atoi(argv[3]);
	vlan = atoi(argv[4]);
	packets = socket(AF_PACKET, SOCK_RAW, 0);
	CHECK(packets >= 0);
	run(2048, 0);
	run(3000, WEIR_XSK_UNALIGNED);
	close(packets);
	printf("each packet had its hints\n");
	return EXIT_SUCCESS;
}
