//! Real sockets over a kernel in memory, and a hostile peer on the same rings, which writes any index,
//! descriptor and completion. The library must not panic, leave the UMEM, hand out a chunk twice or
//! miscount; without the peer, nothing may stall either. See `xsk::testing::kernel`.
#![no_main]

use arbitrary::{Arbitrary, Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use xsk::Wait;
use xsk::testing::kernel::play::{Fate, Play, Step};
use xsk::testing::kernel::{Answer, Config, Ring, Word, umem, umem_with_fragments};

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
    let config = config(input)?;
    let by_waiting = bool::arbitrary(input)?;
    let umem = if bool::arbitrary(input)? {
        umem_with_fragments(CHUNKS, CHUNK_SIZE)
    } else {
        umem(CHUNKS, CHUNK_SIZE)
    };
    let mut play = Play::new(&umem, queues, config);
    for _ in 0..STEPS {
        let Ok(step) = step(input) else { break };
        if let Err(wrong) = play.step(&step) {
            panic!("{step:?}: {wrong}");
        }
        if input.is_empty() {
            break;
        }
    }
    if let Err(wrong) = play.goes_on(by_waiting) {
        panic!("at the end: {wrong}");
    }
    Ok(())
}

fn config(input: &mut Unstructured<'_>) -> Result<Config> {
    let ways = [Wait::Spin, Wait::Poll, Wait::adaptive()];
    let wait = *input.choose(&ways)?;
    let refuse_after = bool::arbitrary(input)?.then_some(2);
    let mut slots = || Ok(1 << input.int_in_range(0..=3)?);
    Ok(Config {
        fill: slots()?,
        completion: slots()?,
        rx: slots()?,
        tx: slots()?,
        first_index: u32::arbitrary(input)?,
        zero_copy: bool::arbitrary(input)?,
        wait,
        refuse_after,
    })
}

fn step(input: &mut Unstructured<'_>) -> Result<Step> {
    let queue = u8::arbitrary(input)?;
    match input.int_in_range(0..=9)? {
        0..=2 => receiving(queue, input),
        3 | 4 => sending(queue, input),
        5 => calling(queue, input),
        6..=8 => kernel(queue, input),
        _ => peer(queue, input),
    }
}

fn receiving(queue: u8, input: &mut Unstructured<'_>) -> Result<Step> {
    let max = input.int_in_range(0..=16)?;
    Ok(match input.int_in_range(0..=3)? {
        0 => Step::Recv {
            queue,
            socket: u8::arbitrary(input)?,
            max,
            fates: fates(input)?,
            forget: input.ratio(1, 16)?,
        },
        1 => Step::Each {
            queue,
            max,
            fates: fates(input)?,
            forward: bool::arbitrary(input)?,
        },
        2 => Step::RecvFragments {
            queue,
            socket: u8::arbitrary(input)?,
            max,
            fates: fates(input)?,
        },
        _ => Step::RecvFrames { queue, max },
    })
}

fn sending(queue: u8, input: &mut Unstructured<'_>) -> Result<Step> {
    let len = input.int_in_range(0..=2049)?;
    let count = input.int_in_range(0..=8)?;
    let which = u8::arbitrary(input)?;
    Ok(match input.int_in_range(0..=7)? {
        0 => Step::Alloc { queue, len },
        1 => Step::Send {
            queue,
            socket: u8::arbitrary(input)?,
            which,
        },
        2 => Step::Drop { which },
        3 => Step::SendEach {
            queue,
            max: input.int_in_range(0..=16)?,
            len,
            count,
            panics: bool::arbitrary(input)?,
        },
        4 => Step::SendFrames { queue, count },
        5 => Step::SendBatch {
            queue,
            socket: u8::arbitrary(input)?,
            max: input.int_in_range(0..=16)?,
            len,
            fates: fates(input)?,
        },
        6 => Step::SendFragments {
            queue,
            socket: u8::arbitrary(input)?,
            count,
        },
        _ => Step::FreeFrames { queue, count },
    })
}

fn calling(queue: u8, input: &mut Unstructured<'_>) -> Result<Step> {
    let socket = u8::arbitrary(input)?;
    Ok(match input.int_in_range(0..=7)? {
        0..=2 => Step::Flush { queue, socket },
        3 => Step::Wait {
            queue,
            socket,
            millis: input.int_in_range(0..=8)?,
        },
        4 => Step::Reclaim { queue },
        5 => Step::AddSibling { queue },
        6 => Step::Split { queue },
        _ => Step::Reopen { queue },
    })
}

fn kernel(queue: u8, input: &mut Unstructured<'_>) -> Result<Step> {
    let most = input.int_in_range(0..=8)?;
    let socket = u8::arbitrary(input)?;
    Ok(match input.int_in_range(0..=10)? {
        0 => Step::TakeFill { queue, most },
        1 => Step::Receive {
            queue,
            socket,
            // XDP leaves a packet no shorter than an Ethernet header (ETH_HLEN).
            len: input.int_in_range(14..=8000)?,
        },
        2 => Step::Announce { queue },
        3 => Step::Transmit {
            queue,
            socket,
            most,
            release: bool::arbitrary(input)?,
        },
        4 => Step::Complete {
            queue,
            which: u8::arbitrary(input)?,
            clear_lowest_bit: bool::arbitrary(input)?,
        },
        5 => Step::Answer {
            queue,
            answers: answers(input)?,
        },
        6 => Step::Idle { queue, turns: most },
        7 => Step::Turn { queue },
        8 => Step::Sleep {
            queue,
            ask: bool::arbitrary(input)?,
        },
        9 => Step::Reset { queue },
        _ => Step::Wire {
            queue,
            packets: most,
        },
    })
}

fn peer(queue: u8, input: &mut Unstructured<'_>) -> Result<Step> {
    Ok(match input.int_in_range(0..=3)? {
        0 => Step::ForgeIndex {
            queue,
            ring: ring(input)?,
            word: word(input)?,
            value: u32::arbitrary(input)?,
        },
        1 => Step::MoveIndex {
            queue,
            ring: ring(input)?,
            word: word(input)?,
            by: i8::arbitrary(input)?,
        },
        2 => Step::ForgeRx {
            queue,
            ahead: input.int_in_range(0..=8)?,
            addr: addr(input)?,
            len: len(input)?,
            options: *input.choose(&[0, 1, 2, u32::MAX])?,
        },
        _ => Step::ForgeCompletion {
            queue,
            ahead: input.int_in_range(0..=8)?,
            addr: addr(input)?,
        },
    })
}

fn fates(input: &mut Unstructured<'_>) -> Result<Vec<Fate>> {
    let fates = [
        Fate::Drop,
        Fate::Keep,
        Fate::Send,
        Fate::SendElsewhere,
        Fate::Answer,
        Fate::Panic,
        Fate::Forget,
    ];
    (0..input.int_in_range(0..=8)?)
        .map(|_| input.choose(&fates).copied())
        .collect()
}

fn answers(input: &mut Unstructured<'_>) -> Result<Vec<Answer>> {
    let answers = [
        Answer::Send(1),
        Answer::Drop,
        Answer::Again,
        Answer::NoBuffers,
        Answer::Interrupted,
        Answer::Down,
        Answer::Resets,
        Answer::Gone,
        Answer::Refused,
    ];
    (0..input.int_in_range(0..=3)?)
        .map(|_| input.choose(&answers).copied())
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
