//! An XDP program on the device that redirects frames to taps.

use anyhow::Result;

use super::super::counts::{Counts, Drops, PathCounters};
use super::super::forward::Forwarder;
use super::datapath::{Datapath, Installed, ReceiverKind, Site, Stroke};
use crate::engine::protocol::Totals;
use crate::lab::Lab;

pub struct Xdp;

impl Datapath for Xdp {
    fn label(&self) -> &'static str {
        "XDP"
    }

    fn stroke(&self) -> Stroke {
        Stroke {
            light: "#0b7285",
            dark: "#3bc9db",
            dash: "",
        }
    }

    fn receiver(&self) -> ReceiverKind {
        ReceiverKind::Tap
    }

    fn install<'a>(&self, site: Site<'_, 'a>) -> Result<Box<dyn Installed + 'a>> {
        let forwarder = Forwarder::attach(site.lab.app(), site.stations)?;
        Ok(Box::new(forwarder))
    }

    /// Of a batch that does not fit into its ring a tap counts only the first frame as dropped
    /// (`tun_xdp_xmit` in drivers/net/tun.c).
    fn drops(&self, run: &Counts, _totals: &[Totals]) -> Drops {
        Drops {
            receiver: run.path.forwarded.saturating_sub(run.read_from_taps()),
            ..Drops::default()
        }
    }

    fn balance(&self, run: &Counts, _received: u64) -> Option<[(u64, &'static str); 2]> {
        Some([
            (run.host.rx_packets, "received by the device"),
            (run.path.forwarded, "forwarded"),
        ])
    }
}

impl Installed for Forwarder {
    fn counters(&self, _lab: &Lab) -> Result<PathCounters> {
        let counts = self.counts()?;
        Ok(PathCounters {
            forwarded: counts.forwarded,
            unknown: counts.unknown,
            ..PathCounters::default()
        })
    }
}
