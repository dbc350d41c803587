//! The kernel's reasons: the stage of each, its meaning, and the other counters of the same packets.

use crate::ledger::sheet::Class::{self, CopyLost, Lost, NotLost};
use crate::ledger::stage::Stage;

/// A counter that counts the same packets as an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// A counter of the protocols in the packet's namespace: with IPv4, with IPv6.
    Mib(&'static str, &'static str),
    /// A field of `struct rtnl_link_stats64` of the packet's device.
    Device(&'static str),
    /// The same of the other end of a veth or netkit.
    Peer(&'static str),
    /// The same of the devices above it, which handed it the packet: a VLAN, a bond, a tunnel.
    Upper(&'static str),
    /// A statistic of the driver, its queues added.
    Driver(&'static str),
    /// `drops` of the device's queueing disciplines: of the one that lost it, and of those above it.
    Qdisc,
    /// `drops` of `clsact` or `ingress`: those of tc's filters.
    Filters,
    /// Freed packets of this reason that have no namespace: the kernel has forgotten it by then.
    Event(&'static str),
    /// A column of `softnet_stat`, all CPUs added.
    Cpu(&'static str),
    /// The drops of the socket, or of the namespace's sockets of the protocol where the event names none.
    Socket,
    /// A counter of the neighbour tables.
    Neighbour(&'static str, &'static str),
}

use Counter::{Cpu, Device, Driver, Event, Filters, Mib, Neighbour, Peer, Qdisc, Socket, Upper};

/// The device that lost a packet, beside the one that the freed packet names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loser {
    /// The same one.
    Named,
    /// The other end of it: the sender has made it a packet of the receiving end, and freed and counted it.
    Peer,
}

/// A reason.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// The reason's name without `SKB_DROP_REASON_`.
    pub reason: &'static str,
    /// A part of the name of the function; empty for any.
    pub place: &'static str,
    /// The stage that owns the loss.
    pub stage: Stage,
    /// Whether it is a loss.
    pub class: Class,
    /// Whose loss it is.
    pub loser: Loser,
    /// Where else the same packets are counted, beginning at the device that lost them.
    pub also: &'static [Counter],
    /// The explanation in a sentence.
    pub meaning: &'static str,
    /// The check of `weir doctor`; empty for none.
    pub check: &'static str,
}

impl Rule {
    const fn of_the_peer(mut self) -> Self {
        self.loser = Loser::Peer;
        self
    }
}

const fn rule(
    (reason, place): (&'static str, &'static str),
    stage: Stage,
    class: Class,
    also: &'static [Counter],
    meaning: &'static str,
    check: &'static str,
) -> Rule {
    Rule {
        reason,
        place,
        stage,
        class,
        loser: Loser::Named,
        also,
        meaning,
        check,
    }
}

/// The first that fits a reason and a place counts.
#[rustfmt::skip] // a table, a row a reason
pub const RULES: &[Rule] = &[
    // XDP. The kernel gives no reason for verdicts, so the place tells.
    rule(("NOT_SPECIFIED", "veth_xdp_rcv_skb"), Stage::Xdp, Lost, &[Driver("rx_queue_*_xdp_drops"), Driver("rx_queue_*_drops"), Device("rx_dropped")],
        "an XDP program in the driver dropped it (XDP_DROP)", ""),
    rule(("NOT_SPECIFIED", "do_xdp_generic"), Stage::Xdp, Lost, &[],
        "an XDP program behind the driver dropped it (generic XDP_DROP)", ""),
    rule(("NOT_SPECIFIED", "generic_xdp"), Stage::Xdp, Lost, &[],
        "an XDP program behind the driver dropped it (generic XDP_DROP)", ""),
    rule(("XDP", ""), Stage::Xdp, Lost, &[], "a redirect of XDP failed behind the driver", ""),
    // Towards the stack.
    rule(("CPU_BACKLOG", ""), Stage::Backlog, Lost, &[Cpu("dropped"), Device("rx_dropped"), Peer("tx_dropped")],
        "the backlog of a CPU was full (net.core.netdev_max_backlog)", "softnet-dropped"),
    rule(("TC_INGRESS", ""), Stage::Tc, Lost, &[Filters],
        "a program or filter of tc dropped it at ingress", ""),
    rule(("TC_EGRESS", ""), Stage::Tc, Lost, &[Filters, Mib("Ip.OutDiscards", "Ip6.OutDiscards"), Mib("Udp.SndbufErrors", "Udp6.SndbufErrors"), Device("tx_dropped")],
        "a program or filter of tc dropped it at egress", ""),
    rule(("UNHANDLED_PROTO", ""), Stage::Stack, Lost, &[Device("rx_dropped")],
        "no protocol of this host takes its EtherType", ""),
    rule(("OTHERHOST", ""), Stage::Ip, NotLost, &[Device("rx_otherhost_dropped")],
        "it was sent to another host's MAC address", ""),
    rule(("PACKET_SOCK_ERROR", ""), Stage::Packet, CopyLost, &[Socket],
        "a packet socket's queue was full: its copy was lost, not the packet", ""),
    rule(("NOT_SPECIFIED", "packet_rcv"), Stage::Packet, CopyLost, &[Socket],
        "a packet socket's queue or ring was full: its copy was lost, not the packet", ""),
    // Bridges.
    rule(("BRIDGE_INGRESS_STP_STATE", ""), Stage::Bridge, Lost, &[],
        "the bridge's port does not forward (spanning tree)", ""),
    rule(("NO_TX_TARGET", ""), Stage::Bridge, Lost, &[], "the bridge had no port to send it to", ""),
    rule(("LOCAL_MAC", ""), Stage::Bridge, Lost, &[], "its source is a MAC address of the bridge itself", ""),
    rule(("MAC_INVALID_SOURCE", ""), Stage::Bridge, Lost, &[], "its source MAC address is invalid", ""),
    // Netfilter.
    rule(("NETFILTER_DROP", ""), Stage::Netfilter, Lost, &[], "a rule of netfilter dropped it", ""),
    rule(("BPF_CGROUP_EGRESS", ""), Stage::Netfilter, Lost, &[],
        "a BPF program of its cgroup dropped it", ""),
    // IP.
    rule(("IP_RPFILTER", ""), Stage::Ip, Lost, &[Mib("TcpExt.IPReversePathFilter", "TcpExt.IPReversePathFilter")],
        "its source address is not reachable by the device that it came from (rp_filter)", "rp-filter"),
    rule(("IP_CSUM", ""), Stage::Ip, Lost, &[Mib("IpExt.InCsumErrors", "Ip6.InCsumErrors"), Mib("Ip.InHdrErrors", "Ip6.InHdrErrors")],
        "the checksum of its IP header is wrong", "checksum-errors"),
    rule(("IP_INHDR", ""), Stage::Ip, Lost, &[Mib("Ip.InHdrErrors", "Ip6.InHdrErrors")],
        "its IP header is malformed, or its TTL ended", ""),
    rule(("PKT_TOO_SMALL", ""), Stage::Ip, Lost, &[Mib("IpExt.InTruncatedPkts", "Ip6.InTruncatedPkts"), Mib("Ip.InHdrErrors", "Ip6.InHdrErrors"), Mib("Udp.InErrors", "Udp6.InErrors")],
        "it is shorter than its header says", ""),
    rule(("PKT_TOO_BIG", ""), Stage::Ip, Lost, &[Mib("Ip.FragFails", "Ip6.InTooBigErrors")],
        "it is larger than the MTU and must not be fragmented", ""),
    rule(("IP_NOPROTO", ""), Stage::Transport, Lost, &[Mib("Ip.InUnknownProtos", "Ip6.InUnknownProtos")],
        "this host does not have its transport protocol", ""),
    rule(("IP_INNOROUTES", ""), Stage::Ip, Lost, &[Mib("IpExt.InNoRoutes", "Ip6.InNoRoutes"), Mib("Ip.InAddrErrors", "Ip6.InAddrErrors")],
        "there is no route for it", ""),
    rule(("NOT_SPECIFIED", "ip6_mc_input"), Stage::Ip, NotLost, &[],
        "it was sent to a multicast group that this host has not joined", ""),
    rule(("IP_OUTNOROUTES", ""), Stage::Ip, Lost, &[Mib("Ip.OutNoRoutes", "Ip6.OutNoRoutes")],
        "there is no route to send it by", ""),
    rule(("IP_INADDRERRORS", ""), Stage::Ip, Lost, &[Mib("Ip.InAddrErrors", "Ip6.InAddrErrors")],
        "this host has not its address, and does not forward", ""),
    rule(("FRAG_REASM_TIMEOUT", ""), Stage::Ip, Lost, &[Mib("Ip.ReasmFails", "Ip6.ReasmFails")],
        "the other fragments did not come in time", ""),
    rule(("DUP_FRAG", ""), Stage::Ip, NotLost, &[], "the fragment was there already", ""),
    // Neighbours.
    rule(("NEIGH_QUEUEFULL", ""), Stage::Neighbour, Lost, &[Neighbour("arp_cache.unresolved_discards", "ndisc_cache.unresolved_discards")],
        "too many packets wait for their neighbour's MAC address", "neighbour-failed"),
    rule(("NEIGH_FAILED", ""), Stage::Neighbour, Lost, &[],
        "its neighbour does not answer ARP or neighbour discovery", "neighbour-failed"),
    rule(("NEIGH_CREATEFAIL", ""), Stage::Neighbour, Lost, &[Neighbour("arp_cache.table_fulls", "ndisc_cache.table_fulls")],
        "the neighbour table is full (gc_thresh3)", "neighbour-table"),
    // UDP and TCP.
    rule(("UDP_CSUM", ""), Stage::Udp, Lost, &[Mib("Udp.InCsumErrors", "Udp6.InCsumErrors"), Mib("Udp.InErrors", "Udp6.InErrors"), Socket],
        "its UDP checksum is wrong", "checksum-errors"),
    rule(("NO_SOCKET", "udp"), Stage::Udp, Lost, &[Mib("Udp.NoPorts", "Udp6.NoPorts")],
        "no UDP socket has its port", "udp-no-listener"),
    rule(("NO_SOCKET", "tcp"), Stage::Tcp, Lost, &[],
        "no TCP socket has its port or connection", ""),
    rule(("NO_SOCKET", "ping_rcv"), Stage::Transport, NotLost, &[],
        "no ping socket waits for this ICMP reply; raw sockets have their copy", ""),
    rule(("NO_SOCKET", ""), Stage::Transport, Lost, &[], "no socket takes it", ""),
    rule(("TCP_CSUM", ""), Stage::Tcp, Lost, &[Mib("Tcp.InCsumErrors", "Tcp.InCsumErrors"), Mib("Tcp.InErrs", "Tcp.InErrs")],
        "its TCP checksum is wrong", "checksum-errors"),
    rule(("TCP_LISTEN_OVERFLOW", ""), Stage::Tcp, Lost, &[Mib("TcpExt.ListenOverflows", "TcpExt.ListenOverflows"), Mib("TcpExt.ListenDrops", "TcpExt.ListenDrops"), Socket],
        "the accept queue of a listener was full", "tcp-listen-queue"),
    rule(("TCP_RFC7323_PAWS", ""), Stage::Tcp, NotLost, &[Mib("TcpExt.PAWSEstab", "TcpExt.PAWSEstab")],
        "its timestamp is old (PAWS)", ""),
    rule(("TCP_OFO_DROP", ""), Stage::Tcp, Lost, &[Mib("TcpExt.TCPOFODrop", "TcpExt.TCPOFODrop")],
        "no memory was left for data out of order", ""),
    rule(("TCP_OFO_QUEUE_PRUNE", ""), Stage::Tcp, Lost, &[Mib("TcpExt.OfoPruned", "TcpExt.OfoPruned")],
        "data out of order was discarded to free memory", ""),
    rule(("TCP_ZEROWINDOW", ""), Stage::Tcp, Lost, &[Mib("TcpExt.TCPZeroWindowDrop", "TcpExt.TCPZeroWindowDrop")],
        "the receiver had closed its window", ""),
    rule(("TCP_OVERWINDOW", ""), Stage::Tcp, Lost, &[], "it lies beyond the receiver's window", ""),
    rule(("SOCKET_BACKLOG", ""), Stage::Socket, Lost, &[Mib("TcpExt.TCPBacklogDrop", "TcpExt.TCPBacklogDrop"), Socket],
        "the backlog of a busy socket was full", ""),
    rule(("TCP_OLD_DATA", ""), Stage::Tcp, NotLost, &[], "its data was received before", ""),
    rule(("TCP_OLD_SEQUENCE", ""), Stage::Tcp, NotLost, &[], "its data was received before", ""),
    rule(("TCP_OLD_ACK", ""), Stage::Tcp, NotLost, &[], "it acknowledges data that was acknowledged before", ""),
    rule(("TCP_OFOMERGE", ""), Stage::Tcp, NotLost, &[], "its data was there already, out of order", ""),
    rule(("TCP_RESET", ""), Stage::Tcp, NotLost, &[], "it ended a connection (RST)", ""),
    rule(("TCP_CLOSE", ""), Stage::Tcp, NotLost, &[], "its connection is closed", ""),
    rule(("TCP_FASTOPEN", ""), Stage::Tcp, NotLost, &[], "its data was taken by TCP Fast Open", ""),
    // The kernel frees ordinary segments there without a reason.
    rule(("NOT_SPECIFIED", "tcp_"), Stage::Tcp, NotLost, &[],
        "TCP was done with it; the kernel gives no reason", ""),
    // Sockets.
    rule(("SOCKET_RCVBUFF", ""), Stage::Socket, Lost, &[Mib("Udp.RcvbufErrors", "Udp6.RcvbufErrors"), Mib("Udp.InErrors", "Udp6.InErrors"), Socket],
        "the receive buffer of a socket was full", "udp-receive-buffer"),
    rule(("PROTO_MEM", ""), Stage::Socket, Lost, &[Mib("Udp.MemErrors", "Udp6.MemErrors"), Mib("Udp.InErrors", "Udp6.InErrors"), Socket],
        "the protocol's memory is used up (udp_mem, tcp_mem)", ""),
    rule(("SOCKET_FILTER", ""), Stage::Socket, Lost, &[Mib("Udp.InErrors", "Udp6.InErrors"), Socket],
        "a filter of the socket refused it", ""),
    rule(("SOCKET_CLOSE", ""), Stage::Socket, NotLost, &[], "its socket was closed", ""),
    rule(("QUEUE_PURGE", ""), Stage::Socket, NotLost, &[], "it waited in a queue that was closed", ""),
    rule(("UNIX_DISCONNECT", ""), Stage::Socket, NotLost, &[], "its unix socket was disconnected", ""),
    rule(("UNIX_SKIP_OOB", ""), Stage::Socket, NotLost, &[], "urgent data of a unix socket was skipped", ""),
    // Sending.
    rule(("QDISC_DROP", ""), Stage::Qdisc, Lost, QDISC, "a queueing discipline dropped it", "qdisc-drops"),
    rule(("QDISC_OVERLIMIT", ""), Stage::Qdisc, Lost, QDISC,
        "the queue of a queueing discipline was full", "qdisc-drops"),
    rule(("QDISC_CONGESTED", ""), Stage::Qdisc, Lost, QDISC,
        "a queueing discipline dropped it to end a congestion", "qdisc-drops"),
    rule(("CAKE_FLOOD", ""), Stage::Qdisc, Lost, QDISC,
        "cake dropped a flow that does not yield", "qdisc-drops"),
    rule(("FQ_BAND_LIMIT", ""), Stage::Qdisc, Lost, QDISC, "a band of fq was full", "qdisc-drops"),
    rule(("FQ_HORIZON_LIMIT", ""), Stage::Qdisc, Lost, QDISC,
        "it was to be sent too late (horizon of fq)", "qdisc-drops"),
    rule(("FQ_FLOW_LIMIT", ""), Stage::Qdisc, Lost, QDISC, "a flow's queue of fq was full", "qdisc-drops"),
    rule(("NOT_SPECIFIED", "tbf_"), Stage::Qdisc, NotLost, &[],
        "tbf cut it into segments and dropped all of them: they are counted one by one", ""),
    // `eth_type_trans` of `__dev_forward_skb` has made it a packet of the other end by then.
    rule(("NOT_SPECIFIED", "veth_xmit"), Stage::Transmit, Lost, NOT_SENT,
        "the ring of a veth was full: the CPU that receives from it is too slow", "").of_the_peer(),
    // `netkit_xmit` sets the device before it runs the program.
    rule(("NOT_SPECIFIED", "netkit_xmit"), Stage::Transmit, Lost, NOT_SENT,
        "a program of a netkit, or its policy, dropped it", "").of_the_peer(),
    // `____dev_forward_skb` frees it before that.
    rule(("NOT_SPECIFIED", "dev_forward_skb"), Stage::Transmit, Lost, NOT_FORWARDED,
        "the receiving end is down, or it is larger than that one's MTU", "veth-mtu"),
    // Functions of drivers, and `__dev_direct_xmit`.
    rule(("NOT_SPECIFIED", "_xmit"), Stage::Transmit, Lost, NOT_SENT, "the device could not send it", ""),
    rule(("NOT_SPECIFIED", "_transmit"), Stage::Transmit, Lost, NOT_SENT, "the device could not send it", ""),
    rule(("FULL_RING", ""), Stage::Transmit, Lost, NOT_SENT,
        "the queue of a tap was full: its reader is too slow", "tap-queue"),
    rule(("DEV_READY", ""), Stage::Transmit, Lost, NOT_SENT, "the device is down", ""),
    rule(("DEV_HDR", ""), Stage::Transmit, Lost, NOT_SENT,
        "the device could not read its header", ""),
    rule(("TAP_FILTER", ""), Stage::Transmit, Lost, NOT_SENT,
        "a filter of a tap refused it", ""),
    rule(("TAP_TXFILTER", ""), Stage::Transmit, Lost, NOT_SENT,
        "a filter of a tap refused it", ""),
];

/// The device counts it, those above it may, and IP and UDP do if they hear of it.
const NOT_SENT: &[Counter] = &[
    Device("tx_dropped"),
    Upper("tx_dropped"),
    Mib("Ip.OutDiscards", "Ip6.OutDiscards"),
    Mib("Udp.SndbufErrors", "Udp6.SndbufErrors"),
];
/// And so does the other end.
const NOT_FORWARDED: &[Counter] = &[
    Device("tx_dropped"),
    Peer("rx_dropped"),
    Upper("tx_dropped"),
    Mib("Ip.OutDiscards", "Ip6.OutDiscards"),
    Mib("Udp.SndbufErrors", "Udp6.SndbufErrors"),
];

const QDISC: &[Counter] = &[
    Qdisc,
    Upper("tx_dropped"),
    Mib("Ip.OutDiscards", "Ip6.OutDiscards"),
    Mib("Udp.SndbufErrors", "Udp6.SndbufErrors"),
];

/// A loss that a counter alone shows, where no event claims it.
#[derive(Debug, Clone, Copy)]
pub struct CounterRule {
    /// The counter.
    pub counter: Counter,
    /// The stage that owns the loss.
    pub stage: Stage,
    /// Whether it is a loss.
    pub class: Class,
    /// Where else the same packets are counted.
    pub also: &'static [Counter],
    /// The explanation in a sentence.
    pub meaning: &'static str,
    /// The check of `weir doctor`; empty for none.
    pub check: &'static str,
}

const fn counted(
    counter: Counter,
    stage: Stage,
    also: &'static [Counter],
    meaning: &'static str,
    check: &'static str,
) -> CounterRule {
    CounterRule {
        counter,
        stage,
        class: Lost,
        also,
        meaning,
        check,
    }
}

/// In the order in which they claim: the most exact first.
#[rustfmt::skip] // a table, a row a counter
pub const COUNTERS: &[CounterRule] = &[
    counted(Qdisc, Stage::Qdisc, &[Upper("tx_dropped"), Mib("Ip.OutDiscards", "Ip6.OutDiscards"), Mib("Udp.SndbufErrors", "Udp6.SndbufErrors")],
        "a queueing discipline dropped it", "qdisc-drops"),
    counted(Filters, Stage::Tc, &[], "a program or filter of tc dropped it", ""),
    counted(Driver("rx_queue_*_xdp_tx_errors"), Stage::Xdp, &[Device("tx_dropped"), Peer("rx_dropped"), Driver("rx_queue_*_drops")],
        "XDP_TX found no room, or no receiver, at the other end", ""),
    counted(Driver("tx_queue_*_xdp_xmit_errors"), Stage::Xdp, &[Device("tx_dropped"), Peer("rx_dropped")],
        "a redirected frame found no room at the other end", ""),
    counted(Driver("rx_queue_*_xdp_drops"), Stage::Xdp, &[Driver("rx_queue_*_drops"), Device("rx_dropped")],
        "an XDP program in the driver dropped it (XDP_DROP)", ""),
    counted(Driver("rx_queue_*_drops"), Stage::Driver, &[Device("rx_dropped"), Peer("tx_dropped")],
        "the driver dropped it", ""),
    counted(Cpu("dropped"), Stage::Backlog, &[Device("rx_dropped"), Peer("tx_dropped")],
        "the backlog of a CPU was full (net.core.netdev_max_backlog)", "softnet-dropped"),
    counted(Cpu("flow_limit"), Stage::Backlog, &[Device("rx_dropped")],
        "one flow filled the backlog of a CPU (flow_limit_cpu_bitmap)", "softnet-dropped"),
    counted(Device("rx_missed_errors"), Stage::Card, &[Device("rx_fifo_errors"), Device("rx_dropped"), Device("rx_errors")],
        "the card's receive ring was full", "ring-sizes"),
    counted(Device("rx_crc_errors"), Stage::Card, &[Device("rx_errors")],
        "the frame was damaged on the wire (CRC)", "device-errors"),
    counted(Device("rx_length_errors"), Stage::Card, &[Device("rx_errors")],
        "the frame has a wrong length", "device-errors"),
    counted(Device("rx_frame_errors"), Stage::Card, &[Device("rx_errors")],
        "the frame is misaligned", "device-errors"),
    counted(Device("rx_over_errors"), Stage::Card, &[Device("rx_errors")],
        "the frame did not fit", "device-errors"),
    counted(Device("rx_fifo_errors"), Stage::Card, &[Device("rx_errors")],
        "the card's queue was full", "ring-sizes"),
    counted(Device("rx_errors"), Stage::Card, &[], "a receive error of the card", "device-errors"),
    counted(Device("tx_dropped"), Stage::Transmit, &[Peer("rx_dropped"), Upper("tx_dropped"), Mib("Ip.OutDiscards", "Ip6.OutDiscards"), Mib("Udp.SndbufErrors", "Udp6.SndbufErrors")],
        "the device could not send it", ""),
    counted(Device("rx_dropped"), Stage::Driver, &[], "the driver, or the stack behind it, dropped it", ""),
    counted(Device("tx_errors"), Stage::Transmit, &[], "a transmit error of the card", "device-errors"),
    CounterRule { counter: Device("rx_nohandler"), stage: Stage::Stack, class: NotLost, also: &[], meaning: "it came to an inactive leg of a bond", check: "", },
    CounterRule { counter: Device("rx_otherhost_dropped"), stage: Stage::Ip, class: NotLost, also: &[], meaning: "it was sent to another host's MAC address", check: "", },
    counted(Mib("TcpExt.ListenOverflows", "TcpExt.ListenOverflows"), Stage::Tcp, &[Mib("TcpExt.ListenDrops", "TcpExt.ListenDrops"), Socket],
        "the accept queue of a listener was full", "tcp-listen-queue"),
    counted(Mib("TcpExt.ListenDrops", "TcpExt.ListenDrops"), Stage::Tcp, &[Socket],
        "a listener refused a connection", "tcp-listen-queue"),
    counted(Mib("Udp.RcvbufErrors", "Udp6.RcvbufErrors"), Stage::Socket, &[Mib("Udp.InErrors", "Udp6.InErrors"), Socket],
        "the receive buffer of a socket was full", "udp-receive-buffer"),
    counted(Mib("Udp.MemErrors", "Udp6.MemErrors"), Stage::Socket, &[Mib("Udp.InErrors", "Udp6.InErrors"), Socket],
        "the protocol's memory is used up (udp_mem)", ""),
    counted(Mib("Udp.InCsumErrors", "Udp6.InCsumErrors"), Stage::Udp, &[Mib("Udp.InErrors", "Udp6.InErrors"), Socket],
        "its UDP checksum is wrong", "checksum-errors"),
    counted(Mib("Udp.InErrors", "Udp6.InErrors"), Stage::Udp, &[Socket], "UDP refused it", ""),
    counted(Mib("Udp.NoPorts", "Udp6.NoPorts"), Stage::Udp, &[],
        "no UDP socket has its port", "udp-no-listener"),
    counted(Mib("Tcp.InCsumErrors", "Tcp.InCsumErrors"), Stage::Tcp, &[Mib("Tcp.InErrs", "Tcp.InErrs")],
        "its TCP checksum is wrong", "checksum-errors"),
    counted(Mib("Tcp.InErrs", "Tcp.InErrs"), Stage::Tcp, &[], "TCP found it malformed", ""),
    counted(Mib("TcpExt.TCPBacklogDrop", "TcpExt.TCPBacklogDrop"), Stage::Socket, &[Socket],
        "the backlog of a busy socket was full", ""),
    counted(Mib("TcpExt.IPReversePathFilter", "TcpExt.IPReversePathFilter"), Stage::Ip, &[],
        "its source address is not reachable by the device that it came from (rp_filter)", "rp-filter"),
    counted(Mib("IpExt.InCsumErrors", "Ip6.InCsumErrors"), Stage::Ip, &[Mib("Ip.InHdrErrors", "Ip6.InHdrErrors")],
        "the checksum of its IP header is wrong", "checksum-errors"),
    counted(Mib("Ip.InHdrErrors", "Ip6.InHdrErrors"), Stage::Ip, &[],
        "its IP header is malformed, or its TTL ended", ""),
    counted(Mib("IpExt.InTruncatedPkts", "Ip6.InTruncatedPkts"), Stage::Ip, &[],
        "it is shorter than its header says", ""),
    counted(Mib("IpExt.InNoRoutes", "Ip6.InNoRoutes"), Stage::Ip, &[Mib("Ip.InAddrErrors", "Ip6.InAddrErrors")],
        "there is no route for it", ""),
    counted(Mib("Ip.InAddrErrors", "Ip6.InAddrErrors"), Stage::Ip, &[],
        "this host has not its address, and does not forward", ""),
    counted(Mib("Ip.InUnknownProtos", "Ip6.InUnknownProtos"), Stage::Transport, &[],
        "this host does not have its transport protocol", ""),
    counted(Mib("Ip.InDiscards", "Ip6.InDiscards"), Stage::Ip, &[],
        "IP discarded it, such as for want of memory", ""),
    counted(Mib("Ip.ReasmFails", "Ip6.ReasmFails"), Stage::Ip, &[Event("FRAG_REASM_TIMEOUT")],
        "its fragments could not be put together", ""),
    counted(Mib("Ip.FragFails", "Ip6.FragFails"), Stage::Ip, &[],
        "it must not be fragmented, or could not be", ""),
    counted(Mib("Ip.OutNoRoutes", "Ip6.OutNoRoutes"), Stage::Ip, &[], "there is no route to send it by", ""),
    counted(Mib("Ip.OutDiscards", "Ip6.OutDiscards"), Stage::Ip, &[Mib("Udp.SndbufErrors", "Udp6.SndbufErrors")],
        "IP could not send it", ""),
    counted(Mib("Icmp.InCsumErrors", "Icmp6.InCsumErrors"), Stage::Transport, &[Mib("Icmp.InErrors", "Icmp6.InErrors")],
        "its ICMP checksum is wrong", "checksum-errors"),
    counted(Neighbour("arp_cache.unresolved_discards", "ndisc_cache.unresolved_discards"), Stage::Neighbour, &[],
        "too many packets wait for their neighbour's MAC address", "neighbour-failed"),
    counted(Neighbour("arp_cache.table_fulls", "ndisc_cache.table_fulls"), Stage::Neighbour, &[],
        "the neighbour table is full (gc_thresh3)", "neighbour-table"),
    counted(Socket, Stage::Socket, &[], "the socket lost it", ""),
];

/// The stages that names of reasons begin with.
const PREFIXES: [(&str, Stage); 12] = [
    ("TCP_", Stage::Tcp),
    ("UDP_", Stage::Udp),
    ("SOCKET_", Stage::Socket),
    ("QDISC_", Stage::Qdisc),
    ("FQ_", Stage::Qdisc),
    ("TC_", Stage::Tc),
    ("NEIGH_", Stage::Neighbour),
    ("BRIDGE_", Stage::Bridge),
    ("XFRM_", Stage::Ip),
    ("FRAG_", Stage::Ip),
    ("IP", Stage::Ip),
    ("ICMP_", Stage::Transport),
];

/// The rule for a reason at a place. A reason without a rule is a loss of the stage that its name begins with.
pub fn rule_for(rules: &[Rule], reason: &str, place: &str) -> Rule {
    let fits = |rule: &&Rule| rule.reason == reason && place.contains(rule.place);
    if let Some(rule) = rules.iter().find(fits) {
        return *rule;
    }
    let by_prefix = |&&(prefix, _): &&(&str, Stage)| reason.starts_with(prefix);
    let stage = PREFIXES
        .iter()
        .find(by_prefix)
        .map_or(Stage::Stack, |it| it.1);
    Rule {
        reason: "",
        place: "",
        stage,
        class: Lost,
        loser: Loser::Named,
        also: &[],
        meaning: "the kernel freed it for this reason",
        check: "",
    }
}
