//! The structures and constants of bpf/switch.h, which describes them.

use crate::bpf::Object;
use crate::bpf::layout::{Constants, Layout, shared_structs};

/// Slots that are tried for a device.
pub const PROBES: u32 = 8;
/// Addresses in a bucket.
pub const BUCKET_SLOTS: usize = 4;
/// Buckets that are searched for an address.
pub const BUCKETS: u32 = 4;
/// Words of a set of VLANs.
pub const VLAN_WORDS: usize = 64;
/// VLANs.
pub const VLANS: u32 = 4096;
/// Bytes of a frame that a sample has at most.
pub const SAMPLE_BYTES: usize = 1536;
/// The time that a storm meter counts in, in nanoseconds.
const METER_NS: usize = 100_000_000;

/// Bits of [`Port::flags`].
pub mod flag {
    /// Frames go from it and to it.
    pub const FORWARDING: u32 = 1 << 0;
    /// Frames that an XDP program redirects to it are sent.
    pub const XDP_EGRESS: u32 = 1 << 1;
    /// It exchanges no frames with other isolated ports.
    pub const ISOLATED: u32 = 1 << 2;
    /// The kernel learns the source addresses of its frames.
    pub const LEARNING: u32 = 1 << 3;
    /// A storm meter is set.
    pub const STORM: u32 = 1 << 4;
    /// The number of its addresses is limited.
    pub const MAC_LIMIT: u32 = 1 << 5;
}

/// Bits of [`Place::flags`].
pub mod place_flag {
    /// To be used.
    pub const ACTIVE: u8 = 1 << 0;
    /// The kernel forgets the address when it gets no frame from it.
    pub const AGES: u8 = 1 << 1;
}

/// An address in a VLAN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FdbKey {
    /// The address.
    pub mac: [u8; 6],
    /// 0 in a bridge that is not VLAN-aware.
    pub vlan: u16,
}

impl FdbKey {
    /// The key in a bucket: the first six bytes in memory are the address.
    pub fn word(self) -> u64 {
        let mut bytes = [0; 8];
        bytes[..self.mac.len()].copy_from_slice(&self.mac);
        u64::from_le_bytes(bytes) | u64::from(self.vlan) << 48
    }
}

/// Kinds of frames that have a storm meter: broadcast, multicast, unknown destination.
pub const STORMS: usize = 3;

/// Declares the reasons in the order of `enum reason`.
macro_rules! reasons {
    ($($c_name:literal $name:literal $about:literal,)*) => {
        /// The name of each reason in reports, and a sentence about it, in the order of `enum reason`.
        pub const REASONS: &[(&str, &str)] = &[$(($name, $about),)*];
        const REASON_VALUES: &[(&str, usize)] = &reasons!(@values [] 0usize; $($c_name)*);
    };
    (@values [$($done:tt)*] $at:expr; $c_name:literal $($rest:literal)*) => {
        reasons!(@values [$($done)* ($c_name, $at),] $at + 1; $($rest)*)
    };
    (@values [$($done:tt)*] $at:expr;) => { [$($done)* ("REASONS", $at)] };
}

reasons! {
    "REASON_PAUSED" "paused" "no heartbeat of the daemon, or its mirror was not up to date",
    "REASON_PORT" "port" "the port was not forwarding, or is left to the kernel",
    "REASON_SHORT" "short" "too short for an Ethernet header and tag",
    "REASON_GROUP" "group" "broadcast or multicast",
    "REASON_PROTOCOL" "protocol" "ARP or ICMPv6",
    "REASON_TAGS" "tags" "several VLAN tags, a tag of priority only or of another type than the bridge's",
    "REASON_VLAN" "vlan" "the port is not in the VLAN",
    "REASON_SOURCE_UNKNOWN" "source-unknown" "the source address is to be learned",
    "REASON_SOURCE_MOVED" "source-moved" "the source address was known at another port",
    "REASON_UNKNOWN" "unknown" "the destination is not in the FDB, or is the bridge itself",
    "REASON_REFRESH" "refresh" "the first frame in a while from its address, whose age the kernel resets",
    "REASON_MOVED" "moved" "the destination was just learned, or has moved",
    "REASON_SAME_PORT" "same-port" "the destination is behind the port that the frame came from",
    "REASON_EGRESS" "egress" "the destination's port is not forwarding, or cannot be sent to from this hook",
    "REASON_EGRESS_VLAN" "egress-vlan" "the destination's port is not in the VLAN",
    "REASON_ISOLATED" "isolated" "both ports are isolated",
    "REASON_MTU" "mtu" "longer than the MTU of the destination's port",
    "REASON_STORM" "storm" "dropped: above the rate of a storm meter",
    "REASON_MAC_LIMIT" "mac-limit" "dropped: a new address above the port's limit",
}

/// Reasons, of which the last two are of drops.
pub const REASON_COUNT: usize = REASONS.len();

shared_structs! {
    /// Constants of the programs.
    pub struct Features = "switch_features" {
        /// Odd, and different in each switch.
        hash_factor: u64,
        /// The number of buckets less one.
        bucket_mask: u32,
        /// The number of slots less one.
        slot_mask: u32,
        /// In network byte order; 0 for a bridge that is not VLAN-aware.
        vlan_protocol: u32,
        /// The upper bits of a product are the number of a bucket.
        hash_shift: u32,
    }

    /// The state that is changed while the programs run.
    #[derive(Default)]
    pub struct Config = "switch_config" {
        /// Nanoseconds of `CLOCK_MONOTONIC`.
        deadline: u64,
        /// Nanoseconds of `CLOCK_MONOTONIC`.
        sample_until: u64,
        /// 0: none.
        sample_one_in: u64,
        /// Written to [`Place::used`].
        epoch: u32,
        /// 0.
        padding: u32,
    }

    /// A device of the bridge.
    #[derive(Default)]
    pub struct Slot = "slot" {
        /// The device; 0 for none.
        ifindex: u32,
        /// The number of its port.
        port: u32,
    }

    /// A port.
    #[derive(Default)]
    pub struct Port = "port" {
        /// The device.
        ifindex: u32,
        /// Bits of [`flag`].
        flags: u32,
        /// Bytes of a packet without its Ethernet header.
        mtu: u32,
        /// 0: none.
        pvid: u32,
        /// Frames a second by kind; 0: no limit.
        storm: [u32; STORMS],
        /// Addresses behind it at most.
        mac_limit: u32,
        /// Addresses behind it.
        macs: u32,
        /// 0.
        padding: u32,
        /// Of [`Meter::newcomers`], those that `macs` includes.
        newcomers_seen: u64,
    }

    /// The VLANs of a port.
    pub struct PortVlans = "port_vlans" {
        /// Those that it is in.
        member: [u64; VLAN_WORDS],
        /// Those whose frames leave it without a tag.
        untagged: [u64; VLAN_WORDS],
    }

    /// The place of an address.
    #[derive(Default)]
    pub struct Place = "fdb_place" {
        /// The number of its port.
        port: u16,
        /// Bits of [`place_flag`].
        flags: u8,
        /// Set by the programs.
        moved: u8,
        /// The epoch in which the kernel last got a frame from it.
        used: u32,
    }

    /// Some addresses.
    pub struct Bucket = "fdb_bucket" {
        /// 0: none.
        key: [u64; BUCKET_SLOTS],
        /// Of each key.
        place: [Place; BUCKET_SLOTS],
    }

    /// The meters of a port.
    #[derive(Default)]
    pub struct Meter = "meter" {
        /// When the count began, by kind.
        start: [u64; STORMS],
        /// Frames since then, by kind.
        count: [u64; STORMS],
        /// Addresses that were let through to be learned.
        newcomers: u64,
    }

    /// An address that was let through to be learned.
    pub struct NewcomerKey = "newcomer_key" {
        /// As in a bucket.
        address: u64,
        /// The number of its port.
        port: u32,
        /// 0.
        padding: u32,
    }

    /// Its number.
    pub struct NewcomerValue = "newcomer_value" {
        /// Of the address among those of its port.
        number: u64,
    }

    /// Counters of a port.
    pub struct PortCounters = "port_counters" {
        /// Frames from it that were forwarded.
        rx_packets: u64,
        /// Their bytes.
        rx_bytes: u64,
        /// Frames to it that were forwarded.
        tx_packets: u64,
        /// Their bytes.
        tx_bytes: u64,
        /// Frames from it that were not, in the order of [`REASONS`].
        reasons: [u64; REASON_COUNT],
    }

    /// Counters of a VLAN.
    #[derive(Default)]
    pub struct VlanCounters = "vlan_counters" {
        /// Forwarded frames.
        packets: u64,
        /// Their bytes.
        bytes: u64,
    }

    /// A forwarded frame.
    pub struct Sample = "sample" {
        /// Nanoseconds of `CLOCK_MONOTONIC`.
        time: u64,
        /// The device that it came from.
        ingress: u32,
        /// The device that it went to.
        egress: u32,
        /// Of the tag beside the frame; 0: none.
        vlan: u32,
        /// Of the whole frame.
        length: u32,
        /// Of `bytes`, those that are the frame's.
        bytes_used: u32,
        /// 0.
        padding: u32,
        /// Its beginning.
        bytes: [u8; SAMPLE_BYTES],
    }
}

impl Default for PortCounters {
    fn default() -> Self {
        Self {
            rx_packets: 0,
            rx_bytes: 0,
            tx_packets: 0,
            tx_bytes: 0,
            reasons: [0; REASON_COUNT],
        }
    }
}

impl Default for PortVlans {
    fn default() -> Self {
        Self {
            member: [0; VLAN_WORDS],
            untagged: [0; VLAN_WORDS],
        }
    }
}

impl PortVlans {
    /// Adds a VLAN.
    pub fn add(&mut self, vid: u16, untagged: bool) {
        let (word, bit) = (usize::from(vid) / 64 % VLAN_WORDS, 1 << (vid % 64));
        self.member[word] |= bit;
        if untagged {
            self.untagged[word] |= bit;
        }
    }
}

/// The structures that the object shares.
pub const LAYOUTS: &[Layout] = &[
    Features::LAYOUT,
    Config::LAYOUT,
    Slot::LAYOUT,
    Port::LAYOUT,
    PortVlans::LAYOUT,
    Place::LAYOUT,
    Bucket::LAYOUT,
    Meter::LAYOUT,
    NewcomerKey::LAYOUT,
    NewcomerValue::LAYOUT,
    PortCounters::LAYOUT,
    VlanCounters::LAYOUT,
    Sample::LAYOUT,
];

/// The constants that the object shares.
pub const CONSTANTS: &[Constants] = &[
    Constants {
        name: "switch_constants",
        values: &[
            ("PROBES", PROBES as usize),
            ("BUCKET_SLOTS", BUCKET_SLOTS),
            ("BUCKETS", BUCKETS as usize),
            ("VLAN_WORDS", VLAN_WORDS),
            ("VLANS", VLANS as usize),
            ("SAMPLE_BYTES", SAMPLE_BYTES),
            ("METER_NS", METER_NS),
        ],
    },
    Constants {
        name: "port_flag",
        values: &[
            ("PORT_FORWARDING", flag::FORWARDING as usize),
            ("PORT_XDP_EGRESS", flag::XDP_EGRESS as usize),
            ("PORT_ISOLATED", flag::ISOLATED as usize),
            ("PORT_LEARNING", flag::LEARNING as usize),
            ("PORT_STORM", flag::STORM as usize),
            ("PORT_MAC_LIMIT", flag::MAC_LIMIT as usize),
        ],
    },
    Constants {
        name: "place_flag",
        values: &[
            ("PLACE_ACTIVE", place_flag::ACTIVE as usize),
            ("PLACE_AGES", place_flag::AGES as usize),
        ],
    },
    Constants {
        name: "storm",
        values: &[
            ("STORM_BROADCAST", 0),
            ("STORM_MULTICAST", 1),
            ("STORM_UNKNOWN", 2),
            ("STORMS", STORMS),
        ],
    },
    Constants {
        name: "reason",
        values: REASON_VALUES,
    },
];

/// The programs.
pub static OBJECT: Object = Object {
    name: "switch",
    bytes: include_bytes!(concat!(env!("OUT_DIR"), "/switch.bpf.o")),
    needs: "Linux 5.18, for bpf_xdp_load_bytes",
    layouts: LAYOUTS,
    constants: CONSTANTS,
    arrays_by_cpu: &[],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_those_of_the_header() {
        OBJECT.check().expect("the same types");
    }

    #[test]
    fn a_vlan_is_one_bit() {
        let mut vlans = PortVlans::default();
        vlans.add(0, false);
        vlans.add(4094, true);
        assert_eq!((vlans.member[0], vlans.untagged[0]), (1, 0));
        assert_eq!((vlans.member[63], vlans.untagged[63]), (1 << 62, 1 << 62));
    }
}
