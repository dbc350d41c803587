//! Queueing disciplines: `RTM_GETQDISC` and `RTM_NEWQDISC`; tc(8).

use std::collections::BTreeSet;

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_REPLACE, Nla as _};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{self, TcAttribute, TcMessage, TcOption, TcQdiscFqCodelOption};

use super::socket::{GET_FILTER, NEW_FILTER, Rtnetlink};
use crate::error::{Context as _, Result};
use crate::netlink::{RawMessage, u32_of};

/// The place of priority and protocol in `struct tcmsg`.
const TC_INFO: usize = 16;

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
        }
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
    let mut bytes = vec![0; option.value_len()];
    option.emit_value(&mut bytes);
    bytes.try_into().ok().map(u32::from_ne_bytes)
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
    use super::*;

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

    #[test]
    fn settings_are_written_for_tc() {
        let qdisc = |kind: &str, options| Qdisc {
            device: 2,
            kind: kind.into(),
            handle: TcHandle::UNSPEC,
            parent: TcHandle::ROOT,
            options,
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
