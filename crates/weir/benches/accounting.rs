//! The slowdown of a saturated l2fwd by `weir cost --passive`: the same bench with and without it, in
//! turns. Needs root.

use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, thread};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weir::report::statistics::median;

const ROUNDS: usize = 15;
const SECONDS: &str = "1";
/// How long the measurement may take to attach its tracepoints.
const ATTACH: Duration = Duration::from_millis(500);

fn main() -> Result<()> {
    // `cargo test --all-targets` runs it without this word, to see whether it builds.
    if !env::args().any(|word| word == "--bench") {
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() {
        println!("skipped: making a lab needs root");
        return Ok(());
    }
    println!("l2fwd at saturation, with weir cost --passive and without, {ROUNDS} rounds:");
    println!(
        "{:6} {:>8} {:>8} {:>7} {:>14} {:>10}",
        "mode", "without", "with", "ratio", "own cost", "ns a run"
    );
    for mode in ["skb", "drv"] {
        // The default, and all the time.
        for limit in ["1", "100"] {
            compare(mode, limit)?;
        }
    }
    Ok(())
}

fn compare(mode: &str, limit: &str) -> Result<()> {
    let (mut ratios, mut without, mut with) = (Vec::new(), Vec::new(), Vec::new());
    let (mut costs, mut runs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // The second run may have warmer caches, so the order alternates.
        let (watched, alone) = if round % 2 == 0 {
            let watched = watched(mode, limit)?;
            (watched, forward(mode)?)
        } else {
            let alone = forward(mode)?;
            (self::watched(mode, limit)?, alone)
        };
        ratios.push(watched.pps / alone);
        without.push(alone / 1e6);
        with.push(watched.pps / 1e6);
        costs.push(watched.percent);
        runs.push(watched.ns_per_run);
    }
    let lowest = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = ratios.iter().copied().fold(0.0, f64::max);
    println!(
        "{mode:4} {limit:>4}% {:6.2} M {:6.2} M {:7.3} {:8.2}% of a CPU {:5.0}   ratios {lowest:.3} to {highest:.3}",
        median(without.into_iter()).unwrap_or_default(),
        median(with.into_iter()).unwrap_or_default(),
        median(ratios.into_iter()).unwrap_or_default(),
        median(costs.into_iter()).unwrap_or_default(),
        median(runs.into_iter()).unwrap_or_default(),
    );
    Ok(())
}

fn weir() -> Command {
    Command::new(env!("CARGO_BIN_EXE_weir"))
}

/// Packets a second.
fn forward(mode: &str) -> Result<f64> {
    let output = weir()
        .args(["bench", "l2fwd", "--lab", "--engine", "xsk", "--mode", mode])
        .args(["--rounds", "1", "--seconds", SECONDS, "--format", "json"])
        .output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: Value = serde_json::from_slice(&output.stdout)?;
    report["runs"][0]["pps"].as_f64().context("no rate")
}

struct Watched {
    pps: f64,
    percent: f64,
    ns_per_run: f64,
}

fn watched(mode: &str, limit: &str) -> Result<Watched> {
    let cost = weir()
        .args([
            "cost",
            "--passive",
            "--limit",
            limit,
            "--seconds",
            "600",
            "--format",
            "json",
        ])
        .stdout(Stdio::piped())
        .spawn()?;
    thread::sleep(ATTACH);
    let pps = forward(mode);
    if let Some(pid) = Pid::from_raw(cost.id().cast_signed()) {
        kill_process(pid, Signal::INT)?;
    }
    let report: Value = serde_json::from_slice(&cost.wait_with_output()?.stdout)?;
    let own = |name: &str| report["overhead"][name].as_f64().context("no cost");
    Ok(Watched {
        pps: pps?,
        percent: own("tracepoints_percent")?,
        ns_per_run: own("ns_per_run")?,
    })
}
