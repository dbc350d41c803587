/*
 * A socket tells why it gets nothing: faults PEER DEVICE MODE. The device is set down and up, and deleted.
 */
#include "check.h"

static void run(const char *format, const char *device)
{
	char command[128];

	snprintf(command, sizeof(command), format, device);
	CHECK(system(command) == 0);
}

static struct weir_xsk_socket *reopen(struct weir_xsk_umem *umem, char **argv)
{
	struct weir_xsk_socket_options options = { .size = sizeof(options),
						   .mode = atoi(argv[3]),
						   .waiting = WEIR_XSK_BUSY_POLL };
	struct weir_xsk_socket *socket;

	OK(weir_xsk_open(umem, argv[2], 0, &options, &socket));
	CHECK(OK(weir_xsk_fault(socket)) == WEIR_XSK_NO_FAULT);
	return socket;
}

int main(int argc, char **argv)
{
	struct weir_xsk_accounting accounting = { .size = sizeof(accounting) };
	struct weir_xsk_socket_options options = { .size = sizeof(options) };
	struct weir_xsk_socket *socket;
	struct weir_xsk_umem *umem;

	CHECK(argc == 4);
	OK(weir_xsk_umem_create(NULL, &umem));
	socket = reopen(umem, argv);
	CHECK(OK(weir_xsk_wait(socket, WEIR_XSK_RECEIVE, 1)) == 0);
	/* A veth has none since Linux 6.13. */
	OK(weir_xsk_napi_id(socket));
	run("ip link set dev %s down", argv[2]);
	CHECK(OK(weir_xsk_fault(socket)) == WEIR_XSK_DEVICE_DOWN);
	run("ip link set dev %s up", argv[2]);
	CHECK(OK(weir_xsk_fault(socket)) == WEIR_XSK_NO_FAULT);

	OK(weir_xsk_close(socket));
	socket = reopen(umem, argv);
	run("ip link delete dev %s", argv[2]);
	CHECK(OK(weir_xsk_fault(socket)) == WEIR_XSK_DEVICE_GONE);
	OK(weir_xsk_close(socket));
	REFUSED(ENODEV, weir_xsk_open(umem, argv[2], 0, &options, &socket));

	OK(weir_xsk_umem_accounting(umem, &accounting));
	CHECK(accounting.free == 4096);
	OK(weir_xsk_umem_close(umem));
	puts("each fault was told");
	return EXIT_SUCCESS;
}
