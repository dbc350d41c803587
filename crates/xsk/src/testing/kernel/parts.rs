//! Descriptors of a packet of several chunks are invalid: whichever they are, the packet is dropped whole and counted once.

use super::repeated::{Bench, Way};
use super::tests::SMALL;
use super::{Config, umem_unaligned, umem_with_fragments};
use crate::ring::Shared;
use crate::sys::{Desc, XDP_PKT_CONTD};
use crate::umem::{Umem, XDP_PACKET_HEADROOM};

/// The parts of the packet.
const PARTS: u32 = 3;

/// RX has room for the packet, with one before and one after it.
const SLOTS: u32 = 8;

/// What is wrong with a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Damage {
    Outside,
    NotLent,
    /// Its chunk is that of the packet before.
    Taken,
    NoBytes,
    BeyondItsChunk,
    UnknownOption,
}

impl Damage {
    const ALL: [Self; 6] = [
        Self::Outside,
        Self::NotLent,
        Self::Taken,
        Self::NoBytes,
        Self::BeyondItsChunk,
        Self::UnknownOption,
    ];

    /// Damages a descriptor; returns whether its chunk comes back by no other.
    fn change(self, desc: &mut Desc, before: Desc, umem: &Umem) -> bool {
        let last_chunk = u64::from(umem.chunks() - 1) * u64::from(umem.chunk_size());
        match self {
            Self::Outside => desc.addr = u64::MAX,
            Self::NotLent => desc.addr = last_chunk,
            Self::Taken => desc.addr = before.addr,
            Self::NoBytes => desc.len = 0,
            Self::BeyondItsChunk => desc.len = 5000,
            Self::UnknownOption => desc.options |= 4,
        }
        matches!(self, Self::Outside | Self::NotLent | Self::Taken)
    }
}

/// Three packets arrive, of which the second has parts, some of them damaged.
fn arrive(bench: &mut Bench, way: Way, damaged: u32, damage: Damage) {
    let umem = bench.umem.clone();
    let room = umem.chunk_size() - XDP_PACKET_HEADROOM;
    let long = vec![2; (room * (PARTS - 1)) as usize + 10];
    let model = &mut bench.models[0];
    for packet in [&[1; 60][..], &long, &[3; 60]] {
        assert_eq!(model.receive(way.socket(), packet), Ok(true));
    }
    let mut lost = Vec::new();
    let queue = model.queue();
    let rx = queue.sockets[way.socket()].rx.as_ref();
    let rx = rx.expect("the socket receives");
    let first = rx.end.next().wrapping_sub(PARTS + 1);
    let before = rx.memory.read(first.wrapping_sub(1));
    for part in (0..PARTS).filter(|part| damaged & 1 << part != 0) {
        let slot = first.wrapping_add(part);
        let mut desc = rx.memory.read(slot);
        assert_eq!(desc.options == XDP_PKT_CONTD, part + 1 < PARTS);
        let addr = desc.addr;
        if damage.change(&mut desc, before, &umem) {
            lost.push(addr);
        }
        rx.memory.write(slot, desc);
    }
    drop(queue);
    model.lost.received.extend(lost);
    model.announce();
}

/// Walks all ways and verdicts, damages and sets of damaged parts, and places at which RX begins again.
fn walk(umem: impl Fn() -> Umem) {
    for (way, verdict) in Way::ALL.into_iter().flat_map(Way::takes) {
        for damage in Damage::ALL {
            for damaged in 1..1 << PARTS {
                for wrap in if cfg!(miri) { 2..3 } else { 0..6 } {
                    let case = format!(
                        "{way:?}: {verdict:?}, {damage:?}, parts {damaged:03b}, RX begins again after {wrap} slots"
                    );
                    let config = Config {
                        fill: SLOTS,
                        rx: SLOTS,
                        tx: SLOTS,
                        first_index: 0_u32.wrapping_sub(wrap),
                        ..SMALL
                    };
                    let mut bench = Bench::new(config, umem(), way);
                    arrive(&mut bench, way, damaged, damage);
                    bench.take(way, [verdict; 2]);
                    let others = if bench.reads(way, verdict) { 2 } else { 0 };
                    bench.check(others, damaged.count_ones(), &case);
                    let is_whole = |frame: &crate::Frame| frame.len() == 60;
                    assert!(bench.frames.iter().all(is_whole), "{case}");
                    let counted = bench.models[0].fill().fragmented().get();
                    assert_eq!(counted, 3 - others as u64, "{case}");
                }
            }
        }
    }
}

#[test]
fn a_packet_with_invalid_parts_is_dropped_whole_and_counted_once() {
    walk(|| umem_with_fragments(32, 2048));
}

#[test]
fn an_unaligned_packet_with_invalid_parts_is_dropped_whole_and_counted_once() {
    walk(|| umem_unaligned(32, 3001, true));
}
