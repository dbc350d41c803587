//! `weir switch bench`: short runs, in labs of their own.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::{Test, failure, skip, success, tests, weir};

pub fn trials() -> Vec<Test> {
    let deep = tests![each_frame_is_accounted_for];
    let others = tests![
        many_entries_are_beside_few,
        the_upkeep_is_measured,
        containers_exchange_tcp,
        bad_switch_benches_are_errors,
    ];
    let deep = deep.into_iter().map(Test::deep);
    deep.chain(others).collect()
}

fn bench(words: &str) -> Command {
    let mut command = weir();
    command
        .args(["switch", "bench"])
        .args(words.split_whitespace());
    command
}

fn report(words: &str) -> Result<Value> {
    let words = format!("{words} --format json");
    let report: Value = serde_json::from_str(&success(&mut bench(&words))?)?;
    ensure!(array(&report, "failed")?.is_empty(), "{report}");
    ensure!(report["interrupted"] == false, "{report}");
    Ok(report)
}

fn array<'a>(value: &'a Value, key: &str) -> Result<&'a Vec<Value>> {
    value[key].as_array().with_context(|| format!("no {key}"))
}

fn count(value: &Value) -> Result<u64> {
    value.as_u64().context("not a count")
}

/// A run that counts has lost no frame without a counter, and its times are there.
fn add_up(run: &Value) -> Result<()> {
    ensure!(array(run, "violations")?.is_empty(), "{run}");
    let dropped = count(&run["dropped_egress"])? + count(&run["dropped_switch"])?;
    let (sent, received) = (count(&run["sent"])?, count(&run["received"])?);
    ensure!(received > 0 && sent == received + dropped, "{run}");
    ensure!(count(&run["flooded"])? + count(&run["corrupted"])? == 0);
    if run["delivered_pps"] == 0.0 {
        return Err(skip("others had the CPU of the load for a whole window"));
    }
    for figure in [
        "delivered_pps",
        "load_percent",
        "softirq_percent",
        "ns_per_packet",
    ] {
        let value = run[figure].as_f64().context("not a number")?;
        ensure!(value > 0.0, "{figure}: {run}");
    }
    Ok(())
}

fn each_frame_is_accounted_for() -> Result<()> {
    let paths = "--path bridge,weir-xdp,weir-tcx,xdp";
    let report = report(&format!(
        "--part rate {paths} --pairs 1,70 --rounds 2 --seconds 0.1"
    ))?;
    let runs = array(&report, "runs")?;
    // The load alone, and four switches; two numbers of stations; two rounds.
    ensure!(runs.len() == 20, "{report}");
    for run in runs {
        add_up(run)?;
        let is_weir = run["path"]
            .as_str()
            .is_some_and(|it| it.starts_with("weir"));
        // All of its frames took the fast path, or the run would not count.
        ensure!(run["accelerated"].is_null() != is_weir, "{run}");
    }
    let rates = array(&report, "rates")?;
    ensure!(rates.len() == 10, "{report}");
    for row in rates {
        ensure!(row["rounds"] == 2, "{row}");
        let own = row["own_ns_per_packet"]["median"].as_f64();
        ensure!(own.is_none() == (row["path"] == "load"), "{row}");
    }
    Ok(())
}

fn many_entries_are_beside_few() -> Result<()> {
    let words = "--part entries --path bridge,xdp --entries 2000 --rounds 1 --seconds 0.1";
    let report = report(words)?;
    for run in array(&report, "runs")? {
        add_up(run)?;
    }
    let rows = array(&report, "entries")?;
    let [row] = &rows[..] else {
        anyhow::bail!("{report}");
    };
    ensure!(row["path"] == "bridge" && row["few"] == 200, "{row}");
    ensure!(row["many"] == 2000, "{row}");
    Ok(())
}

fn the_upkeep_is_measured() -> Result<()> {
    let report = report("--part following,attach,memory --entries 2000 --rounds 2 --seconds 0.1")?;
    ensure!(array(&report, "unavailable")?.is_empty(), "{report}");
    let following = &report["following"];
    let (bridge, mirror) = (&following["bridge_entries"], &following["mirror_entries"]);
    ensure!(count(bridge)? > 0 && bridge == mirror, "{following}");
    ensure!(following["resyncs"] == 0, "{following}");
    ensure!(report["attach"]["ports"] == 4, "{report}");
    ensure!(count(&report["memory"]["entries"])? >= 2000, "{report}");
    ensure!(count(&report["memory"]["rss_kib"])? > 0, "{report}");
    Ok(())
}

fn containers_exchange_tcp() -> Result<()> {
    let found = Command::new("iperf3").arg("--version").output();
    if found.is_err() {
        return Err(skip("no iperf3: install Debian's package iperf3"));
    }
    let report = report("--part tcp --path bridge,weir-tcx --rounds 1 --seconds 0.5")?;
    let rows = array(&report, "tcp")?;
    ensure!(rows.len() == 2, "{report}");
    for row in rows {
        let gbps = row["gbps"]["median"].as_f64().context("no rate")?;
        ensure!(gbps > 0.0, "{row}");
    }
    Ok(())
}

fn bad_switch_benches_are_errors() -> Result<()> {
    for (words, code, cause) in [
        ("--path carrier-pigeon", 2, "carrier-pigeon"),
        ("--part nothing", 2, "nothing"),
        ("--pairs 0", 2, "0"),
        ("--seconds 0", 2, "seconds"),
        ("--load-cpu 1023", 1, "CPU 1023"),
        ("--svg /nonexistent/charts.svg", 1, "/nonexistent"),
    ] {
        let stderr = failure(&mut bench(words), code)?;
        ensure!(stderr.contains(cause), "{words}: {stderr}");
        ensure!(stderr.matches("error:").count() == 1, "{words}: {stderr}");
    }
    Ok(())
}
