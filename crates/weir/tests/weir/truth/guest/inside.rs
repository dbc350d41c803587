//! The program in the guest: answers the host on the console.

use std::time::Duration;
use std::{fs, io, thread};

use anyhow::{Context as _, Result, bail};
use rustix::process::setpriority_process;
use serde::{Deserialize, Serialize};
use weir::accounting::busy_loop::{Attribution, BusyLoops};
use weir::accounting::tracepoints::{CpuTotals, Tracepoints};
use weir::process::clock::{clock_source, now_ns};

use crate::truth::burn::{Burn, Burned};

/// The prefix of each answer, as the kernel prints to the console, too.
pub const SAYS: &str = "truth: ";

/// The device that the packets come to.
const DEVICE: &str = "eth0";
/// The guest's one CPU.
const CPU: usize = 0;
/// From the first packet to the measurement.
const WARM_UP: Duration = Duration::from_millis(300);

/// A question of the host.
#[derive(Debug, Serialize, Deserialize)]
pub enum Question {
    /// The guest's clock.
    Clock,
    /// A measurement.
    Measure {
        /// For how long.
        milliseconds: u64,
        /// The time to burn for each packet.
        burn_ns: u64,
    },
}

/// An answer of the guest.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// It has started.
    Ready {
        /// Where its clock comes from.
        clocksource: String,
    },
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    Clock(u64),
    /// The measurement.
    Found(Found),
    /// A failure.
    Error(String),
}

/// The figures, in percent of the time of each measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Found {
    /// When the loop began and ended, by `CLOCK_MONOTONIC`, in nanoseconds.
    pub span: (u64, u64),
    /// Burned by the program.
    pub burned: f64,
    /// The gaps in that.
    pub burned_gaps: f64,
    /// By gaps.
    pub loop_: Loop,
    /// By tracepoints.
    pub tracepoints: ByTracepoints,
}

/// By gaps.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Loop {
    /// The network.
    pub network: f64,
    /// Whatever is below this kernel, without the next.
    pub outside: f64,
    /// Entering and leaving interrupts: the emulator's work, for which it has the host's CPU.
    pub entry: f64,
    /// Work that took longer without a gap.
    pub slower: f64,
}

/// By tracepoints.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ByTracepoints {
    /// The network.
    pub network: f64,
}

impl Loop {
    fn of(attribution: &Attribution) -> Self {
        let percent = |ns: f64| ns / attribution.observed_ns as f64 * 100.0;
        Self {
            network: percent(attribution.network_ns()),
            outside: percent(attribution.outside_ns() - attribution.entry_ns),
            entry: percent(attribution.entry_ns),
            slower: percent(attribution.slower_ns),
        }
    }
}

impl ByTracepoints {
    fn of(cpu: &CpuTotals) -> Self {
        let percent = |ns: u64| ns as f64 / cpu.observed_ns as f64 * 100.0;
        Self {
            network: percent(cpu.network_ns()),
        }
    }
}

/// Answers until the host is gone.
pub fn serve() -> Result<()> {
    // A kernel without autogroups has no such file.
    let _ = fs::write("/proc/self/autogroup", "19");
    say(&Answer::Ready {
        clocksource: clock_source(),
    })?;
    for line in io::stdin().lines() {
        let line = line?;
        let question = serde_json::from_str(&line).with_context(|| format!("no question: {line}"));
        say(&question
            .and_then(|question| answer(&question))
            .unwrap_or_else(|error| Answer::Error(format!("{error:#}"))))?;
    }
    Ok(())
}

fn say(answer: &Answer) -> Result<()> {
    println!("{SAYS}{}", serde_json::to_string(answer)?);
    Ok(())
}

fn answer(question: &Question) -> Result<Answer> {
    match *question {
        Question::Clock => Ok(Answer::Clock(now_ns())),
        Question::Measure {
            milliseconds,
            burn_ns,
        } => measure(Duration::from_millis(milliseconds), burn_ns).map(Answer::Found),
    }
}

fn measure(window: Duration, burn_ns: u64) -> Result<Found> {
    let index = fs::read_to_string(format!("/sys/class/net/{DEVICE}/ifindex"))?;
    // Attaching takes long here. Packets would pile up meanwhile if they took long too.
    let tracepoints = Tracepoints::start(&[CPU])?;
    let burn = Burn::by_xdp(index.trim().parse()?, burn_ns)?;
    thread::sleep(WARM_UP);
    // The busy loop's thread has the lowest priority, and this one preempts it.
    setpriority_process(None, 19)?;
    let busy_loops = BusyLoops::start(&[CPU], Some(&tracepoints.views()))?;
    setpriority_process(None, 0)?;
    let before = tracepoints.sample()?;
    let (begun, burned) = burn.burned()?;
    thread::sleep(window);
    let after = tracepoints.sample()?;
    let (ended, burned_at_end) = burn.burned()?;
    let [loss] = &busy_loops.stop()?[..] else {
        bail!("not one busy loop");
    };
    let cpu = after.cpus[0].since(&before.cpus[0]);
    let wall_ns = (ended - begun).as_nanos() as f64;
    let percent = |of: fn(Burned) -> u64| (of(burned_at_end) - of(burned)) as f64 / wall_ns * 100.0;
    Ok(Found {
        span: (loss.total.start_ns, loss.total.end_ns),
        burned: percent(|it| it.work_ns),
        burned_gaps: percent(|it| it.gaps_ns),
        loop_: Loop::of(&loss.total.attribution),
        tracepoints: ByTracepoints::of(&cpu),
    })
}
