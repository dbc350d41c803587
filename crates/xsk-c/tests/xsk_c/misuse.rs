//! Programs in C that check packets and errors themselves.

use crate::compile::{Scratch, program};
use crate::netns::Side;
use crate::process::Running;
use crate::{Outcome, Result, moving};
use libtest_mimic::Trial;

pub fn tests() -> Vec<Trial> {
    vec![
        moving("SKB packets arrive as they were sent, by each call", || {
            moves("1")
        }),
        moving("DRV packets arrive as they were sent, by each call", || {
            moves("2")
        }),
        moving("every misuse is refused", misuse),
        moving("handles hold in random sequences of calls", random),
    ]
}

/// A namespace with both ends of a veth pair in it, and one end of another.
fn both_ends() -> Result<Side> {
    let side = Side::new("rx0")?;
    for pair in [
        "rx0 type veth peer name tx0",
        "spare0 type veth peer name spare1",
    ] {
        side.ip(&format!("link add {pair}"))?;
    }
    for device in ["rx0", "tx0", "spare0", "spare1"] {
        side.run("ethtool", &format!("-K {device} tx off"))?;
        side.ip(&format!("link set dev {device} up"))?;
    }
    Ok(side)
}

fn run(source: &str, argument: &str, line: &str) -> Outcome {
    let scratch = Scratch::new(argument)?;
    let program = program(&scratch, source)?;
    let side = both_ends()?;
    let mut running = Running::start(&side, &program, &["tx0", "rx0", argument])?;
    running.end()?;
    running.wait_for_line(line)
}

fn moves(mode: &str) -> Outcome {
    run("tests/c/moves.c", mode, "all packets as they were sent")
}

fn misuse() -> Outcome {
    let build = if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    };
    run("tests/c/misuse.c", build, "every misuse was refused")
}

fn random() -> Outcome {
    run(
        "tests/c/random.c",
        "20261126",
        "every handle was as it should be",
    )
}
