//! Whether others leave CPUs alone while a test measures on them.
//!
//! A measurement is worth nothing where a neighbour took the CPU meanwhile: another program,
//! or another guest of the hypervisor. Such a test runs inside [`when_quiet`], which measures what
//! CPUs lose before the test and after it, with the same limit whatever the test has found.

use std::time::{Duration, Instant};
use std::{fmt, fs, panic, thread};

use anyhow::Result;
use hostnet::cpulist::{CpuList, pin};
use testkit::Skip;

/// How long a look takes. A neighbour with a fifth of the CPU, in bursts of some 25 ms, leaves it
/// alone for so long once in 200 looks.
const WINDOW: Duration = Duration::from_millis(500);
/// How long to wait for earlier work to end, such as the clean-up of other tests.
const PATIENCE: Duration = Duration::from_secs(3);
/// From this time on, two looks at the clock were not one after the other. A timer interrupt takes
/// about as long.
const GAP: Duration = Duration::from_micros(10);

/// The loss of one CPU, in percent of the time.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Loss {
    cpu: usize,
    /// To whatever stopped a loop there: other tasks, interrupts, the hypervisor.
    all: f64,
    /// To other tasks, where the kernel counts that.
    tasks: Option<f64>,
}

/// Why a measurement is worth nothing: others were there before it or after it.
struct Noise {
    loss: Loss,
    limit: f64,
    when: &'static str,
    /// The test's own result, for the record.
    failure: Option<String>,
}

impl fmt::Display for Noise {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Loss { cpu, all, tasks } = self.loss;
        let (limit, when) = (self.limit, self.when);
        write!(
            out,
            "needs a quiet machine: CPU {cpu} lost {all:.1}% to others {when} it, limit {limit}%"
        )?;
        if let Some(tasks) = tasks {
            write!(out, "; {tasks:.1}% to other tasks")?;
        }
        match &self.failure {
            Some(failure) => write!(out, "; it would have failed: {failure}"),
            None => Ok(()),
        }
    }
}

/// Runs `test` where each of `cpus` loses at most `limit` percent of its time to others, before it
/// and after it. The error where that is not so skips the test.
pub fn when_quiet<T>(cpus: &CpuList, limit: f64, test: impl FnOnce() -> Result<T>) -> Result<T> {
    if let Some(loss) = wait_for_quiet(cpus, limit)? {
        return Err(noise(loss, limit, "before", None));
    }
    let result = test();
    // One look only: who looks often enough finds a quiet moment of any neighbour.
    let Some(loss) = loss_above(cpus, limit)? else {
        return result;
    };
    let failure = result.err().map(|error| error.to_string());
    Err(noise(loss, limit, "after", failure))
}

fn noise(loss: Loss, limit: f64, when: &'static str, failure: Option<String>) -> anyhow::Error {
    let noise = Noise {
        loss,
        limit,
        when,
        failure,
    };
    Skip::new(noise.to_string()).into()
}

/// Looks until no CPU loses more than the limit, or [`PATIENCE`] ends; then returns the worst.
fn wait_for_quiet(cpus: &CpuList, limit: f64) -> Result<Option<Loss>> {
    let end = Instant::now() + PATIENCE;
    loop {
        match loss_above(cpus, limit)? {
            Some(_) if Instant::now() < end => {}
            loss => return Ok(loss),
        }
    }
}

/// The worst loss of a CPU, if that is above the limit.
fn loss_above(cpus: &CpuList, limit: f64) -> Result<Option<Loss>> {
    let losses = look(cpus, WINDOW)?;
    let worst = losses
        .into_iter()
        .max_by(|one, other| one.all.total_cmp(&other.all));
    Ok(worst.filter(|loss| loss.all > limit))
}

/// The losses of all CPUs in the same time.
fn look(cpus: &CpuList, window: Duration) -> Result<Vec<Loss>> {
    thread::scope(|scope| {
        let looks: Vec<_> = cpus
            .as_slice()
            .iter()
            .map(|&cpu| scope.spawn(move || look_at(cpu, window)))
            .collect();
        looks
            .into_iter()
            .map(|look| {
                look.join()
                    .unwrap_or_else(|panicked| panic::resume_unwind(panicked))
            })
            .collect()
    })
}

fn look_at(cpu: usize, window: Duration) -> Result<Loss> {
    pin(cpu)?;
    let waited = waited_for_tasks();
    let begin = Instant::now();
    let mut lost = Duration::ZERO;
    let mut now = begin;
    while now - begin < window {
        let before = now;
        now = Instant::now();
        lost += gap(now - before);
    }
    let percent = |time: Duration| 100.0 * time.as_secs_f64() / (now - begin).as_secs_f64();
    let tasks = waited.zip(waited_for_tasks());
    Ok(Loss {
        cpu,
        all: percent(lost),
        tasks: tasks.map(|(before, after)| percent(after.saturating_sub(before))),
    })
}

/// The loss between two readings of the clock, so long one after the other.
fn gap(between: Duration) -> Duration {
    if between < GAP {
        Duration::ZERO
    } else {
        between
    }
}

/// How long this thread was ready to run while others ran; `None` in a kernel that does not count
/// it (`CONFIG_SCHED_INFO`).
fn waited_for_tasks() -> Option<Duration> {
    let counts = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let waited = counts.split_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(waited))
}
