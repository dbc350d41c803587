//! The error of a packet that was not sent.

use std::fmt;

/// The reason of a [`SendError`].
///
/// ```
/// use xsk::SendErrorKind;
///
/// assert!(SendErrorKind::Full.to_string().contains("flush the socket"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendErrorKind {
    /// The TX ring is full: flush, and try again when the kernel has sent some packets.
    Full,
    /// The packet is in another UMEM than the socket.
    Foreign,
    /// The packet is empty; the kernel rejects such descriptors.
    Empty,
    /// The socket was opened without a TX ring.
    NoRing,
    /// The packet has several chunks, and the UMEM is not for such packets.
    Fragmented,
    /// The packet has more chunks than the TX ring has slots.
    TooLong,
    /// The packet has a request, and the UMEM has no room for it in front of the packet.
    NoMetadata,
    /// The packet has fewer bytes in front of it than its request takes.
    NoHeadroom,
    /// The socket's device or the kernel does not do what the request asks for.
    Unsupported,
    /// The request has a checksum stored outside the packet.
    Checksum,
}

impl fmt::Display for SendErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the TX ring is full: flush the socket and try again",
            Self::Foreign => "the packet is in another UMEM: copy it into a frame of this one",
            Self::Empty => "the packet is empty: write it before sending it",
            Self::Fragmented => {
                "the packet has several chunks: build the UMEM with `fragments`, or make it linear"
            }
            Self::TooLong => {
                "the packet has more chunks than the TX ring has slots: open the socket with a larger `tx_ring`"
            }
            Self::NoMetadata => {
                "the UMEM has no room for requests in front of packets: build it with `tx_metadata`"
            }
            Self::NoHeadroom => {
                "the request takes 24 bytes in front of the packet, which are not there: copy the packet into a new frame"
            }
            Self::Unsupported => {
                "the device does not do what the request asks for: see the socket's `tx_support`"
            }
            Self::Checksum => {
                "the request's checksum is outside the packet: `checksum(start, offset)` stores two bytes at their sum"
            }
            Self::NoRing => "the socket has no TX ring: open it with `tx_ring` above zero",
        })
    }
}

/// A [`Frame`](crate::Frame), [`Packet`](crate::Packet) or [`Fragments`](crate::Fragments) not sent, with
/// the reason.
///
/// ```no_run
/// use xsk::{SendError, SendErrorKind, Socket, Umem};
///
/// # fn main() -> xsk::Result<()> {
/// let umem = Umem::builder().build()?;
/// let mut socket = Socket::builder(&umem, "eth0", 0).rx_ring(0).open()?;
/// if let Some(mut frame) = socket.alloc() {
///     frame.fill_with(&[0; 64])?;
///     while let Err(SendError { packet, kind: SendErrorKind::Full }) = socket.send(frame) {
///         socket.flush()?;
///         frame = packet;
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SendError<T> {
    /// The packet, unchanged.
    pub packet: T,
    /// The reason.
    pub kind: SendErrorKind,
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not sent: {}", self.kind)
    }
}

impl<T: fmt::Debug> std::error::Error for SendError<T> {}
