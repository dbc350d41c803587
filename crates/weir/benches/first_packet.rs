//! How long it takes from asking for a socket to the first packet on it, under a load of 100,000
//! packets a second: on a device that nobody used, right after a close, and right after the
//! socket's owner was killed. Needs root.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use weir::lab::{Lab, LabConfig, Side, netns};
use xsk::{Mode, Socket, Umem, Wait};

const ROUNDS: usize = 15;
const LONGEST: Duration = Duration::from_secs(5);
/// Set for the process that is to be killed while it holds a socket.
const OWNER: &str = "WEIR_FIRST_PACKET_OWNER";

fn main() -> Result<()> {
    if let Ok(mode) = env::var(OWNER) {
        return own(parse(&mode));
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
        let mut load = load(lab.load())?;
        let time = (|| {
            let start = before(&lab)?;
            netns::run_in(lab.app().netns(), || {
                first_packet(&lab.app().device, parse(mode))
            })?;
            Ok(start.elapsed().as_secs_f64() * 1e3)
        })();
        stop(&mut load)?;
        times.push(time?);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

fn first_packet(device: &str, mode: Mode) -> Result<()> {
    let umem = Umem::builder().build()?;
    let mut socket = Socket::builder(&umem, device, 0)
        .mode(mode)
        .wait(Wait::Poll)
        .open()?;
    ensure!(socket.wait(LONGEST)?, "no packet came in {LONGEST:?}");
    Ok(())
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

fn load(side: &Side) -> Result<Child> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command
        .args([
            "bench-load",
            "--dev",
            &side.device,
            "--cpu",
            "0",
            "--pps",
            "100000",
        ])
        .stdout(Stdio::piped());
    let mut load = side.spawn(&mut command)?;
    first_line(&mut load)?;
    Ok(load)
}

fn stop(child: &mut Child) -> Result<()> {
    child.kill()?;
    child.wait()?;
    Ok(())
}

fn first_line(child: &mut Child) -> Result<String> {
    let mut line = String::new();
    let output = child.stdout.as_mut().context("its output is read here")?;
    BufReader::new(output).read_line(&mut line)?;
    Ok(line)
}
