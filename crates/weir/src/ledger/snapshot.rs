//! The counters of a host at one moment.
//!
//! Counters cannot be read at once. Each is read twice, all in the same order: the first value counts, and
//! how far it moved until the second is the most that one counter can be ahead of another ([`Reading`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::stage::Stage;

/// The format of [`Snapshot`] in files: it changes when a field changes its meaning.
pub const VERSION: u32 = 1;

/// A counter, and its motion while the snapshot was taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// Its value.
    pub value: u64,
    /// How far it moved between the two readings of the snapshot.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub moved: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is serde's"
)]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl From<u64> for Reading {
    fn from(value: u64) -> Self {
        Self { value, moved: 0 }
    }
}

/// Counters by the name that the kernel or the usual tool gives them.
pub type Counters = BTreeMap<String, Reading>;

/// The counters of a host at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// [`VERSION`].
    pub version: u32,
    /// `/proc/sys/kernel/random/boot_id`: counters of different boots have nothing in common.
    pub boot_id: String,
    /// The kernel's release.
    pub kernel: String,
    /// When reading began: `CLOCK_REALTIME` in nanoseconds.
    pub realtime_ns: u64,
    /// The same by `CLOCK_BOOTTIME`, for the time between two snapshots.
    pub boottime_ns: u64,
    /// How long reading took, in nanoseconds.
    pub took_ns: u64,
    /// Whether all namespaces were to be read: counters of the host have no owner otherwise.
    #[serde(default)]
    pub whole_host: bool,
    /// Whether only some devices were to be read, and so nothing behind them.
    #[serde(default)]
    pub devices_only: bool,
    /// The network namespaces that were read, by their inode.
    pub namespaces: BTreeMap<u64, Namespace>,
    /// The columns of `/proc/net/softnet_stat` by CPU. They count for all namespaces.
    pub cpus: BTreeMap<usize, Counters>,
    /// The events since their tracepoints were attached; none without privilege.
    pub events: Option<Counted>,
    /// The AF_XDP sockets of all processes and namespaces; none where they cannot be listed.
    pub xdp_sockets: Option<Vec<XdpSocket>>,
    /// The counters of the neighbour tables, such as `arp_cache.table_fulls`. They count for all namespaces.
    #[serde(default)]
    pub neighbours: Counters,
    /// Parts that cannot be seen here, with a cure.
    pub gaps: Vec<Gap>,
}

/// Events since their tracepoints were attached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// When they were attached, by `CLOCK_BOOTTIME` in nanoseconds: counts of another time begin elsewhere.
    pub since_ns: u64,
    /// Freed packets.
    pub drops: Vec<Drop>,
    /// Errors of XDP; with the tracepoints of success also frames that went on.
    pub xdp: Vec<XdpEvent>,
    /// Packets that devices handed to the stack; none without the tracepoints of success.
    #[serde(default)]
    pub received: Vec<Received>,
    /// Packets that did not fit into the programs' maps.
    pub overflow: u64,
}

/// Packets that a device handed to the stack (`net:netif_receive_skb`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// The inode of the network namespace.
    pub netns: u64,
    /// The index of the device.
    pub device: u32,
    /// Packets as the stack handles them.
    pub skbs: u64,
    /// Packets on the wire.
    pub segments: u64,
}

/// A network namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// The name under which it is mounted, such as in /run/netns, or the lowest process in it.
    pub name: String,
    /// The container by whose cgroup its processes are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Its devices by their index.
    pub devices: BTreeMap<u32, Device>,
    /// The counters of its protocols, as `nstat` names them but with a dot: `Udp.RcvbufErrors`.
    pub mib: Counters,
    /// ARP packets received since the reader was opened; none without privilege.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arp: Option<Reading>,
    /// Its UDP, listening and connected TCP, and AF_PACKET sockets by their cookie.
    pub sockets: BTreeMap<u64, Socket>,
    /// Sockets that lost packets and are closed by now, as they were when they were seen last.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub closed: BTreeMap<u64, Socket>,
}

/// A network device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// `IFLA_INFO_KIND`, such as `veth`; none for hardware and the loopback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Whether it is the loopback.
    #[serde(default)]
    pub loopback: bool,
    /// Its receive queues.
    #[serde(default)]
    pub queues: u32,
    /// The index of its bridge, bond or VRF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<u32>,
    /// The index of the device below it, such as of a VLAN, in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower: Option<u32>,
    /// The other end of a veth or netkit: the inode of its namespace and its index there, where that namespace is
    /// part of the snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<(u64, u32)>,
    /// The id of its XDP program in the driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xdp_driver: Option<u32>,
    /// The id of its XDP program behind the driver (generic).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xdp_generic: Option<u32>,
    /// `struct rtnl_link_stats64`, by its fields (`linux/if_link.h`).
    pub statistics: Counters,
    /// `ethtool -S`, as the driver names them. Numbers of queues are replaced by `*` and their counters added.
    pub driver: Counters,
    /// The same counters of single queues, by `rx` or `tx` and the queue's number, such as `rx 0`; their names are
    /// without both.
    #[serde(default)]
    pub by_queue: BTreeMap<String, Counters>,
    /// Its queueing disciplines by kind and handle, such as `pfifo 8001:`.
    pub qdiscs: BTreeMap<String, Counters>,
    /// The discipline above each of them that is not the root, by the same names: it adds up the drops of
    /// those below it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub qdisc_parents: BTreeMap<String, String>,
}

/// Kinds of devices that come in pairs: `IFLA_LINK` is the other end.
const PAIRS: [&str; 2] = ["veth", "netkit"];
/// Kinds of devices that send a packet as the payload of one that IP routes.
const TUNNELS: [&str; 10] = [
    "vxlan",
    "geneve",
    "bareudp",
    "gre",
    "gretap",
    "ip6gre",
    "ip6gretap",
    "ipip",
    "sit",
    "ip6tnl",
];

/// Whether devices of a kind are ends of a pair.
pub fn is_pair(kind: Option<&str>) -> bool {
    kind.is_some_and(|kind| PAIRS.contains(&kind))
}

impl Device {
    /// Whether it is one end of a pair.
    pub fn is_paired(&self) -> bool {
        is_pair(self.kind.as_deref())
    }

    /// Whether it is a tunnel, whose packets IP sends a second time.
    pub fn is_tunnel(&self) -> bool {
        self.kind
            .as_deref()
            .is_some_and(|kind| TUNNELS.contains(&kind))
    }
}

/// A socket.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Socket {
    /// `udp`, `udp6`, `tcp`, `tcp6` or `packet`.
    pub protocol: String,
    /// The address and port that it is bound to; for AF_PACKET the protocol.
    pub local: String,
    /// The address and port that it is connected to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// Whether it is a listener.
    #[serde(default)]
    pub listening: bool,
    /// Packets that it lost (`SK_MEMINFO_DROPS`), and of a packet ring `tp_drops`, which its owner can reset.
    pub drops: u64,
    /// Bytes in its receive queue (`SK_MEMINFO_RMEM_ALLOC`); of a listener, connections that wait.
    pub queued: u64,
    /// The limit of `queued` (`SK_MEMINFO_RCVBUF`, or the backlog).
    pub limit: u64,
    /// Of AF_PACKET: the frames of its receive ring, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring_frames: Option<u64>,
    /// Packets in its receive queue, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// The process that has it, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
}

/// A process.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its name (`/proc/PID/comm`), which may have any characters.
    pub name: String,
}

/// Packets that were freed for the same reason at the same place (`skb:kfree_skb`), as far as one key counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Drop {
    /// The reason by the running kernel's name, without `SKB_DROP_REASON_`: `NO_SOCKET`.
    pub reason: String,
    /// The function that freed it; none where the kernel hides its addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The inode of the network namespace; 0 where the packet has none.
    pub netns: u64,
    /// The index of the device; 0 where the packet has none.
    pub device: u32,
    /// The `EtherType`, such as 0x0800.
    pub protocol: u16,
    /// Whether it came in by a device; else it was made here.
    #[serde(default)]
    pub received: bool,
    /// The cookie of the receiving socket, where the reason is one of a socket and the kernel tells (Linux 6.11);
    /// else 0.
    pub socket: u64,
    /// Packets as the stack handles them.
    pub skbs: u64,
    /// Packets on the wire: each skb counts as many as GRO or TSO made of it.
    pub segments: u64,
}

/// Frames of one event of XDP.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct XdpEvent {
    /// The tracepoint: `xdp_exception`, `xdp_redirect_err`, `xdp_devmap_xmit`, `xdp_bulk_tx`,
    /// `xdp_cpumap_enqueue`.
    pub event: String,
    /// The inode of the network namespace of `device`.
    pub netns: u64,
    /// The index of the device that the frame came from, or was to leave by (`xdp_devmap_xmit`, `xdp_bulk_tx`).
    pub device: u32,
    /// The id of the program; 0 where the event has none.
    pub program: u32,
    /// The program's name, where it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program_name: Option<String>,
    /// Of an exception: the action, such as `XDP_ABORTED`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The error, such as `ENOBUFS`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The type of the map of a redirect, such as `xskmap`; none without a map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map: Option<String>,
    /// The index of the other device of a redirect; 0 where the event has none.
    #[serde(default)]
    pub to: u32,
    /// Frames lost.
    pub lost: u64,
    /// Frames that went on.
    #[serde(default)]
    pub passed: u64,
}

/// An AF_XDP socket of any process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct XdpSocket {
    /// Its cookie.
    pub cookie: u64,
    /// The process that has it; the one with the lowest id of several.
    pub process: Process,
    /// The descriptor in that process.
    pub fd: u32,
    /// The inode of its network namespace.
    pub netns: u64,
    /// The index of its device; 0 before bind(2).
    pub device: u32,
    /// Its queue.
    pub queue: u32,
    /// Whether the driver writes straight into its UMEM.
    pub zero_copy: bool,
    /// Whether it is bound.
    pub bound: bool,
    /// Its rings; one that it does not have is absent.
    pub rx: Option<Ring>,
    /// As `rx`.
    pub tx: Option<Ring>,
    /// The FILL ring of its UMEM.
    pub fill: Option<Ring>,
    /// The COMPLETION ring of its UMEM.
    pub completion: Option<Ring>,
    /// Frames lost: too long, or no chunk in FILL (`rx_dropped`).
    pub rx_dropped: u64,
    /// Frames lost since the RX ring was full (`rx_queue_full`).
    pub rx_full: u64,
    /// How often FILL was found empty, also where no frame was lost by it (zero-copy).
    pub fill_empty: u64,
    /// How often TX was found empty.
    pub tx_empty: u64,
    /// Invalid descriptors in TX.
    pub tx_invalid: u64,
    /// Whether the kernel waits for a call before it fills from FILL.
    pub rx_needs_wakeup: bool,
    /// Whether the kernel waits for a call before it sends from TX.
    pub tx_needs_wakeup: bool,
}

/// A ring of an AF_XDP socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ring {
    /// Its slots.
    pub size: u32,
    /// The producer's index, which wraps.
    pub producer: u32,
    /// The consumer's index, which wraps.
    pub consumer: u32,
}

impl Ring {
    /// Entries in it: never more than its size, whatever the process wrote there.
    pub fn level(&self) -> u32 {
        self.producer.wrapping_sub(self.consumer).min(self.size)
    }
}

/// A stage, or a part of one, that cannot be seen here.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Gap {
    /// The stage.
    pub stage: Stage,
    /// The hidden part, and the reason.
    pub hidden: String,
    /// A way to see it.
    pub cure: String,
}

impl Snapshot {
    /// The device with this index in a namespace.
    pub fn device(&self, netns: u64, index: u32) -> Option<&Device> {
        self.namespaces.get(&netns)?.devices.get(&index)
    }

    /// Names a gap, once.
    pub fn gap(&mut self, stage: Stage, hidden: impl Into<String>, cure: impl Into<String>) {
        let gap = Gap {
            stage,
            hidden: hidden.into(),
            cure: cure.into(),
        };
        if !self.gaps.contains(&gap) {
            self.gaps.push(gap);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_holds_at_most_its_size() {
        let ring = |producer, consumer| Ring {
            size: 64,
            producer,
            consumer,
        };
        assert_eq!(ring(3, u32::MAX).level(), 4);
        assert_eq!(ring(7, 8).level(), 64, "a hostile consumer");
    }
}
