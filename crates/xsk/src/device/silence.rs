//! Packets by queue, and the reason why a socket gets none while the device receives.

use super::files::current;
use super::{AttachMode, AttachedProgram, Device};
use crate::error::{Error, Result};
use hostnet::ethtool;
use hostnet::genetlink::netdev;
use std::collections::BTreeMap;
use std::fmt;

/// Most queues that a message lists.
const LISTED: usize = 4;

/// Packets that a device and its queues have received, see [`Device::rx_by_queue`].
///
/// ```
/// # fn main() -> xsk::Result<()> {
/// let counts = xsk::Device::lookup("lo")?.rx_by_queue()?;
/// println!("{} packets, by queue: {:?}", counts.received, counts.by_queue);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueCounts {
    /// Packets that the device has received.
    pub received: u64,
    /// Packets by queue, for the queues that the driver counts; empty if it counts none.
    pub by_queue: BTreeMap<u32, u64>,
}

impl QueueCounts {
    fn since(&self, before: &Self) -> Self {
        let queue = |(queue, now): (&u32, &u64)| {
            let before = before.by_queue.get(queue).copied().unwrap_or(0);
            (*queue, growth(*now, before))
        };
        Self {
            received: growth(self.received, before.received),
            by_queue: self.by_queue.iter().map(queue).collect(),
        }
    }

    /// Some drivers count by queue only those packets that native XDP sees.
    fn forget_queues_if_idle(mut self) -> Self {
        if self.by_queue.values().all(|packets| *packets == 0) {
            self.by_queue.clear();
        }
        self
    }
}

/// A counter that is below its earlier value began anew.
fn growth(now: u64, before: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

/// Why a queue gets nothing while its device receives, see [`Device::explain_silence`]. Its text
/// names the queues that receive, and the ways to get their packets.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Silence {
    /// The name of the device.
    pub device: String,
    /// The queue that gets nothing.
    pub queue: u32,
    /// Packets that the device and its queues received meanwhile; by queue only if the driver counted
    /// them so.
    pub counts: QueueCounts,
    /// The queues that RSS spreads packets over; `None` if the device has no RSS table.
    pub rss_targets: Option<Vec<u32>>,
    /// The number of flow rules, which come before RSS.
    pub flow_rules: usize,
    /// Cause and cure, if no other queue is it.
    reason: Option<String>,
    /// Whether the socket's program has a filter, which may take none of the packets.
    filtered: bool,
}

impl Device {
    /// Packets received so far, by queue where the driver counts them: over netlink
    /// (`NETDEV_CMD_QSTATS_GET`, Linux 6.10) or under a name known for its queues (`ethtool -S`).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DeviceMissing`](crate::ErrorKind::DeviceMissing) if the device is gone or renamed,
    /// or the calling thread is in another network namespace.
    pub fn rx_by_queue(&self) -> Result<QueueCounts> {
        let link = current(&self.name, self.index)?;
        let read = || match netdev::rx_packets_by_queue(link.index)? {
            Some(by_queue) => Ok(Some(by_queue)),
            None => ethtool::rx_packets_by_queue(&self.name),
        };
        let by_queue = read().map_err(|error| Error::host(&error))?;
        Ok(QueueCounts {
            received: link.stats.rx_packets,
            by_queue: by_queue.unwrap_or_default(),
        })
    }

    /// Why the socket on `queue` has got nothing since `before` was read: where the packets went that
    /// the device has received since. `None` if it received none, or `queue` did, as the only one may have: then the
    /// [`Statistics`](crate::Statistics) of the socket, or the XDP program, have the reason.
    /// [`Socket::explain_silence`](crate::Socket::explain_silence) asks them as well.
    ///
    /// Read `before` when the socket is open; some drivers reset the device when it opens.
    ///
    /// # Errors
    ///
    /// Those of [`rx_by_queue`](Self::rx_by_queue).
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use xsk::{Device, Socket, Umem};
    ///
    /// # fn main() -> xsk::Result<()> {
    /// let umem = Umem::builder().build()?;
    /// let mut socket = Socket::builder(&umem, "eth0", 0).open()?;
    /// let device = Device::lookup("eth0")?;
    /// let before = device.rx_by_queue()?;
    /// socket.wait(Duration::from_secs(10))?;
    /// if socket.recv(64).is_empty()
    ///     && let Some(silence) = device.explain_silence(0, &before)?
    /// {
    ///     eprintln!("{silence}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn explain_silence(&self, queue: u32, before: &QueueCounts) -> Result<Option<Silence>> {
        let counts = self.rx_since(before)?.forget_queues_if_idle();
        if counts.received == 0 && counts.by_queue.is_empty() {
            return Ok(None);
        }
        if counts
            .by_queue
            .get(&queue)
            .is_some_and(|packets| *packets > 0)
        {
            return Ok(None);
        }
        let now = Self::lookup(&self.name)?;
        let is_native = |program: &AttachedProgram| program.mode == AttachMode::Driver;
        if now.programs.iter().any(is_native)
            && let Err(error) = now.check_delivery(AttachMode::Driver)
        {
            return Ok(Some(self.silence(queue, counts, error.to_string())));
        }
        if now.rx_queues == 1 {
            return Ok(None);
        }
        let host = |error: hostnet::Error| Error::host(&error);
        let rss = ethtool::rss(&self.name).map_err(host)?;
        let flow_rules = ethtool::flow_rules(&self.name).map_err(host)?;
        Ok(Some(Silence {
            device: self.name.clone(),
            queue,
            counts,
            rss_targets: rss.map(|rss| rss.targets()),
            flow_rules: flow_rules.map_or(0, |rules| rules.len()),
            reason: None,
            filtered: false,
        }))
    }

    /// Packets received since `before` was read.
    pub(crate) fn rx_since(&self, before: &QueueCounts) -> Result<QueueCounts> {
        Ok(self.rx_by_queue()?.since(before))
    }

    /// The same for a socket without an own reason to get nothing.
    pub(crate) fn explain_silence_of(
        &self,
        queue: u32,
        before: &QueueCounts,
        filtered: bool,
    ) -> Result<Option<Silence>> {
        if let Some(silence) = self.explain_silence(queue, before)? {
            return Ok(Some(Silence {
                filtered,
                ..silence
            }));
        }
        let counts = self.rx_since(before)?;
        if let Some(reason) = self.receives_nothing(counts.received) {
            return Ok(Some(self.silence(queue, counts, reason.to_owned())));
        }
        if !filtered || counts.received == 0 {
            return Ok(None);
        }
        let reason = "its filter takes none of them, and they went to the network stack: compare it with what arrives (`tcpdump -e`), which may have a second VLAN tag, or be fragments";
        Ok(Some(self.silence(queue, counts, reason.to_owned())))
    }

    /// One whose reason is no other queue.
    pub(crate) fn silence(&self, queue: u32, counts: QueueCounts, reason: String) -> Silence {
        Silence {
            device: self.name.clone(),
            queue,
            counts,
            rss_targets: None,
            flow_rules: 0,
            reason: Some(reason),
            filtered: false,
        }
    }
}

impl Silence {
    /// The queues that received, the busiest first.
    fn busy(&self) -> Vec<(u32, u64)> {
        let mut busy: Vec<_> = self.counts.by_queue.iter().map(|(q, n)| (*q, *n)).collect();
        busy.retain(|(_, packets)| *packets > 0);
        busy.sort_by_key(|(_, packets)| std::cmp::Reverse(*packets));
        busy
    }

    fn write_counts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, queue, .. } = self;
        let busy = self.busy();
        let received = self.counts.received;
        if self.reason.is_some() {
            return write!(
                f,
                "the socket on queue {queue} of {device} got nothing while {device} received {received} packets"
            );
        }
        if busy.is_empty() {
            return write!(
                f,
                "the socket on queue {queue} of {device} got nothing while {device} received {received} \
                 packets, which its driver does not count by queue"
            );
        }
        write!(f, "queue {queue} of {device} received nothing while ")?;
        for (at, (other, packets)) in busy.iter().take(LISTED).enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}queue {other} received {packets} packets")?;
        }
        match busy.len().saturating_sub(LISTED) {
            0 => Ok(()),
            more => write!(f, " and {more} more queues some"),
        }
    }

    fn write_cause(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.rss_targets {
            None => f.write_str(
                "the device has no RSS table, so the sender or the driver chooses the queue",
            )?,
            Some(targets) if targets.contains(&self.queue) => write!(
                f,
                "RSS chooses among {} by a hash of the addresses, and these packets went elsewhere",
                queues(targets)
            )?,
            Some(targets) => write!(f, "RSS sends to {} alone", queues(targets))?,
        }
        match self.flow_rules {
            0 => Ok(()),
            1 => write!(f, ", after a flow rule (`ethtool -n {}`)", self.device),
            rules => write!(
                f,
                ", after {rules} flow rules (`ethtool -n {}`)",
                self.device
            ),
        }
    }

    fn write_cure(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.busy().first() {
            Some((busiest, _)) => write!(f, "open a socket on queue {busiest} too")?,
            None => f.write_str("open a socket on every queue")?,
        }
        let device = &self.device;
        match (&self.rss_targets, self.queue) {
            (None, _) => Ok(()),
            (Some(_), 0) => write!(
                f,
                ", or send all packets here with `ethtool -X {device} equal 1`"
            ),
            (Some(_), queue) => write!(
                f,
                ", or send all packets here with `ethtool -X {device} start {queue} equal 1`"
            ),
        }
    }
}

/// The counts, the cause and the cure.
impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_counts(f)?;
        f.write_str(": ")?;
        if let Some(reason) = &self.reason {
            return f.write_str(reason);
        }
        self.write_cause(f)?;
        f.write_str("; ")?;
        self.write_cure(f)?;
        if self.filtered {
            f.write_str("; or the filter of the socket's program takes none of them")?;
        }
        Ok(())
    }
}

/// `queue 1`, `the queues 0 and 1`, `the queues 0 to 3`, `the queues 0, 2, 5`.
fn queues(queues: &[u32]) -> String {
    match queues {
        [one] => format!("queue {one}"),
        [one, two] => format!("the queues {one} and {two}"),
        [first, .., last] if (last - first) as usize == queues.len() - 1 => {
            format!("the queues {first} to {last}")
        }
        queues => {
            let numbers: Vec<_> = queues.iter().map(ToString::to_string).collect();
            format!("the queues {}", numbers.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(received: u64, by_queue: &[(u32, u64)]) -> QueueCounts {
        QueueCounts {
            received,
            by_queue: by_queue.iter().copied().collect(),
        }
    }

    fn silence(queue: u32, counts: QueueCounts, rss_targets: Option<Vec<u32>>) -> Silence {
        Silence {
            device: "eth0".into(),
            queue,
            counts,
            rss_targets,
            flow_rules: 0,
            reason: None,
            filtered: false,
        }
    }

    #[test]
    fn a_silence_names_counts_cause_and_cure() {
        let by_hash = silence(0, counts(20480, &[(0, 0), (1, 20480)]), Some(vec![0, 1]));
        assert_eq!(
            by_hash.to_string(),
            "queue 0 of eth0 received nothing while queue 1 received 20480 packets: RSS chooses among \
             the queues 0 and 1 by a hash of the addresses, and these packets went elsewhere; open a \
             socket on queue 1 too, or send all packets here with `ethtool -X eth0 equal 1`"
        );
        let by_table = silence(3, counts(9, &[(1, 2), (2, 7), (3, 0)]), Some(vec![1, 2, 5]));
        assert_eq!(
            by_table.to_string(),
            "queue 3 of eth0 received nothing while queue 2 received 7 packets, queue 1 received 2 \
             packets: RSS sends to the queues 1, 2, 5 alone; open a socket on queue 2 too, or send all \
             packets here with `ethtool -X eth0 start 3 equal 1`"
        );
        let uncounted = Silence {
            flow_rules: 2,
            ..silence(0, counts(9, &[]), None)
        };
        assert_eq!(
            uncounted.to_string(),
            "the socket on queue 0 of eth0 got nothing while eth0 received 9 packets, which its driver \
             does not count by queue: the device has no RSS table, so the sender or the driver chooses \
             the queue, after 2 flow rules (`ethtool -n eth0`); open a socket on every queue"
        );
        let filtered = Silence {
            filtered: true,
            ..silence(0, counts(9, &[]), None)
        };
        let end = "open a socket on every queue; or the filter of the socket's program takes none of them";
        assert!(filtered.to_string().ends_with(end), "{filtered}");
        let other = Silence {
            reason: Some("it was closed".into()),
            ..silence(0, counts(9, &[(0, 9)]), None)
        };
        assert_eq!(
            other.to_string(),
            "the socket on queue 0 of eth0 got nothing while eth0 received 9 packets: it was closed"
        );
    }

    #[test]
    fn a_device_with_many_queues_lists_the_busiest() {
        let many: Vec<_> = (0..8).map(|queue| (queue, u64::from(queue))).collect();
        let text = silence(0, counts(28, &many), Some(vec![1])).to_string();
        assert!(
            text.contains("while queue 7 received 7 packets, queue 6"),
            "{text}"
        );
        assert!(text.contains(" and 3 more queues some: "), "{text}");
        assert_eq!(queues(&[2, 3, 4]), "the queues 2 to 4");
    }

    #[test]
    fn counts_are_those_since_and_begin_anew_after_a_reset() {
        let before = counts(100, &[(0, 60), (1, 40)]);
        let after = counts(110, &[(0, 5), (1, 45), (2, 1)]);
        let expected = counts(10, &[(0, 5), (1, 5), (2, 1)]);
        assert_eq!(after.since(&before), expected);
        let idle = before.since(&before).forget_queues_if_idle();
        assert_eq!(idle, counts(0, &[]));
    }
}
