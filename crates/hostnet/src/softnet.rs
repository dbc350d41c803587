//! `/proc/net/softnet_stat`: the network's work on each CPU.

use std::collections::BTreeMap;
use std::fs;

use crate::cpulist::CpuList;
use crate::error::{Context as _, Result};

const SOFTNET: &str = "/proc/net/softnet_stat";

/// A CPU's counters of `/proc/net/softnet_stat` (`softnet_seq_show` in net/core/net-procfs.c). The
/// kernel counts in 32 bits.
///
/// ```
/// for (cpu, counters) in hostnet::softnet::softnet()? {
///     println!("CPU {cpu} dropped {} frames", counters.dropped);
/// }
/// # Ok::<(), hostnet::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Softnet {
    /// Frames that went through the backlog, or a NAPI poll that counts them.
    pub processed: u32,
    /// Frames dropped because the backlog was full.
    pub dropped: u32,
    /// How often `net_rx_action` ended with work left, out of budget or time.
    pub time_squeeze: u32,
    /// How often another CPU asked this one to process its backlog.
    pub received_rps: u32,
    /// Frames dropped by the flow limit.
    pub flow_limit: u32,
    /// Frames in the backlog at this moment; kernels before 5.10 do not show it.
    pub backlog: Option<u32>,
}

impl Softnet {
    /// The counts since an earlier reading; `backlog` is no counter and stays.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            processed: self.processed.wrapping_sub(earlier.processed),
            dropped: self.dropped.wrapping_sub(earlier.dropped),
            time_squeeze: self.time_squeeze.wrapping_sub(earlier.time_squeeze),
            received_rps: self.received_rps.wrapping_sub(earlier.received_rps),
            flow_limit: self.flow_limit.wrapping_sub(earlier.flow_limit),
            backlog: self.backlog,
        }
    }
}

/// The counters of each CPU that is online. They count for all network namespaces.
pub fn softnet() -> Result<BTreeMap<usize, Softnet>> {
    let text = fs::read_to_string(SOFTNET).with_context(|| format!("cannot read {SOFTNET}"))?;
    Ok(parse(&text, &CpuList::online()?))
}

/// The counters in the text of `/proc/net/softnet_stat`, in which each CPU of `online` has a line. Kernels
/// before 5.10 leave out its number. Lines that are cut short are left out.
///
/// ```
/// use hostnet::softnet;
///
/// let online = "0-1".parse()?;
/// let counters = softnet::parse("0000000a 00000001 00000000\n0000000b 00000000 00000002\n", &online);
/// assert_eq!((counters[&0].dropped, counters[&1].time_squeeze), (1, 2));
/// # Ok::<(), hostnet::Error>(())
/// ```
pub fn parse(text: &str, online: &CpuList) -> BTreeMap<usize, Softnet> {
    let read = |(index, line): (usize, &str)| {
        let words = line.split_whitespace();
        let columns: Vec<u32> = words
            .map(|word| u32::from_str_radix(word, 16).unwrap_or(0))
            .collect();
        let column = |index: usize| columns.get(index).copied();
        let softnet = Softnet {
            processed: column(0)?,
            dropped: column(1)?,
            time_squeeze: column(2)?,
            received_rps: column(9).unwrap_or(0),
            flow_limit: column(10).unwrap_or(0),
            backlog: column(11),
        };
        let cpu = column(12).map(|cpu| cpu as usize);
        Some((cpu.or(online.as_slice().get(index).copied())?, softnet))
    };
    text.lines().enumerate().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn softnet_is_read_from_old_and_new_kernels() {
        let new = "\
2ff65b9d 00000001 00000045 00000000 00000000 00000000 00000000 00000000 00000000 00000003 00000004 00000005 00000000 00000000 00000000
3c8534a1 00000000 0000001b 00000000 00000000 00000000 00000000 00000000 00000000 00000001 00000000 00000000 00000007 00000000 00000000
";
        let softnet = parse(new, &CpuList::new([0, 7]));
        let expected = Softnet {
            processed: 0x2ff6_5b9d,
            dropped: 1,
            time_squeeze: 0x45,
            received_rps: 3,
            flow_limit: 4,
            backlog: Some(5),
        };
        assert_eq!(softnet[&0], expected);
        assert_eq!(softnet[&7].time_squeeze, 0x1b);
        let old = "0000000a 0 0 0 0 0 0 0 0 00000002 00000000\n".repeat(2);
        let softnet = parse(&old, &CpuList::new([0, 2]));
        assert_eq!((softnet[&2].processed, softnet[&2].backlog), (10, None));
    }

    #[test]
    fn softnet_counters_wrap() {
        let at = |processed| Softnet {
            processed,
            ..Softnet::default()
        };
        assert_eq!(at(5).since(&at(u32::MAX)).processed, 6);
    }
}
