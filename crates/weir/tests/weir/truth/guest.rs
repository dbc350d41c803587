//! `weir cost` against a truth that its own kernel cannot observe: an emulated guest is stopped and
//! continued from outside, so that it loses a known share of its CPU.
//!
//! The guest's CPU is a thread of QEMU, and the host's scheduler counts its run time. The missing run
//! time is outside time: stops, and other tasks on the host's CPU; and so are gaps of the host's own
//! CPU, which a thread finds there while the guest is stopped. Gaps in the time that is burned are the
//! network's, since the guest has no code to see them. The emulator's work for the entry and exit of an
//! interrupt is none of this: it runs on the CPU. A row counts if its truth is known to one point.
//!
//! Some hosts have such gaps, others have none: some rows make them.

mod host;
pub mod inside;
mod machine;
mod outside;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context as _, Result, anyhow, bail};
use rustix::process::{Signal, set_parent_process_death_signal, setpriority_process};
use weir::accounting::proc_stat::cpu_times;
use weir::cost::curve::Path;
use weir::cost::curve::stage::Stage;
use weir::process::stop::StopSignal;
use weir::traffic::frame::{APP_MAC, LOAD_MAC, Template};

use crate::packets;
use crate::truth::gaps::Gaps;
use crate::truth::{LEAST_BURNED, MEASURED, Row, SENDER, TOLERANCE};
use host::{Gauge, Host, HostLoss};
use inside::{Answer, Found, Question};
use machine::{Image, Machine};
use outside::{Missing, Outside};

/// The roles of this program: around the guest, and in it.
pub const AROUND: &str = "an emulated guest";
pub const INSIDE: &str = "inside";

/// A row: percent of the guest's CPU, but for the gaps.
#[derive(Debug, Clone, Copy)]
struct Asked {
    /// In stops.
    outside: u64,
    /// By the network, of the rest.
    duty: u64,
    /// Of each of the host's CPUs, in gaps that no clock of the host shows: as its hypervisor takes them.
    gaps: u64,
}

/// Outside, to burn, and gaps. Each has stops, in which the host's CPU is looked at.
const ROWS: [(u64, u64, u64); 8] = [
    (5, 0, 0),
    (5, 90, 0),
    (20, 0, 0),
    (20, 90, 0),
    (5, 0, 4),
    (5, 90, 4),
    (20, 0, 4),
    (20, 50, 4),
];
const LONG_OUTSIDE: [u64; 3] = [0, 5, 20];
const LONG_GAPS: [u64; 2] = [0, 4];
/// Packets a second: so few that emulating their interrupts is little beside the burned time.
const PPS: u64 = 250;
/// The length of a measurement: some twenty stops.
const WINDOW: Duration = Duration::from_secs(3);
/// How much slower than at its best the host's CPU may be: a steady one is up to 1.5.
const UNSTEADY: f64 = TOLERANCE;
/// The most that other tasks may have of the host's CPU: what the guest has left is a sample then.
const CROWDED: f64 = 25.0;
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

fn rows() -> Vec<Asked> {
    let rows = if std::env::var_os(crate::truth::LONG).is_none() {
        ROWS.into()
    } else {
        let all = LONG_GAPS.into_iter();
        let all = all.flat_map(|gaps| LONG_OUTSIDE.map(|outside| (outside, gaps)));
        all.flat_map(|(outside, gaps)| crate::truth::DUTIES.map(|duty| (outside, duty, gaps)))
            .collect::<Vec<_>>()
    };
    let rows = rows.into_iter();
    rows.map(|(outside, duty, gaps)| Asked {
        outside,
        duty,
        gaps,
    })
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
        "  outside  to burn  gaps   network (gaps)   by gaps (off)   by tracepoints (off)   outside   by gaps (off)   \
             entry   slower   host's tasks   host's gaps (long)   slower   uncertain by"
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
    /// The loss of the host's CPU while it seemed to work for the guest.
    host: HostLoss,
    /// The truth may be off by this, for all that is known of the host.
    noise: f64,
}

impl Measured {
    /// The truth: the network. The host's gaps in the time that was burned are a part of it, as no code of the guest
    /// can see them: the short ones burned as well, and the burning program has left out the long ones.
    fn network(&self) -> f64 {
        self.found.burned / (1.0 - self.host.long / 100.0)
    }

    /// The truth: outside. Those are the stops, the host's tasks, and the host's gaps in the rest of the time.
    fn outside(&self) -> f64 {
        let rest = 100.0 - self.missing.all - self.network();
        self.missing.all + (self.host.short + self.host.long) * rest.max(0.0) / 100.0
    }

    /// Why it does not count.
    fn uncounted(&self, Asked { outside, duty, .. }: Asked) -> Option<&'static str> {
        let least = (duty * (100 - outside)) as f64 / 100.0 * LEAST_BURNED;
        // While it waits for the host's CPU, stopping it takes nothing.
        let stops = outside as f64 * (1.0 - self.missing.waited / 100.0);
        // Without these all would be right where nothing happens.
        if self.found.burned < least {
            return Some("  does not count: too little was burned");
        }
        if self.missing.waited > CROWDED {
            return Some("  does not count: the host's tasks had its CPU");
        }
        if self.missing.all - self.missing.waited < stops - TOLERANCE {
            return Some("  does not count: it was not stopped as long as it was to be");
        }
        // Gaps of the emulated loop and slower work cannot be told apart then.
        if self.host.slower > UNSTEADY {
            return Some("  does not count: the speed of the host's CPU varied");
        }
        (self.noise > UNCERTAIN).then_some("  does not count: the host was too busy")
    }

    fn is_right(&self) -> bool {
        let near = |one: f64, other: f64| (one - other).abs() <= TOLERANCE;
        near(self.found.loop_.network, self.network())
            && near(self.found.tracepoints.network, self.network())
            && near(self.found.loop_.outside, self.outside())
    }

    fn line(
        &self,
        Asked {
            outside,
            duty,
            gaps,
        }: Asked,
    ) -> String {
        let network = self.network();
        let Found {
            burned_gaps,
            loop_,
            tracepoints,
            ..
        } = &self.found;
        format!(
            "  {outside:7}  {duty:7}  {gaps:4}  {network:7.2} ({burned_gaps:5.2})  {:6.2} ({:+6.2})  {:13.2} ({:+6.2})  \
             {:8.2}  {:8.2} ({:+6.2})  {:5.2}  {:7.2}  {:13.2}  {:12.2} ({:5.2})  {:7.2}  {:13.2}",
            loop_.network,
            loop_.network - network,
            tracepoints.network,
            tracepoints.network - network,
            self.outside(),
            loop_.outside,
            loop_.outside - self.outside(),
            loop_.entry,
            loop_.slower,
            self.missing.waited,
            self.host.short + self.host.long,
            self.host.long,
            self.host.slower,
            self.noise,
        )
    }
}

fn measure(
    stage: &Stage<'_>,
    machine: &mut Machine,
    Asked {
        outside,
        duty,
        gaps,
    }: Asked,
) -> Result<Measured> {
    let gaps = (gaps > 0).then(|| Gaps::start(&[SENDER, MEASURED], gaps));
    let _gaps = gaps.transpose()?;
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
    let mut host = if outside > 0 {
        Host::default()
    } else {
        Host::check()?
    };
    let gauge = Gauge::default();
    let (steal_before, late_before) = (steal_ns()?, machine.waited_ns()?);
    let before = machine.clocks()?;
    let over = AtomicBool::new(false);
    let (answer, history, seen) = thread::scope(|scope| {
        let reading = scope.spawn(|| gauge.read());
        let reader = reading.thread().clone();
        let (gauge, over) = (&gauge, &over);
        let set_free = move |is_free| gauge.set_free(is_free, &reader);
        let frame = template.bytes();
        let working = scope.spawn(move || work.go_on(&socket, frame, over, set_free));
        let answer = machine.ask(&question, WINDOW);
        over.store(true, Ordering::Relaxed);
        let history = working.join().map_err(|_| anyhow!("the sender panicked"));
        gauge.end(reading.thread());
        let seen = reading.join().map_err(|_| anyhow!("the reader panicked"))?;
        anyhow::Ok((answer?, history??, seen?))
    })?;
    host.join(seen);
    let after = machine.clocks()?;
    let percent = |ns: u64| ns as f64 / (after.host - before.host) as f64 * 100.0;
    let stolen = percent(steal_ns()? - steal_before);
    let late = percent(machine.waited_ns()? - late_before);

    if !host.is_known() || outside == 0 {
        host.join(Host::check()?);
    }
    let Answer::Found(found) = answer else {
        bail!("the guest answered {answer:?} instead of a measurement");
    };
    let at_host = |guest| Clocks::host(before, after, guest);
    let (begun, ended) = found.span;
    let missing = history.missing(at_host(begun), at_host(ended))?;
    let host = host.loss();
    let clocks = (before.took + after.took) as f64 / WINDOW.as_nanos() as f64 * 100.0;
    // More than was seen: nobody knows when. Timers that the emulator sets late look like time from outside.
    let unknown = (stolen - host.short - host.long).max(0.0) + late;
    Ok(Measured {
        missing,
        host,
        noise: 2.0 * host.error + clocks + unknown,
        found,
    })
}

/// Steal time of the host's CPU so far, in nanoseconds; counted in ticks.
fn steal_ns() -> Result<u64> {
    let times = cpu_times()?;
    let measured = times.get(&MEASURED).context("/proc/stat lacks the CPU")?;
    Ok(measured.steal_ns)
}
