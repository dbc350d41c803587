// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A CPU's time by use: hard interrupts, softirqs, NAPI, and the tasks that they interrupt.
 *
 * The programs sum in constant memory, and user space reads the sums. Each event costs the current
 * task time, so the work is done where events are fewest: softirqs and interrupts only add to
 * counters of their CPU, which are charged to a task when it is switched out.
 *
 * Time is that between tracepoints: the entry and exit of an interrupt before and after them are not
 * measured. Time lost outside the kernel, to a hypervisor for instance, is found where a timer
 * expires late because of it.
 */
#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "cost.h"
#include "kernel.bpf.h"

SHARED_ENUM(cost_constants);
SHARED_ENUM(vector);

/* Entries of the maps below. The rest is counted as unlisted, so that memory is constant. */
#define MAX_TASKS 1024
#define MAX_IRQS 256
#define MAX_NAPIS 512

/* A timer that expires so many nanoseconds late was delayed from outside: kernels seldom disable
 * interrupts for so long. */
#define LATE_NS 200000

/* Further fields of kernel structures that are read. */
struct task_struct {
	int pid;
	int tgid;
	unsigned int flags;
	char comm[16];
	struct task_struct *group_leader;
} KERNEL;

struct napi_struct {
	struct net_device *dev;
	unsigned int napi_id;
} KERNEL;

struct irqaction;

struct timerqueue_node {
	__s64 expires;
} KERNEL;

struct hrtimer {
	struct timerqueue_node node;
} KERNEL;

/* linux/sched.h */
#define PF_KTHREAD 0x00200000

enum kind {
	TASK,
	BUSY_LOOP, /* the thread that has claimed the CPU */
	IDLE,
	KSOFTIRQD,
	NAPI_THREAD
};

/* User space sets the size, for all possible CPUs. Mapped, so that a busy loop reads the times of its
 * CPU without a system call. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CPU_ENTRIES);
	__type(key, __u32);
	__type(value, struct cpu_state);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, MAX_TASKS);
	__type(key, struct task_key);
	__type(value, struct task_value);
} tasks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, MAX_IRQS);
	__type(key, struct irq_key);
	__type(value, struct irq_value);
} irqs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, MAX_NAPIS);
	__type(key, struct napi_key);
	__type(value, struct napi_value);
} napis SEC(".maps");

static __always_inline struct cpu_state *state(__u32 which)
{
	__u32 key = bpf_get_smp_processor_id() * CPU_ENTRIES + which;

	return bpf_map_lookup_elem(&cpus, &key);
}

static __always_inline struct cpu_state *this_cpu(void)
{
	struct cpu_state *cpu = state(LIVE);

	return cpu && cpu->enabled ? cpu : NULL;
}

/* The time since `start`, 0 if it is not in the past. */
static __always_inline __u64 since(__u64 start, __u64 now)
{
	return now > start ? now - start : 0;
}

static __always_inline __u64 less(__u64 whole, __u64 part)
{
	return whole > part ? whole - part : 0;
}

static __always_inline enum kind kind_of(const struct cpu_state *cpu, struct task_struct *task)
{
	char comm[13];

	if (!task->pid)
		return IDLE;
	if ((__u64)task->pid == cpu->loop_pid)
		return BUSY_LOOP;
	if (!(task->flags & PF_KTHREAD))
		return TASK;
	bpf_core_read(comm, sizeof(comm), &task->comm);
	if (!bpf_strncmp(comm, 5, "napi/") || !bpf_strncmp(comm, 13, "backlog_napi/"))
		return NAPI_THREAD;
	if (!bpf_strncmp(comm, 10, "ksoftirqd/"))
		return KSOFTIRQD;
	return TASK;
}

static __always_inline __u64 interrupted_ns(const struct task_time *slice)
{
	return slice->irq + slice->net_rx + slice->net_tx + slice->other + slice->outside;
}

/*
 * Not every kernel reports every context switch: one reports neither switches nor softirqs in the
 * context of the first process's threads. So each event checks the current task. After an unreported
 * switch the time since the previous event belongs to an unknown task.
 */
static __always_inline void check_current(struct cpu_state *cpu, struct task_struct *task,
					  __u64 now)
{
	__u64 pid = task->pid;

	if (pid == cpu->pid)
		return;
	cpu->times.unreported_ns += less(since(cpu->slice_start, now), interrupted_ns(&cpu->slice));
	cpu->times.unreported_switches++;
	__builtin_memset(&cpu->slice, 0, sizeof(cpu->slice));
	cpu->slice_start = now;
	cpu->pid = pid;
	cpu->kind = kind_of(cpu, task);
}

/* Hard interrupts. They do not nest, but they interrupt softirqs. */

static __always_inline void enter_irq(struct cpu_state *cpu)
{
	cpu->irq_start = bpf_ktime_get_ns();
}

/* Returns its duration, 0 if its begin was not observed. */
static __always_inline __u64 leave_irq(struct cpu_state *cpu)
{
	__u64 now = bpf_ktime_get_ns();
	__u64 ns = cpu->irq_start ? since(cpu->irq_start, now) : 0;

	cpu->irq_start = 0;
	cpu->slice.irq += ns;
	if (cpu->softirq_start)
		cpu->softirq_irq += ns;
	cpu->times.interrupts++;
	cpu->times.events++;
	cpu->seen = now;
	return ns;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(irq_entry, int irq, struct irqaction *action)
{
	struct cpu_state *cpu = this_cpu();

	if (cpu)
		enter_irq(cpu);
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(irq_exit, int irq, struct irqaction *action, int ret)
{
	struct cpu_state *cpu = this_cpu();
	struct irq_value *value, first = {};
	struct irq_key key = { .irq = irq };
	__u64 ns;

	if (!cpu)
		return 0;
	ns = leave_irq(cpu);
	cpu->times.irq_ns += ns;
	cpu->irqs++;
	value = bpf_map_lookup_elem(&irqs, &key);
	if (value) {
		value->ns += ns;
		value->count++;
	} else {
		first.ns = ns;
		first.count = 1;
		bpf_map_update_elem(&irqs, &key, &first, BPF_ANY);
	}
	return 0;
}

static __always_inline int enter_vector(void)
{
	struct cpu_state *cpu = this_cpu();

	if (cpu)
		enter_irq(cpu);
	return 0;
}

static __always_inline int leave_vector(enum vector vector)
{
	struct cpu_state *cpu = this_cpu();

	if (!cpu)
		return 0;
	cpu->times.vector_ns[vector] += leave_irq(cpu);
	cpu->vectors[vector]++;
	return 0;
}

/* Only x86 has these tracepoints (irq_vectors). User space skips the programs by the prefix
 * "vector_" elsewhere. */
#define VECTOR(name, number)                            \
	SEC("tp_btf/" #name "_entry")                   \
	int BPF_PROG(vector_##name##_entry, int vector) \
	{                                               \
		return enter_vector();                  \
	}                                               \
	SEC("tp_btf/" #name "_exit")                    \
	int BPF_PROG(vector_##name##_exit, int vector)  \
	{                                               \
		return leave_vector(number);            \
	}

VECTOR(local_timer, LOCAL_TIMER)
VECTOR(reschedule, RESCHEDULE)
VECTOR(call_function, CALL_FUNCTION)
VECTOR(call_function_single, CALL_FUNCTION_SINGLE)
VECTOR(irq_work, IRQ_WORK)

/*
 * Time outside the kernel. When a hypervisor or firmware stops a CPU, its timers expire late. The
 * busy loop does not need this, as it measures each gap itself; and an idle CPU loses nothing.
 */

/* The time lost outside the kernel before the current timer interrupt. It ends with the begin of the
 * interrupt. It began between the last event and the timer's expiry, on average in the middle; at
 * most as long before the expiry as after it. With an event after the expiry, the timer was late for
 * another reason, as emulated timers may be. A timer armed in the past cannot be distinguished from a
 * late one. */
static __always_inline __u64 lost_before(const struct cpu_state *cpu, __u64 late)
{
	__u64 expires = less(cpu->irq_start, late), before;

	if (cpu->seen >= expires)
		return 0;
	before = (expires - cpu->seen) / 2;
	return late + (before < late ? before : late);
}

/* The first timer of an interrupt is the latest one. */
SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(late_timer, struct hrtimer *timer, void *expired_at)
{
	struct cpu_state *cpu = this_cpu();
	__s64 now, late;
	__u64 ns;

	if (!cpu || !cpu->irq_start || cpu->late_seen == cpu->irq_start)
		return 0;
	cpu->late_seen = cpu->irq_start;
	if (!cpu->softirq_start && (cpu->kind == BUSY_LOOP || cpu->kind == IDLE))
		return 0;
	if (bpf_probe_read_kernel(&now, sizeof(now), expired_at))
		return 0;
	late = now - timer->node.expires;
	if (late < LATE_NS)
		return 0;
	ns = lost_before(cpu, late);
	if (ns < LATE_NS)
		return 0;
	cpu->times.outside_ns += ns;
	cpu->slice.outside += ns;
	if (cpu->softirq_start)
		cpu->softirq_irq += ns;
	return 0;
}

/* Softirqs. They do not nest, and contain no context switch, except with PREEMPT_RT, which user space
 * refuses. */

/* Adds the current softirq up to now. */
static __always_inline void count_softirq(struct cpu_state *cpu, __u64 now)
{
	__u64 ns = less(since(cpu->softirq_start, now), cpu->softirq_irq);
	__u64 vec = cpu->softirq_vec;

	if (vec >= SOFTIRQS)
		return;
	cpu->times.softirq_ns[vec] += ns;
	if (cpu->kind == IDLE)
		cpu->softirq_in_idle_ns[vec] += ns;
	else if (cpu->kind == KSOFTIRQD)
		cpu->softirq_in_ksoftirqd_ns[vec] += ns;
	if (vec == NET_RX)
		cpu->slice.net_rx += ns;
	else if (vec == NET_TX)
		cpu->slice.net_tx += ns;
	else
		cpu->slice.other += ns;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_entry, unsigned int vec)
{
	struct cpu_state *cpu = this_cpu();
	__u64 now;

	if (!cpu)
		return 0;
	now = bpf_ktime_get_ns();
	check_current(cpu, bpf_get_current_task_btf(), now);
	/* An interrupt in between must not count before this softirq has begun. */
	cpu->softirq_vec = vec;
	cpu->softirq_irq = 0;
	cpu->softirq_start = now;
	cpu->poll_start = now;
	cpu->seen = now;
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_exit, unsigned int vec)
{
	struct cpu_state *cpu = this_cpu();
	__u64 now;

	if (!cpu || vec >= SOFTIRQS)
		return 0;
	/* One that began before the observation has had all of the time since. */
	if (cpu->softirq_vec == SOFTIRQS && cpu->slice_start == cpu->observed_start) {
		cpu->softirq_vec = vec;
		cpu->softirq_irq = cpu->slice.irq;
		cpu->softirq_start = cpu->slice_start;
	}
	if (!cpu->softirq_start)
		return 0;
	now = bpf_ktime_get_ns();
	count_softirq(cpu, now);
	cpu->softirqs[vec]++;
	cpu->times.events++;
	cpu->seen = now;
	cpu->softirq_start = 0;
	/* A NAPI thread continues its poll. */
	cpu->poll_start = cpu->kind == NAPI_THREAD ? now : 0;
	return 0;
}

SEC("tp_btf/napi_poll")
int BPF_PROG(napi_poll, struct napi_struct *napi, int work, int budget)
{
	struct cpu_state *cpu = this_cpu();
	struct napi_value *value, first = {};
	struct napi_key key = {};
	struct net_device *dev;
	__u64 now, ns = 0;

	if (!cpu)
		return 0;
	now = bpf_ktime_get_ns();
	if (!cpu->softirq_start)
		check_current(cpu, bpf_get_current_task_btf(), now);
	/* The begin of a poll has no tracepoint: it is the end of the previous one. */
	if (cpu->poll_start)
		ns = since(cpu->poll_start, now);
	if (cpu->softirq_start || cpu->kind == NAPI_THREAD)
		cpu->poll_start = now;
	cpu->polls++;
	cpu->seen = now;

	dev = napi->dev;
	key.napi_id = napi->napi_id;
	if (dev) {
		key.netns = dev->nd_net.net->ns.inum;
		key.ifindex = dev->ifindex;
	}
	value = bpf_map_lookup_elem(&napis, &key);
	if (!value) {
		if (dev)
			bpf_core_read(first.name, sizeof(first.name), &dev->name);
		bpf_map_update_elem(&napis, &key, &first, BPF_NOEXIST);
		value = bpf_map_lookup_elem(&napis, &key);
		if (!value)
			return 0;
	}
	if (!value->name[0] && dev)
		bpf_core_read(value->name, sizeof(value->name), &dev->name);
	value->polls++;
	value->packets += work;
	value->full += work >= budget;
	value->ns += ns;
	return 0;
}

/* Tasks. */

static __always_inline void add(struct task_time *sum, const struct task_time *more)
{
	sum->running += more->running;
	sum->irq += more->irq;
	sum->net_rx += more->net_rx;
	sum->net_tx += more->net_tx;
	sum->other += more->other;
	sum->outside += more->outside;
}

static __always_inline void charge(struct cpu_state *cpu, struct task_struct *task)
{
	struct task_value *value, first = {};
	struct task_key key = { .tgid = task->tgid };

	value = bpf_map_lookup_elem(&tasks, &key);
	if (!value) {
		bpf_map_update_elem(&tasks, &key, &first, BPF_NOEXIST);
		value = bpf_map_lookup_elem(&tasks, &key);
	}
	if (!value) {
		add(&cpu->unlisted, &cpu->slice);
		return;
	}
	/* Read again from time to time: execve(2) changes the name. */
	if (!value->comm[0] || cpu->slice.running > 1000000)
		bpf_core_read(value->comm, sizeof(value->comm), &task->group_leader->comm);
	add(&value->time, &cpu->slice);
}

/* ksoftirqd's own time is divided in proportion to its softirqs. */
static __always_inline void end_ksoftirqd(struct cpu_state *cpu, __u64 own)
{
	__u64 net = cpu->slice.net_rx + cpu->slice.net_tx, all = net + cpu->slice.other;

	cpu->times.ksoftirqd_ns += own;
	if (all)
		cpu->times.ksoftirqd_net_ns += own * net / all;
}

/* Ends the slice of a task, and begins one of the next. */
static __always_inline void end_slice(struct cpu_state *cpu, struct task_struct *task,
				      struct task_struct *next, __u64 now)
{
	struct task_time *slice = &cpu->slice;
	__u64 own;

	if (cpu->slice_start) {
		slice->running = since(cpu->slice_start, now);
		own = less(slice->running, interrupted_ns(slice));
		if (cpu->kind == IDLE)
			cpu->times.idle_ns += own;
		else if (cpu->kind == KSOFTIRQD)
			end_ksoftirqd(cpu, own);
		else if (cpu->kind == NAPI_THREAD)
			cpu->times.napi_thread_ns += own;
		else if (cpu->kind == BUSY_LOOP)
			cpu->times.loop_ns += own;
		else
			cpu->times.task_ns += own;
		charge(cpu, task);
	}
	__builtin_memset(slice, 0, sizeof(*slice));
	cpu->slice_start = now;
	cpu->pid = next->pid;
	cpu->kind = kind_of(cpu, next);
	cpu->times.events++;
	cpu->seen = now;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct cpu_state *cpu = this_cpu();
	__u64 now;

	if (!cpu)
		return 0;
	now = bpf_ktime_get_ns();
	check_current(cpu, prev, now);
	end_slice(cpu, prev, next, now);
	cpu->poll_start = cpu->kind == NAPI_THREAD ? now : 0;
	cpu->times.switches++;
	return 0;
}

/*
 * User space runs the following programs on a CPU, in the context of the current task there.
 */

/* The calling thread is the busy loop of its CPU. It repeats this when the kernel did not report the
 * switch back to it. */
SEC("raw_tp")
int claim(void *ctx)
{
	struct cpu_state *cpu = state(LIVE);
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 now;

	if (!cpu)
		return 0;
	cpu->loop_pid = task->pid;
	if (!cpu->enabled)
		return 0;
	now = bpf_ktime_get_ns();
	check_current(cpu, task, now);
	end_slice(cpu, task, task, now);
	return 0;
}

/* Begins the observation. */
SEC("raw_tp")
int begin(void *ctx)
{
	struct cpu_state *cpu = state(LIVE);
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 now = bpf_ktime_get_ns();

	if (!cpu)
		return 0;
	/* Earlier begins are unknown. */
	cpu->slice_start = 0;
	cpu->softirq_start = 0;
	cpu->softirq_vec = SOFTIRQS;
	cpu->irq_start = 0;
	cpu->poll_start = 0;
	end_slice(cpu, task, task, now);
	cpu->observed_start = now;
	cpu->enabled = 1;
	return 0;
}

/* Adds the time up to now: a task may run during the whole measurement, and a softirq for some
 * milliseconds. */
static __always_inline void add_until_now(struct cpu_state *cpu)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 now = bpf_ktime_get_ns();

	if (cpu->softirq_start) {
		count_softirq(cpu, now);
		cpu->softirq_start = now;
		cpu->softirq_irq = 0;
	}
	check_current(cpu, task, now);
	end_slice(cpu, task, task, now);
	cpu->observed_ns += since(cpu->observed_start, now);
	cpu->observed_start = now;
}

/* Copies the sums for user space, which reads them later. */
SEC("raw_tp")
int settle(void *ctx)
{
	struct cpu_state *cpu = this_cpu(), *settled = state(SETTLED);

	if (!cpu || !settled)
		return 0;
	add_until_now(cpu);
	__builtin_memcpy(settled, cpu, sizeof(*settled));
	return 0;
}

/* Ends the observation. */
SEC("raw_tp")
int end(void *ctx)
{
	struct cpu_state *cpu = this_cpu();

	if (!cpu)
		return 0;
	add_until_now(cpu);
	cpu->enabled = 0;
	return 0;
}

/* Typed arguments of tracepoints require the GPL, one of the two licences above. */
char _license[] SEC("license") = "GPL";
