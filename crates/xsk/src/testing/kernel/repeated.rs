//! A driver publishes a descriptor twice in one burst: whatever becomes of the first packet, there is no second one. With
//! [`SMALL`] rings, whose runs of slots end in front of the third packet.

use super::tests::{SMALL, announce, open};
use super::{Config, Model, check, lock, umem, umem_unaligned, umem_with_fragments};
use crate::batch::RxBatch;
use crate::fragments::Fragments;
use crate::frame::Frame;
use crate::ring::Shared;
use crate::socket::{Done, Received};
use crate::sys::{Desc, XDP_PKT_CONTD};
use crate::tx_metadata::TxRequest;
use crate::umem::{Burst, Umem};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// Every way to take the packets of a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Batch,
    BatchOfSibling,
    BatchOfHalf,
    ReceiveEach,
    ReceiveEachOfHalf,
    ForwardEach,
    RecvFrames,
    RecvFramesOfHalf,
}

impl Way {
    pub(super) const ALL: [Self; 8] = [
        Self::Batch,
        Self::BatchOfSibling,
        Self::BatchOfHalf,
        Self::ReceiveEach,
        Self::ReceiveEachOfHalf,
        Self::ForwardEach,
        Self::RecvFrames,
        Self::RecvFramesOfHalf,
    ];

    fn verdicts(self) -> &'static [Verdict] {
        use Verdict::{
            Forget, Fragments, Keep, Leave, Own, OwnAndDrop, Recycle, Send, SendOn, SendWith,
        };
        match self {
            Self::Batch | Self::BatchOfSibling | Self::BatchOfHalf => &[
                Recycle, Keep, Send, SendWith, SendOn, Own, OwnAndDrop, Fragments, Leave, Forget,
            ],
            Self::ReceiveEach | Self::ReceiveEachOfHalf => &[Recycle, Keep],
            Self::ForwardEach => &[Recycle, Keep, Send],
            Self::RecvFrames | Self::RecvFramesOfHalf => &[Keep],
        }
    }

    /// The way with each verdict by which all packets are taken.
    pub(super) fn takes(self) -> impl Iterator<Item = (Self, Verdict)> {
        let leaves = |it: &&Verdict| matches!(it, Verdict::Leave | Verdict::Forget);
        let all = self.verdicts().iter().filter(move |it| !leaves(it));
        all.map(move |&verdict| (self, verdict))
    }

    pub(super) fn socket(self) -> usize {
        usize::from(self == Self::BatchOfSibling)
    }
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Recycle,
    Keep,
    Send,
    SendWith,
    SendOn,
    /// Taken as an owned one by the iterator, and kept with those taken before, or dropped.
    Own,
    OwnAndDrop,
    /// Taken as an owned one of several chunks.
    Fragments,
    /// It stays in the batch, as do those after it.
    Leave,
    /// It is forgotten (`mem::forget`).
    Forget,
}

/// How the descriptor differs that comes again.
type Change = fn(&mut Desc);

const CHANGES: [(&str, Change); 5] = [
    ("the same", |_| {}),
    ("another place in the chunk", |desc| desc.addr += 8),
    ("no bytes", |desc| desc.len = 0),
    ("beyond its chunk", |desc| desc.len = 5000),
    ("a part of a packet", |desc| desc.options = XDP_PKT_CONTD),
];

/// A socket, another on the same UMEM, and what has become of the packets.
pub(super) struct Bench {
    pub(super) umem: Umem,
    pub(super) models: Vec<Model>,
    pub(super) frames: Vec<Frame>,
    packets: usize,
}

impl Bench {
    pub(super) fn new(config: Config, umem: Umem, way: Way) -> Self {
        let open = |queue| Model::open(&umem, queue, config).expect("the model opens");
        let mut models = vec![open(0), open(1)];
        match way {
            Way::BatchOfSibling => {
                let sibling = models[0].add_sibling(config.rx, config.tx);
                sibling.expect("a sibling");
            }
            Way::BatchOfHalf | Way::ReceiveEachOfHalf | Way::RecvFramesOfHalf => models[0].split(),
            _ => {}
        }
        Self {
            umem,
            models,
            frames: Vec::new(),
            packets: 0,
        }
    }

    /// Two packets arrive, and the first again.
    fn arrive(&mut self, way: Way, change: Change) {
        let model = &mut self.models[0];
        for byte in [1, 2] {
            assert_eq!(model.receive(way.socket(), &[byte; 60]), Ok(true));
        }
        model.queue().repeat(way.socket(), 2, change);
        // A pass reads no more than FILL has slots for.
        model.take_fill(4);
        model.announce();
    }

    /// Takes the burst: the packet that came twice has the first verdict, and any other one the second.
    pub(super) fn take(&mut self, way: Way, verdicts: [Verdict; 2]) {
        let Self {
            models,
            frames,
            packets,
            ..
        } = self;
        let [model, other] = &mut models[..] else {
            unreachable!("two models")
        };
        match way {
            Way::Batch | Way::BatchOfSibling | Way::BatchOfHalf => {
                let mut lost = Vec::new();
                model.recv(way.socket(), 8, |batch| {
                    let mut taking = Taking {
                        batch,
                        other,
                        frames,
                        lost: &mut lost,
                    };
                    while *packets < 8 && taking.next(verdicts[usize::from(*packets > 0)]) {
                        *packets += 1;
                    }
                });
                model.lost.received.extend(lost);
            }
            Way::ReceiveEach | Way::ReceiveEachOfHalf => {
                model.receive_each(8, |packet| decide(packet, verdicts, packets, frames));
            }
            Way::ForwardEach => {
                model.forward_each(8, |packet| {
                    if verdicts[usize::from(*packets > 0)] != Verdict::Send {
                        return decide(packet, verdicts, packets, frames);
                    }
                    *packets += 1;
                    packet.send()
                });
            }
            Way::RecvFrames | Way::RecvFramesOfHalf => *packets += model.recv_frames(frames, 8),
        }
    }

    /// Whether it takes packets of one chunk so: a batch has unaligned ones as owned ones of several chunks only.
    pub(super) fn reads(&self, way: Way, verdict: Verdict) -> bool {
        let is_batch = matches!(way, Way::Batch | Way::BatchOfSibling | Way::BatchOfHalf);
        !self.umem.unaligned() || !is_batch || verdict == Verdict::Fragments
    }

    /// Each chunk is in one place, and the invalid descriptors are counted.
    pub(super) fn check(&self, packets: usize, invalid: u32, case: &str) {
        assert_eq!(self.packets, packets, "{case}");
        let counted = self.models[0].invalid_descs();
        assert_eq!(counted, u64::from(invalid), "{case}");
        let checked = check(&self.umem, &self.models, &self.frames);
        assert_eq!(checked, Ok(()), "{case}");
    }
}

/// A batch being taken.
struct Taking<'t, 's> {
    batch: RxBatch<'s>,
    other: &'t mut Model,
    frames: &'t mut Vec<Frame>,
    lost: &'t mut Vec<u64>,
}

impl Taking<'_, '_> {
    /// Takes the next packet; false when there is none, or it is to stay in the batch.
    fn next(&mut self, verdict: Verdict) -> bool {
        if verdict == Verdict::Leave {
            return false;
        }
        if verdict == Verdict::Fragments {
            let packet = self.batch.next_fragments();
            let is_some = packet.is_some();
            self.frames
                .extend(packet.into_iter().flat_map(Fragments::into_frames));
            return is_some;
        }
        if let Verdict::Own | Verdict::OwnAndDrop = verdict {
            let packet = self.batch.next();
            let is_some = packet.is_some();
            let is_kept = verdict == Verdict::Own;
            self.frames
                .extend(packet.filter(|_| is_kept).map(Frame::from));
            return is_some;
        }
        let Some(packet) = self.batch.next_packet() else {
            return false;
        };
        let other = self.other.whole().expect("it is whole");
        match verdict {
            Verdict::Keep => self.frames.push(packet.keep()),
            Verdict::Send => drop(packet.send()),
            Verdict::SendWith => drop(packet.send_with(&TxRequest::new())),
            Verdict::SendOn => packet.send_on(other).expect("room"),
            Verdict::Forget => {
                let start = packet.umem().region().0;
                self.lost.push(packet.as_ptr() as u64 - start);
                std::mem::forget(packet);
            }
            _ => drop(packet),
        }
        true
    }
}

/// Keeps or recycles a packet of a closure.
fn decide<'p, const SENDS: bool>(
    packet: Received<'p, SENDS>,
    verdicts: [Verdict; 2],
    packets: &mut usize,
    frames: &mut Vec<Frame>,
) -> Done<'p> {
    *packets += 1;
    if verdicts[usize::from(*packets > 1)] == Verdict::Keep {
        let (frame, done) = packet.keep();
        frames.push(frame);
        return done;
    }
    packet.recycle()
}

/// Walks all ways and verdicts, and all changes of the repeated descriptor.
fn walk(umem: impl Fn() -> Umem, packets: impl Fn(&Bench, Way, [Verdict; 2]) -> usize) {
    for way in Way::ALL {
        for &first in way.verdicts() {
            for &second in way.verdicts() {
                for (name, change) in CHANGES {
                    let case = format!("{way:?}: {first:?}, {second:?}, {name}");
                    let mut bench = Bench::new(SMALL, umem(), way);
                    bench.arrive(way, change);
                    bench.take(way, [first, second]);
                    let expected = packets(&bench, way, [first, second]);
                    bench.check(expected, 1, &case);
                }
            }
        }
    }
}

/// The packets taken before one that stays in the batch.
fn taken([first, second]: [Verdict; 2]) -> usize {
    match (first, second) {
        (Verdict::Leave, _) => 0,
        (_, Verdict::Leave) => 1,
        _ => 2,
    }
}

#[test]
fn a_descriptor_that_comes_twice_in_a_burst_is_one_packet() {
    for size in [2048, 4096] {
        walk(|| umem(16, size), |_, _, verdicts| taken(verdicts));
    }
}

#[test]
fn an_unaligned_descriptor_that_comes_twice_in_a_burst_is_one_packet() {
    let owned = |bench: &Bench, way, verdicts: [Verdict; 2]| {
        let read = verdicts.iter();
        read.take_while(|it| bench.reads(way, **it)).count()
    };
    walk(|| umem_unaligned(16, 3001, false), owned);
}

#[test]
fn a_packet_is_dropped_if_a_chunk_of_it_came_before_in_the_burst() {
    for (way, last) in [
        (Way::Batch, Verdict::Fragments),
        (Way::ReceiveEach, Verdict::Keep),
    ] {
        let mut bench = Bench::new(SMALL, umem_with_fragments(16, 2048), way);
        let model = &mut bench.models[0];
        assert_eq!(model.receive(0, &[1; 60]), Ok(true));
        model
            .queue()
            .repeat(0, 1, |desc| desc.options = XDP_PKT_CONTD);
        assert_eq!(model.receive(0, &[2; 60]), Ok(true));
        model.announce();
        bench.take(way, [Verdict::Recycle, last]);
        bench.check(1, 1, &format!("{way:?}"));
        assert_eq!(
            bench.models[0].statistics().expect("counters").fragmented,
            1
        );
    }
}

/// A chunk that was read last in a burst of the number that comes now is not taken for a repeated one.
#[test]
#[cfg_attr(miri, ignore = "as many bursts take Miri minutes")]
fn numbers_of_bursts_start_again() {
    let umem = umem(16, 2048);
    let mut model = open(&umem);
    for _ in 0..2 {
        announce(&mut model, [1]);
        model.recv(0, 8, |batch| assert_eq!(batch.len(), 1));
        let fill = &mut model.whole().expect("it is whole").receiver.fill;
        (0..Burst::LAST - 1).for_each(|_| fill.start_burst());
        // The driver takes the chunk out of FILL and receives into it: unlike `receive`, without the table.
        let mut queue = model.queue();
        while queue.take_fill(4) > 0 {}
        queue.pool.pop_back();
        queue.repeat(0, 1, |_| {});
        drop(queue);
        model.announce();
        let packets = model.recv(0, 8, |mut batch| usize::from(batch.next_packet().is_some()));
        assert_eq!(packets, 1);
    }
    assert_eq!(model.invalid_descs(), 0);
    assert_eq!(check(&umem, &[model], []), Ok(()));
}

/// A peer makes the slot of a packet name the one before, whose chunk is to be lent again, and the closure panics.
#[test]
fn a_slot_that_changes_before_a_panic_lends_no_chunk_twice() {
    let umem = umem(16, 2048);
    let mut model = open(&umem);
    announce(&mut model, [1, 2, 3]);
    let kernel = Arc::clone(&model.queue);
    let mut packets = 0;
    let pass = || {
        model.receive_each(8, |packet| {
            packets += 1;
            assert!(packets < 3, "none comes after a panic");
            if packets == 2 {
                let queue = lock(&kernel);
                let rx = queue.sockets[0].rx.as_ref().expect("it receives");
                let slot = |back| rx.end.next().wrapping_sub(back);
                rx.memory.write(slot(2), rx.memory.read(slot(3)));
                resume_unwind(Box::new("a program's panic"));
            }
            packet.recycle()
        })
    };
    assert!(catch_unwind(AssertUnwindSafe(pass)).is_err());
    assert_eq!(check(&umem, &[model], []), Ok(()));
}
