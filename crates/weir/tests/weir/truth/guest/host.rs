//! The host's own CPU: time that is gone while a thread only reads the clock, and how fast it does that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use hostnet::cpulist::pin;
use weir::process::clock::{now_ns, thread_cpu_ns};

use crate::truth::MEASURED;
use crate::truth::burn::GAP_NS;

/// The speed is that of each slice.
const SLICE_NS: u64 = 1_000_000;
/// Longer than reading the clock takes, shorter than an interrupt.
const LONGEST_STEP_NS: u64 = 1000;
/// The slices of which the loss is one value, of several.
const BLOCK: usize = 10;
/// The fewest values for a mean.
const FEWEST: usize = 4;
/// The length of a check while nothing else is to be on the CPU.
const CHECK: Duration = Duration::from_millis(500);

/// A slice of a thread that reads the clock, in nanoseconds of its CPU time.
#[derive(Debug, Clone, Copy, Default)]
struct Slice {
    steps: u32,
    in_steps: u64,
    /// Gaps that the burning program takes for work, and longer ones.
    short: u64,
    long: u64,
}

/// Slices of the host's CPU.
#[derive(Debug, Default)]
pub struct Host(Vec<Slice>);

/// The loss of the host's CPU, in percent of a task's CPU time by its scheduler: interrupts, unless the kernel accounts
/// them separately, and steal time of the host.
#[derive(Debug, Clone, Copy)]
pub struct HostLoss {
    /// In gaps that the burning program takes for work.
    pub short: f64,
    /// In longer ones.
    pub long: f64,
    /// The standard error of both.
    pub error: f64,
    /// How much longer than in the fastest tenth reading the clock took: frequency, a busy sibling thread.
    pub slower: f64,
}

/// Tells a thread on the CPU when it is free.
#[derive(Default)]
pub struct Gauge {
    is_free: AtomicBool,
    is_over: AtomicBool,
}

impl Gauge {
    /// The CPU is free, or no longer.
    pub fn set_free(&self, is_free: bool, thread: &thread::Thread) {
        self.is_free.store(is_free, Ordering::Relaxed);
        thread.unpark();
    }

    /// Ends the thread.
    pub fn end(&self, thread: &thread::Thread) {
        self.is_over.store(true, Ordering::Relaxed);
        self.set_free(false, thread);
    }

    /// Reads the clock on the CPU whenever it is free, until the end.
    pub fn read(&self) -> Result<Host> {
        pin(MEASURED)?;
        let mut host = Host::default();
        while !self.is_over.load(Ordering::Relaxed) {
            while self.is_free.load(Ordering::Relaxed) {
                let slice = Slice::read(|| self.is_free.load(Ordering::Relaxed));
                host.0.extend(slice);
            }
            thread::park();
        }
        Ok(host)
    }
}

impl Slice {
    /// None where it ended early.
    fn read(goes_on: impl Fn() -> bool) -> Option<Self> {
        let mut slice = Self::default();
        let begun = now_ns();
        let (mut last, mut mark) = (begun, (begun, thread_cpu_ns()));
        while last - begun < SLICE_NS {
            if !goes_on() {
                return None;
            }
            let now = now_ns();
            let step = now - last;
            last = now;
            if step < LONGEST_STEP_NS {
                slice.steps += 1;
                slice.in_steps += step;
                continue;
            }
            let cpu = thread_cpu_ns();
            // Others had the CPU for so long.
            let waited = (now - mark.0).saturating_sub(cpu - mark.1);
            slice.add_gap(step.saturating_sub(waited));
            last = now_ns();
            mark = (last, cpu);
        }
        Some(slice)
    }

    fn add_gap(&mut self, ns: u64) {
        if ns < GAP_NS {
            self.short += ns;
        } else {
            self.long += ns;
        }
    }

    fn all(&self) -> u64 {
        self.in_steps + self.short + self.long
    }
}

impl Host {
    /// Reads the clock for a while, on a thread of its own.
    pub fn check() -> Result<Self> {
        let gauge = Gauge::default();
        thread::scope(|scope| {
            let reading = scope.spawn(|| gauge.read());
            gauge.set_free(true, reading.thread());
            thread::sleep(CHECK);
            gauge.end(reading.thread());
            reading.join().ok().context("a thread panicked")?
        })
    }

    /// Adds what another check has seen.
    pub fn join(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Whether it was seen for long enough.
    pub fn is_known(&self) -> bool {
        self.0.len() >= BLOCK * FEWEST
    }

    /// The loss in all slices.
    pub fn loss(&self) -> HostLoss {
        let share = |slices: &[Slice], of: fn(&Slice) -> u64| {
            let sum = |of: fn(&Slice) -> u64| slices.iter().map(of).sum::<u64>() as f64;
            sum(of) / sum(Slice::all).max(1.0) * 100.0
        };
        let blocks = self.0.chunks_exact(BLOCK);
        let blocks: Vec<f64> = blocks
            .map(|block| share(block, |slice| slice.short + slice.long))
            .collect();
        let mut speeds: Vec<f64> = self.0.iter().map(Slice::speed).collect();
        speeds.sort_by(f64::total_cmp);
        let fast = speeds.get(speeds.len() * 9 / 10).copied().unwrap_or(1.0);
        let mean = speeds.iter().sum::<f64>() / speeds.len().max(1) as f64;
        HostLoss {
            short: share(&self.0, |slice| slice.short),
            long: share(&self.0, |slice| slice.long),
            error: standard_error(&blocks),
            slower: (1.0 - mean / fast).max(0.0) * 100.0,
        }
    }
}

impl Slice {
    fn speed(&self) -> f64 {
        f64::from(self.steps) / self.in_steps.max(1) as f64
    }
}

/// Of the mean.
fn standard_error(values: &[f64]) -> f64 {
    let count = values.len().max(2) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (count - 1.0) / count).sqrt()
}
