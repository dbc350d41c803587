//! The BPF program that counts stacks, and what it has counted.

use anyhow::{Context as _, Result};

use crate::accounting::perf_event;
use crate::accounting::perf_event::Clock;
use crate::bpf::{Attached, Map, Object, Programs};

static OBJECT: Object = Object {
    name: "flame",
    bytes: include_bytes!(concat!(env!("OUT_DIR"), "/flame.bpf.o")),
    needs: "Linux 5.14, for taking entries out of a BPF hash map",
    layouts: &[],
    arrays_by_cpu: &[],
};

/// Words of the parts of `struct stack` in bpf/flame.h.
const NAME_WORDS: usize = 2;
const KERNEL_FRAMES: usize = 96;
const USER_FRAMES: usize = 32;
const WORDS: usize = 1 + NAME_WORDS + KERNEL_FRAMES + USER_FRAMES;

/// What ran when a sample was taken. Addresses are in the order of the calls, outermost first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stack {
    /// The process, as it is numbered in the first PID namespace; 0 is the idle task.
    pub process: u64,
    /// The thread's name.
    pub name: String,
    /// Of the kernel's functions; none in user mode.
    pub kernel: Vec<u64>,
    /// Of the program's functions.
    pub user: Vec<u64>,
}

impl Stack {
    /// From the bytes of a `struct stack`.
    fn parse(bytes: &[u8]) -> Result<Self> {
        let (words, _) = bytes.as_chunks::<8>();
        let words: &[[u8; 8]; WORDS] = words.try_into().context("flame.bpf.c has other stacks")?;
        let (head, frames) = words.split_at(1 + NAME_WORDS);
        let (kernel, user) = frames.split_at(KERNEL_FRAMES);
        Ok(Self {
            process: u64::from_ne_bytes(head[0]),
            name: thread_name(head[1..].as_flattened()),
            kernel: in_order_of_calls(kernel),
            user: in_order_of_calls(user),
        })
    }
}

/// A name that ends at its first zero byte.
fn thread_name(bytes: &[u8]) -> String {
    let name = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

/// Unused frames are zero. All but the innermost are addresses that a call returns to, which may
/// belong to the next function already, if the call never returns; so one is taken from them.
fn in_order_of_calls(frames: &[[u8; 8]]) -> Vec<u64> {
    let mut addresses: Vec<u64> = frames
        .iter()
        .map(|frame| u64::from_ne_bytes(*frame))
        .take_while(|&address| address != 0)
        .enumerate()
        .map(|(depth, address)| address - u64::from(depth > 0))
        .collect();
    addresses.reverse();
    addresses
}

/// Takes samples on some CPUs while it lives.
#[must_use = "no samples are taken when this is dropped"]
pub struct Sampler {
    clock: Clock,
    programs: Programs,
    stacks: Map,
    events: Vec<Attached>,
}

impl Sampler {
    /// Samples `cpus` from now on, `frequency` times a second.
    pub fn start(cpus: &[usize], frequency: u64) -> Result<Self> {
        let (clock, events) = perf_event::open(cpus, frequency)?;
        let programs = Programs::load(&OBJECT, None, |_| true)?;
        let stacks = programs.map("stacks")?;
        let events = events
            .iter()
            .map(|event| programs.attach_perf_event("sample", std::os::fd::AsFd::as_fd(event)))
            .collect::<Result<_>>()?;
        Ok(Self {
            clock,
            programs,
            stacks,
            events,
        })
    }

    /// The clock of the samples.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Takes no samples any more.
    pub fn stop(&mut self) {
        self.events.clear();
    }

    /// The stacks that were counted since the last time, and how often each. The kernel has room
    /// for a few thousand, so this must be done several times a second.
    pub fn drain(&self) -> Result<Vec<(Stack, u64)>> {
        let keys: Vec<_> = self.stacks.keys().collect();
        let mut stacks = Vec::with_capacity(keys.len());
        for key in keys {
            if let Some(count) = self.stacks.take(&key)? {
                let count = count.try_into().ok().map(u64::from_ne_bytes);
                let count = count.context("flame.bpf.c has other counters")?;
                stacks.push((Stack::parse(&key)?, count));
            }
        }
        Ok(stacks)
    }

    /// All samples since the start, also those that found no room.
    pub fn taken(&self) -> Result<u64> {
        let bytes = self.programs.variables(".bss")?;
        let word = bytes.first_chunk().context("flame.bpf.c has no counter")?;
        Ok(u64::from_ne_bytes(*word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_read_as_it_was_written() {
        let mut words = [0_u64; WORDS];
        words[0] = 42;
        words[1] = u64::from_ne_bytes(*b"a name\0x");
        words[3..6].copy_from_slice(&[0x300, 0x200, 0x100]);
        words[3 + KERNEL_FRAMES] = 0x7000;
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
        let stack = Stack {
            process: 42,
            name: "a name".into(),
            kernel: vec![0xff, 0x1ff, 0x300],
            user: vec![0x7000],
        };
        assert_eq!(Stack::parse(&bytes).expect("a stack"), stack);
        assert!(Stack::parse(&bytes[8..]).is_err());
    }
}
