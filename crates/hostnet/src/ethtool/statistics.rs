//! Statistics of the driver's own choice (`ethtool -S`).

use std::collections::BTreeMap;

use super::ioctl::{Driver, Kernel, Request};
use super::strings::{self, StringSet};
use crate::error::{Context as _, Error, ErrorKind, Result};

const GET_STATISTICS: u32 = 0x1d;

/// A counter under the name that the driver gives it.
///
/// ```
/// use hostnet::ethtool::Statistic;
///
/// let statistic = Statistic { name: "rx_queue_0_packets".into(), value: 7 };
/// assert!(statistic.name.starts_with("rx_queue_0_"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statistic {
    /// The name.
    pub name: String,
    /// The value, in the unit that the name implies.
    pub value: u64,
}

/// The names of packets received by a queue: before the queue's number, and behind it. The first
/// drivers' names that a device has count; where they have several endings, their sum.
const NAMES_BY_QUEUE: [(&str, &[&str]); 6] = [
    // igb, igc, ixgbe, ice, hv_netvsc, virtio_net before Linux 6.10.
    ("rx_queue_", &["_packets"]),
    // veth: packets that a native XDP program saw.
    ("rx_queue_", &["_xdp_packets"]),
    // i40e, iavf.
    ("rx-", &[".packets"]),
    // sfc.
    ("rx-", &[".rx_packets"]),
    // mlx5, which counts the packets of zero-copy sockets apart; mlx4.
    ("rx", &["_packets", "_xsk_packets"]),
    // ena.
    ("queue_", &["_rx_cnt"]),
];

/// Every statistic of `device`, in the driver's order; none if it has no statistics.
///
/// # Errors
///
/// [`ErrorKind::NotFound`] if there is no such device, [`ErrorKind::InvalidAnswer`] if its statistics
/// became more or fewer meanwhile.
///
/// ```no_run
/// for statistic in hostnet::ethtool::statistics("eth0")? {
///     println!("{}: {}", statistic.name, statistic.value);
/// }
/// # Ok::<(), hostnet::Error>(())
/// ```
///
/// [`ErrorKind::InvalidAnswer`]: crate::ErrorKind::InvalidAnswer
/// [`ErrorKind::NotFound`]: crate::ErrorKind::NotFound
pub fn statistics(device: &str) -> Result<Vec<Statistic>> {
    Kernel::open(device)
        .and_then(|driver| read(&driver))
        .with_context(|| format!("cannot read the statistics of {device}"))
}

/// Packets received by each queue of `device`, as its driver counts them among its [`statistics`];
/// `None` if none of them has a known name. The queues of a map are those that are counted.
///
/// # Errors
///
/// Those of [`statistics`].
///
/// ```no_run
/// if let Some(packets) = hostnet::ethtool::rx_packets_by_queue("eth0")? {
///     println!("queue 0 received {:?} packets", packets.get(&0));
/// }
/// # Ok::<(), hostnet::Error>(())
/// ```
pub fn rx_packets_by_queue(device: &str) -> Result<Option<BTreeMap<u32, u64>>> {
    Ok(by_queue(&statistics(device)?))
}

fn read(driver: &dyn Driver) -> Result<Vec<Statistic>> {
    let names = strings::read(driver, StringSet::Statistics)?;
    if names.is_empty() {
        return Ok(Vec::new());
    }
    // `struct ethtool_stats`: values of 64 bits behind their number.
    let mut values = Request::new(GET_STATISTICS, 2 + 2 * names.len())?;
    values[1] = names.len() as u32;
    driver.call(&mut values)?;
    if values[1] as usize != names.len() {
        let text = "their number changed meanwhile: read them again";
        return Err(Error::new(ErrorKind::InvalidAnswer, text));
    }
    let values = values.bytes()[8..].as_chunks().0.iter();
    let statistics = names.into_iter().zip(values);
    Ok(statistics
        .map(|(name, value)| Statistic {
            name,
            value: u64::from_ne_bytes(*value),
        })
        .collect())
}

fn by_queue(statistics: &[Statistic]) -> Option<BTreeMap<u32, u64>> {
    let counts = NAMES_BY_QUEUE.iter().map(|(start, ends)| {
        let mut counts = BTreeMap::new();
        for statistic in statistics {
            if let Some(queue) = queue_in(&statistic.name, start, ends) {
                *counts.entry(queue).or_default() += statistic.value;
            }
        }
        counts
    });
    counts.into_iter().find(|counts| !counts.is_empty())
}

/// The number between `start` and one of `ends`.
fn queue_in(name: &str, start: &str, ends: &[&str]) -> Option<u32> {
    let rest = name.strip_prefix(start)?;
    ends.iter()
        .find_map(|end| rest.strip_suffix(end)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names as a driver has them, each with a value.
    type Names = &'static [(&'static str, u64)];

    #[test]
    fn names_of_drivers_are_known() {
        // With the packets of the queues 0 and 1.
        let cases: [(Names, [u64; 2]); 5] = [
            (
                &[
                    ("rx_packets", 9),
                    ("tx_queue_0_packets", 8),
                    ("rx_queue_0_packets", 3),
                    ("rx_queue_0_bytes", 99),
                    ("rx_queue_0_xdp_packets", 2),
                    ("rx_queue_1_packets", 4),
                ],
                [3, 4],
            ),
            (
                &[
                    ("peer_ifindex", 5),
                    ("rx_queue_0_xdp_packets", 1),
                    ("rx_queue_0_drops", 7),
                    ("rx_queue_1_xdp_packets", 2),
                ],
                [1, 2],
            ),
            (
                &[
                    ("rx_packets", 8),
                    ("rx0_packets", 1),
                    ("rx0_xsk_packets", 2),
                    ("rx0_xdp_tx_xmit", 5),
                    ("rx1_packets", 4),
                ],
                [3, 4],
            ),
            (&[("rx-0.packets", 1), ("rx-1.packets", 2)], [1, 2]),
            (&[("queue_0_rx_cnt", 1), ("queue_1_rx_cnt", 2)], [1, 2]),
        ];
        for (names, packets) in cases {
            let statistics = names.iter().map(|(name, value)| Statistic {
                name: (*name).into(),
                value: *value,
            });
            let counts = by_queue(&statistics.collect::<Vec<_>>());
            let expected = BTreeMap::from([(0, packets[0]), (1, packets[1])]);
            assert_eq!(counts, Some(expected), "{names:?}");
        }
    }

    #[test]
    fn other_names_give_no_queues() {
        let names = ["rx_packets", "rxq_0", "rx_queue_x_packets"];
        let statistics = names.map(|name| Statistic {
            name: name.into(),
            value: 1,
        });
        assert_eq!(by_queue(&statistics), None);
    }
}
