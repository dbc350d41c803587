//! `weir cost flame`: its flags.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use crate::cli::{flags, output};
use crate::cost::flame::record::{Options, online, record};
use crate::cost::flame::{summary, svg};
use crate::process::stop::{EXIT_CODE, StopSignal};
use crate::report::ReportFile;
use hostnet::cpulist::CpuList;

const AFTER_HELP: &str = "\
Examples:
  weir cost flame --output packets.svg
      The packet path on all CPUs for ten seconds; open the graph in a browser, click a frame to
      zoom in
  weir cost flame --cpu 2-3 --seconds 30 --all --folded all.txt --output all.svg
      All samples of two CPUs; the stacks in the folded format as well, for other tools
  weir cost flame | sort -k 2 -n
      Folded stacks on standard output, without a graph

Packet path:
  Samples in NET_RX and NET_TX softirqs, NAPI threads, busy polling, vhost, taps, device transmit,
  and system calls on IP, packet and AF_XDP sockets. --all keeps all samples, idle included.

Method:
  A perf event on each CPU runs a BPF program: on CPU cycles if the hardware counts them, else on
  the kernel's cpu-clock; the summary shows which. With cpu-clock, code that runs with interrupts
  disabled is attributed to the place that enables them.
  Kernel functions and BPF programs are named from /proc/kallsyms, user code by its file only.
  Callers may be missing in code built without frame pointers.

Exit status:
  0    sampled, even if no sample is in the packet path
  1    permission denied, or something failed
  2    usage error
  130  interrupted; the samples so far are written";

/// `weir cost flame`
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct FlameArgs {
    /// CPUs to sample, such as 0-3,5 [default: all online]
    #[arg(long, value_name = "LIST")]
    pub cpu: Option<CpuList>,
    /// Duration
    #[arg(long, value_name = "S", default_value = "10", value_parser = flags::seconds(0.1..=3600.0))]
    pub seconds: f64,
    /// Samples per second and CPU; a round number may run in step with timers
    #[arg(long, value_name = "HZ", default_value_t = 999,
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub frequency: u64,
    /// Keep all samples, not only those of the packet path
    #[arg(long)]
    pub all: bool,

    /// Write the flame graph to FILE, as SVG
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub output: Option<PathBuf>,
    /// Write the stacks to FILE, in the folded format [default: standard output, without --output]
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub folded: Option<PathBuf>,
    /// Overwrite existing files
    #[arg(long, help_heading = "Report")]
    pub force: bool,
    /// Title of the graph
    #[arg(
        long,
        value_name = "TEXT",
        requires = "output",
        help_heading = "Report"
    )]
    pub title: Option<String>,
}

/// Runs `weir cost flame`.
pub fn run(args: &FlameArgs) -> Result<ExitCode> {
    let options = Options {
        cpus: online(args.cpu.as_ref())?,
        duration: Duration::from_secs_f64(args.seconds),
        frequency: args.frequency,
        everything: args.all,
    };
    let prepare = |path: &PathBuf| ReportFile::prepare(path, args.force);
    let graph = args.output.as_ref().map(prepare).transpose()?;
    let folded = args.folded.as_ref().map(prepare).transpose()?;
    let stop = StopSignal::listen()?;
    let profile = record(&options, &stop)?;

    eprint!("{}", summary::text(&profile, &options));
    if let Some(file) = &graph {
        let labels = summary::labels(&profile, &options, args.title.as_deref());
        file.write(&svg::render(&profile, &labels))?;
    }
    match &folded {
        Some(file) => file.write(&profile.folded())?,
        None if graph.is_none() => output::print(profile.folded())?,
        None => {}
    }
    Ok(if stop.is_raised() {
        ExitCode::from(EXIT_CODE)
    } else {
        ExitCode::SUCCESS
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Words {
        #[command(flatten)]
        flame: FlameArgs,
    }

    fn parse(words: &str) -> Result<FlameArgs, clap::Error> {
        let words = words.split_whitespace();
        Words::try_parse_from(std::iter::once("flame").chain(words)).map(|it| it.flame)
    }

    #[test]
    fn good_words() {
        let args = parse("").expect("defaults");
        assert_eq!(args.frequency, 999);
        let args = parse("--cpu 0-1,3 --seconds 0.5 --output a.svg --title x").expect("all");
        assert_eq!(args.cpu.expect("a list").as_slice(), [0, 1, 3]);
    }

    #[test]
    fn bad_words_are_refused() {
        for words in [
            "--seconds 0",
            "--seconds 3601",
            "--seconds nan",
            "--frequency 0",
            "--frequency 100001",
            "--cpu x",
            "--cpu 3-1",
            "--title x",
        ] {
            assert!(parse(words).is_err(), "{words}");
        }
    }
}
