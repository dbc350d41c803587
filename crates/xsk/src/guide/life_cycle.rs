//! Devices that are set down, change, leave and return, while a socket is open.
//!
//! # What a socket survives
//!
//! | Change of the device | The socket | To do |
//! |---|---|---|
//! | set down (`IFF_UP`) | stays: sending fails with [`ErrorKind::DeviceDown`], nothing is received | nothing; it goes on when the device is up |
//! | carrier or peer lost | stays: packets are dropped, or wait in TX in zero-copy mode | nothing |
//! | reset by the driver (`ethtool -G`, some XDP programs) | stays | nothing |
//! | another MTU | stays; packets that do not fit a chunk are dropped | a UMEM with larger chunks, if they are to be received |
//! | another name (`ip link set DEVICE name`) | stays, as does a watch; a [`Device`](crate::Device) and a builder have the name from before | a builder with the new name, for when a new socket is due, and [`Device::lookup`](crate::Device::lookup) again |
//! | other numbers of queues (`ethtool -L`) | stays. The kernel refuses to remove its queue | open sockets on new queues |
//! | removed | is dead: sending fails with [`ErrorKind::DeviceMissing`] | a new socket when the device is there again |
//! | moved to another network namespace | is dead, also when the device returns | the same |
//! | the XDP program is detached or replaced (`bpftool link detach`) | lives, and gets nothing | a new socket, which attaches its program |
//!
//! Neither poll(2) nor a receiving socket reports any of it: both wait for ever. So a program that is to
//! survive them has a [`DeviceWatch`], and calls [`SocketBuilder::rebind`] after each event, and when nothing
//! was received for a while: a socket that works stays, a dead one is closed, and its successor has the same settings and the same [`Umem`].
//!
//! # The loop
//!
//! The watch is made before the socket, so that no change is missed in between:
//!
//! ```no_run
//! use std::time::Duration;
//! use xsk::{DeviceWatch, Socket, Umem};
//!
//! # fn main() -> xsk::Result<()> {
//! let umem = Umem::builder().build()?;
//! let builder = Socket::builder(&umem, "eth0", 0);
//! let mut watch = DeviceWatch::new("eth0")?;
//! let (mut socket, mut stale) = (None, true);
//! loop {
//!     while let Some(event) = watch.next()? {
//!         println!("eth0: {event}");
//!         stale = true;
//!     }
//!     if stale {
//!         match builder.rebind(&mut socket) {
//!             Err(error) if error.kind().may_pass() => println!("{error}"),
//!             outcome => drop(outcome?),
//!         }
//!     }
//!     let Some(socket) = &mut socket else {
//!         std::thread::sleep(Duration::from_millis(10));
//!         continue;
//!     };
//!     // Silence is a reason to look, too.
//!     stale = !socket.wait(Duration::from_millis(100))?;
//!     let mut batch = socket.recv(64);
//!     while let Some(packet) = batch.next_packet() {
//!         println!("{} bytes", packet.len());
//!     }
//! }
//! # }
//! ```
//!
//! The example `rebind` does so in an event loop, with the descriptor
//! of the watch. [`Socket::fault`] has the reason alone, for a program that opens its sockets in another way.
//!
//! # No chunk is lost
//!
//! Closing the dead socket returns all its chunks to the UMEM: those in its rings, and those of packets
//! that were not transmitted. The kernel unbinds the socket itself when the device leaves, so in copy mode
//! they are back at once, unless the socket could not be taken out of an XSKMAP, as one that is frozen.
//! Then, and in zero-copy mode, they are [retired](crate::Accounting::retired) until the successor is
//! opened. [`Frame`](crate::Frame)s that the program holds stay valid, and can be sent by the successor.
//! Packets in the RX ring of the dead socket can still be [received](crate::Socket::recv) before.
//!
//! # Several queues
//!
//! The sockets of a device share a program, which keeps its device's link until the last of them is closed.
//! So close all of them first, rebind one, and give its [program](crate::Socket::program) to the builders of the
//! others ([`SocketBuilder::program`]). [`PortBuilder::rebind`](crate::PortBuilder::rebind) does that for a
//! [`Port`](crate::Port), also when the device has more or fewer queues than before. The halves of a
//! [split](crate::Socket::split) socket are both dropped first; then `rebind` opens a new socket.
//!
//! # Limits
//!
//! - Changes that a `bpf_link` makes are found by a look at the device four times a second: the kernel
//!   notifies nobody of them. A program that comes and goes between two looks is no event, but a
//!   [fault](crate::Socket::fault).
//! - Changes of queues need Linux 5.6 with `CONFIG_ETHTOOL_NETLINK`.
//! - When more notifications wait than there is room for, [`DeviceEvent::Overflow`] says so, and the
//!   differences follow.
//! - The watch belongs to the network namespace of the thread that made it, and a socket to that of the
//!   thread that opens it.
//!
//! [`DeviceEvent::Overflow`]: crate::DeviceEvent::Overflow
//! [`DeviceWatch`]: crate::DeviceWatch
//! [`ErrorKind::DeviceDown`]: crate::ErrorKind::DeviceDown
//! [`ErrorKind::DeviceMissing`]: crate::ErrorKind::DeviceMissing
//! [`Socket`]: crate::Socket
//! [`Socket::fault`]: crate::Socket::fault
//! [`SocketBuilder::program`]: crate::SocketBuilder::program
//! [`SocketBuilder::rebind`]: crate::SocketBuilder::rebind
//! [`Umem`]: crate::Umem
