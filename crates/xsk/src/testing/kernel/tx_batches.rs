//! Packets written in place: each is sent, or its chunk is back, whatever a program does to them and their batch.

use super::tests::{SMALL, open};
use super::{
    Config, Model, check, check_user_space, umem, umem_unaligned, umem_with_fragments,
    umem_with_metadata,
};
use crate::frame::Frame;
use crate::socket::{TxBatch, TxPacket, TxPackets};
use crate::umem::Umem;
use std::collections::BTreeSet;
use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The packets that the kernel takes from TX: the first byte of each, whose other bytes are the same.
fn transmitted(model: &mut Model, socket: usize) -> Vec<u8> {
    model.flush(socket).expect("the device is up");
    model.transmit(socket, 8).expect("good descriptors");
    model.release_tx(socket);
    let queue = model.queue();
    let packets = queue.in_flight.iter().map(|sent| {
        assert_eq!(sent.bytes, [sent.bytes[0]; 60]);
        sent.bytes[0]
    });
    packets.collect()
}

/// Completes all packets.
fn complete(model: &mut Model) {
    while model.complete(0, false).expect("unchanged bytes") {}
    model.reclaim();
}

fn write(packet: &mut TxPacket<'_>, byte: u8) {
    packet.fill_with(&[byte; 60]).expect("room");
}

type Prepare = fn(&mut Model);

/// The ways to send: through the socket, a sibling, and a half.
const WAYS: [(usize, Prepare); 3] = [
    (0, |_| {}),
    (1, |model| model.add_sibling(4, 4).expect("a sibling")),
    (0, Model::split),
];

/// Kinds of UMEM.
const UMEMS: [fn() -> Umem; 5] = [
    || umem(16, 2048),
    || umem(16, 4096),
    || umem_with_fragments(16, 2048),
    || umem_with_metadata(16, 2048),
    || umem_unaligned(16, 3001, false),
];

/// Each choice of those to send among four packets, sent at once or all at the end from the last one on, over the end of
/// the ring and of the indices.
#[test]
fn those_sent_leave_in_the_order_of_the_iteration() {
    for (new, (socket, prepare)) in UMEMS.iter().flat_map(|new| WAYS.map(|way| (new, way))) {
        let umem = new();
        let mut model = open(&umem);
        prepare(&mut model);
        for choice in 0..32_u8 {
            let (chosen, at_once) = (choice % 16, choice < 16);
            let is_chosen = |at: &u8| chosen >> at & 1 == 1;
            model.send_batch(socket, 8, |mut batch| {
                assert_eq!(batch.len(), 4, "as many as TX has slots");
                let mut later = Vec::new();
                for (at, mut packet) in (0..).zip(&mut batch) {
                    write(&mut packet, at);
                    match (is_chosen(&at), at_once) {
                        (true, true) => packet.send(),
                        (true, false) => later.push(packet),
                        (false, _) => {}
                    }
                }
                for packet in later.into_iter().rev() {
                    packet.send();
                }
                assert!(batch.is_empty());
            });
            let expected: Vec<u8> = (0..4).filter(is_chosen).collect();
            assert_eq!(transmitted(&mut model, socket), expected);
            assert_eq!(model.outstanding(), expected.len() as u32);
            complete(&mut model);
            assert_eq!(check(&umem, std::slice::from_ref(&model), []), Ok(()));
        }
        assert_eq!((model.invalid_descs(), model.invalid_indices()), (0, 0));
    }
}

/// What a program does to a batch, and the packets that are sent.
type Use = fn(TxBatch<'_>);
const USES: [(&str, Use, &[u8]); 9] = [
    ("drops it", |_| {}, &[]),
    (
        "iterates and writes, and sends nothing",
        |mut batch| {
            for mut packet in &mut batch {
                write(&mut packet, 1);
            }
        },
        &[],
    ),
    (
        "returns early",
        |mut batch| {
            for (at, mut packet) in (1..).zip(&mut batch) {
                write(&mut packet, at);
                if at == 3 {
                    return;
                }
                packet.send();
            }
        },
        &[1, 2],
    ),
    (
        "panics",
        |mut batch| {
            for (at, mut packet) in (1..).zip(&mut batch) {
                write(&mut packet, at);
                if at == 3 {
                    resume_unwind(Box::new("a program's panic"));
                }
                packet.send();
            }
        },
        &[1, 2],
    ),
    (
        "forgets the iteration",
        |mut batch| {
            let mut packets = batch.iter_mut();
            let _unsent = packets.next();
            let mut second = packets.next().expect("a packet");
            forget(packets);
            write(&mut second, 2);
            second.send();
        },
        &[2],
    ),
    (
        "iterates twice",
        |mut batch| {
            let mut first = batch.iter_mut().next().expect("a packet");
            write(&mut first, 1);
            first.send();
            assert_eq!((batch.len(), batch.iter_mut().len()), (3, 3));
            for mut packet in batch.iter_mut().skip(1) {
                write(&mut packet, 3);
                packet.send();
            }
        },
        &[1, 3, 3],
    ),
    (
        "sends an empty one",
        |mut batch| {
            let mut packets = batch.iter_mut();
            packets.next().expect("a packet").send();
            let mut second = packets.next().expect("a packet");
            write(&mut second, 2);
            second.send();
        },
        &[2],
    ),
    (
        "writes too much",
        |mut batch| {
            let mut packet = batch.iter_mut().next().expect("a packet");
            write(&mut packet, 1);
            let most = packet.capacity() as usize;
            let refused = packet.resize(most + 1).expect_err("no room");
            assert!(refused.to_string().contains("does not fit"), "{refused}");
            assert_eq!(*packet, [1; 60]);
            packet.resize(most).expect("room");
            packet.resize(60).expect("room");
            packet.send();
        },
        &[1],
    ),
    (
        "sends from other threads",
        |mut batch| {
            std::thread::scope(|scope| {
                for (at, mut packet) in (1..).zip(&mut batch) {
                    scope.spawn(move || {
                        write(&mut packet, at);
                        packet.send();
                    });
                }
            });
        },
        &[1, 2, 3, 4],
    ),
];

#[test]
fn each_packet_is_sent_or_back_whatever_a_program_does() {
    for (name, used, expected) in USES {
        for (new, (socket, prepare)) in UMEMS.iter().flat_map(|new| WAYS.map(|way| (new, way))) {
            let umem = new();
            let mut model = open(&umem);
            prepare(&mut model);
            let sends = || model.send_batch(socket, 4, used);
            let ended = catch_unwind(AssertUnwindSafe(sends));
            assert_eq!(ended.is_err(), name == "panics");
            assert_eq!(model.outstanding(), expected.len() as u32, "{name}");
            assert_eq!(
                check(&umem, std::slice::from_ref(&model), []),
                Ok(()),
                "{name}"
            );
            assert_eq!(transmitted(&mut model, socket), expected, "{name}");
            complete(&mut model);
            assert_eq!(check(&umem, &[model], []), Ok(()), "{name}");
        }
    }
}

/// The chunks of a forgotten batch are lost, those sent until the socket is closed, and none is owned twice.
#[test]
fn a_forgotten_batch_loses_its_chunks_alone() {
    let umem = umem(16, 2048);
    let mut model = open(&umem);
    model.send_batch(0, 4, |mut batch| {
        let mut packet = batch.iter_mut().next().expect("a packet");
        write(&mut packet, 1);
        packet.send();
        forget(batch);
    });
    assert_eq!((model.outstanding(), model.tx_room()), (0, 4));
    assert_eq!(transmitted(&mut model, 0), []);
    let mut frames: Vec<Frame> = std::iter::from_fn(|| model.alloc()).collect();
    assert_eq!(frames.len(), 16 - 4 - 4, "4 are in FILL");
    let chunks: BTreeSet<_> = frames.iter().map(|frame| frame.chunk().addr()).collect();
    assert_eq!(chunks.len(), frames.len());
    // Its slots of TX are used again.
    frames.truncate(2);
    model.send_batch(0, 4, |mut batch| {
        assert_eq!(batch.len(), 4);
        let mut packet = batch.iter_mut().next().expect("a packet");
        write(&mut packet, 2);
        packet.send();
    });
    assert_eq!(transmitted(&mut model, 0), [2]);
    complete(&mut model);
    drop((model, frames));
    let count = umem.accounting();
    // A closed zero-copy queue keeps what was lent.
    let back = count.free + count.retired;
    assert_eq!((back, count.held), (13, 3), "{count:?}");
}

#[test]
fn a_batch_is_as_long_as_tx_and_the_free_chunks_let_it() {
    let umem = umem(16, 2048);
    let mut model = open(&umem);
    for (max, expected) in [(0, 0), (1, 1), (3, 3), (u32::MAX, 4)] {
        assert_eq!(model.send_batch(0, max, |batch| batch.len()), expected);
    }
    let mut frames: Vec<Frame> = std::iter::from_fn(|| model.alloc()).collect();
    assert!(model.send_batch(0, 4, |batch| batch.is_empty()));
    frames.truncate(frames.len() - 2);
    assert_eq!(model.send_batch(0, 4, |batch| batch.len()), 2);
    // A chunk that was sent and completed is free.
    let mut frame = frames.pop().expect("a frame");
    frame.fill_with(&[1; 60]).expect("room");
    model.send(0, frame).expect("room");
    model.flush(0).expect("the device is up");
    model.transmit(0, 8).expect("good descriptors");
    model.release_tx(0);
    assert!(model.complete(0, false).expect("unchanged bytes"));
    assert_eq!(model.send_batch(0, 4, |batch| batch.len()), 3);
    assert_eq!(check(&umem, &[model], &frames), Ok(()));
}

/// A batch has at most a quarter of the UMEM's chunks, and those of a half fewer; the next ones have the rest.
#[test]
fn batches_in_a_row_fill_tx() {
    for (chunks, ring, splits, most) in [
        (64, 32, false, 16),
        (64, 8, false, 8),
        (64, 32, true, 16),
        (2048, 1024, false, 512),
        (2048, 1024, true, 256),
    ] {
        let umem = umem(chunks, 2048);
        let config = Config {
            tx: ring,
            completion: ring,
            ..SMALL
        };
        let mut model = Model::open(&umem, 0, config).expect("the model opens");
        if splits {
            model.split();
        }
        let mut lens = Vec::new();
        while lens.iter().sum::<usize>() < ring as usize {
            lens.push(model.send_batch(0, ring, |mut batch| {
                let len = batch.len();
                for mut packet in &mut batch {
                    write(&mut packet, 1);
                    packet.send();
                }
                len
            }));
        }
        assert_eq!(lens, vec![most; ring as usize / most], "{chunks}, {ring}");
        assert_eq!(check(&umem, &[model], []), Ok(()));
    }
}

#[test]
fn a_socket_without_tx_has_an_empty_batch() {
    let umem = umem(16, 2048);
    let mut model = Model::open(&umem, 0, Config { tx: 0, ..SMALL }).expect("the model opens");
    model.send_batch(0, 4, |mut batch| {
        assert!(batch.is_empty() && batch.iter_mut().next().is_none());
    });
    assert_eq!(check(&umem, &[model], []), Ok(()));
}

/// A peer changes the slots of packets that were sent while their batch lasts.
#[test]
fn slots_that_change_under_a_batch_harm_no_chunk() {
    let umem = umem(16, 2048);
    let mut model = open(&umem);
    let kernel = std::sync::Arc::clone(&model.queue);
    model.send_batch(0, 4, |mut batch| {
        for (at, mut packet) in (0..).zip(&mut batch) {
            if at > 0 {
                write(&mut packet, at);
                packet.send();
            }
        }
        let queue = super::lock(&kernel);
        let tx = queue.sockets[0].tx.as_ref().expect("it sends");
        for ahead in 0..4 {
            let slot = tx.end.next().wrapping_add(ahead);
            let mut desc = crate::ring::Shared::read(&tx.memory, slot);
            (desc.addr, desc.len) = (u64::MAX, u32::MAX);
            crate::ring::Shared::write(&tx.memory, slot, desc);
        }
    });
    assert_eq!(model.outstanding(), 3);
    assert_eq!(check_user_space(&umem, &[model], []), Ok(()));
}

#[test]
fn batches_and_their_packets_can_move_to_other_threads() {
    fn is_send<T: Send>() {}
    is_send::<TxBatch<'_>>();
    is_send::<TxPackets<'_>>();
    is_send::<TxPacket<'_>>();
}

/// The packet at hand has its place in TX beside a frame that is sent before it.
#[test]
fn a_received_packet_keeps_its_place_beside_an_answer() {
    let umem = umem(16, 2048);
    let mut model = open(&umem);
    super::tests::announce(&mut model, [1]);
    model.recv(0, 8, |mut batch| {
        let mut packet = batch.next_packet().expect("the packet");
        let mut frame = packet.alloc().expect("a free chunk");
        frame.fill_with(&[2; 60]).expect("room");
        packet.send_frame(frame).expect("room");
        packet.send().expect("room");
    });
    assert_eq!(transmitted(&mut model, 0), [2, 1]);
    assert_eq!(check(&umem, &[model], []), Ok(()));
}
