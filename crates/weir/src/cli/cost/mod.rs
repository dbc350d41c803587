//! `weir cost`: its flags.

pub mod curve;
pub mod flame;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::cli::flags::{self, Format};
use crate::cli::output;
use crate::cost::host::{self, Options};
use crate::cost::table;
use crate::process::stop::{EXIT_CODE, StopSignal};
use crate::traffic::rate::Rate;
use hostnet::cpulist::CpuList;

const AFTER_HELP: &str = "\
Examples:
  weir cost --seconds 10
      All CPUs of this host for ten seconds
  weir cost --passive --seconds 60
      Without the busy loop, for production hosts
  weir cost --cpu 3 -- openssl speed -seconds 5 aes-256-cbc
      One CPU while a command runs
  weir cost --lab --pps 500000
      A demonstration: packets in network namespaces, received by the second CPU

Methods:
  by gaps         a calibrated busy loop on each CPU, at normal priority; gaps in its progress are
                  attributed to the network, other interrupts, other tasks, or the outside
                  (hypervisor, firmware)
  by tracepoints  BPF programs at the tracepoints of irq, softirq, napi, sched_switch and hrtimer
  /proc/stat      the kernel's own accounting, as top and mpstat show it

Requirements:
  by gaps         no privilege for the total, tracepoints for its attribution; keeps each CPU busy:
                  use --passive on production hosts
  by tracepoints  CAP_BPF and CAP_PERFMON, and CAP_SYS_ADMIN for its own run time; root has them
  --lab           root
  Unavailable measurements are reported; the rest still run.

Exit status:
  0    measured; unavailable measurements are listed
  1    something failed
  2    usage error
  130  interrupted; the measurement so far is printed
  N    exit status of COMMAND, if it failed";

/// The default rate of the lab's load: measurable, and low enough for any machine.
const LAB_PPS: Rate = Rate(200_000);
/// `weir cost`
#[derive(Debug, Args)]
#[command(
    after_long_help = AFTER_HELP,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub struct CostArgs {
    /// Another measurement.
    #[command(subcommand)]
    pub command: Option<CostCommand>,

    /// CPUs to measure, such as 0-3,5 [default: all allowed]
    #[arg(long, value_name = "LIST")]
    pub cpu: Option<CpuList>,
    /// Duration [default: 10, or until COMMAND ends]
    #[arg(long, value_name = "N", value_parser = flags::seconds(0.1..=86_400.0))]
    pub seconds: Option<f64>,
    /// Count packets of this device; may be repeated [default: all devices of the namespace]
    #[arg(long, value_name = "IF", conflicts_with = "lab")]
    pub dev: Vec<String>,
    /// Do not run the busy loop; for production hosts
    #[arg(long)]
    pub passive: bool,
    /// Limit of the tracepoints' own cost, in percent of one CPU: above it they are duty-cycled, and
    /// a passive measurement that still exceeds it ends
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = parse_limit)]
    pub limit: f64,
    /// Measure under load in network namespaces created for this run
    #[arg(long)]
    pub lab: bool,
    /// Packets per second in the lab
    #[arg(long, value_name = "N", requires = "lab", default_value_t = LAB_PPS)]
    pub pps: Rate,
    /// Format of the report
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Command to run during the measurement, on any CPU, without standard input; its process group
    /// ends with the measurement
    #[arg(last = true, value_name = "COMMAND")]
    pub run: Vec<String>,
}

/// The other measurements of `weir cost`.
#[derive(Debug, Subcommand)]
pub enum CostCommand {
    /// CPU time of receiving, by packet rate and path (bridge, XDP, AF_XDP, ...)
    ///
    /// Sends a load of constant rate through a veth pair into each path and accounts for the softirqs
    /// and processes that receive it. The networks are namespaces of this process and leave nothing
    /// behind.
    Curve(curve::CurveArgs),

    /// Flame graph of the packet path
    ///
    /// Samples the stacks of each CPU, keeps those that handle packets, and draws them as a
    /// self-contained SVG.
    Flame(flame::FlameArgs),
}

fn parse_limit(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(limit) if (0.01..=100.0).contains(&limit) => Ok(limit),
        _ => Err("a limit is 0.01 to 100 percent of one CPU".into()),
    }
}

/// Runs `weir cost`.
pub fn run(args: &CostArgs) -> Result<ExitCode> {
    match &args.command {
        None => {
            let stop = StopSignal::listen()?;
            let result = measure(args, &stop);
            if result.is_err() && stop.is_raised() {
                eprintln!("weir: interrupted before the measurement began");
                return Ok(ExitCode::from(EXIT_CODE));
            }
            result
        }
        Some(CostCommand::Curve(args)) => curve::run(args),
        Some(CostCommand::Flame(args)) => flame::run(args),
    }
}

fn measure(args: &CostArgs, stop: &StopSignal) -> Result<ExitCode> {
    let options = Options {
        cpus: args.cpu.clone(),
        duration: args.seconds.map(Duration::from_secs_f64),
        passive: args.passive,
        limit: args.limit,
        devices: &args.dev,
        lab: args.lab.then_some(args.pps),
        command: &args.run,
        // The report alone is on standard output.
        redirect_command: args.format == Format::Json,
    };
    let bar = output::progress_bar(options.duration());
    let measured = host::measure(&options, stop, &|elapsed| {
        bar.set_position(elapsed.as_millis() as u64);
    })?;
    bar.finish_and_clear();
    output::print(match args.format {
        Format::Table => table::render(&measured.report),
        Format::Json => output::json(&measured.report)?,
    })?;
    Ok(match measured.command {
        _ if measured.interrupted => ExitCode::from(EXIT_CODE),
        Some(status) => output::exit_code(status),
        None => ExitCode::SUCCESS,
    })
}
