/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What load.bpf.c shares with src/bench/traffic.rs, which writes the words of load_config and reads
 * those of load_state by their place: all are plain 64-bit words, so that nothing depends on
 * how a compiler lays out a structure.
 */
#ifndef WEIR_LOAD_H
#define WEIR_LOAD_H

/* Ethernet, IPv4 and the UDP ports and length: what all frames of a flow begin with. */
#define HEADER_WORDS 5

/* Offsets in a frame; src/bench/frame.rs describes it. Every frame is at least TAIL long. */
#define MAC_RECEIVER 4 /* in the destination's address: the receiver that a frame is for */
#define UDP_SOURCE 34
#define UDP_DESTINATION 36
#define UDP_CHECKSUM 40
#define SEQUENCE 42
#define PAYLOAD 50
#define TAIL 64

/* Sequence numbers that the sink remembers, to tell a late frame from one seen before. */
#define WINDOW 1024
#define WINDOW_WORDS (WINDOW / 64)

/* Set before the programs are loaded: constants to the verifier, so unused code costs nothing. */
struct load_config {
	__u64 ifindex;	/* the device to send from */
	__u64 size;	/* of a frame, without FCS */
	__u64 interval; /* 2^-10 ns from one frame to the next, 0: as fast as it goes */
	__u64 sum;	/* what the UDP checksum of a frame numbered 0 completes */
	__u64 tail_sum; /* the part of it from TAIL on */
	__u64 load_header[HEADER_WORDS]; /* of frames to send */
	__u64 sink_header[HEADER_WORDS]; /* of frames to receive */
	__u64 payload[2]; /* what all frames have at PAYLOAD and, overlapping, TAIL - 8 */
	__u64 receivers;  /* frames are for each of so many in turn */
	__u64 by_port;	  /* receivers differ in the UDP port instead of the MAC address */
	__u64 flows;	  /* the UDP source port takes so many values in turn */
};

/* Written by the programs. Each part has one writer at a time: see load.bpf.c. */
struct load_state {
	/* of the load */
	__u64 sent;
	__u64 due; /* when the next frame is due, in 2^-10 ns */
	__u64 padding[6];
	/* of the sink, on cache lines of its own: it runs on the other CPU */
	__u64 packets;
	__u64 corrupted;
	__u64 duplicates;
	__u64 reordered;
	__u64 lost;
	__u64 expected;
	__u64 seen[WINDOW_WORDS];
};

#endif
