//! Packets of several chunks: jumbo frames, and packets gathered from parts.
//!
//! A packet that is longer than a chunk takes several, if the UMEM is built with
//! [`UmemBuilder::fragments`]; otherwise the kernel drops it, and opening a socket on a device whose MTU
//! allows such packets is an error. It is a setting of the UMEM, since the kernel has it for all sockets
//! of one (`XDP_USE_SG`, Linux 6.6). The built-in XDP program then takes such packets as well
//! (`BPF_F_XDP_HAS_FRAGS`); a program of your own must be loaded so, in libbpf's terms from a section
//! `xdp.frags`.
//!
//! # Receiving
//!
//! [`RxBatch::next_fragments`] returns each packet as [`Fragments`]: the frames that its bytes are in.
//! They are owned, so they can be held, sent by any socket on the UMEM, or dropped.
//!
//! ```no_run
//! use xsk::{Socket, Umem};
//!
//! # fn main() -> xsk::Result<()> {
//! let umem = Umem::builder().fragments(true).build()?;
//! let mut socket = Socket::builder(&umem, "eth0", 0).open()?;
//! let mut whole = [0; 9018];
//! let mut batch = socket.recv(64);
//! while let Some(packet) = batch.next_fragments() {
//!     // The first frame has the headers.
//!     let Some(headers) = packet.frames()[0].get(..54) else { continue };
//!     println!("{} bytes from {:02x?}", packet.len(), &headers[6..12]);
//!     // Or all of it in one piece.
//!     let len = packet.copy_to(&mut whole);
//!     assert_eq!(len, packet.len());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The ways that read packets of one chunk, [`RxBatch::next_packet`] and [`Socket::receive_each`] among them, drop
//! the others and count them in [`Statistics::fragmented`]. Each way drops a packet whole if one of its descriptors is invalid.
//!
//! # Sending
//!
//! [`Socket::alloc_fragments`] allocates the frames for a length, and [`Socket::send_fragments`] sends
//! them. A packet can also be gathered without copying: headers in one frame, and behind it a payload that
//! was received or written before.
//!
//! ```no_run
//! # use xsk::{Fragments, Socket, Umem};
//! # fn send(socket: &mut Socket, headers: &[u8], payload: xsk::Frame) -> xsk::Result<()> {
//! let mut first = socket.alloc().expect("a free chunk");
//! first.fill_with(headers)?;
//! let mut packet = Fragments::from(first);
//! packet.push(payload).expect("two of 18");
//! socket.send_fragments(packet).map_err(|unsent| unsent.kind).expect("room in TX");
//! socket.flush()
//! # }
//! ```
//!
//! # Limits
//!
//! | | Most chunks of a packet |
//! |---|---|
//! | receiving | [`MAX_FRAGMENTS`], 18; a packet of more is dropped, and counted in [`Statistics::fragmented`] |
//! | sending in copy mode | 18: those of a `struct sk_buff`, unless the kernel was built for more (`CONFIG_MAX_SKB_FRAGS`) |
//! | sending in zero-copy mode | the card's segments, which the kernel shows as `xdp-zc-max-segs`; with 1 the mode is refused |
//!
//! [`Umem::max_rx_packet`] is the longest packet. A chunk holds 256 bytes and the headroom less than its
//! size when it is received into, so a frame of 9018 bytes takes 6 chunks of 2048 bytes or 3 of 4096. The packets of up
//! to 64 KiB that segmentation offload makes, which virtual devices pass on unsegmented, need chunks of 4096 bytes:
//! 18 of 2048 hold 32,256.
//!
//! [`RxBatch::next_fragments`]: crate::RxBatch::next_fragments
//! [`RxBatch::next_packet`]: crate::RxBatch::next_packet
//! [`Socket::receive_each`]: crate::Socket::receive_each
//! [`Socket::alloc_fragments`]: crate::Socket::alloc_fragments
//! [`Socket::send_fragments`]: crate::Socket::send_fragments
//! [`Statistics::fragmented`]: crate::Statistics::fragmented
//! [`Umem::max_rx_packet`]: crate::Umem::max_rx_packet
//! [`UmemBuilder::fragments`]: crate::UmemBuilder::fragments
//! [`Fragments`]: crate::Fragments
//! [`MAX_FRAGMENTS`]: crate::MAX_FRAGMENTS
