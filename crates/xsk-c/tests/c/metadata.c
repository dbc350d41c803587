/* Requests with packets that are sent, their answers and each misuse: metadata DEVICE PEER MODE. */
#include "check.h"
#include <time.h>

enum {
	CHUNKS = 512,
	PACKETS = 512,
	BATCH = 16,
	/* Where a sum begins, and its place from there. */
	START = 20,
	OFFSET = 6,
	PLACE = START + OFFSET
};

static struct weir_xsk_umem *umem, *plain_umem;
static struct weir_xsk_socket *here, *there;

/* A length for each packet, also odd ones. */
static uint32_t len_of(uint32_t number)
{
	return 60 + number * 7 % 900;
}

static void write_bytes(uint8_t *bytes, uint32_t len, uint32_t number)
{
	static const uint8_t header[HEADER] = { 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5 };

	memcpy(bytes, header, HEADER);
	memcpy(bytes + HEADER, &number, sizeof(number));
	for (uint32_t i = HEADER + sizeof(number); i < len; i++)
		bytes[i] = number * 31 + i * 7;
}

static uint32_t number_of(const uint8_t *bytes)
{
	uint32_t number;

	memcpy(&number, bytes + HEADER, sizeof(number));
	return number;
}

/* The checksum of the bytes from START on, by RFC 1071. */
static uint16_t sum(const uint8_t *bytes, uint32_t len)
{
	uint32_t sum = 0;

	for (uint32_t i = START; i < len; i += 2)
		sum += bytes[i] << 8 | (i + 1 < len ? bytes[i + 1] : 0);
	while (sum > 0xffff)
		sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

static struct weir_xsk_tx_request request_of(uint32_t flags)
{
	struct weir_xsk_tx_request request = { .size = sizeof(request),
					       .flags = flags,
					       .checksum_start = START,
					       .checksum_offset = OFFSET };

	return request;
}

static int asks_for_sum(uint32_t number)
{
	return number % 3 != 0;
}

static int asks_for_time(uint32_t number)
{
	return number % 4 != 3;
}

/* A frame of `here` with packet `number`. */
static struct weir_xsk_frame frame_of(uint32_t number)
{
	struct weir_xsk_frame frame;

	CHECK(OK(weir_xsk_alloc(here, &frame, 1)) == 1);
	frame.len = len_of(number);
	write_bytes(frame.data, frame.len, number);
	return frame;
}

/* The bytes are those of the packet, but for the checksum that it asked for, which is summed anew. */
static void check_packet(uint8_t *bytes, uint32_t len, uint32_t number)
{
	uint8_t expected[1000];
	uint16_t found = bytes[PLACE] << 8 | bytes[PLACE + 1];

	CHECK(len == len_of(number) && number_of(bytes) == number);
	write_bytes(expected, len, number);
	if (asks_for_sum(number)) {
		uint16_t right = sum(expected, len);

		CHECK(found == right || (right == 0 && found == 0xffff));
		memcpy(bytes + PLACE, expected + PLACE, 2);
	}
	CHECK(memcmp(bytes, expected, len) == 0);
}

static void receive(uint32_t first, uint32_t count)
{
	struct weir_xsk_frame frames[BATCH];
	uint32_t seen = 0;

	while (seen < count) {
		int received;

		wait_for_packet(there);
		received = OK(weir_xsk_recv(there, frames, BATCH));
		for (int i = 0; i < received; i++)
			check_packet(frames[i].data, frames[i].len, first + seen++);
		CHECK(OK(weir_xsk_free(there, frames, received)) == received);
	}
}

/* Now by the clock of timestamps. */
static uint64_t now(void)
{
	struct timespec time;

	CHECK(clock_gettime(CLOCK_TAI, &time) == 0);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

/* The times that are there are of the next packets that asked, and between the two. */
static void take(uint32_t *next, uint64_t begin)
{
	struct weir_xsk_tx_timestamp time;

	OK(weir_xsk_reclaim(here));
	while (OK(weir_xsk_take_timestamp(here, &time)) == 1) {
		while (!asks_for_time(*next))
			++*next;
		CHECK(time.tag == (uint64_t)*next << 32);
		CHECK(begin <= time.nanoseconds && time.nanoseconds <= now());
		++*next;
	}
}

/* A sum for two of three packets, a time for three of four. */
static void requests(void)
{
	uint32_t next = 0;
	uint64_t begin = now();

	for (uint32_t number = 0; number < PACKETS; number++) {
		struct weir_xsk_frame frame = frame_of(number);
		struct weir_xsk_tx_request request =
			request_of((asks_for_sum(number) ? WEIR_XSK_TX_CHECKSUM : 0) |
				   (asks_for_time(number) ? WEIR_XSK_TX_TIMESTAMP : 0));

		request.tag = (uint64_t)number << 32;
		/* Without its flag it is not read. */
		request.launch_time = UINT64_MAX;
		CHECK(OK(weir_xsk_send_with(here, &frame, 1, &request)) == 1);
		REFUSED(ESTALE, weir_xsk_send_with(here, &frame, 1, &request));
		OK(weir_xsk_flush(here));
		if (number % BATCH == BATCH - 1) {
			receive(number + 1 - BATCH, BATCH);
			take(&next, begin);
		}
	}
	for (int tries = 0; next < PACKETS - 1; tries++) {
		CHECK(tries < 1000);
		OK(weir_xsk_wait(here, WEIR_XSK_RECEIVE, 1));
		take(&next, begin);
	}
	check_accounts(umem, CHUNKS, 0);
}

/* A packet of two frames has its request in front of the first, which has the place of the checksum. */
static void several_frames(void)
{
	struct weir_xsk_tx_request request = request_of(WEIR_XSK_TX_CHECKSUM);
	struct weir_xsk_frame frames[2];

	for (uint32_t number = 1; number < 100; number++) {
		uint32_t len = len_of(number), first = PLACE + 1 + number % 2;
		uint8_t bytes[1000];

		if (!asks_for_sum(number))
			continue;
		write_bytes(bytes, len, number);
		CHECK(OK(weir_xsk_alloc(here, frames, 2)) == 2);
		frames[0].len = first;
		memcpy(frames[0].data, bytes, first);
		frames[1].len = len - first;
		memcpy(frames[1].data, bytes + first, len - first);
		if (first < PLACE + 2) {
			REFUSED(EINVAL, weir_xsk_send_with(here, frames, 2, &request));
			check_accounts(umem, CHUNKS, 2);
			CHECK(OK(weir_xsk_free(here, frames, 2)) == 2);
			continue;
		}
		CHECK(OK(weir_xsk_send_with(here, frames, 2, &request)) == 2);
		OK(weir_xsk_flush(here));
		receive(number, 1);
	}
	check_accounts(umem, CHUNKS, 0);
}

/* Sending is refused with the error and this word in its text; the frame stays the program's. */
static void refuse(int code, const char *word, const struct weir_xsk_frame *frame,
		   const struct weir_xsk_tx_request *request)
{
	REFUSED(code, weir_xsk_send_with(here, frame, 1, request));
	check_says(word);
	check_accounts(umem, CHUNKS, 1);
}

static void bad_requests(void)
{
	struct {
		struct weir_xsk_tx_request request;
		uint64_t newer;
	} it = { .request = request_of(0), .newer = 1 };
	struct weir_xsk_tx_request request = request_of(0);
	struct weir_xsk_frame frame = frame_of(0), wrong = frame;
	const uint16_t len = frame.len;
	const struct {
		uint16_t start, offset;
	} places[] = { { len, 0 }, { len - 1, 0 }, { 0, len - 1 }, { UINT16_MAX, UINT16_MAX } };

	it.request.size = sizeof(it);
	refuse(E2BIG, "newer", &frame, &it.request);
	refuse(EFAULT, "NULL", &frame, NULL);
	for (request.size = 0; request.size < sizeof(request); request.size += 8)
		refuse(EINVAL, "size", &frame, &request);
	for (int bit = 3; bit < 32; bit++) {
		request.flags = 1u << bit;
		refuse(EINVAL, "unknown flags", &frame, &request);
	}
	request.flags = 0;
	request.reserved = 1;
	refuse(EINVAL, "`reserved`", &frame, &request);
	request = request_of(WEIR_XSK_TX_LAUNCH_TIME);
	request.launch_time = now();
	refuse(EOPNOTSUPP, "WEIR_XSK_TX_LAUNCH_TIME", &frame, &request);
	request.flags |= WEIR_XSK_TX_CHECKSUM | WEIR_XSK_TX_TIMESTAMP;
	refuse(EOPNOTSUPP, "do WEIR_XSK_TX_LAUNCH_TIME:", &frame, &request);
	request = request_of(WEIR_XSK_TX_CHECKSUM);
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		request.checksum_start = places[i].start;
		request.checksum_offset = places[i].offset;
		refuse(EINVAL, "`checksum_start` + `checksum_offset`", &frame, &request);
	}
	request = request_of(0);
	/* The 24 bytes in front of the headroom are the metadata's. */
	wrong.data -= 17;
	refuse(EINVAL, "inside the chunk", &wrong, &request);
	wrong = frame;
	wrong.len = 0;
	refuse(EINVAL, "empty", &wrong, &request);
	wrong = frame;
	wrong.len = frame.room + 1;
	refuse(EINVAL, "inside the chunk", &wrong, &request);
	CHECK(OK(weir_xsk_send_with(here, &frame, 1, &request)) == 1);
	OK(weir_xsk_flush(here));
	receive(0, 1);
}

static void bad_arguments(const char *device)
{
	struct weir_xsk_tx_request request = request_of(WEIR_XSK_TX_TIMESTAMP);
	struct weir_xsk_frame frames[WEIR_XSK_MAX_FRAGMENTS + 1] = { { 0 } }, ours = frame_of(0);
	struct weir_xsk_socket_options options = { .size = sizeof(options),
						   .rx_ring = WEIR_XSK_NONE };
	struct weir_xsk_socket *sender;

	REFUSED(EFAULT, weir_xsk_send_with(here, NULL, 1, &request));
	REFUSED(EINVAL, weir_xsk_send_with(here, frames, 0, &request));
	REFUSED(EMSGSIZE, weir_xsk_send_with(here, frames, WEIR_XSK_MAX_FRAGMENTS + 1, &request));
	REFUSED(EFAULT, weir_xsk_take_timestamp(here, NULL));
	CHECK(OK(weir_xsk_tx_support(here)) == (WEIR_XSK_TX_CHECKSUM | WEIR_XSK_TX_TIMESTAMP));
	OK(weir_xsk_open(plain_umem, device, 0, &options, &sender));
	CHECK(OK(weir_xsk_tx_support(sender)) == 0);
	CHECK(OK(weir_xsk_alloc(sender, frames, 2)) == 2);
	frames[0].len = frames[1].len = PACKET;
	packet_write(frames[0].data, 0);
	packet_write(frames[1].data, 0);
	REFUSED(EOPNOTSUPP, weir_xsk_send_with(sender, frames, 1, &request));
	check_says("WEIR_XSK_TX_METADATA");
	REFUSED(EXDEV, weir_xsk_send_with(here, frames, 1, &request));
	request.flags = 0;
	REFUSED(EXDEV, weir_xsk_send_with(sender, &ours, 1, &request));
	REFUSED(EOPNOTSUPP, weir_xsk_send_with(sender, frames, 2, &request));
	/* No request needs no metadata. */
	CHECK(OK(weir_xsk_send_with(sender, frames, 1, &request)) == 1);
	CHECK(OK(weir_xsk_free(sender, frames + 1, 1)) == 1);
	OK(weir_xsk_close(sender));
	options.rx_ring = 64;
	options.tx_ring = WEIR_XSK_NONE;
	OK(weir_xsk_open(umem, device, 0, &options, &sender));
	REFUSED(EOPNOTSUPP, weir_xsk_send_with(sender, &ours, 1, &request));
	OK(weir_xsk_close(sender));
	CHECK(OK(weir_xsk_free(here, &ours, 1)) == 1);
}

/* TX has 64 slots. */
static void full_ring(void)
{
	struct weir_xsk_tx_request request = request_of(0);
	struct weir_xsk_frame frame;

	for (int tries = 0; OK(weir_xsk_reclaim(here)) > 0; tries++)
		CHECK(tries < 100);
	for (uint32_t number = 0; number < 64; number++) {
		frame = frame_of(3 * number);
		CHECK(OK(weir_xsk_send_with(here, &frame, 1, &request)) == 1);
	}
	frame = frame_of(0);
	CHECK(OK(weir_xsk_send_with(here, &frame, 1, &request)) == 0);
	check_accounts(umem, CHUNKS, 1);
	CHECK(OK(weir_xsk_free(here, &frame, 1)) == 1);
}

int main(int argc, char **argv)
{
	struct weir_xsk_umem_options options = { .size = sizeof(options),
						 .chunks = CHUNKS,
						 .headroom = 16,
						 .flags = WEIR_XSK_TX_METADATA |
							  WEIR_XSK_FRAGMENTS };
	struct weir_xsk_statistics counts = { .size = sizeof(counts) };
	uint32_t mode;

	CHECK(argc == 4);
	mode = atoi(argv[3]);
	OK(weir_xsk_umem_create(&options, &umem));
	plain_umem = umem_of(64);
	here = socket_on(umem, argv[1], mode, WEIR_XSK_ADAPTIVE);
	there = socket_on(umem, argv[2], mode, WEIR_XSK_ADAPTIVE);
	requests();
	several_frames();
	bad_requests();
	bad_arguments("spare0");
	full_ring();
	OK(weir_xsk_statistics(here, &counts));
	CHECK(counts.tx_invalid_descs == 0 && counts.lost_timestamps == 0);
	OK(weir_xsk_close(here));
	OK(weir_xsk_close(there));
	check_accounts(umem, CHUNKS, 0);
	OK(weir_xsk_umem_close(umem));
	OK(weir_xsk_umem_close(plain_umem));
	printf("every request was answered or refused\n");
	return EXIT_SUCCESS;
}
