/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by forward.bpf.c and src/cost/curve/forward.rs: see shared.h. */
#ifndef WEIR_FORWARD_H
#define WEIR_FORWARD_H

/* A key without padding: eight bytes. */
struct station {
	__u16 vlan; /* 0: frames without a tag, or with a tag of priority only */
	__u8 mac[6];
};

struct forward_counts {
	__u64 forwarded;
	__u64 unknown; /* went on to the network stack */
};

#endif
