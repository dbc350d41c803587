/* Packets of several chunks between two sockets, their bytes and each misuse: fragments DEVICE PEER MODE CHUNK. */
#include "check.h"

enum {
	CHUNKS = 512,
	HEADROOM = 16,
	MOST = WEIR_XSK_MAX_FRAGMENTS,
	JUMBO = 9014,
	ADDRESSES = 14
};

static struct weir_xsk_umem *umem, *plain;
static struct weir_xsk_socket *here, *there;

/* Bytes in a chunk, and of a packet received into one. */
static uint32_t chunk, part;

/* The value of a packet's byte at a place. */
static uint8_t byte_at(uint32_t at)
{
	static const uint8_t addresses[ADDRESSES] = {
		2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5
	};

	return at < ADDRESSES ? addresses[at] : at * 7 + at / 251;
}

static struct weir_xsk_umem *umem_with(uint32_t flags, uint32_t chunk_size)
{
	struct weir_xsk_umem_options options = { .size = sizeof(options),
						 .chunks = CHUNKS,
						 .headroom = HEADROOM,
						 .chunk_size = chunk_size,
						 .flags = flags };
	struct weir_xsk_umem *made;

	OK(weir_xsk_umem_create(&options, &made));
	return made;
}

/* Allocates frames for a packet of `len` bytes, each of `part` bytes but the last, and writes it. */
static uint32_t compose(struct weir_xsk_frame *frames, uint32_t len, uint32_t part)
{
	uint32_t count = (len + part - 1) / part, at = 0;

	CHECK(OK(weir_xsk_alloc(here, frames, count)) == (int)count);
	for (uint32_t i = 0; i < count; i++) {
		frames[i].len = len - at < part ? len - at : part;
		for (uint32_t j = 0; j < frames[i].len; j++)
			frames[i].data[j] = byte_at(at++);
	}
	return count;
}

static void check_bytes(const struct weir_xsk_frame *frames, uint32_t count, uint32_t len)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < count; i++)
		for (uint32_t j = 0; j < frames[i].len; j++)
			CHECK(frames[i].data[j] == byte_at(at++));
	CHECK(at == len);
}

/* Receives `packets` packets of `len` bytes into `frames`; returns the number of frames. */
static uint32_t receive(struct weir_xsk_socket *socket, struct weir_xsk_frame *frames,
			uint32_t packets, uint32_t len)
{
	uint32_t counts[8], have = 0, at = 0;

	for (int tries = 0; have < packets; tries++) {
		int received;

		CHECK(tries < 100);
		OK(weir_xsk_wait(socket, WEIR_XSK_RECEIVE, 100));
		received = OK(weir_xsk_recv_fragments(socket, frames + at, 8 * MOST - at, counts,
						      packets - have));
		CHECK(received <= (int)(packets - have));
		for (int i = 0; i < received; i++) {
			CHECK(counts[i] == (len + part - 1) / part);
			check_bytes(frames + at, counts[i], len);
			at += counts[i];
		}
		have += received;
	}
	return at;
}

/* There in parts of a size, and back in the chunks that it came in. */
static void exchange(uint32_t len, uint32_t part)
{
	struct weir_xsk_frame frames[8 * MOST];
	uint32_t count = compose(frames, len, part), back;

	CHECK(OK(weir_xsk_send_fragments(here, frames, count)) == (int)count);
	OK(weir_xsk_flush(here));
	count = receive(there, frames, 1, len);
	check_accounts(umem, CHUNKS, count);
	CHECK(OK(weir_xsk_send_fragments(there, frames, count)) == (int)count);
	OK(weir_xsk_flush(there));
	back = receive(here, frames, 1, len);
	CHECK(OK(weir_xsk_free(here, frames, back)) == (int)back);
	check_accounts(umem, CHUNKS, 0);
}

/* Several packets in one call. */
static void bursts(void)
{
	struct weir_xsk_frame frames[8 * MOST];

	for (int round = 0; round < 50; round++) {
		uint32_t count;

		for (int i = 0; i < 4; i++) {
			count = compose(frames, 5000, chunk - HEADROOM);
			CHECK(OK(weir_xsk_send_fragments(here, frames, count)) == (int)count);
		}
		OK(weir_xsk_flush(here));
		count = receive(there, frames, 4, 5000);
		CHECK(OK(weir_xsk_free(there, frames, count)) == (int)count);
		OK(weir_xsk_reclaim(here));
	}
}

/* An array in which one packet fits for sure, while more wait. */
static void little_room(void)
{
	struct weir_xsk_frame frames[MOST];
	uint32_t counts[64], count;
	int packets = 0;

	for (int i = 0; i < 4; i++) {
		count = compose(frames, JUMBO, chunk - HEADROOM);
		CHECK(OK(weir_xsk_send_fragments(here, frames, count)) == (int)count);
	}
	OK(weir_xsk_flush(here));
	for (int tries = 0; packets < 4; tries++) {
		int received;

		CHECK(tries < 100);
		OK(weir_xsk_wait(there, WEIR_XSK_RECEIVE, 100));
		received = OK(weir_xsk_recv_fragments(there, frames, MOST, counts, 64));
		count = 0;
		for (int i = 0; i < received; i++) {
			CHECK(counts[i] <= MOST - count);
			check_bytes(frames + count, counts[i], JUMBO);
			count += counts[i];
		}
		CHECK(OK(weir_xsk_free(there, frames, count)) == (int)count);
		packets += received;
	}
	OK(weir_xsk_reclaim(here));
}

/* A packet with a frame that is refused: all frames stay the program's, and can be sent or freed. */
static void bad_frames(void)
{
	struct weir_xsk_frame frames[MOST + 1], foreign, good;
	struct weir_xsk_socket_options options = { .size = sizeof(options),
						   .rx_ring = WEIR_XSK_NONE };
	struct weir_xsk_socket *sender;

	OK(weir_xsk_open(plain, "spare0", 0, &options, &sender));
	CHECK(OK(weir_xsk_alloc(sender, &foreign, 1)) == 1);
	foreign.len = 100;
	REFUSED(EOPNOTSUPP, weir_xsk_recv_fragments(sender, frames, MOST, &(uint32_t){ 0 }, 1));
	for (uint32_t at = 0; at < 3; at++) {
		CHECK(compose(frames, 300, 100) == 3);
		good = frames[at];
		frames[at].handle[1] ^= 1ull << 60;
		REFUSED(ESTALE, weir_xsk_send_fragments(here, frames, 3));
		frames[at] = frames[(at + 1) % 3];
		REFUSED(ESTALE, weir_xsk_send_fragments(here, frames, 3));
		frames[at] = foreign;
		REFUSED(EXDEV, weir_xsk_send_fragments(here, frames, 3));
		frames[at] = good;
		frames[at].len = 0;
		REFUSED(EINVAL, weir_xsk_send_fragments(here, frames, 3));
		frames[at].len = frames[at].room + 1;
		REFUSED(EINVAL, weir_xsk_send_fragments(here, frames, 3));
		frames[at].len = 100;
		frames[at].data += 2 * chunk;
		REFUSED(EINVAL, weir_xsk_send_fragments(here, frames, 3));
		frames[at] = good;
		check_accounts(umem, CHUNKS, 3);
		CHECK(OK(weir_xsk_send_fragments(here, frames, 3)) == 3);
		REFUSED(ESTALE, weir_xsk_send_fragments(here, frames, 3));
		OK(weir_xsk_flush(here));
		CHECK(receive(there, frames, 1, 300) == 1);
		CHECK(OK(weir_xsk_free(there, frames, 1)) == 1);
	}
	CHECK(OK(weir_xsk_alloc(sender, frames, 1)) == 1);
	frames[0].len = 100;
	frames[1] = foreign;
	REFUSED(EOPNOTSUPP, weir_xsk_send_fragments(sender, frames, 2));
	CHECK(OK(weir_xsk_send_fragments(sender, frames, 1)) == 1);
	CHECK(OK(weir_xsk_free(sender, &foreign, 1)) == 1);
	OK(weir_xsk_close(sender));
}

static void bad_arguments(void)
{
	struct weir_xsk_frame frames[MOST + 1];
	struct weir_xsk_socket *no_socket = (struct weir_xsk_socket *)umem;
	uint32_t counts[1];

	CHECK(compose(frames, 60 * (MOST + 1), 60) == MOST + 1);
	REFUSED(EMSGSIZE, weir_xsk_send_fragments(here, frames, MOST + 1));
	REFUSED(EMSGSIZE, weir_xsk_send_fragments(here, frames, UINT32_MAX));
	REFUSED(EINVAL, weir_xsk_send_fragments(here, frames, 0));
	REFUSED(EFAULT, weir_xsk_send_fragments(here, NULL, 1));
	REFUSED(EFAULT, weir_xsk_send_fragments(NULL, frames, 1));
	REFUSED(EBADF, weir_xsk_send_fragments(no_socket, frames, 1));
	check_accounts(umem, CHUNKS, MOST + 1);
	CHECK(OK(weir_xsk_free(here, frames, MOST + 1)) == MOST + 1);
	REFUSED(EINVAL, weir_xsk_recv_fragments(there, frames, MOST - 1, counts, 1));
	REFUSED(EFAULT, weir_xsk_recv_fragments(there, NULL, MOST, counts, 1));
	REFUSED(EFAULT, weir_xsk_recv_fragments(there, frames, MOST, NULL, 1));
	REFUSED(EFAULT, weir_xsk_recv_fragments(NULL, frames, MOST, counts, 1));
	REFUSED(EBADF, weir_xsk_recv_fragments(no_socket, frames, MOST, counts, 1));
	CHECK(OK(weir_xsk_recv_fragments(there, frames, MOST, counts, 0)) == 0);
	check_accounts(umem, CHUNKS, 0);
}

/* A packet of more frames than TX has slots would never be sent. */
static void short_ring(void)
{
	struct weir_xsk_socket_options options = { .size = sizeof(options),
						   .rx_ring = WEIR_XSK_NONE,
						   .tx_ring = 8 };
	struct weir_xsk_frame frames[9];
	struct weir_xsk_socket *sender;

	OK(weir_xsk_open(umem, "spare0", 0, &options, &sender));
	CHECK(compose(frames, 9 * 100, 100) == 9);
	REFUSED(EMSGSIZE, weir_xsk_send_fragments(sender, frames, 9));
	CHECK(OK(weir_xsk_send_fragments(sender, frames, 8)) == 8);
	CHECK(OK(weir_xsk_send_fragments(sender, frames + 8, 1)) == 0);
	CHECK(OK(weir_xsk_free(sender, frames + 8, 1)) == 1);
	OK(weir_xsk_close(sender));
}

/* TX has 64 slots: three packets of 18 frames, and no part of a fourth. */
static void full_ring(void)
{
	struct weir_xsk_frame frames[8 * MOST];
	uint32_t count;

	OK(weir_xsk_reclaim(here));
	for (int i = 0; i < 3; i++) {
		CHECK(compose(frames, 60 * MOST, 60) == MOST);
		CHECK(OK(weir_xsk_send_fragments(here, frames, MOST)) == MOST);
	}
	CHECK(compose(frames, 60 * MOST, 60) == MOST);
	CHECK(OK(weir_xsk_send_fragments(here, frames, MOST)) == 0);
	check_accounts(umem, CHUNKS, MOST);
	CHECK(OK(weir_xsk_free(here, frames, MOST)) == MOST);
	OK(weir_xsk_flush(here));
	count = receive(there, frames, 3, 60 * MOST);
	CHECK(OK(weir_xsk_free(there, frames, count)) == (int)count);
	OK(weir_xsk_reclaim(here));
}

static int no_packet(struct weir_xsk_frame *packet, void *context)
{
	(void)packet;
	(void)context;
	CHECK(!"a packet of several chunks came as one of one");
	return WEIR_XSK_RECYCLE;
}

static int receive_frames(struct weir_xsk_frame *frames)
{
	return weir_xsk_recv(there, frames, MOST);
}

static int receive_each(struct weir_xsk_frame *frames)
{
	(void)frames;
	return weir_xsk_receive_each(there, 1, no_packet, NULL);
}

/* Calls for one chunk drop the others, and count them. */
static void read_singly(int (*receive)(struct weir_xsk_frame *frames), uint64_t fragmented)
{
	struct weir_xsk_statistics counters = { .size = sizeof(counters) };
	struct weir_xsk_frame frames[MOST];
	uint32_t count = compose(frames, JUMBO, chunk - HEADROOM);

	CHECK(OK(weir_xsk_send_fragments(here, frames, count)) == (int)count);
	OK(weir_xsk_flush(here));
	for (int tries = 0; counters.fragmented < fragmented; tries++) {
		CHECK(tries < 100);
		OK(weir_xsk_wait(there, WEIR_XSK_RECEIVE, 100));
		CHECK(OK(receive(frames)) == 0);
		OK(weir_xsk_statistics(there, &counters));
	}
	CHECK(counters.fragmented == fragmented);
	check_accounts(umem, CHUNKS, 0);
}

int main(int argc, char **argv)
{
	uint32_t mode;

	CHECK(argc == 5);
	mode = atoi(argv[3]);
	chunk = atoi(argv[4]);
	part = chunk - 256 - HEADROOM;
	umem = umem_with(WEIR_XSK_FRAGMENTS | (chunk == 2048 ? 0 : WEIR_XSK_UNALIGNED), chunk);
	plain = umem_with(0, 0);
	here = socket_on(umem, argv[1], mode, WEIR_XSK_ADAPTIVE);
	there = socket_on(umem, argv[2], mode, WEIR_XSK_ADAPTIVE);
	for (int round = 0; round < 20; round++) {
		const uint32_t lengths[] = { 60,       part - 1,     part, part + 1,
					     2 * part, 2 * part + 1, JUMBO };

		for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
			exchange(lengths[i], chunk - HEADROOM);
		/* In as many frames as there may be. */
		exchange(60 * MOST, 60);
		exchange(JUMBO, 501);
	}
	bursts();
	little_room();
	bad_frames();
	bad_arguments();
	short_ring();
	full_ring();
	read_singly(receive_frames, 1);
	read_singly(receive_each, 2);
	OK(weir_xsk_close(here));
	OK(weir_xsk_close(there));
	check_accounts(umem, CHUNKS, 0);
	OK(weir_xsk_umem_close(umem));
	OK(weir_xsk_umem_close(plain));
	printf("all packets as they were sent\n");
	return EXIT_SUCCESS;
}
