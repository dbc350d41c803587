// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What runs on a CPU, for `weir cost flame`: a perf event runs `sample` at each of its
 * overflows, and it counts the stack that was interrupted.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "flame.h"

SHARED_ENUM(flame_constants);

/* Different stacks between two readings. */
#define STACKS 8192

/*
 * The stack itself is the key. The kernel's own stack map goes by a 32-bit hash into a table, and
 * where two stacks meet there it drops each sample of the second: a hole in the graph that looks
 * like a cheap function.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, STACKS);
	__type(key, struct stack);
	__type(value, __u64);
} stacks SEC(".maps");

/* Where a stack is put together, as it is too long for a BPF program's own. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stack);
} scratch SEC(".maps");

/* All samples, also those that found no room in `stacks`. */
__u64 taken;

SEC("perf_event")
int sample(void *ctx)
{
	__u64 *count, one = 1;
	struct stack *stack;
	__u32 zero = 0;

	__sync_fetch_and_add(&taken, 1);
	/* One event a CPU runs this, and does not interrupt itself. */
	stack = bpf_map_lookup_elem(&scratch, &zero);
	if (!stack)
		return 0;
	stack->process = bpf_get_current_pid_tgid() >> 32;
	bpf_get_current_comm(stack->name, sizeof(stack->name));
	/* Both fill what they do not use with zeros, also when they fail. */
	bpf_get_stack(ctx, stack->kernel, sizeof(stack->kernel), 0);
	bpf_get_stack(ctx, stack->user, sizeof(stack->user), BPF_F_USER_STACK);

	count = bpf_map_lookup_elem(&stacks, stack);
	if (!count && bpf_map_update_elem(&stacks, stack, &one, BPF_NOEXIST)) {
		/* There is no room, or another CPU was faster. */
		count = bpf_map_lookup_elem(&stacks, stack);
	}
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

/* The helpers that read a stack are for programs under the GPL only; of the two licences above,
 * this is it. */
char _license[] SEC("license") = "GPL";
