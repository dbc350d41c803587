//! AF_XDP sockets for Rust in which each packet buffer has one owner, checked by the compiler.
//!
//! AF_XDP delivers the packets of one queue of a network device to a program through memory shared
//! with the kernel, past the network stack. The kernel does not check the ownership of that memory;
//! here the types do:
//!
//! - A [`Umem`] is the memory, divided into chunks of one packet each.
//! - A [`Socket`] is bound to a queue of a device. [`Socket::recv`] lends an [`RxBatch`] of received
//!   packets. A [`Packet`] can be read, rewritten, sent or kept; the chunks of all others return to
//!   the FILL ring when the batch is dropped.
//! - A [`Frame`] is a packet that the program owns. It is move-only: sending consumes it, dropping
//!   it frees its chunk.
//!
//! Sending a frame twice, using it after sending, or letting it outlive its memory does not
//! compile. The data path has no `unsafe` in user code, no allocation, no lock, and no system call
//! except to wake the kernel.
//!
//! The [`guide`] explains how to choose the [mode](guide::modes), the [way of
//! waiting](guide::waiting) and the [sizes](guide::sizes).
//!
//! # Example
//!
//! A socket that returns every packet to its sender. It needs root, or `CAP_NET_RAW`,
//! `CAP_NET_ADMIN` and `CAP_BPF`.
//!
//! ```
//! use std::time::Duration;
//! use xsk::{Socket, Umem};
//!
//! fn echo(device: &str, packets: u64) -> xsk::Result<()> {
//!     let umem = Umem::builder().chunk_size(4096).build()?;
//!     let mut socket = Socket::builder(&umem, device, 0).open()?;
//!     println!("{device}: mode {}", socket.mode());
//!
//!     let mut seen = 0;
//!     while seen < packets {
//!         socket.wait(Duration::from_millis(100))?;
//!         let mut batch = socket.recv(64);
//!         while let Some(mut packet) = batch.next_packet() {
//!             seen += 1;
//!             if let Some((to, from)) = packet.get_mut(..12).map(|macs| macs.split_at_mut(6)) {
//!                 to.swap_with_slice(from);
//!                 // When the TX ring is full, the packet is dropped and its chunk recycled.
//!                 let _ = packet.send();
//!             }
//!         }
//!         drop(batch);
//!         socket.flush()?;
//!     }
//!     Ok(())
//! }
//!
//! if let Err(error) = echo("lo", 0) {
//!     println!("{error}");
//! }
//! ```
//!
//! # The XDP program
//!
//! A socket loads and attaches an XDP program of six instructions. A `bpf_link` holds it, so it is
//! detached with the socket, also after `kill -9`. [`SocketBuilder::program`] shares it between the
//! queues of a device, and [`SocketBuilder::map`] uses the XSKMAP of another program instead.
//!
//! # Threads
//!
//! A ring has one producer and one consumer, so a socket can move between threads but not be used
//! by two at a time. Several sockets on one [`Umem`], each in its own thread, exchange frames
//! freely. With `std::thread::scope`, or a leaked `Umem` (`Box::leak`), the memory lives long
//! enough.
//!
//! # Not supported
//!
//! Packets of several buffers (so an MTU of at most 3822 bytes), unaligned chunks, TX and RX
//! metadata, busy polling. Linux 5.9 is required; [`Feature`] probes for later additions.

// # Layers
//
// Highest first; a file imports from its own layer and from those below it, never in a circle.
// `tests/layers.rs` reads this list and every import.
//
//     guide                      documentation alone
//     testing                    a kernel in memory, raw descriptors, other XDP programs
//     builder                    settings of a socket, opening and binding it
//     socket                     receiving, sending, waiting, closing
//     batch                      received packets, borrowed from a socket
//     umem_rings                 FILL, COMPLETION and the chunks lent through them
//     frame, send_error          packets that the program owns
//     umem                       memory shared with the kernel, and the owner of each chunk
//     program                    the XDP program that redirects packets to sockets
//     device                     network devices and the programs attached to them
//     ring, wait, feature        the ring protocol; pacing; probes of the kernel
//     sys                        system calls and mappings
//     error                      the error type

#[cfg(not(loom))]
mod batch;
#[cfg(not(loom))]
mod builder;
#[cfg(not(loom))]
mod device;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod feature;
#[cfg(not(loom))]
mod frame;
#[cfg(not(loom))]
pub mod guide;
#[cfg(not(loom))]
mod program;
mod ring;
#[cfg(not(loom))]
mod send_error;
#[cfg(not(loom))]
mod socket;
#[cfg(not(loom))]
mod sys;
#[cfg(all(any(test, feature = "testing"), not(loom)))]
#[doc(hidden)]
pub mod testing;
#[cfg(not(loom))]
mod umem;
#[cfg(not(loom))]
mod umem_rings;
#[cfg(not(loom))]
mod wait;

#[cfg(not(loom))]
pub use crate::{
    batch::{Packet, RxBatch},
    builder::SocketBuilder,
    device::{AttachMode, AttachedProgram, Device},
    error::{Error, ErrorKind, Result},
    feature::{Feature, MissingFeature},
    frame::Frame,
    program::Program,
    send_error::{SendError, SendErrorKind},
    socket::{Mode, ModeObtained, Refusal, Sibling, SiblingId, Socket, Statistics},
    umem::{Accounting, Pages, Umem, UmemBuilder, XDP_PACKET_HEADROOM},
    wait::Wait,
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
