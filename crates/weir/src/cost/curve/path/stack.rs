//! The network stack, up to UDP sockets.

use std::fs;

use anyhow::{Context as _, Result};

use super::super::counts::{Counts, Drops, PathCounters};
use super::datapath::{Datapath, Installed, ReceiverKind, Site, Stroke};
use crate::engine::protocol::Totals;
use crate::lab::Lab;
use crate::traffic::frame::{APP_ADDRESS, PREFIX};
use hostnet::netns;

/// The counters of the calling thread's network namespace, see RFC 4113.
const SNMP: &str = "/proc/thread-self/net/snmp";

pub struct Stack;

impl Datapath for Stack {
    fn label(&self) -> &'static str {
        "UDP socket"
    }

    fn stroke(&self) -> Stroke {
        Stroke {
            light: "#5f3dc4",
            dark: "#b197fc",
            dash: "2 3",
        }
    }

    fn receiver(&self) -> ReceiverKind {
        ReceiverKind::Udp
    }

    fn install<'a>(&self, site: Site<'_, 'a>) -> Result<Box<dyn Installed + 'a>> {
        site.lab.app().add_address(APP_ADDRESS, PREFIX)?;
        Ok(Box::new(Address))
    }

    fn delivered(&self, counts: &Counts) -> u64 {
        counts.path.received
    }

    fn drops(&self, run: &Counts, _totals: &[Totals]) -> Drops {
        Drops {
            receiver: run.path.dropped,
            ..Drops::default()
        }
    }

    fn balance(&self, run: &Counts, received: u64) -> Option<[(u64, &'static str); 2]> {
        Some([
            (run.path.received, "read from the sockets"),
            (received, "received"),
        ])
    }
}

/// The host's address.
struct Address;

impl Installed for Address {
    fn counters(&self, lab: &Lab) -> Result<PathCounters> {
        netns::run_in(lab.app().netns(), || {
            let text = fs::read_to_string(SNMP).with_context(|| format!("cannot read {SNMP}"))?;
            parse(&text).with_context(|| format!("{SNMP} has no counters of UDP"))
        })
    }
}

/// The counters of UDP: a line of names, followed by a line of values.
fn parse(text: &str) -> Option<PathCounters> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let names = lines.next()?.split_whitespace();
    let values: Vec<(&str, &str)> = names.zip(lines.next()?.split_whitespace()).collect();
    let value = |wanted| {
        let found = values.iter().find(|(name, _)| *name == wanted)?;
        found.1.parse().ok()
    };
    Some(PathCounters {
        received: value("InDatagrams")?,
        dropped: value("RcvbufErrors")?,
        ..PathCounters::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_udp_are_found_by_name() {
        let text = "Ip: a\nIp: 1\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors\n\
                    Udp: 7 0 2 5 3\nUdpLite: InDatagrams\nUdpLite: 9\n";
        let expected = PathCounters {
            received: 7,
            dropped: 3,
            ..PathCounters::default()
        };
        assert_eq!(parse(text), Some(expected));
        for text in ["", "Udp: InDatagrams\n", "Udp: InDatagrams\nUdp: x\n"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
