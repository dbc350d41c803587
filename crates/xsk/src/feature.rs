//! What the running kernel can do, each feature asked of the kernel itself and not of its
//! version.

use crate::error::errno_text;
use crate::sys::{self, open_socket};
use rustix::io::Errno;
use rustix::net::sockopt;
use std::fmt;
use std::os::fd::AsFd;

/// A feature of the kernel that this library uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// AF_XDP sockets. Nothing works without.
    Sockets,
    /// The need-wakeup flag. Without it every send makes a system call.
    NeedWakeup,
    /// Counters for a full RX ring and an empty FILL ring.
    RingStatistics,
    /// XDP programs held by a `bpf_link`. The built-in program needs it.
    XdpLink,
    /// A settable number of packets that one copy-mode send handles.
    TxBudget,
}

/// A feature that the running kernel lacks, or that this process may not ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingFeature {
    /// The feature.
    pub feature: Feature,
    /// What the kernel said.
    pub why: String,
}

impl fmt::Display for MissingFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (feature, version) = (self.feature, self.feature.since());
        write!(
            f,
            "{feature} missing (in Linux since {version}): {}",
            self.why
        )
    }
}

impl std::error::Error for MissingFeature {}

impl Feature {
    /// Every feature, oldest first.
    pub const ALL: [Self; 5] = [
        Self::Sockets,
        Self::NeedWakeup,
        Self::XdpLink,
        Self::RingStatistics,
        Self::TxBudget,
    ];

    /// The first kernel version with it.
    pub fn since(self) -> &'static str {
        match self {
            Self::Sockets => "4.18",
            Self::NeedWakeup => "5.4",
            Self::XdpLink | Self::RingStatistics => "5.9",
            Self::TxBudget => "6.17",
        }
    }

    /// Asks the kernel. Opens and closes a socket; changes nothing.
    ///
    /// # Errors
    ///
    /// [`MissingFeature`] with the kernel's answer.
    pub fn probe(self) -> Result<(), MissingFeature> {
        let missing = |why: String| MissingFeature { feature: self, why };
        let refused = |errno| missing(errno_text(errno));
        let socket = || open_socket().map_err(refused);
        match self {
            Self::Sockets => socket().map(drop),
            Self::NeedWakeup => {
                let offsets = sockopt::xdp_mmap_offsets(socket()?).map_err(refused)?;
                offsets
                    .tx
                    .flags
                    .map(drop)
                    .ok_or_else(|| missing("rings have no flags".into()))
            }
            Self::RingStatistics => {
                let statistics = sockopt::xdp_statistics(socket()?).map_err(refused)?;
                let counter = statistics.rx_ring_full.map(drop);
                counter.ok_or_else(|| missing("the statistics have no such counters".into()))
            }
            Self::XdpLink if sys::xdp_link_known().map_err(refused)? => Ok(()),
            Self::XdpLink => Err(missing("bpf(2) knows no XDP links".into())),
            // With no TX ring yet the option is refused for its value, unless it is unknown.
            Self::TxBudget => match sys::set_tx_budget(socket()?.as_fd(), 32) {
                Err(errno @ Errno::NOPROTOOPT) => Err(refused(errno)),
                _ => Ok(()),
            },
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sockets => "AF_XDP sockets",
            Self::NeedWakeup => "need_wakeup",
            Self::RingStatistics => "ring statistics",
            Self::XdpLink => "XDP links",
            Self::TxBudget => "TX budget",
        })
    }
}
