//! What is done with one socket: packets are checked, dropped, kept, forwarded and made, in random bursts.

use super::failure::{Check, Result, ensure};
use super::held::Held;
use super::packet::{self, Header};
use super::side::Side;
use fastrand::Rng;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use xsk::{Fragments, Frame, Packet, RxBatch, SiblingId, Socket, Statistics, TxHalf};

/// Most frames that are kept to be sent later, or only held.
const KEPT: usize = 48;

/// How a socket's packets are treated, the same for all of a flow, so that they stay in order.
#[derive(Debug, Clone, Copy)]
pub struct Ways {
    /// Packets have one chunk to several, and go straight back.
    pub jumbo: bool,
    /// Forwarded packets are kept first, and sent later.
    pub later: bool,
    /// The flow whose socket sends them then; none for the same socket.
    pub hand_to: Option<u16>,
    /// The flow of packets that it makes.
    pub flow: u16,
    /// Whether it makes any.
    pub originates: bool,
    /// The rest after each burst of those.
    pub rest: Duration,
    /// Largest burst.
    pub burst: u32,
    /// Longest packet.
    pub longest: usize,
}

/// The counts of a socket that are in the books.
#[derive(Debug, Default, Clone, Copy)]
struct Shown {
    sent: u64,
    received: u64,
    dropped: u64,
    unfinished: i64,
}

/// The work on one socket, or on half of one. It outlives the socket, which may be closed and opened again.
#[derive(Debug)]
pub struct Post<'s> {
    pub side: &'s Side<'s>,
    pub random: Rng,
    ways: Ways,
    /// Another socket on the queue, through which all packets are made.
    pub sibling: Option<SiblingId>,
    sequence: u64,
    /// Packets to send, in order.
    later: VecDeque<(Held, Header)>,
    /// Packets held for no purpose but to see that nobody writes to them.
    hoard: VecDeque<(Held, Header)>,
    shown: Shown,
    /// Of packets of one chunk or several; their sockets stay open.
    packets_sent: u64,
    packets_received: u64,
    /// When it made the last ones.
    rested: Instant,
    /// Whether some came in the last turn.
    got_packets: bool,
}

/// Where a socket's packets go that are not kept.
pub enum Route<'t> {
    /// Back through the socket.
    Back,
    /// Through another one.
    Over(&'t mut Socket),
    /// Nowhere: they are kept to be sent later.
    Later,
}

impl<'s> Post<'s> {
    pub fn new(side: &'s Side<'s>, ways: Ways, seed: u64) -> Self {
        Self {
            side,
            random: Rng::with_seed(seed),
            ways,
            sibling: None,
            sequence: 0,
            later: VecDeque::new(),
            hoard: VecDeque::new(),
            shown: Shown::default(),
            packets_sent: 0,
            packets_received: 0,
            rested: Instant::now(),
            got_packets: false,
        }
    }

    /// One turn with a whole socket.
    pub fn turn(&mut self, socket: &mut Socket, route: Route<'_>) -> Result<()> {
        if let Some(time) = self.pause() {
            self.side.round.tolerate(socket.wait(time))?;
        }
        if self.ways.later && self.ways.hand_to.is_none() && self.random.bool() {
            self.receive_frames(socket)?;
        } else {
            let route = if self.ways.later { Route::Later } else { route };
            let burst = self.burst();
            let batch = socket.recv(burst);
            if self.ways.jumbo {
                self.receive_fragments(batch)?;
            } else {
                self.receive(batch, route)?;
            }
        }
        self.take_inbox();
        self.send_later(|frame| socket.send(frame).map_err(|unsent| unsent.packet))?;
        if self.makes_packets() {
            if let Some(id) = self.sibling {
                self.make_by_sibling(socket, id)?;
            } else if self.ways.jumbo {
                self.make_fragments(socket)?;
            } else if self.random.bool() {
                self.make_frames(socket)?;
            } else {
                self.make_each(socket);
            }
        }
        if let Some(mut sibling) = self.sibling.and_then(|id| socket.sibling(id)) {
            self.side.round.tolerate(sibling.flush())?;
        }
        self.side.round.tolerate(socket.flush())?;
        self.look_at_hoard()?;
        let mut now = socket.statistics()?;
        if let Some(sibling) = self.sibling.and_then(|id| socket.sibling(id)) {
            // Both have the completions of the queue.
            let of_sibling = sibling.statistics()?;
            now.sent += of_sibling.sent;
            now.tx_invalid_descs += of_sibling.tx_invalid_descs;
        }
        self.show(&now, socket.outstanding())
    }

    /// How long to wait for packets: always after a turn in which none came, so that CPUs are left to the kernel.
    pub fn pause(&mut self) -> Option<Duration> {
        let is_due = !std::mem::take(&mut self.got_packets) || self.random.u8(..4) == 0;
        is_due.then(|| Duration::from_micros(self.random.u64(..3000)))
    }

    /// The largest burst at this moment.
    pub fn burst(&mut self) -> u32 {
        self.random.u32(1..=self.ways.burst)
    }

    fn makes_packets(&mut self) -> bool {
        let makes = self.ways.originates
            && self.side.round.originates()
            && self.rested.elapsed() >= self.ways.rest
            && self.random.u8(..8) > 0;
        if makes {
            self.rested = Instant::now();
        }
        makes
    }

    /// Checks each packet of a batch and decides on it. It may leave the last ones unread.
    pub fn receive(&mut self, mut batch: RxBatch<'_>, mut route: Route<'_>) -> Result<()> {
        while let Some(packet) = batch.next_packet() {
            let header = packet::check(&packet)?;
            self.note(header)?;
            self.decide(packet, header, &mut route)?;
        }
        Ok(())
    }

    /// The same with packets of one chunk or several: none of their chunks may have another holder.
    fn receive_fragments(&mut self, mut batch: RxBatch<'_>) -> Result<()> {
        while let Some(packet) = batch.next_fragments() {
            self.packets_received += 1;
            let header = packet::check(&packet.to_vec())?;
            self.note(header)?;
            let mut packet = self.in_hands(packet)?;
            if header.hops > 0 || self.random.u8(..16) == 0 {
                continue;
            }
            packet::forward(&mut packet.frames_mut()[0]);
            let sent = batch.send_fragments(packet).is_ok();
            self.sent_packet(sent);
        }
        Ok(())
    }

    /// Makes a burst of packets of one chunk or several.
    fn make_fragments(&mut self, socket: &mut Socket) -> Result<()> {
        for _ in 0..self.burst() {
            let len = self.random.usize(packet::MIN..=self.ways.longest);
            let Some(packet) = socket.alloc_fragments(len) else {
                break;
            };
            let mut packet = self.in_hands(packet)?;
            let mut bytes = vec![0; len];
            packet::write(&mut bytes, self.ways.flow, self.sequence);
            self.sequence += 1;
            packet.fill_with(&bytes)?;
            let sent = socket.send_fragments(packet).is_ok();
            self.sent_packet(sent);
        }
        Ok(())
    }

    /// Takes all frames of a packet at once, and gives them back.
    fn in_hands(&self, packet: Fragments) -> Result<Fragments> {
        let frames: Vec<_> = packet
            .into_frames()
            .map(|frame| self.side.hands.hold(frame))
            .collect::<Result<_>>()?;
        let mut packet = Fragments::new();
        for frame in frames {
            packet
                .push(frame.give_back())
                .expect("as many frames as before");
        }
        Ok(packet)
    }

    /// Counts a packet of one chunk or several, which the socket counts by its chunks.
    fn sent_packet(&mut self, sent: bool) {
        self.packets_sent += u64::from(sent);
        self.begun(usize::from(sent));
    }

    /// Keeps a packet to be sent later, by this socket or by another one's thread. When too many are kept, it is
    /// dropped.
    fn keep(&mut self, packet: Packet<'_, '_>, header: Header) -> Result<()> {
        let hold = |packet: Packet<'_, '_>| self.side.hands.hold(packet.keep());
        if let Some(flow) = self.ways.hand_to {
            let mut inbox = self.side.inbox(flow);
            if inbox.len() < KEPT {
                inbox.push_back((hold(packet)?, header));
            }
        } else if self.later.len() < KEPT {
            self.later.push_back((hold(packet)?, header));
        }
        Ok(())
    }

    /// Takes the packets that other threads have kept for this socket.
    pub fn take_inbox(&mut self) {
        let mut inbox = self.side.inbox(self.ways.flow);
        let room = KEPT.saturating_sub(self.later.len()).min(inbox.len());
        self.later.extend(inbox.drain(..room));
    }

    fn note(&mut self, header: Header) -> Result<()> {
        self.got_packets = true;
        self.side.note(header)
    }

    fn decide(
        &mut self,
        mut packet: Packet<'_, '_>,
        header: Header,
        route: &mut Route<'_>,
    ) -> Result<()> {
        if self.random.u8(..16) == 0 && self.hoard.len() < KEPT {
            let frame = self.side.hands.hold(packet.keep())?;
            self.hoard.push_back((frame, header));
            return Ok(());
        }
        if header.hops > 0 || self.random.u8(..16) == 0 {
            return Ok(());
        }
        let sent = match route {
            Route::Later => return self.keep(packet, header),
            Route::Back => {
                packet::forward(&mut packet);
                packet.send().is_ok()
            }
            Route::Over(to) => {
                packet::forward(&mut packet);
                packet.send_on(*to).is_ok()
            }
        };
        self.begun(usize::from(sent));
        Ok(())
    }

    /// Receives by `recv_frames`, where every packet is kept.
    fn receive_frames(&mut self, socket: &mut Socket) -> Result<()> {
        let mut frames = Vec::new();
        let burst = self.burst();
        socket.recv_frames(&mut frames, burst);
        for frame in frames {
            let header = packet::check(&frame)?;
            self.note(header)?;
            let frame = self.side.hands.hold(frame)?;
            if header.hops == 0 && self.later.len() < KEPT {
                self.later.push_back((frame, header));
            } else if self.hoard.len() < KEPT {
                self.hoard.push_back((frame, header));
            }
        }
        Ok(())
    }

    /// Sends some of the packets kept for later, by `send`, which gives back a packet that it does not take.
    pub fn send_later(
        &mut self,
        mut send: impl FnMut(Frame) -> std::result::Result<(), Frame>,
    ) -> Result<()> {
        for _ in 0..self.burst() {
            let Some((mut frame, header)) = self.later.pop_front() else {
                break;
            };
            frame.check(header)?;
            packet::forward(frame.frame());
            let taken = send(frame.give_back()).is_ok();
            self.begun(usize::from(taken));
        }
        Ok(())
    }

    /// The packets kept for later, for the half of the socket that sends.
    pub fn take_later(&mut self) -> impl Iterator<Item = (Held, Header)> {
        self.later.drain(..)
    }

    /// Packets that the receiving half has kept. Those beyond the most are dropped.
    pub fn put_later(&mut self, kept: impl Iterator<Item = (Held, Header)>) {
        self.later.extend(kept);
        self.later.truncate(KEPT);
    }

    /// Makes a burst of packets in frames.
    fn make_frames(&mut self, socket: &mut Socket) -> Result<()> {
        for _ in 0..self.burst() {
            let Some(frame) = socket.alloc() else { break };
            let frame = self.made(frame)?;
            let sent = socket.send(frame).is_ok();
            self.begun(usize::from(sent));
        }
        Ok(())
    }

    /// The same by another socket on the queue.
    fn make_by_sibling(&mut self, socket: &mut Socket, id: SiblingId) -> Result<()> {
        for _ in 0..self.burst() {
            let Some(frame) = socket.alloc() else { break };
            let frame = self.made(frame)?;
            let sibling = socket.sibling(id);
            let sent = sibling.is_some_and(|mut sibling| sibling.send(frame).is_ok());
            self.begun(usize::from(sent));
        }
        Ok(())
    }

    /// The same with the sending half of a socket.
    pub fn make_in_half(&mut self, socket: &mut TxHalf) -> Result<()> {
        if !self.makes_packets() {
            return Ok(());
        }
        for _ in 0..self.burst() {
            let Some(frame) = socket.alloc() else { break };
            let frame = self.made(frame)?;
            let sent = socket.send(frame).is_ok();
            self.begun(usize::from(sent));
        }
        Ok(())
    }

    fn made(&mut self, frame: Frame) -> Result<Frame> {
        let mut frame = self.side.hands.hold(frame)?;
        let len = self.random.usize(packet::MIN..=self.ways.longest);
        frame.frame().resize(len)?;
        packet::write(frame.frame(), self.ways.flow, self.sequence);
        self.sequence += 1;
        Ok(frame.give_back())
    }

    /// Makes a burst of packets by `send_each`.
    fn make_each(&mut self, socket: &mut Socket) {
        let burst = self.burst();
        let Ways { flow, longest, .. } = self.ways;
        let (random, sequence) = (&mut self.random, &mut self.sequence);
        let sent = socket.send_each(burst, |bytes| {
            let len = random.usize(packet::MIN..=longest);
            packet::write(&mut bytes[..len], flow, *sequence);
            *sequence += 1;
            len
        });
        self.begun(sent as usize);
    }

    fn begun(&self, packets: usize) {
        self.side.outward.begun.fetch_add(packets as u64, SeqCst);
    }

    /// Drops some of the held packets, of which none may have changed.
    pub fn look_at_hoard(&mut self) -> Result<()> {
        for (frame, header) in &mut self.hoard {
            frame.check(*header)?;
        }
        let some = self.random.usize(..=2).min(self.hoard.len());
        self.hoard.drain(..some);
        Ok(())
    }

    /// Writes a whole socket's counters into the books.
    fn show(&mut self, now: &Statistics, outstanding: u32) -> Result<()> {
        self.show_received(now)?;
        self.show_sent(now, outstanding)
    }

    /// The counters of the receiving side.
    pub fn show_received(&mut self, now: &Statistics) -> Result<()> {
        let clean = (now.invalid_descs, now.invalid_indices) == (0, 0);
        ensure(clean, Check::Descriptors, || format!("{now:?}"))?;
        let (shown, inward) = (&mut self.shown, self.side.inward);
        let dropped = now.rx_dropped + now.rx_ring_full;
        let received = if self.ways.jumbo {
            self.packets_received
        } else {
            now.received
        };
        inward.received.fetch_add(received - shown.received, SeqCst);
        inward.dropped.fetch_add(dropped - shown.dropped, SeqCst);
        (shown.received, shown.dropped) = (received, dropped);
        Ok(())
    }

    /// The counters of the sending side.
    pub fn show_sent(&mut self, now: &Statistics, outstanding: u32) -> Result<()> {
        ensure(now.tx_invalid_descs == 0, Check::Descriptors, || {
            format!("{now:?}")
        })?;
        ensure(
            now.completed + u64::from(outstanding) == now.sent,
            Check::Completions,
            || format!("{outstanding} outstanding: {now:?}"),
        )?;
        let unfinished = i64::from(outstanding) + self.waiting();
        let (shown, outward) = (&mut self.shown, self.side.outward);
        let sent = if self.ways.jumbo {
            self.packets_sent
        } else {
            now.sent
        };
        outward.sent.fetch_add(sent - shown.sent, SeqCst);
        outward
            .unfinished
            .fetch_add(unfinished - shown.unfinished, SeqCst);
        (shown.sent, shown.unfinished) = (sent, unfinished);
        Ok(())
    }

    /// Packets kept to be sent.
    fn waiting(&self) -> i64 {
        self.later.len().cast_signed() as i64
    }

    /// After the last look at a socket's counters: it is about to be closed, with packets unsent.
    pub fn forget_socket(&mut self, outstanding: u32) {
        let left = self.waiting();
        let outward = self.side.outward;
        outward
            .unfinished
            .fetch_add(left - self.shown.unfinished, SeqCst);
        outward.allowance.fetch_add(u64::from(outstanding), SeqCst);
        self.shown = Shown {
            unfinished: left,
            ..Shown::default()
        };
    }

    /// Gives up all held frames.
    pub fn end(&mut self) {
        self.later.clear();
        self.hoard.clear();
        let outward = self.side.outward;
        outward.unfinished.fetch_sub(self.shown.unfinished, SeqCst);
        self.shown.unfinished = 0;
    }
}
