//! `weir bench rtt`: whole runs, in labs. No test looks at a time but for a lower bound that holds on a
//! slow machine too.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::Temporary;

use crate::bench::{Started, array, gone};
use crate::{Test, failure, skip, success, tests, tests_alone, until, weir};

pub fn trials() -> Vec<Test> {
    let deep = tests![every_way_answers_every_packet];
    // As those of bench.rs.
    let alone = tests_alone![
        a_stall_is_charged_with_all_packets_that_it_delays,
        the_table_names_every_way,
        a_page_has_a_chart_for_each_rate,
    ];
    let others = tests![
        a_refused_mode_is_named_once,
        busy_polling_is_measured_or_refused,
        bad_flags_are_refused,
        ctrl_c_prints_what_is_finished,
        a_killed_measurement_leaves_nothing,
    ];
    let deep = deep.into_iter().map(Test::deep);
    deep.chain(alone).chain(others).collect()
}

fn rtt(words: &str) -> Command {
    let mut command = weir();
    command
        .args(["bench", "rtt"])
        .args(words.split_whitespace());
    command
}

fn json(words: &str) -> Result<Value> {
    let text = success(rtt(words).args(["--format", "json"]))?;
    serde_json::from_str(&text).context("the report is not JSON")
}

fn every_way_answers_every_packet() -> Result<()> {
    let report = json(
        "--engine packet-v2,packet-v3,udp,xsk,libxdp --mode skb,drv --wait spin,poll,adaptive --pps 200,1k --size 200 --rounds 1 --seconds 0.2",
    )?;
    ensure!(array(&report, "failed")?.is_empty(), "{report}");
    let runs = array(&report, "runs")?;
    // Three engines that spin or poll, and two modes of weir's library, which also waits adaptively.
    let has_libxdp = runs.iter().any(|run| run["engine"] == "libxdp");
    let ways = 3 * 2 + 2 * 3 + if has_libxdp { 2 * 2 } else { 0 };
    ensure!(runs.len() == 2 * ways, "{report}");
    for run in runs {
        ensure!(run["check"]["ok"] == true, "{run}");
        // On a busy machine an echo may find its socket overrun, but no packet is lost in silence.
        let number = |value: &Value| value.as_u64().context("no count");
        let counted = &run["check"]["counted"];
        let lost = number(&run["lost"])?;
        let dropped = number(&counted["kernel_drops"])?
            + number(&counted["device_queue_full"])?
            + number(&counted["device"]["tx_dropped"])?
            + number(&run["lost_at_pinger"])?;
        ensure!(lost == dropped, "{lost} instead of {dropped}: {run}");
        let window = number(&run["offered_pps"])? / 5;
        let samples = number(&run["latency"]["samples"])?;
        ensure!(
            (window.saturating_sub(lost)..=window).contains(&samples),
            "{samples} of {window}: {run}"
        );
        ensure!(number(&run["sent"])? > window, "{run}");
        for defect in ["corrupted", "duplicates", "reordered"] {
            ensure!(run[defect] == 0, "{defect}: {run}");
        }
        let percentiles = array(&run["latency"], "percentiles")?;
        let times = percentiles.iter().map(|it| it["ns"].as_u64());
        ensure!(times.is_sorted() && percentiles.len() > 5, "{run}");
    }
    ensure!(array(&report, "summary")?.len() == runs.len(), "{report}");
    Ok(())
}

/// The packets of [`a_stall_is_charged_with_all_packets_that_it_delays`]: before the window, in the
/// window, and during the stall.
const WARM_UP: u64 = 200;
const WINDOW: u64 = 2000;
const STALL: u64 = 500;

/// Stops the echo while 500 packets come, one a millisecond: they wait for 1 to 500 ms. A loop that waits
/// for each answer would see one slow packet.
fn a_stall_is_charged_with_all_packets_that_it_delays() -> Result<()> {
    let words = "--engine xsk --wait poll --pps 1k --rounds 1 --seconds 2 --format json";
    let started = Started::new(&mut rtt(words))?;
    let mut echo = None;
    until("packets of the window come", || {
        echo = named(&started.children()?, "weir-worker");
        Ok(echo.map_or(Ok(0), received)? > WARM_UP)
    })?;
    let echo = echo.context("no echo")?;
    let process = Pid::from_raw(echo).context("no process")?;
    kill_process(process, Signal::STOP)?;
    let before = received(echo)?;
    until(
        "more packets come",
        || Ok(received(echo)? >= before + STALL),
    )?;
    kill_process(process, Signal::CONT)?;
    let output = started.output()?;
    if before + STALL > WARM_UP + WINDOW {
        return Err(skip(
            "the echo could not be stopped in time: this machine is overloaded",
        ));
    }
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let run = &array(&report, "runs")?[0];
    ensure!(run["check"]["ok"] == true, "{run}");
    ensure!(run["lost"] == 0, "{run}");
    let at = |percent: f64| {
        let percentiles = run["latency"]["percentiles"].as_array()?;
        let found = percentiles.iter().find(|it| it["percent"] == percent)?;
        found["ns"].as_u64()
    };
    // A tenth of the window are the 200 that waited for 300 ms or more, a hundredth those of 480 ms.
    ensure!(at(90.0) > Some(250_000_000), "{run}");
    ensure!(at(99.0) > Some(450_000_000), "{run}");
    Ok(())
}

/// Packets that the device in the network namespace of a process has received; 0 without that device.
fn received(process: i32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/net/dev"))?;
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("weir0:"));
    let packets = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(packets.map_or(Ok(0), str::parse)?)
}

/// The process of this name, of those with these numbers.
fn named(processes: &[i32], name: &str) -> Option<i32> {
    let comm = |pid: &&i32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let found = processes.iter().find(|pid| comm(pid).trim() == name);
    found.copied()
}

const SHORT: &str = "--pps 1k --rounds 1 --seconds 0.1";

fn the_table_names_every_way() -> Result<()> {
    let text = success(&mut rtt(&format!("{SHORT} --wait spin,adaptive")))?;
    for word in [
        "packet-v2",
        "udp",
        "xsk",
        "p99.9",
        "latency of",
        "unavailable: packet-v2 adaptive, udp adaptive",
        "runs the pinger",
    ] {
        ensure!(text.contains(word), "no {word} in {text}");
    }
    ensure!(text.is_ascii(), "{text}");
    ensure!(text.lines().all(|line| line.len() <= 100), "{text}");
    Ok(())
}

fn a_page_has_a_chart_for_each_rate() -> Result<()> {
    let directory = Temporary::new("rtt-page")?;
    let page = directory.join("rtt.html");
    let path = page.to_string_lossy().into_owned();
    let words =
        format!("--pps 1k,2k --engine xsk --wait spin --rounds 1 --seconds 0.1 --html {path}");
    success(&mut rtt(&words))?;
    let html = fs::read_to_string(&page)?;
    ensure!(html.trim_end().ends_with("</html>"), "{html}");
    ensure!(html.matches("<svg").count() == 2, "{html}");
    ensure!(html.contains("weir bench rtt --pps"), "{html}");
    let stderr = failure(&mut rtt(&words), 1)?;
    ensure!(stderr.contains("--force"), "{stderr}");
    Ok(())
}

fn a_refused_mode_is_named_once() -> Result<()> {
    let report = json("--pps 1k --engine xsk --mode zc --wait spin --rounds 2 --seconds 0.1")?;
    let refused = array(&report, "refused")?;
    ensure!(refused.len() == 1, "{report}");
    ensure!(refused[0]["errno"] == libc::EOPNOTSUPP, "{report}");
    ensure!(array(&report, "runs")?.is_empty(), "{report}");
    Ok(())
}

/// A device with a NAPI instance gives a row, and another one a reason.
fn busy_polling_is_measured_or_refused() -> Result<()> {
    let report =
        json("--pps 1k --engine packet-v2,udp,xsk --wait busy-poll --rounds 1 --seconds 0.1")?;
    ensure!(array(&report, "unavailable")?.len() == 1, "{report}");
    let (runs, refused) = (array(&report, "runs")?, array(&report, "refused")?);
    ensure!(runs.len() + refused.len() == 2, "{report}");
    for refusal in refused {
        let reason = refusal["reason"].as_str().unwrap_or_default();
        ensure!(reason.contains("SO_INCOMING_NAPI_ID"), "{report}");
    }
    Ok(())
}

fn bad_flags_are_refused() -> Result<()> {
    let unwritable = "--html /nonexistent/rtt.html";
    for (words, code, cause) in [
        ("--lab", 2, "--lab"),
        ("--engine xsk-halves", 2, "xsk-halves"),
        ("--engine dpdk", 2, "dpdk"),
        ("--wait never", 2, "never"),
        ("--engine libxdp --wait busy-poll", 1, "no busy polling"),
        ("--pps 0", 2, "rate"),
        ("--pps 10k,fast", 2, "fast"),
        ("--size 1501", 2, "1501"),
        ("--rounds 0", 2, "0"),
        ("--seconds nan", 2, "seconds"),
        ("--force", 2, "--html"),
        ("--app-cpu 1023", 1, "CPU 1023"),
        ("--engine udp --wait adaptive", 1, "nothing to measure"),
        (unwritable, 1, "/nonexistent/rtt.html"),
    ] {
        let stderr = failure(&mut rtt(words), code)?;
        ensure!(stderr.contains(cause), "{words:?}: {stderr}");
        let errors = stderr.matches("error:").count();
        ensure!(errors == 1, "{words:?}: {stderr}");
    }
    Ok(())
}

fn ctrl_c_prints_what_is_finished() -> Result<()> {
    let words = "--engine udp --wait poll --pps 1k --rounds 1000 --seconds 0.1 --format json";
    let started = Started::new(&mut rtt(words))?;
    let mut first = None;
    until("the second run has begun", || {
        let pinger = named(&started.children()?, "weir-pinger");
        first = first.or(pinger);
        Ok(pinger.is_some() && pinger != first)
    })?;
    let children = started.children()?;
    started.signal(Signal::TERM)?;
    let output = started.output()?;
    ensure!(output.status.code() == Some(130), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(report["interrupted"] == true, "{report}");
    ensure!(!array(&report, "runs")?.is_empty(), "{report}");
    ensure!(array(&report, "failed")?.is_empty(), "{report}");
    gone(&children)
}

fn a_killed_measurement_leaves_nothing() -> Result<()> {
    let words = "--engine xsk --wait spin --pps 1k --seconds 60";
    let mut started = Started::new(&mut rtt(words))?;
    let mut children = Vec::new();
    until("echo and pinger run", || {
        children = started.children()?;
        Ok(named(&children, "weir-pinger").is_some())
    })?;
    ensure!(children.len() == 2, "{children:?}");
    started.signal(Signal::KILL)?;
    started.child.wait()?;
    gone(&children)
}
