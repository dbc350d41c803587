//! A kernel in memory with real sockets on it: for property tests, fuzzing and Miri.
//!
//! A [`Model`] is one device queue on a UMEM on the heap, with a [`Socket`] of the library on one side of
//! the rings and a driver on the other, which moves step by step. It has the freedoms of the kernel: it
//! keeps FILL entries, publishes its indices late, completes in any order, clears the lowest bit of a
//! completed address, stops and asks for a wake-up late, and answers calls with any error. It can also
//! forge indices and slots, as a hostile peer would. [`check`] finds every chunk, and fails when one is
//! in two places or in none; [`check_user_space`] checks our side alone, which must hold against
//! any forgery.
//!
//! The kernel accesses packets by taking the chunk from the owner table, so that it needs no
//! `unsafe`, and finds chunks that were not lent.

#[cfg(test)]
mod parts;
mod places;
pub mod play;
mod queue;
#[cfg(test)]
mod repeated;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tx_batches;

pub use places::{check, check_user_space};
pub use queue::Answer;
pub use queue::Checked;

use super::driver::{Driver, KernelEnd};
use crate::batch::RxBatch;
use crate::counter::Counter;
use crate::error::Result;
use crate::fragments::Fragments;
use crate::frame::Frame;
use crate::ring::{Mapped, Shared, Slot};
use crate::send_error::SendError;
use crate::socket::{
    Done, Received, RxHalf, Socket, Statistics, StatisticsHandle, TxBatch, TxHalf,
};
use crate::sys::{Clock, Desc};
use crate::tx_metadata::TxRequest;
use crate::umem::{Cache, Geometry, Umem};
use crate::umem_rings::{CompletionRing, FillRing, RxRing, TxRing};
use crate::wait::{Interest, Ready, Wait};
use crate::{Mode, SiblingId};
use queue::Queue;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A UMEM of `chunks` chunks of `chunk_size` bytes on the heap.
pub fn umem(chunks: u32, chunk_size: u32) -> Umem {
    Umem::on_heap(chunks, chunk_size)
}

/// The same, for packets of several chunks as well.
pub fn umem_with_fragments(chunks: u32, chunk_size: u32) -> Umem {
    Umem::of_geometry_on_heap(Geometry {
        chunks,
        chunk_size,
        headroom: 0,
        fragments: true,
        tx_metadata: false,
        unaligned: false,
    })
}

/// A UMEM of unaligned chunks, for packets of several chunks as well or not.
pub fn umem_unaligned(chunks: u32, chunk_size: u32, fragments: bool) -> Umem {
    Umem::of_geometry_on_heap(Geometry {
        chunks,
        chunk_size,
        headroom: 0,
        fragments,
        tx_metadata: false,
        unaligned: true,
    })
}

/// A UMEM in which each packet sent has metadata.
pub fn umem_with_metadata(chunks: u32, chunk_size: u32) -> Umem {
    Umem::of_geometry_on_heap(Geometry {
        chunks,
        chunk_size,
        headroom: 0,
        fragments: false,
        tx_metadata: true,
        unaligned: false,
    })
}

/// The rings and ways of a queue.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Slots of FILL, which the library keeps as full as it can.
    pub fill: u32,
    /// Slots of COMPLETION.
    pub completion: u32,
    /// Slots of RX.
    pub rx: u32,
    /// Slots of TX.
    pub tx: u32,
    /// The first index of all rings; near `u32::MAX` they soon wrap around.
    pub first_index: u32,
    /// Whether the driver has zero-copy mode.
    pub zero_copy: bool,
    /// The way to wait for packets.
    pub wait: Wait,
    /// Chunks that the driver takes before it refuses zero-copy mode, if it does refuse.
    pub refuse_after: Option<u32>,
}

/// One of the four rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ring {
    /// Chunks to receive into, from us to the kernel.
    Fill,
    /// Chunks that were sent, from the kernel to us.
    Completion,
    /// Packets received, from the kernel to us.
    Rx,
    /// Packets to send, from us to the kernel.
    Tx,
}

/// One of a ring's shared words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// The producer's index.
    Producer,
    /// The consumer's index.
    Consumer,
    /// The flags, where the kernel asks for a wake-up.
    Flags,
}

/// The time that passes between two looks at the clock of a model.
pub const TICK: Duration = Duration::from_micros(500);

/// A socket, whole or in halves.
#[derive(Debug)]
enum User {
    Whole(Socket, Vec<SiblingId>),
    Halves(RxHalf, TxHalf),
}

/// One device queue with a socket on it, and the kernel behind them.
#[derive(Debug)]
pub struct Model {
    /// There, except while it is being split.
    user: Option<User>,
    driver: Driver,
    queue: Arc<Mutex<Queue>>,
    lost: Lost,
    /// The socket's counters.
    counters: StatisticsHandle,
}

/// Addresses of chunks that the program lost by forgetting packets and batches.
#[derive(Debug, Default)]
struct Lost {
    /// Lent for receiving until the socket is closed.
    received: Vec<u64>,
    /// Sent through a forgotten batch, which did not count them.
    sent: Vec<u64>,
}

impl Model {
    /// Opens a queue on a UMEM.
    ///
    /// # Errors
    ///
    /// Same as [`SocketBuilder::open`](crate::SocketBuilder::open).
    pub fn open(umem: &Umem, number: u32, config: Config) -> Result<Self> {
        let queue = Arc::new(Mutex::new(Queue::new(umem)));
        let kernel = Arc::clone(&queue);
        let driver = Driver::new(move |call, rings| lock(&kernel).answer(call, rings))
            .with_tick(TICK)
            .with_first_index(config.first_index);
        lock(&queue).refuse_zero_copy_after = config.refuse_after;
        let mode = if config.zero_copy {
            Mode::Auto
        } else {
            Mode::Driver
        };
        let socket = driver.open_queue(umem, number, mode, |builder| {
            builder
                .fill_ring(config.fill)
                .completion_ring(config.completion)
                .rx_ring(config.rx)
                .tx_ring(config.tx)
                .wait(config.wait)
        })?;
        lock(&queue).id = Some(socket.sender.completion.id());
        Ok(Self {
            counters: socket.statistics_handle(),
            user: Some(User::Whole(socket, Vec::new())),
            driver,
            queue,
            lost: Lost::default(),
        })
    }

    fn user(&self) -> &User {
        self.user.as_ref().expect("nothing is being split")
    }

    fn user_mut(&mut self) -> &mut User {
        self.user.as_mut().expect("nothing is being split")
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// The time of the socket's clock.
    pub fn time(&self) -> Instant {
        self.driver.time()
    }

    /// Sockets on the queue: 1, and the siblings.
    pub fn sockets(&self) -> usize {
        match self.user() {
            User::Whole(_, siblings) => 1 + siblings.len(),
            User::Halves(..) => 1,
        }
    }

    /// Opens a sibling; not on a split socket.
    ///
    /// # Errors
    ///
    /// Same as [`Socket::add_sibling`].
    pub fn add_sibling(&mut self, rx: u32, tx: u32) -> Result<()> {
        if let User::Whole(socket, siblings) = self.user_mut() {
            siblings.push(socket.add_sibling(rx, tx)?);
        }
        Ok(())
    }

    /// Splits the socket, unless it has siblings.
    pub fn split(&mut self) {
        self.user = match self.user.take() {
            Some(User::Whole(socket, siblings)) if siblings.is_empty() => {
                let (rx, tx) = socket.split();
                Some(User::Halves(rx, tx))
            }
            user => user,
        };
    }

    /// Receives a batch through one of the sockets.
    ///
    /// # Panics
    ///
    /// When there is no such sibling.
    pub fn recv<R>(&mut self, socket: usize, max: u32, with: impl FnOnce(RxBatch<'_>) -> R) -> R {
        match self.user_mut() {
            User::Whole(main, _) if socket == 0 => with(main.recv(max)),
            User::Whole(main, siblings) => {
                let id = siblings[socket - 1];
                with(main.sibling(id).expect("an open sibling").recv(max))
            }
            User::Halves(rx, _) => with(rx.recv(max)),
        }
    }

    /// Same as [`Socket::receive_each`].
    pub fn receive_each<F>(&mut self, max: u32, each: F) -> u32
    where
        F: for<'p> FnMut(Received<'p>) -> Done<'p>,
    {
        match self.user_mut() {
            User::Whole(socket, _) => socket.receive_each(max, each),
            User::Halves(rx, _) => rx.receive_each(max, each),
        }
    }

    /// Same as [`Socket::try_receive_each`].
    ///
    /// # Errors
    ///
    /// Same as [`Socket::try_receive_each`].
    pub fn try_receive_each<E, F>(&mut self, max: u32, each: F) -> std::result::Result<u32, E>
    where
        F: for<'p> FnMut(Received<'p>) -> std::result::Result<Done<'p>, E>,
    {
        match self.user_mut() {
            User::Whole(socket, _) => socket.try_receive_each(max, each),
            User::Halves(rx, _) => rx.try_receive_each(max, each),
        }
    }

    /// Same as [`Socket::forward_each`]; the half of a socket forwards nothing.
    pub fn forward_each<F>(&mut self, max: u32, each: F) -> u32
    where
        F: for<'p> FnMut(Received<'p, true>) -> Done<'p>,
    {
        match self.user_mut() {
            User::Whole(socket, _) => socket.forward_each(max, each),
            User::Halves(..) => 0,
        }
    }

    /// Same as [`Socket::send_each`].
    pub fn send_each(&mut self, max: u32, write: impl FnMut(&mut [u8]) -> usize) -> u32 {
        match self.user_mut() {
            User::Whole(socket, _) => socket.send_each(max, write),
            User::Halves(_, tx) => tx.send_each(max, write),
        }
    }

    /// Sends a batch through one of the sockets.
    ///
    /// # Panics
    ///
    /// When there is no such sibling.
    pub fn send_batch<R>(
        &mut self,
        socket: usize,
        max: u32,
        with: impl FnOnce(TxBatch<'_>) -> R,
    ) -> R {
        match self.user_mut() {
            User::Whole(main, _) if socket == 0 => with(main.send_batch(max)),
            User::Whole(main, siblings) => {
                let id = siblings[socket - 1];
                with(main.sibling(id).expect("an open sibling").send_batch(max))
            }
            User::Halves(_, tx) => with(tx.send_batch(max)),
        }
    }

    /// Same as [`Socket::recv_frames`].
    pub fn recv_frames(&mut self, frames: &mut Vec<Frame>, max: u32) -> usize {
        match self.user_mut() {
            User::Whole(socket, _) => socket.recv_frames(frames, max),
            User::Halves(rx, _) => rx.recv_frames(frames, max),
        }
    }

    /// Same as [`Socket::send_frames`].
    pub fn send_frames(&mut self, frames: &mut Vec<Frame>) -> usize {
        match self.user_mut() {
            User::Whole(socket, _) => socket.send_frames(frames),
            User::Halves(_, tx) => tx.send_frames(frames),
        }
    }

    /// Same as [`Socket::free_frames`].
    pub fn free_frames(&mut self, frames: Vec<Frame>) {
        match self.user_mut() {
            User::Whole(socket, _) => socket.free_frames(frames),
            User::Halves(rx, _) => rx.free_frames(frames),
        }
    }

    /// Same as [`Socket::alloc`].
    pub fn alloc(&mut self) -> Option<Frame> {
        match self.user_mut() {
            User::Whole(socket, _) => socket.alloc(),
            User::Halves(_, tx) => tx.alloc(),
        }
    }

    /// Sends through one of the sockets, with a request.
    ///
    /// # Errors
    ///
    /// Same as [`Socket::send_with`].
    ///
    /// # Panics
    ///
    /// When there is no such sibling.
    pub fn send_with(
        &mut self,
        socket: usize,
        frame: Frame,
        request: &TxRequest,
    ) -> std::result::Result<(), SendError<Frame>> {
        match self.user_mut() {
            User::Whole(main, _) if socket == 0 => main.send_with(frame, request),
            User::Whole(main, siblings) => {
                let id = siblings[socket - 1];
                let mut sibling = main.sibling(id).expect("an open sibling");
                sibling.send_with(frame, request)
            }
            User::Halves(_, tx) => tx.send_with(frame, request),
        }
    }

    /// Sends through one of the sockets.
    ///
    /// # Errors
    ///
    /// Same as [`Socket::send`].
    ///
    /// # Panics
    ///
    /// When there is no such sibling.
    pub fn send(
        &mut self,
        socket: usize,
        frame: Frame,
    ) -> std::result::Result<(), SendError<Frame>> {
        match self.user_mut() {
            User::Whole(main, _) if socket == 0 => main.send(frame),
            User::Whole(main, siblings) => {
                let id = siblings[socket - 1];
                main.sibling(id).expect("an open sibling").send(frame)
            }
            User::Halves(_, tx) => tx.send(frame),
        }
    }

    /// Sends a packet of several frames through one of the sockets.
    ///
    /// # Errors
    ///
    /// Same as [`Socket::send_fragments`].
    ///
    /// # Panics
    ///
    /// When there is no such sibling.
    pub fn send_fragments(
        &mut self,
        socket: usize,
        packet: Fragments,
    ) -> std::result::Result<(), SendError<Fragments>> {
        match self.user_mut() {
            User::Whole(main, _) if socket == 0 => main.send_fragments(packet),
            User::Whole(main, siblings) => {
                let id = siblings[socket - 1];
                let mut sibling = main.sibling(id).expect("an open sibling");
                sibling.send_fragments(packet)
            }
            User::Halves(_, tx) => tx.send_fragments(packet),
        }
    }

    /// Same as [`Socket::tx_room`].
    pub fn tx_room(&mut self) -> u32 {
        match self.user_mut() {
            User::Whole(socket, _) => socket.tx_room(),
            User::Halves(_, tx) => tx.tx_room(),
        }
    }

    /// The socket that packets of another can be sent on, unless it is split.
    fn whole(&mut self) -> Option<&mut Socket> {
        match self.user_mut() {
            User::Whole(socket, _) => Some(socket),
            User::Halves(..) => None,
        }
    }

    /// Flushes one of the sockets.
    ///
    /// # Errors
    ///
    /// Same as [`Socket::flush`].
    ///
    /// # Panics
    ///
    /// When there is no such sibling.
    pub fn flush(&mut self, socket: usize) -> Result<()> {
        match self.user_mut() {
            User::Whole(main, _) if socket == 0 => main.flush(),
            User::Whole(main, siblings) => {
                let id = siblings[socket - 1];
                main.sibling(id).expect("an open sibling").flush()
            }
            User::Halves(_, tx) => tx.flush(),
        }
    }

    /// Waits for a packet of one of the sockets.
    ///
    /// # Errors
    ///
    /// Same as [`Socket::wait`].
    ///
    /// # Panics
    ///
    /// When there is no such sibling.
    pub fn wait(&mut self, socket: usize, timeout: Duration) -> Result<bool> {
        match self.user_mut() {
            User::Whole(main, _) if socket == 0 => main.wait(timeout),
            User::Whole(main, siblings) => {
                let id = siblings[socket - 1];
                main.sibling(id).expect("an open sibling").wait(timeout)
            }
            User::Halves(rx, _) => rx.wait(timeout),
        }
    }

    /// Same as [`Socket::prepare_to_wait`], through one of the sockets.
    ///
    /// # Errors
    ///
    /// Same as [`Socket::prepare_to_wait`].
    ///
    /// # Panics
    ///
    /// When there is no such sibling.
    pub fn prepare_to_wait(&mut self, socket: usize, interest: Interest) -> Result<Ready> {
        match self.user_mut() {
            User::Whole(main, _) if socket == 0 => main.prepare_to_wait(interest),
            User::Whole(main, siblings) => {
                let id = siblings[socket - 1];
                let mut sibling = main.sibling(id).expect("an open sibling");
                sibling.prepare_to_wait(interest)
            }
            User::Halves(rx, _) => rx.prepare_to_wait(),
        }
    }

    /// An event loop sleeps, while the driver works.
    pub fn pass(&mut self, time: Duration) {
        self.driver.sleep(time);
        self.queue().pass(time);
    }

    /// Whether waiting for packets looks after TX too: a receiving half does not.
    pub fn waits_for_tx(&self) -> bool {
        matches!(self.user(), User::Whole(..))
    }

    /// Same as [`Socket::reclaim`].
    pub fn reclaim(&mut self) -> u32 {
        match self.user_mut() {
            User::Whole(socket, _) => socket.reclaim(),
            User::Halves(_, tx) => tx.reclaim(),
        }
    }

    /// Same as [`Socket::statistics`]; of halves, those of the sending one.
    ///
    /// # Errors
    ///
    /// Same as [`Socket::statistics`].
    pub fn statistics(&self) -> Result<Statistics> {
        match self.user() {
            User::Whole(socket, _) => socket.statistics(),
            User::Halves(_, tx) => tx.statistics(),
        }
    }

    /// Checks that a handle, which another thread may have, has the same counters.
    fn check_counters(&self) -> Checked<()> {
        let same = || -> Result<bool> {
            let now = self.counters.statistics()?;
            Ok(match self.user() {
                User::Whole(socket, _) => now == socket.statistics()?,
                User::Halves(rx, tx) => {
                    let (rx, tx) = (rx.statistics()?, tx.statistics()?);
                    let both = |of: fn(&Statistics) -> u64| of(&now) == of(&rx) + of(&tx);
                    let [received, sent] = [now.received == rx.received, now.sent == tx.sent];
                    received && sent && both(|it| it.wakeups) && both(|it| it.invalid_descs)
                }
            })
        };
        match same() {
            Ok(true) => Ok(()),
            Ok(false) => Err(format!("{:?} differs", self.counters.statistics())),
            Err(error) => Err(error.to_string()),
        }
    }

    // The library's state, for the checks.

    fn fill(&self) -> &FillRing {
        match self.user() {
            User::Whole(socket, _) => &socket.receiver.fill,
            User::Halves(rx, _) => &rx.receiver.fill,
        }
    }

    fn completion(&self) -> &CompletionRing {
        match self.user() {
            User::Whole(socket, _) => &socket.sender.completion,
            User::Halves(_, tx) => &tx.sender.completion,
        }
    }

    fn caches(&self) -> Vec<&Cache> {
        match self.user() {
            User::Whole(socket, _) => vec![&socket.sender.cache],
            User::Halves(rx, tx) => vec![&rx.cache, &tx.sender.cache],
        }
    }

    /// RX of each socket; TX likewise.
    fn rx(&self) -> Vec<Option<&RxRing>> {
        let receiver = match self.user() {
            User::Whole(socket, _) => &socket.receiver,
            User::Halves(rx, _) => &rx.receiver,
        };
        let ends = std::iter::once(&receiver.main).chain(&receiver.siblings);
        ends.map(|end| end.ring.as_ref()).collect()
    }

    fn tx(&self) -> Vec<Option<&TxRing>> {
        let sender = match self.user() {
            User::Whole(socket, _) => &socket.sender,
            User::Halves(_, tx) => &tx.sender,
        };
        let ends = std::iter::once(&sender.main).chain(&sender.siblings);
        ends.map(|end| end.ring.as_ref()).collect()
    }

    /// The index of the next packet that a socket reads.
    fn next_received(&self, socket: usize) -> u32 {
        self.rx()[socket].map_or(0, RxRing::next)
    }

    /// Chunks lent for sending.
    pub fn outstanding(&self) -> u32 {
        self.completion().lent()
    }

    /// Descriptors and completions that the library rejected.
    pub fn invalid_descs(&self) -> u64 {
        self.fill().invalid_descs().get() + self.completion().invalid_descs().get()
    }

    /// Impossible indices that the library read.
    pub fn invalid_indices(&self) -> u64 {
        let queue = [
            self.fill().invalid_indices(),
            self.completion().invalid_indices(),
        ];
        let rx = self.rx().into_iter().flatten().map(RxRing::invalid_indices);
        let tx = self.tx().into_iter().flatten().map(TxRing::invalid_indices);
        let all = queue.into_iter().chain(rx).chain(tx);
        all.map(Counter::get).sum()
    }

    /// The kernel takes up to `most` chunks from FILL, and does not publish that yet.
    pub fn take_fill(&mut self, most: u32) -> u32 {
        self.queue().take_fill(most)
    }

    /// The kernel receives a packet for one of the sockets, whole. False when it drops the packet: because
    /// it is too long, there are not enough chunks, or RX is full, in which case the kernel keeps the chunks.
    ///
    /// # Errors
    ///
    /// When FILL held a chunk that the library had not lent.
    pub fn receive(&mut self, socket: usize, packet: &[u8]) -> Checked<bool> {
        self.queue().receive(socket, packet)
    }

    /// The kernel publishes RX and its index of FILL (`xsk_flush`).
    pub fn announce(&mut self) {
        self.queue().announce();
    }

    /// The kernel takes up to `most` packets from TX, as far as COMPLETION has room for them, and
    /// does not publish that before [`release_tx`](Self::release_tx).
    ///
    /// # Errors
    ///
    /// When the kernel would reject a descriptor, or its chunk was not lent.
    pub fn transmit(&mut self, socket: usize, most: u32) -> Checked<u32> {
        self.queue().transmit(socket, most)
    }

    /// The kernel publishes its index of TX.
    pub fn release_tx(&mut self, socket: usize) {
        self.queue().release_tx(socket);
    }

    /// The kernel completes one of the packets in flight, with the lowest bit of its address cleared
    /// or not. False when there is none.
    ///
    /// # Errors
    ///
    /// When the packet's bytes have changed since they were taken.
    pub fn complete(&mut self, which: usize, clear_lowest_bit: bool) -> Checked<bool> {
        self.queue().complete(which, clear_lowest_bit)
    }

    /// The kernel's answers to the next calls that wake it for TX.
    pub fn answer(&mut self, answers: &[Answer]) {
        self.queue().answers = answers.iter().copied().collect();
    }

    /// The driver does nothing at its next turns.
    pub fn idle(&mut self, turns: u32) {
        self.queue().idle_turns = turns;
    }

    /// One turn of the driver.
    pub fn turn(&mut self) {
        self.queue().turn();
    }

    /// The driver stops sending after its last look at TX, and asks for a wake-up or does not.
    pub fn sleep(&mut self, ask: bool) {
        self.queue().sleep(ask);
    }

    /// The device is reset.
    pub fn reset(&mut self) {
        self.queue().reset();
    }

    /// Puts packets on the wire to the first socket.
    pub fn put_on_wire(&mut self, packets: u32) {
        self.queue().wire = packets;
    }

    fn with_word<R>(&self, ring: Ring, word: Word, of: impl FnOnce(&AtomicU32) -> R) -> R {
        fn pick<T: Slot>(memory: &Mapped<T>, word: Word) -> &AtomicU32 {
            match word {
                Word::Producer => memory.producer(),
                Word::Consumer => memory.consumer(),
                Word::Flags => memory.flags(),
            }
        }
        const OPEN: &str = "the first socket has all rings";
        let queue = self.queue();
        let Queue {
            fill, completion, ..
        } = &*queue;
        let main = &queue.sockets[0];
        match ring {
            Ring::Fill => of(pick(&fill.as_ref().expect(OPEN).memory, word)),
            Ring::Completion => of(pick(&completion.as_ref().expect(OPEN).memory, word)),
            Ring::Rx => of(pick(&main.rx.as_ref().expect(OPEN).memory, word)),
            Ring::Tx => of(pick(&main.tx.as_ref().expect(OPEN).memory, word)),
        }
    }

    /// A shared word of a ring of the first socket.
    pub fn load(&self, ring: Ring, word: Word) -> u32 {
        self.with_word(ring, word, |word| word.load(Ordering::Relaxed))
    }

    /// A peer writes a shared word of a ring of the first socket.
    pub fn store(&mut self, ring: Ring, word: Word, value: u32) {
        self.with_word(ring, word, |word| word.store(value, Ordering::Relaxed));
    }

    /// A hostile peer writes a slot of RX, `ahead` of the kernel's last.
    pub fn forge_rx(&mut self, ahead: u32, addr: u64, len: u32, options: u32) {
        if let Some(KernelEnd { end, memory }) = &self.queue().sockets[0].rx {
            let index = end.next().wrapping_add(ahead);
            memory.write(index, Desc { addr, len, options });
        }
    }

    /// A hostile peer writes a slot of COMPLETION, `ahead` of the kernel's last.
    pub fn forge_completion(&mut self, ahead: u32, addr: u64) {
        if let Some(KernelEnd { end, memory }) = &self.queue().completion {
            memory.write(end.next().wrapping_add(ahead), addr);
        }
    }
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}
