//! Queueing disciplines in the words of tc(8).

use netlink_packet_core::{DefaultNla, Nla as _};
use netlink_packet_route::tc::{TcHandle, TcOption, TcQdiscFqCodelOption};

use crate::rtnetlink;

/// A queueing discipline of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qdisc {
    /// The number of the device.
    pub device: u32,
    /// Its kind, such as `fq_codel`.
    pub kind: String,
    /// Its handle; zero for the kernel's default.
    pub handle: Handle,
    /// The handle of its parent.
    pub parent: Handle,
    /// The words after its kind that make `tc qdisc replace` set the same again; none if its
    /// settings are not known.
    pub settings: Option<String>,
}

/// The handle of a queueing discipline or class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handle {
    /// The number of the discipline.
    pub major: u16,
    /// The number of the class in it.
    pub minor: u16,
}

impl Handle {
    /// No handle (`TC_H_UNSPEC`).
    pub const UNSPEC: Self = Self::new(TcHandle::UNSPEC);
    /// The parent of a root discipline (`TC_H_ROOT`).
    pub const ROOT: Self = Self::new(TcHandle::ROOT);

    const fn new(handle: TcHandle) -> Self {
        Self {
            major: handle.major,
            minor: handle.minor,
        }
    }
}

impl From<rtnetlink::Qdisc> for Qdisc {
    fn from(qdisc: rtnetlink::Qdisc) -> Self {
        Self {
            device: qdisc.device,
            handle: Handle::new(qdisc.handle),
            parent: Handle::new(qdisc.parent),
            settings: settings(&qdisc.kind, &qdisc.options),
            kind: qdisc.kind,
        }
    }
}

fn settings(kind: &str, options: &[TcOption]) -> Option<String> {
    match kind {
        "noqueue" | "pfifo_fast" => Some(String::new()),
        "pfifo" | "bfifo" => Some(format!("limit {}", fifo_limit(options)?)),
        "fq_codel" => fq_codel_settings(options),
        _ => None,
    }
}

/// The limit in `struct tc_fifo_qopt`.
fn fifo_limit(options: &[TcOption]) -> Option<u32> {
    let [TcOption::Other(option)] = options else {
        return None;
    };
    value(option).try_into().ok().map(u32::from_ne_bytes)
}

fn value(option: &DefaultNla) -> Vec<u8> {
    let mut bytes = vec![0; option.value_len()];
    option.emit_value(&mut bytes);
    bytes
}

fn fq_codel_settings(options: &[TcOption]) -> Option<String> {
    let settings = options.iter().map(|option| match option {
        TcOption::FqCodel(option) => fq_codel_setting(option),
        _ => None,
    });
    Some(settings.collect::<Option<Vec<_>>>()?.join(" "))
}

fn fq_codel_setting(option: &TcQdiscFqCodelOption) -> Option<String> {
    use TcQdiscFqCodelOption as Setting;
    // The kernel keeps times in units of 1024 ns and rounds down both ways (`codel_time_to_us`):
    // one microsecond more than it reports sets the same time again.
    let time = |usecs: u32| usecs.saturating_add(1);
    Some(match *option {
        Setting::Target(usecs) => format!("target {}us", time(usecs)),
        Setting::Interval(usecs) => format!("interval {}us", time(usecs)),
        Setting::CeThreshold(usecs) => format!("ce_threshold {}us", time(usecs)),
        Setting::Limit(packets) => format!("limit {packets}"),
        Setting::Flows(flows) => format!("flows {flows}"),
        Setting::Quantum(bytes) => format!("quantum {bytes}"),
        Setting::MemoryLimit(bytes) => format!("memory_limit {bytes}"),
        Setting::DropBatchSize(packets) => format!("drop_batch {packets}"),
        Setting::Ecn(0) => "noecn".into(),
        Setting::Ecn(_) => "ecn".into(),
        Setting::CeThresholdSelector(0) | Setting::CeThresholdMask(0) => String::new(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifo_needs_its_limit() {
        assert_eq!(settings("pfifo", &[]), None);
        let limit = DefaultNla::new(2, 1000_u32.to_ne_bytes().to_vec());
        let settings = settings("pfifo", &[TcOption::Other(limit)]);
        assert_eq!(settings.as_deref(), Some("limit 1000"));
    }

    #[test]
    fn times_of_fq_codel_are_rounded_up() {
        let options = [
            TcQdiscFqCodelOption::Target(4999),
            TcQdiscFqCodelOption::Ecn(1),
        ]
        .map(TcOption::FqCodel);
        let settings = settings("fq_codel", &options);
        assert_eq!(settings.as_deref(), Some("target 5000us ecn"));
    }

    #[test]
    fn other_kinds_are_not_known() {
        assert_eq!(settings("pfifo_fast", &[]).as_deref(), Some(""));
        assert_eq!(settings("tbf", &[]), None);
    }
}
