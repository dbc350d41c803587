//! `weir bench`.

pub mod rtt;

use std::io::{IsTerminal as _, Write as _, stderr, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args, Subcommand, ValueEnum as _};

use crate::bench::place::Place;
use crate::bench::plan::{Choices, Plan};
use crate::bench::report::{Report, html, table};
use crate::bench::runner::{Settings, WARMUP};
use crate::bench::session;
use crate::cli::flags::{self, Format};
use crate::cli::output;
use crate::engine::bench::Bench;
use crate::engine::{Engine, Mode, Wait};
use crate::process::cpus::Cpus;
use crate::process::stop::{EXIT_CODE, StopSignal};
use crate::report::ReportFile;
use crate::report::progress_line::ProgressLine;
use crate::traffic::rate::Rate;

const ALL: &str = "all";

const AFTER_HELP: &str = "\
Examples:
  weir bench all --lab
      Every bench, engine and mode, in a network made for this run
  weir bench rxdrop --lab --engine xsk,libxdp --mode drv --wait adaptive,spin,poll --pps 100000
      CPU time per packet of each way to wait, at a fixed rate
  weir bench rxdrop --dev eth1 --queue 0 --mode auto --seconds 5
      A device of this host; another host must send to it
  weir bench rtt
      Latency of one packet there and back, in a network made for this run

Exit status:
  0    Measured; refused modes and unavailable engines are listed in the report
  1    A run failed; the report has the others
  2    Usage error
  130  Interrupted; the report has the finished runs";

/// The benches to run: one, or `all`.
#[derive(Debug, Clone)]
pub struct Benches(Vec<Bench>);

impl Benches {
    fn parser() -> impl TypedValueParser<Value = Self> {
        let each = Bench::all().iter().filter_map(Bench::to_possible_value);
        let all = PossibleValue::new(ALL).help("All of them");
        PossibleValuesParser::new(each.chain([all])).try_map(|name| match name.as_str() {
            ALL => Ok(Self(Bench::all().to_vec())),
            name => Bench::from_str(name, false).map(|bench| Self(vec![bench])),
        })
    }
}

/// `weir bench`
#[derive(Debug, Args)]
#[command(
    after_long_help = AFTER_HELP,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    group(ArgGroup::new("place").args(["lab", "dev"]).required(true))
)]
pub struct BenchArgs {
    /// Another measurement.
    #[command(subcommand)]
    pub command: Option<BenchCommand>,

    /// The work done on packets
    #[arg(value_parser = Benches::parser(), value_name = "BENCH", required = true)]
    pub benches: Option<Benches>,

    /// Measure in a network made for this run: two namespaces and a veth pair
    #[arg(long, help_heading = "Network")]
    pub lab: bool,
    /// Measure on a device of this host; another host must send to it
    #[arg(long, value_name = "IF", help_heading = "Network")]
    pub dev: Option<String>,
    /// Device queue
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        conflicts_with = "lab",
        help_heading = "Network"
    )]
    pub queue: u32,

    /// Engines: socket API and, for AF_XDP, library
    #[arg(
        long,
        value_name = "LIST",
        value_parser = flags::engines(|engine| engine != Engine::Udp),
        value_delimiter = ',',
        help_heading = "Workload",
        default_value = "packet-v2,packet-v3,xsk,libxdp"
    )]
    pub engine: Vec<Engine>,
    /// XDP mode: generic (skb), native (drv), zero-copy (zc); AF_XDP only
    #[arg(
        long,
        value_name = "LIST",
        value_enum,
        value_delimiter = ',',
        help_heading = "Workload",
        default_value = "skb,drv,zc"
    )]
    pub mode: Vec<Mode>,
    /// Waiting for packets; adaptive with xsk and xsk-halves only
    #[arg(
        long,
        value_name = "LIST",
        value_parser = flags::waits(|wait| wait != Wait::BusyPoll),
        value_delimiter = ',',
        help_heading = "Workload",
        default_value = "spin"
    )]
    pub wait: Vec<Wait>,
    /// Frame length without the FCS, 64 to 9000; over 3520 in several chunks
    #[arg(long, value_name = "BYTES", default_value_t = 64, help_heading = "Workload",
          value_parser = clap::value_parser!(u16).range(64..=9000))]
    pub size: u16,
    /// Batch size, 1 to 1024
    #[arg(long, value_name = "N", default_value_t = 64, help_heading = "Workload",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub batch: u32,
    /// Packets per second of the lab's load, e.g. 250k or 1.5M [default: as many as its CPU can send]
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "dev",
        help_heading = "Workload"
    )]
    pub pps: Option<Rate>,
    /// Verify the payload of received frames in every bench, not only in l2fwd
    #[arg(long, help_heading = "Workload")]
    pub verify: bool,

    /// Length of each run, after a warm-up of 0.2 s
    #[arg(long, value_name = "S", default_value = "2", value_parser = flags::seconds(0.01..=3600.0), help_heading = "Measurement")]
    pub seconds: f64,
    /// Runs of each combination; rounds alternate between the engines
    #[arg(long, value_name = "N", default_value_t = 5, help_heading = "Measurement",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// CPU of the load and of the kernel's part of receiving it [default: first allowed]
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "dev",
        help_heading = "Measurement"
    )]
    pub load_cpu: Option<usize>,
    /// CPU of the engine [default: second allowed]
    #[arg(long, value_name = "N", help_heading = "Measurement")]
    pub app_cpu: Option<usize>,

    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table, help_heading = "Output")]
    pub format: Format,
    /// Also write an HTML page to FILE
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,
    /// Replace an existing FILE
    #[arg(long, requires = "html", help_heading = "Output")]
    pub force: bool,
}

/// The other measurements of `weir bench`.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Latency of one packet there and back, by rate, engine and way to wait
    ///
    /// Sends packets at a constant rate through a veth pair to an echo on another CPU, and reports
    /// percentiles of the time until each is back. The networks are namespaces of this process and leave
    /// nothing behind.
    Rtt(rtt::RttArgs),
}

impl BenchArgs {
    fn choices(&self) -> Result<Choices> {
        let benches = self.benches.as_ref().context("no BENCH")?;
        Ok(Choices {
            benches: benches.0.clone(),
            engines: self.engine.clone(),
            modes: self.mode.clone(),
            waits: self.wait.clone(),
            rounds: self.rounds,
            size: self.size,
        })
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
            sender_cpu: cpus.sender,
        }
    }

    fn place(&self, plan: &Plan) -> Result<Place> {
        match &self.dev {
            Some(name) => Place::device(name, self.queue, self.size, plan),
            None => Place::lab(self.size),
        }
    }
}

/// Runs `weir bench`.
pub fn run(args: &BenchArgs) -> Result<ExitCode> {
    match &args.command {
        None => measure(args),
        Some(BenchCommand::Rtt(args)) => rtt::run(args),
    }
}

fn measure(args: &BenchArgs) -> Result<ExitCode> {
    let plan = Plan::new(&args.choices()?)?;
    let page = match &args.html {
        Some(path) => Some(ReportFile::prepare(path, args.force)?),
        None => None,
    };
    let cpus = Cpus::choose(args.load_cpu, args.app_cpu)?;
    let stop = StopSignal::listen()?;
    let place = args.place(&plan)?;
    if let Some(notice) = place.notice(&plan) {
        // Nobody may be there to read it.
        let _ = stderr().write_all(notice.as_bytes());
    }
    cpus.leave_to_engines()?;
    let settings = args.settings(&cpus);
    let progress = ProgressLine::new(
        plan.runs().count(),
        settings.duration(),
        args.format == Format::Table,
    );
    let report = session::run(&plan, &place, &settings, &cpus, &stop, &progress);
    drop(progress);
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

fn print(report: &Report, format: Format) -> Result<()> {
    output::print(match format {
        Format::Table => table::render(report, !stdout().is_terminal()),
        Format::Json => output::json(report)?,
    })
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
        assert_eq!(args.choices().expect("a bench").benches.len(), 3);
        assert_eq!(args.wait, [Wait::Spin]);
    }

    #[test]
    fn bad_words_are_refused() {
        for words in [
            "rxdrop",
            "rxdrop --lab --dev eth0",
            "nothing --lab",
            "rxdrop --lab --engine dpdk",
            "rxdrop --lab --engine udp",
            "rxdrop --lab rtt",
            "rxdrop --lab --mode fast",
            "rxdrop --lab --wait busy-poll",
            "rxdrop --lab --size 63",
            "rxdrop --lab --size 9001",
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
}
