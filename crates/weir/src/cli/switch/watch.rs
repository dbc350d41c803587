//! `weir switch watch`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use comfy_table::{Cell, CellAlignment, Row, presets};
use serde::Deserialize;

use super::socket::SocketArgs;
use super::status::Status;
use crate::bpf;
use crate::cli::flags::seconds;
use crate::cli::output;
use crate::process::stop::{EXIT_CODE, StopSignal};
use crate::report::text::{plain, table, unframed};
use crate::switch::daemon::Report;
use crate::switch::daemon::request::{Request, ask};
use crate::switch::samples::SampleFile;
use crate::switch::status::{BridgeStatus, PortStatus};

const HELP: &str = "\
Examples:
  weir switch watch
      Rates of all bridges, once a second, until Ctrl-C
  weir switch watch br0 --write frames.pcapng --one-in 100 --seconds 10
      Write every hundredth frame that is forwarded on br0, on average

Exit status:
  0    after --seconds
  1    no such bridge, no daemon, or no root
  2    invalid arguments
  130  after Ctrl-C";

/// `weir switch watch`
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct WatchArgs {
    /// Bridge [default: all]
    pub bridge: Option<String>,
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Time to watch [default: until Ctrl-C]
    #[arg(long, value_name = "S", value_parser = seconds(1.0..=86400.0))]
    pub seconds: Option<f64>,
    /// Write sampled frames to this pcapng file
    #[arg(long, value_name = "FILE", requires = "bridge")]
    pub write: Option<PathBuf>,
    /// Sample one in so many frames, on average
    #[arg(long, value_name = "N", default_value_t = 1000, requires = "write",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub one_in: u64,
}

/// The time between two tables.
const PERIOD: Duration = Duration::from_secs(1);

/// Runs `weir switch watch`.
pub fn run(args: &WatchArgs) -> Result<ExitCode> {
    let stop = StopSignal::listen()?;
    let end = args
        .seconds
        .map(|it| Instant::now() + Duration::from_secs_f64(it));
    let is_over = || stop.is_raised() || end.is_some_and(|end| Instant::now() >= end);
    match (&args.write, &args.bridge) {
        (Some(file), Some(bridge)) => sample(args, file, bridge, is_over)?,
        (Some(_), None) => bail!("name the bridge to sample"),
        (None, _) => watch(args, is_over)?,
    }
    Ok(if stop.is_raised() {
        EXIT_CODE.into()
    } else {
        ExitCode::SUCCESS
    })
}

fn watch(args: &WatchArgs, is_over: impl Fn() -> bool) -> Result<()> {
    let mut before = ask_status(args)?;
    let mut then = Instant::now();
    while !is_over() {
        std::thread::sleep(PERIOD);
        let now = ask_status(args)?;
        let elapsed = then.elapsed().as_secs_f64();
        then = Instant::now();
        for report in &now.bridges {
            output::print(rates(report, &before, elapsed))?;
        }
        before = now;
    }
    Ok(())
}

fn ask_status(args: &WatchArgs) -> Result<Status> {
    Status::ask(&args.socket.socket, args.bridge.as_deref())
}

fn bridge_of<'s>(status: &'s Status, name: &str) -> Option<&'s BridgeStatus> {
    status.bridges.iter().find_map(|report| match report {
        Report::Attached(status) if status.bridge == name => Some(&**status),
        _ => None,
    })
}

fn rates(report: &Report, before: &Status, elapsed: f64) -> String {
    let status = match report {
        Report::Attached(status) => status,
        Report::Waiting { bridge, why } => {
            return format!("{}: waits: {}\n", plain(bridge), plain(why));
        }
    };
    let earlier = bridge_of(before, &status.bridge);
    let mut table = table(presets::NOTHING);
    table.set_header([
        "port",
        "hook",
        "received/s",
        "sent/s",
        "not forwarded/s",
        "mostly",
    ]);
    for port in &status.ports {
        let earlier = earlier.and_then(|it| it.ports.iter().find(|it| it.port == port.port));
        table.add_row(row(port, earlier, elapsed));
    }
    let mut text = format!(
        "{}: {} addresses\n",
        plain(&status.bridge),
        status.addresses
    );
    if let Some(why) = &status.why_not {
        let _ = writeln!(text, "left to the kernel: {}", plain(why));
    }
    text += &(unframed(table) + "\n");
    let known = earlier.map_or(&[][..], |it| &it.news);
    for news in status.news.iter().filter(|news| !known.contains(news)) {
        let _ = writeln!(text, "! {}", plain(news));
    }
    text + "\n"
}

fn row(port: &PortStatus, earlier: Option<&PortStatus>, elapsed: f64) -> Row {
    let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / elapsed;
    let before = |count: fn(&PortStatus) -> u64| earlier.map_or(0, count);
    let reasons = port.reasons.iter().map(|(reason, count)| {
        let before = earlier
            .and_then(|it| it.reasons.get(reason))
            .copied()
            .unwrap_or(0);
        (rate(*count, before), reason)
    });
    let reasons: Vec<(f64, &String)> = reasons.filter(|(rate, _)| *rate > 0.0).collect();
    let most = reasons
        .iter()
        .max_by(|one, other| one.0.total_cmp(&other.0));
    let figures = [
        rate(port.received.packets, before(|it| it.received.packets)),
        rate(port.sent.packets, before(|it| it.sent.packets)),
        reasons.iter().fold(0.0, |sum, (rate, _)| sum + rate),
    ];
    let words = [&port.port, &port.hook].map(|word| Cell::new(plain(word)));
    let figures =
        figures.map(|figure| Cell::new(format!("{figure:.0}")).set_alignment(CellAlignment::Right));
    let most = most.map_or_else(String::new, |(_, reason)| (*reason).clone());
    Row::from(words.into_iter().chain(figures).chain([Cell::new(most)]))
}

#[derive(Debug, Deserialize)]
struct Samples {
    map: u32,
    /// Of the daemon's network namespace, which may be another one than this process's.
    ports: BTreeMap<u32, String>,
}

fn sample(args: &WatchArgs, path: &Path, bridge: &str, is_over: impl Fn() -> bool) -> Result<()> {
    let request = Request::Sample {
        bridge: bridge.to_owned(),
        one_in: args.one_in,
    };
    // Before a file is made.
    let mut samples: Samples = ask(&args.socket.socket, &request)?;
    let shown = path.display();
    let output = File::create(path).with_context(|| format!("cannot write {shown}"))?;
    let mut output = BufWriter::new(output);
    let mut file = SampleFile::new(&mut output)?;
    file.name_ports(samples.ports);
    let mut asked = Instant::now();
    while !is_over() {
        if asked.elapsed() >= PERIOD {
            samples = ask(&args.socket.socket, &request)?;
            file.name_ports(samples.ports);
            asked = Instant::now();
        }
        let mut result = Ok(());
        bpf::read_ring(samples.map, PERIOD / 10, |record| {
            if result.is_ok() {
                result = file.add(record);
            }
        })?;
        result?;
    }
    let frames = file.frames;
    drop(file);
    output
        .flush()
        .with_context(|| format!("cannot write {shown}"))?;
    eprintln!("{shown}: {frames} frames");
    Ok(())
}
