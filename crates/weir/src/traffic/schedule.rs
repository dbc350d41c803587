//! Times at which packets are to be sent: at equal distances, whatever becomes of those before.

const SECOND: u128 = 1_000_000_000;

/// The intended times of packets, numbered from 0.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    /// Of the first packet, in nanoseconds.
    pub start_ns: u64,
    /// Packets a second.
    pub pps: u64,
}

impl Schedule {
    /// The intended time of a packet, in nanoseconds.
    #[inline]
    pub fn time(&self, number: u64) -> u64 {
        self.start_ns + (u128::from(number) * SECOND / u128::from(self.pps)) as u64
    }

    /// The packets whose time has come by `now`, from `next` on, but no more than `most`.
    #[inline]
    pub fn due(&self, next: u64, now: u64, most: u32) -> u32 {
        let due = (0..most).take_while(|&ahead| self.time(next + u64::from(ahead)) <= now);
        due.count() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_at_equal_distances() {
        let schedule = Schedule {
            start_ns: 5,
            pps: 3,
        };
        let times = [0, 1, 2, 3].map(|number| schedule.time(number));
        assert_eq!(times, [5, 333_333_338, 666_666_671, 1_000_000_005]);
        // No error adds up: a year later the distance is the same.
        let year = 3 * 365 * 86_400;
        assert_eq!(schedule.time(year) - 5, 365 * 86_400 * 1_000_000_000);
    }

    #[test]
    fn overdue_packets_are_due_at_once() {
        let schedule = Schedule {
            start_ns: 1000,
            pps: 1_000_000,
        };
        assert_eq!(schedule.due(0, 999, 64), 0);
        assert_eq!(schedule.due(0, 1000, 64), 1);
        assert_eq!(schedule.due(1, 1000, 64), 0);
        assert_eq!(schedule.due(1, 5000, 64), 4);
        assert_eq!(schedule.due(1, 5000, 2), 2);
    }
}
