// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Receives packets of several frames: `jumbo DEVICE skb|drv|own PACKETS`.
 *
 * It binds with XDP_USE_SG, on libxdp's own program or, in native mode, one of its own for packets of several
 * buffers. It says `ready`, and a line for each packet: its bytes, in
 * how many frames they are, and whether each has the value of its place. A refusal is a line, too.
 */
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/bpf.h>
#include <linux/if_link.h>
#include <linux/if_xdp.h>
#include <net/if.h>
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

#ifndef BPF_F_XDP_HAS_FRAGS
#define BPF_F_XDP_HAS_FRAGS (1U << 5)
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

static int bpf(const char *step, enum bpf_cmd command, union bpf_attr *attr)
{
	int fd = (int)syscall(SYS_bpf, command, attr, sizeof(*attr));

	check(step, fd < 0 ? -errno : 0);
	return fd;
}

/* Attaches a program as a section `xdp.frags` would have it, which redirects to the map returned. */
static int attach_own(const char *device)
{
	union bpf_attr map = { .map_type = BPF_MAP_TYPE_XSKMAP,
			       .key_size = sizeof(int),
			       .value_size = sizeof(int),
			       .max_entries = 1 };
	int map_fd = bpf("a map", BPF_MAP_CREATE, &map);
	const struct bpf_insn instructions[] = {
		/* bpf_redirect_map(map, context->rx_queue_index, XDP_PASS) */
		{ .code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = 2, .src_reg = 1, .off = 16 },
		{ .code = BPF_LD | BPF_DW | BPF_IMM,
		  .dst_reg = 1,
		  .src_reg = BPF_PSEUDO_MAP_FD,
		  .imm = map_fd },
		{ .code = 0 },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 3, .imm = XDP_PASS },
		{ .code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_redirect_map },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	union bpf_attr program = { .prog_type = BPF_PROG_TYPE_XDP,
				   .insns = (uintptr_t)instructions,
				   .insn_cnt = sizeof(instructions) / sizeof(instructions[0]),
				   .license = (uintptr_t) "Dual MIT/GPL",
				   .prog_flags = BPF_F_XDP_HAS_FRAGS };
	union bpf_attr link = { .link_create = { .attach_type = BPF_XDP,
						 .flags = XDP_FLAGS_DRV_MODE } };

	link.link_create.prog_fd = bpf("a program", BPF_PROG_LOAD, &program);
	link.link_create.target_ifindex = if_nametoindex(device);
	bpf("a link", BPF_LINK_CREATE, &link);
	return map_fd;
}

static struct xsk_socket *open_socket(const char *device, uint32_t xdp_flags, uint32_t libxdp_flags)
{
	size_t size = (size_t)FRAMES * FRAME_SIZE;
	struct xsk_umem_config umem_config = {
		.fill_size = FRAMES,
		.comp_size = FRAMES,
		.frame_size = FRAME_SIZE,
	};
	struct xsk_socket_config config = {
		.rx_size = FRAMES,
		.libxdp_flags = libxdp_flags,
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
	int own;

	if (argc != 4) {
		fprintf(stderr, "usage: jumbo DEVICE skb|drv|own PACKETS\n");
		return EXIT_FAILURE;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	/* A packet that is lost ends it. */
	alarm(20);
	own = !strcmp(argv[2], "own");
	xsk = open_socket(argv[1], strcmp(argv[2], "skb") ? XDP_FLAGS_DRV_MODE : XDP_FLAGS_SKB_MODE,
			  own ? XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD : 0);
	if (own)
		check("the map", xsk_socket__update_xskmap(xsk, attach_own(argv[1])));
	printf("ready\n");
	for (long left = strtol(argv[3], NULL, 10); left > 0; left--)
		read_packet(xsk);
	xsk_socket__delete(xsk);
	return EXIT_SUCCESS;
}
