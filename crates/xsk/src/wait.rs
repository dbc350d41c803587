//! How a socket waits for packets.

use std::time::{Duration, Instant};

/// What a socket does while nothing has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// Looks at the ring again and again. Least delay, a whole CPU always.
    Spin,
    /// Sleeps in poll(2) until the kernel wakes it. One wake-up for every packet that comes
    /// alone.
    Poll,
    /// Sleeps in poll(2) when packets have stopped. While they come, it lets them gather for as
    /// long as they need to make a good batch, but no longer than `max_delay`, and spins when
    /// they come too fast for even that. Close to the spinning socket's throughput at a
    /// fraction of the polling socket's CPU time; the price is up to `max_delay` of delay.
    Adaptive {
        /// Longest time for packets to gather.
        max_delay: Duration,
    },
}

impl Wait {
    /// [`Wait::Adaptive`] with a delay of at most 200 µs, what the kernel's documentation
    /// suggests for `gro_flush_timeout`.
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

/// What to do now that the ring is empty.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// Look again at once.
    Spin,
    /// Let packets gather for this long.
    Gather(Duration),
    /// Sleep until the kernel says that one has come.
    Block,
}

/// Sleeping for less than this costs more than it spares.
const SHORTEST_SLEEP: Duration = Duration::from_micros(20);

/// Decides between spinning, gathering and blocking by the rate at which packets come.
#[derive(Debug)]
pub(crate) struct Pacer {
    max_delay: Duration,
    /// Packets that may gather before the ring is in danger of running over.
    room: u32,
    /// When the ring was last found empty, and how many packets had come by then.
    last: Instant,
    seen: u64,
}

impl Pacer {
    /// A pacer for an RX ring of `ring` slots.
    pub(crate) fn new(max_delay: Duration, ring: u32) -> Self {
        // The timer may be late by as much again, and the ring must not be more than half full
        // then.
        Self {
            max_delay,
            room: (ring / 4).max(1),
            last: Instant::now(),
            seen: 0,
        }
    }

    /// Called with the ring empty and the number of packets received ever.
    pub(crate) fn pause(&mut self, received: u64, now: Instant) -> Pause {
        let packets = received.wrapping_sub(self.seen);
        let elapsed = now.saturating_duration_since(self.last);
        (self.seen, self.last) = (received, now);
        if packets == 0 {
            return Pause::Block;
        }
        let gap_ns = (elapsed.as_nanos() / u128::from(packets)).max(1);
        // With hardly more than one packet gathered, a wake-up for each is no worse.
        if gap_ns * 3 / 2 > self.max_delay.as_nanos() {
            return Pause::Block;
        }
        let until_full = Duration::from_nanos((gap_ns * u128::from(self.room)) as u64);
        match until_full.min(self.max_delay) {
            delay if delay < SHORTEST_SLEEP => Pause::Spin,
            delay => Pause::Gather(delay),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the pacer says after `packets` came in `micros`, with a ring of 2048.
    fn after(packets: u64, micros: u64) -> Pause {
        let mut pacer = Pacer::new(Duration::from_micros(200), 2048);
        let start = pacer.last;
        pacer.pause(packets, start + Duration::from_micros(micros))
    }

    #[test]
    fn it_blocks_when_packets_stop_or_come_alone() {
        assert_eq!(after(0, 10), Pause::Block);
        assert_eq!(after(1, 1000), Pause::Block);
        assert_eq!(after(1, 134), Pause::Block);
    }

    #[test]
    fn it_gathers_while_they_come_and_less_the_faster() {
        assert_eq!(after(1, 100), Pause::Gather(Duration::from_micros(200)));
        assert_eq!(after(100, 100), Pause::Gather(Duration::from_micros(200)));
        assert_eq!(
            after(1000, 100),
            Pause::Gather(Duration::from_nanos(51_200))
        );
    }

    #[test]
    fn it_spins_when_the_ring_would_run_over_in_a_sleep() {
        assert_eq!(after(4000, 100), Pause::Spin);
        let mut small = Pacer::new(Duration::from_micros(200), 16);
        let now = small.last + Duration::from_micros(100);
        assert_eq!(small.pause(100, now), Pause::Spin);
    }
}
