/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Freed packets: the kernel's types that tell about them, and whose they are. */
#ifndef WEIR_FREED_BPF_H
#define WEIR_FREED_BPF_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "kernel.bpf.h"

#define AF_UNIX 1
#define AF_NETLINK 16

struct sock_common {
	unsigned short skc_family;
	possible_net_t skc_net;
} KERNEL;

struct sk_buff_head {
	__u32 qlen;
} KERNEL;

struct sock {
	struct sock_common __sk_common;
	struct sk_buff_head sk_receive_queue;
	__u16 sk_protocol;
} KERNEL;

struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	unsigned int len;
	__u8 ip_summed : 2;
	int skb_iif;
	__be16 vlan_proto;
	__u16 vlan_tci;
	__be16 protocol;
	__u16 network_header;
	__u16 mac_header;
	unsigned int tail;
	unsigned int end;
	unsigned char *head;
	unsigned char *data;
} KERNEL;

struct skb_shared_info {
	unsigned short gso_size;
	unsigned short gso_segs;
} KERNEL;

/* Whose a packet is: the numbers are 0 where nothing tells. */
struct owner {
	const struct net_device
		*device; /* none where `index` is that of the device it came in by */
	__u32 netns;
	__u32 index;
	bool is_message; /* between processes, no packet */
};

/*
 * A packet's namespace is that of the socket that refuses it, else of its device: in a receive queue of UDP or TCP
 * `skb->dev` shares its place with other fields. A bad pointer there reads as 0, which is no namespace.
 */
static __always_inline struct owner owner_of(struct sk_buff *skb, struct sock *receiver)
{
	struct owner owner = {};
	struct net_device *device;
	struct sock *sender;

	if (receiver) {
		owner.netns = receiver->__sk_common.skc_net.net->ns.inum;
		owner.index = skb->skb_iif;
		return owner;
	}
	device = skb->dev;
	if (device) {
		owner.device = device;
		owner.netns = device->nd_net.net->ns.inum;
		owner.index = device->ifindex;
	}
	if (!owner.netns) {
		owner.device = NULL;
		owner.index = skb->skb_iif;
		sender = skb->sk;
		if (sender) {
			owner.netns = sender->__sk_common.skc_net.net->ns.inum;
			owner.is_message = sender->__sk_common.skc_family == AF_UNIX ||
					   sender->__sk_common.skc_family == AF_NETLINK;
		}
	}
	return owner;
}

/* Linux 6.2. A read by it takes 1 ns, one by a helper 22. */
extern void *bpf_rdonly_cast(const void *object, __u32 type) __ksym __weak;

/* Packets on the wire. */
static __always_inline __u32 segments_of(const struct sk_buff *skb)
{
	const struct skb_shared_info *shared = (void *)(skb->head + skb->end);
	__u16 segments = 0;

	if (bpf_ksym_exists(bpf_rdonly_cast)) {
		shared = bpf_rdonly_cast(shared, bpf_core_type_id_kernel(struct skb_shared_info));
		segments = shared->gso_segs;
	} else {
		bpf_core_read(&segments, sizeof(segments), &shared->gso_segs);
	}
	return segments ? segments : 1;
}

#endif
