//! The error of a packet that was not sent.

use std::fmt;

/// Why a frame could not be put into a TX ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendErrorKind {
    /// The ring is full: flush, and try again when the kernel has sent some.
    Full,
    /// The frame is of another UMEM than the socket.
    Foreign,
    /// The packet has no bytes; the kernel sends none of those.
    Empty,
    /// The socket was opened without a TX ring.
    NoRing,
}

impl fmt::Display for SendErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the TX ring is full: flush the socket and try again",
            Self::Foreign => "the frame is of another UMEM: copy it into a frame of this one",
            Self::Empty => "the packet has no bytes: write it before sending it",
            Self::NoRing => "the socket has no TX ring: open it with `tx_ring` above zero",
        })
    }
}

/// A frame or packet that was not sent, handed back with the reason.
#[derive(Debug)]
pub struct SendError<T> {
    /// What was to be sent, unchanged.
    pub packet: T,
    /// Why it was not.
    pub kind: SendErrorKind,
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not sent: {}", self.kind)
    }
}

impl<T: fmt::Debug> std::error::Error for SendError<T> {}
