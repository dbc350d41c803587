//! `weir ledger`: its flags.

use std::fs;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Args;
use hostnet::cpulist::CpuList;

use crate::cli::flags::{self, Format};
use crate::cli::output;
use crate::ledger::capture::abi::MAX_SNAPLEN;
use crate::ledger::capture::options::{MAX_BYTES, SNAPLEN};
use crate::ledger::capture::{Capture, CaptureReport, Options};
use crate::ledger::read::{Reader, Scope};
use crate::ledger::report::Report;
use crate::ledger::{Sheet, Snapshot, balance, since_boot, table};
use crate::process::stop::{EXIT_CODE, StopSignal};
use crate::process::user_command::UserCommand;
use crate::report::{Machine, ReportFile};

const AFTER_HELP: &str = "\
Examples:
  weir ledger --seconds 10
      This network namespace for ten seconds
  weir ledger --all-netns -- iperf3 -c 192.0.2.1 -u -b 1G
      The whole host while a command runs
  weir ledger --since boot
      Counters since the boot; losses are known by counters alone
  weir ledger --seconds 60 --write drops.pcapng
      Also a file of the packets that were dropped, each with its reason and place, for Wireshark and tshark
  weir ledger --save before.json; ...; weir ledger --since before.json
      Between two moments, by counters alone

Requirements:
  root for losses by reason, place, socket and process, and for other network namespaces
  without privilege: the counters of this network namespace; the rest is listed as not seen

Exit status:
  0    the report was printed
  1    something failed
  2    usage error
  130  interrupted; the report so far is printed
  N    exit status of COMMAND, if it failed";

/// The default interval.
const SECONDS: f64 = 5.0;
/// How often a wait looks for a signal and for the end of the command.
const LOOK: Duration = Duration::from_millis(20);
/// How often sockets are looked at: shorter than most that are worth a name live.
const LOOK_AT_SOCKETS: Duration = Duration::from_millis(250);
/// The time for packets in flight to arrive when a command has ended.
const SETTLE: Duration = Duration::from_millis(50);

/// `weir ledger`
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct LedgerArgs {
    /// Watch only these devices, and nothing behind them [default: all devices of the namespace]
    #[arg(long, value_name = "IF", num_args = 1..)]
    pub dev: Vec<String>,
    /// Watch these network namespaces: a name of `ip netns`, a file, the id of a process or container
    #[arg(long, value_name = "NETNS", num_args = 1.., conflicts_with = "all_netns")]
    pub netns: Vec<String>,
    /// Watch all network namespaces of the host
    #[arg(long)]
    pub all_netns: bool,
    /// Duration [default: 5, or until COMMAND ends]
    #[arg(long, value_name = "N", value_parser = flags::seconds(0.1..=86_400.0), conflicts_with = "since")]
    pub seconds: Option<f64>,
    /// Compare with the boot, or with a file of --save, instead of watching
    #[arg(long, value_name = "boot|FILE", conflicts_with = "run")]
    pub since: Option<String>,
    /// Write the counters at the end to a file for --since
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Count successes too (received packets, XDP redirects): costs 3 to 80 ns for each packet
    #[arg(long, conflicts_with = "since")]
    pub deep: bool,
    /// Format of the report
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Write the report as a page to a file, too
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the dropped packets to a pcapng file, each with the reason and the place
    #[arg(long, value_name = "FILE", conflicts_with = "since")]
    pub write: Option<PathBuf>,
    /// Write packets that were freed in normal operation, too
    #[arg(long, requires = "write")]
    pub write_all: bool,
    /// Bytes of each packet that --write keeps
    #[arg(long, value_name = "N", default_value_t = SNAPLEN, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SNAPLEN)), requires = "write")]
    pub snaplen: u32,
    /// End the file of --write after so many packets
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), requires = "write")]
    pub max_packets: Option<u64>,
    /// End the file of --write before it has more bytes
    #[arg(long, value_name = "N", default_value_t = MAX_BYTES, value_parser = clap::value_parser!(u64).range(1..), requires = "write")]
    pub max_bytes: u64,
    /// Overwrite existing files
    #[arg(long)]
    pub force: bool,
    /// Command to run meanwhile, without standard input; its process group ends with the interval
    #[arg(last = true, value_name = "COMMAND")]
    pub run: Vec<String>,
}

/// How an interval ended.
struct Ended {
    interrupted: bool,
    command: Option<ExitStatus>,
}

/// Runs `weir ledger`.
pub fn run(args: &LedgerArgs) -> Result<ExitCode> {
    let stop = StopSignal::listen()?;
    let prepare = |path: &PathBuf| ReportFile::prepare(path, args.force);
    let html = args.html.as_ref().map(prepare).transpose()?;
    let save = args.save.as_ref().map(prepare).transpose()?;
    let mut reader = Reader::open(args.scope(), args.deep);
    // It begins before the interval and ends after it, so that it has every packet of the interval.
    let start = |path: &PathBuf| Capture::start(path, args.capture());
    let capture = args.write.as_ref().map(start).transpose()?;
    let (sheet, last, ended) = match args.since.as_deref() {
        None => watch(args, &mut reader, &stop)?,
        Some(since) => compare(since, &mut reader)?,
    };
    let capture = capture.map(Capture::finish).transpose()?;
    let report = Report {
        host: Machine::now(CpuList::allowed()?.as_slice().len()),
        scope: describe(args, &last),
        since_boot: args.since.as_deref() == Some("boot"),
        notes: notes(args, &reader, capture.as_ref()),
        capture,
        sheet,
    };
    output::print(match args.format {
        Format::Table => table::render(&report),
        Format::Json => output::json(&report)?,
    })?;
    if let Some(file) = save {
        file.write(&serde_json::to_string(&last)?)?;
    }
    if let Some(file) = html {
        file.write(&crate::ledger::html::page(&report))?;
    }
    Ok(match ended.command {
        _ if ended.interrupted => ExitCode::from(EXIT_CODE),
        Some(status) => output::exit_code(status),
        None => ExitCode::SUCCESS,
    })
}

impl LedgerArgs {
    fn scope(&self) -> Scope {
        Scope {
            namespaces: self.netns.clone(),
            all: self.all_netns,
            devices: self.dev.clone(),
        }
    }

    fn capture(&self) -> Options {
        Options {
            scope: self.scope(),
            snaplen: self.snaplen,
            normal: self.write_all,
            max_packets: self.max_packets.unwrap_or(u64::MAX),
            max_bytes: self.max_bytes,
            replace: self.force,
            ..Options::default()
        }
    }
}

fn watch(
    args: &LedgerArgs,
    reader: &mut Reader,
    stop: &StopSignal,
) -> Result<(Sheet, Snapshot, Ended)> {
    let before = reader.snapshot()?;
    let redirect = args.format == Format::Json;
    let mut command = UserCommand::start(&args.run, redirect)?;
    let limit = args.seconds.or(command.is_none().then_some(SECONDS));
    let limit = limit.map(Duration::from_secs_f64);
    let bar = output::progress_bar(limit);
    let begun = Instant::now();
    let mut looked = begun;
    let mut ended = Ended {
        interrupted: false,
        command: None,
    };
    while limit.is_none_or(|limit| begun.elapsed() < limit) {
        if let Some(command) = &mut command {
            ended.command = command.try_wait()?;
        }
        ended.interrupted = stop.is_raised();
        if ended.interrupted || ended.command.is_some() {
            break;
        }
        if looked.elapsed() >= LOOK_AT_SOCKETS {
            // An error here is a gap of the snapshots.
            let _ = reader.look_at_sockets();
            looked = Instant::now();
        }
        bar.set_position(begun.elapsed().as_millis() as u64);
        let left = limit.map(|limit| limit.saturating_sub(begun.elapsed()));
        sleep(left.map_or(LOOK, |left| left.min(LOOK)));
    }
    bar.finish_and_clear();
    if let (Some(command), None) = (&mut command, ended.command) {
        command.end()?;
    }
    if command.is_some() {
        sleep(SETTLE);
    }
    let after = reader.snapshot()?;
    Ok((balance(&before, &after)?, after, ended))
}

fn compare(since: &str, reader: &mut Reader) -> Result<(Sheet, Snapshot, Ended)> {
    let after = reader.snapshot()?;
    let sheet = if since == "boot" {
        since_boot(&after)?
    } else {
        let text = fs::read_to_string(since)
            .with_context(|| format!("cannot read {since}: name 'boot', or a file of --save"))?;
        let before = serde_json::from_str(&text)
            .with_context(|| format!("{since} is no whole file of `weir ledger --save`"))?;
        balance(&before, &after).with_context(|| format!("cannot compare with {since}"))?
    };
    let ended = Ended {
        interrupted: false,
        command: None,
    };
    Ok((sheet, after, ended))
}

fn describe(args: &LedgerArgs, snapshot: &Snapshot) -> String {
    let names = snapshot
        .namespaces
        .values()
        .map(|namespace| namespace.name.as_str());
    let names: Vec<&str> = names.collect();
    let scope = match names[..] {
        [] => "no network namespace: none could be read".to_owned(),
        _ if args.all_netns => format!("this host, {} network namespaces", names.len()),
        [name] => format!("the network namespace {name}"),
        _ => format!("the network namespaces {}", names.join(", ")),
    };
    if args.dev.is_empty() {
        return scope;
    }
    format!("{} in {scope}", args.dev.join(", "))
}

fn notes(args: &LedgerArgs, reader: &Reader, capture: Option<&CaptureReport>) -> Vec<String> {
    let mut notes = Vec::new();
    if args.since.is_none() && reader.refusal().is_none() {
        notes.push(
            "Cost: tracepoints of errors only; nothing for packets that are not lost, about 50 ns for each lost one."
                .to_owned(),
        );
    }
    if args.deep {
        notes.push(
            "--deep: 3 to 7 ns for each packet that a device hands to the stack, 25 to 80 ns for each redirected frame."
                .into(),
        );
    }
    notes.extend(capture.iter().flat_map(|capture| capture.text()));
    notes
}
