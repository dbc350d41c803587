//! The cost of watching: a saturated l2fwd, a saturated UDP receiver, one that loses nothing, and a TCP connection
//! beside `weir ledger`, `weir top` and `weir exporter`, and alone, in turns. A word chooses the loads that have it in
//! their names. Needs root.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use weir::report::statistics::median;

const ROUNDS: usize = 9;
/// As long as those of `weir bench` and `weir cost curve`.
const LOAD: Duration = Duration::from_secs(1);
/// How long a watcher may take to attach its tracepoints, or to listen.
const BEGIN: Duration = Duration::from_millis(700);
const WATCHERS: [&str; 3] = ["ledger", "top", "exporter"];
/// Scrapes of the exporter: one a second, fifteen times as many as usual.
const SCRAPE: Duration = Duration::from_secs(1);

fn main() -> Result<()> {
    // `cargo test --all-targets` runs it without this word, to see whether it builds.
    if !env::args().any(|word| word == "--bench") {
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() {
        println!("skipped: making a lab needs root");
        return Ok(());
    }
    let part = env::args().skip(1).find(|word| !word.starts_with('-'));
    println!("Packets a second beside a watcher and alone, in turns, {ROUNDS} rounds:");
    println!(
        "{:14} {:9} {:>9} {:>9} {:>7} {:>12}  ratios",
        "load", "watcher", "alone", "beside", "ratio", "CPU"
    );
    for (load, run) in [
        ("l2fwd drv", forward as fn() -> Result<f64>),
        ("UDP receiver", receive),
        ("UDP CPU", receive_all),
        ("TCP echo", echo),
    ] {
        if part.as_ref().is_some_and(|part| !load.contains(part)) {
            continue;
        }
        for watcher in WATCHERS {
            compare(load, run, watcher)?;
        }
    }
    Ok(())
}

fn compare(load: &str, run: fn() -> Result<f64>, watcher: &str) -> Result<()> {
    let (mut ratios, mut alone, mut beside, mut percents) = (vec![], vec![], vec![], vec![]);
    for round in 0..ROUNDS {
        // The second run may have warmer caches, so the order alternates.
        let first = (round % 2 == 0).then(run).transpose()?;
        let watching = Watcher::start(watcher)?;
        let pps = run()?;
        percents.push(watching.end()?);
        let without = first.map_or_else(run, Ok)?;
        ratios.push(pps / without);
        alone.push(without / 1e6);
        beside.push(pps / 1e6);
    }
    let lowest = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = ratios.iter().copied().fold(0.0, f64::max);
    let middle = |values: Vec<f64>| median(values.into_iter()).unwrap_or_default();
    println!(
        "{load:14} {watcher:9} {:7.2} M {:7.2} M {:7.3} {:7.2}% of one  {lowest:.3} to {highest:.3}",
        middle(alone),
        middle(beside),
        middle(ratios),
        middle(percents),
    );
    Ok(())
}

fn weir() -> Command {
    Command::new(env!("CARGO_BIN_EXE_weir"))
}

fn report(arguments: &str) -> Result<Value> {
    let output = weir().args(arguments.split_whitespace()).output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "weir {arguments}: {error}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Packets a second of l2fwd.
fn forward() -> Result<f64> {
    let report =
        report("bench l2fwd --lab --engine xsk --mode drv --rounds 1 --seconds 1 --format json")?;
    report["runs"][0]["pps"].as_f64().context("no rate")
}

/// Datagrams a second of a receiver that gets more than it can read.
fn receive() -> Result<f64> {
    received("2M", "delivered_pps")
}

/// Datagrams that the CPUs could handle in a second at the price of each of these, none of which is lost.
fn receive_all() -> Result<f64> {
    Ok(1e9 / received("300K", "total_ns_per_packet")?)
}

fn received(pps: &str, figure: &str) -> Result<f64> {
    let report = report(&format!(
        "cost curve --path stack --receivers 1 --pps {pps} --seconds 1 --format json"
    ))?;
    report["points"][0][figure].as_f64().context("no figure")
}

/// Segments a second of a connection in which each byte is answered by one: none is lost, and each goes through the
/// whole stack.
fn echo() -> Result<f64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let server = thread::spawn(move || -> std::io::Result<()> {
        let mut byte = [0];
        while server.read(&mut byte)? == 1 {
            server.write_all(&byte)?;
        }
        Ok(())
    });
    let (begun, mut segments) = (Instant::now(), 0);
    while begun.elapsed() < LOAD {
        client.write_all(&[1])?;
        client.read_exact(&mut [0])?;
        segments += 2;
    }
    let seconds = begun.elapsed().as_secs_f64();
    drop(client);
    server.join().ok().context("the server panicked")??;
    Ok(f64::from(segments) / seconds)
}

/// A watcher that runs.
struct Watcher {
    child: Child,
    begun: Instant,
    cpu: f64,
    scraper: Option<(Arc<AtomicBool>, JoinHandle<Result<()>>)>,
    /// The exporter's socket, or the recording of `weir top`.
    file: PathBuf,
}

impl Watcher {
    fn start(name: &str) -> Result<Self> {
        let file = env::temp_dir().join(format!("weir-watching-{}", std::process::id()));
        let listen = format!("unix:{}", file.display());
        let mut command = weir();
        match name {
            "ledger" => command.args(["ledger", "--all-netns", "--seconds", "600"]),
            "top" => command.args(["top", "--record"]).arg(&file),
            _ => command.args(["exporter", "--listen", &listen]),
        };
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.process_group(0).spawn()?;
        sleep(BEGIN);
        let scraper = (name == "exporter").then(|| {
            let stop = Arc::new(AtomicBool::new(false));
            let (theirs, path) = (Arc::clone(&stop), file.clone());
            (stop, thread::spawn(move || scrape(&path, &theirs)))
        });
        Ok(Self {
            begun: Instant::now(),
            cpu: cpu_seconds(child.id())?,
            child,
            scraper,
            file,
        })
    }

    /// Ends it; the CPU time that it took since it was ready, in percent of one CPU.
    fn end(mut self) -> Result<f64> {
        let used = cpu_seconds(self.child.id())? - self.cpu;
        let percent = used / self.begun.elapsed().as_secs_f64() * 100.0;
        if let Some((stop, scraper)) = self.scraper.take() {
            stop.store(true, Ordering::Relaxed);
            scraper.join().ok().context("the scraper panicked")??;
        }
        ensure!(
            self.child.try_wait()?.is_none(),
            "the watcher ended by itself"
        );
        let group = Pid::from_raw(self.child.id().cast_signed()).context("a process")?;
        kill_process_group(group, Signal::TERM)?;
        self.child.wait()?;
        // The exporter removes it itself.
        let _ = fs::remove_file(&self.file);
        Ok(percent)
    }
}

fn scrape(socket: &PathBuf, stop: &AtomicBool) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        let mut stream = UnixStream::connect(socket).context("the exporter does not listen")?;
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        ensure!(page.contains("weir_"), "no metrics: {page}");
        sleep(SCRAPE);
    }
    Ok(())
}

/// The CPU time of the processes of a group.
fn cpu_seconds(group: u32) -> Result<f64> {
    let mut ticks = 0;
    for entry in fs::read_dir("/proc")?.flatten() {
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        // proc(5): behind the name in parentheses state, ppid, pgrp are the first fields; utime, stime 12th, 13th.
        let Some((_, rest)) = stat.rsplit_once(')') else {
            continue;
        };
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |index: usize| {
            fields
                .get(index)
                .and_then(|field| field.parse::<u64>().ok())
        };
        if number(2) == Some(group.into()) {
            ticks += number(11).unwrap_or(0) + number(12).unwrap_or(0);
        }
    }
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}
