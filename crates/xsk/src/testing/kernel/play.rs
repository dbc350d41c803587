//! Plays steps of a program and of the kernel on the queues of one UMEM, and checks all invariants
//! after each.

use super::places::same;
use super::{Checked, Model, Ring, Sizes, Word, check, check_user_space};
use crate::batch::Packet;
use crate::frame::Frame;
use crate::umem::Umem;
use std::collections::VecDeque;

/// A program's use of a packet of a batch.
#[derive(Debug, Clone, Copy)]
pub enum Fate {
    /// Drops it.
    Drop,
    /// Keeps it as a frame.
    Keep,
    /// Rewrites it and sends it from the socket that received it.
    Send,
    /// Rewrites it and sends it from the next queue's socket.
    SendElsewhere,
}

/// One step. Numbers that choose a queue, frame or packet are taken modulo their count.
#[derive(Debug, Clone)]
#[expect(
    missing_docs,
    reason = "the fields are the arguments of the model's moves"
)]
pub enum Step {
    /// The program receives a batch. Packets without a fate stay in it.
    Recv {
        queue: u8,
        max: u8,
        fates: Vec<Fate>,
    },
    /// The program allocates a frame, writes `len` bytes and holds it.
    Alloc { queue: u8, len: u16 },
    /// The program sends a frame that it holds.
    Send { queue: u8, which: u8 },
    /// The program drops a frame that it holds.
    Drop { which: u8 },
    /// The program publishes TX.
    Flush { queue: u8 },
    /// The program reclaims completed chunks.
    Reclaim { queue: u8 },
    /// The kernel takes chunks from FILL.
    TakeFill { queue: u8, most: u8 },
    /// The kernel receives a packet.
    Receive { queue: u8, len: u16 },
    /// The kernel publishes RX.
    Announce { queue: u8 },
    /// The kernel takes packets from TX, and publishes that at once or later.
    Transmit { queue: u8, most: u8, release: bool },
    /// The kernel completes a packet.
    Complete {
        queue: u8,
        which: u8,
        clear_lowest_bit: bool,
    },
    /// The kernel sets or clears its need for a wake-up.
    AskWakeup { queue: u8, flags: u32 },
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
struct Held<'u> {
    frame: Frame<'u>,
    bytes: Vec<u8>,
}

impl<'u> Held<'u> {
    fn new(frame: Frame<'u>) -> Self {
        let bytes = frame.to_vec();
        Self { frame, bytes }
    }
}

/// The queues of a UMEM, a program that uses them, and a kernel behind each.
pub struct Play<'u> {
    umem: &'u Umem,
    models: Vec<Model<'u>>,
    held: Vec<Held<'u>>,
    /// For each queue, the packets that the kernel has received and the program has not.
    arriving: Vec<VecDeque<Vec<u8>>>,
    written: u8,
    lied_to: bool,
}

impl<'u> Play<'u> {
    /// Opens `queues` queues with rings of the same sizes.
    pub fn new(umem: &'u Umem, queues: usize, sizes: Sizes) -> Self {
        Self {
            umem,
            models: (0..queues).map(|_| Model::new(umem, sizes)).collect(),
            held: Vec::new(),
            arriving: vec![VecDeque::new(); queues],
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

    /// Closes every queue, drops every frame, and checks that all chunks are free.
    ///
    /// # Errors
    ///
    /// The first fault.
    pub fn end(mut self) -> Checked<()> {
        self.held.clear();
        self.models.clear();
        let count = self.umem.accounting();
        same("free at the end", count.free, self.umem.chunks())
    }

    fn check(&self) -> Checked<()> {
        if self.held.iter().any(|held| *held.frame != *held.bytes) {
            return Err("a held frame has changed".into());
        }
        let frames = self.held.iter().map(|held| &held.frame);
        if self.lied_to {
            return check_user_space(self.umem, &self.models, frames);
        }
        same(
            "lies noticed",
            (self.invalid_descs() + self.invalid_indices()) as u32,
            0,
        )?;
        check(self.umem, &self.models, frames)
    }

    fn model(&mut self, queue: u8) -> &mut Model<'u> {
        let index = self.index(queue);
        &mut self.models[index]
    }

    fn index(&self, queue: u8) -> usize {
        usize::from(queue) % self.models.len()
    }

    fn act(&mut self, step: &Step) -> Checked<()> {
        match *step {
            Step::Recv {
                queue,
                max,
                ref fates,
            } => self.recv(queue, u32::from(max), fates)?,
            Step::Alloc { queue, len } => self.alloc(queue, len),
            Step::Send { queue, which } => {
                if let Some(frame) = self.take_held(which) {
                    self.send(queue, frame);
                }
            }
            Step::Drop { which } => drop(self.take_held(which)),
            Step::Flush { queue } => {
                self.model(queue).flush();
            }
            Step::Reclaim { queue } => {
                self.model(queue).reclaim();
            }
            Step::TakeFill { queue, most } => {
                self.model(queue).take_fill(u32::from(most));
            }
            Step::Receive { queue, len } => self.receive(queue, len)?,
            Step::Announce { queue } => self.model(queue).announce(),
            Step::Transmit {
                queue,
                most,
                release,
            } => {
                self.model(queue).transmit(u32::from(most))?;
                if release {
                    self.model(queue).release_tx();
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
            Step::AskWakeup { queue, flags } => {
                self.model(queue).store(Ring::Tx, Word::Flags, flags);
            }
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
        }
        Ok(())
    }

    fn recv(&mut self, queue: u8, max: u32, fates: &[Fate]) -> Checked<()> {
        let index = self.index(queue);
        let next = (index + 1) % self.models.len();
        let (models, arriving) = (&mut self.models, &mut self.arriving[index]);
        let mut to_next = Vec::new();
        let mut changed = false;

        let mut batch = models[index].recv(max);
        for fate in fates {
            let Some(mut packet) = batch.next_packet() else {
                break;
            };
            changed |= arriving.pop_front().as_deref() != Some(&*packet);
            match fate {
                Fate::Drop => drop(packet),
                Fate::Keep => self.held.push(Held::new(packet.keep())),
                Fate::Send => {
                    rewrite(&mut packet);
                    // A packet that is not sent is dropped, and its chunk recycled.
                    let _ = packet.send();
                }
                Fate::SendElsewhere => {
                    rewrite(&mut packet);
                    to_next.push(packet.keep());
                }
            }
        }
        // The packets left in the batch are dropped with it.
        arriving.drain(..batch.len().min(arriving.len()));
        drop(batch);

        for frame in to_next {
            let _ = models[next].send(frame);
        }
        if changed {
            return Err("a packet differs from the one that the kernel received".into());
        }
        Ok(())
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

    fn send(&mut self, queue: u8, frame: Frame<'u>) {
        if let Err(unsent) = self.model(queue).send(frame) {
            self.held.push(Held::new(unsent.packet));
        }
    }

    fn take_held(&mut self, which: u8) -> Option<Frame<'u>> {
        let which = usize::from(which).checked_rem(self.held.len())?;
        Some(self.held.swap_remove(which).frame)
    }

    fn receive(&mut self, queue: u8, len: u16) -> Checked<()> {
        self.written = self.written.wrapping_add(1);
        let packet = vec![self.written; usize::from(len)];
        let index = self.index(queue);
        if self.models[index].receive(&packet)? {
            self.arriving[index].push_back(packet);
        }
        Ok(())
    }
}

/// Changes a packet's bytes and both ends, as far as there is room.
fn rewrite(packet: &mut Packet<'_, '_>) {
    packet.fill(0xee);
    let _ = packet.adjust_head(-14);
    let _ = packet.adjust_tail(4);
}
