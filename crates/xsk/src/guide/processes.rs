//! A socket for another process: a privileged process opens it, an unprivileged one uses it.
//!
//! Linux 6.4 or later is needed: before, the kernel maps no ring of a bound socket.
//!
//! Opening a socket needs capabilities; using one needs none. So a broker can open and bind sockets, and
//! hand each to a client that has no privilege at all, not even a memory lock limit:
//!
//! | Step | Process | Call |
//! |---|---|---|
//! | open and bind the socket | broker | [`SocketBuilder::open`] |
//! | take it apart | broker | [`Socket::into_parts`] |
//! | send it over a Unix socket | broker | [`Parts::send`] |
//! | receive it | client | [`Parts::receive`] |
//! | use it | client | [`Socket::from_parts`], unsafe: see below |
//!
//! The same calls move a socket from an old process of a program to its successor: no packet is lost
//! that the RX ring has room for.
//!
//! # Lifetime
//!
//! The client keeps everything alive: the kernel's socket, the memory, the XSKMAP and the link of the
//! built-in program. The broker can end, or be killed. When the client ends, the kernel closes the
//! socket and detaches the program, unless others hold it as well.
//!
//! # Chunks
//!
//! The whole UMEM goes along, so the socket has to be its only one, and no [`Frame`] of it may be held:
//! [`Socket::into_parts`] checks both. A broker makes a UMEM for each client. Its own [`Umem`] is
//! useless afterwards: all chunks are [retired](crate::Accounting::retired).
//!
//! Chunks lent to the kernel stay lent, packets in the RX ring are received by the client, and packets
//! in the TX ring are transmitted by its first [`flush`](crate::Socket::flush). When the client closes
//! the socket, chunks that are lent to the kernel then are retired, since another process may have a
//! duplicate of the socket's descriptor. A process makes one socket of a message, for good: the chunks that
//! the message calls free are those of the handover.
//!
//! # Trust
//!
//! | Party | Can harm the other |
//! |---|---|
//! | client | with the XSKMAP and the link: it could take the packets of the device's other queues, or detach the program. [`Parts::withhold_program`] keeps both with the broker |
//! | broker | with the memory: it could write to packets while the client reads them, or call chunks free that are lent. The client checks sizes, seals, modes and ring indices, which protects it from mistakes, not from a broker that means harm |
//!
//! So [`Socket::from_parts`] is an unsafe function, and its caller names the reason for the trust.
//! [`Socket::from_broker`] is safe: it takes sockets from root's processes only, which can write to the memory of
//! any process.
//!
//! The program redirects packets as long as one of its holders lives, so a broker that withholds it stays.
//!
//! # Limits
//!
//! Both processes use the same version of this library; another one is
//! [`ErrorKind::Unsupported`]. A kernel that allows bpf(2) to no unprivileged process at all, as before Linux
//! 5.19 with `kernel.unprivileged_bpf_disabled`, cannot confirm that the map and the link are what the
//! description says.
//!
//! [`SocketBuilder::open`]: crate::SocketBuilder::open
//! [`Socket::into_parts`]: crate::Socket::into_parts
//! [`Socket::from_parts`]: crate::Socket::from_parts
//! [`Socket::from_broker`]: crate::Socket::from_broker
//! [`Socket`]: crate::Socket
//! [`Umem`]: crate::Umem
//! [`Frame`]: crate::Frame
//! [`Parts::send`]: crate::Parts::send
//! [`Parts::receive`]: crate::Parts::receive
//! [`Parts::withhold_program`]: crate::Parts::withhold_program
//! [`ErrorKind::Unsupported`]: crate::ErrorKind::Unsupported
