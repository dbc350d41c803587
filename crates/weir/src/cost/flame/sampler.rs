//! The BPF program that counts stacks, and what it has counted.

use anyhow::Result;

use crate::bpf::layout::{Constants, shared_structs, text};
use crate::bpf::perf_event::Clock;
use crate::bpf::{Attached, Map, Object, Programs, perf_event};

static OBJECT: Object = Object {
    name: "flame",
    bytes: include_bytes!(concat!(env!("OUT_DIR"), "/flame.bpf.o")),
    needs: "Linux 5.14, for taking entries out of a BPF hash map",
    layouts: &[RawStack::LAYOUT],
    constants: &[CONSTANTS],
    arrays_by_cpu: &[],
};

const KERNEL_FRAMES: usize = 96;
const USER_FRAMES: usize = 32;
const NAME_BYTES: usize = 16;

const CONSTANTS: Constants = Constants {
    name: "flame_constants",
    values: &[
        ("KERNEL_FRAMES", KERNEL_FRAMES),
        ("USER_FRAMES", USER_FRAMES),
        ("NAME_BYTES", NAME_BYTES),
    ],
};

shared_structs! {
    /// A stack as the program wrote it: addresses innermost first, then zeros.
    struct RawStack = "stack" {
        process: u64,
        name: [u8; NAME_BYTES],
        kernel: [u64; KERNEL_FRAMES],
        user: [u64; USER_FRAMES],
    }
}

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

impl From<&RawStack> for Stack {
    fn from(raw: &RawStack) -> Self {
        Self {
            process: raw.process,
            name: text(&raw.name),
            kernel: in_order_of_calls(&raw.kernel),
            user: in_order_of_calls(&raw.user),
        }
    }
}

/// Unused frames are zero. All but the innermost are addresses that a call returns to, which may
/// belong to the next function already, if the call never returns; so one is taken from them.
fn in_order_of_calls(frames: &[u64]) -> Vec<u64> {
    let mut addresses: Vec<u64> = frames
        .iter()
        .copied()
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
    stacks: Map<RawStack, u64>,
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
        let keys = self.stacks.keys()?;
        let mut stacks = Vec::with_capacity(keys.len());
        for key in keys {
            if let Some(count) = self.stacks.take(&key)? {
                stacks.push((Stack::from(&key), count));
            }
        }
        Ok(stacks)
    }

    /// All samples since the start, also those that found no room.
    pub fn taken(&self) -> Result<u64> {
        self.programs.variable(".bss")
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros as _;

    use super::*;

    #[test]
    fn types_are_those_of_the_header() {
        OBJECT.check().expect("the same types");
    }

    #[test]
    fn a_stack_is_in_the_order_of_calls() {
        let mut raw = RawStack::new_zeroed();
        raw.process = 42;
        raw.name = *b"a name\0xxxxxxxxx";
        raw.kernel[..3].copy_from_slice(&[0x300, 0x200, 0x100]);
        raw.user[0] = 0x7000;
        let stack = Stack {
            process: 42,
            name: "a name".into(),
            kernel: vec![0xff, 0x1ff, 0x300],
            user: vec![0x7000],
        };
        assert_eq!(Stack::from(&raw), stack);
    }
}
