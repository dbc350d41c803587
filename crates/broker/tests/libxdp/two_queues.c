// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Opens two queues of a device: `two_queues DEVICE`. The second socket shares the program that
 * libxdp has attached for the first, which it finds by its id, its BTF and its maps.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <linux/if_xdp.h>
#include <xdp/xsk.h>

#define FRAMES 64
#define FRAME_SIZE 2048

struct queue {
	struct xsk_umem *umem;
	struct xsk_socket *xsk;
	struct xsk_ring_prod fill, tx;
	struct xsk_ring_cons completion, rx;
};

static struct queue queues[2];

static int open_queue(struct queue *queue, const char *device, unsigned int number)
{
	size_t size = FRAMES * FRAME_SIZE;
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
	void *frames;
	int error;

	frames = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (frames == MAP_FAILED)
		return -1;
	error = xsk_umem__create(&queue->umem, frames, size, &queue->fill, &queue->completion,
				 &umem_config);
	if (error)
		return error;
	return xsk_socket__create(&queue->xsk, device, number, queue->umem, &queue->rx, &queue->tx,
				  &config);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return EXIT_FAILURE;
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (unsigned int i = 0; i < 2; i++) {
		int error = open_queue(&queues[i], argv[1], i);

		if (error) {
			printf("queue %u: %s\n", i, strerror(-error));
			return EXIT_FAILURE;
		}
		printf("queue %u\n", i);
	}
	for (unsigned int i = 0; i < 2; i++) {
		xsk_socket__delete(queues[i].xsk);
		xsk_umem__delete(queues[i].umem);
	}
	return EXIT_SUCCESS;
}
