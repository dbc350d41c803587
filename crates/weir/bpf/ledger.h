/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by ledger.bpf.c and src/ledger/events/abi.rs: see shared.h. */
#ifndef WEIR_LEDGER_H
#define WEIR_LEDGER_H

#include "shared.h"

enum ledger_constants {
	/* Words of the set of reasons of which the socket is counted apart: one bit for each core reason. */
	REASON_WORDS = 4,
	PROCESS_NAME = 16, /* TASK_COMM_LEN */
};

/* The events of XDP. The first two are errors, and cost nothing while nothing fails. */
enum xdp_event {
	EVENT_EXCEPTION,
	EVENT_REDIRECT_ERR,
	EVENT_REDIRECT,
	EVENT_DEVMAP_XMIT,
	EVENT_BULK_TX,
	EVENT_CPUMAP,
	EVENTS
};

struct ledger_config {
	__u64 socket_reasons[REASON_WORDS];
};

/* Freed packets are counted by these. */
struct drop_key {
	__u64 location;
	__u64 socket; /* cookie; 0 unless `socket_reasons` has the reason */
	__u32 netns;
	__u32 device;
	__u32 reason;
	__u16 protocol; /* as in the frame */
	__u16 received; /* whether it came in by a device */
};

struct drop_value {
	__u64 skbs;
	__u64 segments;
};

struct xdp_key {
	__u32 event;
	__u32 netns;
	__u32 device;
	__u32 to; /* the other device; of a map of CPUs its id */
	__u32 program;
	__s32 code; /* the error, or the action of an exception */
	__u32 map_type;
	__u32 unused;
};

struct xdp_value {
	__u64 frames;
	__u64 lost;
};

/* Packets that devices handed to the stack, which only costs when asked for. */
struct receive_key {
	__u32 netns;
	__u32 device;
};

/* A ring of an AF_XDP socket. */
struct ring_record {
	__u32 size;
	__u32 producer;
	__u32 consumer;
	__u32 unused;
	__u64 invalid;
	__u64 empty;
};

/* A socket of a process. */
struct socket_record {
	__u64 cookie;
	__u32 pid;
	__u32 fd;
	__u32 family;
	__u32 netns;
	__u8 name[PROCESS_NAME];
	__u32 protocol;
	__u32 queued; /* packets in the receive queue */
	/* AF_PACKET */
	__u32 packet_drops; /* since PACKET_STATISTICS was read last */
	__u32 packet_ring;  /* frames of its receive ring; 0 without one */
	/* AF_XDP */
	__u32 device;
	__u32 queue;
	__u32 state;
	__u32 zero_copy;
	__u32 needs_wakeup; /* XDP_WAKEUP_RX, XDP_WAKEUP_TX */
	__u32 unused;
	__u64 rx_dropped;
	__u64 rx_full;
	struct ring_record rx;
	struct ring_record tx;
	struct ring_record fill;
	struct ring_record completion;
};

#endif
