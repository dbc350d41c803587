// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The baseline of `weir bench`: an AF_XDP worker on libxdp.
 *
 * It moves packets as xdpsock, the kernel developers' example, does: the same rings and
 * sizes, the same order of peek, reserve, submit and release, the same system calls and
 * no others. It has the command line (src/engine/worker.rs) and the protocol
 * (src/engine/protocol.rs) of the other workers, and does the same work on each payload
 * (src/traffic/frame.rs). The benches are in the table benches[].
 *
 * Differences from xdpsock, and why:
 *  - The XDP program is our own five instructions (in six slots, since one holds a 64-bit
 *    address) instead of libxdp's, and a bpf_link holds it: it is gone when this process
 *    is, also after kill -9, and kernels that refuse libxdp's dispatcher run it too.
 *  - l2fwd with poll() waits for POLLIN only. With POLLOUT, which xdpsock adds, poll()
 *    would never sleep, since the TX ring is hardly ever full. In copy mode poll() sends
 *    the frames in the TX ring, whichever event it waits for.
 *  - Frames that take several chunks are bound and sent as xdpsock does with --frags, and
 *    their payload is checked like that of others.
 *  - A device that goes down or away is an error, and no wait for room outlasts SIGTERM.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <linux/ethtool.h>
#include <linux/if_link.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <xdp/xsk.h>

#define FRAMES 4096
#ifndef XDP_USE_SG /* Linux 6.6 */
#define XDP_USE_SG (1 << 4)
#define XDP_PKT_CONTD (1 << 0)
#endif
#define WAIT_MS 100
#define ROUNDS_PER_CHECK 64
#define QUIET_NS (50 * 1000000ull)
#define DRAIN_CPU_NS (1000 * 1000000ull)
#define DRAIN_NS (10 * 1000000000ull)

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define always_inline inline __attribute__((always_inline))

/* src/engine/bench.rs has the same properties. */
struct bench {
	const char *name;
	bool receives;
	bool sends;
	void (*run)(void);
	void (*run_jumbo)(void);
};

enum mode {
	MODE_AUTO,
	MODE_ZC,
	MODE_DRV,
	MODE_SKB
};

static const char *const mode_names[] = {
	[MODE_AUTO] = "auto",
	[MODE_ZC] = "zc",
	[MODE_DRV] = "drv",
	[MODE_SKB] = "skb",
};

static struct {
	const struct bench *bench;
	enum mode mode;
	const char *dev;
	unsigned int queue;
	unsigned int size;
	unsigned int batch;
	unsigned int frame_size;
	unsigned int cpu;
	uint64_t warmup_ns;
	uint64_t window_ns;
	unsigned long turn; /* packets, 0: measure a window */
	bool poll;
	bool verify;
} opt = {
	.size = 64,
	.batch = 64,
	.frame_size = XSK_UMEM__DEFAULT_FRAME_SIZE,
	.warmup_ns = 200 * 1000000ull,
	.window_ns = 1000 * 1000000ull,
};

static volatile sig_atomic_t stop;

/* Frames that take several chunks. */
static bool jumbo;

/* --- Events ------------------------------------------------------------------------ */

/* Why a step failed. Filled in by the step, printed by whoever gives up. */
static struct {
	const char *step;
	int error;
	char message[512];
} failure;

static void print_string(const char *text)
{
	putchar('"');
	for (; *text; text++) {
		unsigned char c = *text;

		if (c == '"' || c == '\\')
			printf("\\%c", c);
		else if (c < 0x20)
			printf("\\u%04x", c);
		else
			putchar(c);
	}
	putchar('"');
}

/* An event that nobody reads ends the worker: the bench has ended. */
static void flush_event(void)
{
	putchar('\n');
	if (fflush(stdout))
		exit(EXIT_FAILURE);
}

static void __attribute__((noreturn)) give_up(void)
{
	printf("{\"event\":\"failed\",\"step\":");
	print_string(failure.step);
	printf(",\"errno\":%d,\"message\":", failure.error);
	print_string(failure.message);
	putchar('}');
	flush_event();
	exit(EXIT_FAILURE);
}

/* Notes cause and cure; returns -1 so that a step can end with it. */
static int __attribute__((format(printf, 3, 4)))
fail(const char *step, int error, const char *hint, ...)
{
	char *at = failure.message;
	size_t room = sizeof(failure.message);
	va_list args;

	failure.step = step;
	failure.error = error;
	if (error) {
		int len = snprintf(at, room, "%s (os error %d): ", strerror(error), error);

		at += len;
		room -= len;
	}
	va_start(args, hint);
	vsnprintf(at, room, hint, args);
	va_end(args);
	return -1;
}

/* --- Frames: see src/traffic/frame.rs ---------------------------------------------- */

/* Offsets in a frame. */
#define AT_IP 14
#define AT_ADDRESSES 26
#define AT_UDP 34
#define AT_CHECKSUM 40
#define AT_SEQUENCE 42
#define AT_PATTERN 50
#define MIN_SIZE 64
#define MAX_SIZE 9000
#define MAX_LINEAR_SIZE 3520

static uint8_t template[MAX_SIZE];
static uint64_t template_sum;

static always_inline uint64_t sum(const uint8_t *bytes, size_t len)
{
	uint64_t total = 0;
	uint32_t word;

	for (; len >= sizeof(word); bytes += sizeof(word), len -= sizeof(word)) {
		memcpy(&word, bytes, sizeof(word));
		total += word;
	}
	if (len) {
		word = 0;
		memcpy(&word, bytes, len);
		total += word;
	}
	return total;
}

static always_inline uint16_t fold(uint64_t total)
{
	total = (total >> 32) + (total & 0xffffffff);
	total = (total >> 16) + (total & 0xffff);
	total = (total >> 16) + (total & 0xffff);
	total = (total >> 16) + (total & 0xffff);
	return total;
}

static always_inline uint64_t udp_sum(const uint8_t *frame, size_t len)
{
	return (uint64_t)htons(len - AT_UDP) + htons(IPPROTO_UDP) +
	       sum(frame + AT_ADDRESSES, len - AT_ADDRESSES);
}

static void put16(uint8_t *at, uint16_t value)
{
	value = htons(value);
	memcpy(at, &value, sizeof(value));
}

static void make_template(void)
{
	static const uint8_t head[AT_PATTERN] = {
		/* to the load's side, from the application's side, IPv4 */
		0x02,
		0,
		0,
		0,
		0,
		0x0b,
		0x02,
		0,
		0,
		0,
		0,
		0x0a,
		0x08,
		0x00,
		/* no options, TTL 64, UDP, 198.18.0.1 to 198.18.0.2 */
		0x45,
		0,
		0,
		0,
		0,
		0,
		0,
		0,
		64,
		IPPROTO_UDP,
		0,
		0,
		198,
		18,
		0,
		1,
		198,
		18,
		0,
		2,
		/* port 9 to port 9 */
		0,
		9,
		0,
		9,
	};
	uint16_t checksum;

	for (unsigned int i = 0; i < opt.size; i++)
		template[i] = i;
	memcpy(template, head, sizeof(head));
	put16(template + AT_IP + 2, opt.size - AT_IP);
	put16(template + AT_UDP + 4, opt.size - AT_UDP);
	checksum = ~fold(sum(template + AT_IP, AT_UDP - AT_IP));
	memcpy(template + AT_IP + 10, &checksum, sizeof(checksum));
	template_sum = udp_sum(template, opt.size);
}

static always_inline void stamp(uint8_t *frame, uint64_t number)
{
	uint64_t sequence = __builtin_bswap64(number);
	uint16_t checksum;

	if (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)
		sequence = number;
	checksum = ~fold(template_sum + (sequence >> 32) + (uint32_t)sequence);
	if (!checksum)
		checksum = 0xffff;
	memcpy(frame + AT_CHECKSUM, &checksum, sizeof(checksum));
	memcpy(frame + AT_SEQUENCE, &sequence, sizeof(sequence));
}

/* `frame` has all headers, and `total` is the udp_sum() of all. */
static always_inline bool check(const uint8_t *frame, size_t len, uint64_t total, uint64_t *number)
{
	static const uint8_t ipv4[] = { 0x08, 0x00, 0x45 };
	uint64_t sequence = 0;

	if (memcmp(frame + 12, ipv4, sizeof(ipv4)) || frame[AT_IP + 9] != IPPROTO_UDP ||
	    (size_t)(frame[AT_UDP + 4] << 8 | frame[AT_UDP + 5]) != len - AT_UDP ||
	    !(frame[AT_CHECKSUM] | frame[AT_CHECKSUM + 1]) || fold(total) != 0xffff)
		return false;
	memcpy(&sequence, frame + AT_SEQUENCE, sizeof(sequence));
	if (__BYTE_ORDER__ != __ORDER_BIG_ENDIAN__)
		sequence = __builtin_bswap64(sequence);
	*number = sequence;
	return true;
}

static always_inline void swap_macs(uint8_t *frame)
{
	uint8_t destination[6];

	memcpy(destination, frame, 6);
	memmove(frame, frame + 6, 6);
	memcpy(frame + 6, destination, 6);
}

#define WINDOW_WORDS 16

static struct {
	uint64_t expected;
	uint64_t seen[WINDOW_WORDS];
	uint64_t newest_word;
	uint64_t corrupted;
	uint64_t duplicates;
	uint64_t reordered;
	uint64_t lost;
} track;

static __attribute__((noinline, cold)) void track_late(uint64_t number)
{
	uint64_t word = number / 64, bit = 1ull << number % 64;
	uint64_t *seen = &track.seen[word % WINDOW_WORDS];

	if (word + WINDOW_WORDS <= track.newest_word || *seen & bit) {
		track.duplicates++;
		return;
	}
	*seen |= bit;
	track.reordered++;
	if (track.lost)
		track.lost--;
}

static void track_advance(uint64_t word)
{
	uint64_t skipped = word - track.newest_word;

	if (skipped > WINDOW_WORDS)
		skipped = WINDOW_WORDS;
	for (uint64_t i = 0; i < skipped; i++)
		track.seen[(word - i) % WINDOW_WORDS] = 0;
	track.newest_word = word;
}

static always_inline void track_number(uint64_t number)
{
	uint64_t word;

	if (unlikely(number < track.expected)) {
		track_late(number);
		return;
	}
	track.lost += number - track.expected;
	track.expected = number + 1;
	word = number / 64;
	if (word != track.newest_word)
		track_advance(word);
	track.seen[word % WINDOW_WORDS] |= 1ull << number % 64;
}

static always_inline void track_frame(const uint8_t *frame, size_t len)
{
	uint64_t number;

	if (likely(len == opt.size && check(frame, len, udp_sum(frame, len), &number)))
		track_number(number);
	else
		track.corrupted++;
}

/* A piece of a frame; a batch may end in the middle of one. */
static always_inline void track_piece(const uint8_t *piece, size_t len, bool last)
{
	static struct {
		uint8_t head[AT_PATTERN];
		uint64_t sum;
		size_t len;
	} frame;
	uint64_t number;
	uint16_t part;

	if (!frame.len) {
		if (len < AT_PATTERN) {
			track.corrupted++;
			return;
		}
		memcpy(frame.head, piece, AT_PATTERN);
		frame.sum = (uint64_t)htons(opt.size - AT_UDP) + htons(IPPROTO_UDP) +
			    fold(sum(piece + AT_ADDRESSES, len - AT_ADDRESSES));
	} else {
		/* A piece at an odd place has its bytes in each other's (RFC 1071, section 2). */
		part = fold(sum(piece, len));
		frame.sum += frame.len % 2 ? __builtin_bswap16(part) : part;
	}
	frame.len += len;
	if (!last)
		return;
	if (likely(frame.len == opt.size && check(frame.head, frame.len, frame.sum, &number)))
		track_number(number);
	else
		track.corrupted++;
	frame.len = 0;
}

/* --- The socket -------------------------------------------------------------------- */

static struct xsk_socket *xsk;
static struct xsk_umem *umem;
static uint8_t *frames;
static struct xsk_ring_prod fill, tx;
static struct xsk_ring_cons completion, rx;
static int xsk_fd;
static bool copy_mode;
static enum mode mode_obtained;
static unsigned int outstanding;

/* Refusals on the way to a mode, as the elements of a JSON array. */
static char refusals[3][sizeof(failure.message) + 64];
static unsigned int refusal_count;

static int check_device(unsigned int *ifindex)
{
	struct ifreq request = {};
	int fd, error = 0;

	*ifindex = if_nametoindex(opt.dev);
	if (!*ifindex)
		return fail("device", ENODEV,
			    "no device %s in this network namespace: see `ip link`", opt.dev);
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fail("device", errno, "%s cannot be asked for its state", opt.dev);
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", opt.dev);
	if (ioctl(fd, SIOCGIFFLAGS, &request))
		error = errno;
	close(fd);
	if (error)
		return fail("device", error, "%s cannot be asked for its state", opt.dev);
	if (!(request.ifr_flags & IFF_UP))
		return fail("device", ENETDOWN, "%s is down: `ip link set dev %s up`", opt.dev,
			    opt.dev);
	return 0;
}

static int create_umem(void)
{
	struct xsk_umem_config config = {
		.fill_size = XSK_RING_PROD__DEFAULT_NUM_DESCS * 2,
		.comp_size = XSK_RING_CONS__DEFAULT_NUM_DESCS,
		.frame_size = opt.frame_size,
		.frame_headroom = XSK_UMEM__DEFAULT_FRAME_HEADROOM,
	};
	size_t size = (size_t)FRAMES * opt.frame_size;
	void *area;
	int error;

	area = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (area == MAP_FAILED)
		return fail("umem", errno, "no %zu MiB of memory for packets: free some",
			    size >> 20);
	frames = area;
	error = -xsk_umem__create(&umem, area, size, &fill, &completion, &config);
	switch (error) {
	case 0:
		return 0;
	case EPERM:
		return fail("umem", error,
			    "an AF_XDP socket needs CAP_NET_RAW: run as root, or grant it");
	case ENOBUFS:
		return fail("umem", error,
			    "the limit on locked memory is below %zu MiB: raise `ulimit -l`, or "
			    "grant CAP_IPC_LOCK",
			    size >> 20);
	case EAFNOSUPPORT:
		return fail("umem", error, "this kernel has no AF_XDP: enable CONFIG_XDP_SOCKETS");
	default:
		return fail("umem", error, "the kernel refuses %d frames of %u bytes", FRAMES,
			    opt.frame_size);
	}
}

static int fail_bind(int error)
{
	switch (error) {
	case EOPNOTSUPP:
	case 524: /* ENOTSUPP, which some drivers let out */
		return fail("bind", error,
			    "the driver of %s has no AF_XDP zero-copy: use --mode drv or skb",
			    opt.dev);
	case EBUSY:
		return fail(
			"bind", error,
			"another AF_XDP socket has queue %u of %s: stop it, or use another queue",
			opt.queue, opt.dev);
	case EINVAL:
		return fail("bind", error,
			    "%s has no queue %u (`ethtool -l %s` shows them), or its MTU does not "
			    "fit in %u bytes",
			    opt.dev, opt.queue, opt.dev, opt.frame_size);
	case ENETDOWN:
		return fail("bind", error, "%s is down: `ip link set dev %s up`", opt.dev, opt.dev);
	default:
		return fail("bind", error, "queue %u of %s cannot be bound", opt.queue, opt.dev);
	}
}

static int create_socket(enum mode mode)
{
	struct xsk_socket_config config = {
		.rx_size = XSK_RING_CONS__DEFAULT_NUM_DESCS,
		.tx_size = XSK_RING_PROD__DEFAULT_NUM_DESCS,
		.libbpf_flags = XSK_LIBBPF_FLAGS__INHIBIT_PROG_LOAD,
		.bind_flags = XDP_USE_NEED_WAKEUP | (jumbo ? XDP_USE_SG : 0) |
			      (mode == MODE_ZC ? XDP_ZEROCOPY : XDP_COPY),
	};
	int error = 0;

	/* The kernel releases the queue of a closed socket later, within some milliseconds. */
	for (int tries = 0; tries < 500; tries++) {
		error = -xsk_socket__create(&xsk, opt.dev, opt.queue, umem,
					    opt.bench->receives ? &rx : NULL,
					    opt.bench->sends ? &tx : NULL, &config);
		if (error != EBUSY)
			break;
		usleep(1000);
	}
	if (error) {
		xsk = NULL;
		return fail_bind(error);
	}
	xsk_fd = xsk_socket__fd(xsk);
	return 0;
}

/* Names the program that is in the way. */
static int fail_occupied(int error, int ifindex)
{
	LIBBPF_OPTS(bpf_xdp_query_opts, query);
	struct bpf_prog_info info = {};
	uint32_t len = sizeof(info), id = 0;
	const char *where = "xdpdrv";
	int fd;

	if (!bpf_xdp_query(ifindex, 0, &query)) {
		id = query.drv_prog_id ? query.drv_prog_id : query.skb_prog_id;
		if (!query.drv_prog_id)
			where = "xdpgeneric";
	}
	fd = id ? bpf_prog_get_fd_by_id(id) : -1;
	if (fd >= 0) {
		bpf_obj_get_info_by_fd(fd, &info, &len);
		close(fd);
	}
	return fail(
		"attach", error,
		"%s has another XDP program, id %u, name %s, tag "
		"%02x%02x%02x%02x%02x%02x%02x%02x: stop its owner, or `ip link set dev %s %s off`",
		opt.dev, id, info.name[0] ? info.name : "unknown", info.tag[0], info.tag[1],
		info.tag[2], info.tag[3], info.tag[4], info.tag[5], info.tag[6], info.tag[7],
		opt.dev, where);
}

static int fail_attach(int error, int ifindex, enum mode mode)
{
	switch (error) {
	case EBUSY:
	case EEXIST:
		return fail_occupied(error, ifindex);
	case EOPNOTSUPP:
		return fail("attach", error, "the driver of %s has no XDP: use --mode skb",
			    opt.dev);
	case ERANGE:
	case EINVAL:
		return fail("attach", error,
			    "the MTU of %s or of its peer is too large for XDP in %s mode: lower "
			    "it, or use --mode skb",
			    opt.dev, mode_names[mode]);
	default:
		return fail("attach", error, "%s does not take an XDP program in %s mode", opt.dev,
			    mode_names[mode]);
	}
}

/* Loads `return bpf_redirect_map(&map, ctx->rx_queue_index, XDP_PASS)`. */
static int load_program(int map_fd)
{
	struct bpf_insn program[] = {
		{ .code = BPF_LDX | BPF_MEM | BPF_W,
		  .dst_reg = BPF_REG_2,
		  .src_reg = BPF_REG_1,
		  .off = offsetof(struct xdp_md, rx_queue_index) },
		{ .code = BPF_LD | BPF_DW | BPF_IMM,
		  .dst_reg = BPF_REG_1,
		  .src_reg = BPF_PSEUDO_MAP_FD,
		  .imm = map_fd },
		{},
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_3, .imm = XDP_PASS },
		{ .code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_redirect_map },
		{ .code = BPF_JMP | BPF_EXIT },
	};

	LIBBPF_OPTS(bpf_prog_load_opts, opts, .prog_flags = jumbo ? BPF_F_XDP_HAS_FRAGS : 0);

	return bpf_prog_load(BPF_PROG_TYPE_XDP, "weir_libxdp", "Dual BSD/GPL", program,
			     ARRAY_SIZE(program), &opts);
}

/*
 * The descriptors are left open: the link goes with the process, and the program and the
 * map with the link.
 */
static int attach_program(unsigned int ifindex, enum mode mode)
{
	LIBBPF_OPTS(bpf_link_create_opts, link,
		    .flags = mode == MODE_SKB ? XDP_FLAGS_SKB_MODE : XDP_FLAGS_DRV_MODE);
	int map_fd, prog_fd, error;

	map_fd = bpf_map_create(BPF_MAP_TYPE_XSKMAP, "xsks_map", sizeof(int), sizeof(int),
				opt.queue + 1, NULL);
	if (map_fd < 0)
		return fail("map", errno,
			    "the socket map needs CAP_BPF and CAP_NET_ADMIN: run as root");
	prog_fd = load_program(map_fd);
	if (prog_fd < 0)
		return fail("program", errno,
			    "loading an XDP program needs CAP_BPF and CAP_NET_ADMIN: run as root");
	if (opt.bench->receives) {
		error = -xsk_socket__update_xskmap(xsk, map_fd);
		if (error)
			return fail("map", error, "the socket cannot be entered into the map");
	}
	if (bpf_link_create(prog_fd, ifindex, BPF_XDP, &link) < 0)
		return fail_attach(errno, ifindex, mode);
	return 0;
}

static void fill_all(void)
{
	uint32_t at = 0;

	if (xsk_ring_prod__reserve(&fill, FRAMES, &at) != FRAMES)
		abort(); /* a new ring of this size has that room */
	for (unsigned int i = 0; i < FRAMES; i++)
		*xsk_ring_prod__fill_addr(&fill, at++) = (uint64_t)i * opt.frame_size;
	xsk_ring_prod__submit(&fill, FRAMES);
}

/* Chunks of a frame that is sent. */
static unsigned int pieces_of_frame(void)
{
	return (opt.size + opt.frame_size - 1) / opt.frame_size;
}

/* One frame after another, each at the beginning of a chunk. */
static void prepare_all(void)
{
	unsigned int step = pieces_of_frame();

	for (unsigned int i = 0; i + step <= FRAMES; i += step)
		memcpy(frames + (size_t)i * opt.frame_size, template, opt.size);
}

static void close_socket(void)
{
	if (xsk)
		xsk_socket__delete(xsk);
	xsk = NULL;
	if (umem)
		xsk_umem__delete(umem);
	umem = NULL;
	if (frames)
		munmap(frames, (size_t)FRAMES * opt.frame_size);
	frames = NULL;
	/* libxdp expects rings that are all zero. */
	memset(&fill, 0, sizeof(fill));
	memset(&completion, 0, sizeof(completion));
	memset(&tx, 0, sizeof(tx));
	memset(&rx, 0, sizeof(rx));
}

static int open_in_mode(unsigned int ifindex, enum mode mode)
{
	struct xdp_options options = {};
	socklen_t len = sizeof(options);

	if (create_umem())
		return -1;
	if (opt.bench->receives)
		fill_all();
	else
		prepare_all();
	if (create_socket(mode) || attach_program(ifindex, mode))
		return -1;
	if (getsockopt(xsk_fd, SOL_XDP, XDP_OPTIONS, &options, &len))
		return fail("options", errno,
			    "the kernel does not report the mode: needs Linux 5.3");
	mode_obtained = options.flags & XDP_OPTIONS_ZEROCOPY ? MODE_ZC : mode;
	copy_mode = mode_obtained != MODE_ZC;
	return 0;
}

static void open_socket(void)
{
	unsigned int ifindex;

	if (check_device(&ifindex))
		give_up();
	if (opt.mode != MODE_AUTO) {
		if (open_in_mode(ifindex, opt.mode))
			give_up();
		return;
	}
	for (enum mode mode = MODE_ZC; mode <= MODE_SKB; mode++) {
		if (!open_in_mode(ifindex, mode))
			return;
		if (mode == MODE_SKB)
			give_up();
		snprintf(refusals[refusal_count++], sizeof(refusals[0]), "%s: %s: %s",
			 mode_names[mode], failure.step, failure.message);
		close_socket();
	}
}

static uint64_t kernel_drops(void)
{
	struct xdp_statistics stats = {};
	socklen_t len = sizeof(stats);

	if (getsockopt(xsk_fd, SOL_XDP, XDP_STATISTICS, &stats, &len)) {
		fail("statistics", errno, "the kernel does not report its drops");
		give_up();
	}
	/*
	 * A packet that finds the fill ring empty counts as dropped already;
	 * rx_fill_ring_empty_descs would count it twice.
	 */
	return stats.rx_dropped + stats.rx_ring_full;
}

/* --- Rounds, as in xdpsock --------------------------------------------------------- */

struct round {
	unsigned int received;
	unsigned int completed;
	bool timed_out;
};

static void kick_tx(void)
{
	if (sendto(xsk_fd, NULL, 0, MSG_DONTWAIT, NULL, 0) >= 0 || errno == ENOBUFS ||
	    errno == EAGAIN || errno == EBUSY || errno == EINTR)
		return;
	if (errno == ENETDOWN || errno == ENXIO)
		fail("send", errno,
		     "%s went down or away while in use: see `ip link`, `ip link set dev %s up`",
		     opt.dev, opt.dev);
	else
		fail("send", errno, "the kernel refuses to send on queue %u of %s", opt.queue,
		     opt.dev);
	give_up();
}

static always_inline void kick_fill(void)
{
	if (xsk_ring_prod__needs_wakeup(&fill))
		recvfrom(xsk_fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
}

static always_inline uint32_t reserve_fill(unsigned int count)
{
	uint32_t at = 0;

	while (unlikely(xsk_ring_prod__reserve(&fill, count, &at) != count))
		kick_fill();
	return at;
}

static always_inline bool wait_for(short events)
{
	struct pollfd fd = { .fd = xsk_fd, .events = events };

	return !opt.poll || poll(&fd, 1, WAIT_MS) > 0;
}

/* A look at the bytes of a received frame. */
typedef void (*inspect_fn)(const uint8_t *frame, size_t len);

static always_inline void leave_unread(const uint8_t *frame, size_t len)
{
	(void)frame;
	(void)len;
}

/* Inlined with a constant argument, like all rounds. */
static always_inline struct round receive(inspect_fn inspect)
{
	struct round round = {};
	uint32_t from = 0, to = 0;

	if (!wait_for(POLLIN)) {
		round.timed_out = true;
		return round;
	}
	round.received = xsk_ring_cons__peek(&rx, opt.batch, &from);
	if (!round.received) {
		kick_fill();
		return round;
	}
	to = reserve_fill(round.received);
	for (unsigned int i = 0; i < round.received; i++) {
		const struct xdp_desc *desc = xsk_ring_cons__rx_desc(&rx, from++);
		uint64_t addr = desc->addr;

		inspect(xsk_umem__get_data(frames, addr), desc->len);
		*xsk_ring_prod__fill_addr(&fill, to++) = addr;
	}
	xsk_ring_prod__submit(&fill, round.received);
	xsk_ring_cons__release(&rx, round.received);
	return round;
}

static always_inline unsigned int reap_sent(void)
{
	unsigned int count;
	uint32_t from = 0;

	if (!outstanding)
		return 0;
	if (xsk_ring_prod__needs_wakeup(&tx))
		kick_tx();
	count = xsk_ring_cons__peek(&completion, opt.batch, &from);
	if (count > 0) {
		xsk_ring_cons__release(&completion, count);
		outstanding -= count;
	}
	return count;
}

static always_inline struct round send_batch(void)
{
	static uint64_t number;
	static unsigned int frame;
	struct round round = {};
	uint32_t to = 0;

	if (!wait_for(POLLOUT)) {
		round.timed_out = true;
		return round;
	}
	while (xsk_ring_prod__reserve(&tx, opt.batch, &to) < opt.batch) {
		round.completed += reap_sent();
		if (stop)
			return round;
	}
	for (unsigned int i = 0; i < opt.batch; i++) {
		struct xdp_desc *desc = xsk_ring_prod__tx_desc(&tx, to++);
		uint64_t addr = (uint64_t)frame * opt.frame_size;

		desc->addr = addr;
		desc->len = opt.size;
		desc->options = 0;
		stamp(xsk_umem__get_data(frames, addr), number++);
		frame = (frame + 1) % FRAMES;
	}
	xsk_ring_prod__submit(&tx, opt.batch);
	outstanding += opt.batch;
	round.completed += reap_sent();
	return round;
}

/*
 * Frames of several chunks, in batches of descriptors, as in xdpsock: the chunks of each that was sent, as a
 * ring. The TX ring, and so this one, holds fewer than FRAMES.
 */
static uint8_t pieces_of[FRAMES];
static unsigned int oldest, newest;   /* free-running */
static unsigned int pieces_in_flight; /* also of a frame whose end is yet to be sent */

static always_inline void note_sent(unsigned int pieces)
{
	pieces_of[newest++ % FRAMES] = pieces;
}

/* Frames all of whose chunks have come back since the last call. */
static always_inline unsigned int count_completed(void)
{
	unsigned int count = 0;

	while (oldest != newest && pieces_in_flight - pieces_of[oldest % FRAMES] >= outstanding) {
		pieces_in_flight -= pieces_of[oldest++ % FRAMES];
		count++;
	}
	return count;
}

static always_inline struct round send_jumbo_batch(void)
{
	static uint64_t number;
	static unsigned int frame;
	struct round round = {};
	unsigned int pieces = pieces_of_frame(), count;
	uint32_t to = 0;

	if (!wait_for(POLLOUT)) {
		round.timed_out = true;
		return round;
	}
	count = opt.batch < pieces ? pieces : opt.batch - opt.batch % pieces;
	while (xsk_ring_prod__reserve(&tx, count, &to) < count) {
		reap_sent();
		if (stop)
			return round;
	}
	for (unsigned int i = 0; i < count; i++) {
		struct xdp_desc *desc = xsk_ring_prod__tx_desc(&tx, to++);
		bool last = i % pieces == pieces - 1;

		desc->addr = (uint64_t)frame * opt.frame_size;
		desc->len = last ? opt.size - (pieces - 1) * opt.frame_size : opt.frame_size;
		desc->options = last ? 0 : XDP_PKT_CONTD;
		if (last)
			note_sent(pieces);
		if (i % pieces == 0)
			stamp(xsk_umem__get_data(frames, desc->addr), number++);
		frame = frame + 1 < FRAMES / pieces * pieces ? frame + 1 : 0;
	}
	xsk_ring_prod__submit(&tx, count);
	pieces_in_flight += count;
	outstanding += count;
	reap_sent();
	round.completed = count_completed();
	return round;
}

/* Forwarded frames go back to the fill ring. */
static always_inline unsigned int reap_forwarded(void)
{
	unsigned int count;
	uint32_t from = 0, to = 0;

	if (!outstanding)
		return 0;
	/* In zero-copy mode the driver sends by itself. */
	if (copy_mode)
		kick_tx();
	count = outstanding > opt.batch ? opt.batch : outstanding;
	count = xsk_ring_cons__peek(&completion, count, &from);
	if (count > 0) {
		to = reserve_fill(count);
		for (unsigned int i = 0; i < count; i++)
			*xsk_ring_prod__fill_addr(&fill, to++) =
				*xsk_ring_cons__comp_addr(&completion, from++);
		xsk_ring_prod__submit(&fill, count);
		xsk_ring_cons__release(&completion, count);
		outstanding -= count;
	}
	return count;
}

static always_inline struct round forward(inspect_fn inspect)
{
	struct round round = {};
	uint32_t from = 0, to = 0;

	round.timed_out = !wait_for(POLLIN);
	round.completed = reap_forwarded();
	if (round.timed_out)
		return round;
	round.received = xsk_ring_cons__peek(&rx, opt.batch, &from);
	if (!round.received) {
		kick_fill();
		return round;
	}
	while (xsk_ring_prod__reserve(&tx, round.received, &to) != round.received) {
		round.completed += reap_forwarded();
		if (xsk_ring_prod__needs_wakeup(&tx))
			kick_tx();
		if (stop) {
			/* Nothing was taken: draining comes back for it. */
			xsk_ring_cons__cancel(&rx, round.received);
			round.received = 0;
			return round;
		}
	}
	for (unsigned int i = 0; i < round.received; i++) {
		const struct xdp_desc *in = xsk_ring_cons__rx_desc(&rx, from++);
		struct xdp_desc *out = xsk_ring_prod__tx_desc(&tx, to++);
		uint8_t *frame = xsk_umem__get_data(frames, in->addr);

		inspect(frame, in->len);
		swap_macs(frame);
		out->addr = in->addr;
		out->len = in->len;
		out->options = 0;
	}
	xsk_ring_prod__submit(&tx, round.received);
	xsk_ring_cons__release(&rx, round.received);
	outstanding += round.received;
	return round;
}

/* A piece of a frame; a batch may end in the middle of one. */
typedef void (*inspect_piece_fn)(const uint8_t *piece, size_t len, bool last);

static always_inline void leave_piece_unread(const uint8_t *piece, size_t len, bool last)
{
	(void)piece;
	(void)len;
	(void)last;
}

static always_inline struct round receive_jumbo(inspect_piece_fn inspect)
{
	struct round round = {};
	uint32_t from = 0, to = 0;
	unsigned int count;

	if (!wait_for(POLLIN)) {
		round.timed_out = true;
		return round;
	}
	count = xsk_ring_cons__peek(&rx, opt.batch, &from);
	if (!count) {
		kick_fill();
		return round;
	}
	to = reserve_fill(count);
	for (unsigned int i = 0; i < count; i++) {
		const struct xdp_desc *desc = xsk_ring_cons__rx_desc(&rx, from++);
		uint64_t addr = desc->addr;
		bool last = !(desc->options & XDP_PKT_CONTD);

		inspect(xsk_umem__get_data(frames, addr), desc->len, last);
		round.received += last;
		*xsk_ring_prod__fill_addr(&fill, to++) = addr;
	}
	xsk_ring_prod__submit(&fill, count);
	xsk_ring_cons__release(&rx, count);
	return round;
}

static always_inline struct round forward_jumbo(inspect_piece_fn inspect)
{
	static unsigned int piece;
	struct round round = {};
	uint32_t from = 0, to = 0;
	unsigned int count;

	round.timed_out = !wait_for(POLLIN);
	reap_forwarded();
	round.completed = count_completed();
	if (round.timed_out)
		return round;
	count = xsk_ring_cons__peek(&rx, opt.batch, &from);
	if (!count) {
		kick_fill();
		return round;
	}
	while (xsk_ring_prod__reserve(&tx, count, &to) != count) {
		reap_forwarded();
		if (xsk_ring_prod__needs_wakeup(&tx))
			kick_tx();
		if (stop) {
			/* Nothing was taken: draining comes back for it. */
			xsk_ring_cons__cancel(&rx, count);
			return round;
		}
	}
	for (unsigned int i = 0; i < count; i++) {
		const struct xdp_desc *in = xsk_ring_cons__rx_desc(&rx, from++);
		struct xdp_desc *out = xsk_ring_prod__tx_desc(&tx, to++);
		uint8_t *bytes = xsk_umem__get_data(frames, in->addr);
		bool last = !(in->options & XDP_PKT_CONTD);

		inspect(bytes, in->len, last);
		if (!piece++)
			swap_macs(bytes);
		out->addr = in->addr;
		out->len = in->len;
		out->options = last ? 0 : XDP_PKT_CONTD;
		if (last) {
			note_sent(piece);
			piece = 0;
			round.received++;
		}
	}
	xsk_ring_prod__submit(&tx, count);
	xsk_ring_cons__release(&rx, count);
	pieces_in_flight += count;
	outstanding += count;
	return round;
}

static always_inline struct round complete_sent(void)
{
	struct round round = { .completed = reap_sent() };

	return round;
}

static always_inline struct round complete_forwarded(void)
{
	struct round round = { .completed = reap_forwarded() };

	return round;
}

static always_inline struct round complete_sent_jumbo(void)
{
	reap_sent();
	return (struct round){ .completed = count_completed() };
}

static always_inline struct round complete_forwarded_jumbo(void)
{
	reap_forwarded();
	return (struct round){ .completed = count_completed() };
}

/* --- Measuring: see src/engine/rounds.rs ------------------------------------------- */

static uint64_t received, completed;

struct sample {
	uint64_t time, user, sys, packets;
};

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static uint64_t now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

static uint64_t timeval_ns(const struct timeval *time)
{
	return time->tv_sec * 1000000000ull + time->tv_usec * 1000ull;
}

static struct sample sample(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return (struct sample){
		.time = now_ns(),
		.user = timeval_ns(&usage.ru_utime),
		.sys = timeval_ns(&usage.ru_stime),
		.packets = opt.bench->sends ? completed : received,
	};
}

static void check_window(void)
{
	static enum {
		IDLE,
		WARM_UP,
		WINDOW,
		OVER
	} phase;
	static struct sample start;
	struct sample end;

	switch (phase) {
	case IDLE:
		if (opt.bench->receives && !received)
			return;
		start.time = now_ns();
		phase = WARM_UP;
		return;
	case WARM_UP:
		if (now_ns() - start.time < opt.warmup_ns)
			return;
		start = sample();
		phase = WINDOW;
		return;
	case WINDOW:
		if (now_ns() - start.time < opt.window_ns)
			return;
		end = sample();
		printf("{\"event\":\"window\",\"packets\":%" PRIu64
		       ",\"seconds\":%.9f,\"user_ns\":%" PRIu64 ",\"sys_ns\":%" PRIu64 "}",
		       end.packets - start.packets, (end.time - start.time) / 1e9,
		       end.user - start.user, end.sys - start.sys);
		flush_event();
		phase = OVER;
		return;
	case OVER:
		return;
	}
}

typedef struct round (*round_fn)(void);

/* Inlined with constant arguments: each bench has its own loop without a pointer. */
static always_inline void measure(round_fn next)
{
	unsigned int rounds = 0;

	while (!stop) {
		struct round round = next();

		received += round.received;
		completed += round.completed;
		if (unlikely(++rounds % ROUNDS_PER_CHECK == 0 || round.timed_out))
			check_window();
	}
}

static always_inline void drain(round_fn next)
{
	uint64_t start = now_ns(), last_packet = start, now;
	uint64_t cpu_end = clock_ns(CLOCK_THREAD_CPUTIME_ID) + DRAIN_CPU_NS;

	do {
		struct round round = next();

		received += round.received;
		completed += round.completed;
		now = now_ns();
		if (round.received)
			last_packet = now;
	} while (now - last_packet < QUIET_NS && now - start < DRAIN_NS &&
		 clock_ns(CLOCK_THREAD_CPUTIME_ID) < cpu_end);
}

/* Packets handed over whole and not completed. */
static always_inline unsigned int in_flight(void)
{
	return jumbo ? newest - oldest : outstanding;
}

static always_inline void complete_all(round_fn complete)
{
	uint64_t start = now_ns();

	do
		completed += complete().completed;
	while (in_flight() && now_ns() - start < DRAIN_NS);
}

/* Waits for this process's turn: see src/traffic/turns.rs. */
static bool granted(void)
{
	char line[16];

	return fgets(line, sizeof(line), stdin);
}

/* Packets received or, by a sender, handed over for sending. */
static always_inline uint64_t begun(void)
{
	uint64_t sent = completed + in_flight();

	return received > sent ? received : sent;
}

/* As take_turns() in src/engine/rounds.rs. */
static always_inline void take_turns(round_fn next, round_fn complete)
{
	uint64_t due = 0;

	while (granted()) {
		uint64_t before = begun(), start = clock_ns(CLOCK_THREAD_CPUTIME_ID), ns;
		struct round round;

		due += opt.turn;
		while (begun() < due) {
			round = next();
			received += round.received;
			completed += round.completed;
			if (!round.received && !round.completed)
				break;
		}
		while (outstanding) {
			round = complete();
			completed += round.completed;
			if (!round.completed)
				break;
		}
		ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - start;
		printf("{\"event\":\"turn\",\"packets\":%" PRIu64 ",\"ns\":%" PRIu64 "}",
		       begun() - before, ns);
		flush_event();
	}
}

/* Inlined with constant arguments, as measure(). */
static always_inline void work(round_fn next, round_fn complete)
{
	if (opt.turn)
		take_turns(next, complete);
	else
		measure(next);
}

/* --- The benches: see src/engine/bench.rs ------------------------------------------ */

static always_inline struct round receive_unread(void)
{
	return receive(leave_unread);
}

static always_inline struct round receive_verified(void)
{
	return receive(track_frame);
}

static always_inline struct round forward_verified(void)
{
	return forward(track_frame);
}

/* Inlined with a constant argument, as measure(). */
static always_inline void run_receiver(round_fn next)
{
	work(next, next);
	drain(next);
}

static void rxdrop(void)
{
	run_receiver(receive_unread);
}

static void txpush(void)
{
	work(send_batch, complete_sent);
	complete_all(complete_sent);
}

static void l2fwd(void)
{
	work(forward_verified, complete_forwarded);
	drain(forward_verified);
	complete_all(complete_forwarded);
}

static always_inline struct round receive_jumbo_unread(void)
{
	return receive_jumbo(leave_piece_unread);
}

static always_inline struct round receive_jumbo_verified(void)
{
	return receive_jumbo(track_piece);
}

static always_inline struct round forward_jumbo_verified(void)
{
	return forward_jumbo(track_piece);
}

static void rxdrop_jumbo(void)
{
	if (opt.verify)
		run_receiver(receive_jumbo_verified);
	else
		run_receiver(receive_jumbo_unread);
}

static void txpush_jumbo(void)
{
	work(send_jumbo_batch, complete_sent_jumbo);
	complete_all(complete_sent_jumbo);
}

static void l2fwd_jumbo(void)
{
	work(forward_jumbo_verified, complete_forwarded_jumbo);
	drain(forward_jumbo_verified);
	complete_all(complete_forwarded_jumbo);
}

static const struct bench benches[] = {
	{ .name = "rxdrop", .receives = true, .run = rxdrop, .run_jumbo = rxdrop_jumbo },
	{ .name = "txpush", .sends = true, .run = txpush, .run_jumbo = txpush_jumbo },
	{ .name = "l2fwd",
	  .receives = true,
	  .sends = true,
	  .run = l2fwd,
	  .run_jumbo = l2fwd_jumbo },
};

static void run(void)
{
	if (jumbo)
		opt.bench->run_jumbo();
	else if (opt.verify && !opt.bench->sends)
		run_receiver(receive_verified);
	else
		opt.bench->run();
}

/* --- The command line -------------------------------------------------------------- */

static void __attribute__((noreturn)) bad_value(const char *name, const char *value)
{
	fail("arguments", EINVAL, "--%s does not take '%s' in the libxdp engine", name,
	     value ? value : "");
	give_up();
}

static unsigned long number(const char *name, const char *value, unsigned long min,
			    unsigned long max)
{
	char *end;
	unsigned long n;

	errno = 0;
	n = strtoul(value, &end, 10);
	if (errno || end == value || *end || n < min || n > max)
		bad_value(name, value);
	return n;
}

static unsigned int choice(const char *name, const char *value, const char *const *choices,
			   unsigned int count)
{
	for (unsigned int i = 0; i < count; i++)
		if (!strcmp(value, choices[i]))
			return i;
	bad_value(name, value);
}

static const struct bench *find_bench(const char *option, const char *name)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(benches); i++)
		if (!strcmp(name, benches[i].name))
			return &benches[i];
	bad_value(option, name);
}

static void parse_arguments(int argc, char **argv)
{
	enum {
		ENGINE,
		BENCH,
		DEV,
		QUEUE,
		MODE,
		WAIT,
		SIZE,
		BATCH,
		WARMUP,
		WINDOW,
		TURN,
		CPU,
		VERIFY,
		FRAME_SIZE
	};
	static const struct option options[] = {
		{ "engine", required_argument, NULL, ENGINE },
		{ "bench", required_argument, NULL, BENCH },
		{ "dev", required_argument, NULL, DEV },
		{ "queue", required_argument, NULL, QUEUE },
		{ "mode", required_argument, NULL, MODE },
		{ "wait", required_argument, NULL, WAIT },
		{ "size", required_argument, NULL, SIZE },
		{ "batch", required_argument, NULL, BATCH },
		{ "warmup-ms", required_argument, NULL, WARMUP },
		{ "window-ms", required_argument, NULL, WINDOW },
		{ "turn", required_argument, NULL, TURN },
		{ "cpu", required_argument, NULL, CPU },
		{ "verify", no_argument, NULL, VERIFY },
		{ "frame-size", required_argument, NULL, FRAME_SIZE },
		{},
	};
	static const char *const waits[] = { "spin", "poll" };
	int id, index;

	opterr = 0;
	while ((id = getopt_long(argc, argv, "", options, &index)) != -1) {
		const char *name = id == '?' ? NULL : options[index].name;

		switch (id) {
		case ENGINE:
			if (strcmp(optarg, "libxdp"))
				bad_value(name, optarg);
			break;
		case BENCH:
			opt.bench = find_bench(name, optarg);
			break;
		case DEV:
			opt.dev = optarg;
			break;
		case QUEUE:
			opt.queue = number(name, optarg, 0, 65535);
			break;
		case MODE:
			opt.mode = choice(name, optarg, mode_names, ARRAY_SIZE(mode_names));
			break;
		case WAIT:
			opt.poll = choice(name, optarg, waits, ARRAY_SIZE(waits));
			break;
		case SIZE:
			opt.size = number(name, optarg, MIN_SIZE, MAX_SIZE);
			jumbo = opt.size > MAX_LINEAR_SIZE;
			break;
		case BATCH:
			opt.batch = number(name, optarg, 1, 1024);
			break;
		case WARMUP:
			opt.warmup_ns = number(name, optarg, 0, 3600000) * 1000000ull;
			break;
		case WINDOW:
			opt.window_ns = number(name, optarg, 1, 3600000) * 1000000ull;
			break;
		case TURN:
			opt.turn = number(name, optarg, 1, UINT32_MAX);
			break;
		case CPU:
			opt.cpu = number(name, optarg, 0, CPU_SETSIZE - 1);
			break;
		case VERIFY:
			opt.verify = true;
			break;
		case FRAME_SIZE:
			opt.frame_size = number(name, optarg, 2048, 4096);
			break;
		default:
			fail("arguments", EINVAL, "'%s' is not an argument, or lacks its value",
			     argv[optind - 1]);
			give_up();
		}
	}
	if (optind < argc || !opt.dev || !opt.bench) {
		fail("arguments", EINVAL, "this is a part of weir: run `weir bench`");
		give_up();
	}
}

static void on_sigterm(int signal)
{
	(void)signal;
	stop = 1;
}

static void set_up_process(void)
{
	struct sigaction action = { .sa_handler = on_sigterm };
	cpu_set_t cpus;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigaction(SIGTERM, &action, NULL);
	CPU_ZERO(&cpus);
	CPU_SET(opt.cpu, &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus)) {
		fail("cpu", errno,
		     "this process may not run on CPU %u: see `nproc` and `taskset -p $$`",
		     opt.cpu);
		give_up();
	}
}

static void print_ready(void)
{
	printf("{\"event\":\"ready\",\"mode_obtained\":\"%s\",\"refusals\":[",
	       mode_names[mode_obtained]);
	for (unsigned int i = 0; i < refusal_count; i++) {
		if (i)
			putchar(',');
		print_string(refusals[i]);
	}
	printf("]}");
	flush_event();
}

static void print_done(void)
{
	printf("{\"event\":\"done\",\"received\":%" PRIu64 ",\"sent\":%" PRIu64
	       ",\"kernel_drops\":%" PRIu64 ",\"corrupted\":%" PRIu64 ",\"duplicates\":%" PRIu64
	       ",\"reordered\":%" PRIu64 ",\"lost\":%" PRIu64 "}",
	       received, completed, kernel_drops(), track.corrupted, track.duplicates,
	       track.reordered, track.lost);
	flush_event();
}

int main(int argc, char **argv)
{
	parse_arguments(argc, argv);
	set_up_process();
	/* The events have the errors that libbpf would print. */
	libbpf_set_print(NULL);
	make_template();
	open_socket();
	print_ready();
	run();
	print_done();
	close_socket();
	return EXIT_SUCCESS;
}
