//! A Linux bridge between the device and taps, accelerated by weir with XDP programs on all ports.

use anyhow::Result;

use super::super::counts::{Counts, Drops, PathCounters};
use super::bridge::{BRIDGE, UPLINK_MAC};
use super::datapath::{Datapath, Installed, ReceiverKind, Site, Stroke};
use crate::cost::accelerated::Accelerated;
use crate::engine::protocol::Totals;
use crate::lab::Lab;
use crate::switch::Hook;
use crate::traffic::frame::LOAD_MAC;
use hostnet::netns;
use hostnet::rtnetlink::{FdbKind, Rtnetlink};

pub struct Weir;

impl Datapath for Weir {
    fn label(&self) -> &'static str {
        "weir"
    }

    fn stroke(&self) -> Stroke {
        Stroke {
            light: "#1864ab",
            dark: "#74c0fc",
            dash: "",
        }
    }

    fn receiver(&self) -> ReceiverKind {
        ReceiverKind::Tap
    }

    fn install<'a>(&self, site: Site<'_, 'a>) -> Result<Box<dyn Installed + 'a>> {
        site.lab.set_app_mac(UPLINK_MAC)?;
        let app = site.lab.app();
        app.add_bridge(BRIDGE, site.stations)?;
        let uplink = app.index()?;
        // As if the bridge had learned it: then the programs forward from the first frame on.
        netns::run_in(app.netns(), || {
            Rtnetlink::open()?.add_fdb(uplink, LOAD_MAC, 0, FdbKind::Dynamic)
        })?;
        Ok(Box::new(Accelerated::start(
            app.netns(),
            BRIDGE,
            Hook::Xdp,
        )?))
    }

    fn note(&self) -> Option<&'static str> {
        Some(
            "weir: the bridge has weir's XDP programs on the device and on the taps; the thread that \
             keeps it accelerated is in none of the figures.",
        )
    }

    /// Of a batch that does not fit into its ring a tap counts only the first frame as dropped
    /// (`tun_xdp_xmit` in drivers/net/tun.c).
    fn drops(&self, run: &Counts, _totals: &[Totals]) -> Drops {
        Drops {
            receiver: handled(run).saturating_sub(run.read_from_taps()),
            ..Drops::default()
        }
    }

    /// A frame that the kernel gets is delivered behind those of its NAPI poll that the program redirects.
    fn overtaken(&self, run: &Counts) -> u64 {
        run.path.unknown
    }

    fn balance(&self, run: &Counts, _received: u64) -> Option<[(u64, &'static str); 2]> {
        Some([
            (run.host.rx_packets, "received by the device"),
            (
                handled(run),
                "forwarded by the programs or for the sender's age",
            ),
        ])
    }
}

/// Frames that the programs forwarded, and those that the kernel got instead to reset their sender's age.
fn handled(run: &Counts) -> u64 {
    run.path.forwarded + run.path.unknown
}

impl Installed for Accelerated {
    fn counters(&self, _lab: &Lab) -> Result<PathCounters> {
        let mirror = self.settle()?;
        Ok(PathCounters {
            forwarded: mirror.forwarded,
            unknown: mirror.refreshing,
            ..PathCounters::default()
        })
    }
}
