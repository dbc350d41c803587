//! Opening a socket: registration, rings, program, bind, XSKMAP.

use super::bind::{bind_error, bind_until, is_zero_copy, open_socket};
use super::rings::{map_own_rings, map_ring};
use super::{SocketBuilder, Source, TX_BUDGET};
use crate::device::{AttachMode, Device};
use crate::error::{Error, ErrorKind, Result, errno_text};
use crate::feature::{Feature, MissingFeature};
use crate::program::Program;
use crate::ring::{Consumer, Producer};
use crate::socket::{
    Binding, Endpoint, Mode, ModeObtained, Refusal, Socket, XskmapEntry, check_map,
};
use crate::sys;
use crate::umem::{AfterClose, RingsId, RingsLease};
use crate::umem_rings::UmemRings;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING,
    XdpMmapOffsets, XdpUmemReg, XdpUmemRegFlags,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

impl<'u> SocketBuilder<'u> {
    /// Opens the socket.
    ///
    /// # Errors
    ///
    /// Each message names the obstacle and the cure; see [`ErrorKind`].
    pub fn open(mut self) -> Result<Socket<'u>> {
        self.check()?;
        let device = Device::lookup(&self.device)?;
        self.check_device(&device)?;
        if let Source::Map(map) = &self.source {
            check_map(map.as_fd(), self.queue)?;
        }
        let lease = RingsLease::new(self.umem)?;
        let source = std::mem::replace(&mut self.source, Source::BuiltIn);
        let opening = Opening {
            device: &device,
            refusals: Vec::new(),
            deadline: deadline(self.busy_timeout),
            config: self,
        };
        opening.open(lease, &source).map_err(|error| {
            let name = &device.name;
            error.context(name)
        })
    }
}

/// The end of a timeout; one that the clock cannot represent ends in a year.
fn deadline(timeout: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 86_400);
    let now = Instant::now();
    now.checked_add(timeout).unwrap_or(now + YEAR)
}

/// A socket being opened.
struct Opening<'d, 'u> {
    config: SocketBuilder<'u>,
    device: &'d Device,
    refusals: Vec<Refusal>,
    deadline: Instant,
}

impl<'u> Opening<'_, 'u> {
    fn open(mut self, mut lease: RingsLease<'u>, source: &Source) -> Result<Socket<'u>> {
        let fd = Arc::new(open_socket()?);
        let lender = self.lender();
        if lender.is_none() {
            self.register(fd.as_fd())?;
        }
        let offsets = self.config.set_ring_sizes(fd.as_fd())?;
        let mut umem_rings = self.umem_rings(fd.as_fd(), &offsets, lease.id())?;
        let (rx, tx) = map_own_rings(
            fd.as_fd(),
            &offsets,
            self.config.rx_ring,
            self.config.tx_ring,
        )?;
        self.set_budget(fd.as_fd())?;
        // Before the bind, in which some drivers take their first chunks.
        umem_rings.maintain();
        let program = self.attach(source)?;
        let zero_copy = self.bind_best(fd.as_fd(), lender.as_ref(), program.as_ref())?;
        drop(lender);
        if zero_copy {
            // From here on the device may hold chunks, also when a later step fails.
            lease.set_after_close(AfterClose::MayTouchAll);
        }
        let mut main = Endpoint::new(fd, rx, tx, self.config.rx_ring, self.config.wait);
        main.set_zero_copy(zero_copy);
        let mode = self.obtained(zero_copy, program.as_ref());
        self.expect_attach_mode(mode)?;
        let entry = self.install(main.fd().as_fd(), source, program.as_ref())?;
        self.config
            .umem
            .registry()
            .sockets
            .push(Arc::downgrade(main.fd()));
        let binding = Binding {
            mode,
            refusals: self.refusals,
            ifindex: self.device.index,
            queue: self.config.queue,
        };
        Ok(Socket::assemble(entry, main, umem_rings, lease, binding))
    }

    /// A bound socket on the same UMEM, whose registration this one can share.
    fn lender(&self) -> Option<Arc<OwnedFd>> {
        let mut registry = self.config.umem.registry();
        registry.sockets.retain(|socket| socket.strong_count() > 0);
        registry.sockets.iter().find_map(std::sync::Weak::upgrade)
    }

    /// Registers the UMEM, waiting while one that was just closed still counts against the memory
    /// lock limit.
    fn register(&self, fd: BorrowedFd<'_>) -> Result<()> {
        let (addr, len) = self.config.umem.region();
        let umem = XdpUmemReg {
            addr,
            len,
            chunk_size: self.config.umem.chunk_size(),
            headroom: self.config.umem.headroom(),
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
        let fits = limit.is_none_or(|limit| len <= limit);
        loop {
            match sockopt::set_xdp_umem_reg(fd, umem) {
                Ok(()) => return Ok(()),
                Err(Errno::NOBUFS) if fits && Instant::now() < self.deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(errno) => return Err(register_error(errno, len, limit)),
            }
        }
    }

    fn umem_rings(
        &self,
        fd: BorrowedFd<'_>,
        offsets: &XdpMmapOffsets,
        id: RingsId,
    ) -> Result<UmemRings<'u>> {
        let config = &self.config;
        let fill = map_ring(
            fd,
            "FILL",
            XDP_UMEM_PGOFF_FILL_RING,
            &offsets.fr,
            config.fill_ring,
        )?;
        let completion = map_ring(
            fd,
            "COMPLETION",
            XDP_UMEM_PGOFF_COMPLETION_RING,
            &offsets.cr,
            config.completion_ring,
        )?;
        let (fill, completion) = (Producer::new(fill), Consumer::new(completion));
        Ok(UmemRings::new(
            config.umem,
            id,
            fill,
            completion,
            config.fill_target(),
        ))
    }

    fn set_budget(&mut self, fd: BorrowedFd<'_>) -> Result<()> {
        let asked = self.config.tx_budget;
        let budget = asked.unwrap_or(TX_BUDGET.min(self.config.tx_ring));
        if budget < 32 {
            return Ok(());
        }
        match (sys::set_tx_budget(fd, budget), asked) {
            (Ok(()), _) | (Err(_), None) => Ok(()),
            (Err(errno @ Errno::NOPROTOOPT), Some(_)) => {
                let why = errno_text(errno);
                self.refusals.push(Refusal::Feature(MissingFeature {
                    feature: Feature::TxBudget,
                    why,
                }));
                Ok(())
            }
            (Err(errno), Some(budget)) => {
                let message = format!("setting the TX budget to {budget}");
                Err(Error::os(ErrorKind::Os, errno, message))
            }
        }
    }

    /// Attaches the built-in program, unless the caller has one or the socket only sends.
    fn attach(&mut self, source: &Source) -> Result<Option<Program>> {
        match source {
            Source::Map(_) => Ok(None),
            Source::Shared(program) if program.ifindex() == self.device.index => {
                Ok(Some(program.clone()))
            }
            Source::Shared(program) => Err(Error::new(
                ErrorKind::Foreign,
                format!(
                    "the program to share is on another device (index {}): leave `program` out",
                    program.ifindex()
                ),
            )),
            Source::BuiltIn if self.config.rx_ring == 0 => Ok(None),
            Source::BuiltIn => self.attach_best().map(Some),
        }
    }

    fn attach_best(&mut self) -> Result<Program> {
        let patience = || self.deadline.saturating_duration_since(Instant::now());
        let (device, mode) = (self.device, self.config.mode);
        if mode == Mode::Skb {
            return Program::attach(device, AttachMode::Skb, patience());
        }
        match Program::attach(device, AttachMode::Driver, patience()) {
            Err(error) if mode == Mode::Auto && is_about_mode(&error) => {
                let program = Program::attach(device, AttachMode::Skb, patience())?;
                self.refusals.push(Refusal::Mode(Mode::Driver, error));
                Ok(program)
            }
            result => result,
        }
    }

    /// Binds in the best mode requested; returns whether it is zero-copy.
    fn bind_best(
        &mut self,
        fd: BorrowedFd<'_>,
        lender: Option<&Arc<OwnedFd>>,
        program: Option<&Program>,
    ) -> Result<bool> {
        if let Some(lender) = lender {
            self.bind(fd, SocketAddrXdpFlags::XDP_SHARED_UMEM, lender.as_fd())?;
            return self.expect_mode(fd);
        }
        let native = program.is_none_or(|program| program.mode() == AttachMode::Driver);
        let attempts: &[(Mode, SocketAddrXdpFlags)] = match self.config.mode {
            Mode::Auto if native => &[
                (Mode::ZeroCopy, SocketAddrXdpFlags::XDP_ZEROCOPY),
                (Mode::Driver, SocketAddrXdpFlags::XDP_COPY),
            ],
            Mode::ZeroCopy => &[(Mode::ZeroCopy, SocketAddrXdpFlags::XDP_ZEROCOPY)],
            _ => &[(Mode::Driver, SocketAddrXdpFlags::XDP_COPY)],
        };
        let wakeup = if self.config.need_wakeup {
            SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP
        } else {
            SocketAddrXdpFlags::empty()
        };
        let (last, better) = attempts.split_last().expect("each mode has an attempt");
        for &(mode, flags) in better {
            match self.bind(fd, flags | wakeup, fd) {
                Ok(()) => return self.expect_mode(fd),
                // EBUSY can also mean that another UMEM occupies the queue for zero-copy alone; if
                // the queue itself is taken, the next attempt fails too.
                Err(error) if is_about_mode(&error) || error.kind() == ErrorKind::QueueBusy => {
                    self.refusals.push(Refusal::Mode(mode, error));
                }
                Err(error) => return Err(error),
            }
        }
        self.bind(fd, last.1 | wakeup, fd)?;
        self.expect_mode(fd)
    }

    fn bind(
        &self,
        fd: BorrowedFd<'_>,
        flags: SocketAddrXdpFlags,
        lender: BorrowedFd<'_>,
    ) -> Result<()> {
        let addr = SocketAddrXdp::new(flags, self.device.index, self.config.queue);
        bind_until(fd, &addr, lender, self.deadline)
            .map_err(|errno| bind_error(errno, flags, self.device, self.config.queue))
    }

    /// Reads the mode back; with a shared UMEM it is the mode of the first socket.
    fn expect_mode(&self, fd: BorrowedFd<'_>) -> Result<bool> {
        let zero_copy = is_zero_copy(fd)?;
        match (self.config.mode, zero_copy) {
            (Mode::ZeroCopy, false) | (Mode::Skb | Mode::Driver, true) => Err(Error::new(
                ErrorKind::ModeRefused,
                "a socket that shares a UMEM has the mode of the first one on it: open both in the same mode, or give this one a UMEM of its own",
            )),
            _ => Ok(zero_copy),
        }
    }

    fn obtained(&self, zero_copy: bool, program: Option<&Program>) -> ModeObtained {
        if zero_copy {
            return ModeObtained::ZeroCopy;
        }
        let of_others = || self.device.programs.first().map(|program| program.mode);
        match program.map(Program::mode).or_else(of_others) {
            Some(AttachMode::Skb) => ModeObtained::Skb,
            Some(AttachMode::Driver | AttachMode::Hardware) => ModeObtained::Driver,
            None => ModeObtained::Copy,
        }
    }

    /// Checks the mode of a shared program or the caller's, which was attached before.
    fn expect_attach_mode(&self, mode: ModeObtained) -> Result<()> {
        let runs = match (self.config.mode, mode) {
            (Mode::Skb, ModeObtained::Driver) => "native (driver)",
            (Mode::Driver, ModeObtained::Skb) => "generic (skb)",
            _ => return Ok(()),
        };
        let message = format!(
            "the XDP program runs as {runs} XDP: request that mode, or attach the program in the other"
        );
        Err(Error::new(ErrorKind::ModeRefused, message))
    }

    /// Inserts the socket into the program's XSKMAP.
    fn install(
        &self,
        fd: BorrowedFd<'_>,
        source: &Source,
        program: Option<&Program>,
    ) -> Result<Option<XskmapEntry>> {
        let queue = self.config.queue;
        let error = |errno| {
            let message = format!("inserting the socket into slot {queue} of the XSKMAP");
            Error::os(ErrorKind::Os, errno, message)
        };
        let map = match (source, program) {
            (Source::Map(map), _) => map.as_fd(),
            (_, Some(program)) => {
                // Queues may have been added since a shared program was attached.
                check_map(program.map(), queue)?;
                program.map()
            }
            (_, None) => return Ok(None),
        };
        XskmapEntry::new(map, queue, fd, program.cloned())
            .map(Some)
            .map_err(error)
    }
}

fn register_error(errno: Errno, len: u64, limit: Option<u64>) -> Error {
    match errno {
        Errno::NOBUFS => {
            let limit = limit.map_or("unlimited".to_owned(), |limit| format!("{limit} bytes"));
            let message = format!(
                "the memory lock limit ({limit}, over all processes of this user) does not allow a UMEM of {len} bytes: raise it with `ulimit -l` or LimitMEMLOCK=, grant CAP_IPC_LOCK, or ask for fewer chunks"
            );
            Error::os(ErrorKind::MemoryLock, errno, message)
        }
        Errno::NOMEM => Error::os(
            ErrorKind::OutOfMemory,
            errno,
            format!("no memory to register a UMEM of {len} bytes"),
        ),
        _ => Error::os(
            ErrorKind::Os,
            errno,
            format!("registering a UMEM of {len} bytes"),
        ),
    }
}

/// Whether the mode caused the error, so that a lesser mode may succeed.
fn is_about_mode(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ModeRefused | ErrorKind::MtuTooLarge
    )
}
