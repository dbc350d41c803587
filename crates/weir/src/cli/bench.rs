//! `weir bench`: its flags, and what they mean.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _, stderr, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::{ArgGroup, Args, ValueEnum};

use crate::bench::plan::{Choices, Combination, Plan};
use crate::bench::report::host::Setup;
use crate::bench::report::{Failed, Host, Refused, Report, Run, html, table};
use crate::bench::runner::{Outcome, Place, Runner, Settings};
use crate::cli::flags::{self, Format};
use crate::engine::bench::Bench;
use crate::engine::{Engine, Mode, Wait};
use crate::lab::{Lab, LabConfig};
use crate::process::stop::{EXIT_CODE, StopSignal};
use crate::report::ReportFile;
use crate::report::progress_line::ProgressLine;
use crate::traffic::rate::Rate;
use hostnet::cpulist::{CpuList, pin};

const AFTER_HELP: &str = "\
Examples:
  weir bench all --lab
      Every bench, engine and mode in a network of its own; nothing of it stays
  weir bench rxdrop --lab --engine xsk,libxdp --mode drv --wait adaptive,spin,poll --pps 100000
      What waiting costs at a given rate
  weir bench rxdrop --dev eth1 --queue 0 --mode auto --seconds 5
      On a real device: somebody else has to send

Exit status:
  0    measured; a mode that the device refuses, or an engine that is not there, is said so
  1    something failed; what could be measured is printed nevertheless
  2    the command line is wrong
  130  interrupted; what was finished is printed";

/// What to bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Which {
    /// Receive and drop
    Rxdrop,
    /// Send
    Txpush,
    /// Receive, swap the MAC addresses, send back
    L2fwd,
    /// All of them
    All,
}

/// `weir bench`
#[derive(Debug, Args)]
#[command(
    after_long_help = AFTER_HELP,
    group(ArgGroup::new("place").args(["lab", "dev"]).required(true))
)]
pub struct BenchArgs {
    /// What to measure
    #[arg(value_enum, value_name = "BENCH")]
    pub which: Which,

    /// Measure in a network made for this run: two namespaces and a veth pair
    #[arg(long, help_heading = "Where")]
    pub lab: bool,
    /// Measure on a device of this host, which others send to
    #[arg(long, value_name = "IF", help_heading = "Where")]
    pub dev: Option<String>,
    /// The device's queue
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        conflicts_with = "lab",
        help_heading = "Where"
    )]
    pub queue: u32,

    /// Who moves the packets
    #[arg(
        long,
        value_name = "LIST",
        value_enum,
        value_delimiter = ',',
        help_heading = "What",
        default_value = "packet-v2,packet-v3,xsk,libxdp"
    )]
    pub engine: Vec<Engine>,
    /// Where in the kernel AF_XDP sockets meet their packets; AF_PACKET has no such choice
    #[arg(
        long,
        value_name = "LIST",
        value_enum,
        value_delimiter = ',',
        help_heading = "What",
        default_value = "skb,drv,zc"
    )]
    pub mode: Vec<Mode>,
    /// How engines wait for packets; only xsk can wait adaptively
    #[arg(
        long,
        value_name = "LIST",
        value_enum,
        value_delimiter = ',',
        help_heading = "What",
        default_value = "spin"
    )]
    pub wait: Vec<Wait>,
    /// Frame length without the FCS, 64 to 1500
    #[arg(long, value_name = "BYTES", default_value_t = 64, help_heading = "What",
          value_parser = clap::value_parser!(u16).range(64..=1500))]
    pub size: u16,
    /// Packets handled at once, at most
    #[arg(long, value_name = "N", default_value_t = 64, help_heading = "What",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub batch: u32,
    /// Packets a second that the lab's load offers [default: as many as its CPU can make]
    #[arg(long, value_name = "N", conflicts_with = "dev", help_heading = "What")]
    pub pps: Option<Rate>,
    /// Read and check every payload in rxdrop too, as l2fwd always does
    #[arg(long, help_heading = "What")]
    pub verify: bool,

    /// How long each run is measured, after a warm-up of 0.2 s
    #[arg(long, value_name = "S", default_value = "2", value_parser = flags::seconds(0.01..=3600.0), help_heading = "How")]
    pub seconds: f64,
    /// How often each run is repeated; rounds alternate between the engines
    #[arg(long, value_name = "N", default_value_t = 5, help_heading = "How",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// CPU of the load, and of the kernel's part of receiving it [default: the first allowed]
    #[arg(long, value_name = "N", conflicts_with = "dev", help_heading = "How")]
    pub load_cpu: Option<usize>,
    /// CPU of the engine [default: the second allowed]
    #[arg(long, value_name = "N", help_heading = "How")]
    pub app_cpu: Option<usize>,

    /// How to print the report
    #[arg(long, value_enum, default_value_t = Format::Table, help_heading = "Report")]
    pub format: Format,
    /// Write it as a page for browsers, too
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub html: Option<PathBuf>,
    /// Replace the page if it exists
    #[arg(long, requires = "html", help_heading = "Report")]
    pub force: bool,
}

/// Time from the first packet to the window: rings are in the cache by then, and NAPI runs.
const WARMUP: Duration = Duration::from_millis(200);

impl BenchArgs {
    fn choices(&self) -> Choices {
        Choices {
            benches: match self.which {
                Which::Rxdrop => vec![Bench::Rxdrop],
                Which::Txpush => vec![Bench::Txpush],
                Which::L2fwd => vec![Bench::L2fwd],
                Which::All => vec![Bench::Rxdrop, Bench::Txpush, Bench::L2fwd],
            },
            engines: self.engine.clone(),
            modes: self.mode.clone(),
            waits: self.wait.clone(),
            rounds: self.rounds,
        }
    }

    fn settings(&self, cpus: &Cpus) -> Settings {
        Settings {
            size: self.size,
            pps: self.pps,
            warmup: WARMUP,
            window: Duration::from_secs_f64(self.seconds),
            batch: self.batch,
            turn: None,
            verify: self.verify,
            load_cpu: cpus.load,
            app_cpu: cpus.app,
        }
    }

    fn place(&self, plan: &Plan) -> Result<Place> {
        match &self.dev {
            Some(name) => Place::device(name, self.queue, self.size, plan),
            None => Ok(Place::Lab(Box::new(Lab::anonymous(&LabConfig::default())?))),
        }
    }
}

/// Runs `weir bench`.
pub fn run(args: &BenchArgs) -> Result<ExitCode> {
    let plan = Plan::new(&args.choices());
    ensure!(
        !plan.combinations.is_empty(),
        "nothing to measure: {}",
        plan.unavailable
            .iter()
            .map(|it| format!("{}: {}", it.engine, it.reason))
            .collect::<Vec<_>>()
            .join("; ")
    );
    let page = match &args.html {
        Some(path) => Some(ReportFile::prepare(path, args.force)?),
        None => None,
    };
    let cpus = Cpus::choose(args.load_cpu, args.app_cpu)?;
    let stop = StopSignal::listen()?;
    let place = args.place(&plan)?;
    announce(&place, &plan);
    cpus.leave_to_engines()?;
    let settings = args.settings(&cpus);
    let host = Host::now(setup(&place, &cpus));
    let runner = Runner {
        place: &place,
        settings: &settings,
        stop: &stop,
    };
    let progress = ProgressLine::new(
        plan.runs().count(),
        settings.duration(),
        args.format == Format::Table,
    );
    let mut report = Report::new(host, plan.unavailable.clone());
    measure_all(&plan, &runner, &progress, &mut report);
    drop(progress);
    report.summarize();
    print(&report, args.format)?;
    if let Some(page) = page {
        page.write(&html::render(&report))?;
    }
    Ok(match &report {
        report if report.interrupted => ExitCode::from(EXIT_CODE),
        report if !report.failed.is_empty() => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}

/// Measures until all is done or a signal comes. What fails is said at once, and does not keep
/// the rest from being measured.
fn measure_all(plan: &Plan, runner: &Runner<'_>, progress: &ProgressLine, report: &mut Report) {
    let mut given_up: Vec<Combination> = Vec::new();
    for (round, combination) in plan.runs() {
        if !given_up.contains(&combination) {
            progress.begin(&format!("{combination}, round {round}"));
            match runner.measure(combination) {
                Ok(Outcome::Measured(measured)) => {
                    let run = Run::new(combination, round, runner.settings, *measured);
                    if !run.check.ok {
                        let message = format!(
                            "the numbers do not add up: {}",
                            run.check.violations.join("; ")
                        );
                        report.fail(combination, round, message, progress);
                    }
                    report.runs.push(run);
                }
                Ok(Outcome::Refused { errno, reason }) => {
                    given_up.push(combination);
                    report.refused.push(Refused {
                        combination,
                        errno,
                        reason,
                    });
                }
                Err(_) if runner.stop.is_raised() => {}
                Err(error) => {
                    given_up.push(combination);
                    report.fail(combination, round, format!("{error:#}"), progress);
                }
            }
        }
        progress.end();
        if let Err(interrupted) = runner.stop.check() {
            report.interrupted = true;
            progress.say(&interrupted.to_string());
            return;
        }
    }
}

impl Report {
    fn fail(&mut self, combination: Combination, round: u32, message: String, to: &ProgressLine) {
        to.say(&format!("error: {combination}, round {round}: {message}"));
        self.failed.push(Failed {
            combination,
            round,
            message,
        });
    }
}

fn print(report: &Report, format: Format) -> Result<()> {
    let text = match format {
        Format::Table => table::render(report, !stdout().is_terminal()),
        Format::Json => serde_json::to_string_pretty(report)? + "\n",
    };
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("cannot write to standard output")
}

fn setup(place: &Place, cpus: &Cpus) -> Setup {
    let (place, notes, load_cpu) = match place {
        Place::Lab(lab) => ("lab".into(), lab.notes().to_vec(), Some(cpus.load)),
        Place::Device { name, queue, .. } => (format!("{name} queue {queue}"), Vec::new(), None),
    };
    Setup {
        cpus: cpus.allowed,
        load_cpu,
        app_cpu: cpus.app,
        place,
        notes,
    }
}

/// Says what will be done to a device of this host.
fn announce(place: &Place, plan: &Plan) {
    let Place::Device { name, queue, .. } = place else {
        return;
    };
    let mut text =
        format!("weir: on {name}, one after another and each gone when its run is over:\n");
    if plan.uses(Engine::PacketV2) || plan.uses(Engine::PacketV3) {
        text += "  packet sockets, which see a copy of all that the device receives\n";
    }
    if plan.uses(Engine::Xsk) || plan.uses(Engine::Libxdp) {
        let _ = writeln!(
            text,
            "  an XDP program, and an AF_XDP socket on queue {queue}: what comes to that queue goes to the bench, \
             not to this host"
        );
    }
    if plan.does(Bench::Txpush) {
        text += "  txpush: sends UDP from 198.18.0.1 to 198.18.0.2 as fast as it can\n";
    }
    if plan.does(Bench::L2fwd) {
        text += "  l2fwd: sends back what it receives, with MAC addresses swapped\n";
    }
    // Nobody may be there to read it.
    let _ = stderr().write_all(text.as_bytes());
}

/// Which CPUs there are, and what each is for.
#[derive(Debug)]
pub(super) struct Cpus {
    /// How many this process may run on.
    pub(super) allowed: usize,
    /// That of the load.
    pub(super) load: usize,
    /// That of the engine.
    pub(super) app: usize,
}

impl Cpus {
    pub(super) fn choose(load: Option<usize>, app: Option<usize>) -> Result<Self> {
        for cpu in [load, app].into_iter().flatten() {
            CpuList::new([cpu]).check_allowed()?;
        }
        Ok(Self::among(CpuList::allowed()?.as_slice(), load, app))
    }

    fn among(allowed: &[usize], load: Option<usize>, app: Option<usize>) -> Self {
        let other_than = |taken: Option<usize>| {
            let mut free = allowed.iter().filter(|&&cpu| Some(cpu) != taken);
            free.next().or(allowed.first()).copied().unwrap_or(0)
        };
        let load = load.unwrap_or_else(|| other_than(app));
        Self {
            allowed: allowed.len(),
            load,
            app: app.unwrap_or_else(|| other_than(Some(load))),
        }
    }

    /// Keeps this process itself off the engines' CPU.
    pub(super) fn leave_to_engines(&self) -> Result<()> {
        pin(self.load)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Words {
        #[command(flatten)]
        bench: BenchArgs,
    }

    fn parse(words: &str) -> Result<BenchArgs, clap::Error> {
        Words::try_parse_from(std::iter::once("bench").chain(words.split(' '))).map(|it| it.bench)
    }

    #[test]
    fn the_defaults_are_all_there_is() {
        let args = parse("all --lab").expect("good words");
        assert_eq!(args.engine.len(), 4);
        assert_eq!(args.mode, [Mode::Skb, Mode::Drv, Mode::Zc]);
        assert_eq!(args.choices().benches.len(), 3);
        assert_eq!(args.wait, [Wait::Spin]);
    }

    #[test]
    fn bad_words_are_refused() {
        for words in [
            "rxdrop",
            "rxdrop --lab --dev eth0",
            "nothing --lab",
            "rxdrop --lab --engine dpdk",
            "rxdrop --lab --mode fast",
            "rxdrop --lab --size 63",
            "rxdrop --lab --size 1501",
            "rxdrop --lab --rounds 0",
            "rxdrop --lab --seconds 0",
            "rxdrop --lab --seconds nan",
            "rxdrop --lab --seconds -1",
            "rxdrop --lab --pps 0",
            "rxdrop --lab --batch 0",
            "rxdrop --lab --queue 1",
            "rxdrop --lab --force",
        ] {
            assert!(parse(words).is_err(), "{words}");
        }
        let error = parse("rxdrop").expect_err("no place").to_string();
        assert!(
            error.contains("--lab") && error.contains("--dev"),
            "{error}"
        );
    }

    #[test]
    fn load_and_engine_get_cpus_of_their_own() {
        let choose = |allowed: &[usize], load, app| {
            let cpus = Cpus::among(allowed, load, app);
            (cpus.load, cpus.app)
        };
        assert_eq!(choose(&[2, 5, 7], None, None), (2, 5));
        assert_eq!(choose(&[2, 5, 7], None, Some(2)), (5, 2));
        assert_eq!(choose(&[2, 5, 7], Some(5), None), (5, 2));
        assert_eq!(choose(&[3], None, None), (3, 3));
        assert!(Cpus::choose(None, Some(usize::MAX)).is_err());
    }
}
