/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by switch.bpf.c and src/switch/abi.rs: see shared.h. */
#ifndef WEIR_SWITCH_H
#define WEIR_SWITCH_H

#include "shared.h"

enum switch_constants {
	/* Slots that are tried for a device before it counts as none of the bridge's. */
	PROBES = 8,
	/* Addresses in a bucket, and buckets that are searched for one. */
	BUCKET_SLOTS = 4,
	BUCKETS = 4,
	/* Words of a set of VLANs. */
	VLAN_WORDS = 64,
	VLANS = 4096,
	/* Bytes of a frame that a sample has: all of one of the usual MTU, with two tags. */
	SAMPLE_BYTES = 1536,
	/* A meter counts the frames of so many nanoseconds. */
	METER_NS = 100000000,
};

/* Bits of `port.flags`. */
enum port_flag {
	/* In the state "forwarding", with nothing in use that only the kernel honours. */
	PORT_FORWARDING = 1 << 0,
	/* Frames that an XDP program redirects to it are sent. */
	PORT_XDP_EGRESS = 1 << 1,
	PORT_ISOLATED = 1 << 2,
	/* The kernel learns the source addresses of its frames. */
	PORT_LEARNING = 1 << 3,
	/* One of `port.storm` is set. */
	PORT_STORM = 1 << 4,
	/* `port.mac_limit` is set. */
	PORT_MAC_LIMIT = 1 << 5,
};

/* The kinds of frames that have a storm meter. */
enum storm {
	STORM_BROADCAST,
	STORM_MULTICAST,
	STORM_UNKNOWN,
	STORMS
};

/* The fate of a frame that was not forwarded here. All but the last two went on to the kernel. */
enum reason {
	REASON_PAUSED,	 /* no heartbeat, or the mirror is not up to date */
	REASON_PORT,	 /* the port is not forwarding */
	REASON_SHORT,	 /* no Ethernet header, or no room for a tag */
	REASON_GROUP,	 /* a broadcast or multicast address */
	REASON_PROTOCOL, /* ARP, ICMPv6 */
	REASON_TAGS,	 /* several tags, or a tag of priority only */
	REASON_VLAN,	 /* the port is not in the VLAN, or has none for frames without a tag */
	REASON_SOURCE_UNKNOWN, /* not in the FDB, or not for long enough */
	REASON_SOURCE_MOVED,   /* in the FDB at another port */
	REASON_UNKNOWN,	       /* the destination is not in the FDB */
	REASON_REFRESH, /* the first of an epoch from its address, whose age the kernel resets */
	REASON_MOVED, /* the destination's entry is in doubt since its address came from another port */
	REASON_SAME_PORT, /* the destination is behind the port that the frame came from */
	REASON_EGRESS, /* the destination's port is not forwarding, or cannot be sent to from here */
	REASON_EGRESS_VLAN, /* the destination's port is not in the VLAN */
	REASON_ISOLATED,    /* both ports are isolated */
	REASON_MTU,	    /* too long for the destination's port */
	REASON_STORM,	    /* dropped: above the rate of a storm meter */
	REASON_MAC_LIMIT,   /* dropped: a new address above the port's limit */
	REASONS
};

/* Set before the programs are loaded: constants to the verifier, so unused code costs nothing. */
struct switch_features {
	__u64 hash_factor; /* odd, and different in each switch, so that nobody can aim at a bucket */
	__u32 bucket_mask;   /* number of buckets, a power of two, less one */
	__u32 slot_mask;     /* number of slots, a power of two, less one */
	__u32 vlan_protocol; /* of a VLAN-aware bridge, in network byte order; 0 for another one */
	__u32 hash_shift; /* of a key times the factor, the upper bits are the number of the bucket */
};

/* Changed while the programs run. */
struct switch_config {
	__u64 deadline; /* in CLOCK_MONOTONIC's nanoseconds: from then on the kernel gets all frames */
	__u64 sample_until; /* in CLOCK_MONOTONIC's nanoseconds */
	__u64 sample_one_in;
	__u32 epoch; /* see `fdb_place.used` */
	__u32 padding;
};

/* A device of the bridge, at its index or, where that slot is taken, one of the next. */
struct slot {
	__u32 ifindex; /* 0: none */
	__u32 port;    /* the number of its port; those of a bond have that of the bond */
};

struct port {
	__u32 ifindex;
	__u32 flags;
	__u32 mtu;
	__u32 pvid;	     /* 0: none */
	__u32 storm[STORMS]; /* frames a second; 0: no limit */
	__u32 mac_limit;
	__u32 macs; /* addresses behind it when `newcomers_seen` had been counted */
	__u32 padding;
	__u64 newcomers_seen; /* see `meter.newcomers` */
};

struct port_vlans {
	__u64 member[VLAN_WORDS];
	__u64 untagged[VLAN_WORDS];
};

/* Bits of `fdb_place.flags`. */
enum place_flag {
	/* To be used. A place of zeros is not, so the order in which a key and its place are read does not matter. */
	PLACE_ACTIVE = 1 << 0,
	/* The kernel forgets the address when it gets no frame from it. */
	PLACE_AGES = 1 << 1,
};

/* Eight bytes, which user space writes at once. */
struct fdb_place {
	__u16 port;
	__u8 flags;
	__u8 moved; /* set by the programs: its address was seen at another port since it was written */
	__u32 used; /* the last epoch in which the kernel got a frame from it; set by the programs, too */
};

/*
 * Addresses whose hash, the upper bits of a product, is the bucket's number or a little less. A key is the
 * address in its first six bytes and the VLAN, 0 in a bridge that is not VLAN-aware, in the last two; 0 is none.
 * User space alone adds and removes: the place comes before its key, and goes after it. A bucket is one cache
 * line, and the only one that a look-up needs when the table is half full.
 */
struct fdb_bucket {
	__u64 key[BUCKET_SLOTS];
	struct fdb_place place[BUCKET_SLOTS];
};

/* The state of a port's meters, written by the programs alone. */
struct meter {
	__u64 start[STORMS];
	__u64 count[STORMS];
	__u64 newcomers; /* addresses that were let through to be learned */
};

struct newcomer_key {
	__u64 address; /* as in a bucket */
	__u32 port;
	__u32 padding;
};

struct newcomer_value {
	__u64 number; /* of the newcomer at its port */
};

/* Of a port, for each CPU. */
struct port_counters {
	__u64 rx_packets; /* forwarded here, by the port that they came from */
	__u64 rx_bytes;
	__u64 tx_packets; /* and by the port that they went to */
	__u64 tx_bytes;
	__u64 reasons[REASONS];
};

/* Of a VLAN, for each CPU. */
struct vlan_counters {
	__u64 packets;
	__u64 bytes;
};

/* A forwarded frame, as it came. */
struct sample {
	__u64 time; /* CLOCK_MONOTONIC */
	__u32 ingress;
	__u32 egress;
	__u32 vlan;   /* of the tag beside the frame; 0: none */
	__u32 length; /* of the whole frame */
	__u32 bytes_used;
	__u32 padding;
	__u8 bytes[SAMPLE_BYTES];
};

#endif
