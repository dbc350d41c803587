//! The XDP mode of a socket: asked for, obtained, and refused on the way.

use crate::error::Error;
use crate::feature::MissingFeature;
use std::fmt;

/// The mode asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Mode {
    /// Zero-copy when the driver can, else native XDP with a copy, else generic XDP.
    #[default]
    Auto,
    /// Generic XDP with a copy. Any device.
    Skb,
    /// Native XDP with a copy. (A socket that only sends has no program, and one copy mode.)
    Driver,
    /// Native XDP, packets put straight into the UMEM by the device.
    ZeroCopy,
}

/// The mode that a socket got, as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModeObtained {
    /// Generic XDP with a copy.
    Skb,
    /// Native XDP with a copy.
    Driver,
    /// Native XDP without a copy.
    ZeroCopy,
    /// A copy, and no XDP program on the device: the socket sends only, until there is one.
    Copy,
}

impl fmt::Display for ModeObtained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Skb => "skb",
            Self::Driver => "drv",
            Self::ZeroCopy => "zc",
            Self::Copy => "copy",
        })
    }
}

/// A better mode that was tried and refused, or a setting that the kernel could not take.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Refusal {
    /// The mode, and the error with its errno and reason.
    Mode(Mode, Error),
    /// A feature that was to be used.
    Feature(MissingFeature),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mode(mode, error) => write!(f, "{mode:?} refused: {error}"),
            Self::Feature(missing) => missing.fmt(f),
        }
    }
}
