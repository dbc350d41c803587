//! Zero-copy, native or generic XDP.
//!
//! | [`Mode`] | `ip link` | XDP program runs | Copies | Devices |
//! |---|---|---|---|---|
//! | [`ZeroCopy`] | `xdp` | in the driver | none | drivers with `XDP_SETUP_XSK_POOL` |
//! | [`Driver`] | `xdp` | in the driver | one a packet | drivers with native XDP: most network cards, virtio, veth |
//! | [`Skb`] | `xdpgeneric` | behind the driver, on socket buffers | one a packet | all |
//! | [`Auto`] | | best of the three, in this order | | all |
//!
//! Choose [`Auto`] unless the program is useless in a slower mode. It falls back only on errors
//! about the mode; a missing capability or a busy queue is an error in any mode.
//! [`Socket::mode`] is the mode read back from the kernel, and [`Socket::refusals`] lists the
//! modes refused on the way, each with its error.
//!
//! ```no_run
//! use xsk::{Mode, ModeObtained, Socket, Umem};
//!
//! # fn main() -> xsk::Result<()> {
//! let umem = Umem::builder().build()?;
//! let socket = Socket::builder(&umem, "eth0", 0).mode(Mode::Auto).open()?;
//! if socket.mode() != ModeObtained::ZeroCopy {
//!     for refusal in socket.refusals() {
//!         eprintln!("{refusal}");
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Zero-copy
//!
//! The device writes received packets into the UMEM. The library is tested with it on emulated cards (igb,
//! virtio-net) with Linux's drivers, and not on hardware. Two consequences of the mode:
//!
//! - All packets of the queue arrive in UMEM chunks, also those that the XDP program passes to the
//!   network stack; the kernel copies the latter.
//! - After a socket is closed, the device may still write to chunks until the driver has drained its
//!   rings. Those chunks are not used again: see [`Accounting::retired`]. A program that opens
//!   and closes zero-copy sockets repeatedly uses a new [`Umem`] for each.
//!
//! # Native XDP
//!
//! Some drivers limit the MTU of native XDP, and a veth device needs at least as many RX queues as its
//! peer has TX queues. The errors [`ErrorKind::MtuTooLarge`] and [`ErrorKind::ModeRefused`] name the command
//! that removes the obstacle.
//!
//! A bond, and each other device that receives through lower ones, runs native XDP on those, whose packets reach no
//! socket on itself: [`Auto`] takes generic XDP there, and [`Driver`] is refused with the devices to open instead.
//!
//! # Generic XDP
//!
//! Virtual devices deliver packets longer than their MTU here, which a sender leaves for others to segment (TSO, GSO) or
//! a device below has merged (GRO). They need a UMEM with [fragments](crate::guide::fragments) and chunks of 4096 bytes;
//! [`Socket::refusals`] says so ([`Refusal::Umem`](crate::Refusal::Umem)) if [`Auto`] ends here.
//!
//! # Sockets that share a UMEM
//!
//! The first socket on a [`Umem`] registers it with the kernel and thereby decides between copy and
//! zero-copy, and whether need-wakeup is on. Later sockets on it have the same settings
//! (`XDP_SHARED_UMEM`); asking for the other kind of mode is [`ErrorKind::ModeRefused`].
//!
//! [`Mode`]: crate::Mode
//! [`Auto`]: crate::Mode::Auto
//! [`Skb`]: crate::Mode::Skb
//! [`Driver`]: crate::Mode::Driver
//! [`ZeroCopy`]: crate::Mode::ZeroCopy
//! [`Socket::mode`]: crate::Socket::mode
//! [`Socket::refusals`]: crate::Socket::refusals
//! [`Umem`]: crate::Umem
//! [`Accounting::retired`]: crate::Accounting::retired
//! [`ErrorKind::MtuTooLarge`]: crate::ErrorKind::MtuTooLarge
//! [`ErrorKind::ModeRefused`]: crate::ErrorKind::ModeRefused
