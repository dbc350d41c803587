// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Receives packets of several frames: `jumbo DEVICE skb|drv PACKETS`.
 *
 * It binds with XDP_USE_SG, on libxdp's own program, says `ready`, and a line for each packet: its bytes, in
 * how many frames they are, and whether each has the value of its place. A refusal is a line, too.
 */
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <linux/if_link.h>
#include <linux/if_xdp.h>
#include <xdp/xsk.h>

#define FRAMES 256
#define FRAME_SIZE 4096
#define HEADER 14

#ifndef XDP_USE_SG
#define XDP_USE_SG (1 << 4)
#endif
#ifndef XDP_PKT_CONTD
#define XDP_PKT_CONTD (1 << 0)
#endif

static struct xsk_ring_prod fill;
static struct xsk_ring_cons completion, rx;
static uint8_t *frames;

static void check(const char *step, int error)
{
	if (!error)
		return;
	printf("%s: %s\n", step, strerror(-error));
	exit(EXIT_SUCCESS);
}

static struct xsk_socket *open_socket(const char *device, uint32_t xdp_flags)
{
	size_t size = (size_t)FRAMES * FRAME_SIZE;
	struct xsk_umem_config umem_config = {
		.fill_size = FRAMES,
		.comp_size = FRAMES,
		.frame_size = FRAME_SIZE,
	};
	struct xsk_socket_config config = {
		.rx_size = FRAMES,
		.xdp_flags = xdp_flags,
		.bind_flags = XDP_COPY | XDP_USE_SG,
	};
	struct xsk_socket *xsk;
	struct xsk_umem *umem;
	uint32_t at = 0;

	frames = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check("mmap", frames == MAP_FAILED ? -errno : 0);
	check("a UMEM", xsk_umem__create(&umem, frames, size, &fill, &completion, &umem_config));
	if (xsk_ring_prod__reserve(&fill, FRAMES, &at) != FRAMES)
		check("FILL", -ENOSPC);
	for (unsigned int i = 0; i < FRAMES; i++)
		*xsk_ring_prod__fill_addr(&fill, at++) = (uint64_t)i * FRAME_SIZE;
	xsk_ring_prod__submit(&fill, FRAMES);
	check("a socket", xsk_socket__create(&xsk, device, 0, umem, &rx, NULL, &config));
	return xsk;
}

/* Reads the frames of one packet, of which the last has no XDP_PKT_CONTD. */
static void read_packet(struct xsk_socket *xsk)
{
	struct pollfd fd = { .fd = xsk_socket__fd(xsk), .events = POLLIN };
	unsigned int len = 0, count = 0, wrong = 0;
	uint32_t at = 0, options;

	do {
		const struct xdp_desc *desc;
		const uint8_t *data;

		while (!xsk_ring_cons__peek(&rx, 1, &at))
			poll(&fd, 1, 100);
		desc = xsk_ring_cons__rx_desc(&rx, at);
		data = xsk_umem__get_data(frames, desc->addr);
		for (uint32_t i = 0; i < desc->len; i++, len++)
			wrong += len >= HEADER && data[i] != (uint8_t)(len * 7 + len / 251);
		options = desc->options;
		xsk_ring_cons__release(&rx, 1);
		count++;
	} while (options & XDP_PKT_CONTD);
	printf("%u bytes in %u frames, %u wrong\n", len, count, wrong);
}

int main(int argc, char **argv)
{
	struct xsk_socket *xsk;

	if (argc != 4) {
		fprintf(stderr, "usage: jumbo DEVICE skb|drv PACKETS\n");
		return EXIT_FAILURE;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	/* A packet that is lost ends it. */
	alarm(20);
	xsk = open_socket(argv[1],
			  strcmp(argv[2], "drv") ? XDP_FLAGS_SKB_MODE : XDP_FLAGS_DRV_MODE);
	printf("ready\n");
	for (long left = strtol(argv[3], NULL, 10); left > 0; left--)
		read_packet(xsk);
	xsk_socket__delete(xsk);
	return EXIT_SUCCESS;
}
