//! Opening a socket: checks, registration, rings, program, bind.

use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::features::{Feature, Missing, open_socket};
use crate::program::{AttachMode, Program};
use crate::queue::{Queue, RxRing, TxRing};
use crate::ring::{Consumer, Mapped, Offsets, Producer, Slot};
use crate::socket::{Endpoint, Facts, Installed, Mode, ModeObtained, Refusal, Socket};
use crate::sys::{self, Mapping};
use crate::umem::{AfterClose, QueueId, Umem};
use crate::wait::Wait;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING,
    XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpMmapOffsets,
    XdpOptionsFlags, XdpRingOffset, XdpUmemReg, XdpUmemRegFlags,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most slots in a ring; more would be gigabytes of chunks in flight.
const MAX_RING: u32 = 1 << 20;

/// Bytes of a link header with one VLAN tag, which an MTU does not count.
const LINK_HEADER: u32 = 18;

/// The budget of a copy-mode send when nothing else was asked for and the kernel has the option.
/// The kernel's own default of 32 spends a system call on every 32 packets.
const TX_BUDGET: u32 = 256;

/// Settings of a [`Socket`], each with its default.
#[derive(Debug)]
#[must_use = "call `open` to get the socket"]
pub struct SocketBuilder<'u> {
    umem: &'u Umem,
    device: String,
    queue: u32,
    rx_ring: u32,
    tx_ring: u32,
    fill_ring: u32,
    completion_ring: u32,
    fill_frames: Option<u32>,
    mode: Mode,
    need_wakeup: bool,
    tx_budget: Option<u32>,
    wait: Wait,
    source: Source,
    busy_timeout: Duration,
}

/// Where the packets come from.
#[derive(Debug)]
enum Source {
    BuiltIn,
    Shared(Program),
    Map(OwnedFd),
}

impl<'u> SocketBuilder<'u> {
    pub(crate) fn new(umem: &'u Umem, device: &str, queue: u32) -> Self {
        Self {
            umem,
            device: device.to_owned(),
            queue,
            rx_ring: 2048,
            tx_ring: 2048,
            fill_ring: 2048,
            completion_ring: 2048,
            fill_frames: None,
            mode: Mode::Auto,
            need_wakeup: true,
            tx_budget: None,
            wait: Wait::default(),
            source: Source::BuiltIn,
            busy_timeout: Duration::from_millis(500),
        }
    }

    /// Slots of the RX ring, a power of two; 0 for a socket that only sends, which needs no
    /// program. Default 2048.
    pub fn rx_ring(mut self, slots: u32) -> Self {
        self.rx_ring = slots;
        self
    }

    /// Slots of the TX ring, a power of two; 0 for a socket that only receives. Default 2048.
    pub fn tx_ring(mut self, slots: u32) -> Self {
        self.tx_ring = slots;
        self
    }

    /// Slots of the FILL ring, a power of two. Default 2048.
    pub fn fill_ring(mut self, slots: u32) -> Self {
        self.fill_ring = slots;
        self
    }

    /// Slots of the COMPLETION ring, a power of two. Default 2048.
    pub fn completion_ring(mut self, slots: u32) -> Self {
        self.completion_ring = slots;
        self
    }

    /// Chunks that the socket keeps lent for receiving. Default: as many as FILL holds, but no
    /// more than half of the UMEM when the socket also sends, and none when it only sends.
    pub fn fill_frames(mut self, chunks: u32) -> Self {
        self.fill_frames = Some(chunks);
        self
    }

    /// The mode. Default [`Mode::Auto`]; any other is obtained or is an error. A socket that
    /// shares its UMEM with an open one has that one's choice between copy and zero-copy.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Whether the kernel says when it needs to be woken, which spares system calls. Default on.
    /// A socket that shares its UMEM with an open one has that one's setting.
    pub fn need_wakeup(mut self, on: bool) -> Self {
        self.need_wakeup = on;
        self
    }

    /// Packets that one copy-mode send may handle, 32 to the TX ring's size. A kernel without
    /// the option (before 6.17) sends 32, which [`Socket::refusals`] then says. Default 256, or
    /// the TX ring's size when that is less.
    pub fn tx_budget(mut self, packets: u32) -> Self {
        self.tx_budget = Some(packets);
        self
    }

    /// How [`Socket::wait`] waits. Default [`Wait::adaptive`].
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// Uses the program of a socket on another queue of the same device.
    pub fn program(mut self, program: &Program) -> Self {
        self.source = Source::Shared(program.clone());
        self
    }

    /// Puts the socket into the caller's XSKMAP, at the slot of its queue, and attaches no
    /// program. The caller's program must redirect packets of this device and queue only to
    /// that slot; the kernel drops others.
    pub fn map(mut self, map: OwnedFd) -> Self {
        self.source = Source::Map(map);
        self
    }

    /// How long to wait for a queue or device that the kernel has not yet released, from a
    /// socket that was closed or a process that was killed just before. Default 500 ms.
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout;
        self
    }

    /// Opens the socket.
    ///
    /// # Errors
    ///
    /// Each names what stood in the way and what to do about it; see [`ErrorKind`].
    pub fn open(mut self) -> Result<Socket<'u>> {
        self.check()?;
        let device = Device::lookup(&self.device)?;
        self.check_device(&device)?;
        if let Source::Map(map) = &self.source {
            check_map(map.as_fd(), self.queue)?;
        }
        let lease = Lease {
            id: self.umem.register_queue()?,
            umem: self.umem,
            after: AfterClose::LetGo,
        };
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

    fn check(&self) -> Result<()> {
        check_rings(self.rx_ring, self.tx_ring)?;
        check_ring("FILL", self.fill_ring, false)?;
        check_ring("COMPLETION", self.completion_ring, false)?;
        if let Some(budget) = self.tx_budget
            && !(32..=self.tx_ring).contains(&budget)
        {
            return Err(Error::invalid(format!(
                "a TX budget of {budget} is not possible: the kernel takes 32 up to the TX ring's {} slots",
                self.tx_ring
            )));
        }
        Ok(())
    }

    fn check_device(&self, device: &Device) -> Result<()> {
        let Device {
            name,
            mtu,
            rx_queues,
            tx_queues,
            ..
        } = device;
        if !device.up {
            let message = format!("{name} is down: set it up with `ip link set dev {name} up`");
            return Err(Error::new(ErrorKind::DeviceDown, message));
        }
        for (ring, slots, queues) in [
            ("receive", self.rx_ring, *rx_queues),
            ("send", self.tx_ring, *tx_queues),
        ] {
            if slots > 0 && self.queue >= queues {
                let message = format!(
                    "{name} has no {ring} queue {}: it has {queues}, from 0; `ethtool -l {name}` shows them, `ethtool -L` changes their number",
                    self.queue
                );
                return Err(Error::new(ErrorKind::QueueOutOfRange, message));
            }
        }
        let most = self.umem.max_rx_packet();
        if self.rx_ring > 0 && mtu.saturating_add(LINK_HEADER) > most {
            let message = format!(
                "the MTU of {name}, {mtu}, is too large: with a link header of {LINK_HEADER} bytes a packet would not fit into the {most} bytes that a chunk of {} has for it; use chunks of 4096 bytes or less headroom, or lower the MTU with `ip link set dev {name} mtu {}`",
                self.umem.chunk_size(),
                most - LINK_HEADER
            );
            return Err(Error::new(ErrorKind::MtuTooLarge, message));
        }
        Ok(())
    }

    fn fill_target(&self) -> u32 {
        let default = match (self.rx_ring, self.tx_ring) {
            (0, _) => 0,
            (_, 0) => self.fill_ring,
            _ => self.fill_ring.min(self.umem.chunks() / 2),
        };
        self.fill_frames.unwrap_or(default)
    }
}

fn check_rings(rx: u32, tx: u32) -> Result<()> {
    check_ring("RX", rx, true)?;
    check_ring("TX", tx, true)?;
    if rx == 0 && tx == 0 {
        return Err(Error::invalid(
            "a socket needs an RX ring, a TX ring, or both: give one of them slots",
        ));
    }
    Ok(())
}

fn check_ring(name: &str, slots: u32, may_be_none: bool) -> Result<()> {
    if (slots == 0 && may_be_none) || (slots.is_power_of_two() && slots <= MAX_RING) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "a {name} ring of {slots} slots is not possible: choose a power of two, at most {MAX_RING}"
    )))
}

/// A queue's number in its UMEM. When it ends, after rings and socket, the chunks come back.
#[derive(Debug)]
pub(crate) struct Lease<'u> {
    umem: &'u Umem,
    id: QueueId,
    after: AfterClose,
}

impl Lease<'_> {
    /// Says what the kernel may still do when the lease ends.
    pub(crate) fn ends(&mut self, after: AfterClose) {
        self.after = after;
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.umem.release_queue(self.id, self.after);
    }
}

/// When waiting ends; a time too long to be told is as good as a year.
fn deadline(timeout: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 86_400);
    let now = Instant::now();
    now.checked_add(timeout).unwrap_or(now + YEAR)
}

/// A socket on its way to being open.
struct Opening<'d, 'u> {
    config: SocketBuilder<'u>,
    device: &'d Device,
    refusals: Vec<Refusal>,
    deadline: Instant,
}

impl<'u> Opening<'_, 'u> {
    fn open(mut self, mut lease: Lease<'u>, source: &Source) -> Result<Socket<'u>> {
        let fd = Arc::new(socket()?);
        let lender = self.lender();
        if lender.is_none() {
            self.register(fd.as_fd())?;
        }
        let offsets = self.config.ring_sizes(fd.as_fd())?;
        let mut queue = self.queue(fd.as_fd(), &offsets, lease.id)?;
        let (rx, tx) = open_rings(
            fd.as_fd(),
            &offsets,
            self.config.rx_ring,
            self.config.tx_ring,
        )?;
        self.set_budget(fd.as_fd())?;
        // Before the bind: some drivers take their first chunks there.
        queue.maintain();
        let program = self.attach(source)?;
        let zero_copy = self.bind_best(fd.as_fd(), lender.as_ref(), program.as_ref())?;
        drop(lender);
        if zero_copy {
            // From here on the device may hold chunks, also if something below fails.
            lease.ends(AfterClose::MayTouchAll);
        }
        let mut main = Endpoint::new(fd, rx, tx, self.config.rx_ring, self.config.wait);
        main.set_zero_copy(zero_copy);
        let mode = self.obtained(zero_copy, program.as_ref());
        self.expect_attach_mode(mode)?;
        let installed = self.install(main.fd().as_fd(), source, program.as_ref())?;
        self.config
            .umem
            .registry()
            .sockets
            .push(Arc::downgrade(main.fd()));
        let (ifindex, number) = (self.device.index, self.config.queue);
        let facts = Facts {
            mode,
            refusals: self.refusals,
            ifindex,
            queue: number,
        };
        Ok(Socket::assemble(installed, main, queue, lease, facts))
    }

    /// A bound socket of the same UMEM, which has it registered.
    fn lender(&self) -> Option<Arc<OwnedFd>> {
        let mut registry = self.config.umem.registry();
        registry.sockets.retain(|socket| socket.strong_count() > 0);
        registry.sockets.iter().find_map(std::sync::Weak::upgrade)
    }

    /// Registers the UMEM, waiting while the kernel still counts one that was just closed
    /// against the memory lock limit.
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

    fn queue(
        &self,
        fd: BorrowedFd<'_>,
        offsets: &XdpMmapOffsets,
        id: QueueId,
    ) -> Result<Queue<'u>> {
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
        Ok(Queue::new(
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
                let why = crate::error::errno_text(errno);
                self.refusals.push(Refusal::Feature(Missing {
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

    /// Attaches the built-in program, unless the caller brings the packets or none are wanted.
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

    /// Binds in the best mode that was asked for, and tells whether it is zero-copy.
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
                // Busy can also mean that the queue's memory is somebody's for zero-copy alone; if
                // the queue itself is taken, the next attempt finds out.
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

    /// Reads back what the kernel did; with a shared UMEM it is the lender's mode.
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

    /// A program that is shared or the caller's runs where it was attached.
    fn expect_attach_mode(&self, mode: ModeObtained) -> Result<()> {
        let runs = match (self.config.mode, mode) {
            (Mode::Skb, ModeObtained::Driver) => "native (driver)",
            (Mode::Driver, ModeObtained::Skb) => "generic (skb)",
            _ => return Ok(()),
        };
        let message = format!(
            "the program that the socket is to use runs as {runs} XDP: ask for that mode, or attach it in the other"
        );
        Err(Error::new(ErrorKind::ModeRefused, message))
    }

    /// Puts the socket where the program looks for it.
    fn install(
        &self,
        fd: BorrowedFd<'_>,
        source: &Source,
        program: Option<&Program>,
    ) -> Result<Option<Installed>> {
        let queue = self.config.queue;
        let error = |errno| {
            let message = format!("putting the socket into slot {queue} of the XSKMAP");
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
        Installed::new(map, queue, fd, program.cloned())
            .map(Some)
            .map_err(error)
    }
}

impl SocketBuilder<'_> {
    /// Tells the kernel the sizes of all four rings, and asks where their parts are.
    fn ring_sizes(&self, fd: BorrowedFd<'_>) -> Result<XdpMmapOffsets> {
        let set = |name, result: std::result::Result<(), Errno>| {
            result.map_err(|errno| ring_error(name, errno))
        };
        set(
            "FILL",
            sockopt::set_xdp_umem_fill_ring_size(fd, self.fill_ring),
        )?;
        set(
            "COMPLETION",
            sockopt::set_xdp_umem_completion_ring_size(fd, self.completion_ring),
        )?;
        own_ring_sizes(fd, self.rx_ring, self.tx_ring)
    }
}

fn own_ring_sizes(fd: BorrowedFd<'_>, rx: u32, tx: u32) -> Result<XdpMmapOffsets> {
    if rx > 0 {
        sockopt::set_xdp_rx_ring_size(fd, rx).map_err(|errno| ring_error("RX", errno))?;
    }
    if tx > 0 {
        sockopt::set_xdp_tx_ring_size(fd, tx).map_err(|errno| ring_error("TX", errno))?;
    }
    sockopt::xdp_mmap_offsets(fd)
        .map_err(|errno| Error::os(ErrorKind::Os, errno, "asking for the rings' layout"))
}

fn ring_error(name: &str, errno: Errno) -> Error {
    Error::os(ErrorKind::Os, errno, format!("making the {name} ring"))
}

fn open_rings(
    fd: BorrowedFd<'_>,
    offsets: &XdpMmapOffsets,
    rx: u32,
    tx: u32,
) -> Result<(Option<RxRing>, Option<TxRing>)> {
    let mut rings = (None, None);
    if rx > 0 {
        let ring = map_ring(fd, "RX", XDP_PGOFF_RX_RING, &offsets.rx, rx)?;
        rings.0 = Some(Consumer::new(ring));
    }
    if tx > 0 {
        let ring = map_ring(fd, "TX", XDP_PGOFF_TX_RING, &offsets.tx, tx)?;
        rings.1 = Some(Producer::new(ring));
    }
    Ok(rings)
}

fn map_ring<T: Slot>(
    fd: BorrowedFd<'_>,
    name: &str,
    page_offset: u64,
    offsets: &XdpRingOffset,
    size: u32,
) -> Result<Mapped<T>> {
    let len = offsets.desc as usize + size as usize * size_of::<T>();
    let mapping = Mapping::new(fd, page_offset, len)
        .map_err(|errno| Error::os(ErrorKind::Os, errno, format!("mapping the {name} ring")))?;
    let at = Offsets {
        producer: offsets.producer as usize,
        consumer: offsets.consumer as usize,
        flags: offsets.flags.ok_or_else(no_flags)? as usize,
        slots: offsets.desc as usize,
    };
    Mapped::new(mapping, at, size).ok_or_else(|| {
        Error::new(
            ErrorKind::Unsupported,
            format!("the kernel's layout of the {name} ring is not one that this library knows"),
        )
    })
}

fn no_flags() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "this kernel's rings have no flags: Linux 5.4 or later is needed",
    )
}

/// Opens an AF_XDP socket, explaining a refusal.
fn socket() -> Result<OwnedFd> {
    open_socket().map_err(|errno| match errno {
        Errno::PERM | Errno::ACCESS => Error::os(
            ErrorKind::PermissionDenied,
            errno,
            "opening an AF_XDP socket needs CAP_NET_RAW: run as root or grant it",
        ),
        Errno::AFNOSUPPORT | Errno::SOCKTNOSUPPORT | Errno::PROTONOSUPPORT => Error::os(
            ErrorKind::Unsupported,
            errno,
            "this kernel has no AF_XDP: Linux 5.9 or later with CONFIG_XDP_SOCKETS is needed",
        ),
        _ => Error::os(ErrorKind::Os, errno, "opening an AF_XDP socket"),
    })
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

/// Binds, waiting out a queue that the kernel has not yet released: it does so some
/// milliseconds after a socket is closed or its process killed.
fn bind_until(
    fd: BorrowedFd<'_>,
    addr: &SocketAddrXdp,
    lender: BorrowedFd<'_>,
    deadline: Instant,
) -> std::result::Result<(), Errno> {
    loop {
        let result = if addr.flags().contains(SocketAddrXdpFlags::XDP_SHARED_UMEM) {
            let addr = SocketAddrXdpWithSharedUmem {
                addr: addr.clone(),
                shared_umem_fd: lender,
            };
            rustix::net::bind(fd, &addr)
        } else {
            rustix::net::bind(fd, addr)
        };
        match result {
            Err(Errno::BUSY) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            result => return result,
        }
    }
}

fn bind_error(errno: Errno, flags: SocketAddrXdpFlags, device: &Device, queue: u32) -> Error {
    let name = &device.name;
    let zero_copy = flags.contains(SocketAddrXdpFlags::XDP_ZEROCOPY);
    let shared = flags.contains(SocketAddrXdpFlags::XDP_SHARED_UMEM);
    let (kind, message) = match errno {
        Errno::BUSY => (
            ErrorKind::QueueBusy,
            format!(
                "queue {queue} of {name} is held by another AF_XDP socket: `ss --xdp -ep` shows whose; end it, or use another queue"
            ),
        ),
        Errno::NETDOWN => (
            ErrorKind::DeviceDown,
            format!("{name} is down: set it up with `ip link set dev {name} up`"),
        ),
        Errno::NODEV => (ErrorKind::DeviceMissing, format!("{name} is gone")),
        // Some drivers let out the kernel's internal 524 (ENOTSUPP).
        _ if zero_copy && (errno == Errno::OPNOTSUPP || errno.raw_os_error() == 524) => (
            ErrorKind::ModeRefused,
            format!("the driver of {name} has no zero-copy for queue {queue}: use copy mode"),
        ),
        _ if zero_copy => (
            ErrorKind::ModeRefused,
            format!(
                "the driver of {name} refused zero-copy on queue {queue}: it may lack the resources or want other offloads, ring sizes or MTU (`dmesg` may tell); use copy mode"
            ),
        ),
        Errno::INVAL if shared => (
            ErrorKind::InvalidConfig,
            format!(
                "queue {queue} of {name} already has a socket of this UMEM: use `add_sibling` on it for a second one"
            ),
        ),
        Errno::INVAL => (
            ErrorKind::InvalidConfig,
            format!(
                "the kernel does not take this combination of settings for queue {queue} of {name}"
            ),
        ),
        _ => (ErrorKind::Os, format!("binding to queue {queue} of {name}")),
    };
    Error::os(kind, errno, message)
}

/// Whether an error says that the mode cannot be had, so that a lesser one is worth a try.
fn is_about_mode(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ModeRefused | ErrorKind::MtuTooLarge
    )
}

fn is_zero_copy(fd: BorrowedFd<'_>) -> Result<bool> {
    let options = sockopt::xdp_options(fd)
        .map_err(|errno| Error::os(ErrorKind::Os, errno, "reading the mode back"))?;
    Ok(options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
}

fn check_map(map: BorrowedFd<'_>, queue: u32) -> Result<()> {
    let info = sys::map_info(map)
        .map_err(|errno| Error::os(ErrorKind::Foreign, errno, "the map given is not a BPF map"))?;
    if !info.is_xskmap {
        return Err(Error::new(
            ErrorKind::Foreign,
            "the map given is not an XSKMAP",
        ));
    }
    if queue >= info.max_entries {
        let entries = info.max_entries;
        let message = format!(
            "the XSKMAP given has {entries} slots, and none for queue {queue}: make it larger"
        );
        return Err(Error::new(ErrorKind::QueueOutOfRange, message));
    }
    Ok(())
}

/// Opens a second socket on the queue of `main`.
pub(crate) fn open_sibling(
    main: &Endpoint,
    facts: &Facts,
    rx: u32,
    tx: u32,
    wait: Wait,
) -> Result<Endpoint> {
    check_rings(rx, tx)?;
    let fd = socket()?;
    let offsets = own_ring_sizes(fd.as_fd(), rx, tx)?;
    let (rx_ring, tx_ring) = open_rings(fd.as_fd(), &offsets, rx, tx)?;
    // A kernel without the option sends 32 at a time, as for the main socket.
    let _ = sys::set_tx_budget(fd.as_fd(), TX_BUDGET.min(tx));
    let addr = SocketAddrXdp::new(
        SocketAddrXdpFlags::XDP_SHARED_UMEM,
        facts.ifindex,
        facts.queue,
    );
    bind_until(fd.as_fd(), &addr, main.fd().as_fd(), Instant::now()).map_err(|errno| {
        let message = "binding a second socket to the queue: it has to be done in the network namespace of the first, while the device is up";
        Error::os(ErrorKind::Os, errno, message)
    })?;
    let mut sibling = Endpoint::new(Arc::new(fd), rx_ring, tx_ring, rx, wait);
    sibling.set_zero_copy(facts.mode == ModeObtained::ZeroCopy);
    Ok(sibling)
}
