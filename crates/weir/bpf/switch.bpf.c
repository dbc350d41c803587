// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The fast path of a Linux bridge: frames between known addresses go from port to port here. All
 * others go on to the kernel's bridge, which learns, floods and ages; user space mirrors its forwarding
 * database (FDB), its VLANs and its ports into the maps. `switch_xdp` is for drivers and `switch_tcx` for
 * devices that carry frames with pending offloads; both decide alike.
 *
 * The source address is checked first: it must be known behind the port that the frame came from.
 * An address that comes from another port has moved. Its entry is marked, so that from this frame on
 * nothing is sent to the old port, and the kernel learns the new one from this same frame.
 *
 * An entry is pending when it is written. User space has it used only after it has read everything that the
 * kernel reported until some time later, so one that was outdated when it was written is corrected
 * before it is used.
 *
 * The kernel forgets an address when it gets no frame from it for long. So it gets the first of each
 * epoch, of which the ageing time has several. (RTM_NEWNEIGH with NTF_USE would reset an age, too, but
 * creates entries in other VLANs, and takes back a move that it crosses.)
 *
 * User space that is silent for too long is out of date: past `switch_config.deadline` the kernel gets
 * every frame.
 *
 * Variants with one defect each, for tests that must notice them, are compiled with BROKEN set.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "switch.h"

#ifndef BROKEN
#define BROKEN 0
#endif
#define BROKEN_SOURCE_CHECK 1 /* a source may be behind any port */
#define BROKEN_MOVE 2	      /* an address that moves is not marked */
#define BROKEN_ISOLATION 3
#define BROKEN_MTU 4
#define BROKEN_UNTAG 5 /* the tag stays on access ports */
#define BROKEN_STATE 6 /* blocked ports forward */
#define BROKEN_VLAN 7  /* membership of the destination's port is not checked */
#define BROKEN_DEADLINE 8

SHARED_ENUM(switch_constants);
SHARED_ENUM(port_flag);
SHARED_ENUM(place_flag);
SHARED_ENUM(storm);
SHARED_ENUM(reason);
/* Otherwise known by pointers only, and so not in the object's types. */
const struct sample sample_layout SEC("shared_enums");

const volatile struct switch_features features;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct switch_config);
} config SEC(".maps");

/* The sizes of these are set before they are made. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct port);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct port_vlans);
} port_vlans SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} devices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fdb_bucket);
} fdb SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct meter);
} meters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct newcomer_key);
	__type(value, struct newcomer_value);
} newcomers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct port_counters);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct vlan_counters);
} vlan_counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} samples SEC(".maps");

/* `struct vlan_hdr`, which the kernel does not export. */
struct vlan_tag {
	__be16 tci;
	__be16 type;
};

#define VLAN_ID 0x0fff
#define IPV6_NEXT_HEADER 6 /* its offset in the header */
#define PPPOE_HLEN 8	   /* PPPOE_SES_HLEN of linux/if_pppox.h */
#define ICMPV6 58	   /* IPPROTO_ICMPV6 of linux/in6.h */

/* A frame, as both programs see it. */
struct frame {
	struct ethhdr *ethernet;
	__u32 ifindex;
	__u32 length;	 /* without a tag */
	__be16 protocol; /* behind the first tag */
	__be16 tag_type; /* of the first tag; 0: none */
	__u16 vid;	 /* in the first tag */
	bool is_gso;
	bool is_icmpv6;
	bool is_xdp;
};

struct verdict {
	struct switch_config *config;
	struct port *port; /* to send to, or null */
	__u32 number;	   /* of that port */
	__u16 vid;
	bool push;
	bool pop;
	bool drop;
};

static __always_inline bool is_vlan(__be16 type)
{
	return type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD);
}

static __always_inline bool is_group(const __u8 *mac)
{
	return mac[0] & 1;
}

static __always_inline bool is_broadcast(const __u8 *mac)
{
	return (mac[0] & mac[1] & mac[2] & mac[3] & mac[4] & mac[5]) == 0xff;
}

/* 01:80:c2:00:00:0x: what bridges say to each other, such as BPDUs and LACPDUs. */
static __always_inline bool is_link_local(const __u8 *mac)
{
	return mac[0] == 0x01 && mac[1] == 0x80 && mac[2] == 0xc2 && !mac[3] && !mac[4] &&
	       mac[5] < 0x10;
}

static __always_inline bool has_vlan(const __u64 *set, __u16 vid)
{
	return set[(vid / 64) % VLAN_WORDS] & 1ULL << vid % 64;
}

static __always_inline struct slot *slot_of(__u32 ifindex)
{
	for (int i = 0; i < PROBES; i++) {
		__u32 at = (ifindex + i) & features.slot_mask;
		struct slot *slot = bpf_map_lookup_elem(&slots, &at);

		if (!slot)
			return NULL;
		if (slot->ifindex == ifindex)
			return slot;
	}
	return NULL;
}

/* Whether one more frame of this kind is above the port's rate. */
static __always_inline bool is_storm(struct port *port, __u32 number, enum storm kind)
{
	struct meter *meter;
	__u64 now, limit = port->storm[kind];

	if (!(port->flags & PORT_STORM) || !limit)
		return false;
	meter = bpf_map_lookup_elem(&meters, &number);
	if (!meter)
		return false;
	now = bpf_ktime_get_ns();
	/* CPUs that begin the next time together count some frames less. */
	if (now - meter->start[kind] >= METER_NS) {
		meter->start[kind] = now;
		meter->count[kind] = 0;
	}
	limit = limit * (METER_NS / 1000) / 1000000;
	return __sync_fetch_and_add(&meter->count[kind], 1) >= (limit ?: 1);
}

/* Whether an address that is not in the FDB is one more than the port may have. */
static __always_inline bool is_above_limit(struct port *port, __u32 number, __u64 address)
{
	struct newcomer_key newcomer = { .address = address, .port = number };
	struct newcomer_value admitted = {}, *known;
	struct meter *meter;

	if (!(port->flags & PORT_MAC_LIMIT))
		return false;
	meter = bpf_map_lookup_elem(&meters, &number);
	if (!meter)
		return false;
	known = bpf_map_lookup_elem(&newcomers, &newcomer);
	/* User space has not counted it yet. */
	if (known && known->number >= port->newcomers_seen)
		return false;
	if (port->macs + meter->newcomers - port->newcomers_seen >= port->mac_limit)
		return true;
	admitted.number = __sync_fetch_and_add(&meter->newcomers, 1);
	bpf_map_update_elem(&newcomers, &newcomer, &admitted, BPF_ANY);
	return false;
}

static __always_inline void count(struct port_counters *counters, enum reason reason)
{
	counters->reasons[reason]++;
}

/* Frames that the kernel's bridge treats in other ways than by its FDB alone. */
static __always_inline bool is_for_kernel(const struct frame *frame)
{
	/* br_netfilter drops one without a whole header, rules or not. */
	if (frame->protocol == bpf_htons(ETH_P_PPP_SES) && frame->length < ETH_HLEN + PPPOE_HLEN)
		return true;
	return frame->protocol == bpf_htons(ETH_P_ARP) || frame->is_icmpv6;
}

/*
 * Finds the VLAN of a frame that came to a port: that of its tag, or the port's own. A tag of another
 * type than the bridge's is no tag to it.
 */
static __always_inline int classify(const struct frame *frame, const struct port *port,
				    __u32 number, __u16 *vid)
{
	struct port_vlans *vlans;

	*vid = 0;
	if (!features.vlan_protocol)
		return -1;
	if (frame->tag_type == features.vlan_protocol)
		*vid = frame->vid;
	if (!*vid)
		*vid = port->pvid;
	vlans = bpf_map_lookup_elem(&port_vlans, &number);
	if (!vlans || !*vid || !has_vlan(vlans->member, *vid))
		return REASON_VLAN;
	return -1;
}

/*
 * Whether only the kernel handles the tags: several, or one of another type or of priority alone. Without VLANs
 * it handles any: a VLAN device on the port takes its frames before the bridge sees them.
 */
static __always_inline bool has_odd_tags(const struct frame *frame)
{
	if (is_vlan(frame->protocol))
		return true;
	return frame->tag_type && (frame->tag_type != features.vlan_protocol || !frame->vid);
}

/* The key of an address. */
static __always_inline __u64 key_of(const __u8 *mac, __u16 vid)
{
	return *(__u32 *)mac | (__u64) * (__u16 *)(mac + 4) << 32 | (__u64)vid << 48;
}

/* The place of an address, read into `now` at once; null for an unknown one. */
static __always_inline struct fdb_place *find(__u64 key, struct fdb_place *now)
{
	__u32 first = (key * features.hash_factor) >> features.hash_shift;

	/* An empty slot has the key of zeros. */
	if (!key)
		return NULL;
	for (int i = 0; i < BUCKETS; i++) {
		__u32 number = (first + i) & features.bucket_mask;
		struct fdb_bucket *bucket = bpf_map_lookup_elem(&fdb, &number);

		if (!bucket)
			return NULL;
		for (int slot = 0; slot < BUCKET_SLOTS; slot++) {
			volatile __u64 *there = &bucket->key[slot];

			if (*there != key)
				continue;
			*(__u64 *)now = *(volatile __u64 *)&bucket->place[slot];
			/* Another address may have come into the slot since its key was read. */
			return *there == key ? &bucket->place[slot] : NULL;
		}
	}
	return NULL;
}

/*
 * Checks that the source address is known behind the port, and marks the entry of one that is known
 * behind another: the kernel learns the new port from this frame, whatever its destination.
 */
static __always_inline int check_source(struct port *port, __u32 number, __u64 key,
					const struct switch_config *config, bool is_control)
{
	struct fdb_place now = {}, *source = find(key, &now);

	if (!source)
		return !is_control && is_above_limit(port, number, key) ? REASON_MAC_LIMIT
									: REASON_SOURCE_UNKNOWN;
	if (now.port != number && BROKEN != BROKEN_SOURCE_CHECK) {
		if (!is_control && is_above_limit(port, number, key))
			return REASON_MAC_LIMIT;
		if (BROKEN != BROKEN_MOVE && port->flags & PORT_LEARNING)
			source->moved = 1;
		return REASON_SOURCE_MOVED;
	}
	if (now.moved || !(now.flags & PLACE_ACTIVE))
		return REASON_SOURCE_UNKNOWN;
	if (now.flags & PLACE_AGES && now.used != config->epoch) {
		source->used = config->epoch;
		return REASON_REFRESH;
	}
	return -1;
}

/* The checks of a frame whose ports are known, but for its VLAN. */
static __always_inline int check_egress(const struct frame *frame, const struct port *in,
					const struct port *out)
{
	__u32 needed = frame->is_xdp ? PORT_FORWARDING | PORT_XDP_EGRESS : PORT_FORWARDING;

	if (BROKEN == BROKEN_STATE)
		needed &= ~PORT_FORWARDING;
	if ((out->flags & needed) != needed)
		return REASON_EGRESS;
	if (BROKEN != BROKEN_ISOLATION && in->flags & out->flags & PORT_ISOLATED)
		return REASON_ISOLATED;
	if (BROKEN != BROKEN_MTU && frame->length > out->mtu + ETH_HLEN && !frame->is_gso)
		return REASON_MTU;
	return -1;
}

/* Decides about the tag. */
static __always_inline int check_tag(const struct frame *frame, struct verdict *verdict)
{
	struct port_vlans *vlans;
	bool untagged;

	if (!features.vlan_protocol)
		return -1;
	vlans = bpf_map_lookup_elem(&port_vlans, &verdict->number);
	if (!vlans || (BROKEN != BROKEN_VLAN && !has_vlan(vlans->member, verdict->vid)))
		return REASON_EGRESS_VLAN;
	untagged = has_vlan(vlans->untagged, verdict->vid);
	verdict->pop = BROKEN != BROKEN_UNTAG && frame->tag_type && untagged;
	verdict->push = !frame->tag_type && !untagged;
	return -1;
}

/* Finds the port of the destination address. */
static __always_inline int look_up(const struct frame *frame, struct port *port, __u32 number,
				   __u64 key, struct verdict *verdict)
{
	struct fdb_place now = {};
	int reason;

	if (!find(key, &now))
		return is_storm(port, number, STORM_UNKNOWN) ? REASON_STORM : REASON_UNKNOWN;
	if (now.moved || !(now.flags & PLACE_ACTIVE))
		return REASON_MOVED;
	if (now.port == number)
		return REASON_SAME_PORT;
	verdict->number = now.port;
	verdict->port = bpf_map_lookup_elem(&ports, &verdict->number);
	if (!verdict->port)
		return REASON_EGRESS;
	reason = check_egress(frame, port, verdict->port);
	return reason >= 0 ? reason : check_tag(frame, verdict);
}

/* Returns the reason to leave the frame to the kernel, or -1 with the port to send to. */
static __always_inline int forward(const struct frame *frame, struct port *port, __u32 number,
				   struct verdict *verdict)
{
	bool forwards = port->flags & PORT_FORWARDING || BROKEN == BROKEN_STATE;
	const __u8 *destination = frame->ethernet->h_dest;
	bool is_control;
	int reason;

	/* A port that learns and does not forward is left to the kernel; its addresses are watched. */
	if (!forwards && !(port->flags & PORT_LEARNING))
		return REASON_PORT;
	reason = classify(frame, port, number, &verdict->vid);
	if (reason >= 0)
		return reason;
	is_control = is_link_local(destination);
	reason = check_source(port, number, key_of(frame->ethernet->h_source, verdict->vid),
			      verdict->config, is_control);
	/* Without its BPDUs a blocked port would forward, and without its LACPDUs a bond ends. */
	if (is_control)
		return REASON_GROUP;
	if (reason == REASON_MAC_LIMIT)
		return reason;
	if (is_group(destination)) {
		enum storm kind = is_broadcast(destination) ? STORM_BROADCAST : STORM_MULTICAST;

		return is_storm(port, number, kind) ? REASON_STORM : REASON_GROUP;
	}
	if (!forwards)
		return REASON_PORT;
	if (reason >= 0)
		return reason;
	if (has_odd_tags(frame))
		return REASON_TAGS;
	if (is_for_kernel(frame))
		return REASON_PROTOCOL;
	return look_up(frame, port, number, key_of(destination, verdict->vid), verdict);
}

static __always_inline void count_forwarded(const struct frame *frame, struct port_counters *in,
					    const struct verdict *verdict)
{
	struct port_counters *out;
	struct vlan_counters *vlan;
	__u32 vid = verdict->vid;

	in->rx_packets++;
	in->rx_bytes += frame->length;
	out = bpf_map_lookup_elem(&counters, &verdict->number);
	if (out) {
		out->tx_packets++;
		out->tx_bytes += frame->length;
	}
	if (!features.vlan_protocol)
		return;
	vlan = bpf_map_lookup_elem(&vlan_counters, &vid);
	if (vlan) {
		vlan->packets++;
		vlan->bytes += frame->length;
	}
}

/* Fills in `verdict`, whose port is null for a frame that the kernel gets. */
static __always_inline void decide(const struct frame *frame, struct verdict *verdict)
{
	struct port_counters *counter;
	struct slot *slot;
	struct port *port;
	__u32 zero = 0, number;
	int reason;

	verdict->config = bpf_map_lookup_elem(&config, &zero);
	slot = slot_of(frame->ifindex);
	if (!verdict->config || !slot)
		return;
	number = slot->port;
	port = bpf_map_lookup_elem(&ports, &number);
	counter = bpf_map_lookup_elem(&counters, &number);
	if (!port || !counter)
		return;
	if (BROKEN != BROKEN_DEADLINE && bpf_ktime_get_coarse_ns() >= verdict->config->deadline)
		reason = REASON_PAUSED;
	else
		reason = forward(frame, port, number, verdict);
	if (reason < 0) {
		count_forwarded(frame, counter, verdict);
		return;
	}
	verdict->port = NULL;
	verdict->drop = reason == REASON_STORM || reason == REASON_MAC_LIMIT;
	if (reason < REASONS)
		count(counter, reason);
}

/* Room for a sample of this frame, if it is one to be sampled. */
static __always_inline struct sample *sample_of(const struct frame *frame,
						const struct verdict *verdict)
{
	struct switch_config *now = verdict->config;
	struct sample *sample;

	if (!now->sample_one_in || bpf_get_prandom_u32() % now->sample_one_in)
		return NULL;
	if (bpf_ktime_get_coarse_ns() >= now->sample_until)
		return NULL;
	sample = bpf_ringbuf_reserve(&samples, sizeof(*sample), 0);
	if (!sample)
		return NULL;
	sample->time = bpf_ktime_get_ns();
	sample->ingress = frame->ifindex;
	sample->egress = verdict->port->ifindex;
	sample->vlan = 0;
	sample->padding = 0;
	return sample;
}

/* The bytes of a frame that fit in a sample. */
static __always_inline __u64 sample_length(__u64 length)
{
	return length < SAMPLE_BYTES ? length : SAMPLE_BYTES;
}

/* Puts a tag behind the addresses of a frame. */
static __always_inline int push_tag(struct xdp_md *ctx, __u16 vid)
{
	struct vlan_tag *tag;
	void *data, *end;
	__u8 addresses[2 * ETH_ALEN];

	if (bpf_xdp_adjust_head(ctx, -(int)sizeof(*tag)))
		return -1;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + sizeof(*tag) + ETH_HLEN > end)
		return -1;
	__builtin_memcpy(addresses, data + sizeof(*tag), sizeof(addresses));
	__builtin_memcpy(data, addresses, sizeof(addresses));
	/* The type of the frame stays where it is, as that behind the tag. */
	tag = data + sizeof(addresses) + sizeof(__be16);
	tag->tci = bpf_htons(vid);
	*(__be16 *)(data + sizeof(addresses)) = features.vlan_protocol;
	return 0;
}

/* Removes the tag: the addresses move up to the type behind it. */
static __always_inline int pop_tag(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u8 addresses[2 * ETH_ALEN];

	if (data + sizeof(struct vlan_tag) + ETH_HLEN > end)
		return -1;
	__builtin_memcpy(addresses, data, sizeof(addresses));
	__builtin_memcpy(data + sizeof(struct vlan_tag), addresses, sizeof(addresses));
	return bpf_xdp_adjust_head(ctx, sizeof(struct vlan_tag));
}

SEC("xdp")
int switch_xdp(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct vlan_tag *tag = data + ETH_HLEN;
	struct frame frame = { .ethernet = data, .ifindex = ctx->ingress_ifindex, .is_xdp = true };
	struct verdict verdict = {};
	struct sample *sample;
	void *next = data + ETH_HLEN;

	/* With a tag pushed it would have no type behind the tag, and the kernel drops such a frame. */
	if (data + ETH_HLEN + sizeof(__be16) > end)
		return XDP_PASS;
	frame.length = end - data;
	frame.protocol = frame.ethernet->h_proto;
	if (is_vlan(frame.protocol)) {
		/* The kernel drops one without two bytes behind the tag. */
		if ((void *)(tag + 1) + sizeof(__be16) > end)
			return XDP_PASS;
		frame.tag_type = frame.protocol;
		frame.protocol = tag->type;
		frame.vid = bpf_ntohs(tag->tci) & VLAN_ID;
		frame.length -= sizeof(*tag);
		next = tag + 1;
	}
	if (frame.protocol == bpf_htons(ETH_P_IPV6))
		frame.is_icmpv6 = next + IPV6_NEXT_HEADER + 1 > end ||
				  *(__u8 *)(next + IPV6_NEXT_HEADER) == ICMPV6;
	decide(&frame, &verdict);
	if (!verdict.port)
		return verdict.drop ? XDP_DROP : XDP_PASS;

	sample = sample_of(&frame, &verdict);
	if (sample) {
		__u64 length = sample_length(end - data);

		sample->length = end - data;
		sample->bytes_used = length;
		/* The verifier wants to see that it is neither empty nor too long. */
		barrier_var(length);
		if (length >= ETH_HLEN && !bpf_xdp_load_bytes(ctx, 0, sample->bytes, length))
			bpf_ringbuf_submit(sample, 0);
		else
			bpf_ringbuf_discard(sample, 0);
	}
	if (verdict.push && push_tag(ctx, verdict.vid))
		return XDP_DROP;
	if (verdict.pop && pop_tag(ctx))
		return XDP_DROP;
	/* A device that has just gone: the kernel knows by now. But with another tag it is of another VLAN there. */
	return bpf_redirect_map(&devices, verdict.number,
				verdict.push || verdict.pop ? XDP_DROP : XDP_PASS);
}

SEC("tcx/ingress")
int switch_tcx(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data;
	void *end = (void *)(long)skb->data_end;
	struct frame frame = { .ethernet = data, .ifindex = skb->ifindex };
	struct verdict verdict = {};
	struct sample *sample;
	__u8 next_header = ICMPV6;

	if (data + ETH_HLEN > end)
		return TC_ACT_UNSPEC;
	frame.length = skb->len;
	frame.protocol = frame.ethernet->h_proto;
	frame.is_gso = skb->gso_size;
	if (skb->vlan_present) {
		/* The kernel has taken the tag out of the frame. */
		frame.tag_type = skb->vlan_proto;
		frame.vid = skb->vlan_tci & VLAN_ID;
	}
	if (frame.protocol == bpf_htons(ETH_P_IPV6)) {
		/* Left as it is where the frame is too short. */
		bpf_skb_load_bytes(skb, ETH_HLEN + IPV6_NEXT_HEADER, &next_header,
				   sizeof(next_header));
		frame.is_icmpv6 = next_header == ICMPV6;
	}
	decide(&frame, &verdict);
	if (!verdict.port)
		return verdict.drop ? TC_ACT_SHOT : TC_ACT_UNSPEC;

	sample = sample_of(&frame, &verdict);
	if (sample) {
		__u64 length = sample_length(skb->len);

		sample->length = skb->len;
		sample->bytes_used = length;
		sample->vlan = frame.tag_type ? frame.vid : 0;
		barrier_var(length);
		if (length >= ETH_HLEN && !bpf_skb_load_bytes(skb, 0, sample->bytes, length))
			bpf_ringbuf_submit(sample, 0);
		else
			bpf_ringbuf_discard(sample, 0);
	}
	if (verdict.pop && bpf_skb_vlan_pop(skb))
		return TC_ACT_SHOT;
	if (verdict.push && bpf_skb_vlan_push(skb, features.vlan_protocol, verdict.vid))
		return TC_ACT_SHOT;
	return bpf_redirect(verdict.port->ifindex, 0);
}

/* Some helpers require the GPL, one of the two licences above. */
char _license[] SEC("license") = "GPL";
