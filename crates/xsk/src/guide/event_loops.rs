//! Sockets in event loops and async runtimes.
//!
//! [`Socket::wait`] sleeps by itself. A program that waits for other things too has three ways:
//!
//! | The program has | It uses |
//! |---|---|
//! | tokio | `AsyncSocket`, [below](#tokio) |
//! | poll(2), epoll(7), mio or another event loop | `prepare_to_wait`, [below](#other-event-loops), and the socket as a descriptor |
//! | threads | [`Socket::wait_for`], in a thread for each socket |
//!
//! # tokio
//!
//! `AsyncSocket`, with the cargo feature `tokio`, is a socket whose events a task awaits: a packet, room to
//! send, or either. It dereferences to the [`Socket`]. A task that owns it can be spawned; for a device of
//! several queues, spawn one for each.
//!
#![cfg_attr(feature = "tokio", doc = "```no_run")]
#![cfg_attr(not(feature = "tokio"), doc = "```ignore")]
//! use xsk::{AsyncSocket, Interest, Socket};
//!
//! async fn echo(socket: Socket) -> xsk::Result<()> {
//!     let mut socket = AsyncSocket::new(socket)?;
//!     loop {
//!         // A packet is received only when its answer has room.
//!         socket.ready(Interest::Send).await?;
//!         let room = socket.tx_room();
//!         socket.ready(Interest::Receive).await?;
//!         let mut batch = socket.recv(room.min(64));
//!         while let Some(packet) = batch.next_packet() {
//!             let _ = packet.send();
//!         }
//!         drop(batch);
//!         socket.flush()?;
//!     }
//! }
//! ```
//!
//! Drop a batch, and [flush](crate::Socket::flush), before each `.await`. Under load `ready` yields to the
//! other tasks of the thread now and then, as tokio's own sockets do.
//!
//! The plain way, tokio's `AsyncFd`, is an `unsafe` call in recent versions of tokio, reports each edge
//! once, and knows nothing of [`Ready::sleep_at_most`]: `AsyncSocket` takes care of all three.
//!
//! # Other event loops
//!
//! As a descriptor (`AsFd`, `AsRawFd`) a socket is an epoll instance of its own. It is readable at the events
//! that [`Socket::prepare_to_wait`](crate::Socket::prepare_to_wait) was last given, sending included; so watch it for reading only.
//!
//! ```no_run
//! # use rustix::event::{PollFd, PollFlags, Timespec, poll};
//! # use std::time::Duration;
//! # use xsk::{Interest, Socket};
//! # fn run(socket: &mut Socket) -> Result<(), Box<dyn std::error::Error>> {
//! loop {
//!     let ready = socket.prepare_to_wait(Interest::Receive)?;
//!     let most = if ready.receive { Some(Duration::ZERO) } else { ready.sleep_at_most };
//!     let most = most.map(Timespec::try_from).transpose()?;
//!     let mut all = [PollFd::new(socket, PollFlags::IN)]; // and others
//!     poll(&mut all, most.as_ref())?;
//!     // Here the others that are ready have their turns.
//!     println!("{} packets", socket.recv(64).len());
//! }
//! # }
//! ```
//!
//! Four rules, without which a program stalls:
//!
//! 1. Call `prepare_to_wait` before each sleep. It looks at the rings, so an event that came before is not
//!    slept over, also where the event loop reports edges only, as mio does.
//! 2. Sleep for [`Ready::sleep_at_most`] at the longest. Not all that a socket waits for is an event: another
//!    thread may free the chunks that FILL lacks, and a driver may ask for a wake-up after the look at its flag.
//! 3. [Flush](crate::Socket::flush) after sending. A packet that was not flushed is invisible to the kernel.
//! 4. Receive one batch a turn, and poll without a sleep while packets are left. A loop that receives until none is left
//!    serves nothing else in a flood.
//!
//! The receiving half of a [split](crate::Socket::split) socket has
//! [`prepare_to_wait`](crate::RxHalf::prepare_to_wait) and the descriptor, too. The sending half has
//! [`wait_for_room`](crate::TxHalf::wait_for_room).
//!
//! The examples `event_loop` (poll), `mio`, `tokio` and `udp_echo` are complete programs.
//!
//! [`Socket`]: crate::Socket
//! [`Socket::wait`]: crate::Socket::wait
//! [`Socket::wait_for`]: crate::Socket::wait_for
//! [`Ready::sleep_at_most`]: crate::Ready::sleep_at_most
