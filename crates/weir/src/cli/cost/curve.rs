//! `weir cost curve`: its flags.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::cli::{flags, output};
use crate::cost::curve::measure::Settings;
use crate::cost::curve::plan::Choices;
use crate::cost::curve::report::Report;
use crate::cost::curve::run::{Options, measure};
use crate::cost::curve::{Path, csv, html, picture, table};
use crate::process::cpus::Cpus;
use crate::process::stop::{EXIT_CODE, StopSignal};
use crate::report::ReportFile;
use crate::traffic::rate::Rate;

const AFTER_HELP: &str = "\
Examples:
  weir cost curve --html curve.html
      Every path at every rate, in network namespaces that are gone at the end
  weir cost curve --path bridge,xdp --pps 1M --rounds 5
      Two paths at one rate, medians of five rounds
  weir cost curve --path bridge,xdp,af-xdp --receivers 1 --rounds 5 --svg curve.svg
      A picture of three paths

The rate is shared by all receivers: two receivers get half of it each.

Exit status:
  0    measured; paths that are unavailable on this host are listed
  1    something failed; the measurements that succeeded are printed
  2    usage error
  130  interrupted; the finished measurements are printed";

/// Time between the first frame and the window, for caches to warm up.
const WARMUP: Duration = Duration::from_millis(200);

/// Format of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables
    Table,
    /// JSON
    Json,
    /// CSV, one line for each run
    Csv,
}

/// `weir cost curve`
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct CurveArgs {
    /// Paths to measure [default: all]
    #[arg(
        long,
        value_name = "LIST",
        value_enum,
        value_delimiter = ',',
        help_heading = "Measurement"
    )]
    pub path: Vec<Path>,
    /// Packets per second, such as 250k or 1.5M
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        help_heading = "Measurement",
        default_value = "10k,50k,100k,250k,500k,750k,1M,1.5M,2M"
    )]
    pub pps: Vec<Rate>,
    /// Numbers of receivers; frames go to them in turn
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Measurement",
          default_value = "1,2", value_parser = clap::value_parser!(u8).range(1..=16))]
    pub receivers: Vec<u8>,
    /// Frame length without the FCS, 64 to 1500
    #[arg(long, value_name = "BYTES", default_value_t = 64, help_heading = "Measurement",
          value_parser = clap::value_parser!(u16).range(64..=1500))]
    pub size: u16,
    /// Duration of each run, after a warm-up of 0.2 s
    #[arg(long, value_name = "S", default_value = "1", value_parser = flags::seconds(0.05..=3600.0),
          help_heading = "Measurement")]
    pub seconds: f64,
    /// Repetitions of each run; the paths take turns in every round
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Measurement",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,

    /// Receive in virtual machines: QEMU with the guest in DIR, built by `./run guest` in weir's
    /// source tree; for paths that end at taps
    #[arg(long, value_name = "DIR", help_heading = "Placement")]
    pub guest: Option<PathBuf>,
    /// CPU of the load and of the softirqs that receive it [default: the first allowed]
    #[arg(long, value_name = "N", help_heading = "Placement")]
    pub load_cpu: Option<usize>,
    /// CPU of the receivers [default: the second allowed]
    #[arg(long, value_name = "N", help_heading = "Placement")]
    pub app_cpu: Option<usize>,

    /// Format of the report
    #[arg(long, value_enum, default_value_t = Format::Table, help_heading = "Report")]
    pub format: Format,
    /// Write the charts to FILE as well, as SVG
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub svg: Option<PathBuf>,
    /// Write charts and tables to FILE as well, as HTML
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub html: Option<PathBuf>,
    /// Overwrite existing files
    #[arg(long, help_heading = "Report")]
    pub force: bool,
}

impl CurveArgs {
    fn choices(&self) -> Choices {
        let paths: &[Path] = match &self.path[..] {
            [] => Path::value_variants(),
            paths => paths,
        };
        let mut choices = Choices {
            paths: once_each(paths),
            rates: once_each(&self.pps),
            receivers: once_each(&self.receivers),
            rounds: self.rounds,
        };
        choices.rates.sort_unstable();
        choices.receivers.sort_unstable();
        choices
    }

    fn options(&self, cpus: &Cpus) -> Options {
        Options {
            choices: self.choices(),
            settings: Settings {
                size: self.size,
                warmup: WARMUP,
                window: Duration::from_secs_f64(self.seconds),
                load_cpu: cpus.load,
                app_cpu: cpus.app,
            },
            guest: self.guest.clone(),
        }
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
    let report = measure(&args.options(&cpus), &stop)?;
    print(&report, args.format)?;
    if let Some(file) = picture {
        file.write(&picture::render(&report)?)?;
    }
    if let Some(file) = page {
        file.write(&html::render(&report)?)?;
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
        Format::Csv => csv::render(report),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Words {
        #[command(flatten)]
        curve: CurveArgs,
    }

    fn choices(words: &str) -> Choices {
        let words = words.split_whitespace();
        let args = Words::try_parse_from(std::iter::once("curve").chain(words));
        args.expect("good words").curve.choices()
    }

    #[test]
    fn all_paths_are_the_default() {
        assert_eq!(choices("").paths, Path::value_variants());
    }

    #[test]
    fn lists_are_sorted_without_duplicates() {
        let choices = choices("--path xdp,bridge,xdp --pps 1M,10k,1M --receivers 2,1,2");
        assert_eq!(choices.paths, [Path::Xdp, Path::Bridge]);
        assert_eq!(choices.rates, [Rate(10_000), Rate(1_000_000)]);
        assert_eq!(choices.receivers, [1, 2]);
    }
}
