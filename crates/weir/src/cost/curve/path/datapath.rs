//! The interface of a path: everything that the curve asks of it.

use anyhow::Result;

use super::super::counts::{Counts, Drops, PathCounters};
use crate::engine::protocol::Totals;
use crate::engine::{Engine, Mode, Wait};
use crate::lab::Lab;
use crate::process::stop::StopSignal;
use hostnet::tap::Tap;

/// A receiver's tap and its MAC address.
pub type Station<'a> = (&'a Tap, [u8; 6]);

/// The lab that a path is set up in.
pub struct Site<'l, 'a> {
    /// The namespaces: the application's side is the host.
    pub lab: &'l mut Lab,
    /// The receivers' taps; none unless the path ends at taps.
    pub stations: &'l [Station<'l>],
    /// The CPU of the receivers, and of processes that forward.
    pub app_cpu: usize,
    /// Ends a wait.
    pub stop: &'a StopSignal,
}

/// The process that receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiverKind {
    /// `weir cost-receiver` or a guest, on a tap each.
    Tap,
    /// `weir cost-receiver`, on a UDP port each.
    Udp,
    /// An engine of `weir bench`, on the host's device.
    Engine {
        /// Its socket.
        engine: Engine,
        /// The mode of an AF_XDP socket.
        mode: Option<Mode>,
        /// How it waits for packets.
        wait: Wait,
    },
}

/// The line of a path in charts. Colours are CSS hex colours with a contrast of at least 4.5 to
/// the background of their scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stroke {
    /// On a light background.
    pub light: &'static str,
    /// On a dark background.
    pub dark: &'static str,
    /// `stroke-dasharray`, empty for a solid line.
    pub dash: &'static str,
}

/// A path that has been set up. Dropping it ends its processes and detaches its programs.
pub trait Installed {
    /// The path's own counters.
    fn counters(&self, _lab: &Lab) -> Result<PathCounters> {
        Ok(PathCounters::default())
    }

    /// The processes that forward frames.
    fn pids(&self) -> &[u32] {
        &[]
    }
}

/// A path of kernel objects alone, which are gone with the lab.
impl Installed for () {}

/// A path.
pub trait Datapath: Sync {
    /// The name in charts.
    fn label(&self) -> &'static str;

    /// The line in charts.
    fn stroke(&self) -> Stroke;

    /// The process that receives.
    fn receiver(&self) -> ReceiverKind;

    /// Sets the path up.
    fn install<'a>(&self, site: Site<'_, 'a>) -> Result<Box<dyn Installed + 'a>>;

    /// A sentence about how the path is set up here, for the notes of the report.
    fn note(&self) -> Option<&'static str> {
        None
    }

    /// Why several receivers cannot share the load.
    fn one_receiver_only(&self) -> Option<&'static str> {
        None
    }

    /// Whether processes forward the frames, see [`Installed::pids`].
    fn forwards_in_user_space(&self) -> bool {
        false
    }

    /// Frames that reached receivers by the kernel's counters.
    fn delivered(&self, counts: &Counts) -> u64 {
        counts.read_from_taps()
    }

    /// Frames lost behind the device.
    fn drops(&self, run: &Counts, _totals: &[Totals]) -> Drops {
        Drops {
            receiver: run.dropped_by_taps(),
            ..Drops::default()
        }
    }

    /// The frames of a run that others may have overtaken.
    fn overtaken(&self, _run: &Counts) -> u64 {
        0
    }

    /// Another pair of counters that must be equal after a run, each with its name.
    fn balance(&self, _run: &Counts, _received: u64) -> Option<[(u64, &'static str); 2]> {
        None
    }
}
