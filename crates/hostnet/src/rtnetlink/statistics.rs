//! Every counter that the kernel keeps of a device: `struct rtnl_link_stats64`.

use crate::netlink::u64_at;

/// The members of `struct rtnl_link_stats64`, in its order; the kernel appends new ones
/// (`linux/if_link.h`).
const NAMES: [&str; 25] = [
    "rx_packets",
    "tx_packets",
    "rx_bytes",
    "tx_bytes",
    "rx_errors",
    "tx_errors",
    "rx_dropped",
    "tx_dropped",
    "multicast",
    "collisions",
    "rx_length_errors",
    "rx_over_errors",
    "rx_crc_errors",
    "rx_frame_errors",
    "rx_fifo_errors",
    "rx_missed_errors",
    "tx_aborted_errors",
    "tx_carrier_errors",
    "tx_fifo_errors",
    "tx_heartbeat_errors",
    "tx_window_errors",
    "rx_compressed",
    "tx_compressed",
    // Linux 4.6.
    "rx_nohandler",
    // Linux 5.19.
    "rx_otherhost_dropped",
];

/// The counters of a device by the kernel's names (`IFLA_STATS64`, all read at once).
///
/// `struct rtnl_link_stats64` in `linux/if_link.h` documents each of them. These need care:
///
/// - `rx_dropped` is the sum of two: drops of the driver, and drops of the kernel behind it:
///   no handler of the protocol, a full backlog (`dev_get_stats` in `net/core/dev.c`). A packet socket
///   of any program handles every protocol, so its opening ends drops of the first kind.
/// - `rx_missed_errors` are frames that found no buffer of the host. Many drivers count those in
///   `rx_dropped`; `/proc/net/dev` shows the sum of both.
/// - `rx_nohandler` are frames that an inactive leg of a bond received.
/// - `rx_otherhost_dropped` are packets with another host's MAC address (Linux 5.19).
/// - `rx_packets` of most drivers contains `rx_dropped`, and the drops of an XDP program.
///
/// ```no_run
/// use hostnet::rtnetlink::Rtnetlink;
///
/// for link in Rtnetlink::open()?.links()? {
///     for (name, count) in link.statistics.iter().filter(|(_, count)| *count > 0) {
///         println!("{} {name} {count}", link.name);
///     }
/// }
/// # Ok::<(), hostnet::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    values: [u64; NAMES.len()],
    /// How many of them the kernel has.
    known: usize,
}

impl Statistics {
    /// The counter with this name; none where this kernel has no such counter, or this crate does not
    /// know it.
    ///
    /// ```
    /// use hostnet::rtnetlink::Statistics;
    ///
    /// assert_eq!(Statistics::default().get("rx_otherhost_dropped"), None);
    /// ```
    pub fn get(&self, name: &str) -> Option<u64> {
        self.iter()
            .find_map(|(known, count)| (known == name).then_some(count))
    }

    /// The counters that this kernel has, by name, in the kernel's order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        NAMES.into_iter().zip(self.values).take(self.known)
    }

    /// Reads `struct rtnl_link_stats64`, which an older kernel has shorter and a later one longer.
    pub(super) fn read(stats: &[u8]) -> Self {
        let mut read = Self::default();
        for (index, value) in read.values.iter_mut().enumerate() {
            let Some(count) = u64_at(stats, index) else {
                break;
            };
            *value = count;
            read.known = index + 1;
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(count: u64) -> Vec<u8> {
        (0..count).flat_map(u64::to_ne_bytes).collect()
    }

    #[test]
    fn counters_have_the_kernels_names_and_order() {
        let read = Statistics::read(&stats(25));
        assert_eq!(read.iter().count(), 25);
        for (name, place) in [
            ("rx_packets", 0),
            ("tx_dropped", 7),
            ("multicast", 8),
            ("rx_missed_errors", 15),
            ("tx_aborted_errors", 16),
            ("tx_compressed", 22),
            ("rx_nohandler", 23),
            ("rx_otherhost_dropped", 24),
        ] {
            assert_eq!(read.get(name), Some(place), "{name}");
        }
        assert_eq!(read.get("rx_unheard_of"), None);
    }

    #[test]
    fn an_older_kernel_lacks_the_last_counters() {
        // Linux 5.18; and half a counter does not count.
        let mut older = stats(24);
        older.extend([1; 7]);
        let read = Statistics::read(&older);
        assert_eq!(read.get("rx_nohandler"), Some(23));
        assert_eq!(read.get("rx_otherhost_dropped"), None);
        assert_eq!(read.iter().count(), 24);
        assert_eq!(Statistics::read(&[]), Statistics::default());
    }

    #[test]
    fn a_later_kernel_has_more_counters_than_names() {
        assert_eq!(Statistics::read(&stats(30)), Statistics::read(&stats(25)));
    }
}
