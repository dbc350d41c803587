//! A busy loop on its thread.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::thread::sched_getcpu;

use super::gaps::Gaps;
use super::kernel_threads::{RunDelay, ThreadsOnCpu};
use super::loss::{Calibration, CpuLoss};
use super::slice::{SLICE_NS, Slice, Slices};
use super::unit::{Unit, UnitTimes};
use super::warning::Warning;
use crate::accounting::tracepoints::view::{Snapshot, View};
use crate::process::clock::{clock_source, now_ns, thread_cpu_ns};

/// A clock that takes longer to read is not read in user space (vDSO).
const SLOW_CLOCK_NS: u64 = 200;

/// A busy loop, on its own thread.
pub struct BusyLoop {
    cpu: usize,
    unit: Unit,
    times: UnitTimes,
    unit_ns: f64,
    counters: Counters,
    slices: Slices,
    view: Option<View>,
    gaps: Gaps,
    warnings: Vec<Warning>,
}

/// The scheduler's counters of the loop and of the kernel threads on its CPU.
struct Counters {
    delay: RunDelay,
    threads: ThreadsOnCpu,
}

/// A moment, and the loop's CPU time and run delay until then, in nanoseconds.
#[derive(Clone, Copy)]
struct OwnTimes {
    at: u64,
    cpu: u64,
    delay: Option<u64>,
}

impl BusyLoop {
    /// On the calling thread, which is pinned to the CPU; `view` is that of the CPU.
    pub fn new(cpu: usize, threads: ThreadsOnCpu, view: Option<View>) -> Self {
        let unit = Unit::sized();
        let mut warnings: Vec<_> = slow_clock().into_iter().collect();
        let view = view.filter(|view| match view.claim() {
            Ok(()) => true,
            Err(error) => {
                warnings.push(Warning::Unseen(format!("{error:#}")));
                false
            }
        });
        Self {
            cpu,
            times: UnitTimes::new(unit.shortest_ns()),
            unit_ns: unit.shortest_ns() as f64,
            unit,
            counters: Counters {
                delay: RunDelay::of_this_thread(),
                threads,
            },
            slices: Slices::default(),
            view,
            gaps: Gaps::default(),
            warnings,
        }
    }

    /// Works until `stop` is set.
    pub fn run(mut self, stop: &AtomicBool) -> CpuLoss {
        self.counters.threads.advance();
        let mut start = self.begin_slice(None);
        while !stop.load(Ordering::Relaxed) {
            let (units, end_ns) = self.work(start.at, stop);
            let slice = self.end_slice(start, units, end_ns);
            if !self.is_on_its_cpu() {
                self.gaps.forget_outside();
                // The kernel has migrated it, and its work elsewhere means nothing.
                self.warnings.push(Warning::Offline(self.slices.seconds()));
                break;
            }
            self.slices.push(&slice);
            start = self.begin_slice(Some(end_ns));
        }
        self.finish()
    }

    /// The slice begins after the counters have been read.
    fn begin_slice(&mut self, last_ended_ns: Option<u64>) -> OwnTimes {
        let own = self.counters.own(0);
        let (at_ns, snapshot) = self.snapshot();
        let took_ns = last_ended_ns.map(|ended_ns| at_ns - ended_ns);
        self.gaps.begin(self.unit_ns, took_ns, at_ns, &snapshot);
        OwnTimes { at: at_ns, ..own }
    }

    /// Does units until the end of the slice. Returns their number, and when the last one ended.
    fn work(&mut self, start_ns: u64, stop: &AtomicBool) -> (u64, u64) {
        self.times.clear();
        let (mut units, mut last_ns) = (0, start_ns);
        let end_ns = start_ns + SLICE_NS;
        while last_ns < end_ns && !stop.load(Ordering::Relaxed) {
            self.unit.run();
            let mut at_ns = now_ns();
            // The clock first: an event after both belongs to the next unit, as does its time.
            if self.events() == self.gaps.events() {
                self.gaps.quiet(at_ns - last_ns);
            } else {
                let snapshot;
                (at_ns, snapshot) = self.snapshot();
                self.gaps.kernel(at_ns - last_ns, at_ns, &snapshot);
            }
            self.times.add(at_ns - last_ns);
            last_ns = at_ns;
            units += 1;
        }
        (units, last_ns)
    }

    #[inline(always)]
    fn events(&self) -> u64 {
        self.view.as_ref().map_or(0, View::events)
    }

    /// Whether it still runs on its CPU, which may have gone offline.
    fn is_on_its_cpu(&self) -> bool {
        sched_getcpu() == self.cpu
    }

    /// The sums, and a moment up to which no event has come since. Registers the loop again where the
    /// kernel did not report the switch back to it.
    fn snapshot(&self) -> (u64, Snapshot) {
        let Some(view) = &self.view else {
            return (now_ns(), Snapshot::default());
        };
        loop {
            let snapshot = view.read();
            let is_unreported = snapshot.since_ns.is_some() && snapshot.runs_other;
            if is_unreported && self.is_on_its_cpu() && view.claim().is_ok() {
                continue;
            }
            let at_ns = now_ns();
            if view.events() == snapshot.times.events {
                return (at_ns, snapshot);
            }
        }
    }

    fn end_slice(&mut self, start: OwnTimes, units: u64, end_ns: u64) -> Slice {
        let own = self.counters.own(end_ns);
        let threads = self.counters.threads.advance();
        let undisturbed = self.times.undisturbed();
        if let Some(undisturbed) = undisturbed {
            self.unit_ns = undisturbed.unit_ns;
        }
        let wall_ns = end_ns - start.at;
        let uneven = undisturbed.is_some_and(|it| (it.slower + it.faster) * 10 > units);
        let running_ns = own.cpu - start.cpu;
        let delay = own.delay.zip(start.delay);
        let waiting_ns = delay.map_or_else(
            || wall_ns.saturating_sub(running_ns),
            |(now, before)| now - before,
        );
        // The counters are read shortly after the clock.
        let waiting_ns = waiting_ns.min(wall_ns);
        let threads = threads.within(waiting_ns);
        Slice {
            start_ns: start.at,
            end_ns,
            wall_ns,
            work_ns: (units as f64 * self.unit_ns) as u64,
            running_ns,
            waiting_ns,
            ksoftirqd_ns: threads.ksoftirqd,
            napi_threads_ns: threads.napi,
            napi_migrated_ns: threads.migrated,
            unit_ns: self.unit_ns,
            uncalibrated_ns: if undisturbed.is_none() { wall_ns } else { 0 },
            uneven_ns: if uneven { wall_ns } else { 0 },
            attribution: self.gaps.end(self.unit_ns),
        }
    }

    fn finish(self) -> CpuLoss {
        let mut slices = self.slices.all();
        let mut units: Vec<f64> = slices.iter().map(|slice| slice.unit_ns).collect();
        units.sort_by(f64::total_cmp);
        let at = |share: usize| {
            let index = units.len().saturating_sub(1) * share / 20;
            units.get(index).copied().unwrap_or(0.0)
        };
        for slice in &mut slices {
            slice.attribution = slice.attribution.at_fastest(at(1), slice.unit_ns);
        }
        let sum = |total: Slice, slice: &Slice| total.join(slice);
        let total = slices.iter().fold(Slice::default(), sum);
        let mut warnings = self.warnings;
        warnings.extend(self.counters.unseen(self.cpu));
        CpuLoss {
            cpu: self.cpu,
            calibration: Calibration {
                unit_ns: total.unit_ns,
                unit_low_ns: at(1),
                unit_high_ns: at(19),
                warnings,
            },
            outside_gaps: self.gaps.outside(),
            total,
            slices,
            steal_ns: None,
        }
    }
}

impl Counters {
    fn own(&self, at_ns: u64) -> OwnTimes {
        OwnTimes {
            at: at_ns,
            cpu: thread_cpu_ns(),
            delay: self.delay.ns(),
        }
    }

    fn unseen(&self, cpu: usize) -> Vec<Warning> {
        let mut unseen = Vec::new();
        if !self.threads.has_ksoftirqd() {
            unseen.push(Warning::Unseen(format!(
                "ksoftirqd/{cpu} and NAPI threads are invisible here and count as other tasks: run \
                 in the host's PID namespace"
            )));
        }
        if self.delay.ns().is_none() {
            let reason = "this kernel does not count run delays (CONFIG_SCHED_INFO): all time in \
                          which the busy loop did not run counts as other tasks";
            unseen.push(Warning::Unseen(reason.into()));
        }
        unseen
    }
}

/// A warning if reading the clock is slow.
fn slow_clock() -> Option<Warning> {
    const READINGS: u64 = 64;
    let fastest = (0..16)
        .map(|_| {
            let begun = now_ns();
            for _ in 1..READINGS {
                now_ns();
            }
            (now_ns() - begun) / READINGS
        })
        .min()?;
    (fastest > SLOW_CLOCK_NS).then(|| Warning::Clock(clock_source(), fastest))
}
