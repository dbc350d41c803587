//! Spinning, polling, or adaptive waiting.
//!
//! | [`Wait`] | Delay of a packet | CPU time | Choose it for |
//! |---|---|---|---|
//! | [`Spin`] | lowest | one CPU, always | a CPU reserved for the socket, lowest latency |
//! | [`Poll`] | one wake-up | grows with the packet rate | few packets, or latency below `max_delay` |
//! | [`Adaptive`] | up to `max_delay`, plus the timer's lateness | low at any rate | everything else; the default, with 200 µs |
//!
//! ```no_run
//! use std::time::Duration;
//! use xsk::{Socket, Umem, Wait};
//!
//! # fn main() -> xsk::Result<()> {
//! let umem = Umem::builder().build()?;
//! let max_delay = Duration::from_micros(50);
//! let mut socket = Socket::builder(&umem, "eth0", 0)
//!     .wait(Wait::Adaptive { max_delay })
//!     .open()?;
//! while socket.wait(Duration::from_secs(1))? {
//!     let batch = socket.recv(64);
//!     println!("{} packets", batch.len());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Adaptive waiting
//!
//! Each time the RX ring is found empty, the socket computes the mean gap between the packets since
//! the last time:
//!
//! | Packets | The socket |
//! |---|---|
//! | none, or 1.5 × gap above `max_delay` | blocks in poll(2): a longer wait would gather hardly more than one packet |
//! | otherwise | sleeps for `max_delay`, or until a quarter of the RX ring has filled if that is sooner |
//! | sleep shorter than 20 µs | spins: the sleep would cost more CPU time than it saves |
//!
//! Only a quarter of the ring may fill because the timer can be late. At high rates a larger RX
//! ring allows longer sleeps; see [`sizes`](crate::guide::sizes).
//!
//! # Event loops
//!
//! [`Socket`] implements `AsFd`: its file descriptor becomes readable when the RX ring has packets.
//! An event loop also has to call [`Socket::recv`] or [`Socket::wait`] with a timeout of zero now
//! and then while few chunks are free, because no packet arrives on an empty FILL ring.
//!
//! # Need-wakeup
//!
//! With [`SocketBuilder::need_wakeup`] on, which is the default, the kernel sets a flag in the ring
//! when it needs a system call to continue (`XDP_USE_NEED_WAKEUP`). [`Socket::flush`] and
//! [`Socket::wait`] check the flag and make the call. With it off, each flush is a system call.
//!
//! [`Wait`]: crate::Wait
//! [`Spin`]: crate::Wait::Spin
//! [`Poll`]: crate::Wait::Poll
//! [`Adaptive`]: crate::Wait::Adaptive
//! [`Socket`]: crate::Socket
//! [`Socket::recv`]: crate::Socket::recv
//! [`Socket::wait`]: crate::Socket::wait
//! [`Socket::flush`]: crate::Socket::flush
//! [`SocketBuilder::need_wakeup`]: crate::SocketBuilder::need_wakeup
