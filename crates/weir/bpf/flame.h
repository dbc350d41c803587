/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by flame.bpf.c and src/cost/flame/sampler.rs: see shared.h. */
#ifndef WEIR_FLAME_H
#define WEIR_FLAME_H

#include "shared.h"

enum flame_constants {
	/* Frames that are kept, from the innermost on; the packet path is about half as deep. */
	KERNEL_FRAMES = 96,
	USER_FRAMES = 32,
	NAME_BYTES = 16, /* TASK_COMM_LEN */
};

/* The stack that a sample interrupted. Unused bytes are zero. */
struct stack {
	__u64 process;		     /* in the first PID namespace; 0: the idle task */
	char name[NAME_BYTES];	     /* of the thread */
	__u64 kernel[KERNEL_FRAMES]; /* return addresses, the innermost first; none in user mode */
	__u64 user[USER_FRAMES];
};

#endif
