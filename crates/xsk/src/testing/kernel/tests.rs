//! Invariants of the library under any steps of the program, the kernel and a hostile peer, and
//! regressions.

use super::play::{Fate, Play, Step};
use super::{Model, Ring, Sizes, Word, check, check_user_space, umem};
use crate::umem::Umem;
use proptest::prelude::*;

/// Few chunks, so that every step is near some limit.
const CHUNKS: u32 = 16;

/// `./run test --long`. Read when this is compiled, because Miri hides the environment.
const LONG: bool = option_env!("WEIR_TEST_LONG").is_some();

/// Sequences for each property, and their lengths. Miri is a thousand times slower.
const CASES: u32 = match (cfg!(miri), LONG) {
    (true, false) => 1,
    (true, true) => 16,
    (false, _) => 512,
};
const STEPS: usize = match (cfg!(miri), LONG) {
    (true, false) => 20,
    (true, true) => 40,
    (false, _) => 200,
};

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: CASES,
        // A failing sequence is printed; below it becomes a readable test of its own.
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn sizes() -> impl Strategy<Value = Sizes> {
    let slots = || (0..4_u32).prop_map(|shift| 1 << shift);
    let first_index = prop_oneof![Just(0), (0..9_u32).prop_map(|below| u32::MAX - below)];
    (slots(), slots(), slots(), slots(), first_index).prop_map(
        |(fill, completion, rx, tx, first_index)| Sizes {
            fill,
            completion,
            rx,
            tx,
            first_index,
        },
    )
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        Just(Fate::Drop),
        Just(Fate::Keep),
        Just(Fate::Send),
        Just(Fate::SendElsewhere),
    ]
}

/// A step of a program.
fn program_step() -> impl Strategy<Value = Step> {
    let queue = 0..2_u8;
    let len = 0..2050_u16;
    prop_oneof![
        4 => (queue.clone(), 0..9_u8, prop::collection::vec(fate(), 0..9))
            .prop_map(|(queue, max, fates)| Step::Recv { queue, max, fates }),
        2 => (queue.clone(), len).prop_map(|(queue, len)| Step::Alloc { queue, len }),
        3 => (queue.clone(), 0..8_u8).prop_map(|(queue, which)| Step::Send { queue, which }),
        1 => (0..8_u8).prop_map(|which| Step::Drop { which }),
        2 => queue.clone().prop_map(|queue| Step::Flush { queue }),
        1 => queue.prop_map(|queue| Step::Reclaim { queue }),
    ]
}

/// A step of an honest kernel.
fn kernel_step() -> impl Strategy<Value = Step> {
    let queue = 0..2_u8;
    let most = 0..9_u8;
    prop_oneof![
        1 => (queue.clone(), most.clone()).prop_map(|(queue, most)| Step::TakeFill { queue, most }),
        4 => (queue.clone(), 1..1800_u16).prop_map(|(queue, len)| Step::Receive { queue, len }),
        2 => queue.clone().prop_map(|queue| Step::Announce { queue }),
        2 => (queue.clone(), most, any::<bool>())
            .prop_map(|(queue, most, release)| Step::Transmit { queue, most, release }),
        4 => (queue.clone(), 0..8_u8, any::<bool>()).prop_map(
            |(queue, which, clear_lowest_bit)| Step::Complete { queue, which, clear_lowest_bit }
        ),
        1 => (queue, any::<u32>()).prop_map(|(queue, flags)| Step::AskWakeup { queue, flags }),
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
    prop_oneof![
        1 => (queue.clone(), ring(), word(), any::<u32>())
            .prop_map(|(queue, ring, word, value)| Step::ForgeIndex { queue, ring, word, value }),
        4 => (queue.clone(), ring(), word(), -9..10_i8)
            .prop_map(|(queue, ring, word, by)| Step::MoveIndex { queue, ring, word, by }),
        4 => (queue.clone(), ahead.clone(), forged_addr(), len, any::<u32>()).prop_map(
            |(queue, ahead, addr, len, options)| Step::ForgeRx { queue, ahead, addr, len, options }
        ),
        2 => (queue, ahead, forged_addr())
            .prop_map(|(queue, ahead, addr)| Step::ForgeCompletion { queue, ahead, addr }),
    ]
}

fn play(queues: usize, sizes: Sizes, steps: &[Step]) -> Result<(), TestCaseError> {
    let umem = umem(CHUNKS, 2048);
    let mut play = Play::new(&umem, queues, sizes);
    for (number, step) in steps.iter().enumerate() {
        let done = play.step(step);
        done.map_err(|why| TestCaseError::fail(format!("step {number}, {step:?}: {why}")))?;
    }
    play.end().map_err(TestCaseError::fail)
}

proptest! {
    #![proptest_config(config())]

    /// free + cached + held + FILL + with the kernel + RX + TX + COMPLETION = chunks, each chunk
    /// is in one place, and packets arrive unchanged.
    #[test]
    fn every_chunk_is_in_one_place(
        queues in 1..3_usize,
        sizes in sizes(),
        steps in prop::collection::vec(prop_oneof![program_step(), kernel_step()], 1..STEPS),
    ) {
        play(queues, sizes, &steps)?;
    }

    /// No forgery makes the library panic, leave the UMEM, hand out a chunk twice or miscount.
    #[test]
    fn lies_break_nothing(
        queues in 1..3_usize,
        sizes in sizes(),
        steps in prop::collection::vec(
            prop_oneof![program_step(), kernel_step(), hostile_step()],
            1..STEPS,
        ),
    ) {
        play(queues, sizes, &steps)?;
    }
}

const SMALL: Sizes = Sizes {
    fill: 4,
    completion: 4,
    rx: 4,
    tx: 4,
    first_index: u32::MAX - 1,
};

#[test]
fn packets_go_round_over_the_end_of_the_indices() {
    let umem = umem(CHUNKS, 2048);
    let mut model = Model::new(&umem, SMALL);
    drop(model.recv(0));
    for round in 0..32_u8 {
        assert_eq!(model.receive(&[round; 60]), Ok(true));
        model.announce();
        let mut batch = model.recv(8);
        let packet = batch.next_packet().expect("the packet");
        assert_eq!(*packet, [round; 60]);
        packet.send().expect("room in TX");
        drop(batch);
        model.flush();
        assert_eq!(model.transmit(8), Ok(1));
        model.release_tx();
        assert_eq!(model.complete(0, false), Ok(true));
        assert_eq!(model.reclaim(), 1);
    }
    assert_eq!(check(&umem, std::slice::from_ref(&model), []), Ok(()));
    assert_eq!((model.invalid_descs(), model.invalid_indices()), (0, 0));
}

fn send_one<'u>(umem: &'u Umem, model: &mut Model<'u>) -> bool {
    let mut frame = umem.alloc().expect("a frame");
    frame.fill_with(&[0; 60]).expect("room");
    model.send(frame).is_ok()
}

#[test]
fn a_wakeup_is_due_only_when_asked_for_and_something_waits() {
    let umem = umem(CHUNKS, 2048);
    let mut model = Model::new(&umem, SMALL);
    model.store(Ring::Tx, Word::Flags, 1);
    assert!(!model.flush(), "nothing waits");
    assert!(send_one(&umem, &mut model));
    assert!(model.flush());
    model.store(Ring::Tx, Word::Flags, 0);
    assert!(!model.flush(), "the kernel is awake");
}

#[test]
fn a_descriptor_that_comes_twice_gives_one_frame() {
    let umem = umem(CHUNKS, 2048);
    let mut model = Model::new(&umem, SMALL);
    drop(model.recv(0));
    let next = model.load(Ring::Rx, Word::Producer);
    for ahead in 0..2 {
        model.forge_rx(ahead, 256, 60, 0);
    }
    model.store(Ring::Rx, Word::Producer, next.wrapping_add(2));
    let mut batch = model.recv(8);
    let first = batch.next_packet().expect("chunk 0 was lent").keep();
    assert!(batch.next_packet().is_none());
    drop(batch);
    assert_eq!(model.invalid_descs(), 1);
    let models = std::slice::from_ref(&model);
    assert_eq!(check_user_space(&umem, models, [&first]), Ok(()));
}

#[test]
fn descriptors_of_what_was_not_lent_are_refused_and_counted() {
    let umem = umem(CHUNKS, 2048);
    let mut model = Model::new(&umem, SMALL);
    drop(model.recv(0));
    let outside = u64::from(CHUNKS) * 2048;
    // Outside; not lent; past the end of its chunk, which is ours again then.
    let forged = [(outside, 60), (u64::MAX, 60), (outside - 1, 1), (2000, 49)];
    let next = model.load(Ring::Rx, Word::Producer);
    for (ahead, (addr, len)) in forged.into_iter().enumerate() {
        model.forge_rx(ahead as u32, addr, len, 0);
        model.forge_completion(ahead as u32, addr);
    }
    model.store(Ring::Rx, Word::Producer, next.wrapping_add(4));
    assert!(model.recv(8).next_packet().is_none());
    assert_eq!(model.invalid_descs(), 4);
    model.store(Ring::Completion, Word::Producer, next.wrapping_add(4));
    assert_eq!(model.reclaim(), 4);
    assert_eq!(model.invalid_descs(), 8);
    assert_eq!(check_user_space(&umem, &[model], []), Ok(()));
}

#[test]
fn impossible_indices_are_ignored_and_counted() {
    let umem = umem(CHUNKS, 2048);
    let mut model = Model::new(&umem, SMALL);
    let next = model.load(Ring::Rx, Word::Producer);
    for by in [5, 1 << 31, u32::MAX] {
        model.store(Ring::Rx, Word::Producer, next.wrapping_add(by));
        assert!(model.recv(8).is_empty());
    }
    assert_eq!(model.invalid_indices(), 3);
}

/// A regression: the free count overflowed, and staged TX descriptors were overwritten.
#[test]
fn a_consumer_index_that_goes_back_frees_no_slot() {
    let umem = umem(CHUNKS, 2048);
    let mut model = Model::new(&umem, SMALL);
    for _ in 0..4 {
        assert!(send_one(&umem, &mut model));
    }
    let consumer = model.load(Ring::Tx, Word::Consumer);
    for back in 1..=4 {
        model.store(Ring::Tx, Word::Consumer, consumer.wrapping_sub(back));
        assert!(!send_one(&umem, &mut model), "{back} back");
    }
    assert!(model.invalid_indices() > 0);
}

/// Chunks of a forgotten batch may be lost, but none is owned twice, also when a peer then completes
/// packets that were never sent.
#[test]
fn a_forgotten_batch_gives_no_chunk_twice() {
    let umem = umem(CHUNKS, 2048);
    let mut model = Model::new(&umem, SMALL);
    drop(model.recv(0));
    for _ in 0..4 {
        assert_eq!(model.receive(&[1; 60]), Ok(true));
    }
    model.announce();
    let mut batch = model.recv(8);
    let mut frames = vec![batch.next_packet().expect("the first").keep()];
    batch
        .next_packet()
        .expect("the second")
        .send()
        .expect("room");
    std::mem::forget(batch.next_packet());
    std::mem::forget(batch);
    // The first packet's chunk is free now, and lent for receiving again: its old descriptor
    // must not be read another time.
    frames.clear();
    assert!(model.recv(8).next_packet().is_none());

    let next = model.load(Ring::Completion, Word::Producer);
    for ahead in 0..4 {
        model.forge_completion(ahead, u64::from(ahead) * 2048);
    }
    model.store(Ring::Completion, Word::Producer, next.wrapping_add(4));
    model.reclaim();
    let mut batch = model.recv(8);
    while let Some(packet) = batch.next_packet() {
        frames.push(packet.keep());
    }
    drop(batch);
    frames.extend(std::iter::from_fn(|| model.alloc()));
    let mut chunks: Vec<_> = frames.iter().map(|frame| frame.chunk().addr()).collect();
    chunks.sort_unstable();
    chunks.dedup();
    assert_eq!(chunks.len(), frames.len());
}
