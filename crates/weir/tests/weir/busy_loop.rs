//! A busy loop finds a known loss of CPU time.
//!
//! A CPU hog, a thread of higher real-time priority on the loop's CPU, burns a set share of each
//! period and records when. Other programs and a busy hypervisor are no reason for a
//! skip: their time must be attributed to them.
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
use weir::accounting::busy_loop::{BusyLoops, CpuLoss};
use weir::accounting::tracepoints::{CpuTotals, Tracepoints};
use weir::process::clock::{now_ns, thread_cpu_ns};

use crate::{Test, tests_alone};

pub fn trials() -> Vec<Test> {
    tests_alone![
        the_time_of_a_task_is_attributed_to_it,
        a_loop_on_an_idle_cpu_works,
        each_loop_stays_on_its_cpu,
    ]
}

/// The length of a measurement.
const TIME: Duration = Duration::from_secs(1);

/// Real-time priorities.
const LOOP: i32 = 1;
const HOG: i32 = 2;

/// The part that the kernel reserves for normal tasks: 50 ms of each second
/// (`sched_rt_runtime_us` in Documentation/scheduler/sched-rt-group.rst, and the deadline server
/// that came after it).
const LEFT_TO_OTHERS: f64 = 0.06;

/// The largest error of a share.
const TOLERANCE: f64 = 0.02;

/// The hog's period.
const PERIOD: Duration = Duration::from_millis(10);

/// The hog had the CPU for at least its CPU time, which lacks the hypervisor's part, and at most from
/// the start to the end, unless it waited: a page fault may need a lock whose holder the loops keep from
/// the CPU.
struct Burst {
    start: u64,
    end: u64,
    cpu_ns: u64,
}

struct Hog {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Burst>>,
}

impl Hog {
    /// Takes this share of a CPU from all tasks of normal priority.
    fn start(cpu: usize, share: f64) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, started) = channel();
        let stopped = Arc::clone(&stop);
        let thread = spawn(move || burn(cpu, share, &stopped, &ready));
        let hog = Self { stop, thread };
        started.recv().context("the hog ended")??;
        Ok(hog)
    }

    /// Ends it. Returns its bursts.
    fn stop(self) -> Result<Vec<Burst>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the hog panicked"))
    }
}

fn burn(cpu: usize, share: f64, stop: &AtomicBool, ready: &Sender<Result<()>>) -> Vec<Burst> {
    let mut burnt = Vec::new();
    let pinned = pin(cpu).map_err(Into::into);
    let prepared = pinned.and_then(|()| real_time(0, HOG));
    let failed = prepared.is_err();
    // The receiver may be gone.
    let _ = ready.send(prepared);
    while !failed && !stop.load(Ordering::Relaxed) {
        let (start, ran) = (now_ns(), thread_cpu_ns());
        let end = start + (PERIOD.as_nanos() as f64 * share) as u64;
        while now_ns() < end {}
        burnt.push(Burst {
            start,
            end: now_ns(),
            cpu_ns: thread_cpu_ns() - ran,
        });
        sleep(Duration::from_nanos(
            (start + PERIOD.as_nanos() as u64).saturating_sub(now_ns()),
        ));
    }
    burnt
}

/// Gives a thread, 0 for the calling one, a priority above all normal tasks.
fn real_time(thread: i32, sched_priority: i32) -> Result<()> {
    // The kernel's `sched_param` has this field alone, musl's has more.
    // SAFETY: needed because rustix has no sched_setscheduler. The kernel reads one int at the address
    // given, and changes no memory of this process.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            thread,
            libc::SCHED_FIFO,
            &raw const sched_priority,
        )
    };
    let error = std::io::Error::last_os_error();
    ensure!(result == 0, "no real-time priority here: {error}");
    Ok(())
}

/// The shares of a loop's time in which the hog had the CPU: at least, and at most.
fn shares_of(burnt: &[Burst], loss: &CpuLoss) -> (f64, f64) {
    let total = &loss.total;
    let within = |burst: &Burst| {
        burst
            .end
            .min(total.end_ns)
            .saturating_sub(burst.start.max(total.start_ns))
    };
    let share = |ns: u64| ns as f64 / total.wall_ns as f64;
    let cpu = |burst: &Burst| within(burst).min(burst.cpu_ns);
    (
        share(burnt.iter().map(cpu).sum()),
        share(burnt.iter().map(within).sum()),
    )
}

/// The threads of the busy loops of this process.
fn loop_threads() -> Result<Vec<i32>> {
    let mut threads = Vec::new();
    for task in read_dir("/proc/self/task")? {
        let task = task?;
        // Threads of other tests come and go.
        let name = read_to_string(task.path().join("comm")).unwrap_or_default();
        if name.starts_with("weir-loop/") {
            threads.push(task.file_name().to_string_lossy().parse()?);
        }
    }
    Ok(threads)
}

/// The results of a busy loop and of the tracepoints, for a second.
fn measure(cpu: usize) -> Result<(CpuLoss, CpuTotals)> {
    let tracepoints = Tracepoints::start(&[cpu])?;
    let busy_loops = BusyLoops::start(&[cpu], Some(&tracepoints.views()))?;
    // The loops preempt everything on this host but the hog.
    for thread in loop_threads()? {
        real_time(thread, LOOP)?;
    }
    let before = tracepoints.sample()?;
    sleep(TIME);
    let after = tracepoints.sample()?;
    let loss = busy_loops.stop()?.pop().context("no result")?;
    Ok((loss, after.cpus[0].since(&before.cpus[0])))
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

fn the_time_of_a_task_is_attributed_to_it() -> Result<()> {
    let _alone = alone();
    let cpu = last_cpu()?;
    for share in [0.1, 0.4, 0.8] {
        let hog = Hog::start(cpu, share)?;
        let (loss, kernel) = measure(cpu)?;
        let (least, most) = shares_of(&hog.stop()?, &loss);
        let attribution = loss.total.attribution;
        let of_all = |ns: f64| ns / attribution.observed_ns as f64;
        let others = of_all(attribution.other_tasks_ns() + attribution.throttled_ns());
        let missing = loss.total.missing_ns() as f64 / loss.total.wall_ns as f64;
        let seen = format!(
            "{least:.4} to {most:.4} of {share} burned: {others:.4} by tasks, {missing:.4} missing: {attribution:?}"
        );
        println!("{seen}");
        // Interrupts in the hog's context count as its own.
        let elsewhere = attribution.outside_ns()
            + attribution.other_interrupts_ns()
            + attribution.unreported_ns();
        let possible = least - TOLERANCE - of_all(elsewhere)..most + LEFT_TO_OTHERS + TOLERANCE;
        ensure!(possible.contains(&others), "{seen}");
        ensure!(missing > least - TOLERANCE, "{seen}");
        sums_up(&loss, &kernel)?;
    }
    Ok(())
}

fn a_loop_on_an_idle_cpu_works() -> Result<()> {
    let _alone = alone();
    let (loss, kernel) = measure(last_cpu()?)?;
    let share = loss.lost_share().context("no share")?;
    println!(
        "{share:?} {:?} {:?}",
        loss.total.attribution, loss.calibration
    );
    share.half_width.context("no interval")?;
    let attribution = loss.total.attribution;
    ensure!(
        attribution.work_ns > 0.5 * attribution.observed_ns as f64,
        "{attribution:?}"
    );
    let span = loss.total.end_ns - loss.total.start_ns;
    // Less the reading of counters, and tasks that run then.
    ensure!(loss.total.wall_ns as f64 > 0.9 * span as f64);
    ensure!(span as f64 > 0.95 * TIME.as_nanos() as f64, "{span} ns");
    sums_up(&loss, &kernel)
}

/// The parts sum up to all of the time, and the kernel's agree with the tracepoints' own sums.
fn sums_up(loss: &CpuLoss, kernel: &CpuTotals) -> Result<()> {
    let attribution = loss.total.attribution;
    let share = |ns: f64| ns / attribution.observed_ns as f64;
    let parts = attribution.network_ns()
        + attribution.other_interrupts_ns()
        + attribution.other_tasks_ns()
        + attribution.throttled_ns()
        + attribution.unreported_ns()
        + attribution.outside_ns()
        + attribution.slower_ns
        + attribution.reading_ns
        + attribution.work_ns;
    ensure!(
        (share(parts) - 1.0).abs() < 1e-3,
        "{parts} of {attribution:?}"
    );
    ensure!(
        attribution.outside_ns() > -TOLERANCE * attribution.observed_ns as f64,
        "{attribution:?}"
    );
    let by_gaps = share(attribution.network_ns() + attribution.other_interrupts_ns());
    let by_tracepoints = kernel.interrupts_ns() as f64 / kernel.observed_ns as f64;
    ensure!(
        (by_gaps - by_tracepoints).abs() < TOLERANCE,
        "{by_gaps} by gaps, {by_tracepoints} by tracepoints: {attribution:?} {kernel:?}"
    );
    let all = kernel.times.without_loop_ns() + kernel.times.loop_ns;
    let accounted = all as f64 / kernel.observed_ns as f64;
    ensure!(
        (accounted - 1.0).abs() < TOLERANCE,
        "{accounted}: {kernel:?}"
    );
    Ok(())
}

fn each_loop_stays_on_its_cpu() -> Result<()> {
    let allowed = CpuList::allowed()?;
    let _alone = alone();
    let busy_loops = BusyLoops::start(allowed.as_slice(), None)?;
    let mut pinned = Vec::new();
    for thread in loop_threads()? {
        let status = read_to_string(format!("/proc/self/task/{thread}/status"))?;
        let mut lines = status.lines();
        let cpus = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        pinned.push(cpus.context("no list of CPUs")?.trim().parse::<usize>()?);
    }
    let seen: Vec<usize> = busy_loops.stop()?.iter().map(|loss| loss.cpu).collect();
    pinned.sort_unstable();
    ensure!(pinned == allowed.as_slice(), "{pinned:?}");
    ensure!(seen == allowed.as_slice(), "{seen:?}");
    ensure!(loop_threads()?.is_empty(), "loops that do not end");
    Ok(())
}
