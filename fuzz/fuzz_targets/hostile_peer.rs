//! A program and a hostile peer on the same rings. The peer writes any index, descriptor and
//! completion. The library must not panic, leave the UMEM, hand out a chunk twice or
//! miscount; see `xsk::testing::kernel`.
#![no_main]

use arbitrary::{Arbitrary, Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use xsk::testing::kernel::play::{Fate, Play, Step};
use xsk::testing::kernel::{Ring, Sizes, Word, umem};

const CHUNKS: u32 = 16;
const CHUNK_SIZE: u32 = 2048;

/// More steps find no more faults but slow the search down.
const STEPS: usize = 256;

fuzz_target!(|input: &[u8]| {
    // Input that ends early is a short play.
    let _ = play(&mut Unstructured::new(input));
});

fn play(input: &mut Unstructured<'_>) -> Result<()> {
    let queues = input.int_in_range(1..=2)?;
    let sizes = sizes(input)?;
    let umem = umem(CHUNKS, CHUNK_SIZE);
    let mut play = Play::new(&umem, queues, sizes);
    for _ in 0..STEPS {
        let Ok(step) = step(input) else { break };
        if let Err(wrong) = play.step(&step) {
            panic!("{step:?}: {wrong}");
        }
        if input.is_empty() {
            break;
        }
    }
    if let Err(wrong) = play.end() {
        panic!("at the end: {wrong}");
    }
    Ok(())
}

fn sizes(input: &mut Unstructured<'_>) -> Result<Sizes> {
    let mut slots = || Ok(1 << input.int_in_range(0..=3)?);
    Ok(Sizes {
        fill: slots()?,
        completion: slots()?,
        rx: slots()?,
        tx: slots()?,
        first_index: u32::arbitrary(input)?,
    })
}

fn step(input: &mut Unstructured<'_>) -> Result<Step> {
    let queue = u8::arbitrary(input)?;
    Ok(match input.int_in_range(0..=15)? {
        0 => Step::Recv {
            queue,
            max: input.int_in_range(0..=16)?,
            fates: fates(input)?,
        },
        1 => Step::Alloc {
            queue,
            len: input.int_in_range(0..=2049)?,
        },
        2 => Step::Send {
            queue,
            which: u8::arbitrary(input)?,
        },
        3 => Step::Drop {
            which: u8::arbitrary(input)?,
        },
        4 => Step::Flush { queue },
        5 => Step::Reclaim { queue },
        6 => Step::TakeFill {
            queue,
            most: input.int_in_range(0..=8)?,
        },
        7 => Step::Receive {
            queue,
            len: input.int_in_range(0..=1800)?,
        },
        8 => Step::Announce { queue },
        9 => Step::Transmit {
            queue,
            most: input.int_in_range(0..=8)?,
            release: bool::arbitrary(input)?,
        },
        10 => Step::Complete {
            queue,
            which: u8::arbitrary(input)?,
            clear_lowest_bit: bool::arbitrary(input)?,
        },
        11 => Step::AskWakeup {
            queue,
            flags: u32::arbitrary(input)?,
        },
        12 => Step::ForgeIndex {
            queue,
            ring: ring(input)?,
            word: word(input)?,
            value: u32::arbitrary(input)?,
        },
        13 => Step::MoveIndex {
            queue,
            ring: ring(input)?,
            word: word(input)?,
            by: i8::arbitrary(input)?,
        },
        14 => Step::ForgeRx {
            queue,
            ahead: input.int_in_range(0..=8)?,
            addr: addr(input)?,
            len: len(input)?,
            options: u32::arbitrary(input)?,
        },
        _ => Step::ForgeCompletion {
            queue,
            ahead: input.int_in_range(0..=8)?,
            addr: addr(input)?,
        },
    })
}

fn fates(input: &mut Unstructured<'_>) -> Result<Vec<Fate>> {
    let fates = [Fate::Drop, Fate::Keep, Fate::Send, Fate::SendElsewhere];
    (0..input.int_in_range(0..=8)?)
        .map(|_| input.choose(&fates).copied())
        .collect()
}

fn ring(input: &mut Unstructured<'_>) -> Result<Ring> {
    let rings = [Ring::Fill, Ring::Completion, Ring::Rx, Ring::Tx];
    input.choose(&rings).copied()
}

fn word(input: &mut Unstructured<'_>) -> Result<Word> {
    let words = [Word::Producer, Word::Consumer, Word::Flags];
    input.choose(&words).copied()
}

/// Anywhere, or, as otherwise hardly one would be, in the UMEM or just behind it.
fn addr(input: &mut Unstructured<'_>) -> Result<u64> {
    if input.ratio(1, 4)? {
        return u64::arbitrary(input);
    }
    input.int_in_range(0..=u64::from(CHUNKS + 1) * u64::from(CHUNK_SIZE))
}

/// Any length, or, as otherwise hardly one would, one that may fit into a chunk.
fn len(input: &mut Unstructured<'_>) -> Result<u32> {
    if input.ratio(1, 4)? {
        return u32::arbitrary(input);
    }
    input.int_in_range(0..=CHUNK_SIZE + 1)
}
