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
	__u64 running; /* on the CPU, all that follows included */
	__u64 irq;     /* hard interrupts */
	__u64 net_rx;  /* softirqs */
	__u64 net_tx;
	__u64 other;
	__u64 outside; /* taken from outside the kernel */
};

/*
 * Where a CPU's time went, in nanoseconds where not counts. Apart from ksoftirqd_net_ns the times do
 * not overlap; while the CPU is observed they sum up to the time that passed.
 */
struct cpu_times {
	__u64 events; /* changes whenever one of the following does */
	__u64 interrupts;
	__u64 switches;
	__u64 irq_ns; /* devices' interrupts */
	__u64 vector_ns[VECTORS];
	__u64 softirq_ns[SOFTIRQS];
	__u64 napi_thread_ns;
	__u64 ksoftirqd_ns;	/* ksoftirqd outside its softirqs */
	__u64 ksoftirqd_net_ns; /* its part for the network, by its softirqs; in ksoftirqd_ns */
	__u64 task_ns;
	__u64 loop_ns; /* the task that has claimed the CPU */
	__u64 idle_ns;
	__u64 unreported_ns; /* of whoever ran until a switch that the kernel did not report */
	__u64 unreported_switches;
	__u64 outside_ns; /* taken from outside, but for the load's and the idle task's own time */
};

/* One for each CPU; only that CPU writes to it. */
struct cpu_state {
	struct cpu_times times; /* first: a load on the CPU reads them in place */
	__u64 enabled;		/* whether this CPU is looked at */
	__u64 observed_ns;	/* for how long it was */

	/* Counts, and parts of the times. */
	__u64 irqs;
	__u64 vectors[VECTORS];
	__u64 softirqs[SOFTIRQS];
	__u64 softirq_in_idle_ns[SOFTIRQS];
	__u64 softirq_in_ksoftirqd_ns[SOFTIRQS];
	/* Of the programs' work. */
	__u64 polls;
	struct task_time unlisted; /* tasks that MAX_TASKS left out */

	/* What is under way. */
	__u64 observed_start;
	__u64 loop_pid; /* the thread that has claimed the CPU; 0: none */
	__u64 pid;	/* of the task that runs */
	__u64 kind;
	__u64 slice_start;	/* since when it runs; 0: nobody has looked yet */
	struct task_time slice; /* what was taken from it since then */
	__u64 softirq_start;	/* 0: none */
	__u64 softirq_vec;	/* the last one; SOFTIRQS: none since the looking began */
	__u64 softirq_irq;	/* nanoseconds of hard interrupts in it, and from outside */
	__u64 irq_start;	/* 0: none */
	__u64 poll_start; /* when the NAPI poll that is under way may have begun; 0: unknown */
	__u64 seen;	  /* when the kernel was last seen to work on this CPU */
	__u64 late_seen;  /* the interrupt whose lateness has been looked at, by its beginning */
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
	__u64 netns; /* inode of the network namespace, 0: no device, the backlog of a CPU */
	__u64 ifindex;
	__u64 napi_id;
};

struct napi_value {
	__u64 polls;
	__u64 packets; /* "work" */
	__u64 full;    /* polls that used up their budget */
	__u64 ns;      /* in softirqs and in threads; not known of busy polling */
	char name[NAME_BYTES];
};

#endif
