//! `weir switch bench`: its flags.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::cli::flags::{self, Format};
use crate::cli::output;
use crate::cost::curve;
use crate::cost::forwarding::plan::{Options, Part, Settings};
use crate::cost::forwarding::report::Report;
use crate::cost::forwarding::run::measure;
use crate::cost::forwarding::{Path, html, table};
use crate::process::cpus::Cpus;
use crate::process::stop::{EXIT_CODE, StopSignal};
use crate::report::ReportFile;
use crate::traffic::rate::Rate;

const AFTER_HELP: &str = "\
Examples:
  weir switch bench
      Every part with every switch, in network namespaces that are gone at the end
  weir switch bench --part rate --path bridge,weir-xdp --rounds 9
      CPU time per frame of two of them, medians of nine rounds
  weir switch bench --svg charts.svg
      All of it, and the CPU time of receiving in one and in two guests by rate, as charts

Nothing of this host is used or changed, besides its CPUs.

Exit status:
  0    measured; parts and switches that are unavailable on this host are listed
  1    something failed; the measurements that succeeded are printed
  2    usage error
  130  interrupted; the finished measurements are printed";

/// The time from the first frame to the window of the charts.
const WARMUP: Duration = Duration::from_millis(200);
/// The rates and the numbers of receivers of the charts.
const RATES: [u64; 9] = [
    10_000, 50_000, 100_000, 250_000, 500_000, 750_000, 1_000_000, 1_500_000, 2_000_000,
];
const RECEIVERS: [u8; 2] = [1, 2];

/// `weir switch bench`
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct BenchArgs {
    /// Parts of the measurement [default: all]
    #[arg(
        long,
        value_name = "LIST",
        value_enum,
        value_delimiter = ',',
        help_heading = "Measurement"
    )]
    pub part: Vec<Part>,
    /// Switches to measure [default: all]
    #[arg(
        long,
        value_name = "LIST",
        value_enum,
        value_delimiter = ',',
        help_heading = "Measurement"
    )]
    pub path: Vec<Path>,
    /// Numbers of pairs of stations that exchange frames, for the part rate
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Measurement",
          default_value = "1,100,10000", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub pairs: Vec<u64>,
    /// Entries of the forwarding database, for the parts entries and memory
    #[arg(long, value_name = "N", help_heading = "Measurement", default_value_t = 100_000,
          value_parser = clap::value_parser!(u64).range(1_000..=1_000_000))]
    pub entries: u64,
    /// Frame length without the FCS, 64 to 1500
    #[arg(long, value_name = "BYTES", default_value_t = 64, help_heading = "Measurement",
          value_parser = clap::value_parser!(u16).range(64..=1500))]
    pub size: u16,
    /// Duration of each run, after a warm-up
    #[arg(long, value_name = "S", default_value = "1", value_parser = flags::seconds(0.05..=3600.0),
          help_heading = "Measurement")]
    pub seconds: f64,
    /// Repetitions of each run; the switches take turns in every round
    #[arg(long, value_name = "N", default_value_t = 5, help_heading = "Measurement",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,

    /// CPU of the load and of the softirqs that forward [default: the first allowed]
    #[arg(long, value_name = "N", help_heading = "Placement")]
    pub load_cpu: Option<usize>,
    /// CPU of a switch in user space and of other processes [default: the second allowed]
    #[arg(long, value_name = "N", help_heading = "Placement")]
    pub app_cpu: Option<usize>,

    /// Format of the report
    #[arg(long, value_enum, default_value_t = Format::Table, help_heading = "Report")]
    pub format: Format,
    /// Also measure the curves of `weir cost curve` in one and in two guests, and write their charts to
    /// FILE as SVG
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub svg: Option<PathBuf>,
    /// The same charts and all tables, as an HTML page
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub html: Option<PathBuf>,
    /// Overwrite existing files
    #[arg(long, help_heading = "Report")]
    pub force: bool,
}

impl BenchArgs {
    fn options(&self, cpus: &Cpus) -> Options {
        let mut pairs = self.pairs.clone();
        pairs.sort_unstable();
        pairs.dedup();
        Options {
            parts: all_or(&self.part),
            paths: all_or(&self.path),
            pairs,
            entries: self.entries,
            rounds: self.rounds,
            settings: Settings {
                size: self.size,
                window: Duration::from_secs_f64(self.seconds),
                load_cpu: cpus.load,
                app_cpu: cpus.app,
            },
        }
    }

    fn curve_options(&self, cpus: &Cpus) -> curve::run::Options {
        curve::run::Options {
            choices: curve::plan::Choices {
                paths: vec![curve::Path::Bridge, curve::Path::Weir, curve::Path::Ovs],
                rates: RATES.map(Rate).to_vec(),
                receivers: RECEIVERS.to_vec(),
                rounds: self.rounds,
            },
            settings: curve::measure::Settings {
                size: self.size,
                warmup: WARMUP,
                window: Duration::from_secs_f64(self.seconds),
                load_cpu: cpus.load,
                app_cpu: cpus.app,
            },
            guest: None,
        }
    }

    fn file(&self, path: Option<&PathBuf>) -> Result<Option<ReportFile>> {
        path.map(|path| ReportFile::prepare(path, self.force))
            .transpose()
    }
}

/// Each of the items once and in the order of the choices; all choices if there is none.
fn all_or<T: ValueEnum + PartialEq>(items: &[T]) -> Vec<T> {
    let choices = T::value_variants().iter();
    choices
        .filter(|it| items.is_empty() && it.to_possible_value().is_some() || items.contains(it))
        .cloned()
        .collect()
}

/// Runs `weir switch bench`.
pub fn run(args: &BenchArgs) -> Result<ExitCode> {
    let picture = args.file(args.svg.as_ref())?;
    let page = args.file(args.html.as_ref())?;
    let cpus = Cpus::choose(args.load_cpu, args.app_cpu)?;
    let stop = StopSignal::listen()?;
    let report = measure(&args.options(&cpus), &stop, args.format == Format::Table)?;
    print(&report, args.format)?;
    if (picture.is_some() || page.is_some()) && !stop.is_raised() {
        let curve = curve::run::measure(&args.curve_options(&cpus), &stop)?;
        if let Some(file) = picture {
            file.write(&curve::picture::render(&curve)?)?;
        }
        if let Some(file) = page {
            file.write(&html::render(&report, &curve)?)?;
        }
    }
    Ok(if stop.is_raised() {
        ExitCode::from(EXIT_CODE)
    } else if report.failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
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
        bench: BenchArgs,
    }

    fn options(words: &str) -> Options {
        let words = words.split_whitespace();
        let args = Words::try_parse_from(std::iter::once("bench").chain(words));
        let cpus = Cpus::choose(None, None).expect("CPUs");
        args.expect("good words").bench.options(&cpus)
    }

    #[test]
    fn everything_is_the_default() {
        let options = options("");
        assert_eq!(options.parts, Part::value_variants());
        assert!(options.paths.contains(&Path::Ovs) && !options.paths.contains(&Path::Load));
        assert_eq!(options.pairs, [1, 100, 10_000]);
    }

    #[test]
    fn lists_are_sorted_without_duplicates() {
        let options = options("--path ovs,bridge,ovs --part tcp,rate --pairs 9,1,9");
        assert_eq!(options.paths, [Path::Bridge, Path::Ovs]);
        assert_eq!(options.parts, [Part::Rate, Part::Tcp]);
        assert_eq!(options.pairs, [1, 9]);
    }

    #[test]
    fn bad_words_are_refused() {
        for words in ["--path load", "--pairs 0", "--entries 1", "--rounds 0"] {
            let words = std::iter::once("bench").chain(words.split_whitespace());
            assert!(Words::try_parse_from(words).is_err());
        }
    }
}
