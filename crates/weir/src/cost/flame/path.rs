//! Which functions of the kernel are the packet path.

/// Where packets are handled, by the functions that lead there. Whatever these call is part of the
/// path, so deeper ones need not be named; several are named where a compiler may have left one
/// out.
const ENTRIES: [&str; 24] = [
    // softirqs
    "net_rx_action",
    "net_tx_action",
    // NAPI elsewhere: in threads and in busy polling
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
    // taps, and what makes packets of a program's bytes
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

/// Families of functions that are the packet path: system calls on sockets of each kind, XDP.
const FAMILIES: [&str; 13] = [
    "xsk_", "__xsk_", "xdp_", "__xdp_", "packet_", "tpacket_", "inet_", "inet6_", "tcp_", "udp_",
    "udpv6_", "ip_", "ip6_",
];

/// Functions of those families' names that have nothing to do with packets.
const STRANGERS: [&str; 3] = ["packet_mmap", "packet_create", "tcp_orphan_update"];

/// Where the kernel begins with an interrupt: on x86, and on arm64.
const INTERRUPTS: [&str; 5] = [
    "asm_sysvec_",
    "asm_common_interrupt",
    "el1h_64_irq",
    "el1_irq",
    "el0t_64_irq",
];

/// Whether packets are handled in this function and what it calls.
pub fn is_packet_path(function: &str) -> bool {
    let function = plain(function);
    ENTRIES.contains(&function)
        || FAMILIES.iter().any(|family| function.starts_with(family))
            && !STRANGERS.contains(&function)
}

/// Without what a compiler adds to the name of a part of a function, such as `.isra.0`.
fn plain(function: &str) -> &str {
    function.split_once('.').map_or(function, |(name, _)| name)
}

/// On whose account a sample is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Account {
    /// The softirq that receives.
    NetRx,
    /// The softirq that frees what was sent, and runs queues that were busy.
    NetTx,
    /// The packet path outside of softirqs: system calls, threads of NAPI and vhost, interrupts.
    OtherPath,
    /// Nothing ran.
    Idle,
    /// Anything else.
    Rest,
}

impl Account {
    /// Of a stack with these functions, outermost first, in `process`. What an interrupt came upon
    /// is not what the CPU does now.
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
