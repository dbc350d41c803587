//! `weir top`: its flags.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::cli::flags::{self, Format};
use crate::cli::output;
use crate::ledger::read::Scope;
use crate::process::stop::{EXIT_CODE, StopSignal};
use crate::top::live::{self, End, Live};
use crate::top::priced::Priced;
use crate::top::record::Recording;
use crate::top::view::{Scene, View};
use crate::top::{once, terminal};

const AFTER_HELP: &str = "\
Examples:
  weir top
      This host: devices, CPUs, BPF programs, AF_XDP sockets, drops, processes
  weir top --netns web --interval 0.5
      One network namespace, twice a second
  weir top --record host.weir
      The same, and each frame into a file
  weir top --replay host.weir
      The file, as the host was
  weir top --once --format json
      One interval, for scripts

Keys: ? lists them. e explains the number under the cursor: where it is read, its scope, its
exclusions, the check of `weir doctor` and the command that belong to it.

Cost: CPUs, NAPI and Tasks attach tracepoints, and BPF makes the kernel measure each run of each
program, only while one of them is shown; the view prints the price. The rest reads counters.

Requirements: root, for the drops, AF_XDP sockets, other namespaces and other users' processes; as an
ordinary user the counters of this namespace. The key i lists the sources that are hidden.

Exit status:
  0    ended by a key, or printed
  1    something failed
  2    usage error
  130  ended by a signal, or with the terminal";

/// `weir top`
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct TopArgs {
    /// Only these devices, in each namespace [default: all, and the sockets behind them]
    #[arg(long, value_name = "IF", num_args = 1.., conflicts_with = "replay")]
    pub dev: Vec<String>,
    /// Only these network namespaces: names of `ip netns`, files, ids of processes, containers, or
    /// `net:[INODE]` [default: all of the host]
    #[arg(long, value_name = "NAME", num_args = 1.., conflicts_with = "replay")]
    pub netns: Vec<String>,
    /// Seconds between two frames
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = flags::seconds(0.1..=3600.0))]
    pub interval: f64,
    /// The view that is shown first; of a table of --once the only one
    #[arg(long, value_enum)]
    pub view: Option<ViewName>,
    /// Append each frame to a file; without a terminal, until a signal comes
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    pub record: Option<PathBuf>,
    /// Measure these also while they are not shown, such as for a recording
    #[arg(long, value_enum, value_name = "PART", num_args = 1.., conflicts_with = "replay")]
    pub measure: Vec<Part>,
    /// Show a recording; with --once its last interval
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,
    /// Print one interval, and end
    #[arg(long)]
    pub once: bool,
    /// Format of --once
    #[arg(long, value_enum, default_value_t = Format::Table, requires = "once")]
    pub format: Format,
    /// No colours; an environment with `NO_COLOR` does the same
    #[arg(long)]
    pub no_color: bool,
}

/// A part that costs something while it is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// The time of CPUs, NAPI instances and processes
    Cpus,
    /// The run time of BPF programs
    Programs,
}

/// A view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[expect(missing_docs, reason = "the names are those of the views")]
pub enum ViewName {
    Devices,
    Queues,
    Cpus,
    Napi,
    Tasks,
    Bpf,
    AfXdp,
    Drops,
    Processes,
    Sockets,
}

impl ViewName {
    fn view(self) -> View {
        match self {
            Self::Devices => View::Devices,
            Self::Queues => View::Queues,
            Self::Cpus => View::Cpus,
            Self::Napi => View::Napi,
            Self::Tasks => View::Tasks,
            Self::Bpf => View::Programs,
            Self::AfXdp => View::XdpSockets,
            Self::Drops => View::Drops,
            Self::Processes => View::Processes,
            Self::Sockets => View::Sockets,
        }
    }
}

/// Runs `weir top`.
pub fn run(args: &TopArgs) -> Result<ExitCode> {
    let is_coloured = !args.no_color && terminal::has_colour();
    let view = args.view.map(ViewName::view);
    let every = Duration::from_secs_f64(args.interval);
    let measure: BTreeSet<_> = args.measure.iter().map(|part| part.priced()).collect();
    let end = if let Some(file) = &args.replay {
        let mut recording = Recording::open(file)?;
        if args.once {
            if let Some(damage) = recording.damage() {
                eprintln!("weir: {}: {damage}", file.display());
            }
            return print(&once::of_recording(&mut recording)?, args.format, view);
        }
        live::replay(recording, view, is_coloured)?
    } else if args.once {
        let scene = once::interval(args.scope(), every, args.record.as_deref())?;
        return print(&scene, args.format, view);
    } else if let (Some(file), Err(_)) = (&args.record, terminal::check()) {
        let stop = StopSignal::listen()?;
        once::record(args.scope(), every, file, measure, &stop)?;
        return Ok(ExitCode::from(EXIT_CODE));
    } else {
        live::live(Live {
            scope: args.scope(),
            every,
            record: args.record.as_deref(),
            measure,
            view,
            is_coloured,
        })?
    };
    Ok(match end {
        End::Quit => ExitCode::SUCCESS,
        End::Stopped => ExitCode::from(EXIT_CODE),
    })
}

impl TopArgs {
    fn scope(&self) -> Scope {
        Scope {
            namespaces: self.netns.clone(),
            all: self.netns.is_empty(),
            devices: self.dev.clone(),
        }
    }
}

impl Part {
    fn priced(self) -> Priced {
        match self {
            Self::Cpus => Priced::Cpus,
            Self::Programs => Priced::Programs,
        }
    }
}

fn print(scene: &Scene, format: Format, view: Option<View>) -> Result<ExitCode> {
    let views = view.map_or(View::ALL.to_vec(), |view| vec![view]);
    output::print(match format {
        Format::Json => output::json(&once::json(scene))?,
        Format::Table => once::tables(scene, &views),
    })?;
    Ok(ExitCode::SUCCESS)
}
