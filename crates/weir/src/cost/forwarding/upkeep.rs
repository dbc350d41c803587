//! The upkeep of an accelerated bridge: following its changes, attaching and detaching, memory.

use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::report::{Attach, Following, Memory};
use super::stage::{BRIDGE, add_idle_entries, idle_mac};
use crate::cost::accelerated::Accelerated;
use crate::cost::curve::report::Spread;
use crate::lab::leg::{Leg, add_bridge_of};
use crate::process::child::{CHILD_TIMEOUT, Child, own_command};
use crate::process::stop::StopSignal;
use crate::switch::Hook;
use crate::switch::daemon::request::{Request, ask};
use hostnet::netns;
use hostnet::rtnetlink::{BridgeOptions, FdbKind, Rtnetlink};

/// Changes of the forwarding database a second, some more than the 10,000 to be shown, and the pause
/// between two bursts of them.
const CHANGES: u64 = 10_200;
const BURST: Duration = Duration::from_millis(10);
/// Entries that come and go; half of them are there at the end.
const CHANGING: u64 = 2_000;
/// Ports that are attached and detached.
const PORTS: u8 = 4;
/// A place that no BPF filesystem can be mounted at: the programs end with the daemon.
const NOWHERE: &str = "/dev/null";

/// A bridge with veth ports, each with a namespace behind it.
struct Ports {
    legs: Vec<Leg>,
    host: OwnedFd,
}

impl Ports {
    fn make() -> Result<Self> {
        let host = netns::create()?;
        netns::disable_ipv6(host.as_fd())?;
        let legs = (1..=PORTS)
            .map(|number| Leg::add(host.as_fd(), number))
            .collect::<Result<Vec<_>>>()?;
        let ports = legs
            .iter()
            .map(|leg| leg.port.index())
            .collect::<Result<Vec<_>>>()?;
        netns::run_in(host.as_fd(), || {
            add_bridge_of(BRIDGE, &BridgeOptions::default(), &ports)
        })?;
        Ok(Self { legs, host })
    }
}

/// Changes the forwarding database of an accelerated bridge ten thousand times a second for `time`,
/// and compares both at the end.
pub fn follow(time: Duration, stop: &StopSignal) -> Result<Following> {
    let ports = Ports::make()?;
    let port = ports.legs[0].port.index()?;
    let accelerated = Accelerated::start(ports.host.as_fd(), BRIDGE, Hook::Tcx)?;
    let before = accelerated.settle()?;
    let cpu_before = accelerated.cpu_ns()?;
    let began = Instant::now();
    let changes = netns::run_in(ports.host.as_fd(), || change(port, time, stop))?;
    let took = began.elapsed();
    let settling = Instant::now();
    let after = accelerated.settle()?;
    let settled = settling.elapsed();
    let spent = accelerated.cpu_ns()? - cpu_before;
    let bridge_entries = netns::run_in(ports.host.as_fd(), || -> Result<usize> {
        let mut rtnetlink = Rtnetlink::open()?;
        let bridge = rtnetlink.link(BRIDGE)?.index;
        let entries = rtnetlink.fdb(bridge)?;
        Ok(entries.iter().filter(|it| !it.local).count())
    })?;
    Ok(Following {
        changes,
        seconds: took.as_secs_f64(),
        changes_per_second: changes as f64 / took.as_secs_f64(),
        settled_ms: settled.as_secs_f64() * 1e3,
        bridge_entries: bridge_entries as u64,
        mirror_entries: after.entries,
        resyncs: after.resyncs - before.resyncs,
        keeper_percent: spent as f64 / (took + settled).as_nanos() as f64 * 100.0,
    })
}

/// Adds entries in turn, and removes those of a while ago: returns the number of changes.
fn change(port: u32, time: Duration, stop: &StopSignal) -> Result<u64> {
    let mut rtnetlink = Rtnetlink::open()?;
    let (mut added, mut removed) = (0_u64, 0_u64);
    let began = Instant::now();
    while began.elapsed() < time {
        stop.check()?;
        // Those of the pause that follows come before it.
        let due = CHANGES * (began.elapsed() + BURST).as_millis() as u64 / 1000;
        while added + removed < due {
            if added - removed > CHANGING {
                rtnetlink.delete_fdb(port, idle_mac(removed), 0)?;
                removed += 1;
            } else {
                rtnetlink.add_fdb(port, idle_mac(added), 0, FdbKind::Dynamic)?;
                added += 1;
            }
        }
        sleep(BURST);
    }
    Ok(added + removed)
}

/// Attaches and detaches a bridge of four ports so many times.
pub fn attach(rounds: u32, stop: &StopSignal) -> Result<Attach> {
    let ports = Ports::make()?;
    let (mut attach, mut detach) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        stop.check()?;
        let began = Instant::now();
        let accelerated = Accelerated::start(ports.host.as_fd(), BRIDGE, Hook::Xdp)?;
        attach.push(began.elapsed().as_secs_f64() * 1e3);
        let began = Instant::now();
        drop(accelerated);
        detach.push(began.elapsed().as_secs_f64() * 1e3);
    }
    let spread = |values: Vec<f64>| Spread::of(values.into_iter());
    let (Some(attach_ms), Some(detach_ms)) = (spread(attach), spread(detach)) else {
        bail!("no round");
    };
    Ok(Attach {
        ports: PORTS.into(),
        rounds: rounds as usize,
        attach_ms,
        detach_ms,
    })
}

/// Memory of a daemon that accelerates a bridge with so many entries.
pub fn memory(entries: u64, stop: &StopSignal) -> Result<Memory> {
    let ports = Ports::make()?;
    let port = ports.legs[0].port.index()?;
    netns::run_in(ports.host.as_fd(), || add_idle_entries(&[port], entries))?;
    let directory = Directory::make()?;
    let path = |name: &str| directory.0.join(name);
    let config = format!("[[bridge]]\nname = \"{BRIDGE}\"\n");
    fs::write(path("switch.toml"), config)
        .context("cannot write the configuration of the daemon")?;
    let socket = path("socket");
    let mut command = own_command("switch");
    command.arg("run");
    for (flag, value) in [
        ("--config", path("switch.toml")),
        ("--socket", socket.clone()),
        ("--state", path("state")),
        ("--bpffs", NOWHERE.into()),
    ] {
        command.arg(flag).arg(value);
    }
    let mut pid = 0;
    let mut daemon = Child::start("daemon", command, stop, |command| {
        let process = netns::spawn(ports.host.as_fd(), command)?;
        pid = process.id();
        Ok(process)
    })?;
    let entries = wait_for_entries(&socket, entries, stop)?;
    let status = fs::read_to_string(format!("/proc/{pid}/status"))
        .context("cannot read the memory of the daemon")?;
    let memory = Memory {
        entries,
        rss_kib: field(&status, "VmRSS")?,
        peak_kib: field(&status, "VmHWM")?,
    };
    daemon.terminate();
    daemon.wait()?;
    Ok(memory)
}

/// A directory that goes with this value.
struct Directory(PathBuf);

impl Directory {
    fn make() -> Result<Self> {
        let name = format!("weir-switch-bench-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Nothing depends on it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Waits until the daemon has so many entries, and returns their number.
fn wait_for_entries(socket: &Path, entries: u64, stop: &StopSignal) -> Result<u64> {
    let end = Instant::now() + CHILD_TIMEOUT;
    loop {
        stop.check()?;
        let answer: Result<Value> = ask(socket, &Request::Status);
        let bridges = answer.as_ref().ok().map(|answer| &answer["bridges"]);
        let first = bridges.and_then(|bridges| bridges.as_array()?.first());
        match first.and_then(|bridge| bridge["addresses"].as_u64()) {
            Some(found) if found >= entries => return Ok(found),
            _ if Instant::now() < end => sleep(BURST),
            _ => bail!(
                "the daemon does not get to know {entries} addresses: {}",
                answer.map_or_else(|error| format!("{error:#}"), |answer| answer.to_string())
            ),
        }
    }
}

/// A field of /proc/PID/status, in KiB.
fn field(status: &str, name: &str) -> Result<u64> {
    let mut lines = status.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines
        .find(|(key, _)| *key == name)
        .with_context(|| format!("/proc/PID/status has no {name}"))?;
    let kib = value.split_whitespace().next();
    kib.and_then(|it| it.parse().ok())
        .with_context(|| format!("{name} is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_found_by_its_name() {
        let status = "Name:\tweir\nVmHWM:\t   24000 kB\nVmRSS:\t   20000 kB\n";
        assert_eq!(field(status, "VmRSS").expect("is there"), 20_000);
        assert_eq!(field(status, "VmHWM").expect("is there"), 24_000);
        assert!(field(status, "VmSwap").is_err());
    }
}
