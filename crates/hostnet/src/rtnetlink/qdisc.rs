//! Queueing disciplines: `RTM_GETQDISC` and `RTM_NEWQDISC`; tc(8).

use std::collections::BTreeSet;

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_REPLACE, Nla as _};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{
    self, TcAttribute, TcMessage, TcOption, TcQdiscFqCodelOption, TcStats2,
};

use super::socket::{GET_FILTER, NEW_FILTER, Rtnetlink};
use crate::error::{Context as _, Result};
use crate::netlink::{RawMessage, u32_of, u64_at};

/// The place of priority and protocol in `struct tcmsg`.
const TC_INFO: usize = 16;
/// `TCA_STATS_PKT64` (`linux/gen_stats.h`).
const STATS_PKT64: u16 = 8;

/// The handle of a queueing discipline or class: `8001:` is major 0x8001, minor 0 (tc(8)).
///
/// ```
/// use hostnet::rtnetlink::TcHandle;
///
/// assert_eq!(TcHandle::ROOT, TcHandle { major: 0xffff, minor: 0xffff });
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct TcHandle {
    /// The number of the queueing discipline.
    pub major: u16,
    /// The number of the class in it; 0 for the discipline itself.
    pub minor: u16,
}

impl TcHandle {
    /// No handle: of a discipline that the kernel chose as the default (`TC_H_UNSPEC`).
    pub const UNSPEC: Self = Self { major: 0, minor: 0 };
    /// The parent of a device's root discipline (`TC_H_ROOT`).
    pub const ROOT: Self = Self {
        major: 0xffff,
        minor: 0xffff,
    };
    /// The parent of `ingress` and `clsact` (`TC_H_INGRESS`).
    pub const INGRESS: Self = Self {
        major: 0xffff,
        minor: 0xfff1,
    };
    /// The parent of filters at ingress (`TC_H_MIN_INGRESS` of `clsact`).
    pub const INGRESS_FILTERS: Self = Self {
        major: 0xffff,
        minor: 0xfff2,
    };
    /// The parent of filters at egress (`TC_H_MIN_EGRESS`).
    pub const EGRESS_FILTERS: Self = Self {
        major: 0xffff,
        minor: 0xfff3,
    };
}

impl From<tc::TcHandle> for TcHandle {
    fn from(handle: tc::TcHandle) -> Self {
        Self {
            major: handle.major,
            minor: handle.minor,
        }
    }
}

/// A queueing discipline of a device.
///
/// ```
/// use hostnet::rtnetlink::{Qdisc, QdiscOptions, TcHandle};
///
/// let root = Qdisc {
///     device: 2,
///     kind: "pfifo".into(),
///     handle: TcHandle { major: 0x8001, minor: 0 },
///     parent: TcHandle::ROOT,
///     options: QdiscOptions::Fifo { limit: 1000 },
///     statistics: None,
/// };
/// assert!(root.parent == TcHandle::ROOT && root.handle != TcHandle::UNSPEC);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qdisc {
    /// The index of the device.
    pub device: u32,
    /// The kind, such as `fq_codel`.
    pub kind: String,
    /// The handle; [`TcHandle::UNSPEC`] for a default that the kernel chose.
    pub handle: TcHandle,
    /// The handle of the parent; [`TcHandle::ROOT`] for the root of the device.
    pub parent: TcHandle,
    /// The settings.
    pub options: QdiscOptions,
    /// The counters; none where the kernel reported none.
    pub statistics: Option<QdiscStatistics>,
}

/// The counters of a queueing discipline (`TCA_STATS2`, in older kernels `TCA_STATS`;
/// `net/core/gen_stats.c`).
///
/// A discipline counts bytes and frames when they leave it; `ingress` and `clsact` count the packets
/// that reach their filters, and have no queue. A packet of the kernel (skb) with segmentation offload stands
/// for several frames: it counts as all of them in [`packets`](Self::packets)
/// (`bstats_update` in `include/net/sch_generic.h`), and as one in the other counters. `noqueue`
/// counts nothing, and programs of tcx, which have no discipline, are not counted either.
///
/// The drops of a discipline are not in the device's `tx_dropped`.
///
/// ```no_run
/// use hostnet::rtnetlink::Rtnetlink;
///
/// for qdisc in Rtnetlink::open()?.qdiscs()? {
///     let drops = qdisc.statistics.unwrap_or_default().drops;
///     println!("device {}: {} dropped {drops}", qdisc.device, qdisc.kind);
/// }
/// # Ok::<(), hostnet::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QdiscStatistics {
    /// Bytes sent, with link-layer headers.
    pub bytes: u64,
    /// Frames sent. Of 64 bits since Linux 5.4 (`TCA_STATS_PKT64`); before it wraps at 32.
    pub packets: u64,
    /// Packets dropped: the queue was full, an AQM or a filter decided so. It wraps at 32 bits, as
    /// the next two.
    pub drops: u32,
    /// Times that a packet had to wait for the rate or the limit of the discipline; each kind has its
    /// own events. A packet can count several times, and is not lost by that.
    pub overlimits: u32,
    /// Packets that came back from a device that could not take them, and were sent later.
    pub requeues: u32,
    /// Bytes that wait at present.
    pub backlog: u32,
    /// Packets that wait at present.
    pub queue_length: u32,
}

/// The settings of a queueing discipline (`TCA_OPTIONS`), of the kinds that this crate reads.
///
/// ```
/// use hostnet::rtnetlink::QdiscOptions;
///
/// let options = QdiscOptions::Fifo { limit: 1000 };
/// assert_ne!(options, QdiscOptions::Unknown);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum QdiscOptions {
    /// The kernel reported none.
    #[default]
    None,
    /// `pfifo` and `bfifo` (`struct tc_fifo_qopt`).
    Fifo {
        /// The length of the queue: packets of a `pfifo`, bytes of a `bfifo`.
        limit: u32,
    },
    /// `fq_codel`.
    FqCodel(FqCodelOptions),
    /// Settings of another kind, or with an attribute that this crate does not know.
    Unknown,
}

/// The settings of `fq_codel`, those that the kernel reported (`TCA_FQ_CODEL_*` in
/// `linux/pkt_sched.h`; tc-fq_codel(8)).
///
/// The kernel keeps times in units of 1024 ns and rounds down in both directions
/// (`codel_time_to_us` in `net/sched/sch_fq_codel.c`): set one microsecond more than it reports to
/// get the same time again.
///
/// ```
/// use hostnet::rtnetlink::FqCodelOptions;
///
/// let options = FqCodelOptions { target: Some(4999), ecn: Some(true), ..Default::default() };
/// assert_eq!(options.interval, None);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FqCodelOptions {
    /// The acceptable delay, in microseconds.
    pub target: Option<u32>,
    /// The interval of the delay's measurement, in microseconds.
    pub interval: Option<u32>,
    /// The delay above which packets are marked with ECN CE, in microseconds.
    pub ce_threshold: Option<u32>,
    /// The value of the DSCP and ECN bits that `ce_threshold` is for.
    pub ce_threshold_selector: Option<u8>,
    /// The mask of the bits that are compared with the selector.
    pub ce_threshold_mask: Option<u8>,
    /// The length of the queue, in packets.
    pub limit: Option<u32>,
    /// The number of flows.
    pub flows: Option<u32>,
    /// The deficit of a flow, in bytes.
    pub quantum: Option<u32>,
    /// The memory of all packets, in bytes.
    pub memory_limit: Option<u32>,
    /// The most packets that are dropped at once.
    pub drop_batch: Option<u32>,
    /// Whether packets are marked with ECN instead of dropped.
    pub ecn: Option<bool>,
}

impl Rtnetlink {
    /// Every queueing discipline of the network namespace, of every device.
    ///
    /// ```no_run
    /// use hostnet::rtnetlink::{Rtnetlink, TcHandle};
    ///
    /// let qdiscs = Rtnetlink::open()?.qdiscs()?;
    /// for qdisc in qdiscs.iter().filter(|qdisc| qdisc.parent == TcHandle::ROOT) {
    ///     println!("device {}: {}", qdisc.device, qdisc.kind);
    /// }
    /// # Ok::<(), hostnet::Error>(())
    /// ```
    pub fn qdiscs(&mut self) -> Result<Vec<Qdisc>> {
        let message = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
        let answers = self
            .dump(&message)
            .context("cannot list the queueing disciplines")?;
        let qdiscs = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewQueueDiscipline(message) => Some(message.into()),
            _ => None,
        });
        Ok(qdiscs.collect())
    }

    /// The priorities of the filters with this parent on a device, each once, from the first to the last (`tc
    /// filter show dev DEVICE ingress`); none where there is no discipline for them.
    ///
    /// ```no_run
    /// use hostnet::rtnetlink::{Rtnetlink, TcHandle};
    ///
    /// let filters = Rtnetlink::open()?.filter_priorities(2, TcHandle::INGRESS_FILTERS)?;
    /// println!("{} priorities at ingress", filters.len());
    /// # Ok::<(), hostnet::Error>(())
    /// ```
    pub fn filter_priorities(&mut self, device: u32, parent: TcHandle) -> Result<Vec<u16>> {
        // `struct tcmsg`: family and padding, device, handle, parent, priority and protocol.
        let parent = u32::from(parent.major) << 16 | u32::from(parent.minor);
        let words = [0, device, 0, parent, 0];
        let message = RawMessage {
            kind: GET_FILTER,
            payload: words.map(u32::to_ne_bytes).concat(),
        };
        let mut priorities = BTreeSet::new();
        let listed = self.list(&message, &mut |kind, payload| {
            let info = payload.get(TC_INFO..).and_then(u32_of);
            let info = info.filter(|_| kind == NEW_FILTER);
            priorities.extend(info.map(|info| (info >> 16) as u16));
        });
        listed.with_context(|| format!("cannot list the filters of device {device}"))?;
        Ok(priorities.into_iter().collect())
    }

    /// Replaces the root discipline of a device by `noqueue`, which hands each packet to the
    /// driver at once (`tc qdisc replace dev DEVICE root noqueue`).
    pub fn set_noqueue(&mut self, index: u32) -> Result<()> {
        let mut message = TcMessage::with_index(index.cast_signed());
        message.header.parent = tc::TcHandle::ROOT;
        message.attributes.push(TcAttribute::Kind("noqueue".into()));
        let message = RouteNetlinkMessage::NewQueueDiscipline(message);
        self.change(&message, NLM_F_CREATE | NLM_F_REPLACE, || {
            format!("cannot replace the queueing discipline of device {index} by noqueue")
        })
    }
}

impl Qdisc {
    /// The settings in the words of tc(8): with them behind the kind, `tc qdisc replace` makes the
    /// same discipline again. `None` for settings that this crate does not read, or that tc(8)
    /// cannot set.
    ///
    /// ```
    /// use hostnet::rtnetlink::{FqCodelOptions, Qdisc, QdiscOptions, TcHandle};
    ///
    /// let options = FqCodelOptions { target: Some(4999), ecn: Some(true), ..Default::default() };
    /// let qdisc = Qdisc {
    ///     device: 2,
    ///     kind: "fq_codel".into(),
    ///     handle: TcHandle { major: 0x8001, minor: 0 },
    ///     parent: TcHandle::ROOT,
    ///     options: QdiscOptions::FqCodel(options),
    ///     statistics: None,
    /// };
    /// assert_eq!(qdisc.tc_settings().as_deref(), Some("target 5000us ecn"));
    /// ```
    pub fn tc_settings(&self) -> Option<String> {
        match (self.kind.as_str(), self.options) {
            ("noqueue" | "pfifo_fast", _) | ("fq_codel", QdiscOptions::None) => Some(String::new()),
            (_, QdiscOptions::Fifo { limit }) => Some(format!("limit {limit}")),
            (_, QdiscOptions::FqCodel(options)) => options.tc_settings(),
            _ => None,
        }
    }
}

impl From<TcMessage> for Qdisc {
    fn from(message: TcMessage) -> Self {
        let statistics = QdiscStatistics::read(&message.attributes);
        let (mut kind, mut options) = (String::new(), Vec::new());
        for attribute in message.attributes {
            match attribute {
                TcAttribute::Kind(name) => kind = name,
                TcAttribute::Options(found) => options = found,
                _ => {}
            }
        }
        Self {
            device: message.header.index.cast_unsigned(),
            options: QdiscOptions::read(&kind, &options),
            kind,
            handle: message.header.handle.into(),
            parent: message.header.parent.into(),
            statistics,
        }
    }
}

impl QdiscStatistics {
    fn read(attributes: &[TcAttribute]) -> Option<Self> {
        let stats2 = attributes.iter().find_map(|attribute| match attribute {
            TcAttribute::Stats2(stats) => Some(Self::of_stats2(stats)),
            _ => None,
        });
        let stats = || attributes.iter().find_map(Self::of_stats);
        stats2.or_else(stats)
    }

    fn of_stats2(stats: &[TcStats2]) -> Self {
        let mut read = Self::default();
        // The kernel adds all 64 bits of the packets only where 32 are too few.
        let mut packets = None;
        for stats in stats {
            match stats {
                TcStats2::Basic(basic) => {
                    read.bytes = basic.bytes;
                    read.packets = basic.packets.into();
                }
                TcStats2::Queue(queue) => {
                    read.drops = queue.drops;
                    read.overlimits = queue.overlimits;
                    read.requeues = queue.requeues;
                    read.backlog = queue.backlog;
                    read.queue_length = queue.qlen;
                }
                TcStats2::Other(other) if other.kind() == STATS_PKT64 => {
                    packets = u64_at(&value(other), 0);
                }
                _ => {}
            }
        }
        read.packets = packets.unwrap_or(read.packets);
        read
    }

    /// `TCA_STATS` has no requeues.
    fn of_stats(attribute: &TcAttribute) -> Option<Self> {
        let TcAttribute::Stats(stats) = attribute else {
            return None;
        };
        Some(Self {
            bytes: stats.bytes,
            packets: stats.packets.into(),
            drops: stats.drops,
            overlimits: stats.overlimits,
            requeues: 0,
            backlog: stats.backlog,
            queue_length: stats.qlen,
        })
    }
}

impl QdiscOptions {
    fn read(kind: &str, options: &[TcOption]) -> Self {
        let known = match (kind, options) {
            (_, []) => return Self::None,
            ("pfifo" | "bfifo", [TcOption::Other(option)]) => {
                limit(option).map(|limit| Self::Fifo { limit })
            }
            ("fq_codel", options) => FqCodelOptions::read(options).map(Self::FqCodel),
            _ => None,
        };
        known.unwrap_or(Self::Unknown)
    }
}

/// The one member of `struct tc_fifo_qopt`.
fn limit(option: &DefaultNla) -> Option<u32> {
    value(option).try_into().ok().map(u32::from_ne_bytes)
}

fn value(attribute: &DefaultNla) -> Vec<u8> {
    let mut bytes = vec![0; attribute.value_len()];
    attribute.emit_value(&mut bytes);
    bytes
}

impl FqCodelOptions {
    fn tc_settings(&self) -> Option<String> {
        let masked = [self.ce_threshold_selector, self.ce_threshold_mask];
        if masked.into_iter().flatten().any(|value| value != 0) {
            return None;
        }
        // One microsecond more than the kernel reports sets the same time again.
        let time = |name: &str, usecs: Option<u32>| {
            usecs.map(|usecs| format!("{name} {}us", usecs.saturating_add(1)))
        };
        let number =
            |name: &str, number: Option<u32>| number.map(|number| format!("{name} {number}"));
        let ecn = self.ecn.map(|ecn| if ecn { "ecn" } else { "noecn" });
        let settings = [
            time("target", self.target),
            number("limit", self.limit),
            time("interval", self.interval),
            ecn.map(Into::into),
            number("flows", self.flows),
            number("quantum", self.quantum),
            time("ce_threshold", self.ce_threshold),
            number("drop_batch", self.drop_batch),
            number("memory_limit", self.memory_limit),
        ];
        let settings: Vec<_> = settings.into_iter().flatten().collect();
        Some(settings.join(" "))
    }

    fn read(options: &[TcOption]) -> Option<Self> {
        let mut read = Self::default();
        for option in options {
            match option {
                TcOption::FqCodel(option) => read.set(option)?,
                _ => return None,
            }
        }
        Some(read)
    }

    fn set(&mut self, option: &TcQdiscFqCodelOption) -> Option<()> {
        use TcQdiscFqCodelOption as Setting;
        match *option {
            Setting::Target(usecs) => self.target = Some(usecs),
            Setting::Interval(usecs) => self.interval = Some(usecs),
            Setting::CeThreshold(usecs) => self.ce_threshold = Some(usecs),
            Setting::CeThresholdSelector(value) => self.ce_threshold_selector = Some(value),
            Setting::CeThresholdMask(mask) => self.ce_threshold_mask = Some(mask),
            Setting::Limit(packets) => self.limit = Some(packets),
            Setting::Flows(flows) => self.flows = Some(flows),
            Setting::Quantum(bytes) => self.quantum = Some(bytes),
            Setting::MemoryLimit(bytes) => self.memory_limit = Some(bytes),
            Setting::DropBatchSize(packets) => self.drop_batch = Some(packets),
            Setting::Ecn(ecn) => self.ecn = Some(ecn != 0),
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::{NetlinkDeserializable as _, NetlinkHeader};

    use super::*;
    use crate::netlink::{damaged, push_attribute};

    #[test]
    fn settings_are_read_by_kind() {
        let other = |bytes: &[u8]| TcOption::Other(DefaultNla::new(2, bytes.to_vec()));
        let limit = other(&1000_u32.to_ne_bytes());
        let fifo = QdiscOptions::Fifo { limit: 1000 };
        assert_eq!(QdiscOptions::read("pfifo", &[]), QdiscOptions::None);
        assert_eq!(
            QdiscOptions::read("pfifo", std::slice::from_ref(&limit)),
            fifo
        );
        assert_eq!(
            QdiscOptions::read("bfifo", &[other(&[1])]),
            QdiscOptions::Unknown
        );
        assert_eq!(QdiscOptions::read("tbf", &[limit]), QdiscOptions::Unknown);
    }

    /// A message about a pfifo, as the kernel sends it, with these attributes behind its kind.
    fn message(attributes: &[(u16, &[u8])]) -> Vec<u8> {
        // `struct tcmsg`: family and padding, device, handle, parent, references.
        let mut bytes = [0, 2, 0x8004_0000, u32::MAX, 1]
            .map(u32::to_ne_bytes)
            .concat();
        push_attribute(&mut bytes, 1, b"pfifo\0");
        for (kind, value) in attributes {
            push_attribute(&mut bytes, *kind, value);
        }
        bytes
    }

    fn read(bytes: &[u8]) -> Option<QdiscStatistics> {
        let mut header = NetlinkHeader::default();
        // `RTM_NEWQDISC`.
        header.message_type = 36;
        match RouteNetlinkMessage::deserialize(&header, bytes) {
            Ok(RouteNetlinkMessage::NewQueueDiscipline(message)) => Qdisc::from(message).statistics,
            _ => None,
        }
    }

    /// `struct gnet_stats_basic`, 16 bytes with its padding, and `struct gnet_stats_queue`.
    fn stats2() -> Vec<u8> {
        let mut stats = Vec::new();
        let basic = [&1500_u64.to_ne_bytes()[..], &3_u32.to_ne_bytes(), &[0; 4]].concat();
        push_attribute(&mut stats, 1, &basic);
        let queue = [4_u32, 600, 5, 6, 7].map(u32::to_ne_bytes).concat();
        push_attribute(&mut stats, 3, &queue);
        stats
    }

    #[test]
    fn counters_are_those_of_the_newer_attribute() {
        let mut expected = QdiscStatistics {
            bytes: 1500,
            packets: 3,
            drops: 5,
            overlimits: 7,
            requeues: 6,
            backlog: 600,
            queue_length: 4,
        };
        let mut stats = stats2();
        let old = [9; 40];
        let bytes = message(&[(3, &old), (7, &stats)]);
        assert_eq!(read(&bytes), Some(expected));
        for bytes in damaged(&bytes) {
            read(&bytes);
        }
        expected.packets = 3 + (1 << 32);
        push_attribute(&mut stats, STATS_PKT64, &expected.packets.to_ne_bytes());
        assert_eq!(read(&message(&[(7, &stats)])), Some(expected));
    }

    #[test]
    fn counters_of_an_old_kernel_have_no_requeues() {
        // `struct tc_stats`: bytes; packets, drops, overlimits, two rates, length, backlog; padding.
        let words = [3_u32, 5, 7, 0, 0, 4, 600, 0]
            .map(u32::to_ne_bytes)
            .concat();
        let stats = [&1500_u64.to_ne_bytes()[..], &words].concat();
        let expected = QdiscStatistics {
            bytes: 1500,
            packets: 3,
            drops: 5,
            overlimits: 7,
            requeues: 0,
            backlog: 600,
            queue_length: 4,
        };
        assert_eq!(read(&message(&[(3, &stats)])), Some(expected));
        assert_eq!(read(&message(&[])), None);
    }

    #[test]
    fn settings_are_written_for_tc() {
        let qdisc = |kind: &str, options| Qdisc {
            device: 2,
            kind: kind.into(),
            handle: TcHandle::UNSPEC,
            parent: TcHandle::ROOT,
            options,
            statistics: None,
        };
        let settings = |kind, options| qdisc(kind, options).tc_settings();
        let fifo = QdiscOptions::Fifo { limit: 1000 };
        assert_eq!(settings("pfifo", fifo).as_deref(), Some("limit 1000"));
        assert_eq!(settings("pfifo", QdiscOptions::None), None);
        let none = settings("pfifo_fast", QdiscOptions::Unknown);
        assert_eq!(none.as_deref(), Some(""));
        assert_eq!(settings("tbf", QdiscOptions::Unknown), None);
        let selected = FqCodelOptions {
            ce_threshold_mask: Some(1),
            ..FqCodelOptions::default()
        };
        assert_eq!(settings("fq_codel", QdiscOptions::FqCodel(selected)), None);
    }

    #[test]
    fn an_unknown_setting_of_fq_codel_makes_all_unknown() {
        let mut options = [
            TcQdiscFqCodelOption::Target(4999),
            TcQdiscFqCodelOption::Ecn(1),
        ]
        .map(TcOption::FqCodel)
        .to_vec();
        let expected = FqCodelOptions {
            target: Some(4999),
            ecn: Some(true),
            ..FqCodelOptions::default()
        };
        assert_eq!(
            QdiscOptions::read("fq_codel", &options),
            QdiscOptions::FqCodel(expected)
        );
        let unknown = TcQdiscFqCodelOption::Other(DefaultNla::new(99, vec![]));
        options.push(TcOption::FqCodel(unknown));
        assert_eq!(
            QdiscOptions::read("fq_codel", &options),
            QdiscOptions::Unknown
        );
    }
}
