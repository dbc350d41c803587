//! `weir cost`: its report of a real load, and of unavailable measurements.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context as _, Result, ensure};
use hostnet::cpulist::CpuList;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::Limit;
use weir::lab::{Lab, LabConfig};

use crate::doctor::wait_for_handler;
use crate::quiet::when_quiet;
use crate::{SOON, Test, a_cpu, failure, skip, success, tests, tests_alone, weir};

pub fn trials() -> Vec<Test> {
    let alone = tests_alone![
        all_of_a_cpus_time_is_in_the_ledger,
        a_cpu_quota_is_attributed,
    ];
    let beside = tests![
        a_lab_load_is_measured_both_ways,
        a_passive_measurement_has_no_busy_loop,
        a_measurement_that_costs_too_much_ends_itself,
        a_command_is_measured_while_it_runs,
        a_command_that_cannot_start_is_named,
        without_privilege_the_rest_is_measured,
        bad_arguments_are_refused,
        ctrl_c_gives_the_report_so_far,
        a_device_that_vanishes_is_reported,
    ];
    beside.into_iter().chain(alone).collect()
}

fn json(command: &mut Command) -> Result<Value> {
    Ok(serde_json::from_str(&success(
        command.args(["--format", "json"]),
    )?)?)
}

/// A CPU that this process may use.
fn cpu() -> Result<String> {
    Ok(a_cpu()?.to_string())
}

fn number(value: &Value) -> Result<f64> {
    value
        .as_f64()
        .with_context(|| format!("{value} is no number"))
}

fn a_lab_load_is_measured_both_ways() -> Result<()> {
    let report = json(weir().args(["cost", "--lab", "--pps", "100000", "--seconds", "1.5"]))?;
    for cpu in report["cpus"].as_array().context("no CPUs")? {
        ensure!(number(&cpu["busy_loop"]["lost_percent"])? < 100.0, "{cpu}");
        ensure!(
            number(&cpu["busy_loop"]["ci95_half_width"])? >= 0.0,
            "{cpu}"
        );
        ensure!(
            number(&cpu["tracepoints"]["net_rx_percent"])? > 0.1,
            "{cpu}"
        );
        ensure!(cpu["proc_stat"]["softirq_percent"].is_number(), "{cpu}");
        ensure!(cpu["softnet"]["processed"].is_number(), "{cpu}");
        let sentences = cpu["agreement"].as_array().map_or(0, Vec::len);
        ensure!(sentences == 2, "{cpu}");
    }
    let device = &report["devices"][0];
    ensure!(device["name"] == "weir0", "{device}");
    ensure!(number(&device["rx_pps"])? > 0.0, "{device}");
    ensure!(number(&device["ns_per_packet"])? > 20.0, "{device}");
    ensure!(number(&report["network_ns_per_packet"])? > 50.0);
    ensure!(number(&report["overhead"]["tracepoints_percent"])? > 0.0);
    let tasks = report["interrupted_tasks"].as_array().context("no tasks")?;
    let load = tasks
        .iter()
        .find(|it| it["name"] == "weir-load")
        .with_context(|| format!("{tasks:?}"))?;
    ensure!(number(&load["lost_percent"])? > 1.0, "{load}");
    Ok(())
}

/// The sum of a ledger's rows.
fn sum(rows: &Value) -> Result<f64> {
    let rows = rows.as_array().context("no rows")?;
    rows.iter().map(|row| number(&row["percent"])).sum()
}

fn all_of_a_cpus_time_is_in_the_ledger() -> Result<()> {
    when_quiet(&CpuList::allowed()?, OTHERS, add_up_a_cpus_time)
}

fn add_up_a_cpus_time() -> Result<()> {
    let arguments = [
        "cost",
        "--lab",
        "--pps",
        "20000",
        "--seconds",
        "1.5",
        "--limit",
        "100",
    ];
    let report = json(weir().args(arguments))?;
    for cpu in report["cpus"].as_array().context("no CPUs")? {
        let (gaps, tracepoints) = (&cpu["busy_loop"]["ledger"], &cpu["tracepoints"]);
        for rows in [&gaps["rows"], &tracepoints["ledger"]] {
            ensure!((sum(rows)? - 100.0).abs() < 0.1, "{rows}");
        }
        let tracepoint_rows = tracepoints["ledger"].as_array().context("no rows")?;
        let missing = tracepoint_rows.last().context("no row")?;
        ensure!(missing["name"] == "not accounted for", "{missing}");
        ensure!(number(&missing["percent"])?.abs() < 1.0, "{missing}");
        let parts = [
            "network",
            "other_interrupts",
            "outside",
            "other_tasks",
            "throttled",
            "unreported",
            "slower",
            "work",
            "reading_counters",
        ];
        let percents = parts.iter().map(|part| number(&gaps[part]["percent"]));
        let all: f64 = percents.sum::<Result<f64>>()?;
        ensure!((all - 100.0).abs() < 0.1, "{gaps}");
        ensure!(
            number(&gaps["network"]["ci95_half_width"])? >= 0.0,
            "{gaps}"
        );
        let network = number(&gaps["network"]["percent"])?;
        let difference = network - number(&tracepoints["network_percent"])?;
        ensure!(difference.abs() < 2.0, "{cpu}");
        let outside = number(&gaps["outside"]["percent"])?;
        let of = [
            "outside_entry_percent",
            "outside_gaps_percent",
            "outside_late_timers_percent",
        ];
        let of = of.iter().map(|part| number(&gaps[part]));
        ensure!((of.sum::<Result<f64>>()? - outside).abs() < 0.1, "{gaps}");
    }
    Ok(())
}

/// A cgroup that may use half of a CPU, as long as this lives.
struct HalfACpu(PathBuf);

impl HalfACpu {
    /// `None` where no hierarchy with the controller is mounted.
    fn new() -> Result<Option<Self>> {
        let v1 = Path::new("/sys/fs/cgroup/cpu");
        let v2 = Path::new("/sys/fs/cgroup");
        let name = format!("weir-test-{}", std::process::id());
        let controllers = fs::read_to_string(v2.join("cgroup.subtree_control"));
        let (root, limit) =
            if v1.join("cpu.cfs_quota_us").exists() || v1.join("cpu.shares").exists() {
                (
                    v1,
                    [
                        ("cpu.cfs_period_us", "20000"),
                        ("cpu.cfs_quota_us", "10000"),
                    ],
                )
            } else if controllers.is_ok_and(|it| it.split_whitespace().any(|it| it == "cpu")) {
                (v2, [("cpu.max", "10000 20000"), ("cpu.max", "10000 20000")])
            } else {
                return Ok(None);
            };
        let group = Self(root.join(name));
        fs::create_dir(&group.0)?;
        for (file, value) in limit {
            fs::write(group.0.join(file), value).with_context(|| format!("{file} = {value}"))?;
        }
        Ok(Some(group))
    }
}

impl Drop for HalfACpu {
    fn drop(&mut self) {
        // The kernel removes it only after its last process has been reaped.
        let _ = fs::remove_dir(&self.0);
    }
}

/// CPU time of others, in percent. Beside more, an estimate may have no interval, and steal time while the loop is
/// throttled cannot be told from steal time while it runs.
const OTHERS: f64 = 15.0;

/// Measurements, of which one must be right: neighbours come between two looks at them, too.
const TRIES: usize = 3;

fn a_cpu_quota_is_attributed() -> Result<()> {
    let cpus = CpuList::new([a_cpu()?]);
    let mut result = Ok(());
    for _ in 0..TRIES {
        result = when_quiet(&cpus, OTHERS, measure_a_quota);
        if result.is_ok() {
            break;
        }
    }
    result
}

fn measure_a_quota() -> Result<()> {
    let Some(group) = HalfACpu::new()? else {
        return Err(skip("no cgroup controller cpu to set a quota with"));
    };
    let mut command = Command::new("sh");
    let script = "echo $$ >\"$1\"/cgroup.procs && shift && exec \"$@\"";
    command
        .args(["-c", script, "sh"])
        .arg(&group.0)
        .arg(weir().get_program());
    command.args(["cost", "--cpu", &cpu()?]);
    command.args(["--seconds", "1.5", "--limit", "100"]);
    let report = json(&mut command)?;
    let ledger = &report["cpus"][0]["busy_loop"]["ledger"];
    // While the loop is throttled, other tasks run, or none.
    let held_back =
        number(&ledger["throttled"]["percent"])? + number(&ledger["other_tasks"]["percent"])?;
    ensure!(held_back > 30.0, "{ledger}");
    ensure!((sum(&ledger["rows"])? - 100.0).abs() < 0.1, "{ledger}");
    Ok(())
}

fn a_passive_measurement_has_no_busy_loop() -> Result<()> {
    let report = json(weir().args(["cost", "--passive", "--limit", "50", "--seconds", "0.6"]))?;
    let cpu = &report["cpus"][0];
    ensure!(cpu["busy_loop"].is_null(), "{cpu}");
    ensure!(cpu["tracepoints"]["idle_percent"].is_number(), "{cpu}");
    ensure!(report["ended"].is_null(), "{}", report["ended"]);
    Ok(())
}

fn a_measurement_that_costs_too_much_ends_itself() -> Result<()> {
    let mut limit = Limit::new(SOON);
    let report = json(weir().args([
        "cost",
        "--lab",
        "--pps",
        "100000",
        "--passive",
        "--limit",
        "0.01",
        "--seconds",
        "60",
    ]))?;
    ensure!(report["ended"] == "over-limit", "{}", report["ended"]);
    ensure!(!limit.is_over(), "it measured for all of the time");
    let overhead = &report["overhead"];
    let all = number(&overhead["tracepoints_percent"])? + number(&overhead["reading_percent"])?;
    ensure!(all > 0.01, "{overhead}");
    Ok(())
}

fn a_command_is_measured_while_it_runs() -> Result<()> {
    let report = json(
        weir()
            .args(["cost", "--cpu", &cpu()?])
            .args(["--", "sleep", "0.7"]),
    );
    // `--format json` stands behind the command here, so it is the command's.
    ensure!(report.is_err());
    let output = success(weir().args([
        "cost",
        "--cpu",
        &cpu()?,
        "--format",
        "json",
        "--",
        "sh",
        "-c",
        "echo hello; sleep 0.7",
    ]))?;
    let report: Value = serde_json::from_str(&output)?;
    let seconds = number(&report["seconds"])?;
    // The command starts before the tracepoints and the busy loop do.
    ensure!((0.1..30.0).contains(&seconds), "{seconds}");
    failure(
        weir().args(["cost", "--cpu", &cpu()?, "--", "sh", "-c", "exit 7"]),
        7,
    )?;
    Ok(())
}

fn a_command_that_cannot_start_is_named() -> Result<()> {
    let error = failure(weir().args(["cost", "--", "/no/such/program"]), 1)?;
    ensure!(error.contains("cannot start /no/such/program"), "{error}");
    Ok(())
}

fn without_privilege_the_rest_is_measured() -> Result<()> {
    let mut command = weir();
    command.args(["cost", "--cpu", &cpu()?]);
    command.args(["--seconds", "0.5", "--format", "json"]);
    let output = command.uid(65534).gid(65534).output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let cpu = &report["cpus"][0];
    ensure!(cpu["tracepoints"].is_null(), "{cpu}");
    ensure!(cpu["busy_loop"]["lost_percent"].is_number(), "{cpu}");
    let notes = report["notes"].to_string();
    ensure!(
        notes.contains("Tracepoints") && notes.contains("root"),
        "{notes}"
    );
    ensure!(cpu["busy_loop"]["ledger"].is_null(), "{cpu}");
    ensure!(notes.contains("cannot be attributed"), "{notes}");
    Ok(())
}

fn bad_arguments_are_refused() -> Result<()> {
    for (arguments, code, words) in [
        (&["--seconds", "0"][..], 2, "0.1 to 86400 seconds"),
        (&["--cpu", "900"], 1, "choose among"),
        (&["--cpu", "x"], 2, "--cpu"),
        (&["--dev", "nosuch0"], 1, "nosuch0"),
        (&["--pps", "5"], 2, "--lab"),
    ] {
        let error = failure(weir().arg("cost").args(arguments), code)?;
        ensure!(error.contains(words), "{arguments:?}: {error}");
    }
    Ok(())
}

fn ctrl_c_gives_the_report_so_far() -> Result<()> {
    let child = weir()
        .args(["cost", "--cpu", &cpu()?])
        .args(["--seconds", "600", "--format", "json"])
        .stdout(Stdio::piped())
        .spawn()?;
    wait_for_handler(child.id())?;
    thread::sleep(Duration::from_millis(1500));
    let pid = Pid::from_raw(child.id().cast_signed()).context("no process")?;
    kill_process(pid, Signal::INT)?;
    let output = child.wait_with_output()?;
    ensure!(output.status.code() == Some(130), "{}", output.status);
    let report: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(report["ended"] == "interrupted", "{}", report["ended"]);
    ensure!(report["cpus"][0]["busy_loop"]["lost_percent"].is_number());
    Ok(())
}

fn a_device_that_vanishes_is_reported() -> Result<()> {
    let lab = Lab::anonymous(&LabConfig::default())?;
    let mut command = weir();
    command
        .args([
            "cost",
            "--cpu",
            &cpu()?,
            "--passive",
            "--seconds",
            "1.5",
            "--limit",
            "100",
        ])
        .args(["--dev", &lab.app().device, "--format", "json"])
        .stdout(Stdio::piped());
    let child = lab.app().spawn(&mut command)?;
    thread::sleep(Duration::from_millis(700));
    // The other end of the pair takes this one with it.
    let removed = lab
        .load()
        .spawn(Command::new("ip").args(["link", "del", "weir1"]))?;
    ensure!(removed.wait_with_output()?.status.success());
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "{}", output.status);
    let report: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(
        report["devices"][0]["vanished_after_seconds"].is_number(),
        "{report}"
    );
    ensure!(
        report["notes"].to_string().contains("weir0 vanished"),
        "{report}"
    );
    Ok(())
}
