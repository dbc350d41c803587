// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Moves packets as programs on libxdp do, to be counted: `moves DEVICE PEER rxdrop|txpush|l2fwd`.
 *
 * Two sockets, on both ends of a veth pair. `counted` makes a move of one batch, by the functions that
 * xdp/xsk.h inlines; the system calls, and the other socket's part, are outside. Each batch is whole before it
 * begins, so that the same instructions are executed on any machine.
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

#define ROUNDS 128
#define BATCH 64
#define FRAMES 256 /* of a socket; the second half is sent */
#define FRAME_SIZE 2048
#define LEN 64

struct port {
	struct xsk_socket *xsk;
	struct xsk_umem *umem;
	struct xsk_ring_prod fill, tx;
	struct xsk_ring_cons completion, rx;
	uint8_t *frames;
	uint64_t free[BATCH]; /* addresses to send from */
};

static struct port here, there;
static uint64_t sum;

static void check(const char *step, int error)
{
	if (!error)
		return;
	fprintf(stderr, "%s: %s\n", step, strerror(-error));
	exit(EXIT_FAILURE);
}

static void give(struct port *port, uint64_t address, uint32_t count)
{
	uint32_t at = 0;

	check("FILL", xsk_ring_prod__reserve(&port->fill, count, &at) == count ? 0 : -ENOSPC);
	for (uint32_t i = 0; i < count; i++)
		*xsk_ring_prod__fill_addr(&port->fill, at++) = address + (uint64_t)i * FRAME_SIZE;
	xsk_ring_prod__submit(&port->fill, count);
}

static void open_port(struct port *port, const char *device)
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
		.bind_flags = XDP_COPY,
	};

	port->frames = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check("mmap", port->frames == MAP_FAILED ? -errno : 0);
	check("a UMEM", xsk_umem__create(&port->umem, port->frames, size, &port->fill,
					 &port->completion, &umem_config));
	check("a socket",
	      xsk_socket__create(&port->xsk, device, 0, port->umem, &port->rx, &port->tx, &config));
	give(port, 0, FRAMES / 2);
	for (int i = 0; i < BATCH; i++)
		port->free[i] = (uint64_t)(FRAMES / 2 + i) * FRAME_SIZE;
}

/* Waits until the kernel has filled a batch in, and hands over what is in TX if it asks for that. */
static void wait_for(struct port *kick, const struct xsk_ring_cons *ring)
{
	for (int tries = 0; tries < 10000; tries++) {
		uint32_t there = __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE);

		if (there - *ring->consumer >= BATCH)
			return;
		sendto(xsk_socket__fd(kick->xsk), NULL, 0, MSG_DONTWAIT, NULL, 0);
		poll(NULL, 0, tries > 10);
	}
	check("a batch", -ETIME);
}

static void rxdrop(struct port *port)
{
	uint32_t from = 0, to = 0;
	unsigned int count = xsk_ring_cons__peek(&port->rx, BATCH, &from);

	if (xsk_ring_prod__reserve(&port->fill, count, &to) != count)
		return;
	for (unsigned int i = 0; i < count; i++) {
		const struct xdp_desc *desc = xsk_ring_cons__rx_desc(&port->rx, from++);

		sum += desc->len + *(uint8_t *)xsk_umem__get_data(port->frames, desc->addr);
		*xsk_ring_prod__fill_addr(&port->fill, to++) = desc->addr;
	}
	xsk_ring_prod__submit(&port->fill, count);
	xsk_ring_cons__release(&port->rx, count);
}

static void txpush(struct port *port)
{
	uint32_t to = 0;

	if (xsk_ring_prod__reserve(&port->tx, BATCH, &to) != BATCH)
		return;
	for (unsigned int i = 0; i < BATCH; i++) {
		struct xdp_desc *desc = xsk_ring_prod__tx_desc(&port->tx, to++);

		desc->addr = port->free[i];
		desc->len = LEN;
		desc->options = 0;
	}
	xsk_ring_prod__submit(&port->tx, BATCH);
}

static void reap(struct port *port)
{
	uint32_t from = 0;
	unsigned int count = xsk_ring_cons__peek(&port->completion, BATCH, &from);

	for (unsigned int i = 0; i < count; i++)
		port->free[i] = *xsk_ring_cons__comp_addr(&port->completion, from++);
	xsk_ring_cons__release(&port->completion, count);
}

static void l2fwd(struct port *port)
{
	uint32_t from = 0, to = 0, fill = 0;
	unsigned int count = xsk_ring_cons__peek(&port->rx, BATCH, &from);

	if (xsk_ring_prod__reserve(&port->tx, count, &to) != count ||
	    xsk_ring_prod__reserve(&port->fill, count, &fill) != count)
		return;
	for (unsigned int i = 0; i < count; i++) {
		const struct xdp_desc *in = xsk_ring_cons__rx_desc(&port->rx, from++);
		struct xdp_desc *out = xsk_ring_prod__tx_desc(&port->tx, to++);
		uint8_t *frame = xsk_umem__get_data(port->frames, in->addr), addresses[6];

		memcpy(addresses, frame, sizeof(addresses));
		memcpy(frame, frame + 6, 6);
		memcpy(frame + 6, addresses, sizeof(addresses));
		out->addr = in->addr;
		out->len = in->len;
		out->options = 0;
		*xsk_ring_prod__fill_addr(&port->fill, fill++) = port->free[i];
	}
	xsk_ring_prod__submit(&port->tx, count);
	xsk_ring_prod__submit(&port->fill, count);
	xsk_ring_cons__release(&port->rx, count);
}

static const struct {
	const char *name;
	void (*move)(struct port *);
	int sends; /* by `here`, or receives by `there` */
} moves[] = {
	{ "rxdrop", rxdrop, 0 },
	{ "txpush", txpush, 1 },
	{ "l2fwd", l2fwd, 0 },
};

/* The part that is counted, and the completions that go with it. */
__attribute__((noinline)) void counted(void (*move)(struct port *), struct port *port)
{
	move(port);
}

__attribute__((noinline)) static void round_of(int i)
{
	if (moves[i].sends) {
		counted(txpush, &here);
		wait_for(&here, &there.rx);
		rxdrop(&there);
		wait_for(&here, &here.completion);
		counted(reap, &here);
		return;
	}
	txpush(&here);
	wait_for(&here, &there.rx);
	counted(moves[i].move, &there);
	wait_for(&here, &here.completion);
	reap(&here);
	if (moves[i].move == l2fwd) {
		wait_for(&there, &here.rx);
		rxdrop(&here);
		wait_for(&there, &there.completion);
		counted(reap, &there);
	}
}

int main(int argc, char **argv)
{
	int i = 0;

	if (argc != 4) {
		fprintf(stderr, "usage: moves DEVICE PEER rxdrop|txpush|l2fwd\n");
		return EXIT_FAILURE;
	}
	while (strcmp(moves[i].name, argv[3]) != 0)
		check("a move", ++i < (int)(sizeof(moves) / sizeof(moves[0])) ? 0 : -EINVAL);
	open_port(&here, argv[1]);
	open_port(&there, argv[2]);
	for (int round = 0; round < ROUNDS; round++)
		round_of(i);
	xsk_socket__delete(here.xsk);
	xsk_socket__delete(there.xsk);
	printf("%d packets\n", ROUNDS * BATCH);
	return sum || moves[i].sends ? EXIT_SUCCESS : EXIT_FAILURE;
}
