//! Spinning, polling, adaptive waiting, or busy polling.
//!
//! | [`Wait`] | Delay of a packet | CPU time | Choose it for |
//! |---|---|---|---|
//! | [`Spin`] | lowest | one CPU, always | a CPU reserved for the socket, lowest latency |
//! | [`Poll`] | one wake-up | grows with the packet rate | few packets, or latency below `max_delay` |
//! | [`BusyPoll`] | that of spinning, without the interrupt | one CPU, always | a card whose interrupts and softirqs would compete for the CPU |
//! | [`Adaptive`] | up to `max_delay`; with few packets the timer's lateness on top | low at any rate | everything else; the default, with 200 µs |
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
//! The usual lateness of the timer, about 55 µs by Linux's default slack, is taken off a sleep that gathers four packets or
//! more. Only a quarter of the ring may fill because the timer can be later. At high rates a larger RX
//! ring allows longer sleeps; see [`sizes`](crate::guide::sizes).
//!
//! # Busy polling
//!
//! Without it a packet takes an interrupt and a softirq, on the CPU that the card's interrupt goes to, before
//! it is in RX. With [`BusyPoll`] the waiting thread calls the driver itself. It needs a device that gives
//! its queues NAPI instances that sockets know: [`Socket::napi_id`] shows it after the first packet. A card
//! that shall leave all packets to busy polling has to put its interrupts off, which
//! [`Device::defer_interrupts`] does, and restores:
//!
//! ```no_run
//! # use std::time::Duration;
//! # fn main() -> xsk::Result<()> {
//! # let umem = xsk::Umem::builder().build()?;
//! // The longest time without a poll.
//! let longest = Duration::from_micros(200);
//! let deferred = xsk::Device::lookup("eth0")?.defer_interrupts(2, longest)?;
//! let socket = xsk::Socket::builder(&umem, "eth0", 0).wait(xsk::Wait::BusyPoll).open()?;
//! # Ok(())
//! # }
//! ```
//!
//! A killed process restores nothing. Where that matters, leave the files `napi_defer_hard_irqs` and
//! `gro_flush_timeout` (nanoseconds) of `/sys/class/net/eth0` to the operator.
//!
//! # Waiting to send
//!
//! [`Socket::wait_for`] waits for a packet, for room to send, or for either. There is room when the TX
//! ring has a free slot and a chunk is free, or none is on its way back. The kernel does not report
//! completions, so a socket that waits for a chunk looks for them every 100 µs, or spins.
//!
//! While packets are pending in TX, because the device was busy, any wait wakes the kernel again every
//! millisecond.
//!
//! # Event loops
//!
//! See [`event_loops`](crate::guide::event_loops) for tokio and others.
//!
//! [`Socket`] implements `AsFd` and `AsRawFd`, for poll(2), epoll(7) and the reactors of async runtimes,
//! by level or by edge. The descriptor is an epoll instance in which the socket is registered: it is
//! readable at the events that [`Socket::prepare_to_wait`] has set, packets at first.
//!
//! An event loop calls [`Socket::prepare_to_wait`] before each sleep. The call does what
//! [`Socket::wait`] does before it sleeps: it reclaims completed chunks, refills FILL, and wakes the
//! kernel. The loop must not sleep if an event is there already, and no longer than
//! [`Ready::sleep_at_most`].
//!
//! # Need-wakeup
//!
//! With [`SocketBuilder::need_wakeup`] on, which is the default, the kernel sets a flag in the ring
//! when it needs a system call to continue (`XDP_USE_NEED_WAKEUP`). [`Socket::flush`] and
//! [`Socket::wait`] check the flag and make the call; so does [`Socket::recv`], for FILL. With it off,
//! each flush is a system call.
//!
//! A zero-copy driver that finds FILL empty sets the flag a moment later, without looking at FILL again. So
//! while FILL has entries that the driver has not taken, a sleep ends after a millisecond, and each further one
//! after twice the time, to look at the flag again. An idle socket wakes up some twenty times in an hour. It
//! holds for [`Socket::wait`] and [`Socket::wait_for`], siblings, receiving halves and the workers of a
//! [`Port`](crate::Port), and by [`Ready::sleep_at_most`] for event loops and `AsyncSocket`.
//!
//! [`Wait`]: crate::Wait
//! [`Spin`]: crate::Wait::Spin
//! [`Poll`]: crate::Wait::Poll
//! [`BusyPoll`]: crate::Wait::BusyPoll
//! [`Device::defer_interrupts`]: crate::Device::defer_interrupts
//! [`Socket::napi_id`]: crate::Socket::napi_id
//! [`Adaptive`]: crate::Wait::Adaptive
//! [`Socket`]: crate::Socket
//! [`Socket::recv`]: crate::Socket::recv
//! [`Socket::wait`]: crate::Socket::wait
//! [`Socket::wait_for`]: crate::Socket::wait_for
//! [`Socket::prepare_to_wait`]: crate::Socket::prepare_to_wait
//! [`Ready::sleep_at_most`]: crate::Ready::sleep_at_most
//! [`Socket::flush`]: crate::Socket::flush
//! [`SocketBuilder::need_wakeup`]: crate::SocketBuilder::need_wakeup
