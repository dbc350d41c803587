//! How long it takes from asking for a socket to the first packet on it, while a packet comes
//! every 100 µs: on a device that nobody used, right after a close, and right after the
//! socket's owner was killed. Needs root.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use std::{env, thread};

use anyhow::{Context, Result, bail, ensure};
use hostnet::netns;
use weir::lab::{Lab, LabConfig, Side};
use weir::traffic::frame::{APP_MAC, LOAD_MAC, Template};
use xsk::{Mode, Socket, Umem, Wait};

const ROUNDS: usize = 15;
const LONGEST: Duration = Duration::from_secs(5);
/// Set for the process that is to be killed while it holds a socket.
const OWNER: &str = "WEIR_FIRST_PACKET_OWNER";

fn main() -> Result<()> {
    if let Ok(mode) = env::var(OWNER) {
        return own(parse(&mode));
    }
    // `cargo test --all-targets` runs it without this word, to see whether it builds.
    if !env::args().any(|word| word == "--bench") {
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() {
        println!("skipped: making a lab needs root");
        return Ok(());
    }
    println!("milliseconds from opening a socket to its first packet, {ROUNDS} rounds:");
    println!("{:28} {:>7} {:>7} {:>7}", "", "min", "median", "max");
    for mode in ["skb", "drv"] {
        report(
            mode,
            "unused device",
            &rounds(mode, |_| Ok(Instant::now()))?,
        );
        report(mode, "after a close", &rounds(mode, close)?);
        report(
            mode,
            "after kill -9 of the owner",
            &rounds(mode, |lab| kill(lab, mode))?,
        );
    }
    Ok(())
}

fn parse(mode: &str) -> Mode {
    if mode == "skb" {
        Mode::Skb
    } else {
        Mode::Driver
    }
}

fn report(mode: &str, case: &str, times: &[f64]) {
    let (first, middle, last) = (times[0], times[times.len() / 2], times[times.len() - 1]);
    println!(
        "{:28} {first:7.1} {middle:7.1} {last:7.1}",
        format!("{mode} {case}")
    );
}

/// Opens a socket in a fresh lab, once for each round; `before` says when the clock starts.
fn rounds(mode: &str, before: impl Fn(&Lab) -> Result<Instant> + Sync) -> Result<Vec<f64>> {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let lab = Lab::anonymous(&LabConfig::default())?;
        let stop = AtomicBool::new(false);
        let time = thread::scope(|scope| {
            let sender = scope.spawn(|| send(lab.load(), &stop));
            let time = once(&lab, mode, &before);
            stop.store(true, Relaxed);
            let sent = sender
                .join()
                .unwrap_or_else(|_| bail!("the sender panicked"));
            time.and_then(|time| sent.map(|()| time))
        });
        times.push(time?);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

fn once(lab: &Lab, mode: &str, before: impl Fn(&Lab) -> Result<Instant>) -> Result<f64> {
    let start = before(lab)?;
    // Not the time now: the socket has been closed since.
    let came = netns::run_in(lab.app().netns(), || {
        first_packet(&lab.app().device, parse(mode))
    })?;
    Ok(came.duration_since(start).as_secs_f64() * 1e3)
}

/// Opens a socket and tells when its first packet came.
fn first_packet(device: &str, mode: Mode) -> Result<Instant> {
    let umem = Umem::builder().build()?;
    let mut socket = Socket::builder(&umem, device, 0)
        .mode(mode)
        .wait(Wait::Poll)
        .open()?;
    ensure!(socket.wait(LONGEST)?, "no packet came in {LONGEST:?}");
    Ok(Instant::now())
}

/// The clock starts when a socket has just been closed.
fn close(lab: &Lab) -> Result<Instant> {
    netns::run_in(lab.app().netns(), || {
        first_packet(&lab.app().device, Mode::Driver)
    })?;
    Ok(Instant::now())
}

/// The clock starts when the owner of a socket is killed.
fn kill(lab: &Lab, mode: &str) -> Result<Instant> {
    let mut command = Command::new(env::current_exe()?);
    command.env(OWNER, mode).stdout(Stdio::piped());
    let mut owner = lab.app().spawn(&mut command)?;
    let line = first_line(&mut owner)?;
    let start = Instant::now();
    owner.kill()?;
    owner.wait()?;
    ensure!(line.trim() == "open", "the owner failed: {line}");
    Ok(start)
}

/// Holds a socket until killed.
fn own(mode: Mode) -> Result<()> {
    let umem = Umem::builder().build()?;
    let mut socket = Socket::builder(&umem, "weir0", 0)
        .mode(mode)
        .wait(Wait::Poll)
        .open()?;
    ensure!(socket.wait(LONGEST)?, "no packet came in {LONGEST:?}");
    println!("open");
    let deadline = Instant::now() + LONGEST;
    while Instant::now() < deadline {
        socket.wait(LONGEST)?;
        drop(socket.recv(64));
    }
    Ok(())
}

/// Sends a packet every 100 µs. The bench's own load would never let go of its CPU, and setting
/// up and removing XDP programs waits for every CPU to let go once.
fn send(side: &Side, stop: &AtomicBool) -> Result<()> {
    netns::run_in(side.netns(), || {
        let template = Template::new(64, LOAD_MAC, APP_MAC)?;
        let umem = Umem::builder().chunks(64).build()?;
        let mut socket = Socket::builder(&umem, &side.device, 0).rx_ring(0).open()?;
        while !stop.load(Relaxed) {
            if let Some(mut frame) = socket.alloc() {
                frame.fill_with(template.bytes())?;
                let _ = socket.send(frame);
                socket.flush()?;
            }
            thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    })
}

fn first_line(child: &mut Child) -> Result<String> {
    let mut line = String::new();
    let output = child.stdout.as_mut().context("its output is read here")?;
    BufReader::new(output).read_line(&mut line)?;
    Ok(line)
}
