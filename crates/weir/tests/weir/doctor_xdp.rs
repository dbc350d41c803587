//! `weir doctor --xdp`: frames through AF_XDP sockets on real devices.

use std::process::{Command, Output, Stdio};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use hostnet::tap::Tap;
use rustix::thread::CapabilitySet;
use serde_json::Value;
use testkit::sandbox::drop_capabilities;
use xsk::{AttachMode, Device, Mode, Socket, Umem};

use crate::doctor_faults_device::Broken;
use crate::{Test, tests, until, weir};

const ID: &str = "xdp-delivery";

pub fn trials() -> Vec<Test> {
    tests![
        a_veth_delivers,
        a_peer_in_another_namespace_sends,
        devices_above_a_veth_deliver,
        frames_that_do_not_arrive_are_no_loss,
        a_tap_can_be_opened,
        others_programs_and_queues_are_left_alone,
        nothing_is_left_after_a_kill,
        without_the_option_nothing_is_opened,
        a_refused_socket_is_no_finding,
        a_peer_keeps_its_queue_and_its_qdisc,
    ]
}

fn doctor(broken: &Broken, device: &str, arguments: &[&str]) -> Result<Output> {
    broken.inside(|| {
        let mut command = weir();
        command.args(["doctor", "--dev", device]).args(arguments);
        Ok(command.output()?)
    })
}

/// What the report says of the check, and in which of its lists.
fn verdict(broken: &Broken, device: &str) -> Result<(&'static str, Value)> {
    let output = doctor(broken, device, &["--xdp", "--json"])?;
    let text = String::from_utf8_lossy(&output.stderr);
    let report: Value =
        serde_json::from_slice(&output.stdout).with_context(|| text.into_owned())?;
    for list in ["ok", "findings", "unchecked"] {
        let mut entries = report[list].as_array().into_iter().flatten();
        if let Some(found) = entries.find(|entry| entry["id"] == ID) {
            ensure!(found["subject"] == device, "{found}");
            let has_findings = !report["findings"].as_array().is_none_or(Vec::is_empty);
            ensure!(output.status.code() == Some(i32::from(has_findings)));
            return Ok((list, found.clone()));
        }
    }
    anyhow::bail!("the report has nothing of {ID}: {report}")
}

/// Every mode, and what became of it.
fn modes(entry: &Value) -> String {
    let evidence = entry["evidence"].as_array().into_iter().flatten();
    let modes: Vec<_> = evidence
        .map(|it| format!("{}: {}", it["source"], it["value"]))
        .collect();
    modes.join("\n")
}

fn is_delivered(broken: &Broken, device: &str, native: bool) -> Result<()> {
    let (list, entry) = verdict(broken, device)?;
    let modes = modes(&entry);
    ensure!(list == "ok", "{list}: {entry}");
    let expected = 1 + usize::from(native);
    ensure!(
        modes.matches("\"delivered\"").count() == expected,
        "{modes}"
    );
    ensure!(
        modes.matches("\"refused: ").count() == 3 - expected,
        "{modes}"
    );
    has_no_program(broken, device)
}

fn has_no_program(broken: &Broken, device: &str) -> Result<()> {
    let device = broken.inside(|| Ok(Device::lookup(device)?))?;
    ensure!(
        device.programs.is_empty(),
        "left behind: {:?}",
        device.programs
    );
    Ok(())
}

fn is_unchecked(broken: &Broken, device: &str, words: &[&str]) -> Result<()> {
    let (list, entry) = verdict(broken, device)?;
    ensure!(list == "unchecked", "{list}: {entry}");
    let reason = entry["reason"].as_str().unwrap_or_default();
    for words in words {
        ensure!(reason.contains(words), "{words:?} is not in: {reason}");
    }
    Ok(())
}

fn a_veth_delivers() -> Result<()> {
    let broken = Broken::veth()?;
    is_delivered(&broken, "v0", true)?;
    let output = doctor(&broken, "v0", &["--xdp"])?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(text.contains("OK       xdp-delivery v0"), "{text}");
    ensure!(text.contains("generic XDP = delivered"), "{text}");
    Ok(())
}

/// Of one that a process is in, as in a container.
fn a_peer_in_another_namespace_sends() -> Result<()> {
    let (broken, other) = (Broken::veth()?, Broken::new("ip link set lo up")?);
    let mut holder = other.spawn(Command::new("sleep").arg("60").stdin(Stdio::null()))?;
    let moved = broken.run(&format!("ip link set v1 netns {}", holder.id()));
    let tested = moved
        .and_then(|()| other.run("ip link set v1 up"))
        .and_then(|()| is_delivered(&broken, "v0", true));
    holder.kill()?;
    holder.wait()?;
    tested
}

fn devices_above_a_veth_deliver() -> Result<()> {
    let broken = Broken::veth()?;
    broken.run(
        "ip link add up0 link v0 type macvlan mode bridge
         ip link set up0 up
         ip link set lo up",
    )?;
    is_delivered(&broken, "up0", false)?;
    is_delivered(&broken, "lo", false)?;
    broken.run(
        "ip link del up0
         ip link add br0 type bridge
         ip link set v0 master br0
         ip link set br0 up",
    )?;
    is_delivered(&broken, "br0", false)
}

/// A bridge whose port takes nothing.
fn blocked() -> Result<Broken> {
    let broken = Broken::veth()?;
    broken.run(
        "ip link add br0 type bridge
         ip link set v0 master br0
         ip link set br0 up
         bridge link set dev v0 state 0",
    )?;
    Ok(broken)
}

fn frames_that_do_not_arrive_are_no_loss() -> Result<()> {
    is_unchecked(
        &blocked()?,
        "br0",
        &[
            "v1 sent did not arrive at br0",
            "generic XDP can be opened",
            "native XDP refused: ",
        ],
    )
}

fn a_tap_can_be_opened() -> Result<()> {
    let broken = Broken::new("ip link set lo up")?;
    let tap = broken.inside(|| Ok(Tap::create("tap0")?))?;
    is_unchecked(&broken, "tap0", &["it is down: `ip link set dev tap0 up`"])?;
    broken.run("ip link set tap0 up")?;
    let words = ["the process that has it open", "native XDP can be opened"];
    is_unchecked(&broken, "tap0", &words)?;
    drop(tap);
    has_no_device(&broken, "tap0")
}

fn has_no_device(broken: &Broken, name: &str) -> Result<()> {
    until("the device to go", || {
        broken.inside(|| Ok(Device::lookup(name).is_err()))
    })
}

fn others_programs_and_queues_are_left_alone() -> Result<()> {
    let broken = Broken::veth()?;
    let program = broken.program("v0", AttachMode::Skb)?;
    is_unchecked(
        &broken,
        "v0",
        &["an XDP program", "not_of_xsk", "bpftool link detach"],
    )?;
    drop(program);
    let sender = broken.inside(|| {
        let umem = Umem::builder().chunks(64).build()?;
        let socket = Socket::builder(&umem, "v0", 0).mode(Mode::Skb);
        Ok(socket.rx_ring(0).open()?)
    })?;
    is_unchecked(&broken, "v0", &["queue 0"])?;
    drop(sender);
    is_delivered(&broken, "v0", true)
}

fn nothing_is_left_after_a_kill() -> Result<()> {
    let broken = blocked()?;
    for signal in ["-KILL", "-INT"] {
        let mut command = weir();
        command.args(["doctor", "--dev", "br0", "--xdp"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = broken.spawn(&mut command)?;
        let has_program = || {
            let device = broken.inside(|| Ok(Device::lookup("br0")?))?;
            Ok(!device.programs.is_empty())
        };
        until("a program on the device", has_program)?;
        broken.run(&format!("kill {signal} {}", child.id()))?;
        child.wait()?;
        until("the program to go", || Ok(!has_program()?))?;
    }
    Ok(())
}

fn without_the_option_nothing_is_opened() -> Result<()> {
    let broken = Broken::veth()?;
    let output = doctor(&broken, "v0", &["--json"])?;
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let none = report["not_applicable"].as_array().into_iter().flatten();
    ensure!(none.into_iter().any(|id| id == ID), "{report}");
    let alone = broken.inside(|| Ok(weir().args(["doctor", "--xdp"]).output()?))?;
    ensure!(alone.status.code() == Some(2), "{alone:?}");
    Ok(())
}

/// At an MTU of one chunk, and at one that needs `fragments`.
fn a_refused_socket_is_no_finding() -> Result<()> {
    let broken = Broken::veth()?;
    for mtu in [1500, 9000] {
        broken.run(&format!("ip link set v0 mtu {mtu}"))?;
        let without = || {
            drop_capabilities(CapabilitySet::NET_RAW)?;
            is_unchecked(&broken, "v0", &["this needs CAP_NET_RAW"])
        };
        thread::scope(|scope| scope.spawn(without).join().expect("no panic"))?;
    }
    Ok(())
}

fn a_peer_keeps_its_queue_and_its_qdisc() -> Result<()> {
    let broken = Broken::veth()?;
    let own = broken.inside(|| {
        let umem = Umem::builder().chunks(64).build()?;
        Ok(Socket::builder(&umem, "v1", 0).mode(Mode::Skb).open()?)
    })?;
    is_delivered(&broken, "v0", true)?;
    drop(own);
    broken.run("tc qdisc add dev v1 root blackhole")?;
    is_unchecked(&broken, "v0", &["v1 sent did not arrive at v0"])?;
    broken.run("tc qdisc del dev v1 root\nip link set v1 down")?;
    is_unchecked(&broken, "v0", &["v1 cannot send"])
}
