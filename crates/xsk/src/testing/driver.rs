//! A kernel and a driver in memory, behind the calls of a real [`Socket`].
//!
//! A test says how each call is answered, with the kernel's side of the rings at hand; so the
//! socket's own flushing, waiting, draining and closing run against every answer, at any time of
//! day: the clock is the driver's, and stands still unless the socket sleeps.

use crate::device::Device;
use crate::error::Result;
use crate::ring::{Consumer, Mapped, Producer, Shared, Slot};
use crate::socket::Socket;
use crate::sys::{
    Address, Clock, Desc, Kernel, KernelCounters, KernelSocket, Mapping, Offsets, QueueOwner,
    Registration, RingKind, SysResult,
};
use crate::umem::Umem;
use crate::{Mode, SocketBuilder};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::xdp::SocketAddrXdpFlags;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The layout of a ring on x86, in bytes.
const LAYOUT: Offsets = Offsets {
    producer: 0,
    consumer: 128,
    flags: 196,
    slots: 320,
};

/// A call of the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Call {
    /// Binding to a queue, with the flags of `sockaddr_xdp`.
    Bind {
        /// `XDP_ZEROCOPY` was asked for.
        zero_copy: bool,
    },
    /// Setting a bound socket up for busy polling.
    PreferBusyPoll,
    /// Waking the kernel to read TX.
    Send,
    /// Waking the kernel to read FILL.
    Recv,
    /// Sleeping until packets arrive or TX has room.
    Poll {
        /// Packets are waited for.
        receive: bool,
        /// Room in TX is waited for.
        send: bool,
        /// The longest sleep.
        timeout: Duration,
    },
    /// Setting the events that end the sleep of an event loop.
    Watch {
        /// Packets are waited for.
        receive: bool,
        /// Room in TX is waited for.
        send: bool,
    },
    /// Sleeping.
    Sleep(Duration),
    /// A look at a clock that ticks so much each time.
    Look(Duration),
    /// Closing the socket.
    Close,
}

/// The kernel's end of a ring, and its memory, which both sides see.
#[derive(Debug)]
pub(super) struct KernelEnd<E, T> {
    pub(super) end: E,
    pub(super) memory: Mapped<T>,
}

/// A ring that the kernel reads.
pub(super) type Reads<T> = KernelEnd<Consumer<T, Mapped<T>>, T>;
/// A ring that the kernel writes.
pub(super) type Writes<T> = KernelEnd<Producer<T, Mapped<T>>, T>;

impl<E, T: Slot> KernelEnd<E, T> {
    fn new(ring: [Mapped<T>; 2], end: impl FnOnce(Mapped<T>) -> E) -> Self {
        let [kernel, memory] = ring;
        Self {
            end: end(kernel),
            memory,
        }
    }

    /// Sets whether the kernel asks for a wake-up.
    pub(super) fn ask_for_wakeup(&self, on: bool) {
        let flags: &AtomicU32 = self.memory.flags();
        flags.store(u32::from(on), Ordering::SeqCst);
    }
}

/// The kernel's side of a socket's rings. A sibling has neither FILL nor COMPLETION.
#[derive(Debug)]
pub struct Rings {
    pub(super) socket: usize,
    pub(super) fill: Option<Reads<u64>>,
    pub(super) completion: Option<Writes<u64>>,
    pub(super) rx: Option<Writes<Desc>>,
    pub(super) tx: Option<Reads<Desc>>,
    slept: Option<Duration>,
    is_down: bool,
}

impl Rings {
    /// The number of the socket, in the order of opening.
    pub fn socket(&self) -> usize {
        self.socket
    }

    /// Ends the sleep of this [`Call::Poll`] after a shorter time.
    pub fn wake_after(&mut self, time: Duration) {
        self.slept = Some(time);
    }

    /// Sets the device up or down, as this socket sees it.
    pub fn set_device_up(&mut self, up: bool) {
        self.is_down = !up;
    }

    /// Takes up to `most` chunks from FILL.
    pub fn take_fill(&mut self, most: u32) -> Vec<u64> {
        let taken = self.take_fill_silently(most);
        if let Some(KernelEnd { end: fill, .. }) = &mut self.fill {
            fill.release();
        }
        taken
    }

    /// Takes up to `most` chunks from FILL without publishing that, as drivers do.
    pub fn take_fill_silently(&mut self, most: u32) -> Vec<u64> {
        let Some(KernelEnd { end: fill, .. }) = &mut self.fill else {
            return Vec::new();
        };
        let count = fill.available(most).min(most);
        (0..count).map(|_| fill.pop()).collect()
    }

    /// Publishes a packet of `len` bytes at an address in RX; false when RX is full.
    pub fn receive(&mut self, addr: u64, len: u32) -> bool {
        let options = 0;
        self.rx.as_mut().is_some_and(|KernelEnd { end: rx, .. }| {
            let pushed = rx.push(Desc { addr, len, options });
            rx.publish();
            pushed
        })
    }

    /// Takes up to `most` packets from TX; returns their addresses.
    pub fn take_tx(&mut self, most: u32) -> Vec<u64> {
        let Some(KernelEnd { end: tx, .. }) = &mut self.tx else {
            return Vec::new();
        };
        let count = tx.available(most).min(most);
        let taken = (0..count).map(|_| tx.pop().addr).collect();
        tx.release();
        taken
    }

    /// Completes a packet; false when COMPLETION is full.
    pub fn complete(&mut self, addr: u64) -> bool {
        let completion = self.completion.as_mut();
        completion.is_some_and(|KernelEnd { end, .. }| {
            let pushed = end.push(addr);
            end.publish();
            pushed
        })
    }

    /// Sets whether FILL and TX ask for a wake-up.
    pub fn ask_for_wakeup(&mut self, fill: bool, tx: bool) {
        if let Some(ring) = &self.fill {
            ring.ask_for_wakeup(fill);
        }
        if let Some(ring) = &self.tx {
            ring.ask_for_wakeup(tx);
        }
    }
}

/// The answer to each call: an error has an errno. The rings are there from [`Call::Bind`] on.
type Answer = dyn FnMut(Call, &mut Rings) -> std::result::Result<(), i32> + Send;

/// A driver in memory.
#[derive(Clone)]
pub struct Driver(Arc<Mutex<State>>);

struct State {
    now: Instant,
    answer: Box<Answer>,
    always_zero_copy: bool,
    /// Entries in FILL at the last bind.
    fill: u32,
    full_dynticks: bool,
    owner: QueueOwner,
    device_is_up: bool,
    publishes: bool,
    tick: Duration,
    first_index: u32,
    sockets: usize,
}

impl Driver {
    /// A driver that answers each call with `answer`.
    pub fn new(
        answer: impl FnMut(Call, &mut Rings) -> std::result::Result<(), i32> + Send + 'static,
    ) -> Self {
        Self(Arc::new(Mutex::new(State {
            now: Instant::now(),
            answer: Box::new(answer),
            always_zero_copy: false,
            fill: 0,
            full_dynticks: false,
            owner: QueueOwner::Unknown,
            device_is_up: true,
            publishes: false,
            tick: Duration::ZERO,
            first_index: 0,
            sockets: 0,
        })))
    }

    /// Advances the clock by `tick` at each look at it, which is a [`Call::Look`] then: without that a
    /// socket that spins would do so forever.
    #[must_use]
    pub fn with_tick(self, tick: Duration) -> Self {
        self.state().tick = tick;
        self
    }

    /// Starts the indices of all rings at `index`; near `u32::MAX` they soon wrap around.
    #[must_use]
    pub fn with_first_index(self, index: u32) -> Self {
        self.state().first_index = index;
        self
    }

    /// The time, without a look at the clock.
    pub(super) fn time(&self) -> Instant {
        self.state().now
    }

    /// Opens a socket on queue 0 of this driver's device.
    ///
    /// # Errors
    ///
    /// Same as [`SocketBuilder::open`].
    pub fn open(
        &self,
        umem: &Umem,
        mode: Mode,
        configure: impl FnOnce(SocketBuilder) -> SocketBuilder,
    ) -> Result<Socket> {
        self.open_queue(umem, 0, mode, configure)
    }

    /// Opens a socket on a queue of this driver's device.
    ///
    /// # Errors
    ///
    /// Same as [`SocketBuilder::open`].
    pub fn open_queue(
        &self,
        umem: &Umem,
        queue: u32,
        mode: Mode,
        configure: impl FnOnce(SocketBuilder) -> SocketBuilder,
    ) -> Result<Socket> {
        let device = Device::of_model("model0", 64);
        let builder = Socket::builder(umem, &device.name, queue).mode(mode);
        configure(builder).open_in_model(Arc::new(self.clone()), &device)
    }

    /// Binds in zero-copy mode whatever is asked for, as with a shared UMEM.
    pub fn force_zero_copy(&self) {
        self.state().always_zero_copy = true;
    }

    /// Sets whether the clock moves when it is read, so that a socket that spins sees time pass.
    pub fn run_while_spinning(&self, on: bool) {
        const LOOK: Duration = Duration::from_micros(10);
        self.state().tick = if on { LOOK } else { Duration::ZERO };
    }

    /// Entries of FILL when the last socket was bound.
    pub fn fill_of_the_last_socket(&self) -> u32 {
        self.state().fill
    }

    /// Refuses to wait for readers, as a kernel with full dynticks does.
    pub fn set_full_dynticks(&self) {
        self.state().full_dynticks = true;
    }

    /// Sets the owner of the queue that the kernel shows.
    #[cfg(test)]
    fn set_owner(&self, owner: QueueOwner) {
        self.state().owner = owner;
    }

    /// Publishes each packet taken from TX before a call returns, as Linux 6.17 does.
    pub fn publish_taken_packets(&self) {
        self.state().publishes = true;
    }

    /// Sets whether the device is set up.
    pub fn set_device_up(&self, up: bool) {
        self.state().device_is_up = up;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

impl Clock for Driver {
    fn now(&self) -> Instant {
        let mut state = self.state();
        let tick = state.tick;
        state.now += tick;
        state.now
    }

    fn sleep(&self, time: Duration) {
        self.state().now += time;
    }
}

impl Kernel for Driver {
    fn socket(&self) -> SysResult<Arc<dyn KernelSocket>> {
        Ok(Arc::new(ModelSocket {
            driver: self.clone(),
            memory: Mutex::default(),
            zero_copy: AtomicBool::new(false),
            rings: Mutex::default(),
        }))
    }

    fn memory_lock_limit(&self) -> Option<u64> {
        None
    }

    fn namespace(&self) -> Option<u64> {
        Some(1)
    }

    fn queue_owner(&self, _: u32, _: u32) -> QueueOwner {
        self.state().owner
    }

    fn has_socket(&self, _: u32, _: u32) -> Option<bool> {
        Some(self.state().owner == QueueOwner::Socket)
    }

    fn wait_for_readers(&self) -> SysResult<()> {
        let refused = self.state().full_dynticks;
        if refused { Err(Errno::INVAL) } else { Ok(()) }
    }

    fn remove_from_map(&self, _: BorrowedFd<'_>, _: u32) -> SysResult<()> {
        Ok(())
    }
}

/// The memory of each ring, with its slots.
type RingMemory = Vec<(RingKind, u32, Option<Arc<Mapping>>)>;

struct ModelSocket {
    driver: Driver,
    memory: Mutex<RingMemory>,
    zero_copy: AtomicBool,
    rings: Mutex<Option<Rings>>,
}

impl ModelSocket {
    fn memory(&self) -> MutexGuard<'_, RingMemory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel's handles of a ring; `None` when there is no such ring.
    fn ring<T: Slot>(&self, kind: RingKind) -> Option<[Mapped<T>; 2]> {
        let memory = self.memory();
        let (_, slots, mapping) = memory.iter().find(|(is, _, _)| *is == kind)?;
        let mapping = mapping.as_ref()?;
        let handle = || Mapped::new(Arc::clone(mapping), LAYOUT, *slots);
        Some([handle()?, handle()?])
    }

    fn rings(&self) -> MutexGuard<'_, Option<Rings>> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&self, call: Call) -> SysResult<()> {
        match self.rings().as_mut() {
            Some(rings) => {
                (self.driver.state().answer)(call, rings).map_err(Errno::from_raw_os_error)
            }
            None => Err(Errno::NXIO),
        }
    }
}

impl fmt::Debug for ModelSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelSocket").finish_non_exhaustive()
    }
}

impl Clock for ModelSocket {
    fn now(&self) -> Instant {
        let tick = self.driver.state().tick;
        if !tick.is_zero() {
            let _ = self.call(Call::Look(tick));
        }
        self.driver.now()
    }

    fn sleep(&self, time: Duration) {
        self.driver.sleep(time);
        let _ = self.call(Call::Sleep(time));
    }
}

impl KernelSocket for ModelSocket {
    fn register(&self, _: &Registration) -> SysResult<()> {
        Ok(())
    }

    fn make_ring(&self, ring: RingKind, slots: u32) -> SysResult<()> {
        self.memory().push((ring, slots, None));
        Ok(())
    }

    fn ring_layout(&self, _: RingKind) -> SysResult<Option<Offsets>> {
        Ok(Some(LAYOUT))
    }

    fn map_ring(&self, ring: RingKind, len: usize) -> SysResult<Arc<Mapping>> {
        let mapping = Arc::new(Mapping::heap(len));
        for (kind, slots, memory) in self.memory().iter_mut() {
            if *kind == ring {
                // The words lie at the same place whatever is in the slots.
                let words = Mapped::<u64>::new(Arc::clone(&mapping), LAYOUT, *slots);
                let words = words.ok_or(Errno::INVAL)?;
                let first = self.driver.state().first_index;
                words.producer().store(first, Ordering::Relaxed);
                words.consumer().store(first, Ordering::Relaxed);
                *memory = Some(Arc::clone(&mapping));
            }
        }
        Ok(mapping)
    }

    fn set_tx_budget(&self, _: u32) -> SysResult<()> {
        Ok(())
    }

    fn set_busy_poll(&self, _: u32, _: u32) -> SysResult<()> {
        // Before the bind there are no rings to show.
        let _ = self.call(Call::PreferBusyPoll);
        Ok(())
    }

    fn napi_id(&self) -> SysResult<u32> {
        Ok(0)
    }

    fn publishes_taken_packets(&self) -> bool {
        self.driver.state().publishes
    }

    fn bind(&self, to: Address, lender: Option<&dyn KernelSocket>) -> SysResult<()> {
        let zero_copy = match lender {
            Some(lender) => lender.is_zero_copy()?,
            None => to.flags.contains(SocketAddrXdpFlags::XDP_ZEROCOPY),
        };
        let reads = |kind| Some(KernelEnd::new(self.ring(kind)?, Consumer::new));
        let mut of_the_socket = self.rings();
        let mut rings = Rings {
            socket: self.driver.state().sockets,
            // The kernel goes on where a failed bind has left off.
            fill: match of_the_socket.take() {
                Some(rings) => rings.fill,
                None => reads(RingKind::Fill),
            },
            completion: self
                .ring(RingKind::Completion)
                .map(|ring| KernelEnd::new(ring, Producer::new)),
            rx: self
                .ring(RingKind::Rx)
                .map(|ring| KernelEnd::new(ring, Producer::new)),
            tx: self
                .ring(RingKind::Tx)
                .map(|ring| KernelEnd::new(ring, Consumer::new)),
            slept: None,
            is_down: false,
        };
        // As the kernel makes it.
        rings.ask_for_wakeup(false, true);
        let fill = rings.fill.as_mut();
        self.driver.state().fill = fill.map_or(0, |fill| fill.end.available(u32::MAX));
        *of_the_socket = Some(rings);
        drop(of_the_socket);
        self.call(Call::Bind { zero_copy })?;
        self.driver.state().sockets += 1;
        self.zero_copy.store(zero_copy, Ordering::Relaxed);
        Ok(())
    }

    fn is_zero_copy(&self) -> SysResult<bool> {
        Ok(self.zero_copy.load(Ordering::Relaxed) || self.driver.state().always_zero_copy)
    }

    fn insert_into_map(&self, _: BorrowedFd<'_>, _: u32) -> SysResult<()> {
        Ok(())
    }

    fn send(&self) -> SysResult<()> {
        self.call(Call::Send)
    }

    fn recv(&self) -> SysResult<()> {
        self.call(Call::Recv)
    }

    fn poll(&self, events: PollFlags, timeout: Duration) -> SysResult<()> {
        let answer = self.call(Call::Poll {
            receive: events.contains(PollFlags::IN),
            send: events.contains(PollFlags::OUT),
            timeout,
        });
        let woken = self.rings().as_mut().and_then(|rings| rings.slept.take());
        self.driver.sleep(woken.unwrap_or(timeout));
        answer
    }

    fn device_is_up(&self) -> bool {
        let is_down = self.rings().as_ref().is_some_and(|rings| rings.is_down);
        self.driver.state().device_is_up && !is_down
    }

    fn statistics(&self) -> SysResult<KernelCounters> {
        Ok(KernelCounters {
            rx_dropped: 1,
            rx_ring_full: 2,
            fill_ring_empty: 3,
            tx_invalid_descs: 4,
            tx_ring_empty: 5,
        })
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn watch(&self, events: PollFlags) -> SysResult<()> {
        self.call(Call::Watch {
            receive: events.contains(PollFlags::IN),
            send: events.contains(PollFlags::OUT),
        })
    }
}

impl Drop for ModelSocket {
    fn drop(&mut self) {
        let _ = self.call(Call::Close);
    }
}

#[cfg(test)]
mod tests;
