//! Features of the running kernel, found by a probe of each and not by the kernel's version.

use crate::error::errno_text;
use crate::hints::FUNCTIONS;
use crate::sys::{self, Registration, TX_METADATA_LEN, open_socket};
use hostnet::privilege::{self, Capability, Feature as Part};
use rustix::io::Errno;
use rustix::net::xdp::{SocketAddrXdp, SocketAddrXdpFlags};
use rustix::net::{bind, sockopt};
use std::fmt;
use std::os::fd::AsFd;

/// A kernel feature that this library uses.
///
/// ```
/// for feature in xsk::Feature::ALL {
///     match feature.probe() {
///         Ok(()) => println!("{feature}"),
///         Err(missing) => println!("{missing}"),
///     }
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// AF_XDP sockets. Required.
    Sockets,
    /// The need-wakeup flag. Without it every flush is a system call.
    NeedWakeup,
    /// Counters for a full RX ring and an empty FILL ring.
    RingStatistics,
    /// XDP programs held by a `bpf_link`. The built-in program needs it.
    XdpLink,
    /// `XDP_USE_SG`: packets of several chunks. A UMEM with
    /// [fragments](crate::UmemBuilder::fragments) needs it.
    Fragments,
    /// What the driver knows of received packets, written by the XDP program, bound to its device.
    /// [`SocketBuilder::rx_hints`](crate::SocketBuilder::rx_hints) asks for it.
    RxHints,
    /// `XDP_UMEM_TX_METADATA_LEN`: requests with packets that are sent. A UMEM with
    /// [TX metadata](crate::UmemBuilder::tx_metadata) needs it.
    TxMetadata,
    /// `XDP_MAX_TX_SKB_BUDGET`: packets that one copy-mode send(2) transmits.
    TxBudget,
}

/// A feature that the running kernel lacks, or whose probe this process may not run.
///
/// ```
/// if let Err(missing) = xsk::Feature::XdpLink.probe() {
///     println!("{}: {}", missing.feature, missing.why);
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingFeature {
    /// The feature.
    pub feature: Feature,
    /// The kernel's answer, or that of a sandbox, with the cure.
    pub why: String,
    /// Whether the probe could not run, for want of a capability or a file descriptor for instance, so that the
    /// kernel may have the feature.
    pub unprobed: bool,
}

impl fmt::Display for MissingFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (feature, version) = (self.feature, self.feature.since());
        if self.unprobed {
            return write!(f, "{feature} cannot be probed: {}", self.why);
        }
        write!(
            f,
            "{feature} missing (Linux {version} and later have it): {}",
            self.why
        )
    }
}

impl std::error::Error for MissingFeature {}

impl Feature {
    /// Every feature, oldest first.
    pub const ALL: [Self; 8] = [
        Self::Sockets,
        Self::NeedWakeup,
        Self::XdpLink,
        Self::RingStatistics,
        Self::RxHints,
        Self::Fragments,
        Self::TxMetadata,
        Self::TxBudget,
    ];

    /// The first kernel version with the feature, such as `5.9`.
    pub fn since(self) -> &'static str {
        match self {
            Self::Sockets => "4.18",
            Self::NeedWakeup => "5.4",
            Self::XdpLink | Self::RingStatistics => "5.9",
            Self::RxHints => "6.3",
            Self::Fragments => "6.6",
            Self::TxMetadata => "6.11",
            Self::TxBudget => "6.17",
        }
    }

    /// Probes the kernel, with a socket that is closed again. It changes nothing.
    ///
    /// # Errors
    ///
    /// [`MissingFeature`], with the kernel's answer.
    pub fn probe(self) -> Result<(), MissingFeature> {
        let missing = |why: String| MissingFeature {
            feature: self,
            why,
            unprobed: false,
        };
        let refused = |errno| missing(errno_text(errno));
        let socket = || {
            open_socket()
                .map_err(|errno| self.unanswered(errno, Part::AfXdp, &[Capability::NetRaw]))
        };
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
            Self::XdpLink
                if sys::xdp_link_known().map_err(|errno| {
                    let needed = [Capability::Bpf, Capability::NetAdmin];
                    self.unanswered(errno, Part::Bpf, &needed)
                })? =>
            {
                Ok(())
            }
            Self::XdpLink => Err(missing("bpf(2) knows no XDP links".into())),
            // No device has index 0; a kernel that does not know the flag refuses it before it looks.
            Self::Fragments => {
                let address = SocketAddrXdp::new(SocketAddrXdpFlags::XDP_USE_SG, 0, 0);
                match bind(socket()?, &address) {
                    Err(errno @ Errno::INVAL) => Err(refused(errno)),
                    _ => Ok(()),
                }
            }
            Self::RxHints => match sys::kernel_functions(FUNCTIONS).map_err(missing)? {
                [_, Some(_), _] => Ok(()),
                _ => Err(missing("it has no functions that ask the driver".into())),
            },
            // No memory is at this address; a kernel that does not know the flag refuses it before it looks.
            Self::TxMetadata => {
                let nothing = Registration {
                    addr: 0,
                    len: 4096,
                    chunk_size: 4096,
                    headroom: 0,
                    tx_metadata_len: TX_METADATA_LEN,
                    unaligned: false,
                };
                match sys::register(socket()?.as_fd(), &nothing) {
                    Err(errno @ Errno::INVAL) => Err(refused(errno)),
                    _ => Ok(()),
                }
            }
            // Without a TX ring the value is invalid; a kernel without the option rejects that.
            Self::TxBudget => match sys::set_tx_budget(socket()?.as_fd(), 32) {
                Err(errno @ Errno::NOPROTOOPT) => Err(refused(errno)),
                _ => Ok(()),
            },
        }
    }

    /// The kernel, or a sandbox, answered no question about the feature.
    fn unanswered(self, errno: Errno, part: Part, needed: &[Capability]) -> MissingFeature {
        let code = errno_text(errno);
        let refusal = privilege::refusal(errno.raw_os_error(), part, needed);
        let is_unknown = matches!(
            errno,
            Errno::AFNOSUPPORT | Errno::SOCKTNOSUPPORT | Errno::PROTONOSUPPORT | Errno::NOSYS
        );
        MissingFeature {
            feature: self,
            unprobed: refusal.is_some() || !is_unknown,
            why: refusal.map_or_else(|| code.clone(), |why| format!("{code}; {why}")),
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
            Self::RxHints => "RX hints",
            Self::Fragments => "packets of several chunks",
            Self::TxMetadata => "TX metadata",
            Self::TxBudget => "TX budget",
        })
    }
}
