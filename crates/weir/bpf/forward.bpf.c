// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A forwarder: the minimal XDP program by which a host forwards frames to its guests.
 *
 * `stations` maps a frame's VLAN and destination MAC address to one of `ports`. As on an access port
 * the VLAN tag is removed first. A frame with another address goes on to the network stack.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "forward.h"

/* `struct vlan_hdr`, which the kernel does not export. */
struct vlan_tag {
	__be16 tci;
	__be16 type;
};

#define VLAN_ID 0x0fff

#define MAX_PORTS 64
#define MAX_STATIONS (1 << 17)

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_STATIONS);
	__type(key, struct station);
	__type(value, __u32);
} stations SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, MAX_PORTS);
	__type(key, __u32);
	__type(value, __u32);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct forward_counts);
} counts SEC(".maps");

/* Removes the tag: the addresses move up to the type behind it. */
static __always_inline int untag(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u8 addresses[2 * ETH_ALEN];

	if (data + sizeof(addresses) + sizeof(struct vlan_tag) > end)
		return -1;
	__builtin_memcpy(addresses, data, sizeof(addresses));
	__builtin_memcpy(data + sizeof(struct vlan_tag), addresses, sizeof(addresses));
	return bpf_xdp_adjust_head(ctx, sizeof(struct vlan_tag));
}

SEC("xdp")
int forward(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = data;
	struct vlan_tag *tag = (void *)(ethernet + 1);
	struct forward_counts *count;
	struct station station = {};
	bool tagged;
	__u32 zero = 0, *port;

	count = bpf_map_lookup_elem(&counts, &zero);
	if (!count || (void *)(ethernet + 1) > end)
		return XDP_PASS;
	__builtin_memcpy(station.mac, ethernet->h_dest, ETH_ALEN);
	tagged = ethernet->h_proto == bpf_htons(ETH_P_8021Q);
	if (tagged) {
		if ((void *)(tag + 1) > end)
			return XDP_PASS;
		station.vlan = bpf_ntohs(tag->tci) & VLAN_ID;
	}
	port = bpf_map_lookup_elem(&stations, &station);
	if (!port) {
		count->unknown++;
		return XDP_PASS;
	}
	if (tagged && untag(ctx))
		return XDP_DROP;
	count->forwarded++;
	return bpf_redirect_map(&ports, *port, XDP_DROP);
}

/* Some helpers require the GPL, one of the two licences above. */
char _license[] SEC("license") = "GPL";
