//! A load at work.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::thread::sched_getcpu;
use rustix::time::ClockId;

use super::gaps::Gaps;
use super::slices::Slices;
use super::threads::{OwnWait, Watched};
use super::unit::{Unit, UnitTimes};
use super::{Calibration, Doubt, Progress, SLICE_NS, Slice, nanoseconds, now_ns};
use crate::accounting::proc;
use crate::accounting::tracepoints::view::{Account, View};

/// A clock that takes longer to read is none that a load reads without the kernel.
const SLOW_CLOCK_NS: u64 = 200;

/// A load at work, on its own thread.
pub struct Load {
    cpu: usize,
    unit: Unit,
    times: UnitTimes,
    unit_ns: f64,
    counters: Counters,
    slices: Slices,
    view: Option<View>,
    gaps: Gaps,
    doubts: Vec<Doubt>,
}

/// The kernel's counters of a load.
struct Counters {
    wait: OwnWait,
    watched: Watched,
}

/// Of the load itself: the moment, and how long it has run and waited until then, in
/// nanoseconds.
#[derive(Clone, Copy)]
struct Own {
    at: u64,
    ran: u64,
    waited: Option<u64>,
}

impl Load {
    /// On the calling thread, which is pinned to the CPU; `view` is the kernel's account of it.
    pub fn new(cpu: usize, watched: Watched, view: Option<View>) -> Self {
        let unit = Unit::sized();
        let mut doubts: Vec<_> = slow_clock().into_iter().collect();
        let view = view.filter(|view| match view.claim() {
            Ok(()) => true,
            Err(error) => {
                doubts.push(Doubt::Unseen(format!("{error:#}")));
                false
            }
        });
        Self {
            cpu,
            times: UnitTimes::new(unit.shortest_ns()),
            unit_ns: unit.shortest_ns() as f64,
            unit,
            counters: Counters {
                wait: OwnWait::of_this_thread(),
                watched,
            },
            slices: Slices::default(),
            view,
            gaps: Gaps::default(),
            doubts,
        }
    }

    /// Works until it is to stop.
    pub fn run(mut self, stop: &AtomicBool) -> Progress {
        self.counters.watched.take();
        let mut start = self.begin_slice(None);
        while !stop.load(Ordering::Relaxed) {
            let (units, end_ns) = self.work(start.at, stop);
            let slice = self.end_slice(start, units, end_ns);
            if !self.is_at_home() {
                self.gaps.forget_outside();
                // The kernel has moved it, and its work elsewhere tells nothing.
                self.doubts.push(Doubt::Offline(self.slices.seconds()));
                break;
            }
            self.slices.push(&slice);
            start = self.begin_slice(Some(end_ns));
        }
        self.finish()
    }

    /// The slice begins when all else has been read.
    fn begin_slice(&mut self, last_ended_ns: Option<u64>) -> Own {
        let own = self.counters.own(0);
        let (at_ns, account) = self.account_now();
        let took_ns = last_ended_ns.map(|ended_ns| at_ns - ended_ns);
        self.gaps.begin(self.unit_ns, took_ns, at_ns, &account);
        Own { at: at_ns, ..own }
    }

    /// Does units until the slice is over: how many, and when it ended.
    fn work(&mut self, start_ns: u64, stop: &AtomicBool) -> (u64, u64) {
        self.times.clear();
        let (mut units, mut last_ns) = (0, start_ns);
        let end_ns = start_ns + SLICE_NS;
        while last_ns < end_ns && !stop.load(Ordering::Relaxed) {
            self.unit.run();
            let mut at_ns = now_ns();
            // The clock first: an event after both is the next unit's, as is its time.
            if self.events() == self.gaps.events() {
                self.gaps.quiet(at_ns - last_ns);
            } else {
                let account;
                (at_ns, account) = self.account_now();
                self.gaps.kernel(at_ns - last_ns, at_ns, &account);
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
    fn is_at_home(&self) -> bool {
        sched_getcpu() == self.cpu
    }

    /// The account as of a moment after which nothing has come yet. Where the kernel has not reported
    /// that the load came back, it is told.
    fn account_now(&self) -> (u64, Account) {
        let Some(view) = &self.view else {
            return (now_ns(), Account::default());
        };
        loop {
            let account = view.read();
            let is_unreported = account.since_ns.is_some() && account.runs_other;
            if is_unreported && self.is_at_home() && view.claim().is_ok() {
                continue;
            }
            let at_ns = now_ns();
            if view.events() == account.times.events {
                return (at_ns, account);
            }
        }
    }

    fn end_slice(&mut self, start: Own, units: u64, end_ns: u64) -> Slice {
        let own = self.counters.own(end_ns);
        let took = self.counters.watched.take();
        let told = self.times.undisturbed();
        if let Some(told) = told {
            self.unit_ns = told.unit_ns;
        }
        let wall_ns = end_ns - start.at;
        let uneven = told.is_some_and(|told| (told.slower + told.faster) * 10 > units);
        let running_ns = own.ran - start.ran;
        let waited = own.waited.zip(start.waited);
        let waiting_ns = waited.map_or_else(
            || wall_ns.saturating_sub(running_ns),
            |(now, before)| now - before,
        );
        // The counters are read a moment after the clock.
        let waiting_ns = waiting_ns.min(wall_ns);
        let took = took.within(waiting_ns);
        Slice {
            start_ns: start.at,
            end_ns,
            wall_ns,
            progress_ns: (units as f64 * self.unit_ns) as u64,
            running_ns,
            waiting_ns,
            ksoftirqd_ns: took.ksoftirqd,
            napi_threads_ns: took.napi,
            napi_moved_ns: took.moved,
            unit_ns: self.unit_ns,
            unsure_ns: if told.is_none() { wall_ns } else { 0 },
            uneven_ns: if uneven { wall_ns } else { 0 },
            taken: self.gaps.end(self.unit_ns),
        }
    }

    fn finish(self) -> Progress {
        let mut slices = self.slices.all();
        let mut units: Vec<f64> = slices.iter().map(|slice| slice.unit_ns).collect();
        units.sort_by(f64::total_cmp);
        let at = |share: usize| {
            let index = units.len().saturating_sub(1) * share / 20;
            units.get(index).copied().unwrap_or(0.0)
        };
        for slice in &mut slices {
            slice.taken = slice.taken.at_fastest(at(1), slice.unit_ns);
        }
        let sum = |total: Slice, slice: &Slice| total.join(slice);
        let total = slices.iter().fold(Slice::default(), sum);
        let mut doubts = self.doubts;
        doubts.extend(self.counters.unseen(self.cpu));
        Progress {
            cpu: self.cpu,
            calibration: Calibration {
                unit_ns: total.unit_ns,
                unit_low_ns: at(1),
                unit_high_ns: at(19),
                doubts,
            },
            outside_gaps: self.gaps.outside(),
            total,
            slices,
            steal_ns: None,
        }
    }
}

impl Counters {
    fn own(&self, at_ns: u64) -> Own {
        Own {
            at: at_ns,
            ran: nanoseconds(ClockId::ThreadCPUTime),
            waited: self.wait.ns(),
        }
    }

    fn unseen(&self, cpu: usize) -> Vec<Doubt> {
        let mut unseen = Vec::new();
        if !self.watched.sees_ksoftirqd() {
            unseen.push(Doubt::Unseen(format!(
                "ksoftirqd/{cpu} and threads of NAPI instances cannot be seen and count as \
                 other tasks: run in the host's PID namespace"
            )));
        }
        if self.wait.ns().is_none() {
            let reason = "this kernel does not tell how long a thread waits (CONFIG_SCHED_INFO): \
                          time in which it did not run counts as other tasks";
            unseen.push(Doubt::Unseen(reason.into()));
        }
        unseen
    }
}

/// Whether the clock is one that is read slowly.
fn slow_clock() -> Option<Doubt> {
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
    (fastest > SLOW_CLOCK_NS).then(|| Doubt::Clock(proc::clock_source(), fastest))
}
