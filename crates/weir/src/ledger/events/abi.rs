//! The structures and constants of bpf/ledger.h, which describes the fields.
#![allow(missing_docs)]

use crate::bpf::layout::{Constants, Layout, shared_structs};

/// Words of the set of reasons whose socket is counted apart.
pub const REASON_WORDS: usize = 4;
const PROCESS_NAME: usize = 16;

/// Numbers of events of XDP.
pub const EXCEPTION: u32 = 0;
pub const REDIRECT_ERR: u32 = 1;
pub const REDIRECT: u32 = 2;
pub const DEVMAP_XMIT: u32 = 3;
pub const BULK_TX: u32 = 4;
pub const CPUMAP: u32 = 5;
const EVENTS: usize = 6;

/// Every constant, to be compared when the programs are loaded.
pub const CONSTANTS: &[Constants] = &[
    Constants {
        name: "ledger_constants",
        values: &[
            ("REASON_WORDS", REASON_WORDS),
            ("PROCESS_NAME", PROCESS_NAME),
        ],
    },
    Constants {
        name: "xdp_event",
        values: &[
            ("EVENT_EXCEPTION", EXCEPTION as usize),
            ("EVENT_REDIRECT_ERR", REDIRECT_ERR as usize),
            ("EVENT_REDIRECT", REDIRECT as usize),
            ("EVENT_DEVMAP_XMIT", DEVMAP_XMIT as usize),
            ("EVENT_BULK_TX", BULK_TX as usize),
            ("EVENT_CPUMAP", CPUMAP as usize),
            ("EVENTS", EVENTS),
        ],
    },
];

/// Every structure, to be compared when the programs are loaded.
pub const LAYOUTS: &[Layout] = &[
    Config::LAYOUT,
    DropKey::LAYOUT,
    DropValue::LAYOUT,
    XdpKey::LAYOUT,
    XdpValue::LAYOUT,
    ReceiveKey::LAYOUT,
    RingRecord::LAYOUT,
    SocketRecord::LAYOUT,
];

shared_structs! {
    /// The constants of the programs.
    #[derive(Default)]
    pub struct Config = "ledger_config" {
        socket_reasons: [u64; REASON_WORDS],
    }

    /// Freed packets are counted by these.
    #[derive(Default, PartialOrd, Ord)]
    pub struct DropKey = "drop_key" {
        location: u64,
        socket: u64,
        netns: u32,
        device: u32,
        reason: u32,
        protocol: u16,
        received: u16,
    }

    /// Packets.
    #[derive(Default)]
    pub struct DropValue = "drop_value" {
        skbs: u64,
        segments: u64,
    }

    /// Events of XDP are counted by these.
    #[derive(Default, PartialOrd, Ord)]
    pub struct XdpKey = "xdp_key" {
        event: u32,
        netns: u32,
        device: u32,
        to: u32,
        program: u32,
        code: i32,
        map_type: u32,
        unused: u32,
    }

    /// Frames.
    #[derive(Default)]
    pub struct XdpValue = "xdp_value" {
        frames: u64,
        lost: u64,
    }

    /// Packets that devices handed to the stack are counted by these.
    #[derive(Default)]
    pub struct ReceiveKey = "receive_key" {
        netns: u32,
        device: u32,
    }

    /// A ring of an AF_XDP socket.
    #[derive(Default)]
    pub struct RingRecord = "ring_record" {
        size: u32,
        producer: u32,
        consumer: u32,
        unused: u32,
        invalid: u64,
        empty: u64,
    }

    /// A socket of a process.
    #[derive(Default)]
    pub struct SocketRecord = "socket_record" {
        cookie: u64,
        pid: u32,
        fd: u32,
        family: u32,
        netns: u32,
        name: [u8; PROCESS_NAME],
        protocol: u32,
        queued: u32,
        packet_drops: u32,
        packet_ring: u32,
        device: u32,
        queue: u32,
        state: u32,
        zero_copy: u32,
        needs_wakeup: u32,
        unused: u32,
        rx_dropped: u64,
        rx_full: u64,
        rx: RingRecord,
        tx: RingRecord,
        fill: RingRecord,
        completion: RingRecord,
    }
}
