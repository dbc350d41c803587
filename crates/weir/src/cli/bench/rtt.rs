//! `weir bench rtt`: its flags.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use crate::bench::report::Host;
use crate::bench::rtt::plan::Plan;
use crate::bench::rtt::report::Report;
use crate::bench::rtt::runner::{Labs, RttRunner};
use crate::bench::rtt::{html, session, table};
use crate::bench::runner::{Settings, WARMUP};
use crate::cli::flags::{self, Format};
use crate::cli::output;
use crate::engine::{Engine, Mode, Wait};
use crate::process::cpus::Cpus;
use crate::process::stop::{EXIT_CODE, StopSignal};
use crate::report::progress_line::ProgressLine;
use crate::report::{Machine, ReportFile};
use crate::traffic::rate::Rate;

const AFTER_HELP: &str = "\
Examples:
  weir bench rtt
      Each way to wait of AF_XDP, AF_PACKET and UDP sockets, at three rates
  weir bench rtt --pps 10k --engine xsk,libxdp --rounds 9 --html rtt.html
      weir's library beside libxdp at one rate, with a chart

Packets are sent at equal distances, whether or not earlier ones were answered, and a latency counts
from the time at which its packet was to be sent: a stall is charged with all packets that it delays.

Exit status:
  0    Measured; refused modes and unavailable engines are listed in the report
  1    A run failed; the report has the others
  2    Usage error
  130  Interrupted; the report has the finished runs";

/// The most packets that an echo returns at once.
const BATCH: u32 = 64;

/// `weir bench rtt`
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct RttArgs {
    /// Packets per second, such as 500, 10k or 0.1M
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        help_heading = "Workload",
        default_value = "1k,10k,100k"
    )]
    pub pps: Vec<Rate>,
    /// Engines that answer: socket API and, for AF_XDP, library
    #[arg(
        long,
        value_name = "LIST",
        value_parser = flags::engines(|engine| engine != Engine::XskHalves),
        value_delimiter = ',',
        help_heading = "Workload",
        default_value = "packet-v2,udp,xsk"
    )]
    pub engine: Vec<Engine>,
    /// XDP mode: generic (skb), native (drv), zero-copy (zc); AF_XDP only
    #[arg(
        long,
        value_name = "LIST",
        value_enum,
        value_delimiter = ',',
        help_heading = "Workload",
        default_value = "drv"
    )]
    pub mode: Vec<Mode>,
    /// Waiting for packets; adaptive with xsk only, busy-poll with udp and xsk
    #[arg(
        long,
        value_name = "LIST",
        value_enum,
        value_delimiter = ',',
        help_heading = "Workload",
        default_value = "spin,poll,adaptive,busy-poll"
    )]
    pub wait: Vec<Wait>,
    /// Frame length without the FCS, 64 to 1500
    #[arg(long, value_name = "BYTES", default_value_t = 64, help_heading = "Workload",
          value_parser = clap::value_parser!(u16).range(64..=1500))]
    pub size: u16,

    /// Length of each run, after a warm-up of 0.2 s
    #[arg(long, value_name = "S", default_value = "2", value_parser = flags::seconds(0.01..=3600.0), help_heading = "Measurement")]
    pub seconds: f64,
    /// Runs of each combination; rounds alternate between the engines
    #[arg(long, value_name = "N", default_value_t = 5, help_heading = "Measurement",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// CPU of the pinger and of the kernel's part of delivering its packets [default: first allowed]
    #[arg(long, value_name = "N", help_heading = "Measurement")]
    pub load_cpu: Option<usize>,
    /// CPU of the echo [default: second allowed]
    #[arg(long, value_name = "N", help_heading = "Measurement")]
    pub app_cpu: Option<usize>,

    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table, help_heading = "Output")]
    pub format: Format,
    /// Also write an HTML page, with charts, to FILE
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,
    /// Replace an existing FILE
    #[arg(long, requires = "html", help_heading = "Output")]
    pub force: bool,
}

impl RttArgs {
    fn plan(&self) -> Result<Plan> {
        Plan::new(&self.engine, &self.mode, &self.wait, &self.pps, self.rounds)
    }

    fn settings(&self, cpus: &Cpus) -> Settings {
        Settings {
            size: self.size,
            pps: None,
            warmup: WARMUP,
            window: Duration::from_secs_f64(self.seconds),
            batch: BATCH,
            turn: None,
            verify: true,
            load_cpu: cpus.load,
            app_cpu: cpus.app,
            sender_cpu: cpus.sender,
        }
    }
}

/// Runs `weir bench rtt`.
pub fn run(args: &RttArgs) -> Result<ExitCode> {
    let plan = args.plan()?;
    let page = match &args.html {
        Some(path) => Some(ReportFile::prepare(path, args.force)?),
        None => None,
    };
    let cpus = Cpus::choose(args.load_cpu, args.app_cpu)?;
    let stop = StopSignal::listen()?;
    let labs = Labs::new()?;
    cpus.leave_to_engines()?;
    let settings = args.settings(&cpus);
    let host = Host {
        machine: Machine::now(cpus.allowed),
        load_cpu: Some(cpus.load),
        app_cpu: cpus.app,
        sender_cpu: None,
        place: "lab".into(),
        notes: labs.notes()?,
    };
    let runner = RttRunner {
        labs: &labs,
        settings: &settings,
        stop: &stop,
    };
    let progress = ProgressLine::new(
        plan.runs().count(),
        settings.duration(),
        args.format == Format::Table,
    );
    let report = session::run(&plan, &runner, host, &progress);
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
        Format::Table => table::render(report),
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
        rtt: RttArgs,
    }

    fn parse(words: &str) -> Result<RttArgs, clap::Error> {
        let words = std::iter::once("rtt").chain(words.split_whitespace());
        Words::try_parse_from(words).map(|it| it.rtt)
    }

    #[test]
    fn the_defaults_are_three_rates_and_each_way_to_wait() {
        let plan = parse("").expect("good words").plan().expect("a plan");
        // All spin or poll; a UDP socket also does busy polling, and AF_XDP that and waits adaptively.
        assert_eq!(plan.ways.len(), 2 + 3 + 4);
        assert_eq!(plan.runs().count(), 9 * 3 * 5);
    }

    #[test]
    fn bad_words_are_refused() {
        for words in [
            "--engine xsk-halves",
            "--engine dpdk",
            "--mode fast",
            "--wait never",
            "--pps 0",
            "--pps 10k,",
            "--size 63",
            "--size 1501",
            "--rounds 0",
            "--seconds 0",
            "--force",
            "--lab",
        ] {
            assert!(parse(words).is_err(), "{words}");
        }
    }
}
