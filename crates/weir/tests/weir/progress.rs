//! Known thefts of a CPU are found by the progress of a load.
//!
//! The thief is a thread of real-time priority on the load's CPU that burns a set share of
//! each period and notes by the clock when it did.
//!
//! This file lifts the crate's ban on unsafe code for one system call that rustix does not
//! offer.
#![allow(unsafe_code)]

use std::{
    fs::{read_dir, read_to_string},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Sender, channel},
    },
    thread::{JoinHandle, sleep, spawn},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use rustix::time::{ClockId, clock_gettime};
use weir::{
    cost::progress::{Progress, ProgressLoad},
    cpulist::{CpuList, pin},
};

use crate::{Test, tests};

pub fn trials() -> Vec<Test> {
    tests![
        what_a_task_takes_is_lost_and_not_stolen,
        an_idle_cpu_makes_progress,
        each_load_stays_on_its_cpu,
    ]
}

/// How long a measurement takes.
const TIME: Duration = Duration::from_secs(1);

/// How often one is tried: other programs of this host can only add to what is lost.
const TRIES: usize = 8;

/// Real-time priorities.
const LOAD: i32 = 1;
const THIEF: i32 = 2;

/// What the kernel leaves to normal tasks all the same, or idle: 50 ms of each second
/// (`sched_rt_runtime_us` in Documentation/scheduler/sched-rt-group.rst).
const LEFT_TO_OTHERS: f64 = 0.05;

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
    let prepared = pin(cpu).and_then(|()| real_time(0, THIEF));
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

fn measure(cpu: usize) -> Result<Progress> {
    let load = ProgressLoad::start(&[cpu])?;
    // What else runs on this host shall hardly get the CPU, but the thief shall.
    for thread in load_threads()? {
        real_time(thread, LOAD)?;
    }
    sleep(TIME);
    load.stop()?.pop().context("no progress was told")
}

fn last_cpu() -> Result<usize> {
    let allowed = CpuList::allowed()?;
    allowed.as_slice().last().copied().context("no CPU")
}

/// Tries until it succeeds, while no other test of this file runs.
fn insist(mut attempt: impl FnMut() -> Result<()>) -> Result<()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut result = attempt();
    for _ in 1..TRIES {
        if result.is_ok() {
            break;
        }
        result = attempt();
    }
    result
}

fn what_a_task_takes_is_lost_and_not_stolen() -> Result<()> {
    let cpu = last_cpu()?;
    for share in [0.1, 0.4, 0.8] {
        insist(|| {
            let thief = Thief::start(cpu, share)?;
            let progress = measure(cpu)?;
            let truth = share_of(&thief.stop()?, &progress);
            let of_wall = |ns: f64| ns / progress.total.wall_ns as f64;
            let lost = of_wall(progress.total.lost_ns() as f64);
            let others = of_wall(progress.total.other_tasks_ns() as f64);
            let stolen = of_wall(progress.stolen_ns() as f64);
            let seen = format!("{truth:.4} taken: {lost:.4} lost, {others:.4} by other tasks");
            println!("{seen}, {stolen:.4} stolen");
            ensure!((truth - share).abs() < TOLERANCE, "{seen}, not {share}");
            let possible = truth - TOLERANCE..truth + LEFT_TO_OTHERS + TOLERANCE;
            ensure!(possible.contains(&lost), "{seen}");
            ensure!(possible.contains(&others), "{seen}");
            ensure!(stolen.abs() < TOLERANCE, "{seen}, {stolen:.4} stolen");
            Ok(())
        })?;
    }
    Ok(())
}

fn an_idle_cpu_makes_progress() -> Result<()> {
    let cpu = last_cpu()?;
    insist(|| {
        let progress = measure(cpu)?;
        let share = progress.stolen_share().context("no share")?;
        let wide = share.half_width.context("no interval")?;
        println!("{share:?} {:?}", progress.calibration);
        ensure!(share.mean.abs() < TOLERANCE, "{share:?}");
        ensure!(wide < TOLERANCE, "{share:?}");
        let span = progress.total.end_ns - progress.total.start_ns;
        // What reading the counters takes.
        ensure!(progress.total.wall_ns as f64 > 0.99 * span as f64);
        ensure!(span as f64 > 0.95 * TIME.as_nanos() as f64, "{span} ns");
        Ok(())
    })
}

fn each_load_stays_on_its_cpu() -> Result<()> {
    let allowed = CpuList::allowed()?;
    insist(|| {
        let load = ProgressLoad::start(allowed.as_slice())?;
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
    })
}
