//! The progress that a program no longer makes: a load of pure arithmetic on each CPU, and
//! what of the time it could not use.
//!
//! This is what the article of the project's ground does with `openssl speed`, made exact.
//! Each load does units of fixed work and reads the clock after each. What a unit takes when
//! nothing disturbs it is told by the units themselves, anew in each slice of 50 ms, so that a
//! change of the CPU's frequency is not mistaken for stolen time. Then
//!
//! - progress = units done × the undisturbed time of a unit,
//! - lost = wall time − progress,
//! - stolen = lost − what other tasks ran meanwhile, which the scheduler knows: the load's
//!   waiting, less what ksoftirqd and the threads of NAPI instances ran then.
//!
//! So what interrupts and softirqs take while the load is running, invisibly to it, and what
//! the network's own threads take, are stolen alike. Nothing here depends on how the kernel
//! accounts interrupt time: with `CONFIG_IRQ_TIME_ACCOUNTING` the time on the CPU
//! (`running_ns`) leaves interrupts out, without it counts them, and neither is used for it.
//! No privilege is needed.
//!
//! It cannot see what is stolen while another task has the CPU, nor the work that kernel
//! threads other than those do for the network (kworker, vhost): these are other tasks.

mod threads;
mod unit;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Sender, channel},
    },
    thread::{self, JoinHandle},
};

use anyhow::{Context as _, Result, anyhow};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use self::{
    threads::{NetworkThreads, OwnWait, Watched},
    unit::{Unit, UnitTimes},
};
use super::{
    proc,
    statistics::{self, Estimate},
};
use crate::cpulist::{CpuList, pin};

/// How long a slice is: far longer than what disturbs, far shorter than most changes of
/// frequency last.
const SLICE_NS: u64 = 50_000_000;

/// The most slices that are kept; from there on two become one, again and again.
const MOST_SLICES: usize = 4096;

/// Loads that run on some CPUs, one on each.
#[must_use = "the load ends when this is dropped"]
pub struct ProgressLoad {
    stop: Arc<AtomicBool>,
    workers: Vec<Worker>,
    napi: Vec<String>,
}

/// One load, and how much of its CPU the hypervisor had taken before.
struct Worker {
    thread: Option<JoinHandle<Progress>>,
    steal_ns: Option<u64>,
}

/// What one load saw.
#[derive(Debug, Clone, Serialize)]
pub struct Progress {
    /// The CPU that it ran on.
    pub cpu: usize,
    /// The whole time.
    pub total: Slice,
    /// The same in slices, in the order of time.
    pub slices: Vec<Slice>,
    /// What of the stolen time the hypervisor took, by /proc/stat: not the network's, and not
    /// in [`Progress::stolen_ns`], but in that of the slices. `None` if /proc/stat was not to be
    /// read.
    pub steal_ns: Option<u64>,
    /// How sure all this is.
    pub calibration: Calibration,
}

/// A part of the time of one load. Nanoseconds.
///
/// Between two slices the load reads its counters. That time is in neither.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Slice {
    /// Begin, by `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
    /// The time between, without that of reading counters.
    pub wall_ns: u64,
    /// What the units done take undisturbed.
    pub progress_ns: u64,
    /// On the CPU, by the scheduler: `CLOCK_THREAD_CPUTIME_ID`.
    pub running_ns: u64,
    /// Ready to run while others did.
    pub waiting_ns: u64,
    /// The part of `waiting_ns` that ksoftirqd ran.
    pub ksoftirqd_ns: u64,
    /// The part of `waiting_ns` that threads of NAPI instances ran.
    pub napi_threads_ns: u64,
    /// The part of `napi_threads_ns` of threads that came from another CPU in a slice: they may
    /// have run there.
    pub napi_moved_ns: u64,
    /// The undisturbed time of a unit.
    pub unit_ns: f64,
    /// The part of `wall_ns` in which too few units were undisturbed, and the time of the slice
    /// before was taken.
    pub unsure_ns: u64,
    /// The part of `wall_ns` in which the undisturbed unit took more than one time.
    pub uneven_ns: u64,
}

impl Slice {
    /// Not used for progress, whoever used it.
    pub fn lost_ns(&self) -> i64 {
        signed(self.wall_ns) - signed(self.progress_ns)
    }

    /// What tasks ran that are neither ksoftirqd nor threads of NAPI instances.
    pub fn other_tasks_ns(&self) -> u64 {
        self.waiting_ns - self.ksoftirqd_ns - self.napi_threads_ns
    }

    /// The time that other tasks left.
    pub fn left_ns(&self) -> u64 {
        self.wall_ns.saturating_sub(self.other_tasks_ns())
    }

    /// What was lost though no other task ran. As a measured difference it can be a little
    /// below zero.
    pub fn stolen_ns(&self) -> i64 {
        self.lost_ns() - signed(self.other_tasks_ns())
    }

    /// The part of the stolen time that no accounting of tasks shows: interrupts and softirqs
    /// in the load's own context.
    ///
    /// The scheduler charges the time from a wake-up by another CPU until the interrupt that
    /// brings the news to the task woken, though the load still runs then. Where threads of
    /// NAPI instances are woken often, this part is therefore too small and theirs too large;
    /// [`Slice::stolen_ns`], which has both, is not touched by it.
    pub fn stolen_running_ns(&self) -> i64 {
        (self.lost_ns() - signed(self.waiting_ns)).max(0)
    }

    /// Neither on the CPU nor waiting for it: interrupt time where the kernel accounts it, what
    /// the hypervisor took, or a CPU quota.
    pub fn unaccounted_ns(&self) -> i64 {
        signed(self.wall_ns) - signed(self.running_ns) - signed(self.waiting_ns)
    }

    /// Both, where `later` follows.
    fn join(&self, later: &Self) -> Self {
        let wall_ns = self.wall_ns + later.wall_ns;
        let weighed = |slice: &Self| slice.unit_ns * slice.wall_ns as f64;
        Self {
            start_ns: if self.wall_ns == 0 {
                later.start_ns
            } else {
                self.start_ns
            },
            end_ns: later.end_ns,
            wall_ns,
            progress_ns: self.progress_ns + later.progress_ns,
            running_ns: self.running_ns + later.running_ns,
            waiting_ns: self.waiting_ns + later.waiting_ns,
            ksoftirqd_ns: self.ksoftirqd_ns + later.ksoftirqd_ns,
            napi_threads_ns: self.napi_threads_ns + later.napi_threads_ns,
            napi_moved_ns: self.napi_moved_ns + later.napi_moved_ns,
            unit_ns: (weighed(self) + weighed(later)) / (wall_ns as f64).max(1.0),
            unsure_ns: self.unsure_ns + later.unsure_ns,
            uneven_ns: self.uneven_ns + later.uneven_ns,
        }
    }
}

/// How sure a measurement is.
#[derive(Debug, Clone, Serialize)]
pub struct Calibration {
    /// The undisturbed time of a unit, over all.
    pub unit_ns: f64,
    /// The same in the slice where it was shortest, but for a twentieth of them.
    pub unit_low_ns: f64,
    /// And longest.
    pub unit_high_ns: f64,
    /// What speaks against the figures; nothing, if there is none.
    pub doubts: Vec<Doubt>,
}

/// Something that speaks against the figures of one CPU. Shares are of the wall time.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Doubt {
    /// In this share of the time, too few units were undisturbed to tell how long one takes.
    FewUndisturbed(f64),
    /// In this share of the time, the undisturbed unit took more than one time.
    Uneven(f64),
    /// The time of a unit differs between slices by this share.
    Drift(f64),
    /// The hypervisor took this share.
    Steal(f64),
    /// Other tasks ran for this share.
    OtherTasks(f64),
    /// In this share of the time, the load neither ran nor waited, and not for interrupts.
    Unaccounted(f64),
    /// Threads of NAPI instances that had come from another CPU ran for this share.
    Moved(f64),
    /// Something that could not be seen.
    Unseen(String),
}

impl fmt::Display for Doubt {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: &f64| share * 100.0;
        match self {
            Self::FewUndisturbed(share) => write!(
                out,
                "for {:.1}% of the time almost every unit of work was disturbed, and how long \
                 one takes was taken from before",
                percent(share)
            ),
            Self::Uneven(share) => write!(
                out,
                "for {:.1}% of the time a unit of work took more than one time: the frequency \
                 changed often, or the other thread of the core was busy; some of the stolen \
                 time may be that",
                percent(share)
            ),
            Self::Drift(share) => write!(
                out,
                "the time of a unit of work drifted by {:.1}%: the frequency changed, which is \
                 followed from slice to slice and not counted as stolen",
                percent(share)
            ),
            Self::Steal(share) => write!(
                out,
                "the hypervisor took {:.1}% of the CPU, known to 10 ms; it is subtracted",
                percent(share)
            ),
            Self::OtherTasks(share) => write!(
                out,
                "other tasks had the CPU for {:.1}% of the time; what was stolen from them is \
                 not seen here",
                percent(share)
            ),
            Self::Unaccounted(share) => write!(
                out,
                "for {:.1}% of the time the load neither ran nor waited: a CPU quota (cpu.max \
                 of its cgroup) stops it, and this counts as stolen; lift the quota",
                percent(share)
            ),
            Self::Moved(share) => write!(
                out,
                "threads of NAPI instances that had come from another CPU ran for {:.1}% of the \
                 time; some of it may have been there",
                percent(share)
            ),
            Self::Unseen(what) => out.write_str(what),
        }
    }
}

impl Progress {
    /// What was stolen, without what the hypervisor took.
    pub fn stolen_ns(&self) -> i64 {
        self.total.stolen_ns() - signed(self.steal_ns.unwrap_or(0))
    }

    /// The share that was stolen of the time that other tasks left, as the mean of the slices and
    /// its confidence interval; `None` without any such time.
    ///
    /// What is stolen while another task has the CPU, the load does not lose: where it comes
    /// evenly, it is the same share of that time too.
    pub fn stolen_share(&self) -> Option<Estimate> {
        let slices = self.slices.iter();
        let pairs: Vec<_> = slices
            .map(|slice| (slice.stolen_ns() as f64, slice.left_ns() as f64))
            .collect();
        let estimate = statistics::share(&pairs)?;
        let steal = self.steal_ns.unwrap_or(0) as f64 / (self.total.left_ns() as f64).max(1.0);
        Some(Estimate {
            mean: estimate.mean - steal,
            ..estimate
        })
    }
}

impl ProgressLoad {
    /// Starts one load on each of these CPUs, and returns when all of them run.
    pub fn start(cpus: &[usize]) -> Result<Self> {
        let cpus = CpuList::new(cpus.iter().copied());
        cpus.check_allowed()?;
        let network = NetworkThreads::find();
        let mut load = Self {
            stop: Arc::new(AtomicBool::new(false)),
            workers: Vec::new(),
            napi: names(&network),
        };
        let (ready, started) = channel();
        for &cpu in cpus.as_slice() {
            let thread = load.spawn(cpu, network.watch(cpu), ready.clone());
            let thread = thread.with_context(|| format!("cannot start a load on CPU {cpu}"))?;
            load.workers.push(Worker {
                thread: Some(thread),
                steal_ns: None,
            });
        }
        for _ in cpus.as_slice() {
            started.recv().context("a load ended early")??;
        }
        let times = proc::cpu_times().ok();
        for (worker, cpu) in load.workers.iter_mut().zip(cpus.as_slice()) {
            worker.steal_ns = times
                .as_ref()
                .and_then(|times| Some(times.get(cpu)?.steal_ns));
        }
        Ok(load)
    }

    fn spawn(
        &self,
        cpu: usize,
        watched: Watched,
        ready: Sender<Result<()>>,
    ) -> std::io::Result<JoinHandle<Progress>> {
        let stop = Arc::clone(&self.stop);
        let name = format!("weir-load/{cpu}");
        thread::Builder::new().name(name).spawn(move || {
            // Nobody listens any more if another load could not start.
            let _ = ready.send(pin(cpu));
            drop(ready);
            Load::new(cpu, watched).run(&stop)
        })
    }

    /// Ends them: what each saw, in the order of CPUs.
    pub fn stop(mut self) -> Result<Vec<Progress>> {
        let times = proc::cpu_times().ok();
        self.stop.store(true, Ordering::Relaxed);
        let irq_time = proc::irq_time_accounting();
        let new_threads = self.new_threads();
        let mut all = Vec::new();
        for worker in &mut self.workers {
            let Some(thread) = worker.thread.take() else {
                continue;
            };
            let ended = thread.join();
            let mut progress = ended.map_err(|_| anyhow!("a load broke down"))?;
            let steal_now = times
                .as_ref()
                .and_then(|times| Some(times.get(&progress.cpu)?.steal_ns));
            if let (Some(now), Some(before)) = (steal_now, worker.steal_ns) {
                progress.steal_ns = Some(progress.own_steal_ns(now.saturating_sub(before)));
            }
            progress.judge(irq_time, &new_threads);
            all.push(progress);
        }
        Ok(all)
    }

    /// Threads of NAPI instances that came after the start.
    fn new_threads(&self) -> Vec<String> {
        let mut now = names(&NetworkThreads::find());
        now.retain(|name| !self.napi.contains(name));
        now
    }
}

impl Drop for ProgressLoad {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for worker in &mut self.workers {
            if let Some(thread) = worker.thread.take() {
                // Its result is not wanted.
                let _ = thread.join();
            }
        }
    }
}

/// What is judged as worth a word, as a share.
mod limit {
    pub const UNSURE: f64 = 0.02;
    pub const UNEVEN: f64 = 0.10;
    pub const DRIFT: f64 = 0.03;
    pub const STEAL: f64 = 0.005;
    pub const OTHER_TASKS: f64 = 0.05;
    pub const UNACCOUNTED: f64 = 0.02;
    pub const MOVED: f64 = 0.01;
}

impl Progress {
    /// What of the hypervisor's time fell to the load: while others ran, it was theirs.
    fn own_steal_ns(&self, steal_ns: u64) -> u64 {
        let total = &self.total;
        let waiting = total.waiting_ns as f64 / (total.wall_ns as f64).max(1.0);
        (steal_ns as f64 * (1.0 - waiting)) as u64
    }

    /// Says what speaks against the figures.
    fn judge(&mut self, irq_time: Option<bool>, new_threads: &[String]) {
        let (total, calibration) = (&self.total, &mut self.calibration);
        let share = |ns: i64| ns as f64 / (total.wall_ns as f64).max(1.0);
        let steal = share(signed(self.steal_ns.unwrap_or(0)));
        let drift = (calibration.unit_high_ns - calibration.unit_low_ns) / calibration.unit_ns;
        // Where interrupt time is accounted, or may be, it is in neither.
        let unaccounted = match irq_time {
            Some(false) => share(total.unaccounted_ns()) - steal,
            Some(true) | None => 0.0,
        };
        let mut doubt = |share: f64, limit: f64, doubt: fn(f64) -> Doubt| {
            if share > limit {
                calibration.doubts.push(doubt(share));
            }
        };
        doubt(
            share(signed(total.unsure_ns)),
            limit::UNSURE,
            Doubt::FewUndisturbed,
        );
        doubt(share(signed(total.uneven_ns)), limit::UNEVEN, Doubt::Uneven);
        doubt(drift, limit::DRIFT, Doubt::Drift);
        doubt(steal, limit::STEAL, Doubt::Steal);
        doubt(
            share(signed(total.other_tasks_ns())),
            limit::OTHER_TASKS,
            Doubt::OtherTasks,
        );
        doubt(unaccounted, limit::UNACCOUNTED, Doubt::Unaccounted);
        doubt(
            share(signed(total.napi_moved_ns)),
            limit::MOVED,
            Doubt::Moved,
        );
        let unseen = &mut calibration.doubts;
        unseen.extend(new_threads.iter().map(|name| {
            Doubt::Unseen(format!(
                "the thread {name} started meanwhile and counts as another task"
            ))
        }));
        if self.steal_ns.is_none() {
            let what = "/proc/stat does not tell what the hypervisor took: it counts as stolen";
            unseen.push(Doubt::Unseen(what.into()));
        }
    }
}

/// A load at work, on its own thread.
struct Load {
    cpu: usize,
    unit: Unit,
    times: UnitTimes,
    unit_ns: f64,
    counters: Counters,
    slices: Slices,
}

/// What the kernel tells a load.
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
    fn new(cpu: usize, watched: Watched) -> Self {
        let unit = Unit::sized();
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
        }
    }

    fn run(mut self, stop: &AtomicBool) -> Progress {
        self.counters.watched.take();
        let mut start = self.counters.start();
        while !stop.load(Ordering::Relaxed) {
            let (units, end_ns) = self.work(start.at, stop);
            let slice = self.end_slice(start, units, end_ns);
            self.slices.push(slice);
            start = self.counters.start();
        }
        self.finish()
    }

    /// Does units until the slice is over: how many, and when it ended.
    fn work(&mut self, start_ns: u64, stop: &AtomicBool) -> (u64, u64) {
        self.times.clear();
        let (mut units, mut last_ns) = (0, start_ns);
        let end_ns = start_ns + SLICE_NS;
        while last_ns < end_ns && !stop.load(Ordering::Relaxed) {
            self.unit.run();
            let now_ns = now_ns();
            self.times.add(now_ns - last_ns);
            last_ns = now_ns;
            units += 1;
        }
        (units, last_ns)
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
        }
    }

    fn finish(self) -> Progress {
        let slices = self.slices.all();
        let sum = |total: Slice, slice: &Slice| total.join(slice);
        let total = slices.iter().fold(Slice::default(), sum);
        let mut units: Vec<f64> = slices.iter().map(|slice| slice.unit_ns).collect();
        units.sort_by(f64::total_cmp);
        let at = |share: usize| units.get(units.len().saturating_sub(1) * share / 20);
        Progress {
            cpu: self.cpu,
            calibration: Calibration {
                unit_ns: total.unit_ns,
                unit_low_ns: at(1).copied().unwrap_or(0.0),
                unit_high_ns: at(19).copied().unwrap_or(0.0),
                doubts: self.counters.unseen(self.cpu),
            },
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

    /// At the begin of a slice, where the clock is read last.
    fn start(&self) -> Own {
        let own = self.own(0);
        Own {
            at: now_ns(),
            ..own
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
            let what = "this kernel does not tell how long a thread waits (CONFIG_SCHED_INFO): \
                        what it did not run counts as other tasks";
            unseen.push(Doubt::Unseen(what.into()));
        }
        unseen
    }
}

/// Slices, two of which become one whenever there are too many.
#[derive(Default)]
struct Slices {
    kept: Vec<Slice>,
    /// The one that is being gathered, and of how many.
    open: Slice,
    gathered: usize,
    /// How often two became one.
    halved: u32,
}

impl Slices {
    fn push(&mut self, slice: Slice) {
        self.open = self.open.join(&slice);
        self.gathered += 1;
        if self.gathered < 1 << self.halved {
            return;
        }
        self.close();
        if self.kept.len() == MOST_SLICES {
            let pairs = self.kept.chunks(2);
            self.kept = pairs
                .map(|pair| pair.iter().fold(Slice::default(), |sum, it| sum.join(it)))
                .collect();
            self.halved += 1;
        }
    }

    fn close(&mut self) {
        if self.open.wall_ns > 0 {
            self.kept.push(self.open);
        }
        self.open = Slice::default();
        self.gathered = 0;
    }

    fn all(mut self) -> Vec<Slice> {
        self.close();
        self.kept
    }
}

fn names(network: &NetworkThreads) -> Vec<String> {
    network.napi_names().map(str::to_owned).collect()
}

/// `CLOCK_MONOTONIC`.
#[inline(always)]
fn now_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

#[inline(always)]
fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(start_ns: u64, wall_ns: u64) -> Slice {
        Slice {
            start_ns,
            end_ns: start_ns + wall_ns,
            wall_ns,
            progress_ns: wall_ns / 2,
            running_ns: wall_ns * 7 / 10,
            waiting_ns: wall_ns * 3 / 10,
            ksoftirqd_ns: wall_ns / 10,
            napi_threads_ns: wall_ns / 20,
            unit_ns: 1000.0,
            ..Slice::default()
        }
    }

    #[test]
    fn the_parts_add_up() {
        let slice = slice(0, 1000);
        assert_eq!(slice.lost_ns(), 500);
        assert_eq!(slice.other_tasks_ns(), 150);
        assert_eq!(slice.stolen_ns(), 350);
        assert_eq!(slice.stolen_running_ns(), 200);
        assert_eq!(slice.unaccounted_ns(), 0);
    }

    #[test]
    fn slices_stay_few_and_lose_nothing() {
        let mut slices = Slices::default();
        let count = MOST_SLICES as u64 * 3;
        for index in 0..count {
            slices.push(slice(index * 1000, 1000));
        }
        let all = slices.all();
        assert!(all.len() <= MOST_SLICES, "{}", all.len());
        let sum = |total: Slice, slice: &Slice| total.join(slice);
        let total = all.iter().fold(Slice::default(), sum);
        assert_eq!(total.wall_ns, count * 1000);
        assert_eq!(total.stolen_ns(), signed(count * 350));
        assert_eq!((total.start_ns, total.end_ns), (0, count * 1000));
        assert!((total.unit_ns - 1000.0).abs() < 1e-6);
    }

    fn progress(total: Slice) -> Progress {
        Progress {
            cpu: 0,
            total,
            slices: vec![total; 8],
            steal_ns: Some(0),
            calibration: Calibration {
                unit_ns: 1000.0,
                unit_low_ns: 990.0,
                unit_high_ns: 1010.0,
                doubts: Vec::new(),
            },
        }
    }

    #[test]
    fn what_cannot_be_told_is_said() {
        let clean = Slice {
            progress_ns: 99_500,
            running_ns: 100_000,
            ..slice(0, 100_000)
        };
        let clean = Slice {
            waiting_ns: 0,
            ksoftirqd_ns: 0,
            napi_threads_ns: 0,
            ..clean
        };
        let said = |change: &dyn Fn(&mut Progress), irq_time| {
            let mut progress = progress(clean);
            change(&mut progress);
            progress.judge(irq_time, &[]);
            progress.calibration.doubts
        };
        assert_eq!(said(&|_| (), Some(false)), []);
        let unsure = said(&|it| it.total.unsure_ns = 50_000, None);
        assert_eq!(unsure, [Doubt::FewUndisturbed(0.5)]);
        let uneven = said(&|it| it.total.uneven_ns = 50_000, None);
        assert_eq!(uneven, [Doubt::Uneven(0.5)]);
        let drift = said(&|it| it.calibration.unit_high_ns = 1090.0, None);
        assert_eq!(drift, [Doubt::Drift(0.1)]);
        let steal = said(&|it| it.steal_ns = Some(25_000), None);
        assert_eq!(steal, [Doubt::Steal(0.25)]);
        let others = said(&|it| it.total.waiting_ns = 50_000, None);
        assert_eq!(others, [Doubt::OtherTasks(0.5)]);
        let moved = said(&|it| it.total.napi_moved_ns = 50_000, None);
        assert_eq!(moved, [Doubt::Moved(0.5)]);
        let quota = |it: &mut Progress| it.total.running_ns = 50_000;
        assert_eq!(said(&quota, Some(false)), [Doubt::Unaccounted(0.5)]);
        // There it may be interrupts.
        assert_eq!(said(&quota, Some(true)), []);
        let unseen = said(&|it| it.steal_ns = None, None);
        assert!(unseen[0].to_string().contains("hypervisor"));
    }

    #[test]
    fn what_the_hypervisor_took_is_not_the_networks() {
        let mut progress = progress(slice(0, 1000));
        progress.steal_ns = Some(progress.own_steal_ns(100));
        assert_eq!(progress.steal_ns, Some(70));
        assert_eq!(progress.stolen_ns(), 280);
        let share = progress.stolen_share().expect("a share");
        let left = progress.total.left_ns() as f64;
        assert!((share.mean - 280.0 / left).abs() < 1e-9);
    }

    #[test]
    fn a_cpu_that_cannot_be_used_is_refused() {
        let refused = ProgressLoad::start(&[1023]).err().map(|it| it.to_string());
        assert!(refused.is_some_and(|it| it.contains("CPU 1023")));
        assert!(ProgressLoad::start(&[]).is_err());
    }
}
