//! The instructions a packet of programs on libxdp and on weir's library, without the kernel's part.

use crate::Result;
use crate::build::{Built, Way};
use crate::lab::{Lab, run};
use std::fs;
use std::process::Command;
use testkit::{Test, tests};

pub(crate) fn tests() -> Vec<Test> {
    tests![
        a_packet_takes_as_many_instructions_as_with_libxdp,
        calls_take_no_more_instructions_than_libxdps,
    ]
}

const MOVES: [&str; 3] = ["rxdrop", "txpush", "l2fwd"];
/// The most that weir's library may take, to libxdp's. The moves are the header's inlined functions, so that all
/// there can be is another layout of the rings.
const MOST: f64 = 1.03;

/// A packet's instructions in a move, by Callgrind.
fn count(lab: &Lab, built: &Built, way: Way, name: &str) -> Result<f64> {
    let output = built.path("callgrind");
    let to = format!("--callgrind-out-file={}", output.display());
    let valgrind = [
        "valgrind",
        "--tool=callgrind",
        "--collect-atstart=no",
        "--toggle-collect=counted",
        &to,
    ];
    let mut command = built.command_by(way, &valgrind, "moves");
    let packets = lab.inside(|| run(command.args(["one0", "two0", name])))?;
    let packets = packets.strip_suffix(" packets\n").ok_or("its packets")?;
    let counted = fs::read_to_string(output)?;
    let mut lines = counted.lines();
    let total = lines.find_map(|line| line.strip_prefix("totals: "));
    let total: f64 = total.ok_or("a total of Callgrind")?.trim().parse()?;
    Ok(total / packets.parse::<f64>()?)
}

fn a_packet_takes_as_many_instructions_as_with_libxdp() -> Result {
    compare(&Built::with("moves")?, MOST)
}

/// The functions that the header inlines, called as other languages do.
fn calls_take_no_more_instructions_than_libxdps() -> Result {
    let built = Built::libraries()?;
    built.add_calling("moves", "-O2")?;
    // Debug builds of the library have checks, and no optimization.
    compare(
        &built,
        if cfg!(debug_assertions) {
            f64::MAX
        } else {
            MOST
        },
    )
}

fn compare(built: &Built, most: f64) -> Result {
    run(Command::new("valgrind").arg("--version"))?;
    for name in MOVES {
        let counts = Way::ALL.map(|way| {
            let lab = Lab::new(1)?;
            let pair = [
                "link add one0 type veth peer name two0",
                "link set dev one0 up",
                "link set dev two0 up",
            ];
            for words in pair {
                lab.wan.ip(words)?;
            }
            count(&lab, built, way, name)
        });
        let [libxdp, linked, preloaded] = counts;
        let (libxdp, linked, preloaded) = (libxdp?, linked?, preloaded?);
        println!(
            "{name}: {libxdp:.2} instructions a packet on libxdp, {linked:.2} on weir ({:.3}), {preloaded:.2} on weir in front of it ({:.3})",
            linked / libxdp,
            preloaded / libxdp
        );
        assert!(libxdp > 1.0, "nothing was counted");
        for ours in [linked, preloaded] {
            assert!(ours <= most * libxdp, "{name}: {ours} to {libxdp}");
        }
    }
    Ok(())
}
