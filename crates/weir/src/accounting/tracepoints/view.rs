//! The tracepoints' sums of a CPU, read by the busy loop on it after each gap, without a system
//! call.

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use anyhow::{Context as _, Result};
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::abi::{CPU_ENTRIES, CpuState, CpuTimes, LIVE};
use crate::bpf::{MappedArray, Runner};

const TIMES_WORDS: usize = size_of::<CpuTimes>() / 8;
const EVENTS: usize = offset_of!(CpuState, times.events) / 8;
const ENABLED: usize = offset_of!(CpuState, enabled) / 8;
const PID: usize = offset_of!(CpuState, pid) / 8;
const LOOP_PID: usize = offset_of!(CpuState, loop_pid) / 8;
const OBSERVED: usize = offset_of!(CpuState, observed_ns) / 8;
const OBSERVED_START: usize = offset_of!(CpuState, observed_start) / 8;
/// The most attempts to read without an interrupt in between.
const TRIES: usize = 100;

/// The mapped sums of all CPUs.
#[derive(Clone)]
pub struct Views {
    pub(super) states: Arc<MappedArray>,
    pub(super) claim: Arc<Runner>,
}

/// The mapped sums of one CPU.
pub struct View {
    views: Views,
    cpu: usize,
}

/// The sums of a CPU at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Snapshot {
    /// Its time by use, while it was observed.
    pub times: CpuTimes,
    /// The time observed, up to `since_ns`.
    pub observed_ns: u64,
    /// The begin of the observation; `None` if the CPU is not observed now.
    pub since_ns: Option<u64>,
    /// Whether the task that runs, by the sums, is not the busy loop.
    pub runs_other: bool,
}

impl Snapshot {
    /// The time observed up to a later moment without an event in between.
    pub fn observed_until(&self, at_ns: u64) -> u64 {
        let since = self.since_ns.map(|since| at_ns.saturating_sub(since));
        self.observed_ns + since.unwrap_or(0)
    }
}

impl Views {
    /// Those of one CPU; `None` if there can be no such CPU.
    pub fn of(&self, cpu: usize) -> Option<View> {
        self.states.entry(cpu * CPU_ENTRIES + LIVE)?;
        Some(View {
            views: self.clone(),
            cpu,
        })
    }
}

impl View {
    /// Registers the calling thread, which is pinned to the CPU, as its busy loop: it is no longer
    /// counted among the tasks.
    pub fn claim(&self) -> Result<()> {
        let run = self.views.claim.run();
        run.with_context(|| format!("cannot register the busy loop of CPU {}", self.cpu))
    }

    /// A number that changes with each event on the CPU.
    #[inline(always)]
    pub fn events(&self) -> u64 {
        self.words()[EVENTS].load(Ordering::Relaxed)
    }

    /// Reads the sums. Called on the CPU itself.
    pub fn read(&self) -> Snapshot {
        let words = self.words();
        let mut snapshot = Snapshot::default();
        for _ in 0..TRIES {
            // The writers are the BPF programs of this CPU, in interrupts between two instructions of
            // this thread: only the compiler could reorder.
            let events = self.events();
            compiler_fence(Ordering::SeqCst);
            snapshot = copy(words);
            compiler_fence(Ordering::SeqCst);
            if self.events() == events {
                break;
            }
        }
        snapshot
    }

    #[inline(always)]
    fn words(&self) -> &[AtomicU64] {
        let index = self.cpu * CPU_ENTRIES + LIVE;
        self.views.states.entry(index).unwrap_or_default()
    }
}

fn copy(words: &[AtomicU64]) -> Snapshot {
    let word = |index: usize| words[index].load(Ordering::Relaxed);
    let times: [u64; TIMES_WORDS] = std::array::from_fn(word);
    Snapshot {
        times: CpuTimes::read_from_bytes(times.as_bytes()).unwrap_or_default(),
        observed_ns: word(OBSERVED),
        since_ns: (word(ENABLED) != 0).then(|| word(OBSERVED_START)),
        runs_other: word(PID) != word(LOOP_PID),
    }
}
