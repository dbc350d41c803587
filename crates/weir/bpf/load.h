/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by load.bpf.c and src/traffic/programs.rs: see shared.h. */
#ifndef WEIR_LOAD_H
#define WEIR_LOAD_H

#include "shared.h"

enum load_constants {
	/* Ethernet, IPv4 and the UDP ports and length: the same in all frames of a flow. */
	HEADER_WORDS = 5,

	/* The longest frame. */
	MAX_SIZE = 9000,

	/* Offsets in a frame; src/traffic/frame.rs describes it. Every frame is at least TAIL long. */
	MAC_RECEIVER = 4, /* in the destination's address: the receiver that a frame is for */
	UDP_SOURCE = 34,
	UDP_DESTINATION = 36,
	UDP_CHECKSUM = 40,
	SEQUENCE = 42,
	PAYLOAD = 50,
	TAIL = 64,

	/* In both addresses of a frame between stations: the station's number, big-endian. */
	STATION_DESTINATION = 2,
	STATION_SOURCE = 8,

	/* Times have so many bits below the nanosecond. */
	TIME_BITS = 10,

	/* The last sequence numbers that the sink remembers, 64 in each word, to distinguish a late
	 * frame from a duplicate. */
	WINDOW_WORDS = 16,
};

/* Set before the programs are loaded: constants to the verifier, so unused code costs nothing. */
struct load_config {
	__u64 ifindex;	/* the device to send from */
	__u64 size;	/* of a frame, without FCS */
	__u64 interval; /* time from one burst to the next, 0: as fast as possible */
	__u64 burst;	/* frames that are sent at once */
	__u64 sum;	/* completed by the UDP checksum of a frame numbered 0 */
	__u64 tail_sum; /* the part of it from TAIL on */
	__u64 load_header[HEADER_WORDS]; /* of frames to send */
	__u64 sink_header[HEADER_WORDS]; /* of frames to receive */
	__u64 payload[2]; /* of all frames, at PAYLOAD and, overlapping, at TAIL - 8 */
	__u64 receivers;  /* frames are for each of so many in turn */
	__u64 by_port;	  /* receivers differ in the UDP port instead of the MAC address */
	__u64 flows;	  /* the UDP source port takes so many values in turn */
	__u64 stations;	  /* both addresses take so many values; 0: they are those of the headers */
	__u64 sweep;	  /* the values come in turn, not by a hash of the frame's number */
};

/* The fate of the frames that the sink received. */
struct sink_counts {
	__u64 packets;
	__u64 corrupted;
	__u64 duplicates;
	__u64 reordered;
	__u64 lost;
};

/* Written by the programs. Each part has one writer at a time: see load.bpf.c. */
struct load_state {
	/* of the load */
	__u64 sent;
	__u64 due; /* when the next frame is due */
	__u64 padding[6];
	/* of the sink, on cache lines of its own: it runs on the other CPU */
	struct sink_counts sink;
	__u64 expected;
	__u64 seen[WINDOW_WORDS];
};

#endif
