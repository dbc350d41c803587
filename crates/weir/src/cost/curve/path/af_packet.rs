//! An AF_PACKET socket with a ring (TPACKET version 3) on the device.

use anyhow::Result;

use super::super::counts::{Counts, Drops};
use super::datapath::{Datapath, Installed, ReceiverKind, Site, Stroke};
use crate::engine::protocol::Totals;
use crate::engine::{Engine, Wait};

pub struct AfPacket;

impl Datapath for AfPacket {
    fn label(&self) -> &'static str {
        "AF_PACKET"
    }

    fn stroke(&self) -> Stroke {
        Stroke {
            light: "#5c5f66",
            dark: "#ced4da",
            dash: "5 4",
        }
    }

    fn receiver(&self) -> ReceiverKind {
        ReceiverKind::Engine {
            engine: Engine::PacketV3,
            mode: None,
            wait: Wait::Poll,
        }
    }

    fn install<'a>(&self, _site: Site<'_, 'a>) -> Result<Box<dyn Installed + 'a>> {
        Ok(Box::new(()))
    }

    fn one_receiver_only(&self) -> Option<&'static str> {
        Some(
            "every AF_PACKET socket gets a copy of all frames, so several receivers do not share \
             a load",
        )
    }

    fn drops(&self, _run: &Counts, totals: &[Totals]) -> Drops {
        Drops::of_engines(totals)
    }
}
