//! An AF_XDP socket on the device's only queue.

use anyhow::Result;

use super::super::counts::{Counts, Drops};
use super::datapath::{Datapath, Installed, ReceiverKind, Site, Stroke};
use crate::engine::protocol::Totals;
use crate::engine::{Engine, Mode, Wait};

pub struct AfXdp;

impl Datapath for AfXdp {
    fn label(&self) -> &'static str {
        "AF_XDP"
    }

    fn stroke(&self) -> Stroke {
        Stroke {
            light: "#2b7a37",
            dark: "#69db7c",
            dash: "",
        }
    }

    fn receiver(&self) -> ReceiverKind {
        ReceiverKind::Engine {
            engine: Engine::Xsk,
            mode: Some(Mode::Drv),
            wait: Wait::Adaptive,
        }
    }

    fn install<'a>(&self, _site: Site<'_, 'a>) -> Result<Box<dyn Installed + 'a>> {
        Ok(Box::new(()))
    }

    fn note(&self) -> Option<&'static str> {
        Some(
            "af-xdp: the socket is in driver mode, where the kernel copies each frame, and waits \
             adaptively: it polls the ring while frames come, and sleeps when none do.",
        )
    }

    fn one_receiver_only(&self) -> Option<&'static str> {
        Some(
            "a queue has one AF_XDP socket, and the lab's device has one queue: several receivers \
             need several queues",
        )
    }

    fn drops(&self, _run: &Counts, totals: &[Totals]) -> Drops {
        Drops::of_engines(totals)
    }
}
