//! Waiting for packets.

use std::time::{Duration, Instant};

/// The way in which a socket waits for packets; see [the guide](crate::guide::waiting).
///
/// ```
/// use std::time::Duration;
/// use xsk::Wait;
///
/// let max_delay = Duration::from_micros(200);
/// assert_eq!(Wait::default(), Wait::Adaptive { max_delay });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// Reads the ring index in a loop. Lowest delay; uses a whole CPU at all times.
    Spin,
    /// Blocks in poll(2): one wake-up for each packet that arrives alone.
    Poll,
    /// Selects by packet rate: blocks in poll(2) when packets are few, sleeps for up to `max_delay`
    /// to gather a batch, and spins when the ring would fill during a sleep. It adds up to
    /// `max_delay` of delay, of which the timer's usual lateness is a part where four packets and more gather;
    /// with fewer, for which a sleep costs as much, it comes on top.
    Adaptive {
        /// Longest sleep while packets gather.
        max_delay: Duration,
    },
    /// Runs the receive function of the device's NAPI instance on this CPU while the RX ring is empty, in
    /// place of its interrupt and softirq (`SO_PREFER_BUSY_POLL`, Linux 5.11, `CAP_NET_ADMIN`). Uses a whole
    /// CPU at all times. A device without such an instance is waited for as with [`Wait::Spin`]: see
    /// [`Socket::napi_id`](crate::Socket::napi_id) and [the guide](crate::guide::waiting#busy-polling).
    BusyPoll,
}

impl Wait {
    /// [`Wait::Adaptive`] with a delay of at most 200 µs, the value that the kernel's documentation
    /// suggests for `gro_flush_timeout` (`Documentation/networking/napi.rst`).
    pub const fn adaptive() -> Self {
        Self::Adaptive {
            max_delay: Duration::from_micros(200),
        }
    }
}

impl Default for Wait {
    fn default() -> Self {
        Self::adaptive()
    }
}

/// The events to wait for; see [`Socket::wait_for`](crate::Socket::wait_for).
///
/// ```
/// assert_ne!(xsk::Interest::Receive, xsk::Interest::Both);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Interest {
    /// A packet in the RX ring.
    Receive,
    /// A free slot of the TX ring, and a free chunk unless none is on its way back.
    Send,
    /// Either of them.
    Both,
}

impl Interest {
    pub(crate) fn receives(self) -> bool {
        self != Self::Send
    }

    pub(crate) fn sends(self) -> bool {
        self != Self::Receive
    }
}

/// The events that are there now; those not asked for are false.
///
/// ```no_run
/// # fn main() -> xsk::Result<()> {
/// # let umem = xsk::Umem::builder().build()?;
/// # let mut socket = xsk::Socket::builder(&umem, "eth0", 0).open()?;
/// let ready = socket.prepare_to_wait(xsk::Interest::Both)?;
/// if !ready.any() {
///     println!("sleep for at most {:?}", ready.sleep_at_most);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Ready {
    /// The RX ring has a packet.
    pub receive: bool,
    /// A packet can be sent: the TX ring has a free slot, and a chunk is free unless none is on its
    /// way back.
    pub send: bool,
    /// While the kernel has yet to take packets from TX, too few chunks are lent for receiving, or a
    /// zero-copy driver may not know of those in FILL: the longest sleep before the socket has to be looked
    /// after again.
    pub sleep_at_most: Option<Duration>,
}

impl Ready {
    /// Whether any event is there.
    pub fn any(self) -> bool {
        self.receive || self.send
    }
}

/// The next step while the ring is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    /// Read the ring index again at once.
    Spin,
    /// Sleep for this time while packets gather.
    Gather(Duration),
    /// Block until a packet arrives.
    Block,
}

/// A shorter sleep costs more CPU time than it saves.
const SHORTEST_SLEEP: Duration = Duration::from_micros(20);

/// With as many packets for each sleep, the timer's lateness is taken off. That takes about a third more sleeps, each of
/// which still saves wake-ups.
const MANY: u32 = 4;

/// The latest sleep weighs one in so many in the usual lateness.
const WEIGHT: u32 = 8;

/// Selects between spinning, gathering and blocking by the packet rate.
#[derive(Debug)]
pub(crate) struct Pacer {
    max_delay: Duration,
    /// Packets that may gather without danger of a full ring.
    room: u32,
    /// The time at which the ring was last found empty, and the packets received until then.
    last: Instant,
    seen: u64,
    /// The usual lateness of the timer.
    late: Duration,
}

impl Pacer {
    /// A pacer for an RX ring of `ring` slots, opened at the time `now`.
    pub(crate) fn new(max_delay: Duration, ring: u32, now: Instant) -> Self {
        // The timer can be late by as much again; the ring is half full then.
        Self {
            max_delay,
            room: (ring / 4).max(1),
            last: now,
            seen: 0,
            late: Duration::ZERO,
        }
    }

    /// Learns from a sleep, asked for and as it was.
    pub(crate) fn slept(&mut self, asked: Duration, slept: Duration) {
        // More is the scheduler's, which had another task for this CPU.
        let late = slept.saturating_sub(asked).min(self.max_delay / 2);
        self.late = (self.late * (WEIGHT - 1) + late) / WEIGHT;
    }

    /// The next step, with the ring empty and `received` packets since the socket was opened.
    pub(crate) fn pause(&mut self, received: u64, now: Instant) -> Pause {
        let packets = received.wrapping_sub(self.seen);
        if packets == 0 {
            // The rate is that since the first time, however often the socket was looked after.
            return Pause::Block;
        }
        let elapsed = now.saturating_duration_since(self.last);
        (self.seen, self.last) = (received, now);
        let gap_ns = (elapsed.as_nanos() / u128::from(packets)).max(1);
        // Hardly more than one packet would gather: a wake-up for each costs no more.
        if gap_ns * 3 / 2 > self.max_delay.as_nanos() {
            return Pause::Block;
        }
        let until_full = Duration::from_nanos((gap_ns * u128::from(self.room)) as u64);
        let delay = until_full.min(self.max_delay);
        if delay < SHORTEST_SLEEP {
            return Pause::Spin;
        }
        let gather = delay.as_nanos() / gap_ns;
        let late = if gather < MANY.into() {
            Duration::ZERO
        } else {
            self.late
        };
        Pause::Gather(delay.saturating_sub(late).max(SHORTEST_SLEEP))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pause after `packets` within `micros`, with a ring of 2048.
    fn after(packets: u64, micros: u64) -> Pause {
        let mut pacer = Pacer::new(Duration::from_micros(200), 2048, Instant::now());
        let start = pacer.last;
        pacer.pause(packets, start + Duration::from_micros(micros))
    }

    #[test]
    fn it_blocks_when_packets_stop_or_arrive_alone() {
        assert_eq!(after(0, 10), Pause::Block);
        assert_eq!(after(1, 1000), Pause::Block);
        assert_eq!(after(1, 134), Pause::Block);
    }

    #[test]
    fn it_gathers_for_shorter_the_higher_the_rate() {
        assert_eq!(after(1, 100), Pause::Gather(Duration::from_micros(200)));
        assert_eq!(after(100, 100), Pause::Gather(Duration::from_micros(200)));
        assert_eq!(
            after(1000, 100),
            Pause::Gather(Duration::from_nanos(51_200))
        );
    }

    #[test]
    fn it_sleeps_shorter_by_the_usual_lateness_where_many_gather() {
        let micros = Duration::from_micros;
        let mut pacer = Pacer::new(micros(200), 2048, Instant::now());
        let mut pause = |packets, late: u64| {
            for _ in 0..100 {
                pacer.slept(micros(100), micros(100 + late));
            }
            let now = pacer.last + micros(100);
            pacer.pause(pacer.seen + packets, now)
        };
        let Pause::Gather(delay) = pause(10, 50) else {
            panic!("packets gather");
        };
        assert!((150..155).contains(&delay.as_micros()), "{delay:?}");
        // Two packets and no more.
        assert_eq!(pause(1, 50), Pause::Gather(micros(200)));
        // Not for less than a sleep is worth, and a stall of the CPU is no lateness of the timer.
        let Pause::Gather(delay) = pause(10, 1_000_000) else {
            panic!("packets gather");
        };
        assert!((100..105).contains(&delay.as_micros()), "{delay:?}");
        assert_eq!(pause(1000, 90), Pause::Gather(SHORTEST_SLEEP));
    }

    #[test]
    fn it_spins_when_the_ring_would_fill_during_a_sleep() {
        assert_eq!(after(4000, 100), Pause::Spin);
        let mut small = Pacer::new(Duration::from_micros(200), 16, Instant::now());
        let now = small.last + Duration::from_micros(100);
        assert_eq!(small.pause(100, now), Pause::Spin);
    }
}
