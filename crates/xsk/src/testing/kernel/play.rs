//! Plays steps of a program and of the kernel on the queues of one UMEM, and checks all invariants
//! after each.

use super::places::same;
use super::queue::Arriving;
use super::{Answer, Checked, Config, Model, Ring, Word, check, check_user_space, lock};
use crate::batch::Packet;
use crate::error::{ErrorKind, Result};
use crate::fragments::Fragments;
use crate::frame::Frame;
use crate::socket::{DRAIN, Done, Received};
use crate::tx_metadata::TxRequest;
use crate::umem::Umem;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

/// A program's use of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Drops it.
    Drop,
    /// Keeps it as a frame.
    Keep,
    /// Rewrites it and sends it from the socket that received it.
    Send,
    /// Rewrites it and sends it from the next queue's socket, from within the batch.
    SendElsewhere,
    /// Sends a frame allocated from the packet, and drops the packet.
    Answer,
    /// Forgets it.
    Forget,
    /// Panics, in a closure; elsewhere it drops the packet.
    Panic,
}

/// One step. Numbers that choose a queue, socket, frame or packet are taken modulo their count.
#[derive(Debug, Clone)]
#[expect(
    missing_docs,
    reason = "the fields are the arguments of the model's moves"
)]
pub enum Step {
    /// The program receives a batch. Packets without a fate stay in it; it may forget the batch.
    Recv {
        queue: u8,
        socket: u8,
        max: u8,
        fates: Vec<Fate>,
        forget: bool,
    },
    /// The program receives packets of one chunk or several. Those without a fate stay in the batch.
    RecvFragments {
        queue: u8,
        socket: u8,
        max: u8,
        fates: Vec<Fate>,
    },
    /// The program sends frames that it holds as one packet.
    SendFragments { queue: u8, socket: u8, count: u8 },
    /// The program receives in bulk. Packets without a fate are dropped.
    Each {
        queue: u8,
        max: u8,
        fates: Vec<Fate>,
        forward: bool,
    },
    /// The program sends so many packets in bulk, of which one may panic.
    SendEach {
        queue: u8,
        max: u8,
        len: u16,
        count: u8,
        panics: bool,
    },
    /// The program writes packets of so many bytes into a batch. Those that it is to keep are sent last, from the last
    /// one on; those without a fate are not iterated.
    SendBatch {
        queue: u8,
        socket: u8,
        max: u8,
        len: u16,
        fates: Vec<Fate>,
    },
    /// The program receives frames in bulk, and holds them.
    RecvFrames { queue: u8, max: u8 },
    /// The program sends frames that it holds in bulk.
    SendFrames { queue: u8, count: u8 },
    /// The program frees frames that it holds in bulk.
    FreeFrames { queue: u8, count: u8 },
    /// The program allocates a frame, writes `len` bytes and holds it.
    Alloc { queue: u8, len: u16 },
    /// The program sends a frame that it holds.
    Send { queue: u8, socket: u8, which: u8 },
    /// The program drops a frame that it holds.
    Drop { which: u8 },
    /// The program flushes.
    Flush { queue: u8, socket: u8 },
    /// The program waits for packets, so many milliseconds at most.
    Wait { queue: u8, socket: u8, millis: u8 },
    /// The program reclaims completed chunks.
    Reclaim { queue: u8 },
    /// The program opens a sibling, up to one on each queue.
    AddSibling { queue: u8 },
    /// The program splits the socket.
    Split { queue: u8 },
    /// The program closes the socket and opens the queue again.
    Reopen { queue: u8 },
    /// The kernel takes chunks from FILL.
    TakeFill { queue: u8, most: u8 },
    /// The kernel receives a packet.
    Receive { queue: u8, socket: u8, len: u16 },
    /// The kernel publishes RX.
    Announce { queue: u8 },
    /// The kernel takes packets from TX, and publishes that at once or later.
    Transmit {
        queue: u8,
        socket: u8,
        most: u8,
        release: bool,
    },
    /// The kernel completes a packet.
    Complete {
        queue: u8,
        which: u8,
        clear_lowest_bit: bool,
    },
    /// The kernel answers the next calls that wake it for TX.
    Answer { queue: u8, answers: Vec<Answer> },
    /// The driver does nothing at so many turns to come.
    Idle { queue: u8, turns: u8 },
    /// The driver has a turn.
    Turn { queue: u8 },
    /// The driver stops sending, and asks for a wake-up or does not.
    Sleep { queue: u8, ask: bool },
    /// The device is reset.
    Reset { queue: u8 },
    /// So many packets are on the wire to the first socket.
    Wire { queue: u8, packets: u8 },
    /// A peer writes an index.
    ForgeIndex {
        queue: u8,
        ring: Ring,
        word: Word,
        value: u32,
    },
    /// A peer moves an index.
    MoveIndex {
        queue: u8,
        ring: Ring,
        word: Word,
        by: i8,
    },
    /// A peer writes a descriptor into RX.
    ForgeRx {
        queue: u8,
        ahead: u8,
        addr: u64,
        len: u32,
        options: u32,
    },
    /// A peer writes an address into COMPLETION.
    ForgeCompletion { queue: u8, ahead: u8, addr: u64 },
}

impl Step {
    fn is_a_lie(&self) -> bool {
        matches!(
            self,
            Self::ForgeIndex { .. }
                | Self::MoveIndex { .. }
                | Self::ForgeRx { .. }
                | Self::ForgeCompletion { .. }
        )
    }
}

/// A frame that the program holds, and its expected content.
struct Held {
    frame: Frame,
    bytes: Vec<u8>,
}

impl Held {
    fn new(frame: Frame) -> Self {
        let bytes = frame.to_vec();
        Self { frame, bytes }
    }
}

/// The queues of a UMEM, a program that uses them, and a kernel behind each.
pub struct Play {
    umem: Umem,
    config: Config,
    models: Vec<Model>,
    held: Vec<Held>,
    written: u8,
    lied_to: bool,
}

/// The longest time that a call takes beyond the one asked for, by the looks at the clock.
const SLACK: Duration = Duration::from_millis(5);

/// Within this time a packet leaves TX, and one on the wire arrives, when the program only waits.
const PATIENCE: Duration = Duration::from_millis(20);

/// As many flushes bring a packet out of TX.
const FLUSHES: u32 = 256;

impl Play {
    /// Opens `queues` queues with rings of the same sizes.
    ///
    /// # Panics
    ///
    /// When a queue cannot be opened.
    pub fn new(umem: &Umem, queues: u32, config: Config) -> Self {
        let open = |queue| Model::open(umem, queue, config).expect("the model opens");
        Self {
            umem: umem.clone(),
            config,
            models: (0..queues).map(open).collect(),
            held: Vec::new(),
            written: 0,
            lied_to: false,
        }
    }

    /// Descriptors and completions that the library rejected.
    pub fn invalid_descs(&self) -> u64 {
        self.models.iter().map(Model::invalid_descs).sum()
    }

    /// Impossible indices that the library read.
    pub fn invalid_indices(&self) -> u64 {
        self.models.iter().map(Model::invalid_indices).sum()
    }

    /// Does one step and checks all invariants.
    ///
    /// # Errors
    ///
    /// The first fault of the library or of the model.
    pub fn step(&mut self, step: &Step) -> Checked<()> {
        self.lied_to |= step.is_a_lie();
        let done = self.act(step);
        // After a forgery the library's descriptors need not satisfy the kernel.
        if !self.lied_to {
            done?;
        }
        self.check()
    }

    /// Closes every queue, drops every frame, and checks that all chunks are free when the kernel has
    /// let go of them.
    ///
    /// # Errors
    ///
    /// The first fault.
    pub fn end(mut self) -> Checked<()> {
        for model in std::mem::take(&mut self.models) {
            close(model, &self.umem, self.lied_to)?;
        }
        // Frames outlive the sockets that they came from.
        if self.held.iter().any(|held| *held.frame != *held.bytes) {
            return Err("a held frame changed while its socket was closed".into());
        }
        self.held.clear();
        self.umem.recover_retired(|_| true);
        let count = self.umem.accounting();
        same("free at the end", count.free, self.umem.chunks())
    }

    fn check(&self) -> Checked<()> {
        if self.held.iter().any(|held| *held.frame != *held.bytes) {
            return Err("a held frame has changed".into());
        }
        self.models.iter().try_for_each(Model::check_counters)?;
        let frames = self.held.iter().map(|held| &held.frame);
        if self.lied_to {
            return check_user_space(&self.umem, &self.models, frames);
        }
        let faults = self.models.iter().map(|model| model.queue().fault.clone());
        if let Some(fault) = faults.flatten().next() {
            return Err(fault);
        }
        let noticed = self.invalid_descs() + self.invalid_indices();
        same("lies noticed", noticed as u32, 0)?;
        check(&self.umem, &self.models, frames)
    }

    fn model(&mut self, queue: u8) -> &mut Model {
        let index = self.index(queue);
        &mut self.models[index]
    }

    fn index(&self, queue: u8) -> usize {
        usize::from(queue) % self.models.len()
    }

    /// A queue and the number of one of its sockets.
    fn socket(&mut self, queue: u8, socket: u8) -> (&mut Model, usize) {
        let model = self.model(queue);
        let socket = usize::from(socket) % model.sockets();
        (model, socket)
    }

    fn act(&mut self, step: &Step) -> Checked<()> {
        match *step {
            Step::Recv {
                queue,
                socket,
                max,
                ref fates,
                forget,
            } => self.recv([queue, socket, max], fates, forget),
            Step::RecvFragments {
                queue,
                socket,
                max,
                ref fates,
            } => self.recv_fragments([queue, socket, max], fates),
            Step::Each {
                queue,
                max,
                ref fates,
                forward,
            } => self.each(queue, u32::from(max), fates, forward),
            Step::SendEach {
                queue,
                max,
                len,
                count,
                panics,
            } => self.send_each(queue, u32::from(max), len, (count, panics)),
            Step::SendBatch {
                queue,
                socket,
                max,
                len,
                ref fates,
            } => self.send_batch(queue, socket, (u32::from(max), len.into()), fates),
            Step::Wait {
                queue,
                socket,
                millis,
            } => self.wait(queue, socket, Duration::from_millis(u64::from(millis))),
            Step::Flush { queue, socket } => self.flush(queue, socket),
            Step::Reopen { queue } => self.reopen(queue),
            Step::RecvFrames { queue, max } => self.recv_frames(queue, u32::from(max)),
            Step::SendFrames { queue, count } => self.send_frames(queue, count),
            _ => {
                self.act_simply(step);
                self.act_as_kernel(step)
            }
        }
    }

    /// Steps of the program that cannot fail.
    fn act_simply(&mut self, step: &Step) {
        match *step {
            Step::FreeFrames { queue, count } => {
                let frames = self.take_frames(count);
                self.model(queue).free_frames(frames);
            }
            Step::Alloc { queue, len } => self.alloc(queue, len),
            Step::Send {
                queue,
                socket,
                which,
            } => {
                if let Some(frame) = self.take_held(which) {
                    self.send(queue, socket, frame);
                }
            }
            Step::SendFragments {
                queue,
                socket,
                count,
            } => self.send_fragments(queue, socket, count),
            Step::Drop { which } => drop(self.take_held(which)),
            Step::Reclaim { queue } => {
                self.model(queue).reclaim();
            }
            Step::AddSibling { queue } => {
                let Config { rx, tx, .. } = self.config;
                let model = self.model(queue);
                if model.sockets() == 1 {
                    model.add_sibling(rx, tx).expect("the model adds siblings");
                }
            }
            Step::Split { queue } => self.model(queue).split(),
            _ => {}
        }
    }

    fn act_as_kernel(&mut self, step: &Step) -> Checked<()> {
        match *step {
            Step::TakeFill { queue, most } => {
                self.model(queue).take_fill(u32::from(most));
            }
            Step::Receive { queue, socket, len } => self.receive(queue, socket, len)?,
            Step::Announce { queue } => self.model(queue).announce(),
            Step::Transmit {
                queue,
                socket,
                most,
                release,
            } => {
                let (model, socket) = self.socket(queue, socket);
                model.transmit(socket, u32::from(most))?;
                if release {
                    model.release_tx(socket);
                }
            }
            Step::Complete {
                queue,
                which,
                clear_lowest_bit,
            } => {
                self.model(queue)
                    .complete(usize::from(which), clear_lowest_bit)?;
            }
            Step::Answer { queue, ref answers } => self.model(queue).answer(answers),
            Step::Idle { queue, turns } => self.model(queue).idle(u32::from(turns)),
            Step::Turn { queue } => self.model(queue).turn(),
            Step::Sleep { queue, ask } => self.model(queue).sleep(ask),
            Step::Reset { queue } => self.model(queue).reset(),
            Step::Wire { queue, packets } => self.model(queue).put_on_wire(u32::from(packets)),
            _ => self.lie(step),
        }
        Ok(())
    }

    fn lie(&mut self, step: &Step) {
        match *step {
            Step::ForgeIndex {
                queue,
                ring,
                word,
                value,
            } => self.model(queue).store(ring, word, value),
            Step::MoveIndex {
                queue,
                ring,
                word,
                by,
            } => {
                let model = self.model(queue);
                let value = model.load(ring, word).wrapping_add_signed(by.into());
                model.store(ring, word, value);
            }
            Step::ForgeRx {
                queue,
                ahead,
                addr,
                len,
                options,
            } => self
                .model(queue)
                .forge_rx(u32::from(ahead), addr, len, options),
            Step::ForgeCompletion { queue, ahead, addr } => {
                self.model(queue).forge_completion(u32::from(ahead), addr);
            }
            _ => {}
        }
    }

    /// Uses a batch of a queue's socket: the three numbers name queue, socket and most packets.
    fn recv(&mut self, [queue, socket, max]: [u8; 3], fates: &[Fate], forget: bool) -> Checked<()> {
        let index = self.index(queue);
        let (model, mut next) = with_next(&mut self.models, index);
        let socket = usize::from(socket) % model.sockets();
        let mut seen = Seen::before(model, socket);
        let held = &mut self.held;
        model.recv(socket, u32::from(max), |batch| {
            let mut batch = ManuallyDrop::new(batch);
            for fate in fates {
                let Some(packet) = batch.next_packet() else {
                    seen.rest = End::Freed;
                    break;
                };
                seen.packet(&packet);
                if let Some(frame) = use_packet(*fate, packet, &mut next, (&mut seen, forget)) {
                    held.push(Held::new(frame));
                }
            }
            if !forget {
                drop(ManuallyDrop::into_inner(batch));
            }
        });
        seen.after(model, socket, forget)
    }

    /// The same for packets of several chunks.
    fn recv_fragments(&mut self, [queue, socket, max]: [u8; 3], fates: &[Fate]) -> Checked<()> {
        let index = self.index(queue);
        let model = &mut self.models[index];
        let socket = usize::from(socket) % model.sockets();
        let mut seen = Seen::before(model, socket);
        let held = &mut self.held;
        model.recv(socket, u32::from(max), |mut batch| {
            for fate in fates {
                let Some(mut packet) = batch.next_fragments() else {
                    break;
                };
                seen.fragments(&packet);
                match fate {
                    Fate::Keep => held.extend(packet.into_frames().map(Held::new)),
                    Fate::Send => {
                        for frame in packet.frames_mut() {
                            frame.fill(0xee);
                        }
                        // One that is not sent is dropped.
                        let _ = batch.send_fragments(packet);
                    }
                    _ => drop(packet),
                }
            }
        });
        seen.after(model, socket, false)
    }

    fn send_fragments(&mut self, queue: u8, socket: u8, count: u8) {
        let mut packet = Fragments::new();
        for frame in self.take_frames(count) {
            packet.push(frame).expect("fewer than 18 frames");
        }
        let (model, socket) = self.socket(queue, socket);
        if let Err(unsent) = model.send_fragments(socket, packet) {
            let frames = unsent.packet.into_frames();
            self.held.extend(frames.map(Held::new));
        }
    }

    fn each(&mut self, queue: u8, max: u32, fates: &[Fate], forward: bool) -> Checked<()> {
        let index = self.index(queue);
        let model = &mut self.models[index];
        let mut seen = Seen::before(model, 0);
        let held = &mut self.held;
        let mut fates = fates.iter().copied();
        // A panic ends the pass, and the other packets are recycled.
        let _ = until_panic(|| {
            if forward {
                model.forward_each(max, |mut packet| {
                    seen.packet(&packet);
                    match fates.next().unwrap_or(Fate::Drop) {
                        Fate::Send => {
                            packet.fill(0xee);
                            let _ = packet.adjust_head(-14);
                            let _ = packet.adjust_tail(4);
                            packet.send()
                        }
                        fate => decide(fate, packet, held),
                    }
                })
            } else {
                model.receive_each(max, |packet| {
                    seen.packet(&packet);
                    decide(fates.next().unwrap_or(Fate::Drop), packet, held)
                })
            }
        });
        seen.after(model, 0, false)
    }

    fn send_each(
        &mut self,
        queue: u8,
        max: u32,
        len: u16,
        (count, panics): (u8, bool),
    ) -> Checked<()> {
        self.written = self.written.wrapping_add(1);
        let byte = self.written;
        let room = self.umem.chunk_size() - self.umem.area().frame_offset();
        let model = self.model(queue);
        let before = model.outstanding();
        let mut left = u32::from(count);
        let mut written = 0;
        let sent = until_panic(|| {
            model.send_each(max, |room| {
                if left == 0 && panics {
                    program_panics();
                }
                let len = if left == 0 { 0 } else { usize::from(len) };
                let Some(room) = room.get_mut(..len) else {
                    return 0;
                };
                room.fill(byte);
                left = left.saturating_sub(1);
                written += u32::from(len > 0);
                len
            })
        });
        if let Some(sent) = sent {
            same("sent in bulk", sent, written)?;
            let wanted = if (1..=room).contains(&u32::from(len)) {
                max.min(count.into())
            } else {
                0
            };
            if sent < wanted && model.tx_room() > 0 && model.alloc().is_some() {
                return Err(format!(
                    "sent {sent} of {wanted}, with room and a free chunk"
                ));
            }
        }
        if model.outstanding() > before + written {
            return Err("more packets are being sent than were written".into());
        }
        Ok(())
    }

    fn send_batch(
        &mut self,
        queue: u8,
        socket: u8,
        (max, len): (u32, usize),
        fates: &[Fate],
    ) -> Checked<()> {
        self.written = self.written.wrapping_add(1);
        let byte = self.written;
        let model = self.model(queue);
        let socket = usize::from(socket) % model.sockets();
        let before = model.outstanding();
        let (mut sent, mut reserved) = (0, 0);
        let ended = until_panic(|| {
            model.send_batch(socket, max, |mut batch| {
                reserved = batch.len();
                let mut kept = Vec::new();
                for (&fate, mut packet) in fates.iter().zip(&mut batch) {
                    if packet.resize(len).is_err() {
                        continue;
                    }
                    packet.fill(byte);
                    match fate {
                        Fate::Send => {
                            sent += u32::from(len > 0);
                            packet.send();
                        }
                        Fate::Keep => kept.push(packet),
                        Fate::Panic => program_panics(),
                        // To forget it is to drop it.
                        Fate::Drop | Fate::Forget | Fate::SendElsewhere | Fate::Answer => {}
                    }
                }
                for packet in kept.into_iter().rev() {
                    sent += u32::from(len > 0);
                    packet.send();
                }
                let left = reserved - reserved.min(fates.len());
                same("packets left", batch.len() as u32, left as u32)
            })
        });
        ended.unwrap_or(Ok(()))?;
        if socket == 0 && reserved == 0 && max > 0 && model.tx_room() > 0 && model.alloc().is_some()
        {
            return Err("no packet, with room and a free chunk".into());
        }
        if model.outstanding() > before + sent {
            return Err("more packets are being sent than were sent in place".into());
        }
        Ok(())
    }

    fn recv_frames(&mut self, queue: u8, max: u32) -> Checked<()> {
        let index = self.index(queue);
        let model = &mut self.models[index];
        let mut seen = Seen::before(model, 0);
        let mut frames = Vec::new();
        let count = model.recv_frames(&mut frames, max);
        same("frames received", count as u32, frames.len() as u32)?;
        for frame in &frames {
            seen.packet(frame);
        }
        self.held.extend(frames.into_iter().map(Held::new));
        seen.after(model, 0, false)
    }

    fn send_frames(&mut self, queue: u8, count: u8) -> Checked<()> {
        let mut frames = self.take_frames(count);
        // Empty ones are dropped, also those in other ones' slots.
        let empty = frames.iter().filter(|frame| frame.is_empty()).count();
        let packets = frames.len() - empty;
        let model = self.model(queue);
        let before = model.outstanding();
        let sent = model.send_frames(&mut frames) as u32;
        same(
            "frames lent for sending",
            model.outstanding() - before,
            sent,
        )?;
        if frames.is_empty() {
            same("frames sent", sent, packets as u32)?;
        } else if empty == 0 {
            same("room that frames were left for", model.tx_room(), 0)?;
        }
        self.held.extend(frames.into_iter().map(Held::new));
        Ok(())
    }

    fn take_frames(&mut self, count: u8) -> Vec<Frame> {
        let from = self.held.len().saturating_sub(usize::from(count));
        let held = self.held.drain(from..);
        held.map(|held| held.frame).collect()
    }

    fn alloc(&mut self, queue: u8, len: u16) {
        self.written = self.written.wrapping_add(1);
        let bytes = vec![self.written; usize::from(len)];
        if let Some(mut frame) = self.model(queue).alloc() {
            // When it is too long, the frame stays empty.
            let _ = frame.fill_with(&bytes);
            self.held.push(Held::new(frame));
        }
    }

    fn send(&mut self, queue: u8, socket: u8, frame: Frame) {
        let asks = frame.umem().tx_metadata() && frame.first().is_some_and(|byte| byte % 2 == 1);
        let (model, socket) = self.socket(queue, socket);
        let sent = if asks {
            model.send_with(socket, frame, &TxRequest::new().timestamp(1))
        } else {
            model.send(socket, frame)
        };
        if let Err(unsent) = sent {
            self.held.push(Held::new(unsent.packet));
        }
    }

    fn take_held(&mut self, which: u8) -> Option<Frame> {
        let which = usize::from(which).checked_rem(self.held.len())?;
        Some(self.held.swap_remove(which).frame)
    }

    fn receive(&mut self, queue: u8, socket: u8, len: u16) -> Checked<()> {
        self.written = self.written.wrapping_add(1);
        let packet = vec![self.written; usize::from(len)];
        let (model, socket) = self.socket(queue, socket);
        model.receive(socket, &packet).map(drop)
    }

    fn flush(&mut self, queue: u8, socket: u8) -> Checked<()> {
        let (model, socket) = self.socket(queue, socket);
        let done = model.flush(socket);
        check_error(model, done)
    }

    fn wait(&mut self, queue: u8, socket: u8, timeout: Duration) -> Checked<()> {
        let (model, socket) = self.socket(queue, socket);
        let start = model.time();
        let done = model.wait(socket, timeout);
        let took = model.time() - start;
        if took > timeout + SLACK {
            return Err(format!("waiting for {timeout:?} took {took:?}"));
        }
        check_error(model, done)
    }

    fn reopen(&mut self, queue: u8) -> Checked<()> {
        let index = self.index(queue);
        let model = self.models.swap_remove(index);
        close(model, &self.umem, self.lied_to)?;
        let config = self.config;
        let opened = Model::open(&self.umem, index as u32, config);
        let opened = opened.map_err(|error| format!("opening again: {error}"))?;
        self.models.push(opened);
        let last = self.models.len() - 1;
        self.models.swap(index, last);
        Ok(())
    }

    /// From any state: when the kernel works as it should from now on, packets leave TX within a time
    /// while the program only waits, or after some flushes; and a packet on the wire arrives.
    ///
    /// # Errors
    ///
    /// The stall, or another fault.
    pub fn goes_on(mut self, by_waiting: bool) -> Checked<()> {
        if self.lied_to {
            return self.end();
        }
        self.held.clear();
        for index in 0..self.models.len() {
            self.calm(index)?;
        }
        for index in 0..self.models.len() {
            self.tx_goes_on(index, by_waiting)?;
        }
        for index in 0..self.models.len() {
            self.rx_goes_on(index)?;
        }
        self.check()?;
        self.end()
    }

    /// Ends the kernel's late answers and steps, and empties RX.
    fn calm(&mut self, index: usize) -> Checked<()> {
        let model = &mut self.models[index];
        model.answer(&[]);
        model.idle(0);
        model.put_on_wire(0);
        model.announce();
        for socket in 0..model.sockets() {
            model.release_tx(socket);
            // The first look can be at packets that were known of before.
            for _ in 0..2 {
                let seen = Seen::before(model, socket);
                model.recv(socket, u32::MAX, |batch| drop(batch));
                seen.after(model, socket, false)?;
            }
        }
        Ok(())
    }

    fn tx_goes_on(&mut self, index: usize, by_waiting: bool) -> Checked<()> {
        let model = &mut self.models[index];
        for socket in 0..model.sockets() {
            let flushed = model.flush(socket);
            check_error(model, flushed)?;
            if by_waiting && model.waits_for_tx() {
                let waited = model.wait(socket, PATIENCE);
                check_error(model, waited)?;
            } else {
                for _ in 0..FLUSHES {
                    let flushed = model.flush(socket);
                    check_error(model, flushed)?;
                    model.turn();
                }
            }
            let left = model.queue().published(socket);
            same("packets that stay in TX", left, 0)?;
        }
        Ok(())
    }

    fn rx_goes_on(&mut self, index: usize) -> Checked<()> {
        let model = &mut self.models[index];
        if !model.lost.received.is_empty() || !model.lost.sent.is_empty() {
            return Ok(()); // Chunks that the program forgot count as lent.
        }
        let start = model.time();
        while model.time() - start < PATIENCE {
            // In copy mode the one before was dropped if FILL was empty then.
            model.put_on_wire(1);
            let done = model.wait(0, PATIENCE / 8);
            if done.map_err(|error| format!("waiting in peace: {error}"))? {
                return Ok(());
            }
        }
        // Its own caches can have had no chunk either: it refills from them.
        if model.fill().starves() && self.umem.accounting().free == 0 {
            return Ok(());
        }
        Err("a packet on the wire does not arrive".into())
    }
}

/// A queue, and the one that packets are sent elsewhere on, unless it is the same.
fn with_next(models: &mut [Model], index: usize) -> (&mut Model, Option<&mut Model>) {
    let next = (index + 1) % models.len();
    if next == index {
        return (&mut models[index], None);
    }
    let [model, next] = models
        .get_disjoint_mut([index, next])
        .expect("two queues of those there are");
    (model, Some(next))
}

/// Uses a packet of a batch, which may be forgotten; returns it as a frame to hold.
fn use_packet(
    fate: Fate,
    mut packet: Packet<'_, '_>,
    next: &mut Option<&mut Model>,
    (seen, forget): (&mut Seen, bool),
) -> Option<Frame> {
    match fate {
        Fate::Keep => {
            seen.ends_last(End::Kept);
            return Some(packet.keep());
        }
        Fate::Send => {
            rewrite(&mut packet);
            // A packet that is not sent is dropped, and its chunk recycled.
            if packet.send().is_ok() && forget {
                seen.ends_last(End::Sent);
            }
        }
        Fate::SendElsewhere => {
            rewrite(&mut packet);
            let Some(socket) = next.as_mut().and_then(|next| next.whole()) else {
                seen.ends_last(End::Kept);
                return Some(packet.keep());
            };
            // One that is not sent is recycled.
            if packet.send_on(socket).is_ok() {
                seen.ends_last(End::Kept);
                return None;
            }
        }
        Fate::Answer if !forget => {
            if let Some(mut frame) = packet.alloc() {
                let filled = frame.fill_with(&[0xaa; 64]);
                filled.expect("a chunk has room for 64 bytes");
                let _ = packet.send_frame(frame);
            }
        }
        Fate::Forget => {
            seen.ends_last(End::Forgotten);
            std::mem::forget(packet);
        }
        Fate::Drop | Fate::Answer | Fate::Panic => {}
    }
    None
}

/// Changes a packet's bytes and both ends, as far as there is room.
fn rewrite(packet: &mut Packet<'_, '_>) {
    packet.fill(0xee);
    let _ = packet.adjust_head(-14);
    let _ = packet.adjust_tail(4);
}

const PANIC: &str = "a program's panic";

fn program_panics() -> ! {
    resume_unwind(Box::new(PANIC))
}

/// Calls what a program's panic may end; `None` if one did. A panic of the library goes on.
fn until_panic<R>(of: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(of)) {
        Ok(result) => Some(result),
        Err(payload) if payload.downcast_ref() == Some(&PANIC) => None,
        Err(payload) => resume_unwind(payload),
    }
}

/// Decides on a packet in a closure.
fn decide<'p, const SENDS: bool>(
    fate: Fate,
    packet: Received<'p, SENDS>,
    held: &mut Vec<Held>,
) -> Done<'p> {
    match fate {
        Fate::Keep => {
            let (frame, done) = packet.keep();
            held.push(Held::new(frame));
            done
        }
        // It panics with the packet in its hands, or after it kept it.
        Fate::Panic => program_panics(),
        Fate::Forget => {
            let (frame, _) = packet.keep();
            held.push(Held::new(frame));
            program_panics()
        }
        _ => packet.recycle(),
    }
}

/// The end of a packet that a program saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Recycled,
    Kept,
    Sent,
    Forgotten,
    /// Dropped unseen: it has several chunks.
    Freed,
}

/// Compares the packets of one call with those that the kernel received.
struct Seen {
    arriving: VecDeque<Arriving>,
    ends: Vec<End>,
    /// The end of those that the program did not see.
    rest: End,
    changed: bool,
    /// The index of the next packet before the call.
    next: u32,
}

impl Seen {
    fn before(model: &Model, socket: usize) -> Self {
        Self {
            arriving: std::mem::take(&mut model.queue().sockets[socket].arriving),
            ends: Vec::new(),
            rest: End::Recycled,
            changed: false,
            next: model.next_received(socket),
        }
    }

    /// A packet of one chunk; those of several before it were dropped.
    fn packet(&mut self, bytes: &[u8]) {
        let is_part = |arriving: &Arriving| !arriving.is_whole();
        while self.arriving.get(self.ends.len()).is_some_and(is_part) {
            self.ends.push(End::Freed);
        }
        let expected = self.arriving.get(self.ends.len());
        self.changed |= expected.is_none_or(|arriving| arriving.bytes != bytes);
        self.ends.push(End::Recycled);
    }

    /// A packet of one chunk or several.
    fn fragments(&mut self, packet: &Fragments) {
        let mut left = packet.frames().len();
        for frame in packet.frames() {
            left -= 1;
            let expected = self.arriving.get(self.ends.len());
            let is_it =
                |arriving: &Arriving| *arriving.bytes == **frame && arriving.goes_on == (left > 0);
            self.changed |= !expected.is_some_and(is_it);
            self.ends.push(End::Kept);
        }
    }

    fn ends_last(&mut self, end: End) {
        if let Some(last) = self.ends.last_mut() {
            *last = end;
        }
    }

    /// Accounts for all packets that the call took from RX, those too that the program did not see.
    fn after(mut self, model: &mut Model, socket: usize, forgot: bool) -> Checked<()> {
        let taken = model.next_received(socket).wrapping_sub(self.next) as usize;
        let seen = self.ends.len();
        let rest = self.arriving.split_off(taken.min(self.arriving.len()));
        model.queue().sockets[socket].arriving = rest;
        self.ends.resize(taken.max(seen), self.rest);
        for (at, end) in self.ends.iter().enumerate() {
            let addr = self.arriving.get(at).map_or(0, |arriving| arriving.addr);
            match end {
                End::Sent if forgot => model.lost.sent.push(addr),
                End::Recycled if forgot => model.lost.received.push(addr),
                End::Forgotten => model.lost.received.push(addr),
                End::Recycled | End::Kept | End::Sent | End::Freed => {}
            }
        }
        // Also after a lie, by which parts of a packet were taken for packets.
        if taken < seen {
            return Err(format!("saw {seen} of {taken} packets"));
        }
        if self.changed {
            return Err("a packet differs from the one that the kernel received".into());
        }
        Ok(())
    }
}

/// Checks that a call failed exactly when the kernel said something that it reports.
fn check_error<T>(model: &Model, done: Result<T>) -> Checked<()> {
    let reported = std::mem::take(&mut model.queue().reported);
    match done {
        Ok(_) if reported => Err("the kernel's error was not reported".into()),
        Err(error) if !reported => Err(format!("an error for no reason: {error}")),
        Err(error) => match error.kind() {
            ErrorKind::DeviceDown | ErrorKind::DeviceMissing | ErrorKind::Os => Ok(()),
            kind => Err(format!("an error of the kind {kind:?}: {error}")),
        },
        Ok(_) => Ok(()),
    }
}

/// Closes a socket: that takes a limited time, and frees no chunk that the kernel still sends.
fn close(model: Model, umem: &Umem, lied_to: bool) -> Checked<()> {
    let (driver, queue) = (model.driver.clone(), Arc::clone(&model.queue));
    let counters = model.counters.clone();
    let retired = umem.accounting().retired;
    let start = driver.time();
    drop(model);
    let took = driver.time() - start;
    if took > DRAIN + SLACK {
        return Err(format!("closing took {took:?}"));
    }
    if !counters.is_closed() {
        return Err("a handle of a closed socket says that it is open".into());
    }
    let queue = lock(&queue);
    let retired = umem.accounting().retired - retired;
    if !lied_to && retired < queue.in_flight.len() as u32 {
        return Err("chunks that the kernel still sends are free".into());
    }
    Ok(())
}
