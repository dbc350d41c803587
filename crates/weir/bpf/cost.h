/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by cost.bpf.c and src/accounting/tracepoints/abi.rs: see shared.h. */
#ifndef WEIR_COST_H
#define WEIR_COST_H

#include "shared.h"

enum cost_constants {
	/* NR_SOFTIRQS of linux/interrupt.h; the order has not changed since Linux 4.14. */
	SOFTIRQS = 10,
	NET_TX = 2,
	NET_RX = 3,

	/* Keys of the map of CPUs: CPU * CPU_ENTRIES, plus one of these: the sums now, and a copy
	 * of them from when they were last settled. */
	LIVE = 0,
	SETTLED = 1,
	CPU_ENTRIES = 2,

	NAME_BYTES = 16, /* TASK_COMM_LEN and IFNAMSIZ */
};

/* The interrupts of arch/x86/include/asm/trace/irq_vectors.h that are followed. */
enum vector {
	LOCAL_TIMER,
	RESCHEDULE,
	CALL_FUNCTION,
	CALL_FUNCTION_SINGLE,
	IRQ_WORK,
	VECTORS
};

/* Nanoseconds of one task, or of one CPU while it ran. */
struct task_time {
	__u64 running; /* on the CPU, all of the following included */
	__u64 irq;     /* hard interrupts */
	__u64 net_rx;  /* softirqs */
	__u64 net_tx;
	__u64 other;
	__u64 outside; /* lost outside the kernel */
};

/*
 * A CPU's time by use, in nanoseconds where not counts. Apart from ksoftirqd_net_ns the times do not
 * overlap; while the CPU is observed they sum up to the wall time.
 */
struct cpu_times {
	__u64 events; /* changes with each of the following */
	__u64 interrupts;
	__u64 switches;
	__u64 irq_ns; /* devices' interrupts */
	__u64 vector_ns[VECTORS];
	__u64 softirq_ns[SOFTIRQS];
	__u64 napi_thread_ns;
	__u64 ksoftirqd_ns;	/* ksoftirqd outside its softirqs */
	__u64 ksoftirqd_net_ns; /* the part of ksoftirqd_ns for the network, by its softirqs */
	__u64 task_ns;
	__u64 loop_ns; /* the busy loop that has claimed the CPU */
	__u64 idle_ns;
	__u64 unreported_ns; /* of the unknown task before an unreported context switch */
	__u64 unreported_switches;
	__u64 outside_ns; /* lost outside the kernel, without the busy loop's and the idle task's own time */
};

/* One for each CPU; only that CPU writes to it. */
struct cpu_state {
	struct cpu_times times; /* first: the busy loop on the CPU reads them in place */
	__u64 enabled;		/* whether this CPU is observed */
	__u64 observed_ns;	/* the time observed */

	/* Counts, and parts of the times. */
	__u64 irqs;
	__u64 vectors[VECTORS];
	__u64 softirqs[SOFTIRQS];
	__u64 softirq_in_idle_ns[SOFTIRQS];
	__u64 softirq_in_ksoftirqd_ns[SOFTIRQS];
	__u64 polls;
	struct task_time unlisted; /* tasks beyond MAX_TASKS */

	/* The current state. */
	__u64 observed_start;
	__u64 loop_pid; /* the busy loop's thread; 0: none */
	__u64 pid;	/* of the current task */
	__u64 kind;
	__u64 slice_start;	/* when it was switched in; 0: unknown */
	struct task_time slice; /* interrupts in its context since then */
	__u64 softirq_start;	/* 0: none */
	__u64 softirq_vec;	/* the last one; SOFTIRQS: none since the observation began */
	__u64 softirq_irq;	/* hard interrupts and outside time in it, in nanoseconds */
	__u64 irq_start;	/* 0: none */
	__u64 poll_start;	/* when the current NAPI poll may have begun; 0: unknown */
	__u64 seen;		/* the last event on this CPU */
	__u64 late_seen;	/* the last interrupt checked for lateness, by its begin */
};

struct task_key {
	__u64 tgid;
};

struct task_value {
	struct task_time time;
	char comm[NAME_BYTES]; /* of the thread group's leader */
};

struct irq_key {
	__u64 irq;
};

struct irq_value {
	__u64 ns;
	__u64 count;
};

struct napi_key {
	__u64 netns; /* inode of the network namespace; 0: no device, the backlog of a CPU */
	__u64 ifindex;
	__u64 napi_id;
};

struct napi_value {
	__u64 polls;
	__u64 packets; /* "work" */
	__u64 full;    /* polls that used up their budget */
	__u64 ns;      /* in softirqs and in threads, without busy polling */
	char name[NAME_BYTES];
};

#endif
