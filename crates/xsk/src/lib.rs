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
//! A [`Port`] is a device's queues together: a socket on each, and a worker thread for each.
//!
//! The [`guide`] explains how to choose the [mode](guide::modes), the [way of
//! waiting](guide::waiting), the [way of moving packets](guide::bursts), the [sizes](guide::sizes), the
//! [packets](guide::packets) and their [metadata](guide::metadata), how to use [all queues](guide::queues) of a device, and how to outlive
//! its [removal and return](guide::life_cycle).
//!
//! # Before the first packet
//!
//! - **The host loses what the socket takes.** AF_XDP taps nothing: without a [`Filter`] the queue's ARP, ping and SSH stop,
//!   and no tcpdump or firewall of the host sees a packet that a socket took or sent.
//! - **Nothing is verified.** XDP comes before the network stack: a packet may be damaged, and one of a local sender (veth, tap,
//!   virtio) has a *partial* checksum, which the receiver of an answer takes for a wrong one. [`checksum`] checks, completes
//!   and writes sums; [the guide](guide::packets#before-the-network-stack) lists what else the stack does.
//! - **Waiting delays.** [`Socket::wait`] gathers packets for up to 200 µs by default, for less CPU time; where latency counts,
//!   open with [`Wait::Poll`] or [`Wait::Spin`] ([`SocketBuilder::wait`]).
//! - **One socket has one queue** of several, and the device selects the queue of a packet: a [`Port`] has them all.
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
//! A socket loads and attaches an XDP program of six instructions, which redirects all packets of the
//! queue; with a [`Filter`] only those that match, and the others reach the network stack. A
//! `bpf_link` holds it, so it is detached with the socket, also after `kill -9`.
//! The sockets of a [`Port`] share it, as do others with [`SocketBuilder::program`]. [The
//! guide](guide::packets) has the other programs: the caller's own, and those beside others.
//!
//! # Threads
//!
//! A ring has one producer and one consumer, so a socket can move between threads but not be used
//! by two at a time; [`Socket::split`] makes two halves for two threads. Several sockets on one
//! [`Umem`], each in its own thread, exchange frames freely. Sockets and frames keep the memory
//! alive, so they can be moved to spawned threads.
//!
//! # Processes
//!
//! [`Socket::into_parts`] and [`Socket::from_parts`] move a socket to another process, which needs no
//! privilege; see [the guide](guide::processes).
//!
//! # Kernels
//!
//! Linux 5.9 is required; [`Feature`] probes for later additions.

// # Layers
//
// Highest first; a file imports from its own layer and from those below it, never in a circle.
// The test `layers` of the crate testkit reads this list and every import.
//
//     guide                      documentation alone
//     compat                     pieces for the libraries for C
//     testing                    a kernel in memory, raw descriptors, other XDP programs
//     port                       the queues of a device together, and a worker for each
//     broker                     a socket of a privileged daemon
//     handover, async_socket     a socket in another process; in tokio's reactor
//     builder                    settings of a socket, opening and binding it
//     socket                     receiving, sending, waiting, closing
//     batch                      received packets, borrowed from a socket
//     umem_rings                 FILL, COMPLETION and the chunks lent through them
//     fragments                  packets of several chunks that the program owns
//     owned_packet               received packets that the program owns
//     frame, send_error          packets that the program owns
//     tx_metadata                requests for a packet that is sent, and their answers
//     umem                       memory shared with the kernel, and the owner of each chunk
//     program                    XDP programs that redirect packets to sockets, and filters
//     device                     network devices and the programs attached to them
//     ring, pool, wait, feature  the ring protocol; free chunks; pacing; probes of the kernel
//     hints                      what the driver knows of a received packet
//     checksum                   of IPv4, UDP, TCP and ICMP
//     sys                        system calls and mappings, and the seam for a model of the kernel
//     error, delay, counter      the error type; points at which a test can delay a thread; counters

// The sizes of UMEMs and rings, and offsets into them, are computed in `usize`.
#[cfg(not(target_pointer_width = "64"))]
compile_error!("xsk needs 64-bit addresses: a UMEM can be larger than 4 GiB");

#[cfg(all(feature = "tokio", not(loom)))]
mod async_socket;
#[cfg(not(loom))]
mod batch;
#[cfg(not(loom))]
pub mod broker;
#[cfg(not(loom))]
mod builder;
#[cfg(not(loom))]
pub mod checksum;
#[cfg(all(xsk_internals, not(loom)))]
pub mod compat;
mod counter;
mod delay;
#[cfg(not(loom))]
mod device;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod feature;
#[cfg(not(loom))]
mod fragments;
#[cfg(not(loom))]
mod frame;
#[cfg(not(loom))]
pub mod guide;
#[cfg(not(loom))]
mod handover;
#[cfg(not(loom))]
mod hints;
#[cfg(not(loom))]
mod owned_packet;
mod pool;
#[cfg(not(loom))]
mod port;
#[cfg(not(loom))]
mod program;
mod ring;
#[cfg(not(loom))]
mod send_error;
#[cfg(not(loom))]
mod socket;
#[cfg(not(loom))]
mod sys;
#[cfg(all(any(test, xsk_internals), not(loom)))]
pub mod testing;
#[cfg(not(loom))]
mod tx_metadata;
#[cfg(not(loom))]
mod umem;
#[cfg(not(loom))]
mod umem_rings;
#[cfg(not(loom))]
mod wait;

#[cfg(all(feature = "tokio", not(loom)))]
pub use crate::async_socket::AsyncSocket;
#[cfg(not(loom))]
pub use crate::{
    batch::{Packet, RxBatch},
    builder::SocketBuilder,
    device::{
        AttachMode, AttachedProgram, DeferredInterrupts, Device, DeviceEvent, DeviceWatch,
        QueueCounts, Silence,
    },
    error::{Error, ErrorKind, Result},
    feature::{Feature, MissingFeature},
    fragments::Fragments,
    frame::Frame,
    handover::{HandOverError, Parts},
    hints::{RxHash, RxHints, VlanTag},
    owned_packet::OwnedPacket,
    port::{Port, PortBuilder, StopFlag, WorkerError, WorkerErrors},
    program::{Filter, Program, Rule},
    send_error::{SendError, SendErrorKind},
    socket::{
        Done, Fault, Mode, ModeObtained, Received, Refusal, RxHalf, Sibling, SiblingId, Socket,
        Statistics, StatisticsHandle, Transmit, TxBatch, TxHalf, TxPacket, TxPackets,
    },
    tx_metadata::{TxRequest, TxSupport, TxTimestamp},
    umem::{
        Accounting, MAX_FRAGMENTS, Pages, TX_METADATA_LEN, Umem, UmemBuilder, XDP_PACKET_HEADROOM,
    },
    wait::{Interest, Ready, Wait},
};

/// Which queue of a device receives a packet: the types of [`PortBuilder::steer`], of [`hostnet`].
#[cfg(not(loom))]
pub mod steering {
    pub use hostnet::ethtool::{Addresses, FlowRule, Masked, Steering, Transport};
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
