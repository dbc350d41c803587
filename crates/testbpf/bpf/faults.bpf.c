// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Losses made on purpose, for the tests of the ledger. The programs act on frames of the EtherType of local
 * experiments, and pass all others.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define EXPERIMENT 0x88b5

const volatile struct fault_config {
	__u32 target; /* the index of the device to redirect to */
	__u32 every;  /* of `fault_sample`: frames for each one that is dropped */
} config;

__u64 sampled;

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

static __always_inline bool is_meant(void *data, void *end)
{
	struct ethhdr *ethernet = data;

	return data + sizeof(*ethernet) <= end && ethernet->h_proto == bpf_htons(EXPERIMENT);
}

static __always_inline bool is_meant_xdp(struct xdp_md *ctx)
{
	return is_meant((void *)(long)ctx->data, (void *)(long)ctx->data_end);
}

SEC("xdp")
int fault_drop(struct xdp_md *ctx)
{
	return is_meant_xdp(ctx) ? XDP_DROP : XDP_PASS;
}

SEC("xdp")
int fault_abort(struct xdp_md *ctx)
{
	return is_meant_xdp(ctx) ? XDP_ABORTED : XDP_PASS;
}

SEC("xdp")
int fault_tx(struct xdp_md *ctx)
{
	return is_meant_xdp(ctx) ? XDP_TX : XDP_PASS;
}

/* Also the sender of live frames. */
SEC("xdp")
int fault_redirect(struct xdp_md *ctx)
{
	return is_meant_xdp(ctx) ? bpf_redirect(config.target, 0) : XDP_PASS;
}

SEC("xdp")
int fault_socket(struct xdp_md *ctx)
{
	return is_meant_xdp(ctx) ? bpf_redirect_map(&sockets, 0, 0) : XDP_PASS;
}

/* Each so-many-th frame, whatever it is. One CPU runs it at a time. */
SEC("xdp")
int fault_sample(struct xdp_md *ctx)
{
	sampled++;
	return config.every && sampled % config.every == 0 ? XDP_DROP : XDP_PASS;
}

/* What `fault_hold` does next. */
enum hold {
	HOLD_NOTHING,
	HOLD_NEXT, /* keep the CPU at the next frame, until this is no longer HOLDING */
	HOLDING,
	HOLD_OVER, /* before it was told to */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} hold SEC(".maps");

/* Well below the time after which the kernel takes a CPU for stuck. */
#define LONGEST_HOLD_NS 8000000000ULL
/* As many as bpf_loop() does; with the readings of each they take longer. */
#define HOLD_ROUNDS (1 << 23)
#define HOLD_READINGS 64

struct holding {
	volatile __u32 *state;
	__u64 end;
};

static long hold_on(__u32 round, struct holding *holding)
{
	for (int i = 0; i < HOLD_READINGS; i++)
		if (bpf_ktime_get_ns() > holding->end)
			return 1;
	return *holding->state != HOLDING;
}

/* NAPI handles a frame for as long as it is told to, so that the ring before it fills. */
SEC("xdp")
int fault_hold(struct xdp_md *ctx)
{
	__u32 key = 0;
	volatile __u32 *state = bpf_map_lookup_elem(&hold, &key);

	if (state && *state == HOLD_NEXT) {
		struct holding holding = { state, bpf_ktime_get_ns() + LONGEST_HOLD_NS };

		*state = HOLDING;
		bpf_loop(HOLD_ROUNDS, hold_on, &holding, 0);
		if (*state == HOLDING)
			*state = HOLD_OVER;
	}
	__sync_fetch_and_add(&sampled, 1);
	return XDP_PASS;
}

SEC("xdp")
int fault_pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

SEC("tcx/ingress")
int fault_shot(struct __sk_buff *skb)
{
	return skb->protocol == bpf_htons(EXPERIMENT) ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "GPL";
