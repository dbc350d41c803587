//! The tracepoints: the accounting of the kernel's time, under a real load in a lab.

use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hostnet::cpulist::CpuList;
use hostnet::netns;
use rustix::process::{Pid, Signal, kill_process};
use weir::accounting::interrupts::NET_RX;
use weir::accounting::tracepoints::{CpuTotals, Tracepoints};
use weir::lab::{Lab, LabConfig};

use crate::{Test, skip, tests, until, weir};

pub fn trials() -> Vec<Test> {
    tests![
        a_load_is_attributed_to_its_cpu,
        interrupted_tasks_are_named,
        an_unobserved_cpu_is_not_counted,
        the_cost_of_the_programs_is_measured,
    ]
}

const WINDOW: Duration = Duration::from_millis(400);
/// The most packets of one poll.
const BUDGET: u64 = 64;

/// The CPU of the load, and one besides if there is any.
fn cpus() -> Result<(usize, Option<usize>)> {
    let allowed = CpuList::allowed()?;
    let mut cpus = allowed.as_slice().iter().copied();
    Ok((cpus.next().context("no CPU")?, cpus.next()))
}

/// Frames into the application's side of a lab, which nobody reads: the kernel receives and
/// drops them on the load's CPU.
struct Load {
    lab: Lab,
    process: Child,
}

impl Load {
    fn start(pps: u64) -> Result<Self> {
        let lab = Lab::anonymous(&LabConfig::default())?;
        let mut command = weir();
        command
            .args(["bench-load", "--dev", &lab.load().device])
            .args(["--cpu", &cpus()?.0.to_string()])
            .args(["--pps", &pps.to_string()])
            .stdout(Stdio::null());
        let process = lab.load().spawn(&mut command)?;
        let load = Self { lab, process };
        until("frames come", || Ok(load.packets()? > 0))?;
        Ok(load)
    }

    fn packets(&self) -> Result<u64> {
        Ok(self.lab.app().counters()?.rx_packets)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.process.id().cast_signed()) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.process.wait();
    }
}

/// The sums of `cpus` during `WINDOW`.
fn watch(cpus: &[usize]) -> Result<(Tracepoints, Vec<CpuTotals>, u64)> {
    let tracepoints = Tracepoints::start(cpus)?;
    let before = tracepoints.sample()?;
    thread::sleep(WINDOW);
    let after = tracepoints.sample()?;
    let between = after
        .cpus
        .iter()
        .zip(&before.cpus)
        .map(|(after, before)| after.since(before))
        .collect();
    Ok((tracepoints, between, after.at_ns - before.at_ns))
}

fn a_load_is_attributed_to_its_cpu() -> Result<()> {
    let load = Load::start(50_000)?;
    let packets_before = load.packets()?;
    let (tracepoints, cpus, window_ns) = watch(&[cpus()?.0])?;
    let [cpu] = &cpus[..] else {
        anyhow::bail!("{cpus:?}");
    };
    let receive = cpu.softirq[NET_RX];
    ensure!(receive.count > 0 && receive.ns > 0, "{cpu:?}");
    ensure!(
        cpu.network_ns() >= receive.ns && cpu.interrupts_ns() >= cpu.network_ns(),
        "{cpu:?}"
    );
    let all = (cpu.times.without_loop_ns() + cpu.times.loop_ns) as f64;
    let of_observed = all / cpu.observed_ns as f64;
    ensure!(
        (0.99..1.01).contains(&of_observed),
        "{of_observed}: {cpu:?}"
    );
    ensure!(cpu.observed_ns > window_ns / 2, "{cpu:?} in {window_ns}");
    let napis = tracepoints.napis()?;
    let side = load.lab.app();
    let netns = netns::identity(side.netns())?;
    let napi = napis
        .iter()
        .find(|napi| napi.device == side.device && napi.netns == netns)
        .with_context(|| format!("{napis:?}"))?;
    let packets = load.packets()? - packets_before;
    // A poll counts packets from its ring, the device those that it passes up.
    let possible = 1..=packets + 2 * BUDGET;
    ensure!(possible.contains(&napi.packets), "{napi:?} of {packets}");
    ensure!(
        napi.ns > 0 && napi.ns <= receive.ns * 2,
        "{napi:?}, {receive:?}"
    );
    Ok(())
}

fn interrupted_tasks_are_named() -> Result<()> {
    let load = Load::start(200_000)?;
    let (tracepoints, _, window_ns) = watch(&[cpus()?.0])?;
    let tasks = tracepoints.tasks()?;
    let task = tasks
        .iter()
        .find(|task| task.pid == load.process.id())
        .with_context(|| format!("{tasks:?}"))?;
    ensure!(task.name == "weir-load", "{task:?}");
    // It makes the load all the time, and the kernel receives in its context.
    ensure!(task.time.running_ns > window_ns / 50, "{task:?}");
    ensure!(task.time.net_rx_ns > 0, "{task:?}");
    ensure!(task.time.interrupts_ns() < task.time.running_ns, "{task:?}");
    Ok(())
}

fn an_unobserved_cpu_is_not_counted() -> Result<()> {
    let (_, Some(other)) = cpus()? else {
        return Err(skip("needs two CPUs"));
    };
    let load = Load::start(50_000)?;
    let (tracepoints, cpus, _) = watch(&[other])?;
    ensure!(cpus.len() == 1 && cpus[0].cpu == other, "{cpus:?}");
    let tasks = tracepoints.tasks()?;
    ensure!(
        !tasks.iter().any(|task| task.pid == load.process.id()),
        "{tasks:?}"
    );
    Ok(())
}

fn the_cost_of_the_programs_is_measured() -> Result<()> {
    let _load = Load::start(100_000)?;
    let tracepoints = Tracepoints::start(&[cpus()?.0])?;
    let cost = tracepoints.program_time(Duration::from_millis(100))?;
    let mean = cost.ns as f64 / cost.runs.max(1) as f64;
    ensure!(cost.runs > 10, "{cost:?}");
    ensure!(mean > 5.0, "{mean} ns a run: {cost:?}");
    ensure!(cost.ns < cost.window_ns, "{cost:?}");
    eprintln!(
        "{mean:.0} ns a run, {:.2}% of a CPU",
        cost.percent_of_a_cpu()
    );
    Ok(())
}
