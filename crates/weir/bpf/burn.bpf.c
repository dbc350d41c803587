// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A known cost: each packet takes a set time of the CPU that receives it. What was really taken is
 * counted by this program's own reading of the clock, so that a measurement can be held to it.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

/* More readings of the clock than any packet is to take. */
#define MAX_READINGS (1 << 20)

const volatile __u64 burn_ns; /* for each packet */

/* One flow: one CPU runs this at a time. */
__u64 burned_ns;

struct burn {
	__u64 start;
	__u64 now;
};

static long is_over(__u32 reading, void *context)
{
	struct burn *burn = context;

	burn->now = bpf_ktime_get_ns();
	return burn->now - burn->start >= burn_ns;
}

static __always_inline void burn(void)
{
	struct burn burn = {};

	if (!burn_ns)
		return;
	burn.start = bpf_ktime_get_ns();
	bpf_loop(MAX_READINGS, is_over, &burn, 0);
	burned_ns += burn.now - burn.start;
}

/* In the context of NAPI. */
SEC("xdp")
int burn_xdp(struct xdp_md *ctx)
{
	burn();
	return XDP_DROP;
}

/* Where RPS has sent the packet. */
SEC("tcx/ingress")
int burn_tcx(struct __sk_buff *skb)
{
	burn();
	return TC_ACT_SHOT;
}

char _license[] SEC("license") = "GPL";
