//! One AF_XDP socket: moving packets over its RX and TX rings, waking the kernel, waiting.

use super::statistics::Statistics;
use crate::batch::RxBatch;
use crate::error::{Error, ErrorKind, Result};
use crate::frame::Frame;
use crate::send_error::SendError;
use crate::umem_rings::{RxRing, TxRing, UmemRings};
use crate::wait::{Pacer, Pause, Wait};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, sockopt};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Flushes with pending packets and no wake-up request before the kernel is woken nevertheless: it
/// sets its flag without a barrier, so a request can be missed.
const PATIENT_FLUSHES: u32 = 64;

/// Interval at which a socket waiting with too few chunks in FILL tries to refill it.
const REFILL: Duration = Duration::from_millis(1);

/// Most pauses between two reads of the ring index while spinning, about a microsecond. Each read
/// takes the index's cache line from the CPU that fills the ring.
const MOST_PAUSES: u32 = 32;

/// Reads of the ring index between two reads of the clock while spinning.
const LOOKS_PER_CLOCK: u32 = 16;

/// The library's own counters of a socket.
#[derive(Debug, Default)]
struct Counters {
    received: u64,
    sent: u64,
    wakeups: u64,
    send_drops: u64,
    sleeps: u64,
}

/// One AF_XDP socket: its file descriptor, RX ring and TX ring.
#[derive(Debug)]
pub(crate) struct Endpoint {
    rx: Option<RxRing>,
    pub(crate) tx: Option<TxRing>,
    fd: Arc<OwnedFd>,
    pub(super) zero_copy: bool,
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

    pub(crate) fn wait_strategy(&self) -> Wait {
        self.wait
    }

    pub(crate) fn set_zero_copy(&mut self, zero_copy: bool) {
        self.zero_copy = zero_copy;
    }

    #[inline(always)]
    pub(super) fn recv<'s, 'u>(
        &'s mut self,
        umem_rings: &'s mut UmemRings<'u>,
        max: u32,
    ) -> RxBatch<'s, 'u> {
        umem_rings.maintain();
        let batch = RxBatch::new(self.rx.as_mut(), self.tx.as_mut(), umem_rings, max);
        self.counters.received += batch.len() as u64;
        batch
    }

    #[inline]
    pub(super) fn send<'u>(
        &mut self,
        umem_rings: &mut UmemRings<'u>,
        frame: Frame<'u>,
    ) -> std::result::Result<(), SendError<Frame<'u>>> {
        umem_rings.send(self.tx.as_mut(), frame)
    }

    /// Published packets that the kernel has not consumed.
    pub(super) fn pending(&mut self) -> u32 {
        self.tx.as_mut().map_or(0, TxRing::pending)
    }

    pub(super) fn flush(&mut self, umem_rings: &mut UmemRings<'_>) -> Result<()> {
        let Some(tx) = self.tx.as_mut() else {
            return Ok(());
        };
        self.counters.sent += u64::from(tx.staged());
        tx.publish();
        if tx.pending() > 0 && self.is_kick_due() {
            self.kick(umem_rings)?;
        }
        // A program that only forwards to this socket neither receives nor allocates from it, so
        // nothing else would reclaim its chunks.
        if umem_rings.sending() > 0 {
            umem_rings.reclaim();
        }
        Ok(())
    }

    /// Whether the kernel asks for a wake-up, or a request may have been missed.
    fn is_kick_due(&mut self) -> bool {
        let asked = self.tx.as_ref().is_some_and(TxRing::needs_wakeup);
        self.patient += 1;
        let due = asked || self.patient >= PATIENT_FLUSHES;
        if due {
            self.patient = 0;
        }
        due
    }

    /// Wakes the kernel until it has consumed the TX ring or makes no progress. In copy mode the
    /// call transmits, a limited number of packets each time.
    pub(super) fn kick(&mut self, umem_rings: &mut UmemRings<'_>) -> Result<()> {
        loop {
            let before = self.pending();
            self.counters.wakeups += 1;
            match rustix::net::send(&*self.fd, &[], SendFlags::DONTWAIT) {
                Ok(_) | Err(Errno::INTR) => {}
                // The kernel dropped one packet, and completed it.
                Err(Errno::BUSY) => self.counters.send_drops += 1,
                // The call's budget is used up, or COMPLETION or the device's queue is full:
                // reclaiming makes room.
                Err(Errno::AGAIN | Errno::NOBUFS) => {
                    umem_rings.reclaim();
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
    pub(super) fn wait(
        &mut self,
        umem_rings: &mut UmemRings<'_>,
        timeout: Duration,
    ) -> Result<bool> {
        if self.has_packets() {
            return Ok(true);
        }
        self.wait_empty(umem_rings, timeout)
    }

    /// Waits, and refills FILL at intervals while chunks for receiving are missing: other threads
    /// may free some, and no packet arrives on an empty FILL ring.
    fn wait_empty(&mut self, umem_rings: &mut UmemRings<'_>, timeout: Duration) -> Result<bool> {
        let start = Instant::now();
        loop {
            umem_rings.maintain();
            let left = timeout.saturating_sub(start.elapsed());
            if !umem_rings.starves() {
                return self.wait_once(umem_rings, left);
            }
            if self.wait_once(umem_rings, left.min(REFILL))? || left <= REFILL {
                return Ok(self.has_packets());
            }
        }
    }

    fn wait_once(&mut self, umem_rings: &mut UmemRings<'_>, timeout: Duration) -> Result<bool> {
        if umem_rings.fill_needs_wakeup() {
            self.counters.wakeups += 1;
            // The call itself is the wake-up; its result does not matter.
            let mut nothing = [0_u8; 0];
            let _ = rustix::net::recv(&*self.fd, &mut nothing[..], RecvFlags::DONTWAIT);
        }
        if self.pending() > 0 {
            self.kick(umem_rings)?;
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

    pub(super) fn statistics(&self, umem_rings: &UmemRings<'_>) -> Result<Statistics> {
        let kernel = sockopt::xdp_statistics(&*self.fd)
            .map_err(|errno| Error::os(ErrorKind::Os, errno, "reading the socket's statistics"))?;
        let rx_invalid = self.rx.as_ref().map_or(0, RxRing::invalid_indices);
        let tx_invalid = self.tx.as_ref().map_or(0, TxRing::invalid_indices);
        Ok(Statistics {
            received: self.counters.received,
            sent: self.counters.sent,
            completed: umem_rings.completed(),
            invalid_descs: umem_rings.invalid_descs(),
            invalid_indices: umem_rings.invalid_indices() + rx_invalid + tx_invalid,
            wakeups: self.counters.wakeups,
            send_drops: self.counters.send_drops,
            sleeps: self.counters.sleeps,
            rx_dropped: kernel.rx_dropped,
            rx_ring_full: kernel.rx_ring_full.unwrap_or(0),
            fill_ring_empty: kernel.rx_fill_ring_empty_descs.unwrap_or(0),
            tx_invalid_descs: kernel.tx_invalid_descs,
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
