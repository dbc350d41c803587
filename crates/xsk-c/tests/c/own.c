/*
 * A program and an XSKMAP of the caller's, which redirects by the last byte of the destination address:
 * own DEVICE PEER MODE PROGRAM MAP.
 */
#include "check.h"
#include <fcntl.h>
#include <linux/bpf.h>
#include <net/if.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	CHUNKS = 256,
	PACKETS = 40,
	/* Descriptors are looked for up to here; a number that none has. */
	MOST = 256,
	NONE = 9999
};

static struct weir_xsk_umem *umem;
static const char *peer;
static uint32_t mode;
static int program, map;

static struct weir_xsk_socket_options options_of(uint32_t flags, int program_fd, int map_fd)
{
	struct weir_xsk_socket_options options = { .size = sizeof(options),
						   .mode = mode,
						   .rx_ring = 64,
						   .fill_ring = 64,
						   .tx_ring = WEIR_XSK_NONE,
						   .flags = flags,
						   .program_fd = program_fd,
						   .map_fd = map_fd };

	return options;
}

static int is_open(int descriptor)
{
	return fcntl(descriptor, F_GETFD) >= 0;
}

/* Descriptors that a child would have. */
static int inherited(void)
{
	int count = 0;

	for (int i = 0; i < MOST; i++)
		count += fcntl(i, F_GETFD) == 0;
	return count;
}

/* Opening is refused with the error and this word in its text. */
static void refuse(int code, const char *word, struct weir_xsk_socket_options options)
{
	struct weir_xsk_socket *socket;

	REFUSED(code, weir_xsk_open(umem, peer, 0, &options, &socket));
	check_says(word);
}

static void refusals(void)
{
	const uint32_t own = WEIR_XSK_OWN_PROGRAM, only_map = WEIR_XSK_OWN_MAP;
	struct weir_xsk_rule rule = { .ether_type = 0x88b5 };
	struct weir_xsk_socket_options with_rule = options_of(own, program, map);
	int file = open("/proc/version", O_RDONLY | O_CLOEXEC);

	CHECK(file >= 0);
	refuse(EBADF, "`program_fd` is 9999", options_of(own, NONE, map));
	refuse(EBADF, "`program_fd` is -1", options_of(own, -1, map));
	refuse(EBADF, "`map_fd` is 9999", options_of(own, program, NONE));
	refuse(EBADF, "`map_fd` is -1", options_of(only_map, 0, -1));
	refuse(EXDEV, "not a BPF program", options_of(own, file, map));
	refuse(EXDEV, "not a BPF map", options_of(own, program, file));
	refuse(EXDEV, "not a", options_of(own, map, program));
	refuse(EXDEV, "XSKMAP", options_of(only_map, 0, program));
	refuse(EINVAL, "rx_hints", options_of(own | WEIR_XSK_RX_HINTS, program, map));
	refuse(EINVAL, "rx_hints", options_of(only_map | WEIR_XSK_RX_HINTS, 0, map));
	/* Standard input is a descriptor like others. */
	refuse(EXDEV, "not a", options_of(only_map, 0, 0));
	with_rule.rules = &rule;
	with_rule.rule_count = 1;
	refuse(EINVAL, "filter", with_rule);
	CHECK(is_open(program) && is_open(map) && is_open(file));
	close(file);
}

static struct weir_xsk_socket *open_own(uint32_t flags, int program_fd, int map_fd)
{
	struct weir_xsk_socket_options options = options_of(flags, program_fd, map_fd);
	struct weir_xsk_socket *socket;
	int before = inherited();

	OK(weir_xsk_open(umem, peer, 0, &options, &socket));
	CHECK(OK(weir_xsk_mode(socket)) == (int)mode);
	CHECK(inherited() == before);
	return socket;
}

/* Every second packet is for a slot without a socket, where only the caller's program drops it. */
static uint32_t write_packet(uint8_t *room, uint32_t size, void *context)
{
	uint32_t *written = context;

	CHECK(size >= PACKET);
	packet_write(room, *written);
	room[5] = (*written)++ % 2;
	return PACKET;
}

static int look(struct weir_xsk_frame *packet, void *context)
{
	uint32_t *seen = context;

	CHECK(packet->len == PACKET && packet->data[5] == 0);
	packet->data[5] = 1;
	CHECK(packet_is(packet->data, packet->len, 2 * *seen));
	++*seen;
	return WEIR_XSK_RECYCLE;
}

static void exchange(struct weir_xsk_socket *here, struct weir_xsk_socket *there)
{
	uint32_t written = 0, seen = 0;

	CHECK(OK(weir_xsk_send_each(here, PACKETS, write_packet, &written)) == PACKETS);
	OK(weir_xsk_flush(here));
	while (seen < PACKETS / 2) {
		wait_for_packet(there);
		OK(weir_xsk_receive_each(there, 64, look, &seen));
	}
	OK(weir_xsk_reclaim(here));
}

/* A program built before there were descriptors has no such fields, whatever is behind its structure. */
static void first_version(void)
{
	struct weir_xsk_socket_options options = options_of(0, NONE, NONE);
	struct weir_xsk_socket *socket;

	options.size = offsetof(struct weir_xsk_socket_options, program_fd);
	CHECK(options.size == 64);
	OK(weir_xsk_open(umem, peer, 0, &options, &socket));
	OK(weir_xsk_close(socket));
}

/* Attaches the program to the peer, and returns the descriptor of its link. */
static int attach(void)
{
	union bpf_attr attributes;
	int link;

	memset(&attributes, 0, sizeof(attributes));
	attributes.link_create.prog_fd = program;
	attributes.link_create.target_ifindex = if_nametoindex(peer);
	attributes.link_create.attach_type = BPF_XDP;
	attributes.link_create.flags = mode == WEIR_XSK_SKB ? 1 << 1 : 1 << 2;
	link = syscall(SYS_bpf, BPF_LINK_CREATE, &attributes, sizeof(attributes));
	CHECK(link >= 0);
	return link;
}

int main(int argc, char **argv)
{
	struct weir_xsk_socket *here, *there;
	int link, copies[2];

	CHECK(argc == 6);
	peer = argv[2];
	mode = atoi(argv[3]);
	program = atoi(argv[4]);
	map = atoi(argv[5]);
	umem = umem_of(CHUNKS);
	here = socket_on(umem, argv[1], mode, WEIR_XSK_ADAPTIVE);
	refusals();
	first_version();

	/* Attached with the socket, and detached with it; the descriptors stay the program's. */
	there = open_own(WEIR_XSK_OWN_PROGRAM, program, map);
	exchange(here, there);
	CHECK(OK(weir_xsk_fault(there)) == WEIR_XSK_NO_FAULT);
	OK(weir_xsk_close(there));
	CHECK(is_open(program) && is_open(map));

	/* The library has copies: the program may close its own while the socket is open. */
	copies[0] = fcntl(program, F_DUPFD_CLOEXEC, 0);
	copies[1] = fcntl(map, F_DUPFD_CLOEXEC, 0);
	there = open_own(WEIR_XSK_OWN_PROGRAM, copies[0], copies[1]);
	CHECK(close(copies[0]) == 0 && close(copies[1]) == 0);
	exchange(here, there);
	OK(weir_xsk_close(there));

	/* The map alone, of a program that the caller attaches. */
	link = attach();
	copies[1] = fcntl(map, F_DUPFD_CLOEXEC, 0);
	there = open_own(WEIR_XSK_OWN_MAP, 0, copies[1]);
	CHECK(close(copies[1]) == 0);
	exchange(here, there);
	OK(weir_xsk_close(there));
	CHECK(is_open(map) && is_open(program) && is_open(link));
	CHECK(close(link) == 0);

	/* The descriptor 0 is one like others. */
	CHECK(dup2(map, 0) == 0);
	link = attach();
	there = open_own(WEIR_XSK_OWN_MAP, 0, 0);
	exchange(here, there);
	OK(weir_xsk_close(there));
	CHECK(close(link) == 0);
	OK(weir_xsk_close(here));
	check_accounts(umem, CHUNKS, 0);
	OK(weir_xsk_umem_close(umem));
	printf("the packets came by the caller's program\n");
	return EXIT_SUCCESS;
}
