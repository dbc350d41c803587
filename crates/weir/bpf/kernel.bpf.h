/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Types of the kernel that several programs read. libbpf finds the offsets of their fields when it loads (CO-RE). */
#ifndef WEIR_KERNEL_BPF_H
#define WEIR_KERNEL_BPF_H

#define KERNEL __attribute__((preserve_access_index))

struct ns_common {
	unsigned int inum;
} KERNEL;

struct net {
	struct ns_common ns;
} KERNEL;

typedef struct {
	struct net *net;
} KERNEL possible_net_t;

struct net_device {
	char name[16];
	int ifindex;
	unsigned short type;
	possible_net_t nd_net;
} KERNEL;

#endif
