//! Open vSwitch between the device and taps.

use anyhow::Result;

use super::super::counts::{Counts, Drops};
use super::super::ovs::Switch;
use super::bridge::UPLINK_MAC;
use super::datapath::{Datapath, Installed, ReceiverKind, Site, Stroke};
use crate::engine::protocol::Totals;

pub struct Ovs;

impl Datapath for Ovs {
    fn label(&self) -> &'static str {
        "Open vSwitch"
    }

    fn stroke(&self) -> Stroke {
        Stroke {
            light: "#a61e4d",
            dark: "#f783ac",
            dash: "9 3",
        }
    }

    fn receiver(&self) -> ReceiverKind {
        ReceiverKind::Tap
    }

    fn install<'a>(&self, site: Site<'_, 'a>) -> Result<Box<dyn Installed + 'a>> {
        site.lab.set_app_mac(UPLINK_MAC)?;
        let app = site.lab.app();
        let switch = Switch::start(app, site.stations, site.app_cpu, site.stop)?;
        Ok(Box::new(switch))
    }

    fn note(&self) -> Option<&'static str> {
        Some("ovs: the datapath of Open vSwitch is in user space (datapath_type=netdev).")
    }

    fn forwards_in_user_space(&self) -> bool {
        true
    }

    fn drops(&self, run: &Counts, _totals: &[Totals]) -> Drops {
        let receiver = run.dropped_by_taps();
        let missing = run.host.rx_packets.saturating_sub(run.read_from_taps());
        Drops {
            receiver,
            switch: missing.saturating_sub(receiver),
            ..Drops::default()
        }
    }
}

impl Installed for Switch<'_> {
    fn pids(&self) -> &[u32] {
        &self.pids
    }
}
