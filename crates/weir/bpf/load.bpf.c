// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The load of the bench, and where what the application sends ends up.
 *
 * `load` runs under BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES: the kernel hands it
 * page after page, and what it redirects out of a veth arrives at the peer. The kernel runs
 * the peer's NAPI on the same CPU after each batch of 64, so what the peer's XDP program
 * costs is paid by the load's CPU.
 *
 * `sink` runs on that same veth for frames that come from the peer. The kernel runs it on the
 * CPU that sends them, so each of its instructions is taken from the application under test.
 */
#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "load.h"

/* Offsets in a frame; src/bench/frame.rs describes it. */
#define IP_ADDRESSES 26
#define UDP 34
#define UDP_CHECKSUM 40
#define SEQUENCE 42
#define MIN_SIZE 64

#define UDP_PROTOCOL 17

/* Late frames are sent at once, but no more than this stretch of them: a burst after a long
 * pause (a stolen CPU) would measure the receiver's queue instead of the receiver. */
#define MAX_CATCH_UP (1000000ULL << 10)

/* The kernel before 6.13 sums no more at once (MAX_BPF_STACK). */
#define MAX_SUM 512

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
	__u64 now = bpf_ktime_get_ns() << 10;

	if (now < state.due)
		return false;
	if (now - state.due > MAX_CATCH_UP)
		state.due = now;
	state.due += config.interval;
	return true;
}

SEC("xdp")
int load(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u64 sequence, sum;

	if (data + MIN_SIZE > end)
		return XDP_ABORTED;
	if (config.interval && !is_due())
		return XDP_DROP;

	/*
	 * A page comes back here as its last receiver left it: a native program there may
	 * have rewritten its headers, and the number is that of another frame. So whatever
	 * differs between frames, or could have been changed on the way, is written anew; only
	 * the rest of the payload, which no program of weir writes, is left from the start.
	 */
#pragma unroll
	for (int i = 0; i < HEADER_WORDS; i++)
		((__u64 *)data)[i] = config.load_header[i];
	sequence = bpf_cpu_to_be64(state.sent);
	sum = config.checksum + (sequence >> 32) + (sequence & 0xffffffff);
	sum = (__u16)~fold(sum);
	/* 0 on the wire would mean "no checksum" (RFC 768). */
	*(__u16 *)(data + UDP_CHECKSUM) = sum ? sum : 0xffff;
	*(__u64 *)(data + SEQUENCE) = sequence;

	/* One process runs this program on one CPU: a plain increment loses nothing. */
	state.sent++;
	return bpf_redirect(config.ifindex, 0);
}

/* The ones' complement sum that makes the UDP checksum: 0xffff if it is right. */
static __always_inline __u16 udp_sum(void *data, __u64 size)
{
	__u64 sum = bpf_htons(UDP_PROTOCOL) + bpf_htons(size - UDP);
	__u64 at = IP_ADDRESSES;

#pragma unroll
	for (int i = 0; i < 3; i++) {
		__u64 length = (size - at) & ~3ULL;

		if (length > MAX_SUM)
			length = MAX_SUM;
		if (!length)
			break;
		sum = (__u32)bpf_csum_diff(NULL, 0, data + at, length, sum);
		at += length;
	}
	if ((size - at) & 2) {
		sum += *(__u16 *)(data + at);
		at += 2;
	}
	if ((size - at) & 1)
		sum += bpf_htons(*(__u8 *)(data + at) << 8);
	return fold(sum);
}

/* A frame that came after one with a higher number. */
static __always_inline void track_late(__u64 sequence)
{
	__u64 *word = &state.seen[sequence / 64 % WINDOW_WORDS];
	__u64 bit = 1ULL << sequence % 64;

	/* Before the window nobody knows any more; a late frame is less likely. */
	if (state.expected - sequence > WINDOW || *word & bit) {
		state.duplicates++;
		return;
	}
	*word |= bit;
	state.reordered++;
	state.lost--;
}

static __always_inline void track(__u64 sequence)
{
	__u64 missing, first;

	if (sequence < state.expected) {
		track_late(sequence);
		return;
	}
	missing = sequence - state.expected;
	state.lost += missing;
	/* What the window says of numbers that were passed over is a whole window old. */
	first = missing > WINDOW ? sequence - WINDOW : state.expected;
	for (int i = 0; i < WINDOW && first + i < sequence; i++) {
		__u64 passed = first + i;

		state.seen[passed / 64 % WINDOW_WORDS] &= ~(1ULL << passed % 64);
	}
	state.seen[sequence / 64 % WINDOW_WORDS] |= 1ULL << sequence % 64;
	state.expected = sequence + 1;
}

static __always_inline bool is_intact(void *data, void *end)
{
	__u64 size = config.size;

	if ((__u64)(end - data) != size || data + size > end || data + MIN_SIZE > end)
		return false;
#pragma unroll
	for (int i = 0; i < HEADER_WORDS; i++)
		if (((__u64 *)data)[i] != config.sink_header[i])
			return false;
	return *(__u16 *)(data + UDP_CHECKSUM) && udp_sum(data, size) == 0xffff;
}

/* For one flow from one queue: NAPI runs it on one CPU at a time. */
SEC("xdp")
int sink(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;

	state.packets++;
	if (is_intact(data, end))
		track(bpf_be64_to_cpu(*(__u64 *)(data + SEQUENCE)));
	else
		state.corrupted++;
	return XDP_DROP;
}

/* Some helpers are for programs under the GPL only; of the two licences above, this is it. */
char _license[] SEC("license") = "GPL";
