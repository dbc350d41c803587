//! A command takes a device by each of its names.

use std::process::Command;

use anyhow::{Result, ensure};
use testkit::Side;

use crate::{Test, output, tests, weir};

pub fn trials() -> Vec<Test> {
    tests![
        an_alternative_name_is_a_name,
        rules_and_packets_have_alternative_names,
        a_name_of_no_device_is_refused
    ]
}

/// As short as a first name, one of udev's for a card, and a long one.
pub fn names() -> [String; 3] {
    ["enp0s31f6np0", "enx0a1b2c3d4e5f6789d0", &"x".repeat(100)].map(str::to_owned)
}

/// The commands with the option `--dev`, without the name.
const COMMANDS: [&[&str]; 5] = [
    &["doctor", "--json", "--dev"],
    &["ledger", "--format", "json", "--seconds", "1", "--dev"],
    &["top", "--once", "--interval", "0.1", "--dev"],
    &["cost", "--seconds", "1", "--format", "json", "--dev"],
    &[
        "bench",
        "txpush",
        "--queue",
        "0",
        "--engine",
        "packet-v2",
        "--rounds",
        "1",
        "--seconds",
        "1",
        "--format",
        "json",
        "--dev",
    ],
];

fn an_alternative_name_is_a_name() -> Result<()> {
    let sides = [Side::new("v0")?, Side::new("v1")?];
    testkit::join([&sides[0], &sides[1]], 1, 1, 1500)?;
    for side in &sides {
        side.set_up(true)?;
    }
    for name in names() {
        sides[0].ip(&format!("link property add dev v0 altname {name}"))?;
        for arguments in COMMANDS {
            let mut command: Command = weir();
            command.args(arguments).arg(&name);
            let done = sides[0].inside(|| output(&mut command))?;
            let text = String::from_utf8([done.stdout, done.stderr].concat())?;
            ensure!(done.status.code() != Some(2), "{command:?}: {text}");
            ensure!(!text.contains("see `ip link`"), "{command:?}: {text}");
            ensure!(!text.contains("weir: error"), "{command:?}: {text}");
        }
    }
    Ok(())
}

/// No device is there, a name is too long, and a renamed device has its former name no more.
fn a_name_of_no_device_is_refused() -> Result<()> {
    let side = Side::new("v0")?;
    side.ip("link set dev lo up")?;
    side.ip("link add old0 type bridge")?;
    side.ip("link set dev old0 name new0")?;
    for name in ["none0", "old0", &"x".repeat(128)] {
        for arguments in COMMANDS {
            let mut command: Command = weir();
            command.args(arguments).arg(name);
            let done = side.inside(|| output(&mut command))?;
            let text = String::from_utf8([done.stdout, done.stderr].concat())?;
            let has_cure = text.contains("`ip link`") || text.contains("1 to 127 bytes");
            ensure!(text.contains(name) && has_cure, "{command:?}: {text}");
        }
    }
    Ok(())
}

/// `weir filter` on this machine.
fn rules_and_packets_have_alternative_names() -> Result<()> {
    let sides = [Side::new("v0")?, Side::new("v1")?];
    testkit::join([&sides[0], &sides[1]], 1, 1, 1500)?;
    let directory = testkit::Temporary::new("filter-names")?;
    let file = directory.join("pf.conf");
    let filter = |words: &[&str]| -> Result<(Option<i32>, String)> {
        let mut command = weir();
        command
            .arg("filter")
            .args(words)
            .args(["--host", "live"])
            .arg(&file);
        let done = sides[0].inside(|| output(&mut command))?;
        let text = String::from_utf8([done.stdout, done.stderr].concat())?;
        Ok((done.status.code(), text))
    };
    for name in names() {
        sides[0].ip(&format!("link property add dev v0 altname {name}"))?;
        let rules = format!(
            "block all\npass in on {name} proto tcp to port 22\npass out on ! {name} to ({name})\n"
        );
        std::fs::write(&file, rules)?;
        let (code, text) = filter(&["check"])?;
        ensure!(code == Some(0), "{text}");
        for on in ["v0", &name] {
            let packet = format!("in on {on} proto tcp from 192.0.2.1 to 192.0.2.2 port 22");
            let mut command = weir();
            command.args(["filter", "explain", "--host", "live"]);
            command.arg(&file).arg(packet);
            let done = sides[0].inside(|| output(&mut command))?;
            let text = String::from_utf8([done.stdout, done.stderr].concat())?;
            ensure!(done.status.code() == Some(0), "{name}, {on}: {text}");
        }
    }
    // It would be the group of v0 and of this device.
    sides[0].ip("link add w0 type bridge")?;
    sides[0].ip("link property add dev w0 altname v")?;
    let (code, text) = filter(&["check"])?;
    ensure!(code != Some(0), "{text}");
    ensure!(
        text.contains("v is an alternative name of w0, and in rules a group that v0 is in"),
        "{text}"
    );
    Ok(())
}
