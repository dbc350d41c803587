//! AF_XDP sockets: receiving, sending, waiting, and closing in order.

mod endpoint;
mod mode;
mod sibling;
mod statistics;
mod xskmap;

pub(crate) use endpoint::Endpoint;
pub use mode::{Mode, ModeObtained, Refusal};
pub use sibling::{Sibling, SiblingId};
pub use statistics::Statistics;
pub(crate) use xskmap::{XskmapEntry, check_map};

use crate::batch::{Packet, RxBatch};
use crate::error::Result;
use crate::frame::Frame;
use crate::program::Program;
use crate::send_error::{SendError, SendErrorKind};
use crate::umem::{AfterClose, RingsLease, Umem};
use crate::umem_rings::UmemRings;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Longest time that closing a socket waits for packets on their way out.
const DRAIN: Duration = Duration::from_millis(100);

/// An AF_XDP socket bound to one queue of a network device.
///
/// It is used by one thread at a time: it can move to another thread, but not be shared.
/// Dropping it stops the packets, waits a moment for those on their way out, and gives every
/// chunk back to the UMEM. What was put into TX and not flushed is not sent.
#[derive(Debug)]
pub struct Socket<'u> {
    // Dropped in this order: the program first, so that packets stop; then rings and sockets. The
    // kernel's socket ends with the last of them, since mappings pin it, and the FILL and
    // COMPLETION rings are in `umem_rings`. The lease, which frees the chunks, comes after all.
    program: Option<XskmapEntry>,
    pub(crate) main: Endpoint,
    siblings: Vec<Endpoint>,
    pub(crate) umem_rings: UmemRings<'u>,
    lease: RingsLease<'u>,
    binding: Binding,
}

/// Where and how a socket is bound.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) mode: ModeObtained,
    pub(crate) refusals: Vec<Refusal>,
    pub(crate) ifindex: u32,
    pub(crate) queue: u32,
}

impl<'u> Socket<'u> {
    pub(crate) fn assemble(
        program: Option<XskmapEntry>,
        main: Endpoint,
        umem_rings: UmemRings<'u>,
        lease: RingsLease<'u>,
        binding: Binding,
    ) -> Self {
        Self {
            program,
            main,
            siblings: Vec::new(),
            umem_rings,
            lease,
            binding,
        }
    }

    /// Takes up to `max` packets that have arrived. Never waits; the batch may be empty.
    ///
    /// Completed chunks are taken back and FILL is topped up on the way.
    #[inline(always)]
    pub fn recv(&mut self, max: u32) -> RxBatch<'_, 'u> {
        self.main.recv(&mut self.umem_rings, max)
    }

    /// Waits in the socket's way (see [`Wait`](crate::Wait)) until a packet is there or `timeout` is over,
    /// and tells which: true for a packet. A signal may end the wait early.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DeviceDown`](crate::ErrorKind::DeviceDown) or [`ErrorKind::DeviceMissing`](crate::ErrorKind::DeviceMissing) when packets are waiting to be
    /// sent and the device is down or gone.
    #[inline]
    pub fn wait(&mut self, timeout: Duration) -> Result<bool> {
        self.main.wait(&mut self.umem_rings, timeout)
    }

    /// A free frame, empty, behind the UMEM's headroom; none when all are in use. Completed
    /// chunks are taken back on the way.
    #[inline]
    pub fn alloc(&mut self) -> Option<Frame<'u>> {
        self.umem_rings.alloc()
    }

    /// Puts a frame into the TX ring. It leaves at the next [`flush`](Self::flush).
    ///
    /// # Errors
    ///
    /// The frame comes back when the ring is full, the frame is of another UMEM or empty, or
    /// the socket has no TX ring.
    #[inline]
    pub fn send(&mut self, frame: Frame<'u>) -> std::result::Result<(), SendError<Frame<'u>>> {
        self.main.send(&mut self.umem_rings, frame)
    }

    /// Why a packet cannot be sent from this socket, if it cannot.
    #[inline]
    pub(crate) fn cannot_send(&mut self, umem: &Umem, len: u32) -> Option<SendErrorKind> {
        self.umem_rings
            .cannot_send(self.main.tx.as_mut(), umem, len)
    }

    /// Packets that the TX ring has room for now; 0 without a TX ring.
    #[inline]
    pub fn tx_room(&mut self) -> u32 {
        self.main.tx.as_mut().map_or(0, |tx| tx.free(tx.size()))
    }

    /// Lets the kernel see what was put into the TX ring, and wakes it when it asks for that. It
    /// may leave some for the next call, when the device is busy.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DeviceDown`](crate::ErrorKind::DeviceDown) or [`ErrorKind::DeviceMissing`](crate::ErrorKind::DeviceMissing); the packets stay in the ring.
    /// A packet that the kernel drops is no error but counted, in
    /// [`Statistics::send_drops`].
    #[inline]
    pub fn flush(&mut self) -> Result<()> {
        self.main.flush(&mut self.umem_rings)
    }

    /// Takes back what the kernel has sent, and tells how many that were. [`recv`](Self::recv)
    /// and [`alloc`](Self::alloc) do so when they need to.
    pub fn reclaim(&mut self) -> u32 {
        self.umem_rings.reclaim()
    }

    /// Packets that were put into TX and whose chunks have not come back, over all sockets on
    /// the queue.
    pub fn outstanding(&self) -> u32 {
        self.umem_rings.sending()
    }

    /// Adds a sibling on the same device queue.
    pub(crate) fn push_sibling(&mut self, endpoint: Endpoint) -> SiblingId {
        self.siblings.push(endpoint);
        SiblingId(self.siblings.len() - 1)
    }

    /// A sibling of this socket, to receive and send through; none when it has no such one. Ids
    /// count from the first for each socket, so one of another socket may name a sibling here.
    pub fn sibling(&mut self, id: SiblingId) -> Option<Sibling<'_, 'u>> {
        let endpoint = self.siblings.get_mut(id.0)?;
        Some(Sibling {
            endpoint,
            umem_rings: &mut self.umem_rings,
        })
    }

    pub(crate) fn binding(&self) -> &Binding {
        &self.binding
    }

    /// The mode that the socket got.
    pub fn mode(&self) -> ModeObtained {
        self.binding.mode
    }

    /// What was refused on the way: better modes with [`Mode::Auto`], and features that the
    /// kernel lacks.
    pub fn refusals(&self) -> &[Refusal] {
        &self.binding.refusals
    }

    /// The UMEM that the socket's packets are in.
    pub fn umem(&self) -> &'u Umem {
        self.umem_rings.umem()
    }

    /// Index of the device that the socket is bound to.
    pub fn ifindex(&self) -> u32 {
        self.binding.ifindex
    }

    /// The queue that the socket is bound to.
    pub fn queue(&self) -> u32 {
        self.binding.queue
    }

    /// The built-in program, when it is in use; sockets on other queues of the device share it
    /// (see [`SocketBuilder::program`](crate::SocketBuilder::program)).
    pub fn program(&self) -> Option<&Program> {
        self.program.as_ref()?.program.as_ref()
    }

    /// Counters of the kernel and of this library.
    ///
    /// # Errors
    ///
    /// When the kernel does not answer.
    pub fn statistics(&self) -> Result<Statistics> {
        self.main.statistics(&self.umem_rings)
    }

    /// Wakes the kernel until what was sent has come back, or time is up.
    fn drain(&mut self) {
        let deadline = Instant::now() + DRAIN;
        loop {
            self.umem_rings.reclaim();
            let waiting = self.pending() + self.being_sent();
            if waiting == 0 || Instant::now() >= deadline {
                return;
            }
            for endpoint in std::iter::once(&mut self.main).chain(&mut self.siblings) {
                let pending = endpoint.pending();
                if pending > 0 && endpoint.kick(&mut self.umem_rings).is_err() {
                    return;
                }
            }
            if self.pending() + self.being_sent() >= waiting {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }

    /// Packets in all TX rings that the kernel has not taken.
    fn pending(&mut self) -> u32 {
        let endpoints = std::iter::once(&mut self.main).chain(&mut self.siblings);
        endpoints.map(Endpoint::pending).sum()
    }

    /// Chunks that the kernel took from a TX ring and has not completed.
    fn being_sent(&mut self) -> u32 {
        let endpoints = std::iter::once(&mut self.main).chain(&mut self.siblings);
        let in_rings = endpoints
            .filter_map(|e| e.tx.as_mut())
            .map(|tx| tx.pending() + tx.staged());
        let in_rings: u32 = in_rings.sum();
        self.umem_rings.sending().saturating_sub(in_rings)
    }
}

impl Drop for Socket<'_> {
    fn drop(&mut self) {
        self.program = None;
        self.drain();
        let after = if self.main.zero_copy {
            AfterClose::MayTouchAll
        } else if self.being_sent() > 0 {
            AfterClose::MaySend
        } else {
            AfterClose::LetGo
        };
        self.lease.set_after_close(after);
    }
}

/// For an event loop, or an XSKMAP. A duplicate must not outlive the socket: it would keep the
/// kernel's side alive, which then writes to chunks that others use.
impl AsFd for Socket<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.main.fd().as_fd()
    }
}

impl<'u> Packet<'_, 'u> {
    /// Sends the packet from another socket on the same UMEM, without copying. It leaves at
    /// that socket's next [`flush`](Socket::flush).
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send); and [`SendErrorKind::Foreign`] when the other socket is on another
    /// UMEM.
    #[inline]
    pub fn send_on(self, socket: &mut Socket<'u>) -> std::result::Result<(), SendError<Self>> {
        if let Some(kind) = socket.cannot_send(self.umem(), self.len() as u32) {
            return Err(SendError { packet: self, kind });
        }
        // Room was looked for, so this is not refused; were it, the frame would be free.
        let _ = socket.send(self.keep());
        Ok(())
    }
}
