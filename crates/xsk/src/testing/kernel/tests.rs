//! Invariants of the library under any steps of the program, the kernel and a hostile peer, and
//! regressions.

use super::play::{Fate, Play, Step};
use super::{
    Answer, Config, Model, Ring, Word, check, check_user_space, lock, umem, umem_unaligned,
    umem_with_fragments, umem_with_metadata,
};
use crate::frame::Frame;
use crate::owned_packet::OwnedPacket;
use crate::umem::Umem;
use crate::wait::{Interest, Wait};
use proptest::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Few chunks, so that every step is near some limit.
const CHUNKS: u32 = 16;

/// `./run test --long`. Read when this is compiled, because Miri hides the environment.
const LONG: bool = option_env!("WEIR_TEST_LONG").is_some();

/// Sequences for each property, unless proptest's own number is to count (`PROPTEST_CASES`, 256), and
/// their lengths. Miri is a thousand times slower.
const CASES: Option<u32> = match (cfg!(miri), LONG) {
    (true, false) => Some(1),
    (true, true) => Some(16),
    (false, false) => None,
    (false, true) => Some(2048),
};
const STEPS: usize = match (cfg!(miri), LONG) {
    (true, false) => 20,
    (true, true) => 40,
    (false, _) => 200,
};

fn config() -> ProptestConfig {
    let mut config = ProptestConfig {
        // A failing sequence is printed; below it becomes a readable test of its own.
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    config.cases = CASES.unwrap_or(config.cases);
    config
}

fn config_of_a_queue() -> impl Strategy<Value = Config> {
    let slots = || (0..4_u32).prop_map(|shift| 1 << shift);
    let first_index = prop_oneof![Just(0), (0..9_u32).prop_map(|below| u32::MAX - below)];
    let rings = (slots(), slots(), slots(), slots(), first_index);
    let wait = prop_oneof![Just(Wait::Spin), Just(Wait::Poll), Just(Wait::adaptive())];
    let refuse_after = prop_oneof![3 => Just(None), 1 => (0..3_u32).prop_map(Some)];
    (rings, any::<bool>(), wait, refuse_after).prop_map(
        |((fill, completion, rx, tx, first_index), zero_copy, wait, refuse_after)| Config {
            fill,
            completion,
            rx,
            tx,
            first_index,
            zero_copy,
            wait,
            refuse_after,
        },
    )
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        4 => Just(Fate::Drop),
        4 => Just(Fate::Keep),
        8 => Just(Fate::Send),
        4 => Just(Fate::SendElsewhere),
        2 => Just(Fate::Answer),
        1 => Just(Fate::Panic),
    ]
}

/// Also those by which a program loses chunks.
fn careless_fate() -> impl Strategy<Value = Fate> {
    prop_oneof![15 => fate(), 1 => Just(Fate::Forget)]
}

fn fates(fate: impl Strategy<Value = Fate>) -> impl Strategy<Value = Vec<Fate>> {
    prop::collection::vec(fate, 0..9)
}

/// A step of a program.
fn program_step() -> impl Strategy<Value = Step> {
    let queue = 0..2_u8;
    let max = 0..9_u8;
    prop_oneof![
        5 => (queue.clone(), 0..2_u8, max.clone(), fates(fate())).prop_map(
            |(queue, socket, max, fates)| {
                Step::Recv { queue, socket, max, fates, forget: false }
            }
        ),
        4 => (queue.clone(), max.clone(), fates(careless_fate()), any::<bool>()).prop_map(
            |(queue, max, fates, forward)| Step::Each { queue, max, fates, forward }
        ),
        1 => (queue, max).prop_map(|(queue, max)| Step::RecvFrames { queue, max }),
        8 => sending_step(),
        5 => calling_step(),
    ]
}

fn sending_step() -> impl Strategy<Value = Step> {
    let queue = 0..2_u8;
    let len = 0..2050_u16;
    let count = 0..9_u8;
    prop_oneof![
        2 => (queue.clone(), len.clone()).prop_map(|(queue, len)| Step::Alloc { queue, len }),
        3 => (queue.clone(), 0..2_u8, 0..8_u8)
            .prop_map(|(queue, socket, which)| Step::Send { queue, socket, which }),
        1 => (0..8_u8).prop_map(|which| Step::Drop { which }),
        2 => (queue.clone(), 0..9_u8, len.clone(), count.clone(), any::<bool>()).prop_map(
            |(queue, max, len, count, panics)| Step::SendEach { queue, max, len, count, panics }
        ),
        2 => (queue.clone(), 0..2_u8, 0..9_u8, len, fates(careless_fate())).prop_map(
            |(queue, socket, max, len, fates)| Step::SendBatch { queue, socket, max, len, fates }
        ),
        1 => (queue.clone(), count.clone())
            .prop_map(|(queue, count)| Step::SendFrames { queue, count }),
        1 => (queue, count).prop_map(|(queue, count)| Step::FreeFrames { queue, count }),
    ]
}

/// Steps in which a socket may call the kernel.
fn calling_step() -> impl Strategy<Value = Step> {
    let queue = 0..2_u8;
    prop_oneof![
        8 => (queue.clone(), 0..2_u8).prop_map(|(queue, socket)| Step::Flush { queue, socket }),
        4 => (queue.clone(), 0..2_u8, 0..9_u8)
            .prop_map(|(queue, socket, millis)| Step::Wait { queue, socket, millis }),
        4 => queue.clone().prop_map(|queue| Step::Reclaim { queue }),
        1 => queue.clone().prop_map(|queue| Step::AddSibling { queue }),
        1 => queue.clone().prop_map(|queue| Step::Split { queue }),
        1 => queue.prop_map(|queue| Step::Reopen { queue }),
    ]
}

/// A step of a program that forgets packets and batches.
fn careless_step() -> impl Strategy<Value = Step> {
    let forget = prop_oneof![3 => Just(false), 1 => Just(true)];
    let batch = (0..2_u8, 0..2_u8, 0..9_u8, fates(careless_fate()), forget);
    prop_oneof![
        3 => program_step(),
        1 => batch.prop_map(|(queue, socket, max, fates, forget)| {
            Step::Recv { queue, socket, max, fates, forget }
        }),
    ]
}

/// A step of an honest kernel.
fn kernel_step() -> impl Strategy<Value = Step> {
    let queue = 0..2_u8;
    let socket = 0..2_u8;
    let most = 0..9_u8;
    prop_oneof![
        1 => (queue.clone(), most.clone()).prop_map(|(queue, most)| Step::TakeFill { queue, most }),
        8 => (queue.clone(), socket.clone(), 1..1800_u16)
            .prop_map(|(queue, socket, len)| Step::Receive { queue, socket, len }),
        4 => queue.clone().prop_map(|queue| Step::Announce { queue }),
        3 => (queue.clone(), socket, most, any::<bool>()).prop_map(
            |(queue, socket, most, release)| Step::Transmit { queue, socket, most, release }
        ),
        4 => (queue, 0..8_u8, any::<bool>()).prop_map(
            |(queue, which, clear_lowest_bit)| Step::Complete { queue, which, clear_lowest_bit }
        ),
        6 => driver_step(),
    ]
}

fn answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        4 => (0..4_u8).prop_map(Answer::Send),
        2 => Just(Answer::Drop),
        2 => Just(Answer::Again),
        2 => Just(Answer::NoBuffers),
        2 => Just(Answer::Interrupted),
        1 => Just(Answer::Down),
        1 => Just(Answer::Resets),
        1 => Just(Answer::Gone),
        1 => Just(Answer::Refused),
    ]
}

/// A step of a driver: its pace and its answers.
fn driver_step() -> impl Strategy<Value = Step> {
    let queue = 0..2_u8;
    prop_oneof![
        2 => (queue.clone(), prop::collection::vec(answer(), 0..4))
            .prop_map(|(queue, answers)| Step::Answer { queue, answers }),
        1 => (queue.clone(), any::<u8>()).prop_map(|(queue, turns)| Step::Idle { queue, turns }),
        4 => queue.clone().prop_map(|queue| Step::Turn { queue }),
        2 => (queue.clone(), any::<bool>()).prop_map(|(queue, ask)| Step::Sleep { queue, ask }),
        1 => queue.clone().prop_map(|queue| Step::Reset { queue }),
        2 => (queue, 0..20_u8).prop_map(|(queue, packets)| Step::Wire { queue, packets }),
    ]
}

/// A forged address: in the UMEM, at its end, or anywhere.
fn forged_addr() -> impl Strategy<Value = u64> {
    let end = u64::from(CHUNKS) * 2048;
    prop_oneof![4 => 0..end, 1 => end - 2..end + 4096, 1 => any::<u64>()]
}

/// A step of a hostile peer.
fn hostile_step() -> impl Strategy<Value = Step> {
    let queue = 0..2_u8;
    let ahead = 0..8_u8;
    let ring = || {
        prop_oneof![
            Just(Ring::Fill),
            Just(Ring::Completion),
            Just(Ring::Rx),
            Just(Ring::Tx),
        ]
    };
    let word = || {
        prop_oneof![
            Just(Word::Producer),
            Just(Word::Consumer),
            Just(Word::Flags)
        ]
    };
    let len = prop_oneof![0..2100_u32, any::<u32>()];
    let options = prop_oneof![Just(0), Just(1), any::<u32>()];
    prop_oneof![
        1 => (queue.clone(), ring(), word(), any::<u32>())
            .prop_map(|(queue, ring, word, value)| Step::ForgeIndex { queue, ring, word, value }),
        4 => (queue.clone(), ring(), word(), -9..10_i8)
            .prop_map(|(queue, ring, word, by)| Step::MoveIndex { queue, ring, word, by }),
        4 => (queue.clone(), ahead.clone(), forged_addr(), len, options).prop_map(
            |(queue, ahead, addr, len, options)| Step::ForgeRx { queue, ahead, addr, len, options }
        ),
        2 => (queue, ahead, forged_addr())
            .prop_map(|(queue, ahead, addr)| Step::ForgeCompletion { queue, ahead, addr }),
    ]
}

fn play(queues: u32, config: Config, steps: &[Step]) -> Result<Play, TestCaseError> {
    play_on(&umem(CHUNKS, 2048), queues, config, steps)
}

fn play_on(
    umem: &Umem,
    queues: u32,
    config: Config,
    steps: &[Step],
) -> Result<Play, TestCaseError> {
    let mut play = Play::new(umem, queues, config);
    for (number, step) in steps.iter().enumerate() {
        let done = play.step(step);
        done.map_err(|why| TestCaseError::fail(format!("step {number}, {step:?}: {why}")))?;
    }
    Ok(play)
}

fn steps<S: Strategy<Value = Step>>(step: S) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step, 1..STEPS)
}

proptest! {
    #![proptest_config(config())]

    /// free + cached + held + FILL + with the kernel + RX + TX + COMPLETION = chunks, each chunk
    /// is in one place, packets arrive unchanged, errors are those of the kernel, and calls take no
    /// longer than they may.
    #[test]
    fn every_chunk_is_in_one_place(
        queues in 1..3_u32,
        config in config_of_a_queue(),
        steps in steps(prop_oneof![careless_step(), kernel_step()]),
    ) {
        play(queues, config, &steps)?.end().map_err(TestCaseError::fail)?;
    }

    /// From any state packets go on, in both directions.
    #[test]
    fn nothing_stalls(
        queues in 1..3_u32,
        config in config_of_a_queue(),
        by_waiting in any::<bool>(),
        steps in steps(prop_oneof![program_step(), kernel_step()]),
    ) {
        let play = play(queues, config, &steps)?;
        play.goes_on(by_waiting).map_err(TestCaseError::fail)?;
    }

    /// No forgery makes the library panic, leave the UMEM, hand out a chunk twice or miscount.
    #[test]
    fn lies_break_nothing(
        queues in 1..3_u32,
        config in config_of_a_queue(),
        steps in steps(prop_oneof![careless_step(), kernel_step(), hostile_step()]),
    ) {
        play(queues, config, &steps)?.end().map_err(TestCaseError::fail)?;
    }
}

/// A step with packets of several chunks.
fn fragments_step() -> impl Strategy<Value = Step> {
    let queue = 0..2_u8;
    let socket = 0..2_u8;
    prop_oneof![
        4 => (queue.clone(), socket.clone(), 1..9_u8, fates(fate())).prop_map(
            |(queue, socket, max, fates)| Step::RecvFragments { queue, socket, max, fates }
        ),
        4 => (queue.clone(), socket.clone(), 1..8000_u16)
            .prop_map(|(queue, socket, len)| Step::Receive { queue, socket, len }),
        2 => (queue, socket, 0..6_u8)
            .prop_map(|(queue, socket, count)| Step::SendFragments { queue, socket, count }),
    ]
}

proptest! {
    #![proptest_config(config())]

    /// The same of packets of several chunks: whole or dropped, and sent whole.
    #[test]
    fn every_chunk_of_fragments_is_in_one_place(
        queues in 1..3_u32,
        config in config_of_a_queue(),
        steps in steps(prop_oneof![fragments_step(), program_step(), kernel_step()]),
    ) {
        let umem = umem_with_fragments(CHUNKS, 2048);
        let play = play_on(&umem, queues, config, &steps)?;
        play.end().map_err(TestCaseError::fail)?;
    }

    #[test]
    fn nothing_stalls_with_fragments(
        queues in 1..3_u32,
        config in config_of_a_queue(),
        by_waiting in any::<bool>(),
        steps in steps(prop_oneof![fragments_step(), program_step(), kernel_step()]),
    ) {
        let umem = umem_with_fragments(CHUNKS, 2048);
        let play = play_on(&umem, queues, config, &steps)?;
        play.goes_on(by_waiting).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn lies_about_fragments_break_nothing(
        queues in 1..3_u32,
        config in config_of_a_queue(),
        steps in steps(prop_oneof![fragments_step(), careless_step(), kernel_step(), hostile_step()]),
    ) {
        let umem = umem_with_fragments(CHUNKS, 2048);
        let play = play_on(&umem, queues, config, &steps)?;
        play.end().map_err(TestCaseError::fail)?;
    }
}

proptest! {
    #![proptest_config(config())]

    /// The same where each packet sent has metadata: a request, or none.
    #[test]
    fn every_chunk_with_metadata_is_in_one_place(
        queues in 1..3_u32,
        config in config_of_a_queue(),
        steps in steps(prop_oneof![careless_step(), kernel_step()]),
    ) {
        let umem = umem_with_metadata(CHUNKS, 2048);
        let play = play_on(&umem, queues, config, &steps)?;
        play.end().map_err(TestCaseError::fail)?;
    }

    #[test]
    fn nothing_stalls_with_metadata(
        queues in 1..3_u32,
        config in config_of_a_queue(),
        by_waiting in any::<bool>(),
        steps in steps(prop_oneof![program_step(), kernel_step()]),
    ) {
        let umem = umem_with_metadata(CHUNKS, 2048);
        let play = play_on(&umem, queues, config, &steps)?;
        play.goes_on(by_waiting).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn lies_about_metadata_break_nothing(
        queues in 1..3_u32,
        config in config_of_a_queue(),
        steps in steps(prop_oneof![careless_step(), kernel_step(), hostile_step()]),
    ) {
        let umem = umem_with_metadata(CHUNKS, 2048);
        let play = play_on(&umem, queues, config, &steps)?;
        play.end().map_err(TestCaseError::fail)?;
    }
}

proptest! {
    #![proptest_config(config())]

    /// The same of chunks that lie across pages, also with an odd size.
    #[test]
    fn every_unaligned_chunk_is_in_one_place(
        queues in 1..3_u32,
        config in config_of_a_queue(),
        size in 2048..2060_u32,
        steps in steps(prop_oneof![careless_step(), kernel_step()]),
    ) {
        let umem = umem_unaligned(CHUNKS, size, false);
        let play = play_on(&umem, queues, config, &steps)?;
        play.end().map_err(TestCaseError::fail)?;
    }

    #[test]
    fn nothing_stalls_with_unaligned_chunks(
        queues in 1..3_u32,
        config in config_of_a_queue(),
        by_waiting in any::<bool>(),
        fragments in any::<bool>(),
        steps in steps(prop_oneof![fragments_step(), program_step(), kernel_step()]),
    ) {
        let umem = umem_unaligned(CHUNKS, 3001, fragments);
        let play = play_on(&umem, queues, config, &steps)?;
        play.goes_on(by_waiting).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn lies_about_unaligned_chunks_break_nothing(
        queues in 1..3_u32,
        config in config_of_a_queue(),
        fragments in any::<bool>(),
        steps in steps(prop_oneof![fragments_step(), careless_step(), kernel_step(), hostile_step()]),
    ) {
        let umem = umem_unaligned(CHUNKS, 2049, fragments);
        let play = play_on(&umem, queues, config, &steps)?;
        play.end().map_err(TestCaseError::fail)?;
    }
}

/// Rings that are soon full, and whose indices soon wrap around.
pub(super) const SMALL: Config = Config {
    fill: 4,
    completion: 4,
    rx: 4,
    tx: 4,
    first_index: u32::MAX - 1,
    zero_copy: true,
    wait: Wait::Poll,
    refuse_after: None,
};

pub(super) fn open(umem: &Umem) -> Model {
    Model::open(umem, 0, SMALL).expect("the model opens")
}

/// Packets arrive, each of 60 of these bytes.
pub(super) fn announce(model: &mut Model, bytes: impl IntoIterator<Item = u8>) {
    for byte in bytes {
        assert_eq!(model.receive(0, &[byte; 60]), Ok(true));
    }
    model.announce();
}

#[test]
fn packets_go_round_over_the_end_of_the_indices() {
    let umem = umem(CHUNKS, 2048);
    let mut model = open(&umem);
    for round in 0..32_u8 {
        announce(&mut model, [round]);
        model.recv(0, 8, |mut batch| {
            let packet = batch.next_packet().expect("the packet");
            assert_eq!(*packet, [round; 60]);
            packet.send().expect("room in TX");
        });
        model.flush(0).expect("the device is up");
        assert_eq!(model.transmit(0, 8), Ok(1));
        model.release_tx(0);
        assert_eq!(model.complete(0, false), Ok(true));
        assert_eq!(model.reclaim(), 1);
    }
    assert_eq!(check(&umem, std::slice::from_ref(&model), []), Ok(()));
    assert_eq!((model.invalid_descs(), model.invalid_indices()), (0, 0));
}

/// The numbers of the received packets' frames.
fn frames_received(model: &mut Model, max: u32) -> Vec<usize> {
    let mut packets = Vec::new();
    model.recv(0, max, |mut batch| {
        while let Some(packet) = batch.next_fragments() {
            packets.push(packet.frames().len());
        }
    });
    packets
}

#[test]
fn a_packet_whose_end_is_not_there_yet_waits() {
    let umem = umem_with_fragments(CHUNKS, 2048);
    let mut model = open(&umem);
    let first = model.load(Ring::Rx, Word::Producer);
    assert_eq!(model.receive(0, &[1; 60]), Ok(true));
    assert_eq!(model.receive(0, &[2; 4000]), Ok(true));
    for (published, expected) in [(1, vec![1]), (2, vec![]), (3, vec![])] {
        model.store(Ring::Rx, Word::Producer, first.wrapping_add(published));
        assert_eq!(frames_received(&mut model, 8), expected);
    }
    model.announce();
    assert_eq!(frames_received(&mut model, 1), [3], "more than asked for");
    assert_eq!(check(&umem, std::slice::from_ref(&model), []), Ok(()));
}

/// The last packet is taken whole, and so has more chunks than FILL has slots for the pass.
#[test]
fn a_panic_in_front_of_a_long_packet_loses_no_chunk() {
    let umem = umem_with_fragments(CHUNKS, 2048);
    let mut model = open(&umem);
    assert_eq!(model.receive(0, &[1; 60]), Ok(true));
    assert_eq!(model.receive(0, &[2; 4000]), Ok(true));
    model.announce();
    let pass = || model.receive_each(2, |_| panic!("a program's panic"));
    assert!(catch_unwind(AssertUnwindSafe(pass)).is_err());
    assert_eq!(check(&umem, std::slice::from_ref(&model), []), Ok(()));
}

#[test]
fn a_packet_without_an_end_in_a_full_ring_is_dropped() {
    let umem = umem_with_fragments(CHUNKS, 2048);
    for in_bulk in [false, true] {
        let mut model = open(&umem);
        model.take_fill(4);
        model.announce();
        let first = model.load(Ring::Rx, Word::Producer);
        for ahead in 0..4 {
            model.forge_rx(ahead, u64::from(ahead) * 2048 + 256, 60, 1);
        }
        model.store(Ring::Rx, Word::Producer, first.wrapping_add(4));
        if in_bulk {
            assert_eq!(model.receive_each(8, |_| panic!("no packet")), 4);
        } else {
            assert_eq!(frames_received(&mut model, 1), []);
            let counted = model.statistics().expect("the model has them").fragmented;
            assert_eq!(counted, 1);
        }
        let models = std::slice::from_ref(&model);
        assert_eq!(check_user_space(&umem, models, []), Ok(()));
    }
}

#[test]
fn a_packet_of_a_chunk_twice_or_with_an_unknown_option_is_dropped() {
    let umem = umem_with_fragments(CHUNKS, 2048);
    // Addresses and options of two descriptors.
    for [one, other] in [
        [(256, 1), (256, 0)],
        [(256, 1), (2048 + 256, 2)],
        [(256, 1), (u64::MAX, 0)],
        [(256, 3), (2048 + 256, 0)],
    ] {
        let mut model = open(&umem);
        model.take_fill(4);
        model.announce();
        let first = model.load(Ring::Rx, Word::Producer);
        for (ahead, (addr, options)) in [(0, one), (1, other)] {
            model.forge_rx(ahead, addr, 60, options);
        }
        model.store(Ring::Rx, Word::Producer, first.wrapping_add(2));
        assert_eq!(frames_received(&mut model, 8), []);
        assert!(model.invalid_descs() > 0);
        let models = std::slice::from_ref(&model);
        assert_eq!(check_user_space(&umem, models, []), Ok(()));
    }
}

fn send_one(umem: &Umem, model: &mut Model) -> bool {
    let mut frame = umem.alloc().expect("a frame");
    frame.fill_with(&[0; 60]).expect("room");
    model.send(0, frame).is_ok()
}

#[test]
fn a_wakeup_is_due_only_when_asked_for_and_something_waits() {
    let umem = umem(CHUNKS, 2048);
    let mut model = open(&umem);
    let wakeups = |model: &mut Model| {
        model.flush(0).expect("the device is up");
        model.statistics().expect("counters").wakeups
    };
    assert_eq!(wakeups(&mut model), 0, "nothing waits");
    assert!(send_one(&umem, &mut model));
    assert_eq!(wakeups(&mut model), 1);
    assert!(send_one(&umem, &mut model));
    assert_eq!(wakeups(&mut model), 1, "the kernel is awake");
}

#[test]
fn a_descriptor_that_comes_twice_gives_one_frame() {
    let umem = umem(CHUNKS, 2048);
    let mut model = open(&umem);
    let next = model.load(Ring::Rx, Word::Producer);
    for ahead in 0..2 {
        model.forge_rx(ahead, 256, 60, 0);
    }
    model.store(Ring::Rx, Word::Producer, next.wrapping_add(2));
    let first = model.recv(0, 8, |mut batch| {
        let first = batch.next_packet().expect("chunk 0 was lent").keep();
        assert!(batch.next_packet().is_none());
        first
    });
    assert_eq!(model.invalid_descs(), 1);
    let models = std::slice::from_ref(&model);
    assert_eq!(check_user_space(&umem, models, [&first]), Ok(()));
}

#[test]
fn descriptors_of_what_was_not_lent_are_refused_and_counted() {
    let umem = umem(CHUNKS, 2048);
    let mut model = open(&umem);
    let outside = u64::from(CHUNKS) * 2048;
    // Outside; not lent; past the end of its chunk, which is ours again then.
    let forged = [(outside, 60), (u64::MAX, 60), (outside - 1, 1), (2000, 49)];
    let next = model.load(Ring::Rx, Word::Producer);
    for (ahead, (addr, len)) in forged.into_iter().enumerate() {
        model.forge_rx(ahead as u32, addr, len, 0);
        model.forge_completion(ahead as u32, addr);
    }
    model.store(Ring::Rx, Word::Producer, next.wrapping_add(4));
    assert!(model.recv(0, 8, |mut batch| batch.next_packet().is_none()));
    assert_eq!(model.invalid_descs(), 4);
    model.store(Ring::Completion, Word::Producer, next.wrapping_add(4));
    assert_eq!(model.reclaim(), 4);
    assert_eq!(model.invalid_descs(), 8);
    assert_eq!(check_user_space(&umem, &[model], []), Ok(()));
}

#[test]
fn impossible_indices_are_ignored_and_counted() {
    let umem = umem(CHUNKS, 2048);
    let mut model = open(&umem);
    let next = model.load(Ring::Rx, Word::Producer);
    for by in [5, 1 << 31, u32::MAX] {
        model.store(Ring::Rx, Word::Producer, next.wrapping_add(by));
        assert!(model.recv(0, 8, |batch| batch.is_empty()));
    }
    assert_eq!(model.invalid_indices(), 3);
    let counts = model.statistics().expect("counters");
    assert_eq!(counts.invalid_indices, 3);
}

/// A regression: the free count overflowed, and staged TX descriptors were overwritten.
#[test]
fn a_consumer_index_that_goes_back_frees_no_slot() {
    let umem = umem(CHUNKS, 2048);
    let mut model = open(&umem);
    for _ in 0..4 {
        assert!(send_one(&umem, &mut model));
    }
    let consumer = model.load(Ring::Tx, Word::Consumer);
    for back in 1..=4 {
        model.store(Ring::Tx, Word::Consumer, consumer.wrapping_sub(back));
        assert!(!send_one(&umem, &mut model), "{back} back");
    }
    let invalid = model.invalid_indices();
    assert!(invalid > 1);
    let counts = model.statistics().expect("counters");
    assert_eq!(counts.invalid_indices, invalid);
}

/// Chunks of a forgotten batch may be lost, but none is owned twice, also when a peer then completes
/// packets that were never sent.
#[test]
fn a_forgotten_batch_gives_no_chunk_twice() {
    let umem = umem(CHUNKS, 2048);
    let mut model = open(&umem);
    announce(&mut model, [1; 4]);
    let mut frames = vec![model.recv(0, 8, |mut batch| {
        let first = batch.next_packet().expect("the first").keep();
        let second = batch.next_packet().expect("the second");
        second.send().expect("room");
        std::mem::forget(batch.next_packet());
        std::mem::forget(batch);
        first
    })];
    // The first packet's chunk is free now, and lent for receiving again: its old descriptor
    // must not be read another time.
    frames.clear();
    assert!(model.recv(0, 8, |mut batch| batch.next_packet().is_none()));

    let next = model.load(Ring::Completion, Word::Producer);
    for ahead in 0..4 {
        model.forge_completion(ahead, u64::from(ahead) * 2048);
    }
    model.store(Ring::Completion, Word::Producer, next.wrapping_add(4));
    model.reclaim();
    model.recv(0, 8, |mut batch| {
        while let Some(packet) = batch.next_packet() {
            frames.push(packet.keep());
        }
    });
    frames.extend(std::iter::from_fn(|| model.alloc()));
    let mut chunks: Vec<_> = frames.iter().map(|frame| frame.chunk().addr()).collect();
    chunks.sort_unstable();
    chunks.dedup();
    assert_eq!(chunks.len(), frames.len());
}

/// A regression: the search for a packet's end went on for 2^32 slots.
#[test]
fn an_index_taken_back_ends_the_search_for_a_packets_end() {
    let umem = umem_with_fragments(CHUNKS, 2048);
    let mut model = open(&umem);
    let first = model.load(Ring::Rx, Word::Producer);
    for ahead in 0..SMALL.rx {
        // No packet ends.
        model.forge_rx(ahead, 0, 60, 1);
    }
    for announced in [3, 1] {
        model.store(Ring::Rx, Word::Producer, first.wrapping_add(announced));
        assert!(model.recv(0, 8, |mut batch| batch.next_fragments().is_none()));
    }
}

/// A regression: kernels before 6.17 publish their index of TX late in copy mode, and a packet that they
/// had taken looked as if it were still in TX when the socket was closed.
#[test]
fn a_packet_that_the_kernel_took_silently_is_not_free_after_the_close() {
    let umem = umem(CHUNKS, 2048);
    let copies = Config {
        zero_copy: false,
        ..SMALL
    };
    let mut model = Model::open(&umem, 0, copies).expect("the model opens");
    assert!(send_one(&umem, &mut model));
    model.answer(&[Answer::Again, Answer::Down]);
    model.flush(0).expect("the device is busy");
    assert_eq!(model.transmit(0, 1), Ok(1));
    model.idle(u32::MAX);
    drop(model);
    let count = umem.accounting();
    assert_eq!((count.free, count.retired), (CHUNKS - 1, 1));
}

#[test]
fn a_frame_comes_from_a_completed_packet_when_no_other_is_left() {
    let umem = umem(CHUNKS, 2048);
    let mut model = open(&umem);
    assert!(send_one(&umem, &mut model));
    let held: Vec<_> = std::iter::from_fn(|| model.alloc()).collect();
    model.flush(0).expect("the device is up");
    assert_eq!(model.transmit(0, 1), Ok(1));
    assert_eq!(model.complete(0, false), Ok(true));
    assert!(model.alloc().is_some());
    assert_eq!(held.len(), 11, "of 16, 4 are in FILL and one was sent");
}

/// A queue in copy mode whose rings all have so many slots.
fn copying(umem: &Umem, slots: u32) -> Model {
    let config = Config {
        fill: slots,
        completion: slots,
        rx: slots,
        tx: slots,
        first_index: 0,
        zero_copy: false,
        wait: Wait::Poll,
        refuse_after: None,
    };
    Model::open(umem, 0, config).expect("it opens")
}

/// Up to so many packets arrive.
fn arrive(model: &mut Model, packets: u32) {
    for _ in 0..packets {
        if !model.receive(0, &[1; 60]).expect("a chunk that was lent") {
            break;
        }
    }
    model.announce();
}

/// A frame whose packet does not begin where its chunk does.
fn short(mut frame: Frame) -> Frame {
    frame.fill_with(&[7; 64]).expect("room");
    frame.adjust_head(4).expect("bytes");
    frame
}

/// The packet whose closure fails is recycled, unless it was kept, and those after it come again.
#[test]
fn a_pass_that_ends_early_leaves_the_rest_in_rx() {
    for (keeps, splits) in [(false, false), (true, false), (false, true), (true, true)] {
        let umem = umem(CHUNKS, 2048);
        let mut model = open(&umem);
        if splits {
            model.split();
        }
        announce(&mut model, [1, 2, 3]);
        let (mut seen, mut kept) = (Vec::new(), Vec::new());
        let ended = model.try_receive_each(8, |packet| {
            seen.push(packet[0]);
            if packet[0] != 2 {
                return Ok(packet.recycle());
            }
            if keeps {
                kept.push(packet.keep().0);
            }
            Err("the end")
        });
        assert_eq!(ended, Err("the end"));
        assert_eq!(check(&umem, std::slice::from_ref(&model), &kept), Ok(()));
        model.receive_each(8, |packet| {
            seen.push(packet[0]);
            packet.recycle()
        });
        assert_eq!((seen, kept.len()), (vec![1, 2, 3], usize::from(keeps)));
        assert_eq!(check(&umem, &[model], &kept), Ok(()));
    }
}

/// Receives in bulk, and panics at a packet.
type Pass = fn(&mut Model, u8);

/// Each way to receive in bulk, and whether it is a half's.
const PASSES: [(&str, bool, Pass); 6] = [
    ("receive_each", false, |model, last| {
        model.receive_each(8, |packet| {
            panic_at(last, &packet);
            packet.recycle()
        });
    }),
    ("try_receive_each", false, |model, last| {
        let _ = model.try_receive_each(8, |packet| {
            panic_at(last, &packet);
            Ok::<_, ()>(packet.recycle())
        });
    }),
    ("forward_each", false, |model, last| {
        model.forward_each(8, |packet| {
            panic_at(last, &packet);
            packet.send()
        });
    }),
    ("try_forward_each", false, |model, last| {
        let socket = model.whole().expect("it is whole");
        let _ = socket.try_forward_each(8, |packet| {
            panic_at(last, &packet);
            Ok::<_, ()>(packet.send())
        });
    }),
    ("receive_each", true, |model, last| {
        model.receive_each(8, |packet| {
            panic_at(last, &packet);
            packet.recycle()
        });
    }),
    ("try_receive_each", true, |model, last| {
        let _ = model.try_receive_each(8, |packet| {
            panic_at(last, &packet);
            Ok::<_, ()>(packet.recycle())
        });
    }),
];

fn panic_at(last: u8, packet: &[u8]) {
    assert_ne!(packet[0], last, "a program's panic");
}

/// A panic drops the packets after its own, which have left RX.
#[test]
fn packets_of_a_pass_that_panics_are_counted() {
    for (pass, splits, run) in PASSES {
        for last in 1..=4 {
            let umem = umem(CHUNKS, 2048);
            let mut model = open(&umem);
            if splits {
                model.split();
            }
            announce(&mut model, [1, 2, 3, 4]);
            let run = AssertUnwindSafe(|| run(&mut model, last));
            assert!(catch_unwind(run).is_err(), "{pass}: no panic");
            let counted = model.counters.statistics().expect("counters").received;
            assert_eq!(counted, 4, "{pass}, of a half: {splits}, panic at {last}");
            assert_eq!(model.receive_each(8, |_| panic!("no packet")), 0, "{pass}");
            assert_eq!(check(&umem, &[model], []), Ok(()), "{pass}");
        }
    }
}

#[test]
fn a_length_beyond_the_room_is_a_panic_that_names_both() {
    let umem = umem(CHUNKS, 2048);
    let mut model = open(&umem);
    let sends = AssertUnwindSafe(|| model.send_each(4, |room| room.len() + 1));
    let panic = catch_unwind(sends).expect_err("a panic");
    let words = panic.downcast_ref::<String>().expect("a text");
    for word in ["`send_each`", "a length of 2049", "2048 bytes"] {
        assert!(words.contains(word), "{word:?} is not in: {words}");
    }
    assert_eq!(check(&umem, &[model], []), Ok(()));
}

#[test]
fn packets_sent_before_a_pass_ends_early_are_transmitted() {
    let umem = umem(CHUNKS, 2048);
    let mut model = open(&umem);
    arrive(&mut model, 3);
    let socket = model.whole().expect("it is whole");
    let mut packets = 0;
    let ended = socket.try_forward_each(8, |packet| {
        packets += 1;
        if packets == 2 {
            Err(packet.len())
        } else {
            Ok(packet.send())
        }
    });
    assert_eq!(ended, Err(60));
    assert_eq!(socket.statistics().expect("counters").received, 2);
    assert_eq!((model.outstanding(), model.transmit(0, 8)), (1, Ok(0)));
    model.flush(0).expect("the device is up");
    assert_eq!(model.transmit(0, 8), Ok(1));
    assert_eq!(check(&umem, &[model], []), Ok(()));
}

#[test]
fn a_batch_sends_frames_beside_its_packets() {
    let umem = umem(16, 2048);
    let mut model = copying(&umem, 8);
    arrive(&mut model, 3);
    model.recv(0, 8, |mut batch| {
        assert_eq!((batch.len(), batch.is_empty()), (3, false));
        drop(batch.next_packet());
        assert_eq!(batch.len(), 2);
        let first = batch.alloc().map(short).expect("a free chunk");
        batch.send(first).expect("room");
        let packet = batch.next_packet().expect("the second");
        packet.send().expect("room");
        drop(batch.next_packet());
        assert!(batch.is_empty());
        let last = batch.alloc().map(short).expect("a free chunk");
        batch.send(last).expect("room");
    });
    assert_eq!(model.outstanding(), 3);
    model.flush(0).expect("the device is up");
    model.turn();
    model.reclaim();
    assert_eq!(model.outstanding(), 0);
    assert_eq!(model.queue().fault, None);
    check(&umem, &[model], []).expect("each chunk in its place");
}

#[test]
fn a_batch_reclaims_a_chunk_when_no_other_is_free() {
    let umem = umem(16, 2048);
    let mut model = copying(&umem, 8);
    while let Some(frame) = model.alloc() {
        model.send(0, short(frame)).expect("room");
    }
    model.flush(0).expect("the device is up");
    let kernel = Arc::clone(&model.queue);
    model.recv(0, 8, |mut batch| {
        assert!(batch.alloc().is_none());
        lock(&kernel).turn();
        assert!(batch.alloc().is_some());
    });
}

#[test]
fn unread_packets_that_were_forged_are_not_recycled() {
    let umem = umem(16, 2048);
    let mut model = copying(&umem, 8);
    // So that FILL has room.
    let taken = model.take_fill(4);
    model.announce();
    // The last chunk, which is not lent.
    model.forge_rx(0, 15 * 2048, 60, 0);
    let index = model.load(Ring::Rx, Word::Producer);
    model.store(Ring::Rx, Word::Producer, index.wrapping_add(1));
    let before = umem.accounting().receiving;
    model.recv(0, 8, |batch| assert_eq!(batch.len(), 1));
    assert_eq!(model.invalid_descs(), 1);
    assert_eq!(umem.accounting().receiving, before);
    let mut queue = model.queue();
    let fill = queue.fill.as_mut().expect("the first socket has all rings");
    assert_eq!(fill.end.available(9), before - taken);
}

/// Receives packets that begin with 1, 2 and so on.
fn receive_numbered(model: &mut Model, packets: u8) {
    for number in 1..=packets {
        assert_eq!(model.receive(0, &[number; 60]), Ok(true));
    }
    model.announce();
}

#[test]
fn packets_of_an_iterator_live_together_and_outlive_batch_and_socket() {
    let umem = umem(CHUNKS, 2048);
    let mut model = open(&umem);
    receive_numbered(&mut model, 4);
    let mut packets: Vec<OwnedPacket> = model.recv(0, 8, |batch| batch.collect());
    for (packet, number) in packets.iter_mut().zip(1..) {
        assert_eq!(***packet, [number; 60]);
        packet.fill(number + 10);
    }
    // In another order than they came, and on another thread.
    let second = packets.remove(1);
    std::thread::spawn(move || drop(second))
        .join()
        .expect("no panic");
    drop(packets.remove(2));
    let held: Vec<_> = packets.iter().map(|packet| &**packet).collect();
    let models = std::slice::from_ref(&model);
    assert_eq!(check(&umem, models, held), Ok(()));
    // Chunks that are held are not received into.
    for _ in 0..4 {
        // It fills FILL.
        assert_eq!(model.recv(0, 8, |batch| batch.len()), 0);
        receive_numbered(&mut model, 2);
        model.recv(0, 8, |batch| assert_eq!(batch.count(), 2));
    }
    assert_eq!((packets.len(), packets[0][0], packets[1][0]), (2, 11, 13));
    close_and_count(model, &umem, 2);
    assert_eq!(
        (&**packets[0], &**packets[1]),
        (&[11; 60][..], &[13; 60][..])
    );
    drop(packets);
    umem.recover_retired(|_| true);
    assert_eq!(umem.accounting().free, CHUNKS);
}

/// Closes the socket, of whose chunks so many are held.
fn close_and_count(model: Model, umem: &Umem, held: u32) {
    drop(model);
    let count = umem.accounting();
    assert_eq!((count.held, count.receiving, count.sending), (held, 0, 0));
}

#[test]
fn a_panic_between_the_packets_of_an_iterator_loses_no_chunk() {
    let umem = umem(CHUNKS, 2048);
    let mut model = open(&umem);
    receive_numbered(&mut model, 4);
    let loop_over = || {
        model.recv(0, 8, |batch| {
            let mut held = Vec::new();
            for packet in batch {
                assert!(packet[0] < 3, "a program's panic");
                held.push(packet);
            }
        });
    };
    assert!(catch_unwind(AssertUnwindSafe(loop_over)).is_err());
    let models = std::slice::from_ref(&model);
    assert_eq!(check(&umem, models, []), Ok(()));
}

#[test]
fn a_forgotten_iterator_gives_no_chunk_twice() {
    let umem = umem(CHUNKS, 2048);
    let mut model = open(&umem);
    receive_numbered(&mut model, 4);
    let first = model.recv(0, 8, |mut batch| {
        let first = batch.next().expect("four are there");
        drop(batch.next());
        std::mem::forget(batch);
        first
    });
    assert_eq!(
        model.recv(0, 8, |batch| batch.count()),
        0,
        "they do not come again"
    );
    assert_eq!(**first, [1; 60]);
    let models = std::slice::from_ref(&model);
    assert_eq!(check_user_space(&umem, models, [&*first]), Ok(()));
}

/// Waits for a packet through one of the sockets.
type Sleep = fn(&mut Model, usize, Duration);

/// The ways to wait: by itself, and in an event loop.
const SLEEPS: [(&str, Sleep); 2] = [
    ("wait", |model, socket, time| {
        model.wait(socket, time).expect("the device is up");
    }),
    ("prepare_to_wait", |model, socket, time| {
        let end = model.time() + time;
        while model.time() < end {
            let ready = model.prepare_to_wait(socket, Interest::Receive);
            let ready = ready.expect("the device is up");
            if ready.any() {
                break;
            }
            let left = end - model.time();
            model.pass(ready.sleep_at_most.map_or(left, |most| most.min(left)));
        }
    }),
];

type Prepare = fn(&mut Model);

/// The sockets that wait: the queue's, a sibling, and the receiving half.
const WAITING: [(&str, usize, Prepare); 3] = [
    ("a socket", 0, |_| {}),
    ("a sibling", 1, |model| {
        model.add_sibling(4, 4).expect("it opens");
    }),
    ("a half", 0, Model::split),
];

/// A driver that gets no chunk asks for a wake-up some time later, and does not look at FILL before.
#[test]
fn a_late_request_for_a_wakeup_is_seen_however_a_program_waits() {
    const SECOND: Duration = Duration::from_secs(1);
    let waits = [Wait::Spin, Wait::Poll, Wait::adaptive(), Wait::BusyPoll];
    for (wait, (name, socket, prepare), (way, sleep)) in waits.iter().flat_map(|wait| {
        let both = |who| SLEEPS.map(|way| (*wait, who, way));
        WAITING.into_iter().flat_map(both)
    }) {
        for turns in 0..if cfg!(miri) { 2 } else { 40 } {
            let umem = umem(64, 2048);
            let mut model = Model::open(&umem, 0, Config { wait, ..SMALL }).expect("it opens");
            prepare(&mut model);
            model.put_on_wire(5);
            for _ in 0..5 {
                model.turn();
            }
            let received = model.recv(0, 8, |batch| batch.len());
            assert_eq!(received, 4, "all chunks of FILL are full, and free again");
            model.idle(turns);
            let start = model.time();
            sleep(&mut model, socket, SECOND);
            let why = format!("{name}, {way}, {wait:?}, {turns} turns");
            assert_eq!(model.recv(0, 8, |batch| batch.len()), 1, "{why}");
            let time = model.time() - start;
            assert!(socket > 0 || time < SECOND / 10, "{why}: {time:?}");
        }
    }
}
