//! Opening a socket: registration, rings, program, bind, XSKMAP.

use super::bind::{
    BUSY_PAUSE, BUSY_TIMEOUT, RELEASE_TIMEOUT, bind_error, expect_sending, is_zero_copy,
    open_socket, prefer_busy_poll,
};
use super::rings::{map_own_rings, map_ring};
use super::{SocketBuilder, Source, TX_BUDGET};
use crate::delay::{self, Point};
use crate::device::{AttachMode, Device, LONGEST_PACKET};
use crate::error::{Error, ErrorKind, Result, errno_text};
use crate::feature::{Feature, MissingFeature};
use crate::program::{Hints, Hold, Program, Takes};
use crate::ring::{Consumer, Producer};
use crate::socket::{
    Binding, Bound, Mode, ModeObtained, Receiver, Refusal, RxEnd, Sender, Socket, TxEnd,
    XskmapEntry, check_map, insert_error,
};
use crate::sys::{Address, Kernel, KernelSocket, QueueOwner, Registration, RingKind, SysResult};
use crate::tx_metadata::TxSupport;
use crate::umem::{AfterClose, Cache, DeviceQueue, RingsId, RingsLease, TX_METADATA_LEN};
use crate::umem_rings::{CompletionRing, FillRing, RxRing, TxRing, cache_size};
use crate::wait::Wait;
use hostnet::ethtool::rx_ring;
use hostnet::genetlink::netdev::metadata_features;
use hostnet::privilege;
use rustix::io::Errno;
use rustix::net::xdp::SocketAddrXdpFlags;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Chunks that a zero-copy socket which only sends lends for receiving.
const CHUNKS_OF_A_SENDER: u32 = 64;

impl SocketBuilder {
    /// Opens the socket.
    ///
    /// # Errors
    ///
    /// Each message names the obstacle and the cure; see [`ErrorKind`].
    pub fn open(self) -> Result<Socket> {
        self.check()?;
        let device = Device::lookup(&self.device)?;
        let mut socket = self.open_to_give(&device)?;
        socket.watch_arrivals(device);
        Ok(socket)
    }

    /// Opens the socket for another process, on a device looked up just before. It is
    /// [taken apart](Socket::into_parts) at once, so it does not note the packets that the device has
    /// received, and its [`explain_silence`](Socket::explain_silence) is `None`.
    ///
    /// # Errors
    ///
    /// As those of [`open`](Self::open); [`ErrorKind::InvalidConfig`] for another device than the builder's.
    pub fn open_to_give(mut self, device: &Device) -> Result<Socket> {
        self.check()?;
        self.check_features()?;
        // It may be an alternative name.
        let is_same = || Device::lookup(&self.device).is_ok_and(|it| it.index == device.index);
        if device.name != self.device && !is_same() {
            let message = format!("the socket is for {}, not {}", self.device, device.name);
            return Err(Error::invalid(message));
        }
        if matches!(self.mode, Mode::Auto | Mode::ZeroCopy) && self.rx_ring > 0 {
            // A device that does not say has no ring of its own.
            self.card_ring = rx_ring(&device.name).ok().flatten().map(|ring| ring.used);
            self.card_buffer_unit = device.rx_buffer_unit();
        }
        if self.umem.tx_metadata() || self.rx_hints {
            // A kernel that does not say has a driver that does nothing of it.
            self.card_metadata = metadata_features(device.index).unwrap_or_default();
        }
        self.open_on(device)
    }

    /// Opens the socket on a device of a model of the kernel, which has no XDP programs.
    ///
    /// # Errors
    ///
    /// Same as [`open`](Self::open).
    #[cfg(any(test, xsk_internals))]
    pub(crate) fn open_in_model(
        mut self,
        kernel: Arc<dyn Kernel>,
        device: &Device,
    ) -> Result<Socket> {
        self.check()?;
        self.kernel = kernel;
        self.source = Source::Model;
        self.open_on(device)
    }

    fn open_on(mut self, device: &Device) -> Result<Socket> {
        self.check_device(device)?;
        match &self.source {
            Source::Map(map) => check_map(map.as_fd(), self.queue)?,
            Source::Callers(program) => check_map(program.map(), self.queue)?,
            _ => {}
        }
        let source = std::mem::replace(&mut self.source, Source::BuiltIn);
        let opening = Opening {
            device,
            refusals: Vec::new(),
            deadline: deadline(&*self.kernel, self.busy_timeout.unwrap_or(BUSY_TIMEOUT)),
            release_deadline: deadline(&*self.kernel, self.busy_timeout.unwrap_or(RELEASE_TIMEOUT)),
            config: self,
        };
        opening.open(&source).map_err(|error| {
            let name = &device.name;
            error.context(name)
        })
    }
}

/// The end of a timeout; one that the clock cannot represent ends in a year.
fn deadline(kernel: &dyn Kernel, timeout: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 86_400);
    let now = kernel.now();
    now.checked_add(timeout).unwrap_or(now + YEAR)
}

/// A socket being opened.
struct Opening<'d> {
    config: SocketBuilder,
    device: &'d Device,
    refusals: Vec<Refusal>,
    /// For a queue or a device that something may hold.
    deadline: Instant,
    /// For a queue without a socket.
    release_deadline: Instant,
}

/// A socket with its rings, not bound yet. Dropped in this order: the rings' mappings pin the socket,
/// and the lease frees the chunks when the kernel has let go of them.
struct Unbound {
    fill: FillRing,
    completion: CompletionRing,
    rx: Option<RxRing>,
    tx: Option<TxRing>,
    cache: Cache,
    socket: Arc<dyn KernelSocket>,
    /// Whether the UMEM is registered through this socket, rather than shared.
    registered: bool,
    lease: RingsLease,
}

impl Opening<'_> {
    fn open(mut self, source: &Source) -> Result<Socket> {
        let unbound = self.prepare()?;
        let program = self.attach(source)?;
        let (mut bound, zero_copy) = self.bind_best(unbound, program.as_ref())?;
        let owner = self
            .config
            .kernel
            .queue_owner(self.device.index, self.config.queue);
        if owner == QueueOwner::Socket {
            bound.lease.set_shown();
        }
        // The kernel gives a queue to one pool at a time, so it has let go of any before this one.
        let queue = bound.lease.queue();
        self.config
            .umem
            .recover_retired(|retired| retired.is(&queue));
        let mode = self.obtained(zero_copy, program.as_ref());
        bound.completion.set_support(self.tx_support(zero_copy));
        let hints = program.as_ref().and_then(Program::hints);
        bound.fill.set_hints(hints.is_some());
        bound.fill.set_zero_copy(zero_copy);
        self.expect_attach_mode(mode)?;
        self.expect_delivery(mode)?;
        delay::at(Point::Bound);
        let entry = self.install(&bound, source, program.as_ref())?;
        if zero_copy {
            self.feed_driver(&mut bound);
        }
        self.note_small_umem(mode);
        let refusals = self.refusals;
        let Unbound {
            fill,
            completion,
            rx,
            tx,
            cache,
            socket,
            lease,
            ..
        } = bound;
        let kept = program.filter(|_| zero_copy || self.config.rx_ring == 0);
        let binding = Binding {
            mode,
            refusals,
            program: kept,
        };
        let bound = Arc::new(Bound::new(&self.config.kernel, &socket, lease, binding));
        let rx_end = RxEnd::new(&socket, rx, self.config.rx_ring, self.config.wait);
        let tx_end = TxEnd::new(&socket, tx, self.config.wait, zero_copy);
        let receiver = Receiver::new(entry, rx_end, fill, Arc::clone(&bound));
        let sender = Sender::new(tx_end, completion, cache, bound);
        Ok(Socket::assemble(receiver, sender))
    }

    /// Opens a socket with its rings, and with chunks in FILL.
    fn prepare(&mut self) -> Result<Unbound> {
        self.config.umem.recover_from(&*self.config.kernel);
        let queue = DeviceQueue {
            namespace: self.config.kernel.namespace(),
            is_shown: false,
            ifindex: self.device.index,
            queue: self.config.queue,
        };
        let lease = RingsLease::new(&self.config.umem, queue)?;
        let socket = open_socket(&*self.config.kernel)?;
        let registered = self.config.umem.registry().lender().is_none();
        if registered {
            self.register(&*socket)?;
        }
        self.config.make_rings(&*socket)?;
        let (mut fill, completion) = self.umem_rings(&*socket, lease.id())?;
        let (rx_slots, tx_slots) = (self.config.rx_ring, self.config.tx_ring);
        // Chunks in the caches of others are out of reach, so all together keep less than a half.
        let share = self.config.chunks() / self.config.umem.open_rings().max(1);
        let most = cache_size(share, rx_slots.max(tx_slots));
        let mut cache = Cache::new(&self.config.umem, most);
        let (rx, tx) = map_own_rings(&*socket, rx_slots, tx_slots)?;
        self.set_budget(&*socket)?;
        if self.config.wait == Wait::BusyPoll {
            prefer_busy_poll(&*socket)?;
        }
        // Before the bind, in which some drivers take their first chunks.
        fill.refill(&mut cache);
        Ok(Unbound {
            fill,
            completion,
            rx,
            tx,
            cache,
            socket,
            registered,
            lease,
        })
    }

    /// The requests that can be sent with packets.
    fn tx_support(&self, zero_copy: bool) -> TxSupport {
        let card = self.config.card_metadata;
        TxSupport {
            checksum: !zero_copy || card.tx_checksum(),
            timestamp: !zero_copy || card.tx_timestamp(),
            launch_time: card.tx_launch_time(),
        }
    }

    /// Lends the chunks that a zero-copy driver needs. Its own ring holds chunks as well, whatever the
    /// load; and the queue of a socket that only sends receives all the same.
    fn feed_driver(&self, bound: &mut Unbound) {
        if self.config.fill_chunks.is_some() {
            return;
        }
        let chunks = if self.config.rx_ring == 0 {
            CHUNKS_OF_A_SENDER.min(self.config.umem.chunks() / 8)
        } else {
            self.config.fill_chunks_of(self.config.fill_slots())
        };
        bound.fill.set_target(chunks);
        bound.fill.refill(&mut bound.cache);
        // Only a wake-up: its result does not matter.
        let _ = bound.socket.recv();
    }

    /// Registers the UMEM, waiting while one that was just closed still counts against the memory
    /// lock limit.
    fn register(&self, socket: &dyn KernelSocket) -> Result<()> {
        let (addr, len) = self.config.umem.region();
        let memory = Registration {
            addr,
            len,
            chunk_size: self.config.umem.chunk_size(),
            headroom: self.config.umem.headroom(),
            tx_metadata_len: if self.config.umem.tx_metadata() {
                TX_METADATA_LEN
            } else {
                0
            },
            unaligned: self.config.umem.unaligned(),
        };
        let limit = self.config.kernel.memory_lock_limit();
        let fits = limit.is_none_or(|limit| len <= limit);
        loop {
            match socket.register(&memory) {
                Ok(()) => return Ok(()),
                Err(Errno::NOBUFS) if fits && socket.now() < self.deadline => {
                    socket.sleep(BUSY_PAUSE);
                }
                Err(errno) => return Err(register_error(errno, len, limit)),
            }
        }
    }

    fn umem_rings(
        &self,
        socket: &dyn KernelSocket,
        id: RingsId,
    ) -> Result<(FillRing, CompletionRing)> {
        let config = &self.config;
        let fill = map_ring(socket, RingKind::Fill, config.fill_slots())?;
        let completion = map_ring(socket, RingKind::Completion, config.completion_ring)?;
        let umem = &config.umem;
        let fill = FillRing::new(
            umem,
            id,
            config.queue,
            Producer::new(fill),
            config.fill_target(),
        );
        let completion = CompletionRing::new(umem, id, Consumer::new(completion));
        Ok((fill, completion))
    }

    fn set_budget(&mut self, socket: &dyn KernelSocket) -> Result<()> {
        let asked = self.config.tx_budget;
        let budget = asked.unwrap_or(TX_BUDGET.min(self.config.tx_ring));
        if budget < 32 {
            return Ok(());
        }
        match (socket.set_tx_budget(budget), asked) {
            (Ok(()), _) | (Err(_), None) => Ok(()),
            (Err(errno @ Errno::NOPROTOOPT), Some(_)) => {
                let why = errno_text(errno);
                let feature = Feature::TxBudget;
                // Asked for once more with each socket that is tried.
                self.refusals
                    .retain(|it| !matches!(it, Refusal::Feature(..)));
                let missing = MissingFeature {
                    feature,
                    why,
                    unprobed: false,
                };
                self.refusals.push(Refusal::Feature(missing));
                Ok(())
            }
            (Err(errno), Some(budget)) => {
                let message = format!("setting the TX budget to {budget}");
                Err(Error::os(ErrorKind::Os, errno, message))
            }
        }
    }

    /// Attaches a program, unless the caller has attached one or the socket only sends.
    fn attach(&mut self, source: &Source) -> Result<Option<Program>> {
        match source {
            Source::Map(_) => Ok(None),
            Source::Shared(program) if program.hold() == Hold::Detached => Err(Error::new(
                ErrorKind::Foreign,
                "the program to share is not attached any more, since its device is gone or it was detached: leave `program` out, and share the program that this socket attaches",
            )),
            Source::Shared(program) if program.ifindex() == self.device.index => {
                self.check_shared(program)?;
                Ok(Some(program.clone()))
            }
            Source::Shared(program) => Err(Error::new(
                ErrorKind::Foreign,
                format!(
                    "the program to share is on another device (index {}): leave `program` out",
                    program.ifindex()
                ),
            )),
            #[cfg(any(test, xsk_internals))]
            Source::Model => Ok(None),
            _ if self.config.rx_ring == 0 => Ok(None),
            _ => self.attach_best(source).map(Some),
        }
    }

    fn check_shared(&self, program: &Program) -> Result<()> {
        if self.config.umem.fragments() && !program.takes_fragments() {
            return Err(Error::invalid(
                "the program to share takes packets of one buffer only, and the UMEM has `fragments`: attach it with a socket on such a UMEM",
            ));
        }
        Ok(())
    }

    fn attach_in(
        &self,
        mode: AttachMode,
        source: &Source,
        hints: Option<Hints>,
    ) -> Result<Program> {
        let patience = self.deadline.saturating_duration_since(Instant::now());
        match source {
            Source::Callers(program) => program.attach(self.device, mode, patience),
            #[cfg(feature = "libxdp")]
            Source::Dispatcher => Program::attach_by_dispatcher(self.device, mode),
            _ => {
                let filter = self.config.filter.as_ref();
                let fragments = self.config.umem.fragments();
                let takes = Takes::new(fragments, hints);
                Program::attach(self.device, mode, patience, filter, takes)
            }
        }
    }

    fn attach_best(&mut self, source: &Source) -> Result<Program> {
        let mode = self.config.mode;
        if mode == Mode::Skb {
            self.refuse_hints("generic XDP passes the driver by: use native XDP");
            return self.attach_in(AttachMode::Skb, source, None);
        }
        match self.attach_in_driver(source) {
            Err(error) if mode == Mode::Auto && is_about_mode(&error) => {
                let program = self.attach_in(AttachMode::Skb, source, None)?;
                self.refuse_hints("generic XDP passes the driver by");
                self.refusals.push(Refusal::Mode(Mode::Driver, error));
                Ok(program)
            }
            result => result,
        }
    }

    /// Attaches a program in the driver, with hints if they are wanted and there are any.
    fn attach_in_driver(&mut self, source: &Source) -> Result<Program> {
        let hints = match self.hints() {
            Ok(hints) => hints,
            Err(error) => {
                self.refusals.push(Refusal::Hints(error));
                None
            }
        };
        match self.attach_in(AttachMode::Driver, source, hints) {
            Err(error) if hints.is_some() && error.kind() == ErrorKind::Unsupported => {
                self.refusals.push(Refusal::Hints(error));
                self.attach_in(AttachMode::Driver, source, None)
            }
            result => result,
        }
    }

    /// How to write hints, if they are wanted.
    fn hints(&self) -> Result<Option<Hints>> {
        let card = self.config.card_metadata;
        if !self.config.rx_hints {
            return Ok(None);
        }
        if !(card.rx_timestamp() || card.rx_hash() || card.rx_vlan_tag()) {
            let message = "its driver has no hints for XDP programs";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Hints::of_device(self.device.index).map(Some)
    }

    fn refuse_hints(&mut self, message: &str) {
        if self.config.rx_hints {
            let error = Error::new(ErrorKind::ModeRefused, message);
            self.refusals.push(Refusal::Hints(error));
        }
    }

    /// Binds in the best mode requested; returns whether it is zero-copy.
    fn bind_best(
        &mut self,
        mut unbound: Unbound,
        program: Option<&Program>,
    ) -> Result<(Unbound, bool)> {
        let native = program.is_none_or(|program| program.mode() == AttachMode::Driver);
        if self.config.mode == Mode::Auto && native {
            match self.bind(&mut unbound, SocketAddrXdpFlags::XDP_ZEROCOPY) {
                Ok(zero_copy) => return Ok((unbound, zero_copy)),
                // EBUSY can also mean that another UMEM occupies the queue for zero-copy alone; if
                // the queue itself is taken, the next attempt fails too.
                Err(error) if is_about_mode(&error) || error.kind() == ErrorKind::QueueBusy => {
                    unbound = self.prepare_again(unbound, &error)?;
                    self.refusals.push(Refusal::Mode(Mode::ZeroCopy, error));
                }
                Err(error) => return Err(error),
            }
        }
        let flags = match self.config.mode {
            Mode::ZeroCopy => SocketAddrXdpFlags::XDP_ZEROCOPY,
            _ => SocketAddrXdpFlags::XDP_COPY,
        };
        let zero_copy = self.bind(&mut unbound, flags)?;
        Ok((unbound, zero_copy))
    }

    /// A socket for the next attempt: the same when the kernel refused before it asked the driver,
    /// which may have taken chunks from FILL, and need not have published that.
    fn prepare_again(&mut self, mut refused: Unbound, error: &Error) -> Result<Unbound> {
        let by_the_kernel = error.errno() == Some(Errno::OPNOTSUPP.raw_os_error());
        if by_the_kernel && refused.fill.is_unread() {
            return Ok(refused);
        }
        drop(refused);
        self.prepare()
    }

    /// Binds; returns whether the mode is zero-copy.
    fn bind(&self, unbound: &mut Unbound, flags: SocketAddrXdpFlags) -> Result<bool> {
        if flags.contains(SocketAddrXdpFlags::XDP_ZEROCOPY) {
            self.config.check_zero_copy(self.device)?;
        }
        // Whatever fails after the bind, the driver may be writing to the chunks.
        unbound.lease.set_after_close(AfterClose::MayTouchAll);
        if let Err(error) = self.bind_until_free(unbound, flags) {
            unbound.lease.set_after_close(AfterClose::LetGo);
            return Err(error);
        }
        let zero_copy = is_zero_copy(&*unbound.socket)?;
        if !zero_copy {
            unbound.lease.set_after_close(AfterClose::LetGo);
        }
        self.expect_mode(zero_copy)?;
        if zero_copy {
            // Whatever was asked for: a shared UMEM has the mode of its first socket.
            self.config.check_zero_copy(self.device)?;
        }
        if zero_copy && self.config.rx_ring == 0 {
            expect_sending(&*unbound.socket, self.device)?;
        }
        Ok(zero_copy)
    }

    /// Binds, waiting while the queue is busy: the kernel releases it some milliseconds after a
    /// socket is closed or its process killed.
    fn bind_until_free(&self, unbound: &mut Unbound, flags: SocketAddrXdpFlags) -> Result<()> {
        loop {
            let (flags, result) = self.bind_now(unbound, flags)?;
            match result {
                Err(Errno::BUSY) if self.may_become_free(flags) => {
                    unbound.socket.sleep(BUSY_PAUSE);
                }
                Err(errno) => {
                    let queue = self.config.queue;
                    let held = errno == Errno::BUSY && self.is_held();
                    return Err(bind_error(errno, flags, self.device, queue, held));
                }
                Ok(()) => return Ok(()),
            }
        }
    }

    fn may_become_free(&self, flags: SocketAddrXdpFlags) -> bool {
        let zero_copy = flags.contains(SocketAddrXdpFlags::XDP_ZEROCOPY);
        // A driver may refuse zero-copy so for good, and copy mode is next.
        let release_deadline = match self.config.mode {
            Mode::Auto if zero_copy => self.deadline,
            _ => self.release_deadline,
        };
        let now = self.config.kernel.now();
        now < self.deadline || (now < release_deadline && !self.is_held())
    }

    /// Whether a socket is bound to the queue, if the kernel shows it.
    fn is_held(&self) -> bool {
        let kernel = &self.config.kernel;
        kernel.has_socket(self.device.index, self.config.queue) != Some(false)
    }

    /// Binds once, with the registration of an open socket on the UMEM, or its own. Returns the flags,
    /// and the kernel's answer.
    fn bind_now(
        &self,
        unbound: &mut Unbound,
        flags: SocketAddrXdpFlags,
    ) -> Result<(SocketAddrXdpFlags, SysResult<()>)> {
        let address = |flags| Address {
            flags,
            ifindex: self.device.index,
            queue: self.config.queue,
        };
        if !unbound.registered {
            // Locked for this attempt, and no longer: the lender may be closed by another thread.
            let registry = self.config.umem.registry();
            if let Some(lender) = registry.lender() {
                let flags = SocketAddrXdpFlags::XDP_SHARED_UMEM;
                let result = unbound.socket.bind(address(flags), Some(&*lender));
                return Ok((flags, result));
            }
            drop(registry);
            self.register(&*unbound.socket)?;
            unbound.registered = true;
        }
        let wakeup = if self.config.need_wakeup {
            SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP
        } else {
            SocketAddrXdpFlags::empty()
        };
        let fragments = if self.config.umem.fragments() {
            SocketAddrXdpFlags::XDP_USE_SG
        } else {
            SocketAddrXdpFlags::empty()
        };
        let flags = flags | wakeup | fragments;
        Ok((flags, unbound.socket.bind(address(flags), None)))
    }

    /// Checks the mode; with a shared UMEM it is the mode of the first socket.
    fn expect_mode(&self, zero_copy: bool) -> Result<()> {
        match (self.config.mode, zero_copy) {
            (Mode::ZeroCopy, false) | (Mode::Skb | Mode::Driver, true) => Err(Error::new(
                ErrorKind::ModeRefused,
                "a socket that shares a UMEM has the mode of the first one on it: open both in the same mode, or give this one a UMEM of its own",
            )),
            _ => Ok(()),
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

    /// Checks that packets of the program can reach the socket, also of one that others have attached.
    fn expect_delivery(&self, mode: ModeObtained) -> Result<()> {
        match attach_mode(mode) {
            Some(attached) if self.config.rx_ring > 0 => self.device.check_delivery(attached),
            _ => Ok(()),
        }
    }

    /// Notes the packets that the UMEM is too small for, in a mode that the program has not chosen.
    fn note_small_umem(&mut self, mode: ModeObtained) {
        if self.config.mode != Mode::Auto || self.config.rx_ring == 0 {
            return;
        }
        let umem = &self.config.umem;
        let too_small = attach_mode(mode).zip(umem.settings_for(LONGEST_PACKET));
        let long = too_small.and_then(|(mode, settings)| {
            let room = umem.max_rx_packet();
            self.device.long_packets(mode, room, &settings)
        });
        let few = self.config.few_chunks(mode == ModeObtained::ZeroCopy);
        let small = long.into_iter().chain(few).map(Refusal::Umem);
        self.refusals.extend(small);
    }

    /// Inserts the socket into the program's XSKMAP.
    fn install(
        &self,
        bound: &Unbound,
        source: &Source,
        program: Option<&Program>,
    ) -> Result<Option<XskmapEntry>> {
        let queue = self.config.queue;
        let map = match (source, program) {
            // The kernel takes no socket without an RX ring into an XSKMAP.
            _ if self.config.rx_ring == 0 => return Ok(None),
            (Source::Map(map), _) => map.as_fd(),
            (_, Some(program)) => {
                // Queues may have been added since a shared program was attached.
                check_map(program.map(), queue)?;
                program.map()
            }
            (_, None) => return Ok(None),
        };
        XskmapEntry::new(
            &self.config.kernel,
            map,
            queue,
            &*bound.socket,
            program.cloned(),
            bound.lease.left_in_map(),
        )
        .map(Some)
        .map_err(|errno| insert_error(errno, queue))
    }
}

/// Where an XDP program runs for a socket in this mode; `None` without one.
fn attach_mode(mode: ModeObtained) -> Option<AttachMode> {
    match mode {
        ModeObtained::Skb => Some(AttachMode::Skb),
        ModeObtained::Driver | ModeObtained::ZeroCopy => Some(AttachMode::Driver),
        ModeObtained::Copy => None,
    }
}

fn register_error(errno: Errno, len: u64, limit: Option<u64>) -> Error {
    match errno {
        Errno::NOBUFS => {
            let limit = limit.map_or("unlimited".to_owned(), |limit| format!("{limit} bytes"));
            let message = format!(
                "the memory lock limit ({limit}, over all processes of this user) does not allow a UMEM of {len} bytes: {}, or ask for fewer chunks",
                privilege::memory_lock_cure()
            );
            Error::os(ErrorKind::MemoryLock, errno, message)
        }
        Errno::NOMEM => Error::os(
            ErrorKind::OutOfMemory,
            errno,
            format!("no memory to register a UMEM of {len} bytes"),
        ),
        _ => {
            let step = format!("registering a UMEM of {len} bytes");
            Error::refused(&step, errno, privilege::Feature::Base, &[])
                .unwrap_or_else(|| Error::os(ErrorKind::Os, errno, step))
        }
    }
}

/// Whether the mode caused the error, so that a lesser mode may succeed.
fn is_about_mode(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ModeRefused | ErrorKind::MtuTooLarge
    )
}
