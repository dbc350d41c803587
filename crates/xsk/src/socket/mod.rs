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

    /// Receives up to `max` packets. It does not wait; the batch may be empty.
    ///
    /// It also reclaims completed chunks and refills FILL.
    #[inline(always)]
    pub fn recv(&mut self, max: u32) -> RxBatch<'_, 'u> {
        self.main.recv(&mut self.umem_rings, max)
    }

    /// Waits for a packet, for at most `timeout`, by spinning, polling or adaptively (see
    /// [`Wait`](crate::Wait)). Returns whether the RX ring has a packet. A signal may end the wait
    /// early.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DeviceDown`](crate::ErrorKind::DeviceDown) or [`ErrorKind::DeviceMissing`](crate::ErrorKind::DeviceMissing) when packets are pending in
    /// the TX ring and the device is down or gone.
    #[inline]
    pub fn wait(&mut self, timeout: Duration) -> Result<bool> {
        self.main.wait(&mut self.umem_rings, timeout)
    }

    /// Allocates a frame, empty, behind the UMEM's headroom; `None` when no chunk is free. It
    /// reclaims completed chunks when its cache is empty.
    #[inline]
    pub fn alloc(&mut self) -> Option<Frame<'u>> {
        self.umem_rings.alloc()
    }

    /// Puts a frame into the TX ring. The next [`flush`](Self::flush) transmits it.
    ///
    /// # Errors
    ///
    /// A [`SendError`] with the frame when the ring is full, the frame is empty or in another UMEM,
    /// or the socket has no TX ring.
    #[inline]
    pub fn send(&mut self, frame: Frame<'u>) -> std::result::Result<(), SendError<Frame<'u>>> {
        self.main.send(&mut self.umem_rings, frame)
    }

    /// The reason that a packet cannot be sent through this socket; `None` when it can.
    #[inline]
    pub(crate) fn cannot_send(&mut self, umem: &Umem, len: u32) -> Option<SendErrorKind> {
        self.umem_rings
            .cannot_send(self.main.tx.as_mut(), umem, len)
    }

    /// Free slots of the TX ring; 0 without one.
    #[inline]
    pub fn tx_room(&mut self) -> u32 {
        self.main.tx.as_mut().map_or(0, |tx| tx.free(tx.size()))
    }

    /// Publishes the TX ring to the kernel, and wakes the kernel when it asks for that. While the
    /// device is busy, packets may stay in the ring until the next call.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DeviceDown`](crate::ErrorKind::DeviceDown) or [`ErrorKind::DeviceMissing`](crate::ErrorKind::DeviceMissing); the packets stay in the ring.
    /// A packet that the kernel drops is no error; [`Statistics::send_drops`] counts it.
    #[inline]
    pub fn flush(&mut self) -> Result<()> {
        self.main.flush(&mut self.umem_rings)
    }

    /// Reclaims the chunks of sent packets from the COMPLETION ring; returns the number of entries
    /// read. [`recv`](Self::recv), [`alloc`](Self::alloc) and [`flush`](Self::flush) do so too.
    pub fn reclaim(&mut self) -> u32 {
        self.umem_rings.reclaim()
    }

    /// Sent packets whose chunks have not been reclaimed, of all sockets on the queue.
    pub fn outstanding(&self) -> u32 {
        self.umem_rings.sending()
    }

    /// Adds a sibling on the same device queue.
    pub(crate) fn push_sibling(&mut self, endpoint: Endpoint) -> SiblingId {
        self.siblings.push(endpoint);
        SiblingId(self.siblings.len() - 1)
    }

    /// Borrows a sibling of this socket, to receive and send through it; `None` when there is no
    /// such sibling. Ids count from the first for each socket, so the id from another socket may
    /// name a sibling here.
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

    /// The mode obtained, read back from the kernel.
    pub fn mode(&self) -> ModeObtained {
        self.binding.mode
    }

    /// Refusals while opening: better modes, with [`Mode::Auto`], and features that the kernel
    /// lacks.
    pub fn refusals(&self) -> &[Refusal] {
        &self.binding.refusals
    }

    /// The UMEM of the socket's packets.
    pub fn umem(&self) -> &'u Umem {
        self.umem_rings.umem()
    }

    /// Index of the device that the socket is bound to.
    pub fn ifindex(&self) -> u32 {
        self.binding.ifindex
    }

    /// The device queue that the socket is bound to.
    pub fn queue(&self) -> u32 {
        self.binding.queue
    }

    /// The built-in program, when in use. Sockets on other queues of the device share it with
    /// [`SocketBuilder::program`](crate::SocketBuilder::program).
    pub fn program(&self) -> Option<&Program> {
        self.program.as_ref()?.program.as_ref()
    }

    /// Counters of this library and of the kernel.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Os`](crate::ErrorKind::Os) when `getsockopt(XDP_STATISTICS)` fails.
    pub fn statistics(&self) -> Result<Statistics> {
        self.main.statistics(&self.umem_rings)
    }

    /// Wakes the kernel until all sent packets are reclaimed, or the time is up.
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

/// For an event loop or an XSKMAP. Do not let a duplicate outlive the socket: it keeps the kernel's
/// socket open, which then writes to chunks that others use.
impl AsFd for Socket<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.main.fd().as_fd()
    }
}

impl<'u> Packet<'_, 'u> {
    /// Forwards the packet through another socket on the same UMEM, without copying. That socket's
    /// next [`flush`](Socket::flush) transmits it.
    ///
    /// # Errors
    ///
    /// Same as [`send`](Self::send), and [`SendErrorKind::Foreign`] when the other socket is on
    /// another UMEM.
    #[inline]
    pub fn send_on(self, socket: &mut Socket<'u>) -> std::result::Result<(), SendError<Self>> {
        if let Some(kind) = socket.cannot_send(self.umem(), self.len() as u32) {
            return Err(SendError { packet: self, kind });
        }
        // There is room, so this succeeds; otherwise the frame would be freed.
        let _ = socket.send(self.keep());
        Ok(())
    }
}
