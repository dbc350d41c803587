// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The load of the bench, and the sink of the application's frames.
 *
 * `load` runs under BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES: the kernel passes it page
 * after page, and frames that it redirects out of a veth arrive at the peer. The kernel runs the
 * peer's NAPI on the same CPU after each batch of 64, so the load's CPU also runs the peer's XDP
 * program.
 *
 * `sink_tcx` or `sink_xdp` runs on that same veth for frames from the peer. The kernel runs it on
 * the CPU that sends them, so each of its instructions slows the application under test.
 *
 * `drop` runs in place of an application, to measure the cost of the load alone.
 *
 * `count_xdp` or `count_tcx` runs behind a switch that forwards the frames of the load, sent between
 * many stations.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "load.h"

/* After a pause without the CPU late frames are sent at once, but no more than these: a longer burst
 * would measure the receiver's ring instead of the receiver. */
#define MAX_CATCH_UP 1024

/* MAX_BPF_STACK, which limits bpf_csum_diff before Linux 6.13. */
#define MAX_SUM 512

/* Sequence numbers that the sink remembers. */
#define WINDOW (WINDOW_WORDS * 64)

SHARED_ENUM(load_constants);
const volatile struct load_config config;
struct load_state state;

static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum >> 32) + (sum & 0xffffffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	return (sum >> 16) + (sum & 0xffff);
}

static __always_inline bool is_due(void)
{
	__u64 now;

	/* A burst that has begun goes on. */
	if (config.burst > 1 && state.sent % config.burst)
		return true;
	now = bpf_ktime_get_ns() << TIME_BITS;
	if (now < state.due)
		return false;
	if (now - state.due > MAX_CATCH_UP / config.burst * config.interval)
		state.due = now;
	state.due += config.interval;
	return true;
}

/*
 * The UDP checksum of the frame with this number, which is big-endian. `change` is the sum of the
 * differences from the frame of `config.sum`.
 */
static __always_inline __u16 checksum(__u64 sequence, __u64 change)
{
	__u16 sum = ~fold(config.sum + change + (sequence >> 32) + (sequence & 0xffffffff));

	/* 0 on the wire would mean "no checksum" (RFC 768). */
	return sum ? sum : 0xffff;
}

/* Raises a port, and returns the growth of the frame's sum (RFC 1624). */
static __always_inline __u64 raise_port(__u16 *port, __u64 by)
{
	__u16 old = *port;

	*port = bpf_htons(bpf_ntohs(old) + by);
	return *port + (__u16)~old;
}

/*
 * Assigns a frame to its receiver and its flow in the common headers, and returns the growth of its
 * sum. Every receiver gets frames of every flow.
 */
static __always_inline __u64 spread(void *data)
{
	__u64 turn = state.sent, change = 0;

	if (config.receivers > 1) {
		__u64 receiver = turn % config.receivers;

		turn /= config.receivers;
		if (config.by_port)
			change += raise_port(data + UDP_DESTINATION, receiver);
		else
			*(__u8 *)(data + MAC_RECEIVER) += receiver;
	}
	if (config.flows > 1)
		change += raise_port(data + UDP_SOURCE, turn % config.flows);
	return change;
}

/*
 * The station that the frame with this number is for, and its counterpart at the other side that it is
 * from: each pair talks to each other alone. The hash is the finalizer of MurmurHash3.
 */
static __always_inline __u32 station(__u64 sequence)
{
	__u32 hash = sequence;

	if (config.sweep)
		return sequence % config.stations;
	hash ^= hash >> 16;
	hash *= 0x85ebca6b;
	hash ^= hash >> 13;
	hash *= 0xc2b2ae35;
	hash ^= hash >> 16;
	return (hash * config.stations) >> 32;
}

SEC("xdp")
int load(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u64 sequence, change;

	if (data + TAIL > end)
		return XDP_ABORTED;
	if (config.interval && !is_due())
		return XDP_DROP;

	/*
	 * A page comes back as its last receiver left it: a native program there may have rewritten
	 * its headers, and the number is that of another frame. So every field that differs between
	 * frames, or may have been changed on the way, is written again; only the rest of the
	 * payload, which no program of weir writes, remains.
	 */
	for (int i = 0; i < HEADER_WORDS; i++)
		((__u64 *)data)[i] = config.load_header[i];
	change = spread(data);
	if (config.stations) {
		__u32 number = bpf_htonl(station(state.sent));

		*(__u32 *)(data + STATION_DESTINATION) = number;
		*(__u32 *)(data + STATION_SOURCE) = number;
	}
	sequence = bpf_cpu_to_be64(state.sent);
	*(__u16 *)(data + UDP_CHECKSUM) = checksum(sequence, change);
	*(__u64 *)(data + SEQUENCE) = sequence;

	/* One process runs this program, on one CPU: a plain increment is safe. */
	state.sent++;
	return bpf_redirect(config.ifindex, 0);
}

/* The ones' complement sum of a frame from TAIL on. */
static __always_inline __u16 tail_sum(void *data, __u64 size)
{
	__u64 words = (size - TAIL) & ~3ULL, at = TAIL;
	__s64 sum = words ? bpf_csum_diff(NULL, 0, data + TAIL, words, 0) : 0;

	if (sum < 0) {
		/* Before 6.13 this is the helper's limit. */
		sum = 0;
		for (int i = 0; i < MAX_SIZE / MAX_SUM + 1; i++) {
			__u64 length = TAIL + words - at;

			if (length > MAX_SUM)
				length = MAX_SUM;
			if (!length)
				break;
			sum = bpf_csum_diff(NULL, 0, data + at, length, sum);
			at += length;
		}
	}
	at = TAIL + words;
	sum = (__u32)sum;
	if ((size - at) & 2) {
		sum += *(__u16 *)(data + at);
		at += 2;
	}
	if ((size - at) & 1)
		sum += bpf_htons(*(__u8 *)(data + at) << 8);
	return fold(sum);
}

/*
 * Whether the frame is unchanged. All frames of a flow are equal but for number and checksum, so
 * comparisons of a few instructions suffice, and only a long frame's tail is summed.
 */
static __always_inline bool is_intact(void *data, void *end)
{
	__u64 size = config.size;

	if ((__u64)(end - data) != size || data + size > end || data + TAIL > end)
		return false;
	for (int i = 0; i < HEADER_WORDS; i++)
		if (((__u64 *)data)[i] != config.sink_header[i])
			return false;
	return *(__u16 *)(data + UDP_CHECKSUM) == checksum(*(__u64 *)(data + SEQUENCE), 0) &&
	       *(__u64 *)(data + PAYLOAD) == config.payload[0] &&
	       *(__u64 *)(data + TAIL - 8) == config.payload[1] &&
	       (size == TAIL || tail_sum(data, size) == config.tail_sum);
}

/* A frame that came after one with a higher number. */
static __always_inline void track_late(__u64 sequence)
{
	__u64 *word = &state.seen[sequence / 64 % WINDOW_WORDS];
	__u64 bit = 1ULL << sequence % 64;

	/* The window has no older numbers; a late frame is less likely than a duplicate. */
	if (state.expected - sequence > WINDOW || *word & bit) {
		state.sink.duplicates++;
		return;
	}
	*word |= bit;
	state.sink.reordered++;
	state.sink.lost--;
}

static __always_inline void track(__u64 sequence)
{
	__u64 missing, first;

	if (sequence < state.expected) {
		track_late(sequence);
		return;
	}
	missing = sequence - state.expected;
	state.sink.lost += missing;
	/* The bits of numbers that were passed over are a whole window old. */
	first = missing > WINDOW ? sequence - WINDOW : state.expected;
	for (int i = 0; i < WINDOW && first + i < sequence; i++) {
		__u64 passed = first + i;

		state.seen[passed / 64 % WINDOW_WORDS] &= ~(1ULL << passed % 64);
	}
	state.seen[sequence / 64 % WINDOW_WORDS] |= 1ULL << sequence % 64;
	state.expected = sequence + 1;
}

/* One flow from one queue: one CPU runs this at a time. */
static __always_inline void receive(void *data, void *end)
{
	state.sink.packets++;
	if (is_intact(data, end))
		track(bpf_be64_to_cpu(*(__u64 *)(data + SEQUENCE)));
	else
		state.sink.corrupted++;
}

SEC("tcx/ingress")
int sink_tcx(struct __sk_buff *skb)
{
	/* An AF_PACKET ring leaves all but the Ethernet header in its own pages, and an AF_XDP socket
	 * all but the first chunk. A frame that cannot be pulled in is too short, and so counts as
	 * corrupted. */
	if (skb->data_end - skb->data != skb->len)
		bpf_skb_pull_data(skb, skb->len);
	receive((void *)(long)skb->data, (void *)(long)skb->data_end);
	return TC_ACT_SHOT;
}

/* The same before Linux 6.6, which has no tcx, and no AF_XDP socket for frames of several buffers. */
SEC("xdp")
int sink_xdp(struct xdp_md *ctx)
{
	receive((void *)(long)ctx->data, (void *)(long)ctx->data_end);
	return XDP_DROP;
}

/* Whether a frame between stations is as the load made it, up to the first words of its payload. */
static __always_inline bool is_between_stations(void *data, void *end)
{
	const volatile void *header = config.load_header;
	__u64 sequence;
	__u32 number;

	if ((__u64)(end - data) != config.size || data + TAIL > end)
		return false;
	sequence = *(__u64 *)(data + SEQUENCE);
	number = bpf_htonl(station(bpf_be64_to_cpu(sequence)));
	if (*(__u16 *)data != *(const volatile __u16 *)header ||
	    *(__u32 *)(data + STATION_DESTINATION) != number ||
	    *(__u16 *)(data + ETH_ALEN) != *(const volatile __u16 *)(header + ETH_ALEN) ||
	    *(__u32 *)(data + STATION_SOURCE) != number ||
	    *(__u32 *)(data + 2 * ETH_ALEN) != *(const volatile __u32 *)(header + 2 * ETH_ALEN))
		return false;
	for (int i = 2; i < HEADER_WORDS; i++)
		if (((__u64 *)data)[i] != config.load_header[i])
			return false;
	return *(__u16 *)(data + UDP_CHECKSUM) == checksum(sequence, 0) &&
	       *(__u64 *)(data + PAYLOAD) == config.payload[0];
}

/* One queue receives: one CPU runs this at a time. */
static __always_inline void count(void *data, void *end)
{
	state.sink.packets++;
	if (!is_between_stations(data, end))
		state.sink.corrupted++;
}

SEC("xdp")
int count_xdp(struct xdp_md *ctx)
{
	count((void *)(long)ctx->data, (void *)(long)ctx->data_end);
	return XDP_DROP;
}

/* For frames of a socket, which a veth copies before it shows them to XDP. */
SEC("tcx/ingress")
int count_tcx(struct __sk_buff *skb)
{
	if (skb->data_end - skb->data != skb->len)
		bpf_skb_pull_data(skb, skb->len);
	count((void *)(long)skb->data, (void *)(long)skb->data_end);
	return TC_ACT_SHOT;
}

/* The least work for a frame, also one of several buffers. */
SEC("xdp.frags")
int drop(struct xdp_md *ctx)
{
	return XDP_DROP;
}

/* Some helpers require the GPL, one of the two licences above. */
char _license[] SEC("license") = "GPL";
