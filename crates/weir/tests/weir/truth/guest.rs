//! `weir cost` against a truth that its own kernel cannot observe: an emulated guest is stopped and
//! continued from outside, so that it loses a known share of its CPU.
//!
//! The guest's CPU is a thread of QEMU, and the host's scheduler counts its run time. The missing run
//! time is outside time: stops, and other tasks on the host's CPU; and so are gaps of the host's own
//! CPU. The emulator's work for the entry and exit of an interrupt is not: it runs on the CPU. A row
//! counts if its truth is known to one point.

pub mod inside;
mod machine;
mod outside;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context as _, Result, anyhow, bail};
use hostnet::cpulist::pin;
use rustix::process::{Signal, set_parent_process_death_signal, setpriority_process};
use weir::accounting::proc_stat::cpu_times;
use weir::cost::curve::Path;
use weir::cost::curve::stage::Stage;
use weir::process::clock::{now_ns, thread_cpu_ns};
use weir::process::stop::StopSignal;
use weir::traffic::frame::{APP_MAC, LOAD_MAC, Template};

use crate::packets;
use crate::truth::{LEAST_BURNED, MEASURED, Row, TOLERANCE};
use inside::{Answer, Found, Question};
use machine::{Image, Machine};
use outside::{Missing, Outside};

/// The roles of this program: around the guest, and in it.
pub const AROUND: &str = "an emulated guest";
pub const INSIDE: &str = "inside";

/// The share of outside time, and the network's share of the rest, in percent.
const ROWS: [(u64, u64); 6] = [(0, 0), (0, 50), (0, 90), (20, 0), (20, 50), (20, 90)];
const LONG_OUTSIDE: [u64; 3] = [0, 5, 20];
/// Packets a second: so few that emulating their interrupts is little beside the burned time.
const PPS: u64 = 250;
/// The length of a measurement: some twenty stops.
const WINDOW: Duration = Duration::from_secs(3);
/// The number and length of the checks of the host's own CPU, before and after.
const CHECKS: usize = 5;
const CHECK: Duration = Duration::from_millis(100);
/// The speed of a check is that of each slice.
const SLICE: Duration = Duration::from_millis(1);
/// Longer than reading the clock takes, shorter than an interrupt.
const LONGEST_STEP_NS: u64 = 1000;
/// How much slower than at its best the host's CPU may be.
const UNSTEADY: f64 = 1.0;
/// The largest uncertainty of the truth for a measurement to count.
const UNCERTAIN: f64 = 1.0;

/// The same moment by two clocks, in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Clocks {
    host: u64,
    guest: u64,
    /// The time of reading both.
    took: u64,
}

impl Clocks {
    /// A moment of the guest's, as the host's clock has it.
    fn host(before: Self, after: Self, guest: u64) -> f64 {
        let rate = (after.host - before.host) as f64 / (after.guest - before.guest) as f64;
        before.host as f64 + (guest as f64 - before.guest as f64) * rate
    }
}

/// The reason why there is no guest.
pub fn cannot_run() -> Option<String> {
    directory()
        .is_none()
        .then(|| "there is no guest: `./run guest` makes it".into())
}

/// The directory of `./run guest`, if it has run.
fn directory() -> Option<PathBuf> {
    let guest = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/guest"));
    guest.join("initramfs.gz").exists().then_some(guest)
}

fn rows() -> Vec<(u64, u64)> {
    if std::env::var_os(crate::truth::LONG).is_none() {
        return ROWS.into();
    }
    let all = LONG_OUTSIDE.into_iter();
    all.flat_map(|outside| crate::truth::DUTIES.map(|duty| (outside, duty)))
        .collect()
}

/// Whether enough rows count: of (outside, to burn).
pub fn measure_all() -> Result<bool> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The time of other tasks is known, but the less the better. A kernel without autogroups
    // has no such file.
    let _ = fs::write("/proc/self/autogroup", "-20");
    setpriority_process(None, -20)?;
    let image = Image::make(&directory().context("the guest is gone")?)?;
    let stop = StopSignal::default();
    let stage = Stage::make(Path::Bridge, 1, crate::truth::SENDER, None, &stop)?;
    let mut machine = Machine::start(&image, stage.lab.app(), &stage.taps[0])?;
    println!("{AROUND}: percent of its CPU");
    println!(
        "  outside  to burn  burned (gaps)   network by gaps (off)   by tracepoints (off)   outside   by gaps (off)   \
             entry   slower   host's tasks   host's gaps   slower   uncertain by"
    );
    crate::truth::judge(AROUND, &rows(), |row| {
        let measured = measure(&stage, &mut machine, row)?;
        Ok(Row {
            line: measured.line(row),
            uncounted: measured.uncounted(row).map(str::to_owned),
            is_right: measured.is_right(),
        })
    })
}

/// One row. Percent of the guest's CPU.
struct Measured {
    found: Found,
    missing: Missing,
    /// Gaps of the host's CPU while it seemed to work for the guest.
    host_gaps: f64,
    /// How much slower than at its best the host's CPU was.
    host_slower: f64,
    /// The truth may be off by this, for all that is known of the host.
    noise: f64,
}

impl Measured {
    /// The truth: outside.
    fn outside(&self) -> f64 {
        let had = 1.0 - self.missing.all / 100.0;
        self.missing.all + self.host_gaps * had
    }

    /// Why it does not count.
    fn uncounted(&self, (outside, duty): (u64, u64)) -> Option<&'static str> {
        let least = (duty * (100 - outside)) as f64 / 100.0 * LEAST_BURNED;
        // While it waits for the host's CPU, stopping it takes nothing.
        let stops = outside as f64 * (1.0 - self.missing.waited / 100.0);
        // Without these all would be right where nothing happens.
        if self.found.burned < least {
            return Some("  does not count: too little was burned");
        }
        if self.missing.all - self.missing.waited < stops - TOLERANCE {
            return Some("  does not count: it was not stopped as long as it was to be");
        }
        // Gaps of the emulated loop and slower work cannot be told apart then.
        if self.host_slower > UNSTEADY {
            return Some("  does not count: the speed of the host's CPU varied");
        }
        (self.noise > UNCERTAIN).then_some("  does not count: the host was too busy")
    }

    fn is_right(&self) -> bool {
        let near = |one: f64, other: f64| (one - other).abs() <= TOLERANCE;
        near(self.found.loop_.network, self.found.burned)
            && near(self.found.tracepoints.network, self.found.burned)
            && near(self.found.loop_.outside, self.outside())
    }

    fn line(&self, (outside, duty): (u64, u64)) -> String {
        let Found {
            burned,
            burned_gaps,
            loop_,
            tracepoints,
            ..
        } = &self.found;
        format!(
            "  {outside:7}  {duty:7}  {burned:6.2} ({burned_gaps:5.2})  {:13.2} ({:+6.2})  {:13.2} ({:+6.2})  \
             {:8.2}  {:8.2} ({:+6.2})  {:12.2}  {:7.2}  {:13.2}  {:12.2}  {:7.2}  {:13.2}",
            loop_.network,
            loop_.network - burned,
            tracepoints.network,
            tracepoints.network - burned,
            self.outside(),
            loop_.outside,
            loop_.outside - self.outside(),
            loop_.entry,
            loop_.slower,
            self.missing.waited,
            self.host_gaps,
            self.host_slower,
            self.noise,
        )
    }
}

fn measure(
    stage: &Stage<'_>,
    machine: &mut Machine,
    (outside, duty): (u64, u64),
) -> Result<Measured> {
    let socket = packets(stage.lab.load())?;
    let template = Template::new(64, LOAD_MAC, APP_MAC)?;
    let question = Question::Measure {
        milliseconds: WINDOW.as_millis() as u64,
        burn_ns: duty * (100 - outside) * 100_000 / PPS,
    };
    let work = Outside {
        pid: machine.pid()?,
        schedstat: machine.schedstat()?,
        share: outside as f64 / 100.0,
        pps: PPS,
    };
    let mut checks = host_checks()?;
    let steal_before = steal_ns()?;
    let before = machine.clocks()?;
    let over = AtomicBool::new(false);
    let (answer, history) = thread::scope(|scope| {
        let working = scope.spawn(|| work.go_on(&socket, template.bytes(), &over));
        let answer = machine.ask(&question, WINDOW);
        over.store(true, Ordering::Relaxed);
        let history = working.join().map_err(|_| anyhow!("the sender panicked"))?;
        Ok::<_, anyhow::Error>((answer?, history?))
    })?;
    let after = machine.clocks()?;
    let stolen = (steal_ns()? - steal_before) as f64 / (after.host - before.host) as f64 * 100.0;

    checks.extend(host_checks()?);
    let Answer::Found(found) = answer else {
        bail!("the guest answered {answer:?} instead of a measurement");
    };
    let host = |guest| Clocks::host(before, after, guest);
    let (begun, ended) = found.span;
    let missing = history.missing(host(begun), host(ended))?;
    let (host_gaps, deviation) = mean(checks.iter().map(|check| check.gaps));
    let (host_slower, _) = mean(checks.iter().map(|check| check.slower));
    let clocks = (before.took + after.took) as f64 / WINDOW.as_nanos() as f64 * 100.0;
    Ok(Measured {
        missing,
        host_gaps,
        host_slower,
        // More than the checks had: nobody knows when.
        noise: deviation + clocks + (stolen - host_gaps).max(0.0),
        found,
    })
}

/// Steal time of the host's CPU so far, in nanoseconds; counted in ticks.
fn steal_ns() -> Result<u64> {
    let times = cpu_times()?;
    let measured = times.get(&MEASURED).context("/proc/stat lacks the CPU")?;
    Ok(measured.steal_ns)
}

/// And the standard deviation.
fn mean(values: impl ExactSizeIterator<Item = f64> + Clone) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.clone().sum::<f64>() / count;
    let squares: f64 = values.map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / count).sqrt())
}

/// The host's own CPU, in percent of a task's CPU time by its scheduler.
struct Check {
    /// Interrupts, unless the kernel accounts them separately, and steal time of the host.
    gaps: f64,
    /// Reading the clock took longer than in the fastest tenth: frequency, a busy sibling thread.
    slower: f64,
}

/// Between gaps a thread reads the clock at short steps.
fn host_checks() -> Result<Vec<Check>> {
    let checks = || {
        pin(MEASURED)?;
        Ok((0..CHECKS).map(|_| check()).collect())
    };
    let checked = thread::scope(|scope| scope.spawn(checks).join());
    checked.map_err(|_| anyhow!("a thread panicked"))?
}

fn check() -> Check {
    let (started, ran) = (now_ns(), thread_cpu_ns());
    let (mut last, mut between) = (started, 0);
    let mut speeds = Vec::new();
    while last - started < CHECK.as_nanos() as u64 {
        let (begun, mut steps, mut in_steps) = (last, 0, 0);
        while last - begun < SLICE.as_nanos() as u64 {
            let step = now_ns() - last;
            if step < LONGEST_STEP_NS {
                steps += 1;
                in_steps += step;
            }
            last += step;
        }
        between += in_steps;
        speeds.push(f64::from(steps) / in_steps.max(1) as f64);
    }
    let ran = (thread_cpu_ns() - ran) as f64;
    speeds.sort_by(f64::total_cmp);
    let fast = speeds[speeds.len() * 9 / 10];
    let mean = speeds.iter().sum::<f64>() / speeds.len() as f64;
    Check {
        gaps: (ran - between as f64) / ran * 100.0,
        slower: (1.0 - mean / fast).max(0.0) * 100.0,
    }
}
