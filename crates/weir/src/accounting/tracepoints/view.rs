//! The kernel's own account of a CPU, as a load on that CPU reads it: without a system call, after
//! each of its gaps.

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
const LOAD_PID: usize = offset_of!(CpuState, load_pid) / 8;
const OBSERVED: usize = offset_of!(CpuState, observed_ns) / 8;
const OBSERVED_START: usize = offset_of!(CpuState, observed_start) / 8;
/// How often a reading that an interrupt came into is repeated at most.
const TRIES: usize = 100;

/// The views of all CPUs.
#[derive(Clone)]
pub struct Views {
    pub(super) states: Arc<MappedArray>,
    pub(super) claim: Arc<Runner>,
}

/// The view of one CPU.
pub struct View {
    views: Views,
    cpu: usize,
}

/// The kernel's account of a CPU at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Account {
    /// Where its time went, while it was looked at.
    pub times: CpuTimes,
    /// For how long it was looked at, up to `since_ns`.
    pub looked_ns: u64,
    /// Since when it is looked at; `None` if it is not.
    pub since_ns: Option<u64>,
    /// Whether the kernel takes another task than the load for the one that runs.
    pub runs_other: bool,
}

impl Account {
    /// For how long the CPU was looked at up to a later moment, if nothing comes until then.
    pub fn looked_until(&self, at_ns: u64) -> u64 {
        let since = self.since_ns.map(|since| at_ns.saturating_sub(since));
        self.looked_ns + since.unwrap_or(0)
    }
}

impl Views {
    /// That of one CPU; `None` if there can be no such CPU.
    pub fn of(&self, cpu: usize) -> Option<View> {
        self.states.entry(cpu * CPU_ENTRIES + LIVE)?;
        Some(View {
            views: self.clone(),
            cpu,
        })
    }
}

impl View {
    /// Has the calling thread, which is pinned to the CPU, counted as the load on it and not among
    /// the tasks.
    pub fn claim(&self) -> Result<()> {
        let run = self.views.claim.run();
        run.with_context(|| format!("cannot claim CPU {} for the load on it", self.cpu))
    }

    /// A number that changes whenever the kernel has accounted for something on the CPU.
    #[inline(always)]
    pub fn events(&self) -> u64 {
        self.words()[EVENTS].load(Ordering::Relaxed)
    }

    /// All of it. Called on the CPU itself.
    pub fn read(&self) -> Account {
        let words = self.words();
        let mut account = Account::default();
        for _ in 0..TRIES {
            // The writers are the BPF programs of this CPU, in interrupts between two instructions of
            // this thread: only the compiler could reorder.
            let events = self.events();
            compiler_fence(Ordering::SeqCst);
            account = copy(words);
            compiler_fence(Ordering::SeqCst);
            if self.events() == events {
                break;
            }
        }
        account
    }

    #[inline(always)]
    fn words(&self) -> &[AtomicU64] {
        let index = self.cpu * CPU_ENTRIES + LIVE;
        self.views.states.entry(index).unwrap_or_default()
    }
}

fn copy(words: &[AtomicU64]) -> Account {
    let word = |index: usize| words[index].load(Ordering::Relaxed);
    let times: [u64; TIMES_WORDS] = std::array::from_fn(word);
    Account {
        times: CpuTimes::read_from_bytes(times.as_bytes()).unwrap_or_default(),
        looked_ns: word(OBSERVED),
        since_ns: (word(ENABLED) != 0).then(|| word(OBSERVED_START)),
        runs_other: word(PID) != word(LOAD_PID),
    }
}
