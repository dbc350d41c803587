//! What a device carried and lost while the doctor watched.

use anyhow::{Context as _, Result};

use super::{each, fine};
use crate::doctor::{Check, Context, Evidence, Finding, Fix, Severity, Verdict};
use hostnet::rtnetlink::Link;

pub const DEVICE_ERRORS: Check = Check {
    id: "device-errors",
    title: "a device loses packets",
    severity: Severity::Warning,
    why: "Each lost packet is sent again, or missing; and where it was lost tells who is too slow.",
    source: "Documentation/networking/statistics.rst; proc_pid_net(5), /proc/net/dev",
    more: "Looked at: the errors and drops of each device in /proc/net/dev, twice. A finding is more than 10 of one kind and 1 in 1000 packets while the doctor watched: a kernel counts a packet of a protocol that nobody has asked for as dropped too, and those come now and then in every network.\n\n\
        There is no one fix. rx fifo and missed: the CPU comes to the ring too late (ring-sizes, irq-affinity, softnet-squeezed, weir cost). rx drop: nobody wanted them, or there was no memory. tx drop: the receiver behind a tap or veth is too slow, or its queue too short. errs and frame: the cable or the card.",
    run: |context| each(context, |device| errors(context, device)),
};

const PROC_NET_DEV: &str = "/proc/net/dev";
/// The columns of /proc/net/dev; the first eight are of what was received.
const COLUMNS: [&str; 16] = [
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
const RX_PACKETS: usize = 1;
const TX_PACKETS: usize = 9;
/// Those that count losses, with the packets that they are a part of.
const LOSSES: [(usize, usize); 7] = [
    (2, RX_PACKETS),
    (3, RX_PACKETS),
    (4, RX_PACKETS),
    (5, RX_PACKETS),
    (10, TX_PACKETS),
    (11, TX_PACKETS),
    (12, TX_PACKETS),
];
/// So many are no chance.
const MANY: u64 = 10;
/// One in so many packets matters.
const PART: u64 = 1000;

/// What came on in each column of /proc/net/dev, and in which time.
pub struct Traffic {
    counted: [u64; COLUMNS.len()],
    seconds: f64,
}

impl Traffic {
    /// Packets received a second.
    pub fn rx_pps(&self) -> f64 {
        // Exact up to 2^53 packets.
        self.counted[RX_PACKETS] as f64 / self.seconds
    }

    /// The columns of losses that matter.
    fn losses(&self) -> impl Iterator<Item = (&'static str, u64)> {
        LOSSES.iter().filter_map(|&(column, of)| {
            let (lost, packets) = (self.counted[column], self.counted[of]);
            (lost > MANY && lost > packets / PART).then_some((COLUMNS[column], lost))
        })
    }
}

/// What `device` carried while the doctor watched.
pub fn of(context: &Context, device: &str) -> Result<Traffic> {
    let twice = context.twice(PROC_NET_DEV)?;
    let gone = || format!("{device} is not in {PROC_NET_DEV} any more");
    let before = row(twice.before, device).with_context(gone)?;
    let after = row(twice.after, device).with_context(gone)?;
    let mut counted = [0; COLUMNS.len()];
    for (counted, (before, after)) in counted.iter_mut().zip(before.into_iter().zip(after)) {
        // A device that was made anew begins at zero.
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

/// The packets that `device` lost for want of room while the doctor watched.
pub fn missed(context: &Context, device: &str) -> Result<u64> {
    let mut missed = 0;
    for counter in ["rx_missed_errors", "rx_fifo_errors"] {
        let path = format!("/sys/class/net/{device}/statistics/{counter}");
        let twice = context.twice(&path)?;
        let number = |text: &str| {
            text.parse::<u64>()
                .with_context(|| format!("{path} has no number"))
        };
        missed += number(twice.after)?.saturating_sub(number(twice.before)?);
    }
    Ok(missed)
}

fn errors(context: &Context, device: &Link) -> Result<Option<Verdict>> {
    let traffic = of(context, &device.name)?;
    let losses: Vec<_> = traffic.losses().collect();
    let watched = format!("in {:.1} s", traffic.seconds);
    let shown = |(column, lost): &(&str, u64)| {
        Evidence::new(
            format!("{PROC_NET_DEV}, {column} of {}", device.name),
            format!("{lost} more {watched}"),
        )
    };
    let packets = [RX_PACKETS, TX_PACKETS].map(|column| (COLUMNS[column], traffic.counted[column]));
    let evidence = losses.iter().chain(&packets).map(shown).collect();
    if losses.is_empty() {
        return Ok(Some(fine(&device.name, evidence)));
    }
    let list: Vec<_> = losses
        .iter()
        .map(|(column, lost)| format!("{column} {lost}"))
        .collect();
    Ok(Some(Verdict::Finding(Finding {
        subject: device.name.clone(),
        evidence,
        message: format!(
            "{} lost packets {watched}: {}.",
            device.name,
            list.join(", ")
        ),
        fix: Fix::Text(
            "depends on where they were lost: `weir doctor --explain device-errors`".into(),
        ),
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many packets received within a second.
    fn received(packets: u64) -> Traffic {
        let mut counted = [0; COLUMNS.len()];
        counted[RX_PACKETS] = packets;
        Traffic {
            counted,
            seconds: 1.0,
        }
    }

    #[test]
    fn a_row_is_found_by_its_name() {
        let text =
            "Inter-|\n face |bytes\n  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\nveth1:1 2\n";
        assert_eq!(
            row(text, "eth0").map(|row| (row[0], row[15])),
            Some((1, 16))
        );
        assert_eq!(row(text, "veth1"), None, "cut short");
        assert_eq!(row(text, "eth"), None);
    }

    #[test]
    fn few_losses_are_none() {
        let losses = |packets, lost| {
            let mut traffic = received(packets);
            traffic.counted[3] = lost;
            traffic.losses().collect::<Vec<_>>()
        };
        assert_eq!(losses(0, 10), []);
        assert_eq!(losses(0, 11), [("rx drop", 11)]);
        assert_eq!(losses(100_000, 100), []);
        assert_eq!(losses(100_000, 101), [("rx drop", 101)]);
    }
}
