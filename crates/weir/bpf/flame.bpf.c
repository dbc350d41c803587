// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Counts the stacks on a CPU, for `weir cost flame`: a perf event runs `sample` at each of its
 * overflows, in the context of the interrupted stack.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "flame.h"

SHARED_ENUM(flame_constants);

/* Different stacks between two readings. */
#define STACKS 8192

/*
 * The stack itself is the key. The kernel's own stack map has a 32-bit hash of it as the key, and
 * where two stacks collide it drops each sample of the second: a hole in the graph that looks like a
 * cheap function.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, STACKS);
	__type(key, struct stack);
	__type(value, __u64);
} stacks SEC(".maps");

/* A buffer for one stack, which exceeds the stack size of a BPF program. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stack);
} scratch SEC(".maps");

/* All samples, also those dropped as `stacks` was full. */
__u64 samples;

SEC("perf_event")
int sample(void *ctx)
{
	__u64 *count, one = 1;
	struct stack *stack;
	__u32 zero = 0;

	__sync_fetch_and_add(&samples, 1);
	/* Each CPU has one event, which does not interrupt itself. */
	stack = bpf_map_lookup_elem(&scratch, &zero);
	if (!stack)
		return 0;
	stack->process = bpf_get_current_pid_tgid() >> 32;
	bpf_get_current_comm(stack->name, sizeof(stack->name));
	/* Both zero the unused part, also on failure. */
	bpf_get_stack(ctx, stack->kernel, sizeof(stack->kernel), 0);
	bpf_get_stack(ctx, stack->user, sizeof(stack->user), BPF_F_USER_STACK);

	count = bpf_map_lookup_elem(&stacks, stack);
	if (!count && bpf_map_update_elem(&stacks, stack, &one, BPF_NOEXIST)) {
		/* The map is full, or another CPU was faster. */
		count = bpf_map_lookup_elem(&stacks, stack);
	}
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

/* The helpers that read a stack require the GPL, one of the two licences above. */
char _license[] SEC("license") = "GPL";
