//! `weir cost flame`: its flags, and what they mean.

use std::fmt::Write as _;
use std::io::{Write as _, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::flags;
use crate::cost::flame;
use crate::cost::flame::{Clock, Labels, Options, Profile};
use crate::process::stop::{EXIT_CODE, StopSignal};
use crate::report::text::wrap;
use crate::report::{Machine, ReportFile};
use hostnet::cpulist::CpuList;

const AFTER_HELP: &str = "\
Examples:
  weir cost flame --output packets.svg
      Ten seconds of the packet path on all CPUs; a browser opens the graph, and a click on a frame
      enlarges it
  weir cost flame --cpu 2-3 --seconds 30 --all --folded all.txt --output all.svg
      Whatever two CPUs do, with the stacks in the folded format for other tools
  weir cost flame | sort -k 2 -n
      The stacks on standard output, where no file is given

What is the packet path:
  Samples in the softirqs NET_RX and NET_TX, in NAPI threads and busy polling, in vhost and taps, in
  transmission to a device, and in system calls on IP, packet and AF_XDP sockets. --all shows all
  samples, the idle task's among them.

How it is measured:
  By perf events that run a BPF program: the CPU's cycles where the hardware counts them, else the
  kernel's cpu-clock. The summary says which. By cpu-clock, what runs with interrupts off is seen
  where they are switched on again.
  Functions of the kernel and BPF programs have their names from /proc/kallsyms. Code of programs is
  shown by its file, without functions; where it was built without frame pointers, callers may be
  missing.

Exit status:
  0    sampled, even if there was nothing in the packet path
  1    not permitted, or something failed
  2    the command line is wrong
  130  interrupted; what was sampled until then is written";

/// Functions that the summary names.
const LEAVES: usize = 10;

/// Runs that take longer show how far they are.
const SHORT: Duration = Duration::from_secs(2);

/// `weir cost flame`
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct FlameArgs {
    /// CPUs to sample, such as 0-3,5 [default: all that are online]
    #[arg(long, value_name = "LIST")]
    pub cpu: Option<CpuList>,
    /// For how long
    #[arg(long, value_name = "S", default_value = "10", value_parser = flags::seconds(0.1..=3600.0))]
    pub seconds: f64,
    /// Samples a second on each CPU. Not a round number, lest they follow the beat of timers
    #[arg(long, value_name = "HZ", default_value_t = 999,
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub frequency: u64,
    /// All samples, and not those of the packet path alone
    #[arg(long)]
    pub all: bool,

    /// Write the flame graph, an SVG
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub output: Option<PathBuf>,
    /// Write the stacks in the folded format [default: standard output, unless there is --output]
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub folded: Option<PathBuf>,
    /// Replace files that exist
    #[arg(long, help_heading = "Report")]
    pub force: bool,
    /// The heading of the graph
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
    let cpus = cpus(args.cpu.as_ref())?;
    let prepare = |path: &PathBuf| ReportFile::prepare(path, args.force);
    let graph = args.output.as_ref().map(prepare).transpose()?;
    let folded = args.folded.as_ref().map(prepare).transpose()?;
    let stop = StopSignal::listen()?;
    let options = Options {
        cpus: cpus.as_slice().to_vec(),
        duration: Duration::from_secs_f64(args.seconds),
        frequency: args.frequency,
        everything: args.all,
    };
    let bar = progress(&options);
    let profile = flame::sample(&options, &stop, |elapsed| {
        bar.set_position(elapsed.as_secs());
    });
    bar.finish_and_clear();
    let profile = profile?;

    eprint!("{}", summary(&profile, &cpus, args.frequency));
    if let Some(file) = &graph {
        file.write(&flame::render(&profile, &labels(args, &profile, &cpus)))?;
    }
    match &folded {
        Some(file) => file.write(&profile.folded())?,
        None if graph.is_none() => print(&profile.folded())?,
        None => {}
    }
    Ok(if stop.is_raised() {
        ExitCode::from(EXIT_CODE)
    } else {
        ExitCode::SUCCESS
    })
}

/// Any that is online: what is sampled need not be allowed to this process itself.
fn cpus(chosen: Option<&CpuList>) -> Result<CpuList> {
    // Some containers have no sysfs.
    let online = CpuList::online().or_else(|_| CpuList::allowed())?;
    let Some(chosen) = chosen else {
        return Ok(online);
    };
    let is_online = |cpu: &&usize| online.as_slice().contains(cpu);
    if chosen.as_slice().is_empty() {
        bail!("no CPU: choose among {online}");
    }
    match chosen.as_slice().iter().find(|cpu| !is_online(cpu)) {
        Some(cpu) => bail!("CPU {cpu} is offline or does not exist: choose among {online}"),
        None => Ok(chosen.clone()),
    }
}

/// On standard error, and only on a terminal.
fn progress(options: &Options) -> ProgressBar {
    if options.duration <= SHORT {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(options.duration.as_secs());
    if let Ok(style) = ProgressStyle::with_template("sampling {bar:20} {pos}/{len} s") {
        bar.set_style(style.progress_chars("##-"));
    }
    bar
}

fn print(text: &str) -> Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("cannot write to standard output")
}

/// What was sampled, for people.
fn summary(profile: &Profile, cpus: &CpuList, frequency: u64) -> String {
    let mut text = format!("{}\n", sampled(profile, cpus, frequency));
    if profile.named {
        text += &accounts(profile);
    }
    let shown = profile.shown();
    if shown == 0 {
        text += "  nothing to show: no packets came, or they were handled on other CPUs\n";
    } else {
        let _ = writeln!(
            text,
            "functions with most of the {shown} samples shown, without what they call:"
        );
    }
    for (function, samples) in profile.leaves().into_iter().take(LEAVES) {
        let share = percent(samples as f64 / shown as f64);
        let _ = writeln!(text, "  {share:>6} {function}");
    }
    for note in &profile.notes {
        let _ = writeln!(text, "{}", wrap(&format!("note: {note}"), 2));
    }
    text
}

/// By what ran.
fn accounts(profile: &Profile) -> String {
    let counts = &profile.counts;
    let share = |samples| percent(profile.share(samples));
    let rest = match profile.clock {
        Clock::CpuClock => format!(
            "anything else {}, idle {}, without samples {}",
            share(counts.elsewhere()),
            share(counts.idle),
            share(profile.missing())
        ),
        Clock::Cycles => format!(
            "anything else {}; cycles stand still while a CPU is idle: these are of busy time",
            share(counts.elsewhere())
        ),
    };
    format!(
        "  packet path {}: NET_RX {}, NET_TX {}, elsewhere {}\n  {rest}\n",
        share(counts.packet_path()),
        share(counts.net_rx),
        share(counts.net_tx),
        share(counts.other_path),
    )
}

fn sampled(profile: &Profile, cpus: &CpuList, frequency: u64) -> String {
    format!(
        "{} samples, {} lost: CPU {cpus}, {:.1} s, by {} at {frequency} Hz",
        profile.counts.taken,
        profile.counts.lost,
        profile.elapsed.as_secs_f64(),
        profile.clock.name(),
    )
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

fn labels(args: &FlameArgs, profile: &Profile, cpus: &CpuList) -> Labels {
    let what = if profile.packet_path_only {
        "The packet path"
    } else {
        "Everything that ran"
    };
    let title = args.title.clone();
    let machine = Machine::now(CpuList::online().map_or(0, |online| online.as_slice().len()));
    let mut about = sampled(profile, cpus, args.frequency);
    if profile.named {
        let path = percent(profile.share(profile.counts.packet_path()));
        let _ = write!(about, "; packet path {path} of the time");
    }
    let machine = format!("{}, {}", machine.summary(), machine.date);
    Labels {
        title: title.unwrap_or_else(|| format!("{what} on CPU {cpus}")),
        about: [about, machine]
            .into_iter()
            .chain(profile.notes.iter().map(|note| format!("Note: {note}")))
            .flat_map(|line| wrap(&line, 0).lines().map(String::from).collect::<Vec<_>>())
            .collect(),
    }
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

    #[test]
    fn a_cpu_that_is_not_there_is_refused() {
        let list: CpuList = "1023".parse().expect("a list");
        let said = cpus(Some(&list)).expect_err("not there").to_string();
        assert!(
            said.contains("CPU 1023 is offline or does not exist"),
            "{said}"
        );
        assert!(cpus(Some(&CpuList::default())).is_err());
    }
}
