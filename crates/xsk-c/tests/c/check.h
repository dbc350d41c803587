/* What the tests in C share: checks that end the program, and packets whose bytes depend on a number. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/xsk.h>

#define CHECK(condition)                                                                   \
	do {                                                                               \
		if (!(condition)) {                                                        \
			fprintf(stderr, "%s:%d: %s is not so; last error: %s\n", __FILE__, \
				__LINE__, #condition, weir_xsk_error());                   \
			exit(EXIT_FAILURE);                                                \
		}                                                                          \
	} while (0)

/* The call returns 0 or more; the value is what it returned. */
#define OK(call) check_ok(call, #call, __FILE__, __LINE__)

/* The call returns this error, with a text. */
#define REFUSED(code, call) check_refused(-(code), call, #call, __FILE__, __LINE__)

static inline int check_ok(int result, const char *call, const char *file, int line)
{
	if (result < 0) {
		fprintf(stderr, "%s:%d: %s: %d, %s\n", file, line, call, result, weir_xsk_error());
		exit(EXIT_FAILURE);
	}
	return result;
}

static inline void check_refused(int expected, int result, const char *call, const char *file,
				 int line)
{
	if (result != expected || weir_xsk_error()[0] == 0) {
		fprintf(stderr, "%s:%d: %s returned %d, not %d; last error: %s\n", file, line, call,
			result, expected, weir_xsk_error());
		exit(EXIT_FAILURE);
	}
}

/* The text of the last error has this word. */
static inline void check_says(const char *word)
{
	if (!strstr(weir_xsk_error(), word)) {
		fprintf(stderr, "no %s in: %s\n", word, weir_xsk_error());
		exit(EXIT_FAILURE);
	}
}

enum {
	PACKET = 100,
	HEADER = 14
};

/* An EtherType for experiments, then the number, then bytes that depend on it. */
static inline void packet_write(uint8_t *bytes, uint32_t number)
{
	static const uint8_t header[HEADER] = { 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5 };

	memcpy(bytes, header, HEADER);
	memcpy(bytes + HEADER, &number, sizeof(number));
	for (uint32_t i = HEADER + sizeof(number); i < PACKET; i++)
		bytes[i] = number * 31 + i;
}

/* Whether these are the bytes of packet `number`, all of them. */
static inline int packet_is(const uint8_t *bytes, uint32_t len, uint32_t number)
{
	uint8_t expected[PACKET];

	packet_write(expected, number);
	return len == PACKET && memcmp(bytes, expected, PACKET) == 0;
}

static inline struct weir_xsk_umem *umem_of(uint32_t chunks)
{
	struct weir_xsk_umem_options options = { .size = sizeof(options),
						 .chunks = chunks,
						 .headroom = 16 };
	struct weir_xsk_umem *umem;

	OK(weir_xsk_umem_create(&options, &umem));
	return umem;
}

/* A socket of small rings. */
static inline struct weir_xsk_socket *socket_on(struct weir_xsk_umem *umem, const char *device,
						uint32_t mode, uint32_t waiting)
{
	struct weir_xsk_socket_options options = { .size = sizeof(options),
						   .mode = mode,
						   .rx_ring = 64,
						   .tx_ring = 64,
						   .fill_ring = 64,
						   .completion_ring = 64,
						   .waiting = waiting };
	struct weir_xsk_socket *socket;

	OK(weir_xsk_open(umem, device, 0, &options, &socket));
	return socket;
}

/* Waits for a packet, as the socket was opened to. */
static inline void wait_for_packet(struct weir_xsk_socket *socket)
{
	for (int tries = 0; tries < 100; tries++)
		if (OK(weir_xsk_wait(socket, WEIR_XSK_RECEIVE, 100)) == WEIR_XSK_RECEIVE)
			return;
	CHECK(!"no packet in 10 seconds");
}

/* Callbacks: one drops each packet, and one writes packet 0. */
static inline int recycle(struct weir_xsk_frame *packet, void *context)
{
	(void)packet;
	(void)context;
	return WEIR_XSK_RECYCLE;
}

static inline uint32_t write_packet_0(uint8_t *room, uint32_t size, void *context)
{
	(void)size;
	(void)context;
	packet_write(room, 0);
	return PACKET;
}

/* Sends packet 0 so many times, and waits until one has come. */
static inline void deliver(struct weir_xsk_socket *from, struct weir_xsk_socket *to, uint32_t count)
{
	CHECK(OK(weir_xsk_send_each(from, count, write_packet_0, NULL)) == (int)count);
	OK(weir_xsk_flush(from));
	wait_for_packet(to);
}

/* The program has so many frames, and every chunk has an owner. */
static inline void check_accounts(struct weir_xsk_umem *umem, uint32_t chunks, uint32_t frames)
{
	struct weir_xsk_accounting it = { .size = sizeof(it) };

	OK(weir_xsk_umem_accounting(umem, &it));
	CHECK(it.frames == frames);
	CHECK(it.held >= it.frames);
	CHECK(it.free + it.held + it.receiving + it.sending + it.retired == chunks);
}

#endif
