// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Gaps of a CPU that its kernel does not account for, as a hypervisor makes them: an interrupt of the clock takes a
 * random time, on top of whatever runs.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* More readings of the clock than for any gap. */
#define MAX_READINGS (1 << 16)

const volatile struct gap_config {
	__u64 shortest_ns;
	__u64 longest_ns;
} config;

static long is_over(__u32 reading, __u64 *end)
{
	return bpf_ktime_get_ns() >= *end;
}

SEC("perf_event")
int gap(void *context)
{
	__u64 spread = config.longest_ns - config.shortest_ns;
	__u64 end = bpf_ktime_get_ns() + config.shortest_ns;

	if (spread)
		end += bpf_get_prandom_u32() % spread;
	bpf_loop(MAX_READINGS, is_over, &end, 0);
	return 0;
}

char _license[] SEC("license") = "GPL";
