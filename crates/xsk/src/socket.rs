//! AF_XDP sockets: receiving, sending, waiting, and closing in order.

use crate::batch::RxBatch;
use crate::builder::{Lease, SocketBuilder};
use crate::error::{Error, ErrorKind, Result};
use crate::features::Missing;
use crate::frame::{Frame, Refused};
use crate::program::Program;
use crate::queue::{Queue, RxRing, TxRing};
use crate::umem::{AfterClose, Umem};
use crate::wait::{Pacer, Pause, Wait};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, sockopt};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest time that closing a socket waits for packets on their way out.
const DRAIN: Duration = Duration::from_millis(100);

/// Flushes that may find work pending and no wake-up asked for before one is made all the same;
/// the kernel sets its flag without a barrier, so one could be missed.
const PATIENT_FLUSHES: u32 = 64;

/// How often a socket that waits with too few chunks in FILL looks for free ones.
const REFILL: Duration = Duration::from_millis(1);

/// Most pauses between two looks at the ring while spinning, about a microsecond. Each look takes
/// the index's cache line from the CPU that fills the ring, and slows it.
const MOST_PAUSES: u32 = 32;

/// Looks at the ring between looks at the clock while spinning.
const LOOKS_PER_CLOCK: u32 = 16;

/// The mode asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Mode {
    /// Zero-copy when the driver can, else native XDP with a copy, else generic XDP.
    #[default]
    Auto,
    /// Generic XDP with a copy. Any device.
    Skb,
    /// Native XDP with a copy. (A socket that only sends has no program, and one copy mode.)
    Driver,
    /// Native XDP, packets put straight into the UMEM by the device.
    ZeroCopy,
}

/// The mode that a socket got, as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModeObtained {
    /// Generic XDP with a copy.
    Skb,
    /// Native XDP with a copy.
    Driver,
    /// Native XDP without a copy.
    ZeroCopy,
    /// A copy, and no XDP program on the device: the socket sends only, until there is one.
    Copy,
}

impl fmt::Display for ModeObtained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Skb => "skb",
            Self::Driver => "drv",
            Self::ZeroCopy => "zc",
            Self::Copy => "copy",
        })
    }
}

/// A better mode that was tried and refused, or a setting that the kernel could not take.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Refusal {
    /// The mode, and the error with its errno and reason.
    Mode(Mode, Error),
    /// A feature that was to be used.
    Feature(Missing),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mode(mode, error) => write!(f, "{mode:?} refused: {error}"),
            Self::Feature(missing) => missing.fmt(f),
        }
    }
}

/// What has happened on a socket since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Statistics {
    /// Packets taken from the RX ring.
    pub received: u64,
    /// Packets put into the TX ring.
    pub sent: u64,
    /// Chunks that came back from sending, over all sockets on the queue. Completed does not
    /// mean delivered.
    pub completed: u64,
    /// Descriptors and completions that named no chunk lent to this queue.
    pub refused: u64,
    /// Times that a ring index written by the kernel was impossible.
    pub hostile: u64,
    /// System calls that woke the kernel for sending or for FILL.
    pub wakeups: u64,
    /// Of those, the ones where the kernel dropped a packet: the peer is down or full, or the
    /// packet is larger than the MTU.
    pub send_drops: u64,
    /// Times that the thread slept for packets.
    pub sleeps: u64,
    /// The kernel's: packets dropped because FILL was empty or they were larger than a chunk has
    /// room for. Together with `rx_ring_full` all that the socket dropped.
    pub rx_dropped: u64,
    /// The kernel's: packets dropped because the RX ring was full.
    pub rx_ring_full: u64,
    /// The kernel's: times that it found FILL empty; the packets are in `rx_dropped` too.
    pub fill_ring_empty: u64,
    /// The kernel's: TX descriptors that it found invalid.
    pub tx_invalid: u64,
    /// The kernel's: times that it looked into TX and found nothing.
    pub tx_ring_empty: u64,
}

/// What a socket itself counts.
#[derive(Debug, Default)]
struct Counters {
    received: u64,
    sent: u64,
    wakeups: u64,
    send_drops: u64,
    sleeps: u64,
}

/// One AF_XDP socket of a queue: its RX and TX rings.
#[derive(Debug)]
pub(crate) struct Endpoint {
    rx: Option<RxRing>,
    pub(crate) tx: Option<TxRing>,
    fd: Arc<OwnedFd>,
    zero_copy: bool,
    wait: Wait,
    pacer: Pacer,
    patient: u32,
    counters: Counters,
}

impl Endpoint {
    pub(crate) fn new(
        fd: Arc<OwnedFd>,
        rx: Option<RxRing>,
        tx: Option<TxRing>,
        rx_size: u32,
        wait: Wait,
    ) -> Self {
        let max_delay = match wait {
            Wait::Adaptive { max_delay } => max_delay,
            Wait::Spin | Wait::Poll => Duration::ZERO,
        };
        Self {
            rx,
            tx,
            fd,
            zero_copy: false,
            wait,
            pacer: Pacer::new(max_delay, rx_size),
            patient: 0,
            counters: Counters::default(),
        }
    }

    pub(crate) fn fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }

    pub(crate) fn set_zero_copy(&mut self, zero_copy: bool) {
        self.zero_copy = zero_copy;
    }

    #[inline(always)]
    fn recv<'s, 'u>(&'s mut self, queue: &'s mut Queue<'u>, max: u32) -> RxBatch<'s, 'u> {
        queue.maintain();
        let batch = RxBatch::new(self.rx.as_mut(), self.tx.as_mut(), queue, max);
        self.counters.received += batch.len() as u64;
        batch
    }

    #[inline]
    fn send<'u>(
        &mut self,
        queue: &mut Queue<'u>,
        frame: Frame<'u>,
    ) -> std::result::Result<(), Refused<Frame<'u>>> {
        queue.send(self.tx.as_mut(), frame)
    }

    /// Packets in the TX ring that the kernel has not taken.
    fn pending(&mut self) -> u32 {
        self.tx.as_mut().map_or(0, TxRing::pending)
    }

    fn flush(&mut self, queue: &mut Queue<'_>) -> Result<()> {
        let Some(tx) = self.tx.as_mut() else {
            return Ok(());
        };
        self.counters.sent += u64::from(tx.staged());
        tx.publish();
        if tx.pending() > 0 && self.is_kick_due() {
            self.kick(queue)?;
        }
        // A program that only forwards to this socket neither receives nor allocates from it, so
        // nothing else would take its chunks back.
        if queue.sending() > 0 {
            queue.reclaim();
        }
        Ok(())
    }

    /// Whether the kernel asks for a wake-up, or has not for so long that a request may have
    /// been missed.
    fn is_kick_due(&mut self) -> bool {
        let asked = self.tx.as_ref().is_some_and(TxRing::needs_wakeup);
        self.patient += 1;
        let due = asked || self.patient >= PATIENT_FLUSHES;
        if due {
            self.patient = 0;
        }
        due
    }

    /// Wakes the kernel until it has taken everything or makes no progress. In copy mode the
    /// call does the sending, a limited number of packets each time.
    fn kick(&mut self, queue: &mut Queue<'_>) -> Result<()> {
        loop {
            let before = self.pending();
            self.counters.wakeups += 1;
            match rustix::net::send(&*self.fd, &[], SendFlags::DONTWAIT) {
                Ok(_) | Err(Errno::INTR) => {}
                // The kernel dropped one packet, and completed it.
                Err(Errno::BUSY) => self.counters.send_drops += 1,
                // The call's budget is used up, the COMPLETION ring is full, or the device's
                // queue is: what can be done here is to make room.
                Err(Errno::AGAIN | Errno::NOBUFS) => {
                    queue.reclaim();
                }
                Err(errno) => return Err(send_error(errno)),
            }
            let after = self.pending();
            if after == 0 || after >= before || self.zero_copy {
                return Ok(());
            }
        }
    }

    #[inline]
    fn has_packets(&mut self) -> bool {
        self.rx.as_mut().is_some_and(|rx| rx.available(1) > 0)
    }

    #[inline]
    fn wait(&mut self, queue: &mut Queue<'_>, timeout: Duration) -> Result<bool> {
        if self.has_packets() {
            return Ok(true);
        }
        self.wait_empty(queue, timeout)
    }

    /// Waits, and while chunks are missing for receiving looks for them now and then: other
    /// threads may give some back, and without any no packet comes.
    fn wait_empty(&mut self, queue: &mut Queue<'_>, timeout: Duration) -> Result<bool> {
        let start = Instant::now();
        loop {
            queue.maintain();
            let left = timeout.saturating_sub(start.elapsed());
            if !queue.starves() {
                return self.wait_once(queue, left);
            }
            if self.wait_once(queue, left.min(REFILL))? || left <= REFILL {
                return Ok(self.has_packets());
            }
        }
    }

    fn wait_once(&mut self, queue: &mut Queue<'_>, timeout: Duration) -> Result<bool> {
        if queue.fill_needs_wakeup() {
            self.counters.wakeups += 1;
            // Any answer will do: the call itself is the message.
            let mut nothing = [0_u8; 0];
            let _ = rustix::net::recv(&*self.fd, &mut nothing[..], RecvFlags::DONTWAIT);
        }
        if self.pending() > 0 {
            self.kick(queue)?;
        }
        let start = Instant::now();
        let pause = match self.wait {
            Wait::Spin => Pause::Spin,
            Wait::Poll => Pause::Block,
            Wait::Adaptive { .. } => self.pacer.pause(self.counters.received, start),
        };
        match pause {
            Pause::Spin => Ok(self.spin(start, timeout)),
            Pause::Block => self.block(timeout),
            Pause::Gather(delay) => {
                self.counters.sleeps += 1;
                std::thread::sleep(delay.min(timeout));
                match timeout.saturating_sub(start.elapsed()) {
                    _ if self.has_packets() => Ok(true),
                    Duration::ZERO => Ok(false),
                    rest => self.block(rest),
                }
            }
        }
    }

    fn spin(&mut self, start: Instant, timeout: Duration) -> bool {
        let mut pauses = 1;
        loop {
            for _ in 0..LOOKS_PER_CLOCK {
                if self.has_packets() {
                    return true;
                }
                for _ in 0..pauses {
                    std::hint::spin_loop();
                }
                pauses = MOST_PAUSES.min(pauses * 2);
            }
            if start.elapsed() >= timeout {
                return false;
            }
        }
    }

    fn block(&mut self, timeout: Duration) -> Result<bool> {
        self.counters.sleeps += 1;
        let mut fds = [PollFd::new(&*self.fd, PollFlags::IN)];
        let timeout = Timespec::try_from(timeout).ok();
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(self.has_packets()),
            Err(errno) => Err(Error::os(ErrorKind::Os, errno, "waiting for packets")),
        }
    }

    fn statistics(&self, queue: &Queue<'_>) -> Result<Statistics> {
        let kernel = sockopt::xdp_statistics(&*self.fd)
            .map_err(|errno| Error::os(ErrorKind::Os, errno, "reading the socket's statistics"))?;
        let rx_hostile = self.rx.as_ref().map_or(0, RxRing::hostile);
        let tx_hostile = self.tx.as_ref().map_or(0, TxRing::hostile);
        Ok(Statistics {
            received: self.counters.received,
            sent: self.counters.sent,
            completed: queue.completed(),
            refused: queue.refused(),
            hostile: queue.hostile() + rx_hostile + tx_hostile,
            wakeups: self.counters.wakeups,
            send_drops: self.counters.send_drops,
            sleeps: self.counters.sleeps,
            rx_dropped: kernel.rx_dropped,
            rx_ring_full: kernel.rx_ring_full.unwrap_or(0),
            fill_ring_empty: kernel.rx_fill_ring_empty_descs.unwrap_or(0),
            tx_invalid: kernel.tx_invalid_descs,
            tx_ring_empty: kernel.tx_ring_empty_descs.unwrap_or(0),
        })
    }
}

fn send_error(errno: Errno) -> Error {
    match errno {
        Errno::NETDOWN => Error::os(
            ErrorKind::DeviceDown,
            errno,
            "the device was set down: set it up again with `ip link set dev NAME up`",
        ),
        Errno::NXIO | Errno::NODEV => Error::os(
            ErrorKind::DeviceMissing,
            errno,
            "the device is gone or was moved to another network namespace: close the socket and open another",
        ),
        _ => Error::os(ErrorKind::Os, errno, "sending"),
    }
}

/// An AF_XDP socket bound to one queue of a network device.
///
/// It is used by one thread at a time: it can move to another thread, but not be shared.
/// Dropping it stops the packets, waits a moment for those on their way out, and gives every
/// chunk back to the UMEM. What was put into TX and not flushed is not sent.
#[derive(Debug)]
pub struct Socket<'u> {
    // Dropped in this order: the program first, so that packets stop; then rings and sockets. The
    // kernel's socket ends with the last of them, since mappings pin it, and the FILL and
    // COMPLETION rings are in `queue`. The lease, which frees the chunks, comes after all.
    program: Option<Installed>,
    pub(crate) main: Endpoint,
    siblings: Vec<Endpoint>,
    pub(crate) queue: Queue<'u>,
    lease: Lease<'u>,
    facts: Facts,
}

/// What was found out while opening.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) mode: ModeObtained,
    pub(crate) refusals: Vec<Refusal>,
    pub(crate) ifindex: u32,
    pub(crate) queue: u32,
}

/// The socket's entry in an XSKMAP; emptied when dropped.
#[derive(Debug)]
pub(crate) struct Installed {
    map: OwnedFd,
    queue: u32,
    /// Keeps the built-in program attached while a socket uses it.
    program: Option<Program>,
}

impl Installed {
    /// Puts `socket` into slot `queue` of `map`.
    pub(crate) fn new(
        map: BorrowedFd<'_>,
        queue: u32,
        socket: BorrowedFd<'_>,
        program: Option<Program>,
    ) -> std::result::Result<Self, Errno> {
        let map = rustix::io::fcntl_dupfd_cloexec(map, 0)?;
        crate::sys::xskmap_insert(map.as_fd(), queue, socket)?;
        Ok(Self {
            map,
            queue,
            program,
        })
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        // Nothing to do about an error: the kernel removes a closed socket's entry itself.
        let _ = crate::sys::xskmap_remove(self.map.as_fd(), self.queue);
    }
}

impl<'u> Socket<'u> {
    /// A builder for a socket on queue `queue` of `device`, with packets in `umem`.
    pub fn builder(umem: &'u Umem, device: &str, queue: u32) -> SocketBuilder<'u> {
        SocketBuilder::new(umem, device, queue)
    }

    pub(crate) fn assemble(
        program: Option<Installed>,
        main: Endpoint,
        queue: Queue<'u>,
        lease: Lease<'u>,
        facts: Facts,
    ) -> Self {
        Self {
            program,
            main,
            siblings: Vec::new(),
            queue,
            lease,
            facts,
        }
    }

    /// Takes up to `max` packets that have arrived. Never waits; the batch may be empty.
    ///
    /// Completed chunks are taken back and FILL is topped up on the way.
    #[inline(always)]
    pub fn recv(&mut self, max: u32) -> RxBatch<'_, 'u> {
        self.main.recv(&mut self.queue, max)
    }

    /// Waits in the socket's way (see [`Wait`]) until a packet is there or `timeout` is over,
    /// and tells which: true for a packet. A signal may end the wait early.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DeviceDown`] or [`ErrorKind::DeviceMissing`] when packets are waiting to be
    /// sent and the device is down or gone.
    #[inline]
    pub fn wait(&mut self, timeout: Duration) -> Result<bool> {
        self.main.wait(&mut self.queue, timeout)
    }

    /// A free frame, empty, behind the UMEM's headroom; none when all are in use. Completed
    /// chunks are taken back on the way.
    #[inline]
    pub fn alloc(&mut self) -> Option<Frame<'u>> {
        self.queue.alloc()
    }

    /// Puts a frame into the TX ring. It leaves at the next [`flush`](Self::flush).
    ///
    /// # Errors
    ///
    /// The frame comes back when the ring is full, the frame is of another UMEM or empty, or
    /// the socket has no TX ring.
    #[inline]
    pub fn send(&mut self, frame: Frame<'u>) -> std::result::Result<(), Refused<Frame<'u>>> {
        self.main.send(&mut self.queue, frame)
    }

    /// Why a packet cannot be sent from this socket, if it cannot.
    #[inline]
    pub(crate) fn cannot_send(&mut self, umem: &Umem, len: u32) -> Option<crate::Reason> {
        self.queue.cannot_send(self.main.tx.as_mut(), umem, len)
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
    /// [`ErrorKind::DeviceDown`] or [`ErrorKind::DeviceMissing`]; the packets stay in the ring.
    /// A packet that the kernel drops is no error but counted, in
    /// [`Statistics::send_drops`].
    #[inline]
    pub fn flush(&mut self) -> Result<()> {
        self.main.flush(&mut self.queue)
    }

    /// Takes back what the kernel has sent, and tells how many that were. [`recv`](Self::recv)
    /// and [`alloc`](Self::alloc) do so when they need to.
    pub fn reclaim(&mut self) -> u32 {
        self.queue.reclaim()
    }

    /// Packets that were put into TX and whose chunks have not come back, over all sockets on
    /// the queue.
    pub fn outstanding(&self) -> u32 {
        self.queue.sending()
    }

    /// Opens a second AF_XDP socket on the same queue, with RX and TX rings of its own and
    /// FILL and COMPLETION in common. The XDP program decides which one a packet goes to, by
    /// the XSKMAP slot that the caller puts [`Port::as_fd`] into.
    ///
    /// # Errors
    ///
    /// As [`SocketBuilder::open`].
    pub fn add_sibling(&mut self, rx_ring: u32, tx_ring: u32) -> Result<SiblingId> {
        let facts = &self.facts;
        let sibling =
            crate::builder::open_sibling(&self.main, facts, rx_ring, tx_ring, self.main.wait)?;
        self.siblings.push(sibling);
        Ok(SiblingId(self.siblings.len() - 1))
    }

    /// A sibling of this socket, to receive and send through; none when it has no such one. Ids
    /// count from the first for each socket, so one of another socket may name a sibling here.
    pub fn sibling(&mut self, id: SiblingId) -> Option<Port<'_, 'u>> {
        let endpoint = self.siblings.get_mut(id.0)?;
        Some(Port {
            endpoint,
            queue: &mut self.queue,
        })
    }

    /// The mode that the socket got.
    pub fn mode(&self) -> ModeObtained {
        self.facts.mode
    }

    /// What was refused on the way: better modes with [`Mode::Auto`], and features that the
    /// kernel lacks.
    pub fn refusals(&self) -> &[Refusal] {
        &self.facts.refusals
    }

    /// The UMEM that the socket's packets are in.
    pub fn umem(&self) -> &'u Umem {
        self.queue.umem()
    }

    /// Index of the device that the socket is bound to.
    pub fn ifindex(&self) -> u32 {
        self.facts.ifindex
    }

    /// The queue that the socket is bound to.
    pub fn queue(&self) -> u32 {
        self.facts.queue
    }

    /// The built-in program, when it is in use; sockets on other queues of the device share it
    /// (see [`SocketBuilder::program`]).
    pub fn program(&self) -> Option<&Program> {
        self.program.as_ref()?.program.as_ref()
    }

    /// Counters of the kernel and of this library.
    ///
    /// # Errors
    ///
    /// When the kernel does not answer.
    pub fn statistics(&self) -> Result<Statistics> {
        self.main.statistics(&self.queue)
    }

    /// Wakes the kernel until what was sent has come back, or time is up.
    fn drain(&mut self) {
        let deadline = Instant::now() + DRAIN;
        loop {
            self.queue.reclaim();
            let waiting = self.pending() + self.being_sent();
            if waiting == 0 || Instant::now() >= deadline {
                return;
            }
            for endpoint in std::iter::once(&mut self.main).chain(&mut self.siblings) {
                let pending = endpoint.pending();
                if pending > 0 && endpoint.kick(&mut self.queue).is_err() {
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
        self.queue.sending().saturating_sub(in_rings)
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
        self.lease.ends(after);
    }
}

/// For an event loop, or an XSKMAP. A duplicate must not outlive the socket: it would keep the
/// kernel's side alive, which then writes to chunks that others use.
impl AsFd for Socket<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.main.fd.as_fd()
    }
}

/// Names a sibling among those of one socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SiblingId(usize);

/// A sibling socket, borrowed from the [`Socket`] whose queue it shares.
#[derive(Debug)]
pub struct Port<'s, 'u> {
    endpoint: &'s mut Endpoint,
    queue: &'s mut Queue<'u>,
}

impl<'u> Port<'_, 'u> {
    /// As [`Socket::recv`].
    pub fn recv(&mut self, max: u32) -> RxBatch<'_, 'u> {
        self.endpoint.recv(self.queue, max)
    }

    /// As [`Socket::wait`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool> {
        self.endpoint.wait(self.queue, timeout)
    }

    /// As [`Socket::send`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn send(&mut self, frame: Frame<'u>) -> std::result::Result<(), Refused<Frame<'u>>> {
        self.endpoint.send(self.queue, frame)
    }

    /// As [`Socket::flush`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn flush(&mut self) -> Result<()> {
        self.endpoint.flush(self.queue)
    }

    /// As [`Socket::statistics`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn statistics(&self) -> Result<Statistics> {
        self.endpoint.statistics(self.queue)
    }
}

/// For the XSKMAP slot that the program redirects to. Take it out of there before the socket is
/// dropped; and as for [`Socket`], no duplicate must outlive it.
impl AsFd for Port<'_, '_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.endpoint.fd.as_fd()
    }
}
