/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by drops.bpf.c and src/ledger/capture/abi.rs: see shared.h. */
#ifndef WEIR_DROPS_H
#define WEIR_DROPS_H

#include "shared.h"

enum drops_constants {
	/* The most bytes of a packet that a record can have. */
	MAX_SNAPLEN = 16384,
};

/* The first layer of a packet's bytes. */
enum drop_link {
	LINK_ETHERNET,
	LINK_IP,
	/* Neither: a message of a unix or netlink socket, or of a device that is not of Ethernet or IP. */
	LINK_NONE,
};

enum drop_flags {
	DROP_INBOUND = 1,
	DROP_OUTBOUND = 2,
	/* The checksum is to be filled in by the device. */
	DROP_NO_CHECKSUM = 4,
	/* The device is to cut it into segments, or they were merged on receipt. */
	DROP_SEGMENTED = 8,
	DROP_TAGGED = 16,
};

struct drops_config {
	__u32 snaplen;
	/* Whether only the namespaces in `namespaces` count. */
	__u32 some_namespaces;
	/* Bytes in the ring from which on its reader is woken. */
	__u64 wake_at;
};

/* A device as far as packets of one kind are concerned, an interface of the file. */
struct drop_interface {
	__u32 netns;
	__u32 device;
	__u32 link;
};

/* Freed packets. */
struct drop_counts {
	__u64 seen;
	__u64 normal; /* of a site in `normal_sites`: no record is made */
	__u64 lost;   /* no room in the ring */
	__u64 told;   /* of these, those that a record has told */
};

/* A reason at a place. */
struct drop_site {
	__u64 location;
	__u32 reason;
	__u32 unused;
};

/* A record in the ring; `captured` bytes of the packet follow. */
struct drop_record {
	__u64 time; /* CLOCK_MONOTONIC, ns */
	__u64 location;
	__u64 lost; /* packets of the interface without a record since the last one, on the same CPU */
	struct drop_interface interface;
	__u32 reason;
	__u32 length; /* on the wire, without a tag beside the data */
	__u32 captured;
	__u32 segments;
	__u32 flags;
	__u16 tag;	    /* VLAN, with its priority */
	__u16 tag_protocol; /* as in the frame */
	__u32 unused;
};

#endif
