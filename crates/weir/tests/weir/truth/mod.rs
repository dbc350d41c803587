//! `weir cost` against a known truth: a BPF program takes a set time for each packet, by its own
//! readings of the clock, and both methods must find that time.
//!
//! A row counts if the truth was established: the set time was burned, in the set context, and is
//! known to one point. A row that counts and is wrong is measured again, and fails if it is wrong each
//! time: a fault is, a hypervisor's moment is not. Other tasks and a busy hypervisor do not disqualify
//! a row: the test is that they are distinguished.
//!
//! No other test uses its CPUs meanwhile. The measurement runs in a session of its own at the lowest priority, so that
//! ksoftirqd and NAPI threads preempt it.

mod burn;
mod gaps;
mod guest;

use crate::packets;
use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio, exit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context as _, Result, bail, ensure};
use hostnet::cpulist::{CpuList, pin};
use hostnet::netns;
use hostnet::sysfs::Sysfs;
use rustix::process::{
    Pid, Signal, kill_process, set_parent_process_death_signal, setpriority_process,
};
use rustix::thread::{CpuSet, sched_setaffinity};
use testkit::{Need, PacketSocket, Test, skip};
use weir::accounting::busy_loop::{Attribution, BusyLoops, CpuLoss, Slice};
use weir::accounting::tracepoints::{CpuTotals, Sample, Tracepoints};
use weir::lab::{Lab, LabConfig};
use weir::process::clock::now_ns;
use weir::traffic::frame::{APP_MAC, LOAD_MAC, Template};

use burn::{Burn, Burned};

/// Who this process is, in its environment: the measurement in this context.
const ROLE: &str = "WEIR_TRUTH_CONTEXT";
/// The CPU that sends.
const SENDER: usize = 0;
/// The CPU that receives, and is measured.
const MEASURED: usize = 1;
/// The times to burn, in percent of the CPU.
const DUTIES: [u64; 6] = [0, 10, 30, 50, 70, 90];
/// The same for a quick run.
const FEW_DUTIES: [u64; 3] = [0, 50, 90];
/// Set for all of them.
const LONG: &str = "WEIR_TEST_LONG";
/// The largest error of a measurement, in percent of the CPU.
const TOLERANCE: f64 = 2.0;
/// The least part of the time to burn that must have been burned: queues overflow at the highest rates, and a
/// sender that does not get its CPU sends less.
const LEAST_BURNED: f64 = 0.6;
/// The largest uncertainty of the truth, in percent of the CPU.
const CERTAIN: f64 = 1.0;
/// The most measurements of a row that is wrong.
const ATTEMPTS: usize = 3;
/// The exit code of a process of whose rows most do not count.
const UNCOUNTED: i32 = 3;
/// The length of a measurement.
const WINDOW: Duration = Duration::from_secs(2);
/// From one reading of the burned time to the next.
const BETWEEN_READINGS: Duration = Duration::from_millis(2);
/// The longest that all rows of a context take, with [`LONG`] and each of them measured three times.
const LIMIT: Duration = Duration::from_secs(1200);
/// From the first packet to the measurement.
const WARM_UP: Duration = Duration::from_millis(300);

/// Packets a second, one by one: so few that the rest of the receive path, with its IPI, is little
/// beside the burned time.
const SOFTIRQ_PPS: u64 = 500;
const THREAD_PPS: u64 = 250;
/// Packets of a burst: more than the kernel processes in softirqs before it leaves the rest to
/// ksoftirqd (`net.core.netdev_budget_usecs`, 2 ms to 20 ms), and less than its backlog
/// (`net.core.netdev_max_backlog`, 1000).
const BURST: u64 = 900;
const BURST_NS: u64 = 50_000;

/// The context in which the kernel receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Softirq,
    Ksoftirqd,
    NapiThread,
}

const PLACES: [(&str, Place); 3] = [
    ("softirq on top of a task", Place::Softirq),
    ("ksoftirqd", Place::Ksoftirqd),
    ("threaded NAPI", Place::NapiThread),
];

/// As a process that measures: does it, and ends.
pub fn run_as_measurement() {
    let Ok(name) = std::env::var(ROLE) else {
        return;
    };
    exit(match run_as(&name) {
        Ok(true) => 0,
        Ok(false) => UNCOUNTED,
        Err(error) => {
            eprintln!("{error:?}");
            1
        }
    });
}

pub fn trials() -> Vec<Test> {
    let host = PLACES.map(|(name, _)| trial(name));
    let guest = trial(guest::AROUND).needing(&[Need::Probe(guest::cannot_run)]);
    host.into_iter().chain([guest]).collect()
}

/// Whether enough rows counted.
fn run_as(name: &str) -> Result<bool> {
    match name {
        guest::INSIDE => guest::inside::serve().map(|()| true),
        guest::AROUND => guest::measure_all(),
        _ => measure_all(name),
    }
}

fn trial(name: &'static str) -> Test {
    let test = Test::new(format!("truth::{}", name.replace(' ', "_")), move || {
        if run_in_own_session(name)? {
            return Ok(());
        }
        Err::<_, anyhow::Error>(skip(
            "most rows of the truth could not be made, for the reasons in the table",
        ))
    });
    let test = test.needing(&[Need::Probe(lacks_cpus)]);
    test.alone().deep().within(LIMIT)
}

fn lacks_cpus() -> Option<String> {
    let allowed = CpuList::allowed().ok()?;
    let has = |cpu| allowed.as_slice().contains(&cpu);
    (!has(SENDER) || !has(MEASURED)).then(|| format!("CPUs {SENDER} and {MEASURED} are needed"))
}

/// The scheduler shares a CPU between sessions before it looks at priorities (autogroup,
/// sched(7)).
fn run_in_own_session(name: &str) -> Result<bool> {
    let status = Command::new("setsid")
        .arg("--wait")
        .arg(std::env::current_exe()?)
        .env(ROLE, name)
        .status()
        .context("cannot run setsid(1)")?;
    if status.code() == Some(UNCOUNTED) {
        return Ok(false);
    }
    ensure!(status.success(), "{name}: {status}");
    Ok(true)
}

/// Whether enough rows count; all that count must be right.
fn measure_all(name: &str) -> Result<bool> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let (_, place) = PLACES
        .into_iter()
        .find(|(it, _)| *it == name)
        .with_context(|| format!("no context {name}"))?;
    // A kernel without autogroups has no such file.
    let _ = fs::write("/proc/self/autogroup", "19");
    setpriority_process(None, 19)?;
    println!("{name}: percent of CPU {MEASURED}");
    println!(
        "  to burn   burned     by gaps (off)  by tracepoints (off)  in place  outside  slower  other tasks"
    );
    let duties: &[u64] = match std::env::var_os(LONG) {
        Some(_) => &DUTIES,
        None => &FEW_DUTIES,
    };
    judge(name, duties, |duty| {
        let found = measure(place, duty)?;
        Ok(Row {
            line: found.line(duty),
            uncounted: found.uncounted(place, duty),
            is_right: found.is_right(),
        })
    })
}

/// A row of a table.
struct Row {
    line: String,
    /// Why it does not count.
    uncounted: Option<String>,
    is_right: bool,
}

/// Whether enough rows count, of which none may be wrong each time. Beside neighbours that leave most rows
/// uncertain, the others prove nothing.
fn judge<T: Copy + std::fmt::Debug>(
    name: &str,
    rows: &[T],
    mut measure: impl FnMut(T) -> Result<Row>,
) -> Result<bool> {
    let (mut wrong, mut counted) = (Vec::new(), 0);
    for &row in rows {
        for attempt in 1..=ATTEMPTS {
            let measured = measure(row)?;
            let uncounted = measured.uncounted.as_deref();
            println!("{}{}", measured.line, uncounted.unwrap_or_default());
            if uncounted.is_none() && !measured.is_right && attempt < ATTEMPTS {
                continue;
            }
            if uncounted.is_none() {
                counted += 1;
                wrong.extend((!measured.is_right).then_some(row));
            }
            break;
        }
    }
    println!("{name}: {counted} of {} rows counted", rows.len());
    let enough = counted * 2 >= rows.len();
    ensure!(
        wrong.is_empty() || !enough,
        "off by more than {TOLERANCE} points at {wrong:?}, {ATTEMPTS} times"
    );
    Ok(enough)
}

impl Place {
    /// Packets a second, where they come one by one.
    fn pps(self) -> u64 {
        match self {
            Self::Softirq | Self::Ksoftirqd => SOFTIRQ_PPS,
            Self::NapiThread => THREAD_PPS,
        }
    }

    /// How much of it must be where it is to be. While ksoftirqd works, whatever interrupt comes
    /// works on the same backlog before it returns (since Linux 6.5), so a part stays there; and
    /// where softirqs take most of a CPU, the kernel leaves some of them to ksoftirqd.
    fn least(self, duty: u64) -> f64 {
        match self {
            Self::Softirq if duty > 50 => 0.0,
            Self::Ksoftirqd => 0.2,
            Self::Softirq | Self::NapiThread => 0.8,
        }
    }
}

/// Percent of the measured CPU.
#[derive(Debug)]
struct Found {
    /// In the windows of either.
    by_gaps: Truth,
    by_tracepoints: Truth,
    gaps: f64,
    tracepoints: f64,
    in_place: f64,
    /// By NAPI instances that are not the lab's.
    foreign: f64,
    /// By an unknown task.
    unreported: f64,
    outside: f64,
    slower: f64,
    tasks: f64,
}

impl Found {
    /// Why it does not count.
    fn uncounted(&self, place: Place, duty: u64) -> Option<String> {
        // Without this all would be right where nothing happens.
        let burned = self.by_tracepoints.burned;
        if burned < duty as f64 * LEAST_BURNED {
            return Some("  does not count: too little was burned".into());
        }
        // Time that was found nowhere is wrong, and counts.
        if self.tracepoints - self.in_place > burned * (1.0 - place.least(duty)) + CERTAIN {
            return Some("  does not count: it was elsewhere".into());
        }
        if self.foreign > CERTAIN / 2.0 {
            let percent = self.foreign;
            return Some(format!(
                "  does not count: packets of others took {percent:.1}"
            ));
        }
        let missing = burned - self.tracepoints;
        if self.unreported > CERTAIN && missing > 0.0 && missing < self.unreported + TOLERANCE {
            let percent = self.unreported;
            return Some(format!(
                "  does not count: the kernel did not report who had {percent:.1}"
            ));
        }
        let certain = self.by_gaps.certain.max(self.by_tracepoints.certain);
        (certain > CERTAIN).then(|| format!("  does not count: known to {certain:.1} only"))
    }

    fn is_right(&self) -> bool {
        self.gaps_off().abs() <= TOLERANCE && self.tracepoints_off().abs() <= TOLERANCE
    }

    fn gaps_off(&self) -> f64 {
        self.gaps - self.by_gaps.burned
    }

    fn tracepoints_off(&self) -> f64 {
        self.tracepoints - self.by_tracepoints.burned
    }

    fn line(&self, duty: u64) -> String {
        format!(
            "  {duty:7}  {:7.2}  {:7.2} ({:+5.2})  {:12.2} ({:+5.2})  {:8.2}  {:7.2}  {:6.2}  {:11.2}",
            self.by_tracepoints.burned,
            self.gaps,
            self.gaps_off(),
            self.tracepoints,
            self.tracepoints_off(),
            self.in_place,
            self.outside,
            self.slower,
            self.tasks,
        )
    }
}

fn measure(place: Place, duty: u64) -> Result<Found> {
    let lab = Lab::anonymous(&LabConfig::default())?;
    let burn_ns = match place {
        Place::Ksoftirqd if duty > 0 => BURST_NS,
        _ => duty * 1_000_000_000 / 100 / place.pps(),
    };
    let burn = burn(&lab, place, burn_ns)?;
    match place {
        Place::Softirq | Place::Ksoftirqd => steer(&lab)?,
        Place::NapiThread => thread_napi(&lab)?,
    }
    let load = Load::start(&lab, place, duty)?;
    load.while_sending(|| {
        thread::sleep(WARM_UP);
        let tracepoints = Tracepoints::start(&[MEASURED])?;
        let busy_loops = BusyLoops::start(&[MEASURED], Some(&tracepoints.views()))?;
        let mut readings = vec![Reading::of(&burn)?];
        let before = settled(&tracepoints)?;
        while now_ns() < readings[0].after_ns + WINDOW.as_nanos() as u64 {
            thread::sleep(BETWEEN_READINGS);
            readings.push(Reading::of(&burn)?);
        }
        let after = settled(&tracepoints)?;
        thread::sleep(BETWEEN_READINGS);
        readings.push(Reading::of(&burn)?);
        let [loss] = &busy_loops.stop()?[..] else {
            bail!("not one busy loop");
        };
        let cpu = after.1.cpus[0].since(&before.1.cpus[0]);
        let (from_ns, to_ns, attribution) = attribution_within(loss, &readings);
        let by_gaps = Truth::between(&readings, (from_ns, from_ns), (to_ns, to_ns))?;
        let by_tracepoints = Truth::between(&readings, before.0, after.0)?;
        let percent = |ns: f64, of: f64| ns / of.max(1.0) * 100.0;
        let of_gaps = |ns: f64| percent(ns, attribution.observed_ns as f64);
        let of_tracepoints = |ns: u64| percent(ns as f64, cpu.observed_ns as f64);
        Ok(Found {
            by_gaps,
            by_tracepoints,
            gaps: of_gaps(attribution.network_ns()),
            tracepoints: of_tracepoints(cpu.network_ns()),
            in_place: of_tracepoints(place.ns(&cpu)),
            foreign: of_tracepoints(foreign_ns(&tracepoints, &lab)?),
            unreported: of_tracepoints(cpu.times.unreported_ns),
            outside: of_gaps(attribution.outside_ns()),
            slower: of_gaps(attribution.slower_ns),
            tasks: of_gaps(attribution.other_tasks_ns()),
        })
    })
}

/// Nanoseconds of NAPI for other devices than the lab's on the measured CPU.
fn foreign_ns(tracepoints: &Tracepoints, lab: &Lab) -> Result<u64> {
    let netns = netns::identity(lab.app().netns())?;
    let napis = tracepoints.napis()?;
    let foreign = napis.iter().filter(|it| it.netns != 0 && it.netns != netns);
    Ok(foreign.map(|it| it.ns).sum())
}

/// A sample, and the two moments between which it was settled.
fn settled(tracepoints: &Tracepoints) -> Result<((u64, u64), Sample)> {
    let before_ns = now_ns();
    let sample = tracepoints.sample()?;
    Ok(((before_ns, sample.at_ns), sample))
}

/// The sum of the slices that lie within the readings, and its begin and end: a slice
/// has the time since the one before it.
fn attribution_within(loss: &CpuLoss, readings: &[Reading]) -> (u64, u64, Attribution) {
    let from_ns = readings.first().map_or(0, |it| it.after_ns);
    let to_ns = readings.last().map_or(0, |it| it.before_ns);
    let within = |slice: &&Slice| slice.start_ns >= from_ns && slice.end_ns <= to_ns;
    let mut slices = loss.slices.iter().filter(within);
    let begin_ns = slices.next().map_or(from_ns, |slice| slice.end_ns);
    let mut end_ns = begin_ns;
    let mut sum = Attribution::default();
    for slice in slices {
        end_ns = slice.end_ns;
        sum = sum.plus(&slice.attribution);
    }
    (begin_ns, end_ns, sum)
}

impl Place {
    /// The time in that context, by tracepoints.
    fn ns(self, cpu: &CpuTotals) -> u64 {
        let receive = cpu.softirq[weir::accounting::interrupts::NET_RX];
        match self {
            Self::Softirq => receive.ns - receive.ksoftirqd_ns,
            Self::Ksoftirqd => receive.ksoftirqd_ns + cpu.times.ksoftirqd_ns,
            Self::NapiThread => cpu.times.napi_thread_ns,
        }
    }
}

/// The truth, on the application's side.
fn burn(lab: &Lab, place: Place, burn_ns: u64) -> Result<Burn> {
    let index = lab.app().index()?;
    netns::run_in(lab.app().netns(), || match place {
        Place::Softirq | Place::Ksoftirqd => Burn::by_tcx(index, burn_ns),
        Place::NapiThread => Burn::by_xdp(index, burn_ns),
    })
}

/// The time burned by a moment between the two.
struct Reading {
    before_ns: u64,
    burned: Burned,
    after_ns: u64,
}

impl Reading {
    fn of(burn: &Burn) -> Result<Self> {
        let before_ns = now_ns();
        let burned = burn.read()?;
        Ok(Self {
            before_ns,
            burned,
            after_ns: now_ns(),
        })
    }
}

/// The burned time, and its uncertainty: in percent of the CPU.
#[derive(Debug, Clone, Copy)]
struct Truth {
    burned: f64,
    certain: f64,
}

impl Truth {
    /// From a moment within the first bounds until one within the second. Nothing is known of no
    /// time.
    fn between(readings: &[Reading], from_ns: (u64, u64), to_ns: (u64, u64)) -> Result<Self> {
        let (from, from_width) = burned_at(readings, from_ns).context("no reading before")?;
        let (to, to_width) = burned_at(readings, to_ns).context("no reading after")?;
        let wall = to_ns.1.saturating_sub(from_ns.1) as f64;
        if wall == 0.0 {
            return Ok(Self {
                burned: 0.0,
                certain: 100.0,
            });
        }
        // A gap in the burning is the network's, or from outside if it was long enough.
        let gaps = (to.gaps_ns - from.gaps_ns) as f64;
        let work = (to.work_ns - from.work_ns) as f64;
        Ok(Self {
            burned: (work + gaps / 2.0) / wall * 100.0,
            certain: (from_width + to_width + gaps) / 2.0 / wall * 100.0,
        })
    }
}

/// The time burned by a moment within these bounds: the least, and how much more it may have
/// been.
fn burned_at(readings: &[Reading], (from_ns, to_ns): (u64, u64)) -> Option<(Burned, f64)> {
    let low = readings.iter().rfind(|it| it.after_ns <= from_ns)?.burned;
    let high = readings.iter().find(|it| it.before_ns >= to_ns)?.burned;
    Some((low, (high.total_ns() - low.total_ns()) as f64))
}

/// Has the measured CPU receive, by RPS.
fn steer(lab: &Lab) -> Result<()> {
    netns::run_in(lab.app().netns(), || {
        let path = format!("/{}/queues/rx-0/rps_cpus", lab.app().device);
        fs::write(
            Sysfs::mount()?.class_net(&path),
            format!("{:x}", 1 << MEASURED),
        )
        .context("cannot set rps_cpus")
    })
}

/// Has a thread on the measured CPU receive.
fn thread_napi(lab: &Lab) -> Result<()> {
    let before = napi_threads(lab)?;
    netns::run_in(lab.app().netns(), || {
        let path = format!("/{}/threaded", lab.app().device);
        fs::write(Sysfs::mount()?.class_net(&path), "1").context("cannot set threaded")
    })?;
    let threads = napi_threads(lab)?;
    let mut ours = threads.difference(&before);
    let pid = ours.next().context("no NAPI thread came")?;
    let mut cpus = CpuSet::new();
    cpus.set(MEASURED);
    let pid = Pid::from_raw(*pid).context("no process")?;
    sched_setaffinity(Some(pid), &cpus).context("cannot pin the NAPI thread")
}

fn napi_threads(lab: &Lab) -> Result<BTreeSet<i32>> {
    let prefix = format!("napi/{}-", lab.app().device);
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let comm = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if comm.starts_with(&prefix) {
            found.insert(pid);
        }
    }
    Ok(found)
}

/// Who sends.
enum Load {
    /// Evenly: the load of the bench.
    Even(Child),
    /// Many at once.
    Bursts {
        socket: PacketSocket,
        frame: Vec<u8>,
        every: Duration,
    },
}

impl Load {
    fn start(lab: &Lab, place: Place, duty: u64) -> Result<Self> {
        if place == Place::Ksoftirqd && duty > 0 {
            return Ok(Self::Bursts {
                socket: packets(lab.load())?,
                frame: Template::new(64, LOAD_MAC, APP_MAC)?.bytes().to_vec(),
                every: Duration::from_nanos(BURST * BURST_NS * 100 / duty),
            });
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command
            .args(["bench-load", "--dev", &lab.load().device])
            .args([
                "--cpu",
                &SENDER.to_string(),
                "--pps",
                &place.pps().to_string(),
            ])
            .stdout(Stdio::null());
        Ok(Self::Even(lab.load().spawn(&mut command)?))
    }

    fn while_sending<T: Send>(self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        match self {
            Self::Even(mut process) => {
                let result = work();
                if let Some(pid) = Pid::from_raw(process.id().cast_signed()) {
                    let _ = kill_process(pid, Signal::TERM);
                }
                process.wait()?;
                result
            }
            Self::Bursts {
                socket,
                frame,
                every,
            } => {
                let over = AtomicBool::new(false);
                thread::scope(|scope| {
                    let sender = scope.spawn(|| -> Result<()> {
                        pin(SENDER)?;
                        let mut next = Instant::now();
                        while !over.load(Ordering::Relaxed) {
                            for _ in 0..BURST {
                                socket.send(&frame)?;
                            }
                            next += every;
                            thread::sleep(next.saturating_duration_since(Instant::now()));
                        }
                        Ok(())
                    });
                    let result = work();
                    over.store(true, Ordering::Relaxed);
                    let sent = sender.join();
                    sent.map_err(|_| anyhow::anyhow!("the sender broke down"))??;
                    result
                })
            }
        }
    }
}
