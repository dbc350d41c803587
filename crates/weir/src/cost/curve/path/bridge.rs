//! A Linux bridge between the device and taps.

use anyhow::Result;

use super::datapath::{Datapath, Installed, ReceiverKind, Site, Stroke};

/// The name of the bridge.
pub(super) const BRIDGE: &str = "weirbr";
/// The MAC address of a device that is a port: no frame is for it.
pub(super) const UPLINK_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x0c];

pub struct Bridge;

impl Datapath for Bridge {
    fn label(&self) -> &'static str {
        "bridge"
    }

    fn stroke(&self) -> Stroke {
        Stroke {
            light: "#c2410c",
            dark: "#ff922b",
            dash: "",
        }
    }

    fn receiver(&self) -> ReceiverKind {
        ReceiverKind::Tap
    }

    fn install<'a>(&self, site: Site<'_, 'a>) -> Result<Box<dyn Installed + 'a>> {
        site.lab.set_app_mac(UPLINK_MAC)?;
        site.lab.app().add_bridge(BRIDGE, site.stations)?;
        Ok(Box::new(()))
    }
}
