//! The kernel functions of the packet path.

/// Entry functions of the packet path. Their callees belong to it; where the compiler may inline an
/// entry, the next function is listed as well.
const ENTRIES: [&str; 24] = [
    // softirqs
    "net_rx_action",
    "net_tx_action",
    // NAPI outside of softirqs: threads, busy polling
    "napi_threaded_poll",
    "napi_threaded_poll_loop",
    "napi_busy_loop",
    "__napi_poll",
    "__napi_schedule",
    "process_backlog",
    // into the network stack
    "netif_rx",
    "netif_receive_skb",
    "netif_receive_skb_list",
    "__netif_receive_skb",
    // out to a device
    "__dev_queue_xmit",
    "__dev_direct_xmit",
    "dev_hard_start_xmit",
    "__qdisc_run",
    // taps, vhost, packets of BPF_PROG_TEST_RUN
    "tun_get_user",
    "tun_chr_read_iter",
    "tun_chr_write_iter",
    "vhost_run_work_list",
    "bpf_test_run_xdp_live",
    "bpf_prog_test_run_xdp",
    // sockets of the internet protocols
    "raw_sendmsg",
    "raw_recvmsg",
];

/// Prefixes of functions of the packet path: system calls on sockets, XDP.
const FAMILIES: [&str; 13] = [
    "xsk_", "__xsk_", "xdp_", "__xdp_", "packet_", "tpacket_", "inet_", "inet6_", "tcp_", "udp_",
    "udpv6_", "ip_", "ip6_",
];

/// Functions with these prefixes that handle no packets.
const EXCEPTIONS: [&str; 3] = ["packet_mmap", "packet_create", "tcp_orphan_update"];

/// Entry functions of interrupts, on x86 and arm64.
const INTERRUPTS: [&str; 5] = [
    "asm_sysvec_",
    "asm_common_interrupt",
    "el1h_64_irq",
    "el1_irq",
    "el0t_64_irq",
];

/// Whether a function is an entry of the packet path.
pub fn is_packet_path(function: &str) -> bool {
    let function = plain(function);
    ENTRIES.contains(&function)
        || FAMILIES.iter().any(|family| function.starts_with(family))
            && !EXCEPTIONS.contains(&function)
}

/// The name without the compiler's suffix, such as `.isra.0`.
fn plain(function: &str) -> &str {
    function.split_once('.').map_or(function, |(name, _)| name)
}

/// The context of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Account {
    /// The softirq `NET_RX`.
    NetRx,
    /// The softirq `NET_TX`, which frees sent packets and runs deferred qdiscs.
    NetTx,
    /// The packet path outside of softirqs: system calls, threads of NAPI and vhost, interrupts.
    OtherPath,
    /// The idle task.
    Idle,
    /// Anything else.
    Rest,
}

impl Account {
    /// Of a stack with these functions, outermost first, in `process`. Functions below the last
    /// interrupt do not count.
    pub fn of(process: u64, functions: &[&str]) -> Self {
        let is_interrupt = |function: &&str| INTERRUPTS.iter().any(|it| function.starts_with(it));
        match functions.iter().rposition(is_interrupt) {
            Some(last) => Self::of_uninterrupted(None, &functions[last..]),
            None => Self::of_uninterrupted(Some(process), functions),
        }
    }

    /// `process`: `None` in an interrupt.
    fn of_uninterrupted(process: Option<u64>, functions: &[&str]) -> Self {
        let calls = |name| functions.iter().any(|function| plain(function) == name);
        // Sending from within receiving is part of receiving.
        if calls("net_rx_action") {
            Self::NetRx
        } else if calls("net_tx_action") {
            Self::NetTx
        } else if functions.iter().any(|function| is_packet_path(function)) {
            Self::OtherPath
        } else if process == Some(0) && !calls("handle_softirqs") && !calls("__do_softirq") {
            Self::Idle
        } else {
            Self::Rest
        }
    }

    /// Whether that is the packet path.
    pub fn is_packet_path(self) -> bool {
        matches!(self, Self::NetRx | Self::NetTx | Self::OtherPath)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_on_the_right_account() {
        for (process, functions, account) in [
            (
                7,
                &["do_softirq.part.0", "net_rx_action", "veth_poll"][..],
                Account::NetRx,
            ),
            (0, &["handle_softirqs", "net_tx_action"], Account::NetTx),
            (
                7,
                &["do_syscall_64", "xsk_sendmsg", "__xsk_generic_xmit"],
                Account::OtherPath,
            ),
            (
                9,
                &["kthread", "napi_threaded_poll_loop.isra.0"],
                Account::OtherPath,
            ),
            (0, &["do_idle", "default_idle"], Account::Idle),
            (
                0,
                &["do_idle", "asm_sysvec_apic_timer_interrupt", "tick"],
                Account::Rest,
            ),
            (
                7,
                &["net_rx_action", "asm_common_interrupt", "handle_irq"],
                Account::Rest,
            ),
            (
                0,
                &["do_idle", "asm_common_interrupt", "net_rx_action"],
                Account::NetRx,
            ),
            (0, &["handle_softirqs", "rcu_core"], Account::Rest),
            (
                7,
                &["do_syscall_64", "packet_create", "sk_alloc"],
                Account::Rest,
            ),
            (7, &["do_syscall_64", "unix_stream_sendmsg"], Account::Rest),
            (0, &["handle_softirqs", "tcp_orphan_update"], Account::Rest),
            (7, &[], Account::Rest),
        ] {
            assert_eq!(Account::of(process, functions), account, "{functions:?}");
        }
    }
}
