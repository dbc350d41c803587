/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What cost.bpf.c shares with src/cost/accounting.rs, which reads all of it by place:
 * plain 64-bit words, so that nothing depends on how a compiler lays out a structure.
 */
#ifndef WEIR_COST_H
#define WEIR_COST_H

/* NR_SOFTIRQS of linux/interrupt.h; the order has not changed since Linux 4.14. */
#define SOFTIRQS 10
#define NET_TX 2
#define NET_RX 3

/* Entries of the maps below: what does not fit is counted as unlisted, so memory is constant. */
#define MAX_TASKS 1024
#define MAX_IRQS 256
#define MAX_NAPIS 512

/* TASK_COMM_LEN and IFNAMSIZ, in words. */
#define NAME_WORDS 2

/* Nanoseconds of one task, or of one CPU while it ran. */
struct task_time {
	__u64 running; /* on the CPU, all that follows included */
	__u64 irq;     /* hard interrupts */
	__u64 net_rx;  /* softirqs */
	__u64 net_tx;
	__u64 other;
};

/* Keys of the map of CPUs: the sums, and what they were when they were last settled. */
#define LIVE 0
#define SETTLED 1
#define CPU_ENTRIES 2

/* One for each CPU; only that CPU writes to it. */
struct cpu_state {
	__u64 enabled;	   /* whether this CPU is looked at */
	__u64 observed_ns; /* for how long it was */

	/* Totals, in nanoseconds where not counts. They do not overlap. */
	__u64 irq_ns;
	__u64 irqs;
	__u64 vector_ns; /* the timer and IPIs */
	__u64 vectors;
	__u64 softirq_ns[SOFTIRQS];
	__u64 softirqs[SOFTIRQS];
	__u64 napi_thread_ns;
	__u64 ksoftirqd_ns; /* ksoftirqd outside its softirqs */
	__u64 idle_ns;
	/* Parts of softirq_ns. */
	__u64 softirq_in_idle_ns[SOFTIRQS];
	__u64 softirq_in_ksoftirqd_ns[SOFTIRQS];
	/* Of the programs' work. */
	__u64 polls;
	__u64 switches;
	struct task_time unlisted; /* tasks that MAX_TASKS left out */

	/* What is under way. */
	__u64 observed_start;
	__u64 kind;		/* of the task that runs */
	__u64 slice_start;	/* since when it runs; 0: nobody has looked yet */
	struct task_time slice; /* what was taken from it since then */
	__u64 softirq_start;	/* 0: none */
	__u64 softirq_vec;
	__u64 softirq_irq; /* nanoseconds of hard interrupts in it */
	__u64 irq_start;   /* 0: none */
	__u64 poll_start;  /* when the NAPI poll that is under way may have begun; 0: unknown */
};

struct task_key {
	__u64 tgid;
};

struct task_value {
	struct task_time time;
	__u64 comm[NAME_WORDS]; /* of the thread group's leader */
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
	__u64 name[NAME_WORDS];
};

#endif
