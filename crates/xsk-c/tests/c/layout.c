/* Prints the layout of each structure and the value of each constant of the header. */
#include <stdio.h>
#include <weir/xsk.h>

#define STRUCT(name) printf("struct %s: %zu bytes\n", #name, sizeof(struct name))
#define FIELD(name, field)                                                            \
	printf("  %s: %zu bytes at %zu\n", #field, sizeof(((struct name *)0)->field), \
	       offsetof(struct name, field))
#define CONSTANT(name) printf("%s = %u\n", #name, (unsigned int)(name))

static void options(void)
{
	STRUCT(weir_xsk_umem_options);
	FIELD(weir_xsk_umem_options, size);
	FIELD(weir_xsk_umem_options, chunks);
	FIELD(weir_xsk_umem_options, chunk_size);
	FIELD(weir_xsk_umem_options, headroom);
	FIELD(weir_xsk_umem_options, flags);
	FIELD(weir_xsk_umem_options, reserved);
	FIELD(weir_xsk_umem_options, numa_node);
	STRUCT(weir_xsk_rule);
	FIELD(weir_xsk_rule, ether_type);
	FIELD(weir_xsk_rule, protocol);
	FIELD(weir_xsk_rule, family);
	FIELD(weir_xsk_rule, source_port);
	FIELD(weir_xsk_rule, destination_port);
	FIELD(weir_xsk_rule, source_bits);
	FIELD(weir_xsk_rule, destination_bits);
	FIELD(weir_xsk_rule, reserved);
	FIELD(weir_xsk_rule, source);
	FIELD(weir_xsk_rule, destination);
	STRUCT(weir_xsk_socket_options);
	FIELD(weir_xsk_socket_options, size);
	FIELD(weir_xsk_socket_options, mode);
	FIELD(weir_xsk_socket_options, flags);
	FIELD(weir_xsk_socket_options, rx_ring);
	FIELD(weir_xsk_socket_options, tx_ring);
	FIELD(weir_xsk_socket_options, fill_ring);
	FIELD(weir_xsk_socket_options, completion_ring);
	FIELD(weir_xsk_socket_options, fill_chunks);
	FIELD(weir_xsk_socket_options, waiting);
	FIELD(weir_xsk_socket_options, max_delay_us);
	FIELD(weir_xsk_socket_options, program_of);
	FIELD(weir_xsk_socket_options, rules);
	FIELD(weir_xsk_socket_options, rule_count);
	FIELD(weir_xsk_socket_options, reserved);
	FIELD(weir_xsk_socket_options, program_fd);
	FIELD(weir_xsk_socket_options, map_fd);
}

static void counters(void)
{
	STRUCT(weir_xsk_accounting);
	FIELD(weir_xsk_accounting, size);
	FIELD(weir_xsk_accounting, free);
	FIELD(weir_xsk_accounting, held);
	FIELD(weir_xsk_accounting, receiving);
	FIELD(weir_xsk_accounting, sending);
	FIELD(weir_xsk_accounting, retired);
	FIELD(weir_xsk_accounting, frames);
	STRUCT(weir_xsk_statistics);
	FIELD(weir_xsk_statistics, size);
	FIELD(weir_xsk_statistics, reserved);
	FIELD(weir_xsk_statistics, received);
	FIELD(weir_xsk_statistics, sent);
	FIELD(weir_xsk_statistics, completed);
	FIELD(weir_xsk_statistics, invalid_descs);
	FIELD(weir_xsk_statistics, invalid_indices);
	FIELD(weir_xsk_statistics, wakeups);
	FIELD(weir_xsk_statistics, send_drops);
	FIELD(weir_xsk_statistics, sleeps);
	FIELD(weir_xsk_statistics, rx_dropped);
	FIELD(weir_xsk_statistics, rx_ring_full);
	FIELD(weir_xsk_statistics, fill_ring_empty);
	FIELD(weir_xsk_statistics, tx_invalid_descs);
	FIELD(weir_xsk_statistics, tx_ring_empty);
	FIELD(weir_xsk_statistics, fragmented);
	FIELD(weir_xsk_statistics, lost_timestamps);
	STRUCT(weir_xsk_frame);
	FIELD(weir_xsk_frame, data);
	FIELD(weir_xsk_frame, len);
	FIELD(weir_xsk_frame, room);
	FIELD(weir_xsk_frame, handle);
}

static void metadata(void)
{
	STRUCT(weir_xsk_rx_hints);
	FIELD(weir_xsk_rx_hints, flags);
	FIELD(weir_xsk_rx_hints, hash);
	FIELD(weir_xsk_rx_hints, hash_kind);
	FIELD(weir_xsk_rx_hints, vlan_protocol);
	FIELD(weir_xsk_rx_hints, vlan_tci);
	FIELD(weir_xsk_rx_hints, timestamp);
	FIELD(weir_xsk_rx_hints, reserved);
	STRUCT(weir_xsk_tx_request);
	FIELD(weir_xsk_tx_request, size);
	FIELD(weir_xsk_tx_request, flags);
	FIELD(weir_xsk_tx_request, checksum_start);
	FIELD(weir_xsk_tx_request, checksum_offset);
	FIELD(weir_xsk_tx_request, reserved);
	FIELD(weir_xsk_tx_request, tag);
	FIELD(weir_xsk_tx_request, launch_time);
	STRUCT(weir_xsk_tx_timestamp);
	FIELD(weir_xsk_tx_timestamp, tag);
	FIELD(weir_xsk_tx_timestamp, nanoseconds);
}

static void constants(void)
{
	CONSTANT(WEIR_XSK_HUGE_PAGES);
	CONSTANT(WEIR_XSK_COLLAPSE);
	CONSTANT(WEIR_XSK_FRAGMENTS);
	CONSTANT(WEIR_XSK_UNALIGNED);
	CONSTANT(WEIR_XSK_NUMA_NODE);
	CONSTANT(WEIR_XSK_TX_METADATA);
	CONSTANT(WEIR_XSK_MAX_FRAGMENTS);
	CONSTANT(WEIR_XSK_NO_NEED_WAKEUP);
	CONSTANT(WEIR_XSK_OWN_PROGRAM);
	CONSTANT(WEIR_XSK_OWN_MAP);
	CONSTANT(WEIR_XSK_RX_HINTS);
	CONSTANT(WEIR_XSK_NONE);
	CONSTANT(WEIR_XSK_HINT_TIMESTAMP);
	CONSTANT(WEIR_XSK_HINT_HASH);
	CONSTANT(WEIR_XSK_HINT_VLAN);
	CONSTANT(WEIR_XSK_TX_CHECKSUM);
	CONSTANT(WEIR_XSK_TX_TIMESTAMP);
	CONSTANT(WEIR_XSK_TX_LAUNCH_TIME);
	CONSTANT(WEIR_XSK_RECEIVE);
	CONSTANT(WEIR_XSK_ROOM);
	CONSTANT(WEIR_XSK_AUTO);
	CONSTANT(WEIR_XSK_SKB);
	CONSTANT(WEIR_XSK_DRV);
	CONSTANT(WEIR_XSK_ZC);
	CONSTANT(WEIR_XSK_COPY);
	CONSTANT(WEIR_XSK_ADAPTIVE);
	CONSTANT(WEIR_XSK_POLL);
	CONSTANT(WEIR_XSK_SPIN);
	CONSTANT(WEIR_XSK_BUSY_POLL);
	CONSTANT(WEIR_XSK_NO_FAULT);
	CONSTANT(WEIR_XSK_DEVICE_DOWN);
	CONSTANT(WEIR_XSK_DEVICE_GONE);
	CONSTANT(WEIR_XSK_PROGRAM_DETACHED);
	CONSTANT(WEIR_XSK_PROGRAM_REPLACED);
	CONSTANT(WEIR_XSK_RECYCLE);
	CONSTANT(WEIR_XSK_KEEP);
	CONSTANT(WEIR_XSK_SEND);
	CONSTANT(WEIR_XSK_SUM_UNKNOWN);
	CONSTANT(WEIR_XSK_SUM_CORRECT);
	CONSTANT(WEIR_XSK_SUM_PARTIAL);
	CONSTANT(WEIR_XSK_SUM_ABSENT);
	CONSTANT(WEIR_XSK_SUM_WRONG);
}

int main(void)
{
	options();
	counters();
	metadata();
	constants();
	return 0;
}
