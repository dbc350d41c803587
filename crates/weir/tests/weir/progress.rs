//! Known thefts of a CPU are found by the progress of a load.
//!
//! The thief is a thread of real-time priority on the load's CPU that burns a set share of
//! each period and notes by the clock when it did. Whatever else the machine does meanwhile, by
//! other programs or from outside, is to be told apart and not to be waited out.
//!
//! This file lifts the crate's ban on unsafe code for one system call that rustix does not
//! offer.
#![allow(unsafe_code)]

use std::fs::{read_dir, read_to_string};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use hostnet::cpulist::{CpuList, pin};
use rustix::time::{ClockId, clock_gettime};
use weir::accounting::busy_loop::{Progress, ProgressLoad};
use weir::accounting::tracepoints::{Accounting, CpuTotals};

use crate::{Test, tests_alone};

pub fn trials() -> Vec<Test> {
    tests_alone![
        what_a_task_takes_is_told_as_its_own,
        an_idle_cpu_makes_progress,
        each_load_stays_on_its_cpu,
    ]
}

/// How long a measurement takes.
const TIME: Duration = Duration::from_secs(1);

/// Real-time priorities.
const LOAD: i32 = 1;
const THIEF: i32 = 2;

/// What the kernel leaves to normal tasks all the same, or idle: 50 ms of each second
/// (`sched_rt_runtime_us` in Documentation/scheduler/sched-rt-group.rst, and the deadline server
/// that came after it).
const LEFT_TO_OTHERS: f64 = 0.06;

/// How far a share may be off.
const TOLERANCE: f64 = 0.02;

/// How long the thief's period is.
const PERIOD: Duration = Duration::from_millis(10);

struct Thief {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<(u64, u64)>>,
}

impl Thief {
    /// Takes this share of a CPU from all tasks of normal priority.
    fn start(cpu: usize, share: f64) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, started) = channel();
        let stopped = Arc::clone(&stop);
        let thread = spawn(move || steal(cpu, share, &stopped, &ready));
        let thief = Self { stop, thread };
        started.recv().context("the thief ended")??;
        Ok(thief)
    }

    /// Ends it: when it had the CPU.
    fn stop(self) -> Result<Vec<(u64, u64)>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread
            .join()
            .map_err(|_| anyhow!("the thief broke down"))
    }
}

fn steal(cpu: usize, share: f64, stop: &AtomicBool, ready: &Sender<Result<()>>) -> Vec<(u64, u64)> {
    let mut burnt = Vec::new();
    let pinned = pin(cpu).map_err(Into::into);
    let prepared = pinned.and_then(|()| real_time(0, THIEF));
    let failed = prepared.is_err();
    // A start that gave up waiting has nothing to hear.
    let _ = ready.send(prepared);
    while !failed && !stop.load(Ordering::Relaxed) {
        let start = now_ns();
        let end = start + (PERIOD.as_nanos() as f64 * share) as u64;
        while now_ns() < end {}
        burnt.push((start, now_ns()));
        sleep(Duration::from_nanos(
            (start + PERIOD.as_nanos() as u64).saturating_sub(now_ns()),
        ));
    }
    burnt
}

/// Gives a thread, 0 for the calling one, a priority above all normal tasks.
fn real_time(thread: i32, sched_priority: i32) -> Result<()> {
    let priority = libc::sched_param { sched_priority };
    // SAFETY: needed because rustix has no sched_setscheduler. The kernel reads one
    // `sched_param` at the address given, and changes no memory of this process.
    let result = unsafe { libc::sched_setscheduler(thread, libc::SCHED_FIFO, &raw const priority) };
    let error = std::io::Error::last_os_error();
    ensure!(result == 0, "no real-time priority here: {error}");
    Ok(())
}

fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The share of a load's time in which the thief had the CPU.
fn share_of(burnt: &[(u64, u64)], progress: &Progress) -> f64 {
    let total = &progress.total;
    let within = |&(start, end): &(u64, u64)| {
        end.min(total.end_ns)
            .saturating_sub(start.max(total.start_ns))
    };
    burnt.iter().map(within).sum::<u64>() as f64 / total.wall_ns as f64
}

/// The threads of the loads of this process.
fn load_threads() -> Result<Vec<i32>> {
    let mut threads = Vec::new();
    for task in read_dir("/proc/self/task")? {
        let task = task?;
        // Threads of other tests come and go.
        let name = read_to_string(task.path().join("comm")).unwrap_or_default();
        if name.starts_with("weir-load/") {
            threads.push(task.file_name().to_string_lossy().parse()?);
        }
    }
    Ok(threads)
}

/// The load's own account of a second, and the tracepoints'.
fn measure(cpu: usize) -> Result<(Progress, CpuTotals)> {
    let accounting = Accounting::start(&[cpu])?;
    let load = ProgressLoad::start(&[cpu], Some(&accounting.views()))?;
    // What else runs on this host shall hardly get the CPU, but the thief shall.
    for thread in load_threads()? {
        real_time(thread, LOAD)?;
    }
    let before = accounting.sample()?;
    sleep(TIME);
    let after = accounting.sample()?;
    let progress = load.stop()?.pop().context("no progress was told")?;
    Ok((progress, after.cpus[0].since(&before.cpus[0])))
}

fn last_cpu() -> Result<usize> {
    let allowed = CpuList::allowed()?;
    allowed.as_slice().last().copied().context("no CPU")
}

/// While no other test of this file runs.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn what_a_task_takes_is_told_as_its_own() -> Result<()> {
    let _alone = alone();
    let cpu = last_cpu()?;
    for share in [0.1, 0.4, 0.8] {
        let thief = Thief::start(cpu, share)?;
        let (progress, kernel) = measure(cpu)?;
        let truth = share_of(&thief.stop()?, &progress);
        let taken = progress.total.taken;
        let of_all = |ns: f64| ns / taken.looked_ns as f64;
        let others = of_all(taken.tasks_ns() + taken.throttled_ns());
        let lost = progress.total.lost_ns() as f64 / progress.total.wall_ns as f64;
        let seen =
            format!("{truth:.4} taken of {share}: {others:.4} by tasks, {lost:.4} lost: {taken:?}");
        println!("{seen}");
        // The thief counts by the clock, so time taken from it counts as its own.
        let elsewhere = taken.outside_ns() + taken.interrupts_ns() + taken.unreported_ns();
        let possible = truth - TOLERANCE - of_all(elsewhere)..truth + LEFT_TO_OTHERS + TOLERANCE;
        ensure!(possible.contains(&others), "{seen}");
        ensure!(lost > truth - TOLERANCE, "{seen}");
        sums_up(&progress, &kernel)?;
    }
    Ok(())
}

fn an_idle_cpu_makes_progress() -> Result<()> {
    let _alone = alone();
    let (progress, kernel) = measure(last_cpu()?)?;
    let share = progress.stolen_share().context("no share")?;
    println!(
        "{share:?} {:?} {:?}",
        progress.total.taken, progress.calibration
    );
    share.half_width.context("no interval")?;
    let taken = progress.total.taken;
    ensure!(
        taken.progress_ns > 0.5 * taken.looked_ns as f64,
        "{taken:?}"
    );
    let span = progress.total.end_ns - progress.total.start_ns;
    // Less the reading of counters, and tasks that come then.
    ensure!(progress.total.wall_ns as f64 > 0.9 * span as f64);
    ensure!(span as f64 > 0.95 * TIME.as_nanos() as f64, "{span} ns");
    sums_up(&progress, &kernel)
}

/// The parts are all of the time, and the kernel's are those that tracepoints tell by themselves.
fn sums_up(progress: &Progress, kernel: &CpuTotals) -> Result<()> {
    let taken = progress.total.taken;
    let share = |ns: f64| ns / taken.looked_ns as f64;
    let parts = taken.network_ns()
        + taken.interrupts_ns()
        + taken.tasks_ns()
        + taken.throttled_ns()
        + taken.unreported_ns()
        + taken.outside_ns()
        + taken.slower_ns
        + taken.reading_ns
        + taken.progress_ns;
    ensure!((share(parts) - 1.0).abs() < 1e-3, "{parts} of {taken:?}");
    ensure!(
        taken.outside_ns() > -TOLERANCE * taken.looked_ns as f64,
        "{taken:?}"
    );
    let by_gaps = share(taken.network_ns() + taken.interrupts_ns());
    let by_tracepoints = kernel.stolen_ns() as f64 / kernel.observed_ns as f64;
    ensure!(
        (by_gaps - by_tracepoints).abs() < TOLERANCE,
        "{by_gaps} by gaps, {by_tracepoints} by tracepoints: {taken:?} {kernel:?}"
    );
    let all = kernel.times.without_load_ns() + kernel.times.load_ns;
    let accounted = all as f64 / kernel.observed_ns as f64;
    ensure!(
        (accounted - 1.0).abs() < TOLERANCE,
        "{accounted}: {kernel:?}"
    );
    Ok(())
}

fn each_load_stays_on_its_cpu() -> Result<()> {
    let allowed = CpuList::allowed()?;
    let _alone = alone();
    let load = ProgressLoad::start(allowed.as_slice(), None)?;
    let mut pinned = Vec::new();
    for thread in load_threads()? {
        let status = read_to_string(format!("/proc/self/task/{thread}/status"))?;
        let mut lines = status.lines();
        let cpus = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        pinned.push(cpus.context("no list of CPUs")?.trim().parse::<usize>()?);
    }
    let seen: Vec<usize> = load.stop()?.iter().map(|progress| progress.cpu).collect();
    pinned.sort_unstable();
    ensure!(pinned == allowed.as_slice(), "{pinned:?}");
    ensure!(seen == allowed.as_slice(), "{seen:?}");
    ensure!(load_threads()?.is_empty(), "loads that do not end");
    Ok(())
}
