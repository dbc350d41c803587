//! Counters of a socket.

use super::receiver::RxEnd;
use super::sender::TxEnd;
use crate::counter::Counter;
use crate::device::LONGEST_PACKET;
use crate::error::{Error, ErrorKind, Result};
use crate::sys::{KernelCounters, KernelSocket, SysResult};
use crate::umem::Umem;
use crate::umem_rings::{CompletionRing, FillRing, RxRing, TxRing};

/// Counters since the socket was opened. Those from `rx_dropped` on are the kernel's (`struct
/// xdp_statistics`).
///
/// ```no_run
/// # fn main() -> xsk::Result<()> {
/// # let umem = xsk::Umem::builder().build()?;
/// # let socket = xsk::Socket::builder(&umem, "eth0", 0).open()?;
/// let statistics = socket.statistics()?;
/// println!("{} received, {} dropped", statistics.received, statistics.rx_dropped);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Statistics {
    /// Packets read from the RX ring; of a packet of several chunks each chunk, as in the next two.
    pub received: u64,
    /// Packets published in the TX ring.
    pub sent: u64,
    /// Sent packets that were completed, of all sockets on the queue. Completed does not mean
    /// delivered.
    pub completed: u64,
    /// Packets of several chunks, or in an unaligned one, that were dropped, of all sockets on the queue: the
    /// program reads packets of one aligned chunk, or they had more chunks than [`MAX_FRAGMENTS`](crate::MAX_FRAGMENTS), or an invalid one.
    pub fragmented: u64,
    /// RX descriptors and completions of chunks that were not lent for that, of all sockets on the
    /// queue.
    pub invalid_descs: u64,
    /// Reads of a ring index, written by the kernel, that was impossible.
    pub invalid_indices: u64,
    /// Times of sent packets that were requested and not written by the card, or not taken in time, of all
    /// sockets on the queue.
    pub lost_timestamps: u64,
    /// System calls to wake the kernel for TX or FILL.
    pub wakeups: u64,
    /// Of those, calls in which the kernel dropped a packet: the peer is down or full, or the
    /// packet is larger than the MTU.
    pub send_drops: u64,
    /// Sleeps while waiting, for packets or for room to send.
    pub sleeps: u64,
    /// Packets dropped because FILL was empty or the packet did not fit into a chunk. With
    /// `rx_ring_full`, all drops of the socket.
    pub rx_dropped: u64,
    /// Packets dropped because the RX ring was full.
    pub rx_ring_full: u64,
    /// Reads of an empty FILL ring; the packets are in `rx_dropped` too.
    pub fill_ring_empty: u64,
    /// TX descriptors that the kernel rejected.
    pub tx_invalid_descs: u64,
    /// Reads of an empty TX ring.
    pub tx_ring_empty: u64,
}

impl Statistics {
    /// The kernel's counters.
    pub(super) fn read(socket: &dyn KernelSocket) -> Result<Self> {
        Self::of_kernel(socket.statistics())
    }

    /// The same, read already.
    pub(super) fn of_kernel(read: SysResult<KernelCounters>) -> Result<Self> {
        let kernel = read
            .map_err(|errno| Error::os(ErrorKind::Os, errno, "reading the socket's statistics"))?;
        Ok(Self {
            rx_dropped: kernel.rx_dropped,
            rx_ring_full: kernel.rx_ring_full,
            fill_ring_empty: kernel.fill_ring_empty,
            tx_invalid_descs: kernel.tx_invalid_descs,
            tx_ring_empty: kernel.tx_ring_empty,
            ..Self::default()
        })
    }

    /// Why the kernel dropped packets of a socket that got none, and the cure; `None` if it dropped none.
    pub(super) fn why_dropped(&self, umem: &Umem) -> Option<String> {
        let Self {
            rx_dropped,
            rx_ring_full,
            ..
        } = self;
        if *rx_ring_full > 0 {
            return Some(format!(
                "its RX ring was full for {rx_ring_full} of them: receive from the socket"
            ));
        }
        if *rx_dropped == 0 {
            return None;
        }
        Some(if self.fill_ring_empty > 0 {
            format!(
                "FILL had no chunk for {rx_dropped} of them: free frames earlier, or give the UMEM more chunks"
            )
        } else {
            let room = umem.max_rx_packet();
            let settings = umem.settings_for(LONGEST_PACKET);
            let build = settings.map(|it| format!("build the UMEM with {it}; or "));
            let build = build.unwrap_or_default();
            format!(
                "{rx_dropped} of them were longer than the {room} bytes that it has room for, as packets are that others segment late (TSO, GSO) or have merged (GRO), at any MTU: {build}`ethtool -K DEVICE tso off gso off tx-udp-segmentation off` for the sender's device, and `ethtool -K DEVICE gro off` for devices below this one"
            )
        })
    }

    /// Adds the counters of the receiving side.
    pub(super) fn with_rx(self, rx: &RxEnd, fill: &FillRing) -> Self {
        let mut all = self.with(parts_of_rx(rx, fill));
        all.received += rx.received_elsewhere;
        all
    }

    /// Adds the counters of the sending side.
    pub(super) fn with_tx(self, tx: &TxEnd, completion: &CompletionRing) -> Self {
        self.with(parts_of_tx(tx, completion))
    }

    /// Adds counters to the fields that they are parts of.
    pub(super) fn with<'c>(
        mut self,
        parts: impl IntoIterator<Item = (Field, &'c Counter)>,
    ) -> Self {
        for (field, counter) in parts {
            *field(&mut self) += counter.get();
        }
        self
    }
}

/// A field of the statistics.
pub(super) type Field = fn(&mut Statistics) -> &mut u64;

/// The library's counters of a receiving side, each with its field.
pub(super) fn parts_of_rx<'c>(rx: &'c RxEnd, fill: &'c FillRing) -> Vec<(Field, &'c Counter)> {
    let indices = rx.ring.as_ref().map(RxRing::invalid_indices);
    let indices = indices.into_iter().chain([fill.invalid_indices()]);
    let mut parts: Vec<(Field, _)> = vec![
        (|it| &mut it.received, &rx.received),
        (|it| &mut it.fragmented, fill.fragmented()),
        (|it| &mut it.invalid_descs, fill.invalid_descs()),
        (|it| &mut it.wakeups, &rx.wakeups),
        (|it| &mut it.sleeps, &rx.sleeps),
    ];
    parts.extend(indices.map(with_invalid_indices));
    parts
}

/// The same of a sending side.
pub(super) fn parts_of_tx<'c>(
    tx: &'c TxEnd,
    completion: &'c CompletionRing,
) -> Vec<(Field, &'c Counter)> {
    let indices = tx.ring.as_ref().map(TxRing::invalid_indices);
    let indices = indices.into_iter().chain([completion.invalid_indices()]);
    let mut parts: Vec<(Field, _)> = vec![
        (|it| &mut it.sent, &tx.sent),
        (|it| &mut it.completed, completion.completed()),
        (|it| &mut it.invalid_descs, completion.invalid_descs()),
        (|it| &mut it.wakeups, &tx.wakeups),
        (|it| &mut it.send_drops, &tx.send_drops),
        (|it| &mut it.sleeps, &tx.sleeps),
    ];
    parts.extend(indices.map(with_invalid_indices));
    let lost = completion.lost_timestamps();
    parts.extend(lost.map(|counter| ((|it| &mut it.lost_timestamps) as Field, counter)));
    parts
}

fn with_invalid_indices(counter: &Counter) -> (Field, &Counter) {
    (|it| &mut it.invalid_indices, counter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_packets_have_their_cause() {
        let umem = Umem::on_heap(8, 2048);
        let why = |rx_dropped, rx_ring_full, fill_ring_empty| {
            let statistics = Statistics {
                rx_dropped,
                rx_ring_full,
                fill_ring_empty,
                ..Statistics::default()
            };
            statistics.why_dropped(&umem).unwrap_or_default()
        };
        assert_eq!(why(0, 0, 0), "");
        assert_eq!(why(0, 0, 9), "", "a zero-copy driver looks again and again");
        assert!(why(9, 0, 9).starts_with("FILL had no chunk for 9"));
        assert!(why(9, 0, 0).contains("longer than the 1792 bytes"));
        assert!(why(9, 8, 9).starts_with("its RX ring was full for 8"));
    }
}
