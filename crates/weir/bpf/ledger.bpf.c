// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Losses by reason and place, and who has which socket.
 *
 * Tracepoints of errors cost nothing while nothing fails, so these are always attached. Those of success
 * (`deep_*`) run for each packet or bulk, and are attached only when asked for. Nothing is sent to user space: it
 * reads the sums. One overflow cell counts whatever does not fit into a map.
 */
#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "freed.bpf.h"
#include "ledger.h"

SHARED_ENUM(ledger_constants);
SHARED_ENUM(xdp_event);
/* No map has it. */
const struct socket_record socket_record SEC("shared_enums");

#define MAX_DROPS 8192
#define MAX_XDP 4096
#define MAX_DEVICES 4096

#define AF_INET 2
#define AF_INET6 10
#define AF_PACKET 17
#define AF_XDP 44
#define IPPROTO_UDP 17

struct udp_sock {
	struct sk_buff_head reader_queue;
} KERNEL;

struct bpf_prog_aux {
	__u32 id;
} KERNEL;

struct bpf_prog {
	struct bpf_prog_aux *aux;
} KERNEL;

struct socket {
	struct sock *sk;
} KERNEL;

struct task_struct {
	int tgid;
	char comm[PROCESS_NAME];
} KERNEL;

struct file;
struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
} KERNEL;

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	__u32 fd;
	struct file *file;
} KERNEL;

struct packet_ring_buffer {
	unsigned int frame_max;
	unsigned int pg_vec_len;
} KERNEL;

typedef struct {
	int counter;
} KERNEL atomic_t;

struct packet_sock {
	struct packet_ring_buffer rx_ring;
	atomic_t tp_drops;
} KERNEL;

struct xdp_ring {
	__u32 producer;
	__u32 consumer;
} KERNEL;

struct xsk_queue {
	__u32 nentries;
	struct xdp_ring *ring;
	__u64 invalid_descs;
	__u64 queue_empty_descs;
} KERNEL;

struct xsk_buff_pool {
	struct xsk_queue *fq;
	struct xsk_queue *cq;
	__u8 cached_need_wakeup;
} KERNEL;

struct xdp_sock {
	struct xsk_queue *rx;
	struct net_device *dev;
	struct xsk_buff_pool *pool;
	__u16 queue_id;
	_Bool zc;
	enum {
		XSK_READY,
		XSK_BOUND,
		XSK_UNBOUND
	} state;
	struct xsk_queue *tx;
	__u64 rx_dropped;
	__u64 rx_queue_full;
	struct xsk_queue *fq_tmp;
	struct xsk_queue *cq_tmp;
} KERNEL;

const volatile struct ledger_config config;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, MAX_DROPS);
	__type(key, struct drop_key);
	__type(value, struct drop_value);
} drops SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, MAX_XDP);
	__type(key, struct xdp_key);
	__type(value, struct xdp_value);
} xdp_events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, MAX_DEVICES);
	__type(key, struct receive_key);
	__type(value, struct drop_value);
} received SEC(".maps");

/* Keys of `overflow`. */
enum {
	DROPS_OVERFLOW,
	XDP_OVERFLOW,
	RECEIVED_OVERFLOW,
	OVERFLOWS
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, OVERFLOWS);
	__type(key, __u32);
	__type(value, struct drop_value);
} overflow SEC(".maps");

static __always_inline void add_skb(void *map, const void *key, __u32 cell, __u32 segments)
{
	struct drop_value *value = bpf_map_lookup_elem(map, key);

	if (!value) {
		const struct drop_value zero = {};

		bpf_map_update_elem(map, key, &zero, BPF_NOEXIST);
		value = bpf_map_lookup_elem(map, key);
		if (!value)
			value = bpf_map_lookup_elem(&overflow, &cell);
	}
	if (value) {
		value->skbs += 1;
		value->segments += segments;
	}
}

static __always_inline void add_frames(const struct xdp_key *key, __u64 frames, __u64 lost)
{
	struct xdp_value *value = bpf_map_lookup_elem(&xdp_events, key);

	if (!value) {
		const struct xdp_value zero = {};

		bpf_map_update_elem(&xdp_events, key, &zero, BPF_NOEXIST);
		value = bpf_map_lookup_elem(&xdp_events, key);
	}
	if (value) {
		value->frames += frames;
		value->lost += lost;
	} else {
		__u32 cell = XDP_OVERFLOW;
		struct drop_value *rest = bpf_map_lookup_elem(&overflow, &cell);

		if (rest)
			rest->skbs += frames + lost;
	}
}

static __always_inline bool counts_socket(__u32 reason)
{
	__u32 word = reason / 64;

	return word < REASON_WORDS && config.socket_reasons[word] >> reason % 64 & 1;
}

static __always_inline int count_drop(struct sk_buff *skb, const void *location, __u32 reason,
				      struct sock *receiver)
{
	struct owner owner = owner_of(skb, receiver);
	struct drop_key key = {
		.location = (__u64)location,
		.netns = owner.netns,
		.device = owner.index,
		.reason = reason,
		.protocol = skb->protocol,
		.received = skb->skb_iif != 0,
	};

	if (owner.is_message)
		return 0;

	if (receiver && counts_socket(reason))
		key.socket = bpf_get_socket_cookie(receiver);
	add_skb(&drops, &key, DROPS_OVERFLOW, segments_of(skb));
	return 0;
}

/* Linux 6.11 tells the socket that refused the packet. */
SEC("tp_btf/kfree_skb")
int BPF_PROG(kfree_skb_receiver, struct sk_buff *skb, void *location, int reason,
	     struct sock *receiver)
{
	return count_drop(skb, location, reason, receiver);
}

SEC("tp_btf/kfree_skb")
int BPF_PROG(kfree_skb, struct sk_buff *skb, void *location, int reason)
{
	return count_drop(skb, location, reason, NULL);
}

static __always_inline void describe(struct xdp_key *key, const struct net_device *device,
				     const struct bpf_prog *program)
{
	key->netns = device->nd_net.net->ns.inum;
	key->device = device->ifindex;
	if (program)
		key->program = program->aux->id;
}

SEC("tp_btf/xdp_exception")
int BPF_PROG(xdp_exception, const struct net_device *device, const struct bpf_prog *program,
	     __u32 action)
{
	struct xdp_key key = { .event = EVENT_EXCEPTION, .code = action };

	describe(&key, device, program);
	add_frames(&key, 0, 1);
	return 0;
}

SEC("tp_btf/xdp_redirect_err")
int BPF_PROG(xdp_redirect_err, const struct net_device *device, const struct bpf_prog *program,
	     const void *target, int error, int map_type, __u32 map, __u32 index)
{
	struct xdp_key key = { .event = EVENT_REDIRECT_ERR, .code = error, .map_type = map_type };

	describe(&key, device, program);
	add_frames(&key, 0, 1);
	return 0;
}

SEC("tp_btf/xdp_redirect")
int BPF_PROG(deep_xdp_redirect, const struct net_device *device, const struct bpf_prog *program,
	     const void *target, int error, int map_type, __u32 map, __u32 index)
{
	struct xdp_key key = { .event = EVENT_REDIRECT, .map_type = map_type };

	describe(&key, device, program);
	add_frames(&key, 1, 0);
	return 0;
}

SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(deep_xdp_devmap_xmit, const struct net_device *from, const struct net_device *to,
	     int sent, int lost, int error)
{
	struct xdp_key key = { .event = EVENT_DEVMAP_XMIT, .code = error, .to = to->ifindex };

	describe(&key, from, NULL);
	add_frames(&key, sent, lost);
	return 0;
}

SEC("tp_btf/xdp_bulk_tx")
int BPF_PROG(deep_xdp_bulk_tx, const struct net_device *device, int sent, int lost, int error)
{
	struct xdp_key key = { .event = EVENT_BULK_TX, .code = error };

	describe(&key, device, NULL);
	add_frames(&key, sent, lost);
	return 0;
}

SEC("tp_btf/xdp_cpumap_enqueue")
int BPF_PROG(deep_xdp_cpumap_enqueue, int map, unsigned int processed, unsigned int lost,
	     int to_cpu)
{
	struct xdp_key key = { .event = EVENT_CPUMAP, .to = map };

	add_frames(&key, processed, lost);
	return 0;
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(deep_netif_receive_skb, struct sk_buff *skb)
{
	struct receive_key key = {};
	struct net_device *device = skb->dev;

	if (device) {
		key.netns = device->nd_net.net->ns.inum;
		key.device = device->ifindex;
	}
	add_skb(&received, &key, RECEIVED_OVERFLOW, segments_of(skb));
	return 0;
}

static __always_inline void describe_ring(struct ring_record *record, struct xsk_queue *queue)
{
	if (!queue)
		return;
	record->size = BPF_CORE_READ(queue, nentries);
	record->producer = BPF_CORE_READ(queue, ring, producer);
	record->consumer = BPF_CORE_READ(queue, ring, consumer);
	record->invalid = BPF_CORE_READ(queue, invalid_descs);
	record->empty = BPF_CORE_READ(queue, queue_empty_descs);
}

static __always_inline void describe_xdp(struct socket_record *record, struct xdp_sock *socket)
{
	struct xsk_buff_pool *pool = BPF_CORE_READ(socket, pool);

	record->device = BPF_CORE_READ(socket, dev, ifindex);
	record->queue = BPF_CORE_READ(socket, queue_id);
	record->state = BPF_CORE_READ(socket, state);
	record->zero_copy = BPF_CORE_READ(socket, zc);
	record->rx_dropped = BPF_CORE_READ(socket, rx_dropped);
	record->rx_full = BPF_CORE_READ(socket, rx_queue_full);
	describe_ring(&record->rx, BPF_CORE_READ(socket, rx));
	describe_ring(&record->tx, BPF_CORE_READ(socket, tx));
	/* The rings of the UMEM belong to the pool from bind(2) on. */
	if (pool) {
		record->needs_wakeup = BPF_CORE_READ(pool, cached_need_wakeup);
		describe_ring(&record->fill, BPF_CORE_READ(pool, fq));
		describe_ring(&record->completion, BPF_CORE_READ(pool, cq));
	} else {
		describe_ring(&record->fill, BPF_CORE_READ(socket, fq_tmp));
		describe_ring(&record->completion, BPF_CORE_READ(socket, cq_tmp));
	}
}

static __always_inline void describe_packet(struct socket_record *record,
					    struct packet_sock *socket)
{
	record->packet_drops = BPF_CORE_READ(socket, tp_drops.counter);
	if (BPF_CORE_READ(socket, rx_ring.pg_vec_len))
		record->packet_ring = BPF_CORE_READ(socket, rx_ring.frame_max) + 1;
}

/* One record for each descriptor of a network socket. */
SEC("iter/task_file")
int sockets(struct bpf_iter__task_file *context)
{
	struct task_struct *task = context->task;
	struct file *file = context->file;
	struct socket_record record = {};
	struct socket *socket;
	struct sock *sock;

	if (!task || !file)
		return 0;
	socket = bpf_sock_from_file(file);
	if (!socket)
		return 0;
	sock = socket->sk;
	if (!sock)
		return 0;
	record.family = sock->__sk_common.skc_family;
	if (record.family != AF_INET && record.family != AF_INET6 && record.family != AF_PACKET &&
	    record.family != AF_XDP)
		return 0;
	record.cookie = bpf_get_socket_cookie(sock);
	record.netns = sock->__sk_common.skc_net.net->ns.inum;
	record.pid = task->tgid;
	record.fd = context->fd;
	bpf_core_read(record.name, sizeof(record.name), &task->comm);
	record.protocol = sock->sk_protocol;
	record.queued = sock->sk_receive_queue.qlen;
	/* A reader of UDP takes the whole queue into one of its own. */
	if (record.protocol == IPPROTO_UDP && record.family != AF_PACKET)
		record.queued += BPF_CORE_READ((struct udp_sock *)(void *)sock, reader_queue.qlen);
	if (record.family == AF_XDP)
		describe_xdp(&record, (void *)sock);
	else if (record.family == AF_PACKET)
		describe_packet(&record, (void *)sock);
	bpf_seq_write(context->meta->seq, &record, sizeof(record));
	return 0;
}

char _license[] SEC("license") = "GPL";
