// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Makes bad calls and says each one's error: `errors DEVICE DOWN [one|own]`.
 *
 * DEVICE has 8 queues and no native zero-copy; DOWN is down. With `one`, it opens one socket; with `own`, it
 * makes the calls that libxdp does not survive.
 */
#include <errno.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <linux/if_link.h>
#include <linux/if_xdp.h>
#include <xdp/xsk.h>

#define FRAMES 64
#define FRAME_SIZE 4096
#define SIZE ((size_t)FRAMES * FRAME_SIZE)

struct memory {
	struct xsk_umem *umem;
	struct xsk_ring_prod fill;
	struct xsk_ring_cons completion;
	uint8_t *frames;
};

struct rings {
	struct xsk_socket *xsk;
	struct xsk_ring_prod fill, tx;
	struct xsk_ring_cons completion, rx;
};

static const struct xsk_umem_config umem_config = { FRAMES, FRAMES, FRAME_SIZE, 0, 0 };
static const struct xsk_socket_config socket_config = { .rx_size = FRAMES,
							.tx_size = FRAMES,
							.bind_flags = XDP_COPY };

static void row(const char *call, int result)
{
	printf("%s: %s\n", call, result ? strerrorname_np(-result) : "0");
}

static uint8_t *map(int protection)
{
	uint8_t *frames = mmap(NULL, SIZE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (frames == MAP_FAILED)
		exit(EXIT_FAILURE);
	return frames;
}

static struct memory *memory(void)
{
	struct memory *memory = calloc(1, sizeof(*memory));

	memory->frames = map(PROT_READ | PROT_WRITE);
	row("a UMEM", xsk_umem__create(&memory->umem, memory->frames, SIZE, &memory->fill,
				       &memory->completion, &umem_config));
	return memory;
}

static void umem_row(const char *call, void *frames, size_t size, struct xsk_umem_config config)
{
	struct memory *memory = calloc(1, sizeof(*memory));

	row(call, xsk_umem__create(&memory->umem, frames, size, &memory->fill, &memory->completion,
				   &config));
	free(memory);
}

static void umem_rows(void)
{
	struct xsk_umem_config config = umem_config;
	struct memory *memory = calloc(1, sizeof(*memory));
	uint8_t *frames = map(PROT_READ | PROT_WRITE);

	row("no UMEM's pointer",
	    xsk_umem__create(NULL, frames, SIZE, &memory->fill, &memory->completion, &config));
	row("no memory", xsk_umem__create(&memory->umem, NULL, SIZE, &memory->fill,
					  &memory->completion, &config));
	row("no fill",
	    xsk_umem__create(&memory->umem, frames, SIZE, NULL, &memory->completion, &config));
	row("no completion",
	    xsk_umem__create(&memory->umem, frames, SIZE, &memory->fill, NULL, &config));
	umem_row("size 0", frames, 0, config);
	umem_row("size 0, not at a page", frames + 8, 0, config);
	umem_row("not at a page", frames + 8, SIZE - FRAME_SIZE, config);
	umem_row("half a frame too much", frames, SIZE - FRAME_SIZE / 2, config);
	umem_row("unreadable memory", map(PROT_NONE), SIZE, config);
	umem_row("read-only memory", map(PROT_READ), SIZE, config);
	config.frame_size = 1024;
	umem_row("frames of 1024", frames, SIZE, config);
	config.frame_size = 3000;
	umem_row("frames of 3000", frames, SIZE, config);
	config.frame_size = 1 << 16;
	umem_row("frames of 65536", frames, SIZE, config);
	config = umem_config;
	config.fill_size = 3;
	umem_row("3 in fill", frames, SIZE, config);
	config = umem_config;
	config.comp_size = 3;
	umem_row("3 in completion", frames, SIZE, config);
	config = umem_config;
	config.frame_headroom = FRAME_SIZE;
	umem_row("headroom of a frame", frames, SIZE, config);
	config = umem_config;
	config.flags = 1 << 30;
	umem_row("an unknown UMEM flag", frames, SIZE, config);
	row("descriptor of no UMEM", xsk_umem__fd(NULL));
	row("descriptor of no socket", xsk_socket__fd(NULL));
	row("deleting no UMEM", xsk_umem__delete(NULL));
	xsk_socket__delete(NULL);
	free(memory);
}

static struct rings *socket_row(const char *call, const char *device, uint32_t queue,
				struct memory *memory, struct xsk_socket_config config)
{
	struct rings *rings = calloc(1, sizeof(*rings));

	row(call, xsk_socket__create(&rings->xsk, device, queue, memory->umem, &rings->rx,
				     &rings->tx, &config));
	return rings;
}

static void null_rows(const char *device, struct memory *memory)
{
	struct rings *rings = calloc(1, sizeof(*rings));
	struct xsk_umem *umem = memory->umem;

	row("no socket's pointer",
	    xsk_socket__create(NULL, device, 0, umem, &rings->rx, &rings->tx, NULL));
	row("no UMEM",
	    xsk_socket__create(&rings->xsk, device, 0, NULL, &rings->rx, &rings->tx, NULL));
	row("no rx and tx", xsk_socket__create(&rings->xsk, device, 0, umem, NULL, NULL, NULL));
	row("a UMEM that no socket uses", xsk_umem__delete(umem));
	free(rings);
}

static void socket_rows(const char *device, const char *down)
{
	struct xsk_socket_config config = socket_config;
	struct memory *first = memory(), *second = memory(), *third = memory();
	struct rings *one, *retried;

	socket_row("a device that is down", down, 0, memory(), config);
	config.libxdp_flags = 1 << 7;
	socket_row("an unknown flag of libxdp's", device, 0, first, config);
	config = socket_config;
	socket_row("no such device", "nosuch", 0, first, config);
	socket_row("a long name", "a-name-of-more-than-15-letters", 0, first, config);
	socket_row("an empty name", "", 0, first, config);
	socket_row("queue 99", device, 99, first, config);
	config.bind_flags = XDP_COPY | XDP_ZEROCOPY;
	socket_row("copy and zero-copy", device, 0, first, config);
	config.bind_flags = 1 << 15;
	socket_row("an unknown bind flag", device, 0, first, config);
	config.bind_flags = XDP_ZEROCOPY;
	socket_row("zero-copy", device, 0, first, config);
	one = socket_row("copy, after all that", device, 0, first, socket_config);
	row("deleting a used UMEM", xsk_umem__delete(first->umem));
	row("a closed map", xsk_socket__update_xskmap(one->xsk, 1000));
	row("no map", xsk_socket__update_xskmap(one->xsk, -1));

	socket_row("a busy queue", device, 0, second, socket_config);
	config = socket_config;
	config.rx_size = 3;
	socket_row("3 in rx", device, 1, third, config);
	config = socket_config;
	config.tx_size = 3;
	socket_row("3 in tx", device, 1, third, config);
	retried = socket_row("an own queue", device, 1, third, socket_config);

	socket_row("another queue without rings", device, 2, first, socket_config);
	xsk_socket__delete(one->xsk);
	row("deleting it", xsk_umem__delete(first->umem));
	xsk_socket__delete(retried->xsk);
	row("deleting the others", xsk_umem__delete(second->umem) | xsk_umem__delete(third->umem));
}

static void shared_rows(const char *device)
{
	struct memory *memory_ = memory();
	struct rings *rings = calloc(1, sizeof(*rings)), *other = calloc(1, sizeof(*other));

	row("fill alone", xsk_socket__create_shared(&rings->xsk, device, 3, memory_->umem,
						    &rings->rx, NULL, &rings->fill, NULL, NULL));
	row("completion alone",
	    xsk_socket__create_shared(&rings->xsk, device, 3, memory_->umem, &rings->rx, NULL, NULL,
				      &rings->completion, NULL));
	row("rings of its own",
	    xsk_socket__create_shared(&rings->xsk, device, 3, memory_->umem, &rings->rx, &rings->tx,
				      &rings->fill, &rings->completion, &socket_config));
	row("another queue",
	    xsk_socket__create_shared(&other->xsk, device, 4, memory_->umem, &other->rx, &other->tx,
				      &other->fill, &other->completion, &socket_config));
	row("a queue that there is not",
	    xsk_socket__create_shared(&other->xsk, device, 99, memory_->umem, &other->rx,
				      &other->tx, &other->fill, &other->completion,
				      &socket_config));
	row("deleting a UMEM of two", xsk_umem__delete(memory_->umem));
	xsk_socket__delete(rings->xsk);
	row("deleting a UMEM of one", xsk_umem__delete(memory_->umem));
	xsk_socket__delete(other->xsk);
	row("deleting a UMEM of none", xsk_umem__delete(memory_->umem));
}

static void program_rows(const char *device)
{
	struct xsk_socket_config config = socket_config;
	struct memory *unused = memory(), *skb = memory(), *driver = memory();
	struct rings *rings;
	int map = -1;

	row("a program for no device", xsk_setup_xdp_prog(9999, &map));
	row("a program for device -1", xsk_setup_xdp_prog(-1, &map));
	config.libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD;
	rings = socket_row("without a program", device, 5, unused, config);
	row("no map of libxdp's", xsk_socket__update_xskmap(rings->xsk, -1));
	config = socket_config;
	socket_row("native mode on lo", "lo", 0, driver, config);
	config.xdp_flags = XDP_FLAGS_SKB_MODE;
	socket_row("generic mode on lo", "lo", 0, skb, config);
}

/* libxdp survives none of these, but the other size, with which it moves a ring of the wrong size. */
static void own_rows(const char *device)
{
	struct xsk_socket_config config = socket_config;
	struct memory *own = memory();
	struct rings *rings = calloc(1, sizeof(*rings)), *one, *two;

	row("no device",
	    xsk_socket__create(&rings->xsk, NULL, 0, own->umem, &rings->rx, &rings->tx, NULL));
	row("the map of no socket", xsk_socket__update_xskmap(NULL, 0));
	socket_row("queue 99", device, 99, own, config);
	config.rx_size = FRAMES / 2;
	socket_row("another size than before", device, 0, own, config);
	one = socket_row("a queue", device, 0, own, socket_config);
	two = socket_row("the same queue again", device, 0, own, socket_config);
	xsk_socket__delete(one->xsk);
	row("deleting a UMEM that one still uses", xsk_umem__delete(own->umem));
	xsk_socket__delete(two->xsk);
	row("deleting it", xsk_umem__delete(own->umem));
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 4 && !strcmp(argv[3], "one")) {
		struct memory *own = memory();

		socket_row("a socket", argv[1], 0, own, socket_config);
		return EXIT_SUCCESS;
	}
	if (argc == 4 && !strcmp(argv[3], "own")) {
		own_rows(argv[1]);
		return EXIT_SUCCESS;
	}
	if (argc != 3)
		return EXIT_FAILURE;
	umem_rows();
	null_rows(argv[1], memory());
	socket_rows(argv[1], argv[2]);
	shared_rows(argv[1]);
	program_rows(argv[1]);
	return EXIT_SUCCESS;
}
