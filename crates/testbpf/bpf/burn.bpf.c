// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A known cost: each packet takes a set time of the CPU that receives it. This program measures that
 * time by its own readings of the clock, as the reference for other measurements.
 *
 * A long time between two readings is a gap: an interrupt, or steal time. Gaps are counted separately
 * and are no part of the set time.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

/* More readings of the clock than for any packet. */
#define MAX_READINGS (1 << 20)

/* The shortest gap between two readings: far longer than a reading. */
#define GAP_NS 50000

const volatile __u64 burn_ns; /* for each packet */

/* There is one flow, so one CPU runs this at a time. */
struct burned {
	__u64 work_ns;
	__u64 gaps_ns;
} burned;

struct burn {
	__u64 now;
	__u64 work_ns;
	__u64 gaps_ns;
};

static long is_over(__u32 reading, void *context)
{
	struct burn *burn = context;
	__u64 now = bpf_ktime_get_ns();
	__u64 passed = now - burn->now;

	burn->now = now;
	if (passed < GAP_NS)
		burn->work_ns += passed;
	else
		burn->gaps_ns += passed;
	return burn->work_ns >= burn_ns;
}

static __always_inline void burn(void)
{
	struct burn burn = {};

	if (!burn_ns)
		return;
	burn.now = bpf_ktime_get_ns();
	bpf_loop(MAX_READINGS, is_over, &burn, 0);
	burned.work_ns += burn.work_ns;
	burned.gaps_ns += burn.gaps_ns;
}

/* In the context of NAPI. */
SEC("xdp")
int burn_xdp(struct xdp_md *ctx)
{
	burn();
	return XDP_DROP;
}

/* On the CPU that RPS has chosen. */
SEC("tcx/ingress")
int burn_tcx(struct __sk_buff *skb)
{
	burn();
	return TC_ACT_SHOT;
}

char _license[] SEC("license") = "GPL";
