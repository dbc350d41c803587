//! Bulk TCP between two containers: iperf3 in the namespaces behind two ports of a bridge.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::Path;
use super::plan::Settings;
use super::stage::BRIDGE;
use crate::cost::accelerated::Accelerated;
use crate::lab::Side;
use crate::lab::leg::{Leg, add_bridge_of};
use crate::process::child::{CHILD_TIMEOUT, Child};
use crate::process::stop::StopSignal;
use crate::switch::Hook;
use hostnet::netns;
use hostnet::rtnetlink::BridgeOptions;

/// Addresses for benchmarks (RFC 2544).
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
const CLIENT: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const PREFIX: u8 = 24;
/// Seconds in which TCP finds its rate; they do not count.
const OMIT: u64 = 1;

/// Two containers on a bridge.
#[must_use = "the bridge and the containers are gone when this is dropped"]
pub struct Containers {
    /// The switch.
    pub path: Path,
    // Before the bridge: programs are detached first.
    _accelerated: Option<Accelerated>,
    client: Leg,
    server: Leg,
    _host: OwnedFd,
}

/// The result of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throughput {
    /// Received, in gigabits (10^9) a second.
    pub gbps: f64,
    /// Segments that the sender repeated.
    pub retransmits: u64,
}

impl Containers {
    /// Makes them, with veths as a container runtime makes them: all offloads on.
    pub fn make(path: Path) -> Result<Self> {
        let host = netns::create()?;
        netns::disable_ipv6(host.as_fd())?;
        let (client, server) = (Leg::add(host.as_fd(), 1)?, Leg::add(host.as_fd(), 2)?);
        let ports = [client.port.index()?, server.port.index()?];
        netns::run_in(host.as_fd(), || {
            add_bridge_of(BRIDGE, &BridgeOptions::default(), &ports)
        })?;
        client.far.add_address(CLIENT, PREFIX)?;
        server.far.add_address(SERVER, PREFIX)?;
        let accelerated = match path {
            Path::WeirTcx => Some(Accelerated::start(host.as_fd(), BRIDGE, Hook::Tcx)?),
            _ => None,
        };
        Ok(Self {
            path,
            _accelerated: accelerated,
            client,
            server,
            _host: host,
        })
    }

    /// Sends for the settings' window: the sender, and the softirqs that forward, on the load's CPU;
    /// the receiver on the other one.
    pub fn measure(&self, settings: &Settings, stop: &StopSignal) -> Result<Throughput> {
        let server_words = ["--server", "--one-off", "--forceflush"];
        let mut server = start(
            "iperf3 server",
            &self.server.far,
            iperf3(settings.app_cpu).args(server_words),
            stop,
        )?;
        wait_for("listening", &mut server)?;
        let seconds = settings.window.as_secs().max(1);
        let mut client = start(
            "iperf3 client",
            &self.client.far,
            iperf3(settings.load_cpu)
                .args(["--json", "--client", &SERVER.to_string()])
                .args(["--time", &seconds.to_string(), "--omit", &OMIT.to_string()]),
            stop,
        )?;
        let limit = Duration::from_secs(seconds + OMIT) + CHILD_TIMEOUT;
        let mut text = String::new();
        while !is_whole(&text) {
            let line = client.line(limit)?;
            text.push_str(&line.context("iperf3 does not end: is this machine overloaded?")?);
            text.push('\n');
        }
        let throughput = parse(&text)?;
        client.wait()?;
        server.wait()?;
        Ok(throughput)
    }
}

/// Whether iperf3 is there.
pub fn check() -> Result<()> {
    let found = Command::new("iperf3").arg("--version").output();
    ensure!(
        found.is_ok_and(|output| output.status.success()),
        "iperf3 is not installed: install it (Debian's package iperf3)"
    );
    Ok(())
}

fn iperf3(cpu: usize) -> Command {
    let mut command = Command::new("iperf3");
    command.args(["--affinity", &cpu.to_string()]);
    command
}

fn start<'a>(
    name: &'static str,
    side: &Side,
    command: &mut Command,
    stop: &'a StopSignal,
) -> Result<Child<'a>> {
    let command = std::mem::replace(command, Command::new("true"));
    Child::start(name, command, stop, |command| side.spawn(command))
}

fn wait_for(word: &str, server: &mut Child<'_>) -> Result<()> {
    loop {
        match server.line(CHILD_TIMEOUT)? {
            Some(line) if line.contains(word) => return Ok(()),
            Some(_) => {}
            None => bail!("iperf3 does not start to listen"),
        }
    }
}

/// Whether the text is a whole JSON document.
fn is_whole(text: &str) -> bool {
    text.ends_with("\n}\n")
}

fn parse(text: &str) -> Result<Throughput> {
    let report: Value = serde_json::from_str(text).context("iperf3 printed no JSON")?;
    if let Some(error) = report["error"].as_str() {
        bail!("iperf3 failed: {error}");
    }
    let end = &report["end"];
    let bits = end["sum_received"]["bits_per_second"].as_f64();
    Ok(Throughput {
        gbps: bits.context("iperf3 reports no rate")? / 1e9,
        retransmits: end["sum_sent"]["retransmits"].as_u64().unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receivers_rate_counts() {
        let text = r#"{"end": {"sum_sent": {"bits_per_second": 3e9, "retransmits": 4},
                       "sum_received": {"bits_per_second": 2e9}}}"#;
        let expected = Throughput {
            gbps: 2.0,
            retransmits: 4,
        };
        assert_eq!(parse(text).expect("a result"), expected);
        let error = parse(r#"{"error": "unable to connect"}"#).expect_err("an error");
        assert!(error.to_string().contains("unable to connect"));
        assert!(parse("{}").is_err() && parse("").is_err());
    }
}
