//! `weir cost curve`: its flags, and what they mean.

use std::io::{Write as _, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};

use crate::accounting::tracepoints::Accounting;
use crate::cli::flags;
use crate::cost::curve::guest::GuestSettings;
use crate::cost::curve::measure::{Runner, Settings};
use crate::cost::curve::plan::{Choices, Combination, missing};
use crate::cost::curve::report::{Failed, Host, Point, Report, Unavailable};
use crate::cost::curve::stage::Stage;
use crate::cost::curve::{Path, chart, csv, html, notes, table};
use crate::process::cpus::Cpus;
use crate::process::stop::{EXIT_CODE, StopSignal};
use crate::report::progress_line::ProgressLine;
use crate::report::{Machine, ReportFile};
use crate::traffic::rate::Rate;

const AFTER_HELP: &str = "\
Examples:
  weir cost curve --html curve.html
      Every path at every rate, in networks of its own; nothing of them stays
  weir cost curve --path bridge,xdp --pps 1M --rounds 5
      Two paths at one rate, with the median of five rounds

Rates are those of all receivers together: with two of them each gets half.

Exit status:
  0    measured; a path that is not to be had here is said so
  1    something failed; what could be measured is printed nevertheless
  2    the command line is wrong
  130  interrupted; what was finished is printed";

/// From the first frame to the window: caches are warm by then.
const WARMUP: Duration = Duration::from_millis(200);

/// About how long it takes to set up a path, and with guests.
const SETUP: Duration = Duration::from_millis(100);
const BOOT: Duration = Duration::from_secs(5);

/// How to print the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Table,
    /// For programs
    Json,
    /// For spreadsheets: one line for each run
    Csv,
}

/// `weir cost curve`
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct CurveArgs {
    /// The ways that packets go
    #[arg(
        long,
        value_name = "LIST",
        value_enum,
        value_delimiter = ',',
        help_heading = "What",
        default_value = "bridge,xdp,ovs,stack,af-xdp,af-packet"
    )]
    pub path: Vec<Path>,
    /// Packets a second, such as 250k or 1.5M
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        help_heading = "What",
        default_value = "10k,50k,100k,250k,500k,750k,1M,1.5M,2M"
    )]
    pub pps: Vec<Rate>,
    /// Numbers of receivers, which get frames in turn
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "What",
          default_value = "1,2", value_parser = clap::value_parser!(u8).range(1..=16))]
    pub receivers: Vec<u8>,
    /// Frame length without the FCS, 64 to 1500
    #[arg(long, value_name = "BYTES", default_value_t = 64, help_heading = "What",
          value_parser = clap::value_parser!(u16).range(64..=1500))]
    pub size: u16,

    /// How long each run is measured, after a warm-up of 0.2 s
    #[arg(long, value_name = "S", default_value = "1", value_parser = flags::seconds(0.05..=3600.0), help_heading = "How")]
    pub seconds: f64,
    /// How often each run is repeated; rounds alternate between the paths
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "How",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Let virtual machines receive: QEMU with the guest in this directory, which `./run guest` in
    /// weir's source makes; only paths that end at taps
    #[arg(long, value_name = "DIR", help_heading = "How")]
    pub guest: Option<PathBuf>,
    /// CPU of the load, and of the kernel's part of receiving it [default: the first allowed]
    #[arg(long, value_name = "N", help_heading = "How")]
    pub load_cpu: Option<usize>,
    /// CPU of the receivers [default: the second allowed]
    #[arg(long, value_name = "N", help_heading = "How")]
    pub app_cpu: Option<usize>,

    /// How to print the report
    #[arg(long, value_enum, default_value_t = Format::Table, help_heading = "Report")]
    pub format: Format,
    /// Write the charts to an SVG file, too
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub svg: Option<PathBuf>,
    /// Write all of it as a page for browsers, too
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub html: Option<PathBuf>,
    /// Replace files that exist
    #[arg(long, help_heading = "Report")]
    pub force: bool,
}

impl CurveArgs {
    fn choices(&self) -> Choices {
        let mut choices = Choices {
            paths: once_each(&self.path),
            rates: once_each(&self.pps),
            receivers: once_each(&self.receivers),
            rounds: self.rounds,
        };
        choices.rates.sort_unstable();
        choices.receivers.sort_unstable();
        choices
    }

    fn settings(&self, cpus: &Cpus) -> Settings {
        Settings {
            size: self.size,
            warmup: WARMUP,
            window: Duration::from_secs_f64(self.seconds),
            load_cpu: cpus.load,
            app_cpu: cpus.app,
        }
    }

    /// Guests for all of the measurement: an hour more, should it take longer than it is meant to.
    fn guest(&self, choices: &Choices, settings: &Settings) -> Result<Option<GuestSettings>> {
        let runs = choices.most_runs() * settings.duration();
        let seconds = runs.as_secs() + 3600;
        let find = |directory| GuestSettings::find(directory, seconds, settings.app_cpu);
        self.guest.as_deref().map(find).transpose()
    }

    fn file(&self, path: Option<&PathBuf>) -> Result<Option<ReportFile>> {
        path.map(|path| ReportFile::prepare(path, self.force))
            .transpose()
    }
}

fn once_each<T: Copy + PartialEq>(items: &[T]) -> Vec<T> {
    let mut once = Vec::new();
    for item in items {
        if !once.contains(item) {
            once.push(*item);
        }
    }
    once
}

/// Runs `weir cost curve`.
pub fn run(args: &CurveArgs) -> Result<ExitCode> {
    let picture = args.file(args.svg.as_ref())?;
    let page = args.file(args.html.as_ref())?;
    let cpus = Cpus::choose(args.load_cpu, args.app_cpu)?;
    let stop = StopSignal::listen()?;
    // Without it nothing can be said: better now than after all is set up.
    drop(Accounting::start(&[cpus.load])?);
    let report = measure(args, &cpus, &stop)?;
    print(&report, args.format)?;
    if let Some(picture) = picture {
        picture.write(&chart::picture(&report)?)?;
    }
    if let Some(page) = page {
        page.write(&html::render(&report)?)?;
    }
    Ok(match &report {
        report if report.interrupted => ExitCode::from(EXIT_CODE),
        report if !report.failed.is_empty() => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}

/// Measures what can be measured here, or until a signal comes.
fn measure(args: &CurveArgs, cpus: &Cpus, stop: &StopSignal) -> Result<Report> {
    let choices = args.choices();
    let settings = args.settings(cpus);
    let guest = args.guest(&choices, &settings)?;
    let mut report = Report::new(Host {
        machine: Machine::now(cpus.allowed),
        load_cpu: cpus.load,
        app_cpu: cpus.app,
        size: args.size,
        notes: notes::setting(&settings, guest.as_ref()),
    });
    let unavailable = &mut report.unavailable;
    let stages = stages(&choices, cpus.app, guest.as_ref(), stop, unavailable);
    report.interrupted = stop.is_raised();
    if stages.is_empty() && !report.interrupted {
        let missing = report.unavailable.iter();
        let reasons: Vec<String> = missing
            .map(|it| format!("{}: {}", it.path, it.reason))
            .collect();
        bail!("nothing to measure: {}", reasons.join("; "));
    }
    cpus.leave_to_engines()?;
    let runner = Runner {
        settings: &settings,
        stop,
    };
    measure_all(&choices, &stages, &runner, &mut report);
    report.summarize();
    Ok(report)
}

/// Makes what can be made, and says of the rest why not.
fn stages<'a>(
    choices: &Choices,
    app_cpu: usize,
    guest: Option<&GuestSettings>,
    stop: &'a StopSignal,
    unavailable: &mut Vec<Unavailable>,
) -> Vec<Stage<'a>> {
    let mut stages = Vec::new();
    let each = if guest.is_some() { BOOT } else { SETUP };
    let progress = ProgressLine::new(choices.paths.len() * choices.receivers.len(), each, true);
    for &receivers in &choices.receivers {
        for &path in &choices.paths {
            progress.begin(&format!("setting up {path}"));
            let stage = match missing(path, receivers, guest.is_some()) {
                Some(reason) => Err(reason.to_owned()),
                None => Stage::make(path, receivers, app_cpu, guest, stop)
                    .map_err(|it| format!("{it:#}")),
            };
            progress.end();
            if stop.is_raised() {
                return stages;
            }
            match stage {
                Ok(stage) => stages.push(stage),
                Err(reason) => unavailable.push(Unavailable {
                    path,
                    receivers,
                    reason,
                }),
            }
        }
    }
    stages
}

/// Measures until all is done or a signal comes. What fails is said at once, and does not keep
/// the rest from being measured.
fn measure_all(choices: &Choices, stages: &[Stage<'_>], runner: &Runner<'_>, report: &mut Report) {
    let ways: Vec<(Path, u8)> = stages.iter().map(|it| (it.path, it.receivers)).collect();
    let runs: Vec<(u32, Combination)> = choices.runs(&ways).collect();
    let progress = ProgressLine::new(runs.len(), runner.settings.duration(), true);
    for (round, combination) in runs {
        progress.begin(&format!("{combination}, round {round}"));
        let stage = stages
            .iter()
            .find(|it| it.path == combination.path && it.receivers == combination.receivers);
        let Some(stage) = stage else { continue };
        match runner.measure(stage, combination) {
            Ok(measured) => {
                let point = Point::new(combination, round, measured);
                if !point.violations.is_empty() {
                    let message = point.violations.join("; ");
                    report.fail(
                        combination,
                        round,
                        format!("the numbers do not add up: {message}"),
                        &progress,
                    );
                }
                report.points.push(point);
            }
            Err(_) if runner.stop.is_raised() => {}
            Err(error) => report.fail(combination, round, format!("{error:#}"), &progress),
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
        Format::Table => table::render(report),
        Format::Json => serde_json::to_string_pretty(report)? + "\n",
        Format::Csv => csv::render(report),
    };
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("cannot write to standard output")
}
