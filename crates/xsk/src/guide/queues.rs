//! All queues of a device: one port, a worker for each queue, and the packets that reach them.
//!
//! A socket receives the packets of one queue; those of a queue without a socket go to the network stack.
//! A [`Port`] opens a socket on each queue, with one XDP program and the same settings, and closes them
//! together. If one of them cannot be opened, the others are closed again and the error names its queue.
//!
//! ```no_run
//! use std::time::Duration;
//! use xsk::{Mode, Port};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let port = Port::builder("eth0")
//!     .sockets(|socket| socket.mode(Mode::Driver))
//!     .open()?;
//! port.run(|socket, stop| -> xsk::Result<()> {
//!     while !stop.is_raised() {
//!         socket.wait(Duration::from_millis(100))?;
//!         socket.receive_each(64, |packet| packet.recycle());
//!     }
//!     Ok(())
//! })?;
//! # Ok(())
//! # }
//! ```
//!
//! # Which way to use a port
//!
//! | Way | Choose it for |
//! |---|---|
//! | [`run`]: a thread for each queue | packets that a queue's CPU can handle alone; the usual case |
//! | [`sockets_mut`]: all sockets in one thread | few packets on many queues; decisions over all of them |
//! | [`into_sockets`] | threads or an event loop of your own |
//!
//! # Memory
//!
//! | | A UMEM for each queue ([`umem`]) | One for all ([`shared_umem`]) |
//! |---|---|---|
//! | Free chunks | a list for each queue | a list that all CPUs change |
//! | NUMA | each on the node of its CPU, with [`pin`] | all on the node of the first |
//! | Packets | leave through the queue on which they arrived | leave through any socket on the UMEM |
//! | Mode | each queue obtains its own | that of the first socket |
//!
//! The first is the default. The second is for packets that move between queues or devices without a
//! copy; give it as many chunks as one socket needs ([`sizes`]), times the sockets of all ports on it.
//!
//! # Workers
//!
//! [`run`] calls a closure in a thread for each queue. A worker ends when it returns. When one returns
//! an error or panics, the [`StopFlag`] is raised, on which the others should return; [`run`] then
//! reports every failure with its queue. The flag is also for a signal handler, or for any other thread:
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use std::time::Duration;
//! # let port = xsk::Port::builder("eth0").open()?;
//! let stop = port.stop_flag();
//! std::thread::spawn(move || {
//!     // A line on standard input ends it.
//!     let _ = std::io::stdin().read_line(&mut String::new());
//!     stop.raise();
//! });
//! let ended = port.run(|socket, stop| -> xsk::Result<u64> {
//!     while !stop.is_raised() {
//!         socket.wait(Duration::from_millis(100))?;
//!         socket.forward_each(64, |packet| packet.send());
//!         socket.flush()?;
//!     }
//!     Ok(socket.statistics()?.received)
//! });
//! match ended {
//!     Ok(counts) => println!("{counts:?}"),
//!     Err(errors) => {
//!         for (queue, error) in errors.failures() {
//!             eprintln!("queue {queue}: {error}");
//!         }
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`statistics_handles`] has the counters of all sockets for any thread, before the workers start and after they end:
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use std::time::Duration;
//! # let port = xsk::Port::builder("eth0").open()?;
//! let counters = port.statistics_handles();
//! port.run(|socket, stop| -> xsk::Result<()> {
//!     while !stop.is_raised() {
//!         socket.wait(Duration::from_millis(100))?;
//!         socket.receive_each(64, |packet| packet.recycle());
//!     }
//!     Ok(())
//! })?;
//! for socket in counters {
//!     let last = socket.statistics()?;
//!     println!("queue {}: {} received, {} dropped", socket.queue(), last.received, last.rx_dropped);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`pin`] keeps each worker on a CPU, and opens its socket there. Good choices are the CPU that handles
//! the interrupts of the queue (`/proc/interrupts`), which has the packets in its cache, or another one
//! of the same NUMA node, which leaves the first to the driver.
//!
//! # From port to port
//!
//! [`Packet::send_on`] takes a port like a socket. The packet leaves through the queue of the number on
//! which it arrived, or, if the other port has fewer, of that number modulo theirs; so the packets of a
//! queue stay in order. Both ports need the same UMEM, otherwise it is [`SendErrorKind::Foreign`].
//!
//! ```no_run
//! # fn main() -> xsk::Result<()> {
//! use xsk::{Port, Umem};
//!
//! let umem = Umem::builder().chunks(8 * 4096).build()?;
//! let mut left = Port::builder("eth0").shared_umem(&umem).open()?;
//! let mut right = Port::builder("eth1").shared_umem(&umem).open()?;
//! for socket in left.sockets_mut() {
//!     let mut batch = socket.recv(64);
//!     while let Some(packet) = batch.next_packet() {
//!         // When the TX ring is full, the packet is dropped and its chunk recycled.
//!         let _ = packet.send_on(&mut right);
//!     }
//! }
//! right.flush()?;
//! # Ok(())
//! # }
//! ```
//!
//! A port is used by one thread. With a worker for each queue, each takes a socket of the other port:
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use std::sync::Mutex;
//! # use std::time::Duration;
//! # use xsk::{Port, Umem};
//! # let umem = Umem::builder().chunks(8 * 4096).build()?;
//! # let left = Port::builder("eth0").shared_umem(&umem).queues(0..4).open()?;
//! # let right = Port::builder("eth1").shared_umem(&umem).queues(0..4).open()?;
//! let right: Vec<_> = right.into_sockets().into_iter().map(Mutex::new).collect();
//! left.run(|from, stop| -> xsk::Result<()> {
//!     // Locked once: no other worker wants it.
//!     let mut to = right[from.queue() as usize].lock().expect("no worker had it before");
//!     while !stop.is_raised() {
//!         from.wait(Duration::from_millis(100))?;
//!         let mut batch = from.recv(64);
//!         while let Some(packet) = batch.next_packet() {
//!             let _ = packet.send_on(&mut *to);
//!         }
//!         drop(batch);
//!         to.flush()?;
//!     }
//!     Ok(())
//! })?;
//! # Ok(())
//! # }
//! ```
//!
//! # Packets that reach the port
//!
//! The device selects the queue of a packet: by a flow rule that matches it, else by a hash over its
//! addresses, with which it looks up the queue in the RSS table. A port on all queues sees every packet.
//! For a port on some of them:
//!
//! - [`spread`] has the table name the port's queues alone;
//! - [`steer`] adds a flow rule that leads to one of them.
//!
//! ```no_run
//! use xsk::Port;
//! use xsk::steering::{Addresses, FlowRule, Masked, Transport};
//!
//! # fn main() -> xsk::Result<()> {
//! let dns = FlowRule {
//!     transport: Transport::Udp,
//!     addresses: Addresses::ANY_V4,
//!     source_port: Masked::ANY_PORT,
//!     destination_port: 53.into(),
//!     ring: 3,
//! };
//! // DNS goes to queue 3. So does the part of all other packets that the RSS table has for that queue:
//! // with queues 0 to 3, `ethtool -X eth0 equal 3` takes it out of the table.
//! let port = Port::builder("eth0").queues([3]).steer(dns).open()?;
//! # Ok(())
//! # }
//! ```
//!
//! Both are undone when the port is dropped, unless another program has changed them since. A process
//! that is killed undoes nothing: `ethtool -X eth0 default` and `ethtool -N eth0 delete N` do. Virtual
//! devices such as veth have neither, which is [`ErrorKind::Unsupported`]: there, open all queues.
//!
//! # When the number of queues changes
//!
//! The kernel refuses to remove a queue that has a socket (`ethtool -L`: "requested channel counts are too
//! low"). Queues that are added have no socket; their packets go to the network stack until the port is
//! opened again.
//!
//! [`Port`]: crate::Port
//! [`run`]: crate::Port::run
//! [`statistics_handles`]: crate::Port::statistics_handles
//! [`sockets_mut`]: crate::Port::sockets_mut
//! [`into_sockets`]: crate::Port::into_sockets
//! [`umem`]: crate::PortBuilder::umem
//! [`shared_umem`]: crate::PortBuilder::shared_umem
//! [`pin`]: crate::PortBuilder::pin
//! [`spread`]: crate::PortBuilder::spread
//! [`steer`]: crate::PortBuilder::steer
//! [`sizes`]: crate::guide::sizes
//! [`StopFlag`]: crate::StopFlag
//! [`Packet::send_on`]: crate::Packet::send_on
//! [`SendErrorKind::Foreign`]: crate::SendErrorKind::Foreign
//! [`ErrorKind::Unsupported`]: crate::ErrorKind::Unsupported
