/*
 * Two queues of a device share a program and a UMEM, and each gets its own packets, those of a rule alone:
 * queues DEVICE PEER MODE.
 */
#include "check.h"

enum {
	CHUNKS = 4096,
	PACKETS = 200,
	BATCH = 20
};

static struct weir_xsk_umem *make_umem(void)
{
	/* Without huge pages on this host it has others. */
	struct weir_xsk_umem_options options = { .size = sizeof(options),
						 .chunks = CHUNKS,
						 .chunk_size = 4096,
						 .flags = WEIR_XSK_HUGE_PAGES | WEIR_XSK_COLLAPSE };
	struct weir_xsk_umem *umem;

	OK(weir_xsk_umem_create(&options, &umem));
	return umem;
}

struct counts {
	uint32_t queue, seen;
};

/* The packets of queue 1 have odd numbers, those of queue 0 even ones. */
static int look(struct weir_xsk_frame *packet, void *context)
{
	struct counts *counts = context;

	CHECK(packet_is(packet->data, packet->len, 2 * counts->seen + counts->queue));
	counts->seen++;
	return WEIR_XSK_RECYCLE;
}

/* Writes a packet of the rule, and after each, one of another EtherType. */
static uint32_t write_packet(uint8_t *room, uint32_t size, void *context)
{
	struct counts *sent = context;

	CHECK(size == 4096);
	packet_write(room, sent->seen / 2 * 2 + sent->queue);
	if (sent->seen % 2)
		room[13] = 0xb6;
	sent->seen++;
	return PACKET;
}

int main(int argc, char **argv)
{
	struct weir_xsk_rule rules[] = { { .ether_type = 0x1234 }, { .ether_type = 0x88b5 } };
	struct weir_xsk_socket_options options = { .size = sizeof(options) };
	struct weir_xsk_socket *senders[2], *receivers[2];
	struct counts sent[2] = { { 0, 0 }, { 1, 0 } }, seen[2] = { { 0, 0 }, { 1, 0 } };
	struct weir_xsk_umem *umem = make_umem();
	struct weir_xsk_statistics counts = { .size = sizeof(counts) };

	CHECK(argc == 4);
	options.mode = atoi(argv[3]);
	options.fill_chunks = 512;
	options.rules = rules;
	options.rule_count = 2;
	OK(weir_xsk_open(umem, argv[2], 0, &options, &receivers[0]));
	options.rules = NULL;
	options.rule_count = 0;
	REFUSED(EEXIST, weir_xsk_open(umem, argv[2], 1, &options, &receivers[1]));
	options.program_of = receivers[0];
	OK(weir_xsk_open(umem, argv[2], 1, &options, &receivers[1]));
	options.program_of = NULL;
	options.rx_ring = WEIR_XSK_NONE;
	options.fill_chunks = 0;
	options.flags = WEIR_XSK_NO_NEED_WAKEUP;
	for (int queue = 0; queue < 2; queue++) {
		OK(weir_xsk_open(umem, argv[1], queue, &options, &senders[queue]));
		CHECK(OK(weir_xsk_mode(senders[queue])) == WEIR_XSK_COPY);
	}
	while (seen[0].seen + seen[1].seen < 2 * PACKETS) {
		for (int queue = 0; queue < 2; queue++) {
			uint32_t until = sent[queue].seen / 2 + BATCH;

			CHECK(OK(weir_xsk_send_each(senders[queue], 2 * BATCH, write_packet,
						    &sent[queue])) == 2 * BATCH);
			OK(weir_xsk_flush(senders[queue]));
			while (seen[queue].seen < until) {
				CHECK(OK(weir_xsk_wait(receivers[queue], WEIR_XSK_RECEIVE, 10000)));
				OK(weir_xsk_receive_each(receivers[queue], 64, look, &seen[queue]));
			}
		}
	}
	for (int queue = 0; queue < 2; queue++) {
		OK(weir_xsk_statistics(receivers[queue], &counts));
		CHECK(counts.received == PACKETS);
		/* The first goes, and its program stays with the other. */
		OK(weir_xsk_close(receivers[queue]));
		OK(weir_xsk_close(senders[queue]));
	}
	OK(weir_xsk_umem_close(umem));
	printf("each queue got its packets\n");
	return EXIT_SUCCESS;
}
