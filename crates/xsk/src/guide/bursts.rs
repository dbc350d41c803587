//! Packets one by one, in bulk by closures, or in bulk by arrays.
//!
//! | Methods | A packet is | It is |
//! |---|---|---|
//! | [`recv`], [`next_packet`] | a [`Packet`], borrowed from its batch | sent, sent through another socket, kept, or dropped |
//! | [`recv`], `for` | an [`OwnedPacket`] | held, looked up, changed, sent or freed, at any time |
//! | [`receive_each`] | a [`Received`] in a closure | kept or recycled |
//! | [`forward_each`] | a [`Received`] in a closure | sent through the same socket, kept or recycled |
//! | [`send_batch`] | a [`TxPacket`], borrowed from its batch | written in place, then sent or not |
//! | [`send_each`] | the bytes of a free chunk, in a closure | written and sent |
//! | [`recv_frames`], [`send_frames`] | a [`Frame`] in a vector | held, looked up, changed, sent or freed, at any time |
//!
//! Begin with [`recv`]: it does everything that the others do. Where a profile shows the loop itself,
//! change to the closure that does no more than the program needs; it takes fewer instructions for each
//! packet. All of them prefetch the first bytes of the packets ahead, move at most `max` packets, never
//! wait, and leave the system calls to [`flush`] and [`wait`].
//!
//! # One by one
//!
//! A loop over a batch can end early, and can make and send further frames meanwhile. Packets that are
//! neither sent nor kept are recycled.
//!
//! ```no_run
//! # fn main() -> xsk::Result<()> {
//! # let umem = xsk::Umem::builder().build()?;
//! # let mut socket = xsk::Socket::builder(&umem, "eth0", 0).open()?;
//! let mut batch = socket.recv(64);
//! while let Some(mut packet) = batch.next_packet() {
//!     // An answer longer than the packet needs a frame of its own.
//!     if let Some(mut answer) = packet.alloc() {
//!         answer.fill_with(&[0; 200])?;
//!         // A full TX ring drops it.
//!         let _ = packet.send_frame(answer);
//!     }
//! }
//! drop(batch);
//! socket.flush()?;
//! # Ok(())
//! # }
//! ```
//!
//! # As an iterator
//!
//! A batch is an iterator of owned packets, with the driver's [hints](crate::RxHints). Any number of them live at once, are
//! dropped in any order, and go to other threads:
//!
//! ```no_run
//! # fn main() -> xsk::Result<()> {
//! # let umem = xsk::Umem::builder().build()?;
//! # let mut socket = xsk::Socket::builder(&umem, "eth0", 0).open()?;
//! let (arp, others): (Vec<_>, Vec<_>) = socket
//!     .recv(64)
//!     .partition(|packet| packet.get(12..14) == Some(&[0x08, 0x06]));
//! for packet in arp {
//!     // When the TX ring is full, the packet is dropped.
//!     let _ = socket.send(packet.into());
//! }
//! socket.free_frames(others.into_iter().map(xsk::OwnedPacket::into_frame));
//! socket.flush()?;
//! # Ok(())
//! # }
//! ```
//!
//! Each packet leaves FILL, and its chunk goes through the UMEM's list of free chunks, with two atomic operations, unless
//! [`free_frames`] has it: it takes more instructions than one that is borrowed and recycled.
//!
//! # Receive
//!
//! The closure decides on every packet: it returns the [`Done`] of [`recycle`] or [`keep`], which is
//! made of that packet and fits no other. One that can fail, or that ends before the last packet, goes to
//! [`try_receive_each`] or [`try_forward_each`]: the packets that it has not seen come with the next call.
//!
//! ```no_run
//! # fn main() -> xsk::Result<()> {
//! # let umem = xsk::Umem::builder().build()?;
//! # let mut socket = xsk::Socket::builder(&umem, "eth0", 0).open()?;
//! let mut arp = Vec::new();
//! socket.receive_each(64, |packet| {
//!     if packet.get(12..14) == Some(&[0x08, 0x06]) {
//!         let (frame, done) = packet.keep();
//!         arp.push(frame);
//!         done
//!     } else {
//!         packet.recycle()
//!     }
//! });
//! # Ok(())
//! # }
//! ```
//!
//! # Forward
//!
//! [`forward_each`] reads no more packets than TX has room for, so that `send` cannot fail. Under
//! overload they wait in the RX ring, and the kernel drops those for which that has no room
//! ([`Statistics::rx_ring_full`]). With [`Packet::send`], the program has the packets for which TX is
//! full, and drops them or not.
//!
//! ```no_run
//! # fn main() -> xsk::Result<()> {
//! # let umem = xsk::Umem::builder().build()?;
//! # let mut socket = xsk::Socket::builder(&umem, "eth0", 0).open()?;
//! socket.forward_each(64, |mut packet| match packet.get_mut(..12) {
//!     Some(macs) => {
//!         macs.rotate_left(6); // swaps the addresses
//!         packet.send()
//!     }
//!     None => packet.recycle(),
//! });
//! socket.flush()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Send
//!
//! A batch of free chunks is iterated, and each packet written where the kernel will read it. Several can be held at a
//! time, and a loop can end early: what was not sent stays free.
//!
//! ```no_run
//! # fn main() -> xsk::Result<()> {
//! # let umem = xsk::Umem::builder().build()?;
//! # let mut socket = xsk::Socket::builder(&umem, "eth0", 0).open()?;
//! # let queued: Vec<[u8; 60]> = Vec::new();
//! let mut batch = socket.send_batch(64);
//! for (mut packet, bytes) in batch.iter_mut().zip(&queued) {
//!     packet.fill_with(bytes)?;
//!     packet.send();
//! }
//! drop(batch);
//! socket.flush()?;
//! # Ok(())
//! # }
//! ```
//!
//! The closure of [`send_each`] writes a packet and returns its length, or 0 to end; it takes the fewest instructions.
//!
//! ```no_run
//! # fn main() -> xsk::Result<()> {
//! # let umem = xsk::Umem::builder().build()?;
//! # let mut socket = xsk::Socket::builder(&umem, "eth0", 0).open()?;
//! let mut packets = [[1_u8; 60], [2; 60]].into_iter();
//! let sent = socket.send_each(64, |room| match packets.next() {
//!     Some(packet) => {
//!         room[..60].copy_from_slice(&packet);
//!         60
//!     }
//!     None => 0,
//! });
//! assert!(sent <= 2);
//! socket.flush()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Arrays of frames
//!
//! Frames stay whole between calls, so that several steps can each walk over all packets: parse, look up
//! all addresses, then rewrite. A chunk in a frame is one less for receiving; [`free_frames`] gives those
//! back that are not sent.
//!
//! ```no_run
//! # fn main() -> xsk::Result<()> {
//! # let umem = xsk::Umem::builder().build()?;
//! # let mut socket = xsk::Socket::builder(&umem, "eth0", 0).open()?;
//! let mut frames = Vec::with_capacity(64);
//! socket.recv_frames(&mut frames, 64);
//! let (mut wanted, unwanted): (Vec<_>, Vec<_>) =
//!     frames.into_iter().partition(|frame| frame.len() >= 60);
//! socket.free_frames(unwanted);
//! // Those for which TX has no room stay in the vector.
//! socket.send_frames(&mut wanted);
//! socket.flush()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Two threads
//!
//! [`split`] makes two halves of a socket, for a thread that receives and one that sends: while the
//! first waits, the second can be in the system call that sends. Frames go between them by any channel.
//! It pays where sending takes much of a CPU, as in copy mode; where one thread has time for both, a
//! batch that is sent by the thread that received it costs less.
//!
//! Only the sending half gets chunks of sent packets back, so while it is idle, as one that waits for
//! frames, the receiving half has to do without them. By default it can: see [`split`].
//!
//! ```no_run
//! # fn main() -> xsk::Result<()> {
//! # let umem = xsk::Umem::builder().build()?;
//! # let socket = xsk::Socket::builder(&umem, "eth0", 0).open()?;
//! use std::sync::mpsc::sync_channel;
//! use std::time::Duration;
//! use xsk::Frame;
//!
//! let (mut rx, mut tx) = socket.split();
//! let (give, take) = sync_channel::<Vec<Frame>>(64);
//! let sender = std::thread::spawn(move || -> xsk::Result<()> {
//!     for mut frames in take {
//!         while !frames.is_empty() {
//!             tx.send_frames(&mut frames);
//!             tx.flush()?;
//!         }
//!     }
//!     Ok(())
//! });
//! while rx.wait(Duration::from_secs(1))? {
//!     let mut frames = Vec::new();
//!     rx.recv_frames(&mut frames, 64);
//!     if give.send(frames).is_err() {
//!         break; // the sender has failed
//!     }
//! }
//! drop(give);
//! sender.join().expect("the sender does not panic")
//! # }
//! ```
//!
//! [`recv`]: crate::Socket::recv
//! [`next_packet`]: crate::RxBatch::next_packet
//! [`receive_each`]: crate::Socket::receive_each
//! [`try_forward_each`]: crate::Socket::try_forward_each
//! [`try_receive_each`]: crate::Socket::try_receive_each
//! [`forward_each`]: crate::Socket::forward_each
//! [`send_each`]: crate::Socket::send_each
//! [`send_batch`]: crate::Socket::send_batch
//! [`TxPacket`]: crate::TxPacket
//! [`recv_frames`]: crate::Socket::recv_frames
//! [`send_frames`]: crate::Socket::send_frames
//! [`free_frames`]: crate::Socket::free_frames
//! [`split`]: crate::Socket::split
//! [`flush`]: crate::Socket::flush
//! [`wait`]: crate::Socket::wait
//! [`Packet`]: crate::Packet
//! [`Packet::send`]: crate::Packet::send
//! [`Received`]: crate::Received
//! [`recycle`]: crate::Received::recycle
//! [`keep`]: crate::Received::keep
//! [`Done`]: crate::Done
//! [`Frame`]: crate::Frame
//! [`OwnedPacket`]: crate::OwnedPacket
//! [`Statistics::rx_ring_full`]: crate::Statistics::rx_ring_full
