// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Forwards packets back to their sender, by the functions of xdp/xsk.h for less common programs:
 *
 *   sockets shared DEVICE PACKETS   two sockets of one UMEM, on two queues, used by a child
 *   sockets twice DEVICE PACKETS    two sockets of one UMEM, on one queue; the second receives
 *   sockets map DEVICE PACKETS      without libxdp's program, by the map of xsk_setup_xdp_prog
 *   sockets opts DEVICE PACKETS     opened with options, as libxdp 1.5 has them
 *   sockets frags DEVICE PACKETS    packets of several chunks
 *
 * It says `ready`, ends after PACKETS packets of each queue and says `forwarded N`.
 */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/if_xdp.h>
#include <net/if.h>
#include <xdp/xsk.h>

#define FRAMES 256 /* of each queue */
#ifndef XDP_USE_SG /* Linux 6.6 */
#define XDP_USE_SG (1 << 4)
#define XDP_PKT_CONTD (1 << 0)
#endif
#define FRAME_SIZE 4096
#define BATCH 32

_Static_assert(sizeof(struct xsk_ring_prod) == 48, "as weir has it");
_Static_assert(sizeof(struct xsk_ring_cons) == 48, "as weir has it");
_Static_assert(sizeof(struct xsk_umem_config) == 20, "as weir has it");
_Static_assert(sizeof(struct xsk_socket_config) == 20, "as weir has it");

#ifndef xsk_umem_opts__last_field
/* As in xdp/xsk.h of libxdp 1.5. */
struct xsk_umem_opts {
	size_t sz;
	int fd;
	__u64 size;
	__u32 fill_size;
	__u32 comp_size;
	__u32 frame_size;
	__u32 frame_headroom;
	__u32 flags;
	__u32 tx_metadata_len;
	size_t : 0;
};

struct xsk_socket_opts {
	size_t sz;
	struct xsk_ring_cons *rx;
	struct xsk_ring_prod *tx;
	struct xsk_ring_prod *fill;
	struct xsk_ring_cons *comp;
	__u32 rx_size;
	__u32 tx_size;
	__u32 libxdp_flags;
	__u32 xdp_flags;
	__u16 bind_flags;
	size_t : 0;
};

struct xsk_umem *xsk_umem__create_opts(void *umem_area, struct xsk_ring_prod *fill,
				       struct xsk_ring_cons *comp, struct xsk_umem_opts *opts);
struct xsk_socket *xsk_socket__create_opts(const char *ifname, __u32 queue_id,
					   struct xsk_umem *umem, struct xsk_socket_opts *opts);
#endif
/* Absent from older versions of libxdp. */
#pragma weak xsk_umem__create_opts
#pragma weak xsk_socket__create_opts

_Static_assert(sizeof(struct xsk_umem_opts) == 48, "as weir has it");
_Static_assert(sizeof(struct xsk_socket_opts) == 64, "as weir has it");

struct port {
	struct xsk_socket *xsk;
	struct xsk_ring_prod fill, tx;
	struct xsk_ring_cons completion, rx;
	unsigned int outstanding;
	unsigned int piece; /* of the packet whose end is yet to come */
	unsigned long forwarded;
};

static struct xsk_umem *umem;
static struct port ports[2];
static uint8_t *frames;

static void check(const char *step, int error)
{
	if (!error)
		return;
	fprintf(stderr, "%s: %s\n", step, strerror(-error));
	exit(EXIT_FAILURE);
}

static void allocate(void)
{
	size_t size = (size_t)2 * FRAMES * FRAME_SIZE;

	frames = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check("mmap", frames == MAP_FAILED ? -errno : 0);
}

static void create_umem(struct xsk_ring_prod *fill, struct xsk_ring_cons *completion)
{
	struct xsk_umem_config config = {
		.fill_size = FRAMES,
		.comp_size = FRAMES,
		.frame_size = FRAME_SIZE,
	};
	size_t size = (size_t)2 * FRAMES * FRAME_SIZE;

	allocate();
	check("xsk_umem__create", xsk_umem__create(&umem, frames, size, fill, completion, &config));
}

static void give_frames(unsigned int number)
{
	uint32_t at = 0;

	if (xsk_ring_prod__reserve(&ports[number].fill, FRAMES, &at) != FRAMES)
		check("xsk_ring_prod__reserve", -ENOSPC);
	for (unsigned int i = 0; i < FRAMES; i++)
		*xsk_ring_prod__fill_addr(&ports[number].fill, at++) =
			((uint64_t)number * FRAMES + i) * FRAME_SIZE;
	xsk_ring_prod__submit(&ports[number].fill, FRAMES);
}

static void open_shared(const char *device)
{
	static struct xsk_ring_prod fill;
	static struct xsk_ring_cons completion;
	struct xsk_socket_config config = {
		.rx_size = FRAMES,
		.tx_size = FRAMES,
		.bind_flags = XDP_COPY,
	};

	/* The first socket gets the UMEM's rings, in structures of its own. */
	create_umem(&fill, &completion);
	for (unsigned int i = 0; i < 2; i++) {
		struct port *port = &ports[i];

		check("xsk_socket__create_shared",
		      xsk_socket__create_shared(&port->xsk, device, i, umem, &port->rx, &port->tx,
						&port->fill, &port->completion, &config));
		give_frames(i);
	}
}

static void open_twice(const char *device)
{
	struct xsk_socket_config config = {
		.rx_size = FRAMES,
		.tx_size = FRAMES,
		.bind_flags = XDP_COPY,
	};

	create_umem(&ports[0].fill, &ports[0].completion);
	/* The first sends only. */
	check("xsk_socket__create",
	      xsk_socket__create(&ports[1].xsk, device, 0, umem, NULL, &ports[1].tx, &config));
	check("xsk_socket__create", xsk_socket__create(&ports[0].xsk, device, 0, umem, &ports[0].rx,
						       &ports[0].tx, &config));
	give_frames(0);
	/* The second keeps its packets. */
	xsk_socket__delete(ports[1].xsk);
	ports[1].xsk = NULL;
}

static void open_by_map(const char *device)
{
	struct xsk_socket_config config = {
		.rx_size = FRAMES,
		.tx_size = FRAMES,
		.libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD,
		.bind_flags = XDP_COPY,
	};
	int map = -1;

	check("xsk_setup_xdp_prog", xsk_setup_xdp_prog((int)if_nametoindex(device), &map));
	create_umem(&ports[0].fill, &ports[0].completion);
	give_frames(0);
	check("xsk_socket__create", xsk_socket__create(&ports[0].xsk, device, 0, umem, &ports[0].rx,
						       &ports[0].tx, &config));
	check("xsk_socket__update_xskmap", xsk_socket__update_xskmap(ports[0].xsk, map));
	close(map);
}

static void open_for_fragments(const char *device)
{
	struct xsk_socket_config config = {
		.rx_size = FRAMES,
		.tx_size = FRAMES,
		.bind_flags = XDP_COPY | XDP_USE_SG,
	};

	create_umem(&ports[0].fill, &ports[0].completion);
	give_frames(0);
	check("xsk_socket__create", xsk_socket__create(&ports[0].xsk, device, 0, umem, &ports[0].rx,
						       &ports[0].tx, &config));
}

static void refuse_umem(const char *call, struct xsk_umem_opts *options)
{
	if (xsk_umem__create_opts(frames, &ports[0].fill, &ports[0].completion, options) ||
	    errno != EINVAL)
		check(call, -EPROTO);
}

static void open_with_options(const char *device)
{
	/* Of a later version, which has more. */
	struct {
		struct xsk_umem_opts known;
		uint64_t unknown;
	} umem_options;
	struct xsk_socket_opts options;

	if (!xsk_umem__create_opts || !xsk_socket__create_opts) {
		printf("this libxdp has no options\n");
		exit(EXIT_SUCCESS);
	}
	allocate();
	memset(&umem_options, 0, sizeof(umem_options));
	umem_options.known.size = (size_t)2 * FRAMES * FRAME_SIZE;
	umem_options.known.sz = sizeof(size_t) - 1;
	refuse_umem("options without a size", &umem_options.known);
	umem_options.known.sz = sizeof(umem_options);
	umem_options.unknown = 1;
	refuse_umem("options that are unknown", &umem_options.known);
	umem_options.unknown = 0;
	umem = xsk_umem__create_opts(frames, &ports[0].fill, &ports[0].completion,
				     &umem_options.known);
	check("xsk_umem__create_opts", umem ? 0 : -errno);
	give_frames(0);
	memset(&options, 0, sizeof(options));
	options.sz = sizeof(options);
	options.rx = &ports[0].rx;
	options.tx = &ports[0].tx;
	options.bind_flags = XDP_COPY;
	options.libxdp_flags = 1 << 7;
	if (xsk_socket__create_opts(device, 0, umem, &options) || errno != EINVAL)
		check("xsk_socket__create_opts with an unknown flag", -EPROTO);
	options.libxdp_flags = 0;
	ports[0].xsk = xsk_socket__create_opts(device, 0, umem, &options);
	check("xsk_socket__create_opts", ports[0].xsk ? 0 : -errno);
}

static void swap_macs(uint8_t *frame)
{
	uint8_t destination[6];

	memcpy(destination, frame, sizeof(destination));
	memcpy(frame, frame + 6, 6);
	memcpy(frame + 6, destination, sizeof(destination));
}

static void reap(struct port *port)
{
	uint32_t from = 0, to = 0;
	unsigned int count;

	if (!port->outstanding)
		return;
	sendto(xsk_socket__fd(port->xsk), NULL, 0, MSG_DONTWAIT, NULL, 0);
	count = xsk_ring_cons__peek(&port->completion, BATCH, &from);
	if (!count || xsk_ring_prod__reserve(&port->fill, count, &to) != count)
		return;
	for (unsigned int i = 0; i < count; i++)
		*xsk_ring_prod__fill_addr(&port->fill, to++) =
			*xsk_ring_cons__comp_addr(&port->completion, from++);
	xsk_ring_prod__submit(&port->fill, count);
	xsk_ring_cons__release(&port->completion, count);
	port->outstanding -= count;
}

static void forward(struct port *port)
{
	uint32_t from = 0, to = 0;
	unsigned int count = xsk_ring_cons__peek(&port->rx, BATCH, &from);

	if (!count)
		return;
	if (xsk_ring_prod__reserve(&port->tx, count, &to) != count) {
		xsk_ring_cons__cancel(&port->rx, count);
		return;
	}
	for (unsigned int i = 0; i < count; i++) {
		const struct xdp_desc *in = xsk_ring_cons__rx_desc(&port->rx, from++);
		struct xdp_desc *out = xsk_ring_prod__tx_desc(&port->tx, to++);

		if (!port->piece++)
			swap_macs(xsk_umem__get_data(frames, in->addr));
		*out = *in;
		if (!(in->options & XDP_PKT_CONTD)) {
			port->piece = 0;
			port->forwarded++;
		}
	}
	xsk_ring_prod__submit(&port->tx, count);
	xsk_ring_cons__release(&port->rx, count);
	port->outstanding += count;
}

static void serve(unsigned long packets)
{
	bool done = false;

	printf("ready\n");
	while (!done) {
		struct pollfd fds[2];
		nfds_t count = 0;

		done = true;
		for (unsigned int i = 0; i < 2; i++)
			if (ports[i].xsk)
				fds[count++] =
					(struct pollfd){ xsk_socket__fd(ports[i].xsk), POLLIN, 0 };
		poll(fds, count, 10);
		for (unsigned int i = 0; i < 2; i++) {
			if (!ports[i].xsk)
				continue;
			reap(&ports[i]);
			forward(&ports[i]);
			done &= ports[i].forwarded >= packets && !ports[i].outstanding;
		}
	}
	printf("forwarded %lu\n", ports[0].forwarded + ports[1].forwarded);
}

int main(int argc, char **argv)
{
	unsigned long packets;

	if (argc != 4) {
		fprintf(stderr, "usage: sockets shared|twice|map|opts|frags DEVICE PACKETS\n");
		return EXIT_FAILURE;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	packets = strtoul(argv[3], NULL, 10);
	if (!strcmp(argv[1], "twice"))
		open_twice(argv[2]);
	else if (!strcmp(argv[1], "map"))
		open_by_map(argv[2]);
	else if (!strcmp(argv[1], "frags"))
		open_for_fragments(argv[2]);
	else if (!strcmp(argv[1], "opts"))
		open_with_options(argv[2]);
	else
		open_shared(argv[2]);
	if (!strcmp(argv[1], "shared")) {
		int status = 0;
		pid_t child = fork();

		if (!child) {
			serve(packets);
			_exit(EXIT_SUCCESS);
		}
		if (child < 0 || waitpid(child, &status, 0) < 0 || status)
			return EXIT_FAILURE;
	} else {
		serve(packets);
	}
	for (unsigned int i = 0; i < 2; i++)
		xsk_socket__delete(ports[i].xsk);
	check("xsk_umem__delete", xsk_umem__delete(umem));
	return EXIT_SUCCESS;
}
