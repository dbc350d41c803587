//! AF_XDP sockets: receiving, sending, waiting, and closing in order.

mod bound;
mod each;
mod fault;
mod frames;
mod half;
mod hand_over;
mod kernel_side;
mod mode;
#[cfg(xsk_internals)]
mod raw;
mod receiver;
mod sender;
mod sending;
mod sibling;
mod statistics;
mod statistics_handle;
mod transmit;
mod tx_batch;
mod waiting;
mod xskmap;

pub(crate) use bound::{Binding, Bound};
pub use each::{Done, Received};
#[cfg(any(test, xsk_internals))]
pub(crate) use each::{forward_each, receive_each};
pub use fault::Fault;
pub use half::{RxHalf, TxHalf};
pub(crate) use hand_over::{Descriptors, RingSizes, State};
pub use mode::{Mode, ModeObtained, Refusal};
#[cfg(xsk_internals)]
pub use raw::RawSocket;
pub(crate) use receiver::{Receiver, RxEnd};
#[cfg(any(test, xsk_internals))]
pub(crate) use sender::DRAIN;
pub(crate) use sender::{Sender, TxEnd};
#[cfg(any(test, xsk_internals))]
pub(crate) use sending::send_each;
pub use sibling::{Sibling, SiblingId};
pub use statistics::Statistics;
pub use statistics_handle::StatisticsHandle;
pub use transmit::Transmit;
pub(crate) use transmit::outlet::{Inside, Outlet, SendRings};
pub use tx_batch::{TxBatch, TxPacket, TxPackets};
pub(crate) use xskmap::{XskmapEntry, check_map, insert_error};

use crate::batch::RxBatch;
use crate::device::{Device, QueueCounts, Silence};
use crate::error::Result;
use crate::program::Program;
use crate::umem::{Cache, Umem};
use crate::umem_rings::{CompletionRing, FillRing, Outgoing, look_after};
use crate::wait::{Interest, Ready};
use sending::{Sending, sending_methods};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;
use waiting::Waiting;

/// An AF_XDP socket bound to one queue of a network device.
///
/// It can move to another thread, but not be shared. Dropping it detaches it from the XDP program,
/// waits up to 100 ms for packets in flight, and returns all chunks to the UMEM. Packets that were
/// not flushed are not sent.
///
/// ```no_run
/// use std::time::Duration;
/// use xsk::{Socket, Umem};
///
/// # fn main() -> xsk::Result<()> {
/// let umem = Umem::builder().build()?;
/// let mut socket = Socket::builder(&umem, "eth0", 0).open()?;
/// if socket.wait(Duration::from_secs(1))? {
///     let mut batch = socket.recv(64);
///     while let Some(packet) = batch.next_packet() {
///         println!("{} bytes", packet.len());
///     }
/// }
/// if let Some(mut frame) = socket.alloc() {
///     frame.fill_with(&[0xff; 60])?;
///     socket.send(frame).map_err(|error| error.kind).expect("the TX ring is empty");
///     socket.flush()?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Socket {
    // Dropped in this order: packets stop arriving before those on their way out are waited for.
    pub(crate) receiver: Receiver,
    pub(crate) sender: Sender,
    umem: Umem,
    /// The device, and the packets that it had received when the socket was open.
    arrivals: Option<(Device, QueueCounts)>,
}

impl Socket {
    pub(crate) fn assemble(receiver: Receiver, sender: Sender) -> Self {
        Self {
            umem: sender.completion.umem().clone(),
            receiver,
            sender,
            arrivals: None,
        }
    }

    /// Remembers the packets that the device has received so far, if its counters can be read.
    pub(crate) fn watch_arrivals(&mut self, device: Device) {
        if self.receiver.main.ring.is_some() {
            self.arrivals = device.rx_by_queue().ok().map(|counts| (device, counts));
        }
    }

    /// Why the socket has got nothing since it was opened, and how to get packets: its [fault](Self::fault); what its
    /// [statistics](Self::statistics) say of packets that were dropped; where the packets went that the device has
    /// received; or the filter of its program. `None` if it got packets, or the device received none; or if the
    /// queue did, and the XDP program has the reason. Call it in the network namespace in which the socket was opened.
    ///
    /// It asks the kernel for counters and steering rules: for a program that has waited for long, not
    /// for each wait.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// # fn main() -> xsk::Result<()> {
    /// # let umem = xsk::Umem::builder().build()?;
    /// let mut socket = xsk::Socket::builder(&umem, "eth0", 0).open()?;
    /// if !socket.wait(Duration::from_secs(10))?
    ///     && let Some(silence) = socket.explain_silence()?
    /// {
    ///     eprintln!("{silence}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Same as [`Device::explain_silence`].
    pub fn explain_silence(&self) -> Result<Option<Silence>> {
        let Some((device, before)) = &self.arrivals else {
            return Ok(None);
        };
        let queue = self.queue();
        if let Some(fault) = self.fault() {
            let counts = device.rx_since(before).unwrap_or_default();
            return Ok(Some(device.silence(queue, counts, fault.to_string())));
        }
        let statistics = self.statistics()?;
        if statistics.received > 0 {
            return Ok(None);
        }
        if let Some(reason) = statistics.why_dropped(&self.umem) {
            let counts = device.rx_since(before)?;
            return Ok(Some(device.silence(queue, counts, reason)));
        }
        let filtered = self.program().is_some_and(Program::is_filtered);
        device.explain_silence_of(queue, before, filtered)
    }

    /// Receives up to `max` packets. It does not wait; the batch may be empty.
    ///
    /// It may have fewer than are there: packets that arrived since the socket last looked at the ring come after those
    /// that it found then, in the next batch. Only an empty one means that there was none.
    ///
    /// It also reclaims completed chunks and refills FILL.
    #[inline(always)]
    pub fn recv(&mut self, max: u32) -> RxBatch<'_> {
        let Self {
            receiver,
            sender,
            umem,
            ..
        } = self;
        let out = sender.main.ring.as_mut();
        recv(
            &mut receiver.main,
            &mut receiver.fill,
            out,
            &mut sender.completion,
            &mut sender.cache,
            umem,
            max,
        )
    }

    /// Waits for a packet, for at most `timeout`, by spinning, polling or adaptively (see
    /// [`Wait`](crate::Wait)). Returns whether the RX ring has a packet. A signal may end the wait
    /// early. While the kernel has yet to take packets from the TX ring, it is woken again every
    /// millisecond.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DeviceDown`](crate::ErrorKind::DeviceDown) or [`ErrorKind::DeviceMissing`](crate::ErrorKind::DeviceMissing) when packets are pending in
    /// the TX ring and the device is down or gone.
    #[inline]
    pub fn wait(&mut self, timeout: Duration) -> Result<bool> {
        Waiting::new(&mut self.receiver, &mut self.sender).wait(timeout)
    }

    /// Waits for a packet, for room to send, or for either, for at most `timeout`. It waits as
    /// [`wait`](Self::wait) does; while the kernel has yet to take packets from the TX ring, it is
    /// woken again every millisecond.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use xsk::{Interest, Socket};
    /// # fn send_all(socket: &mut Socket, packets: &[&[u8]]) -> xsk::Result<usize> {
    /// for (sent, packet) in packets.iter().enumerate() {
    ///     while !socket.wait_for(Interest::Send, Duration::from_secs(1))?.send {}
    ///     let Some(mut frame) = socket.alloc() else {
    ///         // The program holds all chunks, or lends them for receiving: none would come back.
    ///         return Ok(sent);
    ///     };
    ///     frame.fill_with(packet)?;
    ///     socket.send(frame).map_err(|error| error.kind).expect("there is a free slot");
    ///     socket.flush()?;
    /// }
    /// # Ok(packets.len())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Same as [`wait`](Self::wait).
    #[inline]
    pub fn wait_for(&mut self, interest: Interest, timeout: Duration) -> Result<Ready> {
        Waiting::new(&mut self.receiver, &mut self.sender).wait_for(interest, timeout)
    }

    /// Gets the socket ready for a sleep in the caller's event loop, which waits until the
    /// [descriptor](AsFd) of the socket is readable, whatever the interest. Call it before each
    /// sleep: it refills FILL, wakes the kernel if needed, and sets the events of the descriptor.
    ///
    /// Do not sleep if an event is [there](Ready::any) already, and no longer than
    /// [`Ready::sleep_at_most`].
    ///
    /// ```no_run
    /// # use rustix::event::{PollFd, PollFlags, Timespec, poll};
    /// # use xsk::{Interest, Socket};
    /// # fn sleep(socket: &mut Socket) -> Result<(), Box<dyn std::error::Error>> {
    /// let ready = socket.prepare_to_wait(Interest::Both)?;
    /// if !ready.any() {
    ///     let most = ready.sleep_at_most.map(Timespec::try_from).transpose()?;
    ///     poll(&mut [PollFd::new(socket, PollFlags::IN)], most.as_ref())?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Same as [`wait`](Self::wait).
    pub fn prepare_to_wait(&mut self, interest: Interest) -> Result<Ready> {
        Waiting::new(&mut self.receiver, &mut self.sender).prepare(interest)
    }

    /// Puts the socket into a slot of an XSKMAP, until it is closed: for a program of the caller's,
    /// which must redirect only packets of this device and queue to that slot. What was in the slot
    /// is replaced; the close empties the slot.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Foreign`](crate::ErrorKind::Foreign) when it is no XSKMAP,
    /// [`ErrorKind::QueueOutOfRange`](crate::ErrorKind::QueueOutOfRange) when it has no such slot,
    /// [`ErrorKind::InvalidConfig`](crate::ErrorKind::InvalidConfig) for a socket that only sends.
    pub fn insert_into(&mut self, map: BorrowedFd<'_>, slot: u32) -> Result<()> {
        let main = &mut self.receiver.main;
        main.insert_into(&self.sender.bound, map, slot)
    }

    sending_methods!();

    #[inline(always)]
    fn sending(&mut self) -> Sending<'_> {
        self.sender.sending()
    }

    fn completion(&self) -> &CompletionRing {
        &self.sender.completion
    }

    /// Reclaims completed chunks and refills FILL.
    #[inline(always)]
    fn look_after(&mut self) {
        let Sender {
            completion, cache, ..
        } = &mut self.sender;
        let Receiver { main, fill, .. } = &mut self.receiver;
        look_after(completion, fill, cache);
        main.wake_if_asked(fill);
    }

    /// Adds a sibling on the same device queue.
    pub(crate) fn push_sibling(&mut self, rx: RxEnd, tx: TxEnd) -> SiblingId {
        if rx.ring.is_some() {
            self.bound().note_receiving();
        }
        self.receiver.siblings.push(rx);
        self.sender.siblings.push(tx);
        SiblingId(self.receiver.siblings.len() - 1)
    }

    /// Borrows a sibling of this socket, to receive and send through it; `None` when there is no
    /// such sibling. Ids count from the first for each socket, so the id from another socket may
    /// name a sibling here.
    pub fn sibling(&mut self, id: SiblingId) -> Option<Sibling<'_>> {
        Some(Sibling {
            rx: self.receiver.siblings.get_mut(id.0)?,
            tx: self.sender.siblings.get_mut(id.0)?,
            fill: &mut self.receiver.fill,
            completion: &mut self.sender.completion,
            cache: &mut self.sender.cache,
            umem: &self.umem,
            bound: &self.sender.bound,
        })
    }

    pub(crate) fn bound(&self) -> &Bound {
        &self.sender.bound
    }

    /// The mode obtained, read back from the kernel.
    pub fn mode(&self) -> ModeObtained {
        self.bound().binding.mode
    }

    /// Refusals while opening: better modes, with [`Mode::Auto`], and features that the kernel
    /// lacks.
    pub fn refusals(&self) -> &[Refusal] {
        &self.bound().binding.refusals
    }

    /// Whether the XDP program writes [hints](crate::Packet::hints) in front of packets: they were
    /// [asked for](crate::SocketBuilder::rx_hints), and not [refused](Self::refusals).
    pub fn has_rx_hints(&self) -> bool {
        self.receiver.fill.has_hints()
    }

    /// The UMEM of the socket's packets.
    pub fn umem(&self) -> &Umem {
        &self.umem
    }

    /// Index of the device that the socket is bound to.
    pub fn ifindex(&self) -> u32 {
        self.bound().lease().queue().ifindex
    }

    /// The device queue that the socket is bound to.
    pub fn queue(&self) -> u32 {
        self.bound().lease().queue().queue
    }

    /// The built-in program, when in use. Sockets on other queues of the device share it with
    /// [`SocketBuilder::program`](crate::SocketBuilder::program).
    pub fn program(&self) -> Option<&Program> {
        self.receiver.entry.as_ref()?.program.as_ref()
    }

    /// Counters of this library and of the kernel. Other threads read them by a
    /// [handle](Self::statistics_handle).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Os`](crate::ErrorKind::Os) when `getsockopt(XDP_STATISTICS)` fails.
    pub fn statistics(&self) -> Result<Statistics> {
        let Self {
            receiver, sender, ..
        } = self;
        let kernel = Statistics::read(&**receiver.main.socket())?;
        Ok(kernel
            .with_rx(&receiver.main, &receiver.fill)
            .with_tx(&sender.main, &sender.completion))
    }
}

#[inline(always)]
fn recv<'s>(
    rx: &'s mut RxEnd,
    fill: &'s mut FillRing,
    tx: Option<&'s mut crate::umem_rings::TxRing>,
    completion: &'s mut CompletionRing,
    cache: &'s mut Cache,
    umem: &'s Umem,
    max: u32,
) -> RxBatch<'s> {
    look_after(completion, fill, cache);
    rx.wake_if_asked(fill);
    let out = tx.map(|tx| Outgoing { tx, completion });
    let batch = RxBatch::new(rx.ring.as_mut(), out, fill, cache, umem.area(), max);
    rx.received += batch.len() as u64;
    batch
}

/// For an event loop: an epoll descriptor, readable when there are packets, or as
/// [`prepare_to_wait`](Socket::prepare_to_wait) has set it. It is not the AF_XDP socket, and keeps
/// nothing of it open.
impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.main.pollable()
    }
}

/// Same as [`AsFd`].
impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// Receives without a sending side.
#[inline(always)]
fn recv_only<'s>(
    rx: &'s mut RxEnd,
    fill: &'s mut FillRing,
    cache: &'s mut Cache,
    umem: &'s Umem,
    max: u32,
) -> RxBatch<'s> {
    fill.refill(cache);
    rx.wake_if_asked(fill);
    let batch = RxBatch::new(rx.ring.as_mut(), None, fill, cache, umem.area(), max);
    rx.received += batch.len() as u64;
    batch
}
