/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What flame.bpf.c shares with src/cost/flame/sampler.rs, which reads the words of a stack by
 * their place: all are plain 64-bit words, so that nothing depends on how a compiler lays out a
 * structure.
 */
#ifndef WEIR_FLAME_H
#define WEIR_FLAME_H

/* Frames that are kept, from the innermost on; the packet path is about half as deep. */
#define KERNEL_FRAMES 96
#define USER_FRAMES 32

/* TASK_COMM_LEN */
#define NAME_WORDS 2

/* What ran when a sample was taken. Unused words are zero. */
struct stack {
	__u64 process;		     /* as in the first PID namespace; 0: the idle task */
	__u64 name[NAME_WORDS];	     /* of the thread */
	__u64 kernel[KERNEL_FRAMES]; /* return addresses, the innermost first; none in user mode */
	__u64 user[USER_FRAMES];
};

/* Different stacks between two readings. */
#define STACKS 8192

#endif
