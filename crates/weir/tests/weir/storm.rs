//! Lock contention under load: RPS spreads many flows over the CPUs, which all take the lock of one
//! queueing discipline on a tap. The doctor finds and fixes it, and `weir cost` measures both.

use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fmt, fs, thread};

use anyhow::{Context as _, Result, ensure};
use hostnet::cpulist::CpuList;
use hostnet::netns;
use hostnet::sysfs::Sysfs;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::Temporary;
use weir::cost::curve::Path;
use weir::cost::curve::stage::Stage;
use weir::process::stop::StopSignal;

use crate::{Test, skip, success, tests_alone, weir};

pub fn trials() -> Vec<Test> {
    // It loads two CPUs fully.
    let storm = tests_alone![the_storm_is_found_fixed_and_measured];
    storm.into_iter().map(Test::deep).collect()
}

const ID: &str = "rps-lock-qdisc";
/// More than one CPU forwards at this rate.
const PPS: &str = "400000";
/// Enough for RPS to spread them evenly.
const FLOWS: &str = "64";

/// How often it is fixed and undone.
const ROUNDS: usize = 3;

/// The figures of `weir cost` in the host's namespace.
#[derive(Debug)]
struct Cost {
    /// CPU time spent on networking, in percent of one CPU.
    network: f64,
    /// Packets a second delivered to the tap's reader.
    delivered: f64,
    /// CPU time per packet.
    ns_per_packet: f64,
}

fn the_storm_is_found_fixed_and_measured() -> Result<()> {
    let allowed = CpuList::allowed()?;
    let [load_cpu, other_cpu, ..] = allowed.as_slice()[..] else {
        return Err(skip("a storm needs two CPUs"));
    };
    let journal = Temporary::new("storm")?;
    let stop = StopSignal::default();
    let stage = Stage::make(Path::Bridge, 1, other_cpu, None, &stop)?;
    let host = stage.lab.app();
    netns::run_in(host.netns(), || {
        let path = format!("/{}/queues/rx-0/rps_cpus", host.device);
        let mask = format!("{:x}", 1 << load_cpu | 1 << other_cpu);
        fs::write(Sysfs::mount()?.class_net(&path), mask).context("cannot set rps_cpus")
    })?;
    let inside = |command: &mut Command| -> Result<String> {
        netns::run_in(host.netns(), || success(command))
    };
    let doctor = |arguments: &[&str]| {
        let mut command = weir();
        command.arg("doctor").args(arguments);
        command.env("WEIR_STATE_DIR", journal.path());
        command
    };
    inside(Command::new("tc").args("qdisc replace dev tap0 root pfifo limit 1000".split(' ')))?;

    let _reader = Ended(
        Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["cost-receiver", "--origin", "tap", "--size", "64"])
            .args(["--cpu", &other_cpu.to_string()])
            .stdin(stage.taps[0].descriptor().try_clone_to_owned()?)
            .stdout(Stdio::null())
            .spawn()?,
    );
    let mut load = weir();
    load.args(["bench-load", "--dev", &stage.lab.load().device])
        .args([
            "--cpu",
            &load_cpu.to_string(),
            "--pps",
            PPS,
            "--flows",
            FLOWS,
        ])
        .stdout(Stdio::null());
    let _load = Ended(stage.lab.load().spawn(&mut load)?);
    thread::sleep(Duration::from_millis(300));

    let is_found = || -> Result<bool> {
        // It exits with 1 if there is any finding.
        let output = netns::run_in(host.netns(), || -> Result<_> {
            Ok(doctor(&["--dev", "tap0", "--json"]).output()?)
        })?;
        let report: Value = serde_json::from_slice(&output.stdout)?;
        let findings = report["findings"].as_array().context("no findings")?;
        Ok(findings
            .iter()
            .any(|it| it["id"] == ID && it["subject"] == "tap0"))
    };
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ensure!(is_found()?, "the storm is not found");
        before.push(cost(&stage)?);
        inside(&mut doctor(&["--dev", "tap0", "--fix", ID, "--yes"]))?;
        ensure!(!is_found()?, "the storm is not fixed");
        after.push(cost(&stage)?);
        inside(&mut doctor(&["--undo"]))?;
    }
    for cost in before.iter().chain(&after) {
        ensure!(
            cost.delivered > 0.0,
            "no packet was delivered: {before:?}, {after:?}"
        );
        ensure!(cost.network > 0.0, "no CPU time was measured: {cost}");
    }
    // The figures depend on the CPUs and on their neighbours.
    println!("in the storm {}; fixed {}", median(before), median(after));
    let qdisc = inside(Command::new("tc").args("qdisc show dev tap0 root".split(' ')))?;
    ensure!(
        qdisc.contains("pfifo") && qdisc.contains("limit 1000"),
        "{qdisc}"
    );
    Ok(())
}

/// The median by CPU time per packet.
fn median(mut costs: Vec<Cost>) -> Cost {
    costs.sort_by(|one, other| one.ns_per_packet.total_cmp(&other.ns_per_packet));
    costs.swap_remove(costs.len() / 2)
}

impl fmt::Display for Cost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{:.0} ns a packet: {:.0} packets a second for {:.1}% of a CPU",
            self.ns_per_packet, self.delivered, self.network
        )
    }
}

fn cost(stage: &Stage<'_>) -> Result<Cost> {
    let mut command = weir();
    command.args(["cost", "--passive", "--limit", "100", "--seconds", "1"]);
    command.args(["--dev", "tap0", "--format", "json"]);
    let output = netns::run_in(stage.lab.app().netns(), || success(&mut command))?;
    let report: Value = serde_json::from_str(&output)?;
    let cpus = report["cpus"].as_array().context("no CPUs")?;
    let network = cpus
        .iter()
        .map(|cpu| cpu["tracepoints"]["network_percent"].as_f64())
        .sum::<Option<f64>>()
        .with_context(|| format!("not measured: {report}"))?;
    let delivered = report["devices"][0]["tx_pps"].as_f64().context("no rate")?;
    Ok(Cost {
        network,
        delivered,
        ns_per_packet: network / 100.0 * 1e9 / delivered.max(1.0),
    })
}

/// A process that is terminated on drop.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.0.id().cast_signed()) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.0.wait();
    }
}
