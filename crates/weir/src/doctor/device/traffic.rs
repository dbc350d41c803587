//! The counters of a device over one interval.

use anyhow::{Context as _, Result};

use crate::doctor::context::Context;

pub const PROC_NET_DEV: &str = "/proc/net/dev";
/// The columns of /proc/net/dev.
pub const COLUMNS: [&str; 16] = [
    "rx bytes",
    "rx packets",
    "rx errs",
    "rx drop",
    "rx fifo",
    "rx frame",
    "rx compressed",
    "rx multicast",
    "tx bytes",
    "tx packets",
    "tx errs",
    "tx drop",
    "tx fifo",
    "tx colls",
    "tx carrier",
    "tx compressed",
];
pub const RX_PACKETS: usize = 1;
pub const TX_PACKETS: usize = 9;
pub const TX_DROP: usize = 11;

/// Fewer losses a second are chance.
const MANY: f64 = 10.0;
/// Fewer than one in so many packets do not matter.
const PART: u64 = 1000;

/// Whether so many losses among so many packets matter.
pub fn matters(lost: u64, packets: u64, seconds: f64) -> bool {
    lost as f64 > MANY * seconds && lost > packets / PART
}

/// The increase of each column of /proc/net/dev.
pub struct Traffic {
    pub counted: [u64; COLUMNS.len()],
    pub seconds: f64,
}

impl Traffic {
    /// Packets received a second.
    pub fn rx_pps(&self) -> f64 {
        // Exact up to 2^53 packets.
        self.counted[RX_PACKETS] as f64 / self.seconds
    }
}

/// The traffic of `device`. The check must have [`PROC_NET_DEV`] among its counters.
pub fn of(context: &Context, device: &str) -> Result<Traffic> {
    let twice = context.twice(PROC_NET_DEV)?;
    let gone = || format!("{device} is no longer in {PROC_NET_DEV}");
    let before = row(twice.before, device).with_context(gone)?;
    let after = row(twice.after, device).with_context(gone)?;
    let mut counted = [0; COLUMNS.len()];
    for (counted, (before, after)) in counted.iter_mut().zip(before.into_iter().zip(after)) {
        // The counters of a device that was recreated start at zero.
        *counted = after.saturating_sub(before);
    }
    Ok(Traffic {
        counted,
        seconds: twice.elapsed.as_secs_f64(),
    })
}

fn row(text: &str, device: &str) -> Option<[u64; COLUMNS.len()]> {
    let line = text.lines().find_map(|line| {
        let (name, rest) = line.split_once(':')?;
        (name.trim() == device).then_some(rest)
    })?;
    let numbers: Vec<u64> = line
        .split_whitespace()
        .map_while(|number| number.parse().ok())
        .collect();
    numbers.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_found_by_its_whole_name() {
        let text =
            "Inter-|\n face |bytes\n  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\nveth1:1 2\n";
        assert_eq!(
            row(text, "eth0").map(|row| (row[0], row[15])),
            Some((1, 16))
        );
        assert_eq!(row(text, "veth1"), None, "truncated");
        assert_eq!(row(text, "eth"), None);
    }
}
