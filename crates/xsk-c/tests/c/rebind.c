/*
 * A device goes and comes back: rebind PEER DEVICE MODE. Sockets are closed and opened again on the same UMEM, and
 * the program's frames outlast both.
 */
#include "check.h"

enum {
	CHUNKS = 256,
	KEPT = 8,
	ROUNDS = 3
};

static struct weir_xsk_umem *umem;
static const char *peer, *device;

static void run(const char *format)
{
	char command[128];

	snprintf(command, sizeof(command), format, peer, device);
	CHECK(system(command) == 0);
}

static void send_packets(struct weir_xsk_socket *socket, struct weir_xsk_frame *frames)
{
	CHECK(OK(weir_xsk_send(socket, frames, KEPT)) == KEPT);
	OK(weir_xsk_flush(socket));
}

static void receive_packets(struct weir_xsk_socket *socket, struct weir_xsk_frame *frames)
{
	for (int seen = 0; seen < KEPT;) {
		wait_for_packet(socket);
		seen += OK(weir_xsk_recv(socket, frames + seen, KEPT - seen));
	}
	for (uint32_t i = 0; i < KEPT; i++)
		CHECK(packet_is(frames[i].data, frames[i].len, i));
}

int main(int argc, char **argv)
{
	struct weir_xsk_accounting accounting = { .size = sizeof(accounting) };
	struct weir_xsk_frame frames[KEPT], more[KEPT];
	struct weir_xsk_socket *here, *there;
	uint32_t mode;

	CHECK(argc == 4);
	peer = argv[1];
	device = argv[2];
	mode = atoi(argv[3]);
	umem = umem_of(CHUNKS);
	here = socket_on(umem, peer, mode, WEIR_XSK_POLL);
	CHECK(OK(weir_xsk_alloc(here, frames, KEPT)) == KEPT);
	for (uint32_t i = 0; i < KEPT; i++) {
		packet_write(frames[i].data, i);
		frames[i].len = PACKET;
	}
	for (int round = 0; round < ROUNDS; round++) {
		there = socket_on(umem, device, mode, WEIR_XSK_POLL);
		send_packets(here, frames);
		receive_packets(there, frames);

		/* These are on their way, or in the RX ring, when the device goes. */
		CHECK(OK(weir_xsk_alloc(here, more, KEPT)) == KEPT);
		for (uint32_t i = 0; i < KEPT; i++)
			more[i].len = PACKET;
		send_packets(here, more);
		run("ip link delete dev %s");
		CHECK(OK(weir_xsk_fault(here)) == WEIR_XSK_DEVICE_GONE);
		CHECK(OK(weir_xsk_fault(there)) == WEIR_XSK_DEVICE_GONE);
		OK(weir_xsk_close(here));
		OK(weir_xsk_close(there));
		check_accounts(umem, CHUNKS, KEPT);

		run("ip link add %s type veth peer name %s");
		run("ip link set dev %s up && ip link set dev %s up");
		here = socket_on(umem, peer, mode, WEIR_XSK_POLL);
	}
	CHECK(OK(weir_xsk_free(here, frames, KEPT)) == KEPT);
	OK(weir_xsk_close(here));
	OK(weir_xsk_umem_accounting(umem, &accounting));
	CHECK(accounting.free == CHUNKS);
	OK(weir_xsk_umem_close(umem));
	puts("the frames outlasted the device");
	return EXIT_SUCCESS;
}
