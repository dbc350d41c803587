//! The structures and constants of bpf/drops.h, which describes the fields.
#![allow(missing_docs)]

use crate::bpf::layout::{Constants, Layout, shared_structs};

/// The most bytes of a packet that a record can have.
pub const MAX_SNAPLEN: u32 = 16384;

/// The first layer of a packet's bytes.
pub const LINK_ETHERNET: u32 = 0;
pub const LINK_IP: u32 = 1;
pub const LINK_NONE: u32 = 2;

pub const INBOUND: u32 = 1;
pub const OUTBOUND: u32 = 2;
pub const NO_CHECKSUM: u32 = 4;
pub const SEGMENTED: u32 = 8;
pub const TAGGED: u32 = 16;

/// Every constant, to be compared when the programs are loaded.
pub const CONSTANTS: &[Constants] = &[
    Constants {
        name: "drops_constants",
        values: &[("MAX_SNAPLEN", MAX_SNAPLEN as usize)],
    },
    Constants {
        name: "drop_link",
        values: &[
            ("LINK_ETHERNET", LINK_ETHERNET as usize),
            ("LINK_IP", LINK_IP as usize),
            ("LINK_NONE", LINK_NONE as usize),
        ],
    },
    Constants {
        name: "drop_flags",
        values: &[
            ("DROP_INBOUND", INBOUND as usize),
            ("DROP_OUTBOUND", OUTBOUND as usize),
            ("DROP_NO_CHECKSUM", NO_CHECKSUM as usize),
            ("DROP_SEGMENTED", SEGMENTED as usize),
            ("DROP_TAGGED", TAGGED as usize),
        ],
    },
];

/// Every structure, to be compared when the programs are loaded.
pub const LAYOUTS: &[Layout] = &[
    DropsConfig::LAYOUT,
    DropInterface::LAYOUT,
    DropCounts::LAYOUT,
    DropSite::LAYOUT,
    DropRecord::LAYOUT,
];

shared_structs! {
    /// The constants of the programs.
    pub struct DropsConfig = "drops_config" {
        snaplen: u32,
        some_namespaces: u32,
        wake_at: u64,
    }

    /// A device as far as packets of one kind are concerned, an interface of the file.
    #[derive(Default, PartialOrd, Ord)]
    pub struct DropInterface = "drop_interface" {
        netns: u32,
        device: u32,
        link: u32,
    }

    /// Freed packets.
    #[derive(Default)]
    pub struct DropCounts = "drop_counts" {
        seen: u64,
        normal: u64,
        lost: u64,
        told: u64,
    }

    /// A reason at a place.
    #[derive(Default, PartialOrd, Ord)]
    pub struct DropSite = "drop_site" {
        location: u64,
        reason: u32,
        unused: u32,
    }

    /// A record in the ring; `captured` bytes of the packet follow.
    #[derive(Default)]
    pub struct DropRecord = "drop_record" {
        time: u64,
        location: u64,
        lost: u64,
        interface: DropInterface,
        reason: u32,
        length: u32,
        captured: u32,
        segments: u32,
        flags: u32,
        tag: u16,
        tag_protocol: u16,
        unused: u32,
    }
}

impl DropCounts {
    /// Adds another CPU's.
    pub fn add(&mut self, other: &Self) {
        self.seen += other.seen;
        self.normal += other.normal;
        self.lost += other.lost;
        self.told += other.told;
    }
}
