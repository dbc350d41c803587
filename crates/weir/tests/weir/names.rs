//! A command takes a device by each of its names.

use std::process::Command;

use anyhow::{Result, ensure};
use testkit::Side;

use crate::{Test, output, tests, weir};

pub fn trials() -> Vec<Test> {
    tests![an_alternative_name_is_a_name]
}

/// The commands with the option `--dev`, without the name.
const COMMANDS: [&[&str]; 4] = [
    &["doctor", "--json", "--dev"],
    &["ledger", "--format", "json", "--seconds", "1", "--dev"],
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
    for name in ["enp0s31f6np0", "enx0a1b2c3d4e5f6789d0"] {
        sides[0].ip(&format!("link property add dev v0 altname {name}"))?;
        for arguments in COMMANDS {
            let mut command: Command = weir();
            command.args(arguments).arg(name);
            let done = sides[0].inside(|| output(&mut command))?;
            let text = String::from_utf8([done.stdout, done.stderr].concat())?;
            ensure!(done.status.code() != Some(2), "{command:?}: {text}");
            ensure!(!text.contains("see `ip link`"), "{command:?}: {text}");
            ensure!(!text.contains("weir: error"), "{command:?}: {text}");
        }
    }
    Ok(())
}
