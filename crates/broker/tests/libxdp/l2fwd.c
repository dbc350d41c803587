// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Forwards packets of one queue back to their sender: `l2fwd DEVICE QUEUE PACKETS [copy|zerocopy]`.
 *
 * An AF_XDP program as its author writes it, against xdp/xsk.h alone: libxdp loads its default
 * program, makes its map and attaches it. It knows of no supervisor. It says `ready`, ends after
 * PACKETS packets and says `forwarded N`.
 */
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/if_xdp.h>
#include <xdp/xsk.h>

#define FRAMES 1024
#define FRAME_SIZE 2048
#define BATCH 32

#ifndef SO_PREFER_BUSY_POLL
#define SO_PREFER_BUSY_POLL 69
#endif
#ifndef SO_BUSY_POLL_BUDGET
#define SO_BUSY_POLL_BUDGET 70
#endif

static struct xsk_umem *umem;
static struct xsk_socket *xsk;
static struct xsk_ring_prod fill, tx;
static struct xsk_ring_cons completion, rx;
static uint8_t *frames;
static unsigned int outstanding;

static void fail(const char *step, int error)
{
	fprintf(stderr, "%s: %s\n", step, strerror(error));
	exit(EXIT_FAILURE);
}

static void open_socket(const char *device, unsigned int queue, uint16_t bind_flags)
{
	size_t size = (size_t)FRAMES * FRAME_SIZE;
	struct xsk_umem_config umem_config = {
		.fill_size = FRAMES,
		.comp_size = FRAMES,
		.frame_size = FRAME_SIZE,
	};
	struct xsk_socket_config config = {
		.rx_size = FRAMES,
		.tx_size = FRAMES,
		.bind_flags = bind_flags,
	};
	uint32_t at = 0;
	int error;

	frames = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (frames == MAP_FAILED)
		fail("mmap", errno);
	error = xsk_umem__create(&umem, frames, size, &fill, &completion, &umem_config);
	if (error)
		fail("xsk_umem__create", -error);
	if (xsk_ring_prod__reserve(&fill, FRAMES, &at) != FRAMES)
		fail("xsk_ring_prod__reserve", ENOSPC);
	for (unsigned int i = 0; i < FRAMES; i++)
		*xsk_ring_prod__fill_addr(&fill, at++) = (uint64_t)i * FRAME_SIZE;
	xsk_ring_prod__submit(&fill, FRAMES);
	error = xsk_socket__create(&xsk, device, queue, umem, &rx, &tx, &config);
	if (error)
		fail("xsk_socket__create", -error);
}

/* As xdpsock's -B; a program works without it, only slower. */
static void set_busy_poll(void)
{
	int prefer = 1, budget = 16, fd = xsk_socket__fd(xsk);

	if (setsockopt(fd, SOL_SOCKET, SO_PREFER_BUSY_POLL, &prefer, sizeof(prefer)) ||
	    setsockopt(fd, SOL_SOCKET, SO_BUSY_POLL_BUDGET, &budget, sizeof(budget)))
		printf("no busy polling: %s\n", strerror(errno));
}

static void swap_macs(uint8_t *frame)
{
	uint8_t destination[6];

	memcpy(destination, frame, sizeof(destination));
	memcpy(frame, frame + 6, 6);
	memcpy(frame + 6, destination, sizeof(destination));
}

static void reap(void)
{
	uint32_t from = 0, to = 0;
	unsigned int count;

	if (!outstanding)
		return;
	sendto(xsk_socket__fd(xsk), NULL, 0, MSG_DONTWAIT, NULL, 0);
	count = xsk_ring_cons__peek(&completion, BATCH, &from);
	if (!count || xsk_ring_prod__reserve(&fill, count, &to) != count)
		return;
	for (unsigned int i = 0; i < count; i++)
		*xsk_ring_prod__fill_addr(&fill, to++) =
			*xsk_ring_cons__comp_addr(&completion, from++);
	xsk_ring_prod__submit(&fill, count);
	xsk_ring_cons__release(&completion, count);
	outstanding -= count;
}

static unsigned int forward(void)
{
	unsigned int count;
	uint32_t from = 0, to = 0;

	count = xsk_ring_cons__peek(&rx, BATCH, &from);
	if (!count)
		return 0;
	if (xsk_ring_prod__reserve(&tx, count, &to) != count) {
		xsk_ring_cons__cancel(&rx, count);
		return 0;
	}
	for (unsigned int i = 0; i < count; i++) {
		const struct xdp_desc *in = xsk_ring_cons__rx_desc(&rx, from++);
		struct xdp_desc *out = xsk_ring_prod__tx_desc(&tx, to++);

		swap_macs(xsk_umem__get_data(frames, in->addr));
		out->addr = in->addr;
		out->len = in->len;
		out->options = 0;
	}
	xsk_ring_prod__submit(&tx, count);
	xsk_ring_cons__release(&rx, count);
	outstanding += count;
	return count;
}

int main(int argc, char **argv)
{
	unsigned long packets, forwarded = 0;
	uint16_t bind_flags = XDP_COPY;

	if (argc < 4) {
		fprintf(stderr, "usage: l2fwd DEVICE QUEUE PACKETS [copy|zerocopy]\n");
		return EXIT_FAILURE;
	}
	if (argc > 4 && !strcmp(argv[4], "zerocopy"))
		bind_flags = XDP_ZEROCOPY;
	setvbuf(stdout, NULL, _IOLBF, 0);
	packets = strtoul(argv[3], NULL, 10);
	open_socket(argv[1], (unsigned int)strtoul(argv[2], NULL, 10), bind_flags);
	set_busy_poll();
	printf("ready\n");
	while (forwarded < packets || outstanding) {
		struct pollfd fd = { .fd = xsk_socket__fd(xsk), .events = POLLIN };

		if (forwarded < packets)
			poll(&fd, 1, 100);
		reap();
		if (forwarded < packets)
			forwarded += forward();
	}
	xsk_socket__delete(xsk);
	xsk_umem__delete(umem);
	printf("forwarded %lu\n", forwarded);
	return EXIT_SUCCESS;
}
