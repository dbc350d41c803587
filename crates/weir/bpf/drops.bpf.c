// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Copies of freed packets.
 *
 * The tracepoint has the packet as the kernel holds it. Its bytes are read from the MAC header on, else from the
 * IP header on; those in pages are left out. Packets that are freed in normal operation are known to user space,
 * by reason and place: it enters them into `normal_sites`, and they are counted only.
 *
 * A raw tracepoint program does not run while it runs on the same CPU, so the values of one CPU have one writer.
 */
#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "freed.bpf.h"
#include "drops.h"

SHARED_ENUM(drops_constants);
SHARED_ENUM(drop_link);
SHARED_ENUM(drop_flags);
const struct drop_record record_layout SEC("shared_enums");

#define RING_BYTES (16 << 20)
#define MAX_INTERFACES 8192
#define MAX_SITES 1024
#define MAX_NAMESPACES 4096

#define ETH_HLEN 14
#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define ARPHRD_ETHER 1
#define ARPHRD_LOOPBACK 772
#define CHECKSUM_PARTIAL 3
#define UNSET 0xffff

#define htons(value) __builtin_bswap16(value)

/* Until Linux 6.1 a bit says whether there is a tag. */
struct sk_buff___vlan_present {
	__u8 vlan_present : 1;
} KERNEL;

const volatile struct drops_config config;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, MAX_INTERFACES);
	__type(key, struct drop_interface);
	__type(value, struct drop_counts);
} interfaces SEC(".maps");

/* Counts of interfaces that did not fit. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct drop_counts);
} overflow SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_SITES);
	__type(key, struct drop_site);
	__type(value, __u32);
} normal_sites SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_NAMESPACES);
	__type(key, __u32);
	__type(value, __u32);
} namespaces SEC(".maps");

/* A packet's bytes, by their offsets from `skb->head`. */
struct extent {
	__u32 link;
	__u32 start;
	__u32 end; /* of those that are not in pages */
	__u32 length;
	bool data_is_behind_mac;
};

static __always_inline bool is_ip(const struct sk_buff *skb)
{
	return skb->protocol == htons(ETH_P_IP) || skb->protocol == htons(ETH_P_IPV6);
}

/*
 * A device's type tells whether its packets have a MAC header. In the receive queue of a socket there is no device,
 * but the network header is known. Forwarded from a device without MAC header, a packet has none yet, though
 * `mac_header` is set to where the network header begins.
 */
static __always_inline bool has_ethernet(const struct sk_buff *skb, const struct owner *owner,
					 __u32 headers)
{
	if (headers >= ETH_HLEN)
		return !owner->device || owner->device->type == ARPHRD_ETHER ||
		       owner->device->type == ARPHRD_LOOPBACK || skb->skb_iif;
	return owner->device && owner->device->type == ARPHRD_ETHER && !headers && !skb->skb_iif;
}

static __always_inline struct extent extent_of(const struct sk_buff *skb, const struct owner *owner)
{
	__u32 data = skb->data - skb->head, mac = skb->mac_header, network = skb->network_header;
	struct extent extent = { .link = LINK_NONE, .start = data, .end = skb->tail };

	if (mac != UNSET) {
		/* Before the stack has it, its data begins with the network header. */
		__u32 payload = network ? network : data;

		extent.data_is_behind_mac = data > mac;
		/* It begins before the MAC header where a tunnel has put headers in front of it. */
		if (payload >= mac && has_ethernet(skb, owner, payload - mac)) {
			extent.link = LINK_ETHERNET;
			extent.start = mac;
		}
	}
	if (extent.link == LINK_NONE && is_ip(skb)) {
		extent.link = LINK_IP;
		extent.start = network ? network : data;
	}
	extent.length = skb->len + data - extent.start;
	return extent;
}

static __always_inline bool is_tagged(const struct sk_buff *skb)
{
	const struct sk_buff___vlan_present *old = (const void *)skb;

	if (bpf_core_field_exists(old->vlan_present))
		return BPF_CORE_READ_BITFIELD(old, vlan_present);
	return skb->vlan_proto || skb->vlan_tci;
}

static __always_inline __u32 flags_of(const struct sk_buff *skb, const struct owner *owner,
				      const struct extent *extent)
{
	const struct skb_shared_info *shared = (void *)(skb->head + skb->end);
	__u32 from = skb->skb_iif, flags = 0;
	__u16 segment = 0;

	/* The number of the receiving device is set when the stack has it, later than the headers. */
	if (from ? from == owner->index : extent->data_is_behind_mac)
		flags |= DROP_INBOUND;
	else if (from || skb->sk)
		flags |= DROP_OUTBOUND;
	if (BPF_CORE_READ_BITFIELD(skb, ip_summed) == CHECKSUM_PARTIAL)
		flags |= DROP_NO_CHECKSUM;
	bpf_core_read(&segment, sizeof(segment), &shared->gso_size);
	if (segment)
		flags |= DROP_SEGMENTED;
	if (extent->link == LINK_ETHERNET && is_tagged(skb))
		flags |= DROP_TAGGED;
	return flags;
}

static __always_inline struct drop_counts *counts_of(const struct drop_interface *interface)
{
	struct drop_counts *counts = bpf_map_lookup_elem(&interfaces, interface);
	const struct drop_counts zero = {};
	__u32 cell = 0;

	if (counts)
		return counts;
	bpf_map_update_elem(&interfaces, interface, &zero, BPF_NOEXIST);
	counts = bpf_map_lookup_elem(&interfaces, interface);
	return counts ? counts : bpf_map_lookup_elem(&overflow, &cell);
}

/* A record with room for `size` bytes. Reserving takes a constant. */
#define RECORD(size)                                                                            \
	static __always_inline bool record_##size(struct drop_record *about, const void *bytes) \
	{                                                                                       \
		struct {                                                                        \
			struct drop_record about;                                               \
			__u8 bytes[size];                                                       \
		} *record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);                  \
		__u64 length = about->captured;                                                 \
		__u64 waiting;                                                                  \
                                                                                                \
		if (!record)                                                                    \
			return false;                                                           \
		/* The compiler knows the bound, the verifier does not. */                      \
		barrier_var(length);                                                            \
		if (length > size)                                                              \
			length = size;                                                          \
		record->about = *about;                                                         \
		if (bpf_probe_read_kernel(record->bytes, length, bytes))                        \
			record->about.captured = 0;                                             \
		waiting = bpf_ringbuf_query(&records, BPF_RB_AVAIL_DATA);                       \
		bpf_ringbuf_submit(record, waiting >= config.wake_at ? BPF_RB_FORCE_WAKEUP      \
								     : BPF_RB_NO_WAKEUP);       \
		return true;                                                                    \
	}

RECORD(128)
RECORD(512)
RECORD(2048)
RECORD(16384)

static __always_inline bool record(struct drop_record *about, const void *bytes)
{
	if (about->captured <= 128)
		return record_128(about, bytes);
	if (about->captured <= 512)
		return record_512(about, bytes);
	if (about->captured <= 2048)
		return record_2048(about, bytes);
	return record_16384(about, bytes);
}

static __always_inline int capture(struct sk_buff *skb, const void *location, __u32 reason,
				   struct sock *receiver)
{
	struct owner owner = owner_of(skb, receiver);
	struct drop_site site = { .location = (__u64)location, .reason = reason };
	struct drop_record about = {};
	struct drop_counts *counts;
	struct extent extent;
	__u32 captured;

	if (owner.is_message)
		return 0;
	if (config.some_namespaces && !bpf_map_lookup_elem(&namespaces, &owner.netns))
		return 0;
	extent = extent_of(skb, &owner);
	about.interface.netns = owner.netns;
	about.interface.device = owner.index;
	about.interface.link = extent.link;
	counts = counts_of(&about.interface);
	if (!counts)
		return 0;
	counts->seen += 1;
	if (extent.link == LINK_NONE)
		return 0;
	if (bpf_map_lookup_elem(&normal_sites, &site)) {
		counts->normal += 1;
		return 0;
	}
	about.time = bpf_ktime_get_ns();
	about.location = site.location;
	about.lost = counts->lost - counts->told;
	about.reason = reason;
	about.length = extent.length;
	captured = extent.end > extent.start ? extent.end - extent.start : 0;
	about.captured = captured < config.snaplen ? captured : config.snaplen;
	about.segments = segments_of(skb);
	about.flags = flags_of(skb, &owner, &extent);
	if (about.flags & DROP_TAGGED) {
		about.tag = skb->vlan_tci;
		about.tag_protocol = skb->vlan_proto;
	}
	if (record(&about, skb->head + extent.start))
		counts->told = counts->lost;
	else
		counts->lost += 1;
	return 0;
}

/* Linux 6.11 tells the socket that refused the packet. */
SEC("tp_btf/kfree_skb")
int BPF_PROG(capture_receiver, struct sk_buff *skb, void *location, int reason,
	     struct sock *receiver)
{
	return capture(skb, location, reason, receiver);
}

SEC("tp_btf/kfree_skb")
int BPF_PROG(capture_freed, struct sk_buff *skb, void *location, int reason)
{
	return capture(skb, location, reason, NULL);
}

char _license[] SEC("license") = "GPL";
