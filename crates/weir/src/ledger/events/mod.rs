//! The programs of bpf/ledger.bpf.c: losses by reason and place, and the sockets of all processes.

pub mod abi;
pub mod reasons;

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context as _, Result};
use hostnet::errno_name;
use zerocopy::{FromBytes as _, Immutable, IntoBytes};

use self::abi::{
    Config, DropKey, DropValue, ReceiveKey, RingRecord, SocketRecord, XdpKey, XdpValue,
};
use self::reasons::Reasons;
use super::snapshot::{Counted, Drop, Process, Received, Ring, XdpEvent, XdpSocket};
use crate::bpf::kernel_types::KernelTypes;
use crate::bpf::layout::text;
use crate::bpf::symbols::KernelSymbols;
use crate::bpf::{self, Attached, Map, Object, Programs};
use crate::process::clock::boottime_ns;

const OBJECT: Object = Object {
    name: "ledger",
    bytes: include_bytes!(concat!(env!("OUT_DIR"), "/ledger.bpf.o")),
    needs: "Linux 5.17 with BTF (CONFIG_DEBUG_INFO_BTF), whose tracepoints and sockets it reads",
    layouts: abi::LAYOUTS,
    constants: abi::CONSTANTS,
    arrays_by_cpu: &[],
};

/// The programs, of which a kernel gets the one that fits its tracepoint.
const KFREE_SKB: &str = "kfree_skb";
const KFREE_SKB_RECEIVER: &str = "kfree_skb_receiver";
/// The programs at tracepoints of errors.
const XDP_ERRORS: [&str; 2] = ["xdp_exception", "xdp_redirect_err"];
/// The programs at tracepoints of success, with the tracepoint of each.
const DEEP: [(&str, &str); 5] = [
    ("deep_xdp_redirect", "xdp_redirect"),
    ("deep_xdp_devmap_xmit", "xdp_devmap_xmit"),
    ("deep_xdp_bulk_tx", "xdp_bulk_tx"),
    ("deep_xdp_cpumap_enqueue", "xdp_cpumap_enqueue"),
    ("deep_netif_receive_skb", "netif_receive_skb"),
];
const SOCKETS: &str = "sockets";

/// Numbers of cells in the map `overflow`, in its order.
const OVERFLOWS: u32 = 3;

/// Address families (linux/socket.h).
const AF_PACKET: u32 = 17;
const AF_XDP: u32 = 44;
/// `XSK_BOUND` of `net/xdp_sock.h`.
const XSK_BOUND: u32 = 1;
/// Flags of `cached_need_wakeup` (`net/xsk_buff_pool.h`: `XDP_WAKEUP_RX`, `XDP_WAKEUP_TX`).
const WAKEUP_RX: u32 = 1;
const WAKEUP_TX: u32 = 2;

/// The tracepoints, attached until this is dropped, and the iterator over sockets.
#[must_use = "the tracepoints are detached when this is dropped"]
pub struct Events {
    programs: Programs,
    /// Only held.
    _attached: Vec<Attached>,
    reasons: Reasons,
    actions: BTreeMap<i64, String>,
    map_types: BTreeMap<i64, String>,
    symbols: Option<KernelSymbols>,
    program_names: HashMap<u32, Option<String>>,
    drops: Map<DropKey, DropValue>,
    xdp: Map<XdpKey, XdpValue>,
    received: Map<ReceiveKey, DropValue>,
    overflow: Map<u32, DropValue>,
    /// Tracepoints and arguments that this kernel lacks.
    missing: Vec<Missing>,
    /// When the tracepoints were attached, by `CLOCK_BOOTTIME`.
    since_ns: u64,
}

/// A tracepoint that this kernel lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// The tracepoint with this name.
    Tracepoint(&'static str),
    /// `kfree_skb` does not tell the socket that refused a packet (before Linux 6.11).
    Receiver,
}

/// A socket of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnedSocket {
    /// Its process: the one with the lowest id of several.
    pub process: Process,
    /// The inode of its network namespace.
    pub netns: u64,
    /// Packets in its receive queue.
    pub queued: u32,
    /// Of AF_PACKET: packets lost since its owner read `PACKET_STATISTICS`, and the frames of its ring.
    pub packet: Option<(u32, u32)>,
}

/// The sockets of all processes.
#[derive(Debug, Default)]
pub struct Sockets {
    /// All by their cookie.
    pub owned: HashMap<u64, OwnedSocket>,
    /// The AF_XDP sockets among them, by device and queue.
    pub xdp: Vec<XdpSocket>,
}

impl Events {
    /// Attaches the tracepoints of errors; with `deep` also those of success, which run for each packet.
    ///
    /// # Errors
    ///
    /// Without `CAP_BPF` and `CAP_PERFMON`, and for a kernel without BTF or these tracepoints.
    pub fn attach(deep: bool) -> Result<Self> {
        let types = KernelTypes::read()?;
        let reasons = Reasons::read(&types)?;
        let mut missing = Vec::new();
        let mut wanted = vec![SOCKETS];
        match types.tracepoint_arguments("kfree_skb") {
            // Its fourth argument is the socket.
            Some(4..) => wanted.push(KFREE_SKB_RECEIVER),
            Some(3) => {
                wanted.push(KFREE_SKB);
                missing.push(Missing::Receiver);
            }
            _ => missing.push(Missing::Tracepoint("skb:kfree_skb")),
        }
        for name in XDP_ERRORS {
            match types.tracepoint_arguments(name) {
                Some(_) => wanted.push(name),
                None => missing.push(Missing::Tracepoint(name)),
            }
        }
        for (name, tracepoint) in DEEP.iter().filter(|_| deep) {
            match types.tracepoint_arguments(tracepoint) {
                Some(_) => wanted.push(name),
                None => missing.push(Missing::Tracepoint(tracepoint)),
            }
        }
        let config = Config {
            socket_reasons: reasons.of_sockets(),
        };
        let programs = Programs::load(&OBJECT, Some(config.as_bytes()), |name| {
            wanted.contains(&name)
        })?;
        let tracepoints = wanted.iter().filter(|name| **name != SOCKETS);
        Ok(Self {
            _attached: tracepoints
                .map(|name| programs.attach(name))
                .collect::<Result<_>>()?,
            reasons,
            actions: names(&types, "xdp_action", "").into_iter().collect(),
            map_types: names(&types, "bpf_map_type", "BPF_MAP_TYPE_")
                .into_iter()
                .map(|(value, name)| (value, name.to_lowercase()))
                .collect(),
            symbols: None,
            program_names: HashMap::new(),
            drops: programs.map("drops")?,
            xdp: programs.map("xdp_events")?,
            received: programs.map("received")?,
            overflow: programs.map("overflow")?,
            missing,
            since_ns: boottime_ns(),
            programs,
        })
    }

    /// Tracepoints and arguments that this kernel lacks.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// The counts since the tracepoints were attached.
    pub fn count(&mut self) -> Result<Counted> {
        let mut counted = Counted {
            since_ns: self.since_ns,
            ..Counted::default()
        };
        // Several places of one function are one.
        let mut places: BTreeMap<DropKey, Drop> = BTreeMap::new();
        let mut first_of = HashMap::new();
        for (key, value) in sums(&self.drops)? {
            let place = self.place(key.location)?;
            let first = *first_of.entry(place.clone()).or_insert(key.location);
            let place_key = DropKey {
                location: first,
                ..key
            };
            let drop = places
                .entry(place_key)
                .or_insert_with(|| self.drop(&key, place));
            drop.skbs += value.skbs;
            drop.segments += value.segments;
        }
        counted.drops = places.into_values().collect();
        for (key, value) in frames(&self.xdp)? {
            let event = self.event(&key, value);
            counted.xdp.push(event);
        }
        for (key, value) in sums(&self.received)? {
            counted.received.push(Received {
                netns: u64::from(key.netns),
                device: key.device,
                skbs: value.skbs,
                segments: value.segments,
            });
        }
        for cell in 0..OVERFLOWS {
            let values = self.overflow.get_per_cpu(&cell)?.unwrap_or_default();
            counted.overflow += values.iter().map(|value| value.skbs).sum::<u64>();
        }
        Ok(counted)
    }

    /// The cookies of the sockets that refused packets.
    pub fn refusing_sockets(&self) -> Result<Vec<u64>> {
        let keys = self.drops.keys()?.into_iter();
        Ok(keys
            .map(|key| key.socket)
            .filter(|socket| *socket != 0)
            .collect())
    }

    fn drop(&self, key: &DropKey, place: Option<String>) -> Drop {
        Drop {
            reason: self.reasons.name(key.reason),
            place,
            netns: u64::from(key.netns),
            device: key.device,
            protocol: u16::from_be(key.protocol),
            received: key.received != 0,
            socket: key.socket,
            skbs: 0,
            segments: 0,
        }
    }

    /// The function at an address. Symbols are read when the first packet is lost: there are a hundred
    /// thousand.
    fn place(&mut self, address: u64) -> Result<Option<String>> {
        let symbols = match self.symbols.take() {
            Some(symbols) => symbols,
            None => KernelSymbols::read()?,
        };
        let name = symbols.name(address).map(str::to_owned);
        self.symbols = Some(symbols);
        Ok(name)
    }

    fn event(&mut self, key: &XdpKey, value: XdpValue) -> XdpEvent {
        let event = match key.event {
            abi::EXCEPTION => "xdp_exception",
            abi::REDIRECT_ERR => "xdp_redirect_err",
            abi::REDIRECT => "xdp_redirect",
            abi::DEVMAP_XMIT => "xdp_devmap_xmit",
            abi::BULK_TX => "xdp_bulk_tx",
            _ => "xdp_cpumap_enqueue",
        };
        let is_exception = key.event == abi::EXCEPTION;
        let program_name = self.program_name(key.program);
        let code = i64::from(key.code);
        let named = |names: &BTreeMap<i64, String>, value: i64| {
            let name = names.get(&value).cloned();
            name.unwrap_or_else(|| value.to_string())
        };
        XdpEvent {
            event: event.into(),
            netns: u64::from(key.netns),
            device: key.device,
            program: key.program,
            program_name,
            action: is_exception.then(|| named(&self.actions, code)),
            error: (!is_exception && key.code != 0).then(|| error_name(key.code)),
            map: (key.map_type != 0).then(|| named(&self.map_types, key.map_type.into())),
            to: key.to,
            lost: value.lost,
            passed: value.frames,
        }
    }

    fn program_name(&mut self, id: u32) -> Option<String> {
        if id == 0 {
            return None;
        }
        let name = || bpf::program_name(id);
        self.program_names.entry(id).or_insert_with(name).clone()
    }

    /// The sockets of all processes. Needs `CAP_PERFMON`; none of a process is left out.
    pub fn sockets(&self) -> Result<Sockets> {
        let written = self.programs.iterate(SOCKETS)?;
        let mut sockets = Sockets::default();
        for bytes in written.chunks_exact(size_of::<SocketRecord>()) {
            let record = SocketRecord::read_from_bytes(bytes)
                .ok()
                .context("the kernel wrote no whole socket")?;
            sockets.add(&record);
        }
        sockets
            .xdp
            .sort_by_key(|socket| (socket.netns, socket.device, socket.queue, socket.cookie));
        Ok(sockets)
    }
}

impl Sockets {
    /// A process can have several descriptors of a socket, and several processes one of it.
    fn add(&mut self, record: &SocketRecord) {
        let process = Process {
            pid: record.pid,
            name: text(&record.name),
        };
        let is_new = !self.owned.contains_key(&record.cookie);
        let owned = self.owned.entry(record.cookie).or_default();
        if !is_new && owned.process <= process {
            return;
        }
        owned.process = process.clone();
        owned.netns = u64::from(record.netns);
        owned.queued = record.queued;
        owned.packet =
            (record.family == AF_PACKET).then_some((record.packet_drops, record.packet_ring));
        if record.family == AF_XDP {
            self.xdp.retain(|socket| socket.cookie != record.cookie);
            self.xdp.push(xdp_socket(record, process));
        }
    }
}

fn xdp_socket(record: &SocketRecord, process: Process) -> XdpSocket {
    let ring = |ring: &RingRecord| {
        (ring.size != 0).then_some(Ring {
            size: ring.size,
            producer: ring.producer,
            consumer: ring.consumer,
        })
    };
    XdpSocket {
        cookie: record.cookie,
        process,
        fd: record.fd,
        netns: u64::from(record.netns),
        device: record.device,
        queue: record.queue,
        zero_copy: record.zero_copy != 0,
        bound: record.state == XSK_BOUND,
        rx: ring(&record.rx),
        tx: ring(&record.tx),
        fill: ring(&record.fill),
        completion: ring(&record.completion),
        rx_dropped: record.rx_dropped,
        rx_full: record.rx_full,
        fill_empty: record.fill.empty,
        tx_empty: record.tx.empty,
        tx_invalid: record.tx.invalid,
        rx_needs_wakeup: record.needs_wakeup & WAKEUP_RX != 0,
        tx_needs_wakeup: record.needs_wakeup & WAKEUP_TX != 0,
    }
}

/// An error by its name: tracepoints have it negative.
fn error_name(code: i32) -> String {
    let errno = code.wrapping_abs();
    errno_name(errno).map_or_else(|| format!("error {errno}"), str::to_owned)
}

/// The constants of an enumeration by value, without a prefix.
fn names(types: &KernelTypes, enumeration: &str, prefix: &str) -> Vec<(i64, String)> {
    let constants = types.constants(enumeration).unwrap_or_default();
    let constants = constants.into_iter();
    constants
        .filter_map(|(name, value)| Some((value, name.strip_prefix(prefix)?.to_owned())))
        .collect()
}

/// The entries of a map with a value for each CPU, as their sums.
fn sums<K>(map: &Map<K, DropValue>) -> Result<Vec<(K, DropValue)>>
where
    K: zerocopy::FromBytes + IntoBytes + Immutable,
{
    let entries = map.keys()?.into_iter().map(|key| {
        let values = map.get_per_cpu(&key)?.unwrap_or_default();
        let sum = values
            .iter()
            .fold(DropValue::default(), |sum, value| DropValue {
                skbs: sum.skbs + value.skbs,
                segments: sum.segments + value.segments,
            });
        Ok((key, sum))
    });
    entries.collect()
}

/// As [`sums`], of frames.
fn frames(map: &Map<XdpKey, XdpValue>) -> Result<Vec<(XdpKey, XdpValue)>> {
    let entries = map.keys()?.into_iter().map(|key| {
        let values = map.get_per_cpu(&key)?.unwrap_or_default();
        let sum = values
            .iter()
            .fold(XdpValue::default(), |sum, value| XdpValue {
                frames: sum.frames + value.frames,
                lost: sum.lost + value.lost,
            });
        Ok((key, sum))
    });
    entries.collect()
}
