//! Metadata: requests with packets that are sent, and what the driver knows of received ones.
//!
//! # Requests
//!
//! A UMEM built with [`UmemBuilder::tx_metadata`] has room for 24 bytes in front of each packet
//! (`struct xsk_tx_metadata`, Linux 6.11 with `XDP_UMEM_TX_METADATA_LEN`). [`Socket::send_with`],
//! [`Packet::send_with`] and [`RxBatch::send_with`] write a [`TxRequest`] there:
//!
//! | Request | Copy mode | Zero-copy mode |
//! |---|---|---|
//! | [checksum](crate::TxRequest::checksum) | the kernel sums, or the device that takes the packet from the stack | the card, if it can |
//! | [timestamp](crate::TxRequest::timestamp) | `CLOCK_TAI`, when the kernel was done with the packet | the card's clock, if it has one |
//! | [launch time](crate::TxRequest::launch_time) | refused, unless the card has it | the card (Linux 6.15), if it can |
//!
//! [`Socket::tx_support`] tells which a socket has; others are refused, before the kernel sees the packet:
//! it would stop at one that it does not know, and send none behind it. Checksums outside the packet are
//! refused for the same reason.
//!
//! A packet of several chunks has its request by [`Fragments::set_request`](crate::Fragments::set_request); the
//! metadata is in front of the first chunk.
//!
//! A timestamp is there when the packet's chunk has come back: [`Socket::take_tx_timestamp`] returns it with
//! the number that the request had.
//!
//! ```no_run
//! use xsk::{Socket, TxRequest, Umem};
//!
//! # fn main() -> xsk::Result<()> {
//! let umem = Umem::builder().tx_metadata(true).build()?;
//! let mut socket = Socket::builder(&umem, "eth0", 0).open()?;
//! let mut frame = socket.alloc().expect("a free chunk");
//! # let (udp, len) = ([0; 60], 60);
//! frame.fill_with(&udp[..len])?; // its checksum has the sum of the pseudo-header
//! let request = TxRequest::new().checksum(34, 6).timestamp(1);
//! if let Err(error) = socket.send_with(frame, &request) {
//!     println!("{error}");
//! }
//! socket.flush()?;
//! # Ok(())
//! # }
//! ```
//!
//! On a veth the kernel leaves the sum to whoever takes the packet from the stack, as for its own packets;
//! `ethtool -K DEVICE tx off` makes it sum before.
//!
//! The setting costs no instruction for a packet where it is off. Where it is on, a frame has 24 bytes less, each packet is read
//! once more when it is published (drivers before Linux 6.18.52 take what is in front of any zero-copy
//! packet for a request, so the library clears it), and while timestamps are on their way, chunks come back
//! one by one. A checksum costs some 130 instructions a packet, a timestamp 350 more, and reading hints 40.
//!
//! # Hints
//!
//! With [`SocketBuilder::rx_hints`] the built-in XDP program asks the driver (Linux 6.3, VLAN tags 6.8), and
//! [`Packet::hints`] returns the answers, each if the driver has it for that packet: when it was received,
//! the hash of its flow, and the VLAN tag that the card has taken out of it, without which tagged packets
//! cannot be told from others. `ynl --family netdev --do dev-get` shows what a driver has as
//! `xdp-rx-metadata-features`: a veth all three, for packets from the network stack of the other end. Of these each has
//! a hash, one with a tag its tag, and one that a card has received before its time there: what a program of this
//! host sends has none.
//!
//! It needs native XDP; with generic XDP, with a driver without hints, or on a kernel without BTF, the socket
//! opens without, and [`Socket::refusals`] says why. A program is bound to its device then. The hints are in
//! the last 24 bytes in front of the packet, so [`Packet::adjust_head`] by more than the headroom and 232
//! bytes overwrites them. Packets of several chunks ([`Fragments::hints`]) and those in the closures of
//! [`Socket::receive_each`] have them, too.
//!
//! A [`Frame`] has none. A program that holds packets, as one that writes a capture and needs their timestamps, holds
//! [`OwnedPacket`]s: a batch is an iterator of them, and [`Packet::keep_with_hints`] and [`Received::keep_with_hints`] keep
//! one. The example `pcap` is a complete program.
//!
//! [`Fragments::hints`]: crate::Fragments::hints
//! [`Frame`]: crate::Frame
//! [`OwnedPacket`]: crate::OwnedPacket
//! [`Packet::keep_with_hints`]: crate::Packet::keep_with_hints
//! [`Received::keep_with_hints`]: crate::Received::keep_with_hints
//! [`Packet::adjust_head`]: crate::Packet::adjust_head
//! [`Packet::hints`]: crate::Packet::hints
//! [`Packet::send_with`]: crate::Packet::send_with
//! [`RxBatch::send_with`]: crate::RxBatch::send_with
//! [`Socket::receive_each`]: crate::Socket::receive_each
//! [`Socket::refusals`]: crate::Socket::refusals
//! [`Socket::send_with`]: crate::Socket::send_with
//! [`Socket::take_tx_timestamp`]: crate::Socket::take_tx_timestamp
//! [`Socket::tx_support`]: crate::Socket::tx_support
//! [`SocketBuilder::rx_hints`]: crate::SocketBuilder::rx_hints
//! [`TxRequest`]: crate::TxRequest
//! [`UmemBuilder::tx_metadata`]: crate::UmemBuilder::tx_metadata
