//! AF_XDP sockets whose frames have one owner, checked by the compiler.
//!
//! AF_XDP gives a program the packets of one queue of a network device through memory that it
//! shares with the kernel, past the network stack. The kernel checks nothing of who uses that
//! memory when; here the types do:
//!
//! - A [`Umem`] is the memory, cut into chunks of one packet each.
//! - A [`Socket`] is bound to a queue of a device. [`Socket::recv`] lends an [`RxBatch`] of the
//!   packets that have arrived; each can be read, rewritten, sent on or kept, and what nobody
//!   takes is used for receiving again.
//! - A [`Frame`] is a packet that the program owns: one for each chunk, neither copied nor
//!   cloned. Sending moves it away; dropping it frees the chunk.
//!
//! Sending a frame twice, touching it after it was sent, or letting it outlive its memory does
//! not compile. Nothing on the way of a packet needs `unsafe`, allocates, takes a lock, or makes
//! a system call other than to wake the kernel.
//!
//! # Example
//!
//! A socket that answers every packet by sending it back where it came from. It needs root (or
//! `CAP_NET_RAW`, `CAP_NET_ADMIN` and `CAP_BPF`), and says so if it is not.
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
//!                 // A full ring hands the packet back; dropping it recycles it.
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
//! # Modes
//!
//! [`Mode::Auto`] asks for zero-copy, then for native XDP with a copy, then for generic XDP, and
//! [`Socket::mode`] tells what the kernel gave, read back from it; [`Socket::refusals`] tells
//! why nothing better. Any other [`Mode`] is obtained or is an error.
//!
//! # The XDP program
//!
//! The socket brings a program of six instructions, attached by a `bpf_link`: it is gone when
//! the socket is, also after `kill -9`. [`SocketBuilder::program`] shares it between the queues
//! of a device, and [`SocketBuilder::map`] takes the XSKMAP of a program of yours instead.
//!
//! # Threads
//!
//! Rings have one producer and one consumer, so a socket can move between threads but not be
//! used by two at a time. Several sockets on one [`Umem`], each in its own thread, exchange
//! frames freely. `std::thread::scope`, or a `Umem` that is leaked (`Box::leak`), gives the
//! threads a `Umem` that lives long enough.
//!
//! # Limits
//!
//! One buffer a packet, so an MTU of at most 3822 bytes (chunks of 4096); aligned chunks; no
//! metadata; no busy polling. Linux 5.9 or later; [`Feature`] names what later kernels add.

// # Layers
//
// Highest first; a file imports from its own layer and from those below it, never in a circle.
// `tests/layers.rs` reads this list and every import.
//
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
