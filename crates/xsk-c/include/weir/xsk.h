/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * AF_XDP sockets: packets of one queue of a network device, past the network stack.
 *
 * A UMEM is memory for packets, divided into chunks of one packet, or a part of one, each. A socket is bound to a
 * queue of a device. A frame is a packet that the program owns, from weir_xsk_recv(),
 * weir_xsk_alloc() or WEIR_XSK_KEEP until weir_xsk_send() or weir_xsk_free() takes it.
 *
 * Errors. A function returns a number of 0 or more, or a negative error code of <errno.h>;
 * weir_xsk_error() has the text, with cause and cure. Codes that each function may return:
 *
 *   -EFAULT           a pointer is NULL
 *   -EBADF            the UMEM or socket is closed, or was never opened
 *   -EBUSY            another call on the socket is under way: of another thread, or the one whose
 *                     callback this is
 *   -EINVAL           a size, count, verdict or combination of settings is not possible
 *   -ENOTRECOVERABLE  an internal error, printed to standard error: close the socket
 *
 * Ownership. A frame is the program's until it is sent or freed, and so are the bytes behind its
 * `data`. Afterwards the program may not use it, nor a copy of it. It may be sent and freed by the
 * sockets of its UMEM alone, with `data` and `len` inside its chunk.
 *
 * Checks. A program that is compiled with WEIR_XSK_CHECKED defined calls the library for each burst of
 * packets, which checks all of that: a frame that is sent, freed, of another UMEM or made up is an
 * error, and no memory is touched. So are calls with NULL, on another thread, and in a callback of the
 * same socket. Only the bytes behind `data` C cannot check. A library built for debugging overwrites
 * the bytes of frames that are freed and of packets that are recycled with 0x5a, and prints how many
 * frames were never freed.
 *
 * Without it, weir/xsk_inline.h inlines the calls that move packets of one chunk, as libxdp does, and
 * frames are not checked: keep to the above, define it while you develop and test, and for all files of a
 * program or none. Handles of UMEMs and sockets are checked in each call of the library, either way.
 *
 * Threads. Several threads may use several sockets of one UMEM, and pass frames to each other; one
 * socket is for one thread at a time. But any thread may ask for its mode, refusals, NAPI instance,
 * descriptor, hints, requests and counters, also while another one waits in it.
 *
 * Processes. In a child of fork() handles from before are unknown, -EBADF: it has neither the memory of UMEMs nor that
 * of rings, only copies of the descriptors, until exec() or _exit(). So call daemon() first.
 *
 * Limits. A process has at most 1024 UMEMs and 4096 sockets; one more is -ENFILE.
 */
#ifndef WEIR_XSK_H
#define WEIR_XSK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct weir_xsk_umem;
struct weir_xsk_socket;

/* The text of the last error of this thread, until its next error; empty if there was none. */
const char *weir_xsk_error(void);

/*
 * Structures of settings and counters begin with their size, so that they can grow: set it to
 * sizeof, and all other fields to 0, for defaults. A library that is older than the program
 * refuses settings that it does not know with -E2BIG, and leaves counters that it does not know 0.
 */

#define WEIR_XSK_HUGE_PAGES 1u	 /* pages of 2 MiB, if there are enough free ones */
#define WEIR_XSK_COLLAPSE 2u	 /* make pages of 2 MiB of ordinary ones (Linux 6.1) */
#define WEIR_XSK_FRAGMENTS 4u	 /* packets may take several chunks (Linux 6.6) */
#define WEIR_XSK_UNALIGNED 8u	 /* chunks of any size, one behind the other (Linux 5.4) */
#define WEIR_XSK_NUMA_NODE 16u	 /* memory of the node `numa_node` */
#define WEIR_XSK_TX_METADATA 32u /* room in front of packets for requests (Linux 6.11) */

struct weir_xsk_umem_options {
	uint32_t size;
	uint32_t chunks;     /* at most 2^24; default 4096 */
	uint32_t chunk_size; /* 2048, the default, or 4096 bytes; unaligned, any between them */
	uint32_t headroom;   /* bytes kept free in front of every packet */
	uint32_t flags;	     /* those above */
	uint32_t reserved;   /* 0 */
	uint32_t numa_node;  /* with WEIR_XSK_NUMA_NODE; else 0 */
};

/*
 * Makes a UMEM; `options` may be NULL. A UMEM of unaligned chunks of 3000 bytes takes a quarter less memory than
 * one of 4096; a socket in mode ZC takes only chunks that do not lie across pages.
 *
 *   -ENOMEM   there is not so much memory
 *   -ENOSYS   the kernel shows no NUMA nodes
 */
int weir_xsk_umem_create(const struct weir_xsk_umem_options *options, struct weir_xsk_umem **umem);

/*
 * Gives up a UMEM. Sockets on it stay open; its memory and frames stay until the last of them is
 * closed, which frees frames that the program still has.
 */
int weir_xsk_umem_close(struct weir_xsk_umem *umem);

/* The chunks of a UMEM by owner; their sum is the number of chunks. */
struct weir_xsk_accounting {
	uint32_t size;
	uint32_t free;	    /* in the free list of the UMEM */
	uint32_t held;	    /* in caches of sockets and in frames */
	uint32_t receiving; /* lent to the kernel for receiving */
	uint32_t sending;   /* lent to the kernel for sending */
	uint32_t retired;   /* of closed sockets; the kernel may still touch them */
	uint32_t frames;    /* of those held: frames that the program has */
};

int weir_xsk_umem_accounting(struct weir_xsk_umem *umem, struct weir_xsk_accounting *accounting);

enum weir_xsk_mode {
	WEIR_XSK_AUTO = 0, /* requested: the best that is possible */
	WEIR_XSK_SKB = 1,  /* generic XDP, with a copy */
	WEIR_XSK_DRV = 2,  /* native XDP, with a copy */
	WEIR_XSK_ZC = 3,   /* native XDP, without a copy */
	WEIR_XSK_COPY = 4, /* obtained: a copy; the socket only sends, and has no XDP program */
};

enum weir_xsk_waiting {
	WEIR_XSK_ADAPTIVE =
		0, /* selects by packet rate: blocks, sleeps while packets gather, or spins */
	WEIR_XSK_POLL = 1, /* blocks in poll(2) */
	WEIR_XSK_SPIN = 2, /* reads the ring in a loop */
	/*
	 * Runs the driver in the waiting thread (Linux 5.11, CAP_NET_ADMIN); as WEIR_XSK_SPIN on a device
	 * for which weir_xsk_napi_id() stays 0.
	 */
	WEIR_XSK_BUSY_POLL = 3,
};

#define WEIR_XSK_NO_NEED_WAKEUP 1u /* without XDP_USE_NEED_WAKEUP */
#define WEIR_XSK_OWN_PROGRAM 2u	   /* attach `program_fd`, which redirects to `map_fd` */
#define WEIR_XSK_OWN_MAP 4u	   /* attach none: the socket goes into `map_fd` */
#define WEIR_XSK_RX_HINTS 8u	   /* the built-in program asks the driver for hints (Linux 6.3) */
#define WEIR_XSK_NONE UINT32_MAX   /* no such ring; no chunks */

/*
 * A condition for packets: an EtherType, or IP and all else that is given. Ports are in the order of
 * the machine, addresses in that of the network.
 */
struct weir_xsk_rule {
	uint16_t ether_type;	   /* 0: IPv4 and IPv6; else all below is 0 */
	uint8_t protocol;	   /* IPPROTO_UDP, IPPROTO_TCP; 0: any */
	uint8_t family;		   /* AF_INET or AF_INET6: of the prefixes; 0: there are none */
	uint16_t source_port;	   /* 0: any */
	uint16_t destination_port; /* 0: any */
	uint8_t source_bits;	   /* of the prefix; 0: any address */
	uint8_t destination_bits;
	uint8_t reserved[6];
	uint8_t source[16]; /* of IPv4, the first 4 */
	uint8_t destination[16];
};

struct weir_xsk_socket_options {
	uint32_t size;
	uint32_t mode;	    /* enum weir_xsk_mode; any but WEIR_XSK_AUTO is obtained or an error */
	uint32_t flags;	    /* WEIR_XSK_NO_NEED_WAKEUP and those below it */
	uint32_t rx_ring;   /* slots, a power of two; default 2048; WEIR_XSK_NONE: only sends */
	uint32_t tx_ring;   /* the same; WEIR_XSK_NONE: only receives */
	uint32_t fill_ring; /* default 2048, or more for a card with a larger ring */
	uint32_t completion_ring; /* default 2048 */
	uint32_t fill_chunks;	  /* chunks lent for receiving; WEIR_XSK_NONE: none */
	uint32_t waiting;	  /* enum weir_xsk_waiting */
	uint32_t max_delay_us;	  /* of WEIR_XSK_ADAPTIVE: longest sleep; default 200 */
	/* On another queue of the device: its XDP program is used, also while it is in a call. NULL: one is attached. */
	struct weir_xsk_socket *program_of;
	/* The packets to take, any of so many rules; all others reach the network stack. NULL: all. */
	const struct weir_xsk_rule *rules;
	uint32_t rule_count;
	uint32_t reserved; /* 0 */
	/*
	 * With WEIR_XSK_OWN_PROGRAM, a loaded XDP program and the XSKMAP that it redirects to; with
	 * WEIR_XSK_OWN_MAP, the XSKMAP of a program that is attached already. The socket is in the slot of its
	 * queue, to which only packets of that queue may be redirected. The library copies the
	 * descriptors: the program may close its own. Else 0.
	 */
	int32_t program_fd;
	int32_t map_fd;
};

/*
 * Opens a socket on a queue of a device of this network namespace; `options` may be NULL. It
 * attaches an XDP program that redirects the packets of the queue, which is detached with the socket,
 * also when the process is killed. Sockets opened on one UMEM share the memory.
 *
 *   -EPERM       a capability is missing: CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF
 *   -ENOBUFS     the memory lock limit does not allow the UMEM
 *   -ENODEV, -ENETDOWN  no such device; it is down
 *   -ERANGE      the device has no such queue
 *   -EMSGSIZE    the MTU does not fit the chunks
 *   -EADDRINUSE  another socket has the queue
 *   -EEXIST      another XDP program is attached
 *   -EOPNOTSUPP  the mode is refused
 *   -EBADF       as above, or `program_fd` or `map_fd` is not an open descriptor
 *   -EXDEV       `program_of` is on another device; the program of `program_fd` is none of XDP, does not
 *                use the map, or is attached to another device; `map_fd` is no XSKMAP
 *   -ENOSYS      the kernel lacks a feature
 */
int weir_xsk_open(struct weir_xsk_umem *umem, const char *device, uint32_t queue,
		  const struct weir_xsk_socket_options *options, struct weir_xsk_socket **socket);

/* Closes a socket. It waits up to 100 ms for packets on their way out. */
int weir_xsk_close(struct weir_xsk_socket *socket);

/* The mode obtained, of enum weir_xsk_mode, read back from the kernel. */
int weir_xsk_mode(struct weir_xsk_socket *socket);

/*
 * Writes the text of a refusal, counted from 0: a better mode or a feature that the kernel or driver
 * refused, with the reason. Returns its length without the 0 at its end, as snprintf() does, or
 * -ENOENT when there are no more. `text` may be NULL when `size` is 0.
 */
int weir_xsk_refusal(struct weir_xsk_socket *socket, uint32_t index, char *text, size_t size);

/* The NAPI instance that WEIR_XSK_BUSY_POLL runs; 0 where there is none, or no packet came yet. */
int weir_xsk_napi_id(struct weir_xsk_socket *socket);

/* Why a socket gets and sends nothing. After any but WEIR_XSK_DEVICE_DOWN close it, and open another. */
enum weir_xsk_fault {
	WEIR_XSK_NO_FAULT = 0,
	WEIR_XSK_DEVICE_DOWN = 1, /* the socket goes on when the device is up again */
	WEIR_XSK_DEVICE_GONE = 2, /* removed, or moved to another network namespace */
	WEIR_XSK_PROGRAM_DETACHED = 3,
	WEIR_XSK_PROGRAM_REPLACED = 4, /* another XDP program is in its place */
};

/*
 * The fault of the socket's device or XDP program, of enum weir_xsk_fault. It takes a few system calls:
 * ask after an error, a link event, or some silence, not for each packet.
 */
int weir_xsk_fault(struct weir_xsk_socket *socket);

/* A packet. The program may move `data` and change `len` before sending, inside the chunk. */
struct weir_xsk_frame {
	uint8_t *data; /* its first byte */
	uint32_t len;  /* its bytes */
	uint32_t room; /* bytes from `data` to the end of the chunk, when the library wrote this */
	uint64_t handle[2];
};

/* The decisions on a received packet. */
enum weir_xsk_verdict {
	WEIR_XSK_RECYCLE = 0, /* drop it: its chunk is used for receiving again */
	WEIR_XSK_KEEP = 1,    /* it is the program's: a copy of the frame that the callback took */
	WEIR_XSK_SEND = 2,    /* send it by the socket that received it, with this data and len */
};

/*
 * Decides on one received packet. It may call functions of other sockets, not of this one, and must
 * return: no longjmp(), no exception.
 */
typedef int weir_xsk_each(struct weir_xsk_frame *packet, void *context);

/*
 * Receives up to `max` packets: calls `each` with every one, which returns WEIR_XSK_RECYCLE or
 * WEIR_XSK_KEEP. Returns the number of packets, maybe 0; it does not wait. An impossible verdict
 * recycles the packet, and the call returns -EINVAL after the last. The calls for arrays below do
 * the same with more instructions a packet.
 *
 *   -EOPNOTSUPP  the socket has no RX ring
 */
int weir_xsk_receive_each(struct weir_xsk_socket *socket, uint32_t max, weir_xsk_each *each,
			  void *context);

/*
 * The same, and `each` may return WEIR_XSK_SEND; the next weir_xsk_flush() transmits those packets.
 * It receives no more packets than the TX ring has room for.
 */
int weir_xsk_forward_each(struct weir_xsk_socket *socket, uint32_t max, weir_xsk_each *each,
			  void *context);

/* Writes one packet into `size` bytes at `room`; returns its length, or 0 to end early. */
typedef uint32_t weir_xsk_write(uint8_t *room, uint32_t size, void *context);

/*
 * Sends up to `max` packets: calls `write` for every one. Returns the number of packets written,
 * fewer when TX is full or no chunk is free; the next weir_xsk_flush() transmits them.
 *
 *   -EOPNOTSUPP  the socket has no TX ring
 *   -EMSGSIZE    `write` returned more than `size`; those before are sent
 */
int weir_xsk_send_each(struct weir_xsk_socket *socket, uint32_t max, weir_xsk_write *write,
		       void *context);

/* Receives up to `max` packets as frames; returns their number. -EOPNOTSUPP: no RX ring. */
int weir_xsk_recv(struct weir_xsk_socket *socket, struct weir_xsk_frame *frames, uint32_t max);

/* Allocates up to `count` frames, of no bytes; returns their number, fewer when no chunk is free. */
int weir_xsk_alloc(struct weir_xsk_socket *socket, struct weir_xsk_frame *frames, uint32_t count);

/*
 * Sends frames, which end with that; the next weir_xsk_flush() transmits them. Returns the number
 * sent, fewer when TX is full, or when a frame is refused: it and those behind it stay the
 * program's. The error is returned when the first is refused.
 *
 *   -EOPNOTSUPP  the socket has no TX ring
 *   -ESTALE      the frame was sent or freed already, or never was one
 *   -EXDEV       the frame is in another UMEM
 *   -EINVAL      `data` and `len` are no bytes, or not inside the chunk of the frame
 */
int weir_xsk_send(struct weir_xsk_socket *socket, const struct weir_xsk_frame *frames,
		  uint32_t count);

/* Frees frames, for receiving or sending again. Returns the number, and errors, as weir_xsk_send(). */
int weir_xsk_free(struct weir_xsk_socket *socket, const struct weir_xsk_frame *frames,
		  uint32_t count);

#define WEIR_XSK_MAX_FRAGMENTS 18u /* most frames of a packet; a card in mode ZC may send fewer */

/*
 * Receives packets of one chunk or several, on a UMEM with WEIR_XSK_FRAGMENTS: up to `max`, and as many as
 * fit into `room` frames for sure. The first counts[0] frames are the first packet's, in the order of its
 * bytes, the next counts[1] the second's. Returns the number of packets.
 *
 * The other calls receive packets of one chunk, and drop and count those of several (`fragmented`).
 *
 *   -EINVAL      `room` is less than WEIR_XSK_MAX_FRAGMENTS
 *   -EOPNOTSUPP  the socket has no RX ring
 */
int weir_xsk_recv_fragments(struct weir_xsk_socket *socket, struct weir_xsk_frame *frames,
			    uint32_t room, uint32_t *counts, uint32_t max);

/*
 * Sends `count` frames as one packet: received, allocated or both, in the order of its bytes. They end
 * with that; the next weir_xsk_flush() transmits it. Returns `count`, or 0 when TX has not so much
 * room. Then, and after an error, all of them stay the program's.
 *
 *   -EMSGSIZE    there are more than WEIR_XSK_MAX_FRAGMENTS, or than TX has slots
 *   -EOPNOTSUPP  the socket has no TX ring; several frames on a UMEM without WEIR_XSK_FRAGMENTS
 *   -EINVAL      no frame, or one of no bytes, or not inside its chunk
 *   -ESTALE      one was sent or freed already, is there twice, or never was one
 *   -EXDEV       one is in another UMEM
 */
int weir_xsk_send_fragments(struct weir_xsk_socket *socket, const struct weir_xsk_frame *frames,
			    uint32_t count);

/*
 * What the checksums of a packet say. XDP comes before the network stack, so no one has looked at those of a received
 * packet: it may be damaged. And a sender on the same host, through a veth or a tap, or in a virtual machine usually leaves a
 * partial sum, that of the pseudo-header alone, to a card that the packet never meets. The receiver of a packet that a socket
 * sends drops it unless its sums are whole.
 */
enum weir_xsk_checksum {
	WEIR_XSK_SUM_UNKNOWN = 0, /* none of the packets below */
	WEIR_XSK_SUM_CORRECT = 1,
	WEIR_XSK_SUM_PARTIAL =
		2,		 /* of a local sender: weir_xsk_checksum_complete() sums the rest */
	WEIR_XSK_SUM_ABSENT = 3, /* UDP over IPv4 may be without */
	WEIR_XSK_SUM_WRONG =
		4, /* the packet or its IPv4 header was damaged: the network stack would drop it */
};

/*
 * Checks the sums of an Ethernet packet, with up to two VLAN tags, and IPv4 or IPv6 with UDP, TCP, ICMP or ICMPv6 (RFC 768,
 * 1071, 8200): returns one of enum weir_xsk_checksum. Fragments, IPv6 packets with extension headers, and headers inside of a
 * tunnel are unknown. Only -EFAULT is an error of these three calls.
 */
int weir_xsk_checksum_check(const uint8_t *packet, uint32_t len);

/*
 * Completes a partial sum, before a received packet is sent on: returns 1, or 0 and leaves any other packet as it is. It
 * reads no more than the headers of that.
 */
int weir_xsk_checksum_complete(uint8_t *packet, uint32_t len);

/*
 * Writes the sums of a packet that the program made or changed; all other fields must be there, the lengths included. Returns
 * 1, or 0 and writes nothing for an unknown packet.
 */
int weir_xsk_checksum_write(uint8_t *packet, uint32_t len);

/*
 * Hints: what the driver knows of a received packet, by the built-in program of a socket with
 * WEIR_XSK_RX_HINTS in mode DRV or ZC. A driver has some of them, and some for some packets alone.
 */
#define WEIR_XSK_HINT_TIMESTAMP 1u
#define WEIR_XSK_HINT_HASH 2u
#define WEIR_XSK_HINT_VLAN 4u

struct weir_xsk_rx_hints {
	uint32_t flags;		/* the hints that are there; the fields of others are 0 */
	uint32_t hash;		/* of the packet's flow, as for receive side scaling */
	uint32_t hash_kind;	/* enum xdp_rss_hash_type of the kernel; 0: unknown */
	uint16_t vlan_protocol; /* of the tag that was taken out of the packet: 0x8100, 0x88a8 */
	uint16_t vlan_tci;	/* the VLAN in the lower 12 bits */
	uint64_t timestamp;	/* nanoseconds of the card's clock */
	uint64_t reserved;	/* 0 */
};

/*
 * Receives as weir_xsk_recv() does, and writes the hints of the packet in frames[i] to hints[i]. Without
 * WEIR_XSK_RX_HINTS there are none.
 */
int weir_xsk_recv_with_hints(struct weir_xsk_socket *socket, struct weir_xsk_frame *frames,
			     struct weir_xsk_rx_hints *hints, uint32_t max);

/* Whether packets have hints: 1, or 0 without WEIR_XSK_RX_HINTS or with a weir_xsk_refusal() of them. */
int weir_xsk_has_rx_hints(struct weir_xsk_socket *socket);

/* Requests to the kernel or the card with a packet, on a UMEM with WEIR_XSK_TX_METADATA. */
#define WEIR_XSK_TX_CHECKSUM 1u	   /* of the bytes from `checksum_start` to the packet's end */
#define WEIR_XSK_TX_TIMESTAMP 2u   /* the time at which it is sent */
#define WEIR_XSK_TX_LAUNCH_TIME 4u /* it waits in the card until `launch_time` (Linux 6.15) */

struct weir_xsk_tx_request {
	uint32_t size;
	uint32_t flags; /* the requests; the fields of others are not read */
	/* csum_start and csum_offset of a struct sk_buff; their sum has the pseudo-header's sum before. */
	uint16_t checksum_start;
	uint16_t checksum_offset;
	uint32_t reserved;    /* 0 */
	uint64_t tag;	      /* any number; the timestamp has it, too */
	uint64_t launch_time; /* nanoseconds of the card's clock */
};

/*
 * Sends `count` frames as one packet with a request, as weir_xsk_send_fragments() does without: 1 is an
 * ordinary packet, more are one of several chunks, whose first has the place of the checksum.
 *
 *   -EOPNOTSUPP  as there, or the device does not do what is requested, or the UMEM is without
 *                WEIR_XSK_TX_METADATA
 *   -EINVAL      as there, or unknown flags, or a checksum outside the packet
 */
int weir_xsk_send_with(struct weir_xsk_socket *socket, const struct weir_xsk_frame *frames,
		       uint32_t count, const struct weir_xsk_tx_request *request);

/*
 * The requests that weir_xsk_send_with() takes, as flags: in the modes that copy, checksum and timestamp, by
 * the kernel; in mode ZC those that the card does; 0 on a UMEM without WEIR_XSK_TX_METADATA.
 */
int weir_xsk_tx_support(struct weir_xsk_socket *socket);

struct weir_xsk_tx_timestamp {
	uint64_t tag;	      /* of the request */
	uint64_t nanoseconds; /* of CLOCK_TAI; in mode ZC of the card's clock */
};

/*
 * Takes the oldest time at which a packet was sent: returns 1, or 0 when there is none. A time is there once the
 * chunk of its packet has come back (weir_xsk_reclaim()). Of more than 16384 that nobody takes the
 * oldest are dropped, and counted in `lost_timestamps`.
 */
int weir_xsk_take_timestamp(struct weir_xsk_socket *socket,
			    struct weir_xsk_tx_timestamp *timestamp);

/*
 * Hands the packets in TX to the kernel and wakes it if it asks for that. While the device is busy,
 * packets may stay in the ring until the next call.
 *
 *   -ENETDOWN, -ENODEV  the device is down or gone; the packets stay
 */
int weir_xsk_flush(struct weir_xsk_socket *socket);

/* Takes back the chunks of sent packets, as allocating, sending and waiting do too; their number. */
int weir_xsk_reclaim(struct weir_xsk_socket *socket);

#define WEIR_XSK_RECEIVE 1u /* a packet is there */
#define WEIR_XSK_ROOM 2u    /* a packet can be sent */

/*
 * Waits for events, for at most `timeout_ms`, in the way that the socket was opened with. Returns
 * those that are there, or 0: the time is over, or a signal came.
 *
 *   -ENETDOWN, -ENODEV  packets are in TX, and the device is down or gone
 */
int weir_xsk_wait(struct weir_xsk_socket *socket, uint32_t events, uint32_t timeout_ms);

/*
 * Gets a socket ready for the program's own poll(2) or epoll(7) on weir_xsk_fd(). Call it before
 * each sleep. Returns the events that are there; if any is, do not sleep. `timeout_ms`, unless
 * NULL, is set to the longest sleep before the next call, or to -1.
 */
int weir_xsk_prepare(struct weir_xsk_socket *socket, uint32_t events, int *timeout_ms);

/* A descriptor that is readable when the events of weir_xsk_prepare() are there. Do not close it. */
int weir_xsk_fd(struct weir_xsk_socket *socket);

/*
 * Counters since the socket was opened; those from `rx_dropped` to `tx_ring_empty` are the kernel's. The
 * others count at once, also in a call that waits; but `completed` counts chunks that inlined calls took
 * back when the library is called next.
 */
struct weir_xsk_statistics {
	uint32_t size;
	uint32_t reserved;
	uint64_t received;	  /* packets read from RX */
	uint64_t sent;		  /* packets handed to the kernel */
	uint64_t completed;	  /* of those, whose chunks came back; not: delivered */
	uint64_t invalid_descs;	  /* descriptors from the kernel for chunks that it had not */
	uint64_t invalid_indices; /* impossible ring indices from the kernel */
	uint64_t wakeups;	  /* system calls to wake the kernel */
	uint64_t send_drops;	  /* of those, in which the kernel dropped a packet */
	uint64_t sleeps;	  /* while waiting */
	uint64_t rx_dropped;	  /* FILL was empty, or the packet too large */
	uint64_t rx_ring_full;	  /* packets dropped since RX was full */
	uint64_t fill_ring_empty; /* reads of an empty FILL ring */
	uint64_t tx_invalid_descs;
	uint64_t tx_ring_empty;	  /* reads of an empty TX ring */
	uint64_t fragmented;	  /* packets of several chunks that were dropped */
	uint64_t lost_timestamps; /* requested, and not written by the card or not taken in time */
};

int weir_xsk_statistics(struct weir_xsk_socket *socket, struct weir_xsk_statistics *statistics);

/* The layout is part of the ABI, on machines with 64-bit addresses; the library has the same checks. */
#ifdef __cplusplus
#define WEIR_XSK_LAYOUT(type, bytes) static_assert(sizeof(type) == (bytes), #type)
#else
#define WEIR_XSK_LAYOUT(type, bytes) _Static_assert(sizeof(type) == (bytes), #type)
#endif
WEIR_XSK_LAYOUT(struct weir_xsk_umem_options, 28);
WEIR_XSK_LAYOUT(struct weir_xsk_accounting, 28);
WEIR_XSK_LAYOUT(struct weir_xsk_rule, 48);
WEIR_XSK_LAYOUT(struct weir_xsk_socket_options, 72);
WEIR_XSK_LAYOUT(struct weir_xsk_frame, 32);
WEIR_XSK_LAYOUT(struct weir_xsk_rx_hints, 32);
WEIR_XSK_LAYOUT(struct weir_xsk_tx_request, 32);
WEIR_XSK_LAYOUT(struct weir_xsk_tx_timestamp, 16);
WEIR_XSK_LAYOUT(struct weir_xsk_statistics, 128);

/* For the functions that weir/xsk_inline.h inlines; programs do not call them. */
int weir_xsk_umem_create_unchecked(const struct weir_xsk_umem_options *options,
				   struct weir_xsk_umem **umem);
int weir_xsk_look_after(struct weir_xsk_socket *socket, uint32_t want);
int weir_xsk_refuse_callback(int verdict);

#ifndef WEIR_XSK_CHECKED
#include "xsk_inline.h"
#endif
#undef WEIR_XSK_LAYOUT

#ifdef __cplusplus
}
#endif

#endif
