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
//! Whose the lost time was, it learns from the kernel's own account of its CPU where that is kept,
//! gap by gap ([`gaps`]).
//!
//! It cannot see what is stolen while another task has the CPU, nor the work that kernel
//! threads other than those do for the network (kworker, vhost): these are other tasks.

mod doubt;
pub mod gaps;
mod load;
mod slices;
mod threads;
mod unit;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::thread::JoinHandle;

use anyhow::{Context as _, Result, anyhow};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

pub use self::doubt::{Calibration, Doubt};
use self::gaps::{OutsideGaps, Taken};
use self::load::Load;
use self::threads::{NetworkThreads, Watched};
use super::proc;
use super::tracepoints::view::{View, Views};
use crate::report::statistics;
use crate::report::statistics::Estimate;
use hostnet::cpulist::{CpuList, pin};

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
    /// Gaps in which the kernel did nothing.
    pub outside_gaps: OutsideGaps,
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
    /// Who had the time, while the kernel's account was kept.
    pub taken: Taken,
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
            taken: self.taken.plus(&later.taken),
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

impl Progress {
    /// The share of the CPU that somebody took, while the kernel's account was kept; `None` if it
    /// never was.
    pub fn share_of(&self, ns: impl Fn(&Taken) -> f64) -> Option<Estimate> {
        let pair = |slice: &Slice| (ns(&slice.taken), slice.taken.looked_ns as f64);
        statistics::share(&self.slices.iter().map(pair).collect::<Vec<_>>())
    }
}

impl ProgressLoad {
    /// Starts one load on each of these CPUs, and returns when all of them run. `views` are
    /// the kernel's accounts of the CPUs, where there are any.
    pub fn start(cpus: &[usize], views: Option<&Views>) -> Result<Self> {
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
            let view = views.and_then(|views| views.of(cpu));
            let thread = load.spawn(cpu, network.watch(cpu), view, ready.clone());
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
        view: Option<View>,
        ready: Sender<Result<()>>,
    ) -> std::io::Result<JoinHandle<Progress>> {
        let stop = Arc::clone(&self.stop);
        let name = format!("weir-load/{cpu}");
        thread::Builder::new().name(name).spawn(move || {
            let pinned = pin(cpu);
            let load = Load::new(cpu, watched, view);
            // Nobody listens any more if another load could not start.
            let _ = ready.send(pinned);
            drop(ready);
            load.run(&stop)
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
    use super::slices::Slices;
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
        assert_eq!(slice.unaccounted_ns(), 0);
    }

    #[test]
    fn slices_stay_few_and_lose_nothing() {
        let mut slices = Slices::default();
        let count = MOST_SLICES as u64 * 3;
        for index in 0..count {
            slices.push(&slice(index * 1000, 1000));
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

    fn progress(total: &Slice) -> Progress {
        Progress {
            cpu: 0,
            total: *total,
            slices: vec![*total; 8],
            steal_ns: Some(0),
            outside_gaps: OutsideGaps::default(),
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
            let mut progress = progress(&clean);
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
        let mut progress = progress(&slice(0, 1000));
        progress.steal_ns = Some(progress.own_steal_ns(100));
        assert_eq!(progress.steal_ns, Some(70));
        assert_eq!(progress.stolen_ns(), 280);
        let share = progress.stolen_share().expect("a share");
        let left = progress.total.left_ns() as f64;
        assert!((share.mean - 280.0 / left).abs() < 1e-9);
    }

    #[test]
    fn a_cpu_that_cannot_be_used_is_refused() {
        let refused = ProgressLoad::start(&[1023], None)
            .err()
            .map(|it| it.to_string());
        assert!(refused.is_some_and(|it| it.contains("CPU 1023")));
        assert!(ProgressLoad::start(&[], None).is_err());
    }
}
