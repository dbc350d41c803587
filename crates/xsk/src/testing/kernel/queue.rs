//! The kernel's side of a device queue: its driver, and what it answers to the sockets' calls.

use crate::ring::{Mapped, Shared, Slot};
use crate::sys::{Desc, TX_METADATA_LEN, XDP_PKT_CONTD, XDP_TX_METADATA};
use crate::testing::driver::{Call, KernelEnd, Reads, Rings, Writes};
use crate::umem::{Chunk, Extent, RingsId, Umem, XDP_PACKET_HEADROOM};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A result whose error names the fault of the library or of the model.
pub type Checked<T> = std::result::Result<T, String>;

/// Packets that one call, or one turn of a NAPI, sends at most.
const BUDGET: u32 = 32;

/// The time between two turns of the driver, and the most turns for one sleep of a socket.
const TURN: Duration = Duration::from_micros(10);
const MOST_TURNS: u128 = 64;

/// The answer to a call that wakes the kernel for TX.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It sends at most so many packets.
    Send(u8),
    /// `EBUSY`: it drops one packet and completes it.
    Drop,
    /// `EAGAIN`, with nothing done.
    Again,
    /// `ENOBUFS`: the device's queue is full.
    NoBuffers,
    /// `EINTR`: a signal came first.
    Interrupted,
    /// `ENETDOWN`: the device is set down, for this call.
    Down,
    /// `ENETDOWN` although the device is up: the card resets itself.
    Resets,
    /// `ENXIO`: the device is gone.
    Gone,
    /// `EINVAL`: the driver takes no wake-up on this queue.
    Refused,
}

impl Answer {
    fn errno(self) -> Option<Errno> {
        match self {
            Self::Send(_) => None,
            Self::Drop => Some(Errno::BUSY),
            Self::Again => Some(Errno::AGAIN),
            Self::NoBuffers => Some(Errno::NOBUFS),
            Self::Interrupted => Some(Errno::INTR),
            Self::Down | Self::Resets => Some(Errno::NETDOWN),
            Self::Gone => Some(Errno::NXIO),
            Self::Refused => Some(Errno::INVAL),
        }
    }

    /// Whether flushing and waiting report it. In copy mode no driver can say that it resets.
    fn is_reported(self, zero_copy: bool) -> bool {
        match self {
            Self::Down | Self::Gone | Self::Refused => true,
            Self::Resets => !zero_copy,
            _ => false,
        }
    }
}

/// The driver's turns within a time.
fn turns(time: Duration) -> u32 {
    let turns = time.as_nanos().div_ceil(TURN.as_nanos());
    turns.clamp(1, MOST_TURNS) as u32
}

/// One direction of a zero-copy driver's NAPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Napi {
    Runs,
    /// It found nothing to do, and does not ask for a wake-up yet.
    Dozes,
    /// It does nothing before a wake-up, whether it asked for one or not.
    Sleeps,
}

/// A packet that the kernel took from TX, with its bytes at that time.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) desc: Desc,
    pub(super) bytes: Vec<u8>,
}

/// A packet that a socket will find in RX.
#[derive(Debug)]
pub(super) struct Arriving {
    pub(super) addr: u64,
    pub(super) bytes: Vec<u8>,
    /// Whether the packet goes on in the next chunk, and whether it began in one before.
    pub(super) goes_on: bool,
    pub(super) continues: bool,
}

impl Arriving {
    /// Whether it is a whole packet.
    pub(super) fn is_whole(&self) -> bool {
        !self.goes_on && !self.continues
    }
}

/// The kernel's ends of one socket's own rings.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) rx: Option<Writes<Desc>>,
    pub(super) tx: Option<Reads<Desc>>,
    /// Packets that are in RX, or will be when it is published.
    pub(super) arriving: VecDeque<Arriving>,
}

/// The kernel's side of a queue.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) umem: Umem,
    /// Known when the socket is open.
    pub(super) id: Option<RingsId>,
    pub(super) fill: Option<Reads<u64>>,
    pub(super) completion: Option<Writes<u64>>,
    /// Of each socket, in the order of opening.
    pub(super) sockets: Vec<Ends>,
    /// Chunks taken from FILL that have no packet yet.
    pub(super) pool: VecDeque<u64>,
    pub(super) in_flight: Vec<InFlight>,
    zero_copy: bool,
    tx: Napi,
    rx: Napi,
    /// Packets on the wire to the first socket, which the driver receives at its turns.
    pub(super) wire: u32,
    /// Turns in which the driver does nothing yet.
    pub(super) idle_turns: u32,
    /// The answers to the next calls; afterwards the kernel works as it should.
    pub(super) answers: VecDeque<Answer>,
    /// Whether an answer since this was last cleared is one that is reported.
    pub(super) reported: bool,
    /// Chunks that an attempt to bind in zero-copy mode takes from FILL before it is refused.
    pub(super) refuse_zero_copy_after: Option<u32>,
    /// The first fault of the library that came up inside a call.
    pub(super) fault: Option<String>,
}

impl Queue {
    pub(super) fn new(umem: &Umem) -> Self {
        Self {
            umem: umem.clone(),
            id: None,
            fill: None,
            completion: None,
            sockets: Vec::new(),
            pool: VecDeque::new(),
            in_flight: Vec::new(),
            zero_copy: false,
            tx: Napi::Sleeps,
            rx: Napi::Runs,
            wire: 0,
            idle_turns: 0,
            answers: VecDeque::new(),
            reported: false,
            refuse_zero_copy_after: None,
            fault: None,
        }
    }

    pub(super) fn answer(&mut self, call: Call, rings: &mut Rings) -> Result<(), i32> {
        let answered = match call {
            Call::Bind { zero_copy } => self.bind(zero_copy, rings),
            Call::Send => {
                rings.set_device_up(self.answers.front() != Some(&Answer::Down));
                self.send(rings.socket())
            }
            Call::Recv => {
                self.wake_rx();
                Ok(())
            }
            Call::Poll {
                receive, timeout, ..
            } => {
                self.poll(receive, timeout, rings);
                Ok(())
            }
            Call::Sleep(time) | Call::Look(time) => {
                self.pass(time);
                Ok(())
            }
            Call::Watch { .. } | Call::PreferBusyPoll | Call::Close => Ok(()),
        };
        answered.map_err(Errno::raw_os_error)
    }

    fn bind(&mut self, zero_copy: bool, rings: &mut Rings) -> Result<(), Errno> {
        if zero_copy && let Some(most) = self.refuse_zero_copy_after.take() {
            rings.take_fill(most);
            return Err(Errno::OPNOTSUPP);
        }
        self.zero_copy = zero_copy;
        self.fill = self.fill.take().or_else(|| rings.fill.take());
        self.completion = self.completion.take().or_else(|| rings.completion.take());
        self.sockets.push(Ends {
            rx: rings.rx.take(),
            tx: rings.tx.take(),
            arriving: VecDeque::new(),
        });
        // For TX the first wake-up is always asked for, and in copy mode each.
        self.ask_for_tx(true);
        Ok(())
    }

    fn ask_for_tx(&self, on: bool) {
        for tx in self.sockets.iter().filter_map(|ends| ends.tx.as_ref()) {
            tx.ask_for_wakeup(on);
        }
    }

    fn ask_for_rx(&self, on: bool) {
        if let Some(fill) = &self.fill {
            fill.ask_for_wakeup(on);
        }
    }

    fn wake_tx(&mut self) {
        if self.zero_copy {
            self.tx = Napi::Runs;
            self.ask_for_tx(false);
        }
    }

    fn wake_rx(&mut self) {
        self.rx = Napi::Runs;
        self.ask_for_rx(false);
    }

    fn send(&mut self, socket: usize) -> Result<(), Errno> {
        let answer = self.answers.pop_front();
        self.reported |= answer.is_some_and(|answer| answer.is_reported(self.zero_copy));
        match answer {
            None => self.send_all(socket),
            Some(Answer::Send(most)) => {
                self.transmit_now(socket, u32::from(most));
                Err(Errno::AGAIN)
            }
            Some(answer) => {
                if answer == Answer::Drop {
                    self.transmit_now(socket, 1);
                    self.complete_now();
                }
                answer.errno().map_or(Ok(()), Err)
            }
        }
    }

    /// In zero-copy mode the call wakes the driver, in copy mode it sends (`xsk_sendmsg`).
    fn send_all(&mut self, socket: usize) -> Result<(), Errno> {
        if self.zero_copy {
            self.wake_tx();
            return Ok(());
        }
        self.transmit_now(socket, BUDGET);
        if self.published(socket) > 0 {
            return Err(Errno::AGAIN);
        }
        Ok(())
    }

    /// The calls of poll(2) drive TX too (`xsk_poll`). It ends early when there is a packet.
    fn poll(&mut self, receive: bool, timeout: Duration, rings: &mut Rings) {
        let socket = rings.socket();
        if !self.zero_copy {
            self.transmit_now(socket, BUDGET);
        } else if self.asks_for_wakeup() {
            self.wake_tx();
            self.wake_rx();
        }
        let turns = turns(timeout);
        for turn in 1..=turns {
            self.turn();
            if receive && self.has_packet(socket) {
                rings.wake_after(timeout.min(TURN * turn));
                return;
            }
        }
    }

    fn asks_for_wakeup(&self) -> bool {
        let asks = |flags: &AtomicU32| flags.load(Ordering::Relaxed) & 1 != 0;
        let fill = self.fill.iter().map(|ring| flags(&ring.memory));
        let tx = self.sockets.iter().filter_map(|ends| ends.tx.as_ref());
        fill.chain(tx.map(|ring| flags(&ring.memory))).any(asks)
    }

    /// Whether a socket would find a packet in RX.
    fn has_packet(&mut self, socket: usize) -> bool {
        let Some(KernelEnd { end: rx, memory }) = &mut self.sockets[socket].rx else {
            return false;
        };
        rx.next() != consumer(memory)
    }

    /// Packets that a socket has published in TX.
    pub(super) fn published(&mut self, socket: usize) -> u32 {
        let tx = self.sockets[socket].tx.as_mut();
        tx.map_or(0, |tx| tx.end.available(u32::MAX))
    }

    /// Lets the driver work while a socket sleeps.
    pub(super) fn pass(&mut self, time: Duration) {
        for _ in 0..turns(time) {
            self.turn();
        }
    }

    /// One turn of the driver.
    pub(super) fn turn(&mut self) {
        if let Some(left) = self.idle_turns.checked_sub(1) {
            self.idle_turns = left;
            return;
        }
        self.complete_now();
        if self.zero_copy {
            self.turn_of_tx();
        }
        self.turn_of_rx();
    }

    fn turn_of_tx(&mut self) {
        match self.tx {
            Napi::Runs => {
                let sockets = 0..self.sockets.len();
                let sent: u32 = sockets.map(|at| self.transmit_now(at, BUDGET)).sum();
                if sent == 0 {
                    self.tx = Napi::Dozes;
                }
            }
            // It does not look at TX again.
            Napi::Dozes => self.sleep(true),
            Napi::Sleeps => {}
        }
    }

    /// The driver stops sending, after its last look at TX; a request for a wake-up can be missed.
    pub(super) fn sleep(&mut self, ask: bool) {
        if self.zero_copy {
            self.tx = Napi::Sleeps;
            self.ask_for_tx(ask);
        }
    }

    /// A packet from the wire, if there is one; without chunk or room the driver stops, and asks for a
    /// wake-up in its next turn, in which it does not look at FILL again.
    fn turn_of_rx(&mut self) {
        if self.rx == Napi::Dozes {
            self.rx = Napi::Sleeps;
            self.ask_for_rx(true);
        }
        if self.wire == 0 || self.rx != Napi::Runs {
            return;
        }
        self.take_fill(1);
        match self.receive(0, &[self.wire as u8; 60]) {
            Ok(false) if self.zero_copy => self.rx = Napi::Dozes,
            // Copy mode drops what it has no place for.
            Ok(_) => self.wire -= 1,
            Err(fault) => self.note(fault),
        }
        self.announce();
    }

    fn note(&mut self, fault: String) {
        self.fault.get_or_insert(fault);
    }

    /// The device is reset: what is being sent is dropped and completed, and both directions stop.
    pub(super) fn reset(&mut self) {
        self.complete_now();
        self.sleep(true);
        if self.zero_copy {
            self.rx = Napi::Sleeps;
            self.ask_for_rx(true);
        }
    }

    fn transmit_now(&mut self, socket: usize, most: u32) -> u32 {
        let taken = self.transmit(socket, most);
        self.release_tx(socket);
        taken.unwrap_or_else(|fault| {
            self.note(fault);
            0
        })
    }

    /// Completes all packets in flight, the last taken first.
    fn complete_now(&mut self) {
        while !self.in_flight.is_empty() {
            if let Err(fault) = self.complete(self.in_flight.len() - 1, false) {
                self.note(fault);
                return;
            }
        }
    }

    /// Takes up to `most` chunks from FILL, and does not publish that yet.
    pub(super) fn take_fill(&mut self, most: u32) -> u32 {
        let Some(KernelEnd { end: fill, .. }) = &mut self.fill else {
            return 0;
        };
        let count = fill.available(most);
        for _ in 0..count {
            self.pool.push_back(fill.pop());
        }
        count
    }

    /// Receives a packet for a socket; see [`Model::receive`](super::Model::receive).
    pub(super) fn receive(&mut self, socket: usize, packet: &[u8]) -> Checked<bool> {
        if packet.len() > self.umem.max_rx_packet() as usize {
            return Ok(false);
        }
        let offset = self.umem.headroom() + XDP_PACKET_HEADROOM;
        let room = self.umem.chunk_size() - offset;
        let count = packet.len().div_ceil(room as usize);
        self.take_fill(count.saturating_sub(self.pool.len()) as u32);
        let (Some(id), Some(ends)) = (self.id, self.sockets.get_mut(socket)) else {
            return Ok(false);
        };
        let Some(KernelEnd { end: rx, .. }) = &mut ends.rx else {
            return Ok(false);
        };
        if self.pool.len() < count || rx.free(count as u32) < count as u32 {
            return Ok(false);
        }
        let parts = packet.chunks(room as usize).zip(self.pool.drain(..count));
        for (at, (part, addr)) in parts.enumerate() {
            let mut chunk = self
                .umem
                .received(addr, id)
                .ok_or_else(|| format!("FILL held {addr:#x}, which was not lent"))?;
            let len = part.len() as u32;
            let extent = Extent { offset, len };
            chunk.bytes_mut(extent).copy_from_slice(part);
            if self.umem.unaligned() && chunk.addr() != addr {
                return Err(format!("FILL held {addr:#x}, inside a chunk"));
            }
            // Of unaligned chunks a descriptor has the offset in its upper bits.
            let shift = if self.umem.unaligned() { 48 } else { 0 };
            let addr = chunk.lend_to_receive(id) + (u64::from(offset) << shift);
            let goes_on = at + 1 < count;
            let options = if goes_on { XDP_PKT_CONTD } else { 0 };
            rx.push(Desc { addr, len, options });
            ends.arriving.push_back(Arriving {
                addr,
                bytes: part.to_vec(),
                goes_on,
                continues: at > 0,
            });
        }
        Ok(true)
    }

    /// A faulty driver puts the descriptor that is `back` slots behind into RX again, after `change`.
    #[cfg(test)]
    pub(super) fn repeat(&mut self, socket: usize, back: u32, change: impl FnOnce(&mut Desc)) {
        let rx = self.sockets[socket].rx.as_mut();
        let KernelEnd { end, memory } = rx.expect("the socket receives");
        let mut desc = memory.read(end.next().wrapping_sub(back));
        change(&mut desc);
        assert!(end.push(desc), "RX has room");
    }

    /// Publishes RX and its index of FILL (`xsk_flush`).
    pub(super) fn announce(&mut self) {
        for rx in self.sockets.iter_mut().filter_map(|ends| ends.rx.as_mut()) {
            rx.end.publish();
        }
        if let Some(fill) = &mut self.fill {
            fill.end.release();
        }
    }

    /// Takes up to `most` packets from a socket's TX, as far as COMPLETION has room for them, and does
    /// not publish that before [`release_tx`](Self::release_tx).
    pub(super) fn transmit(&mut self, socket: usize, most: u32) -> Checked<u32> {
        let reserved = self.in_flight.len() as u32;
        let completion = self.completion.as_mut();
        let room = completion.map_or(0, |ring| ring.end.free(u32::MAX));
        let room = room.saturating_sub(reserved);
        let count = match &mut self.sockets[socket].tx {
            Some(tx) => tx.end.available(most.min(room)),
            None => 0,
        };
        for _ in 0..count {
            if let Some(tx) = &mut self.sockets[socket].tx {
                let desc = tx.end.pop();
                let goes_on = desc.options & XDP_PKT_CONTD != 0;
                let is_unfinished = goes_on && tx.end.available(1) == 0;
                let bytes = self.bytes_to_send(desc)?;
                self.in_flight.push(InFlight { desc, bytes });
                if is_unfinished {
                    return Err("TX was published in the middle of a packet".into());
                }
            }
        }
        Ok(count)
    }

    /// Checks a TX descriptor as the kernel does (`xp_aligned_validate_desc`), and reads it.
    fn bytes_to_send(&self, desc: Desc) -> Checked<Vec<u8>> {
        let offset = (desc.addr - self.umem.area().chunk_start(desc.addr)) as u32;
        let end = u64::from(offset) + u64::from(desc.len);
        let is_known = match desc.options {
            0 => true,
            XDP_PKT_CONTD => self.umem.fragments(),
            XDP_TX_METADATA => self.umem.tx_metadata(),
            _ => false,
        };
        if desc.len == 0 || !is_known || end > u64::from(self.umem.chunk_size()) {
            return Err(format!("TX held {desc:?}, which the kernel refuses"));
        }
        let id = self
            .id
            .ok_or("a packet is sent before the socket is open")?;
        let chunk = self
            .umem
            .completed(desc.addr, id)
            .ok_or_else(|| format!("TX held {desc:?}, whose chunk was not lent"))?;
        let metadata = self.check_metadata(&chunk, desc, offset);
        let len = desc.len;
        let bytes = chunk.bytes(Extent { offset, len }).to_vec();
        chunk.lend_to_send(id);
        metadata.map(|()| bytes)
    }

    /// Checks the metadata in front of a packet, as zero-copy drivers read it: only a packet whose descriptor
    /// says so has a request.
    fn check_metadata(&self, chunk: &Chunk, desc: Desc, offset: u32) -> Checked<()> {
        if !self.umem.tx_metadata() {
            return Ok(());
        }
        let Some(offset) = offset.checked_sub(TX_METADATA_LEN) else {
            return Err(format!("TX held {desc:?} without room for its metadata"));
        };
        let flags = chunk.bytes(Extent { offset, len: 8 });
        let is_asked = flags.iter().any(|&byte| byte != 0);
        if is_asked == (desc.options == XDP_TX_METADATA) {
            return Ok(());
        }
        Err(format!("the flags before {desc:?} are {flags:?}"))
    }

    /// Publishes its index of a socket's TX.
    pub(super) fn release_tx(&mut self, socket: usize) {
        if let Some(tx) = &mut self.sockets[socket].tx {
            tx.end.release();
        }
    }

    /// Completes one of the packets in flight, with the lowest bit of its address cleared or not. False
    /// when there is none.
    pub(super) fn complete(&mut self, which: usize, clear_lowest_bit: bool) -> Checked<bool> {
        if self.in_flight.is_empty() {
            return Ok(false);
        }
        let sent = self.in_flight.swap_remove(which % self.in_flight.len());
        if self.bytes_to_send(sent.desc)? != sent.bytes {
            let desc = sent.desc;
            return Err(format!("the packet of {desc:?} changed while it was sent"));
        }
        let addr = sent.desc.addr & !u64::from(clear_lowest_bit);
        let Some(KernelEnd { end, .. }) = &mut self.completion else {
            return Ok(false);
        };
        if !end.push(addr) {
            return Err("COMPLETION is full although room was reserved".into());
        }
        end.publish();
        Ok(true)
    }
}

fn flags<T: Slot>(memory: &Mapped<T>) -> &AtomicU32 {
    Shared::flags(memory)
}

fn consumer<T: Slot>(memory: &Mapped<T>) -> u32 {
    Shared::consumer(memory).load(Ordering::Relaxed)
}
