//! A lab with one path in it, ready for load.

use std::fs;

use anyhow::{Context as _, Result};

use super::Path;
use super::forward::{ForwardCounts, Forwarder};
use super::guest::{Guest, GuestSettings};
use super::ovs::Switch;
use super::receiver::ADDRESS;
use crate::lab::{Lab, LabConfig};
use crate::process::stop::StopSignal;
use crate::traffic::programs::receiver_mac;
use hostnet::device::Counters;
use hostnet::netns;
use hostnet::tap::Tap;

/// The MAC address of the host's device where it is a port: no frame is for it.
const UPLINK_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x0c];
/// The network that the load's frames come from.
const PREFIX: u8 = 24;
/// The name of the bridge.
const BRIDGE: &str = "weirbr";

/// A lab with one path in it.
#[must_use = "it is gone when it is dropped"]
pub struct Stage<'a> {
    /// The path.
    pub path: Path,
    /// How many receivers it leads to.
    pub receivers: u8,
    /// The namespaces: the application's side is the host.
    pub lab: Lab,
    /// One for each receiver, if the path ends at taps.
    pub taps: Vec<Tap>,
    /// Virtual machines on the taps, if there are to be any.
    pub guests: Vec<Guest<'a>>,
    forwarder: Option<Forwarder>,
    /// Open vSwitch, if it is the path.
    pub switch: Option<Switch<'a>>,
}

/// What was counted on a path; how much later, once [`since`](Self::since) an earlier moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// The load's device.
    pub load: Counters,
    /// The host's device.
    pub host: Counters,
    /// Each tap.
    pub taps: Vec<Counters>,
    /// The forwarder.
    pub forward: ForwardCounts,
    /// The UDP of the namespace.
    pub udp: Udp,
}

/// What a namespace's UDP counted, see RFC 4113 and /proc/net/snmp.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Udp {
    /// Read by their receivers.
    pub received: u64,
    /// Dropped, since their receiver's buffer was full.
    pub buffer_full: u64,
}

impl<'a> Stage<'a> {
    /// Makes it, with guests on its taps if they are described. A switch that is a process shares `app_cpu` with the receivers.
    pub fn make(
        path: Path,
        receivers: u8,
        app_cpu: usize,
        guest: Option<&GuestSettings>,
        stop: &'a StopSignal,
    ) -> Result<Self> {
        let mut lab = Lab::anonymous(&LabConfig::default())?;
        let taps: Vec<Tap> = (0..receivers)
            .filter(|_| path.ends_at_taps())
            .map(|receiver| lab.app().add_tap(&format!("tap{receiver}")))
            .collect::<Result<_>>()?;
        let stations: Vec<(&Tap, [u8; 6])> = taps.iter().zip((0..).map(receiver_mac)).collect();
        let mut forwarder = None;
        let mut switch = None;
        match path {
            Path::Bridge => {
                lab.set_app_mac(UPLINK_MAC)?;
                lab.app().add_bridge(BRIDGE, &stations)?;
            }
            Path::Xdp => forwarder = Some(Forwarder::attach(lab.app(), &stations)?),
            Path::Ovs => {
                lab.set_app_mac(UPLINK_MAC)?;
                switch = Some(Switch::start(lab.app(), &stations, app_cpu, stop)?);
            }
            Path::Stack => lab.app().add_address(ADDRESS, PREFIX)?,
            Path::AfXdp | Path::AfPacket => {}
        }
        // The last: until here nothing on the taps could have been received.
        let guests = guest
            .into_iter()
            .flat_map(|guest| taps.iter().map(move |tap| (guest, tap)))
            .map(|(guest, tap)| Guest::start(guest, lab.app(), tap, stop))
            .collect::<Result<_>>()?;
        Ok(Self {
            path,
            receivers,
            lab,
            taps,
            guests,
            forwarder,
            switch,
        })
    }

    /// What was counted so far.
    pub fn counts(&self) -> Result<Counts> {
        Ok(Counts {
            load: self.lab.load().counters()?,
            host: self.lab.app().counters()?,
            taps: self
                .taps
                .iter()
                .map(|tap| tap.device().counters())
                .collect::<hostnet::Result<_>>()?,
            forward: match &self.forwarder {
                Some(forwarder) => forwarder.counts()?,
                None => ForwardCounts::default(),
            },
            udp: match self.path {
                Path::Stack => netns::run_in(self.lab.app().netns(), Udp::read)?,
                _ => Udp::default(),
            },
        })
    }
}

impl Counts {
    /// What came after `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let taps = earlier.taps.iter().zip(&self.taps);
        Self {
            load: self.load.since(&earlier.load),
            host: self.host.since(&earlier.host),
            taps: taps.map(|(then, now)| now.since(then)).collect(),
            forward: ForwardCounts {
                forwarded: self.forward.forwarded - earlier.forward.forwarded,
                unknown: self.forward.unknown - earlier.forward.unknown,
            },
            udp: Udp {
                received: self.udp.received - earlier.udp.received,
                buffer_full: self.udp.buffer_full - earlier.udp.buffer_full,
            },
        }
    }

    /// Frames that the load made, whether the host's device had room for them or not.
    pub fn offered(&self) -> u64 {
        self.load.tx_packets + self.load.tx_dropped
    }

    /// Frames that were read from taps.
    pub fn read_from_taps(&self) -> u64 {
        self.taps.iter().map(|tap| tap.tx_packets).sum()
    }
}

impl Udp {
    /// Of the calling thread's namespace.
    fn read() -> Result<Self> {
        let path = "/proc/thread-self/net/snmp";
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
        Self::parse(&text).with_context(|| format!("{path} has no counters of UDP"))
    }

    /// One line names the values of the next.
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp:"));
        let names = lines.next()?.split_whitespace();
        let values: Vec<(&str, &str)> = names.zip(lines.next()?.split_whitespace()).collect();
        let value = |wanted| {
            let found = values.iter().find(|(name, _)| *name == wanted)?;
            found.1.parse().ok()
        };
        Some(Self {
            received: value("InDatagrams")?,
            buffer_full: value("RcvbufErrors")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_udp_are_found_by_name() {
        let text = "Ip: a\nIp: 1\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors\n\
                    Udp: 7 0 2 5 3\nUdpLite: InDatagrams\nUdpLite: 9\n";
        let expected = Udp {
            received: 7,
            buffer_full: 3,
        };
        assert_eq!(Udp::parse(text), Some(expected));
        for text in ["", "Udp: InDatagrams\n", "Udp: InDatagrams\nUdp: x\n"] {
            assert_eq!(Udp::parse(text), None, "{text:?}");
        }
    }
}
