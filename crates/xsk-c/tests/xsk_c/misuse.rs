//! Programs in C that check packets and errors themselves.

use crate::compile::{Calls, program_with, scratch};
use crate::lab::{has_no_program, join_up, start_with};
use crate::{Outcome, Result, moving};
use hostnet::ethtool::{self, Offload};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;
use testkit::{Side, Skip, Test, skip};
use xsk::testing::programs::{self, Kind};
use xsk::{Device, Feature, Umem};

pub fn tests() -> Vec<Test> {
    vec![
        moving("SKB packets arrive as they were sent, by each call", || {
            moves("1")
        }),
        moving("DRV packets arrive as they were sent, by each call", || {
            moves("2")
        }),
        moving(
            "two queues share a program, and get the packets of a rule",
            || run_both("tests/c/queues.c", "2", "each queue got its packets"),
        ),
        moving("SKB a socket tells its faults", || faults("1")),
        moving("DRV a socket tells its faults", || faults("2")),
        moving("SKB frames outlast a device that goes and returns", || {
            rebind("1")
        }),
        moving("DRV frames outlast a device that goes and returns", || {
            rebind("2")
        }),
        moving("every misuse is refused", misuse),
        moving("SKB the inlined calls refuse what they can", || {
            inlined("1")
        }),
        moving("DRV the inlined calls refuse what they can", || {
            inlined("2")
        }),
        moving(
            "SKB packets of several chunks arrive as they were sent",
            || fragments("1", "2048"),
        ),
        moving(
            "DRV packets of several chunks arrive as they were sent",
            || fragments("2", "2048"),
        ),
        moving("SKB packets in unaligned chunks have their room", || {
            unaligned("1")
        }),
        moving("DRV packets in unaligned chunks have their room", || {
            unaligned("2")
        }),
        moving("SKB packets of several unaligned chunks arrive", || {
            fragments("1", "3000")
        }),
        moving("DRV packets of several unaligned chunks arrive", || {
            fragments("2", "3000")
        }),
        moving("the memory of a UMEM is on its NUMA node", numa),
        moving(
            "SKB TX metadata: each request is answered or refused",
            || metadata("1"),
        ),
        moving(
            "DRV TX metadata: each request is answered or refused",
            || metadata("2"),
        ),
        moving("SKB RX hints: none, and the reason", || hints("1")),
        moving("DRV RX hints: hash and VLAN tag", || hints("2")),
        moving("SKB a program and an XSKMAP of the caller's", || own("1")),
        moving("DRV a program and an XSKMAP of the caller's", || own("2")),
        moving("handles hold in random sequences of calls", || {
            random(Calls::Checked)
        }),
        moving("inlined calls mix with others in random sequences", || {
            random(Calls::Inlined)
        }),
    ]
}

/// Longest time of a program that checks packets.
const PROGRAM: Duration = Duration::from_secs(120);

/// A namespace with two veth pairs in it.
fn both_ends() -> Result<Side> {
    both_ends_of(2)
}

/// The same with a number of queues.
fn both_ends_of(queues: u32) -> Result<Side> {
    let side = Side::new("rx0")?;
    join_up([&side, &side.beside("tx0")?], 0xa, queues)?;
    let spare = [side.beside("spare0")?, side.beside("spare1")?];
    join_up([&spare[0], &spare[1]], 0xc, queues)?;
    Ok(side)
}

/// With the calls that are checked: these programs try misuse.
fn run(source: &str, argument: &str, line: &str) -> Outcome {
    run_on(&both_ends()?, source, &[argument], line)
}

fn run_on(side: &Side, source: &str, arguments: &[&str], line: &str) -> Outcome {
    run_with(side, source, Calls::Checked, arguments, line, Vec::new())
}

/// With both kinds of calls.
fn run_both(source: &str, argument: &str, line: &str) -> Outcome {
    for calls in Calls::ALL {
        run_with(&both_ends()?, source, calls, &[argument], line, Vec::new())?;
    }
    Ok(())
}

/// With descriptors that the program inherits.
fn run_with(
    side: &Side,
    source: &str,
    calls: Calls,
    arguments: &[&str],
    line: &str,
    descriptors: Vec<OwnedFd>,
) -> Outcome {
    let name = source.rsplit('/').next().unwrap_or(source);
    let scratch = scratch(&format!("{name}-{calls:?}-{}", arguments.join("-")))?;
    let program = program_with(&scratch, source, calls)?;
    let arguments = [&["tx0", "rx0"], arguments].concat();
    let mut running = start_with(side, &program, &arguments, descriptors)?;
    running.end_within(PROGRAM)?;
    Ok(running.wait_for_line(line)?)
}

fn faults(mode: &str) -> Outcome {
    run_both("tests/c/faults.c", mode, "each fault was told")
}

fn rebind(mode: &str) -> Outcome {
    run_both("tests/c/rebind.c", mode, "the frames outlasted the device")
}

fn moves(mode: &str) -> Outcome {
    run_both("tests/c/moves.c", mode, "all packets as they were sent")
}

fn unaligned(mode: &str) -> Outcome {
    run("tests/c/unaligned.c", mode, "all packets as they were sent")
}

/// A veth leaves sums that were asked for to the host that takes the packet, unless its own kernel sums, as with `ethtool -K DEVICE
/// tx off`.
fn metadata(mode: &str) -> Outcome {
    needs(Feature::TxMetadata)?;
    let side = both_ends()?;
    for device in ["rx0", "tx0"] {
        side.inside(|| ethtool::set(device, Offload::TxChecksum, false))?;
    }
    let line = "every request was answered or refused";
    run_on(&side, "tests/c/metadata.c", &[mode], line)
}

/// On one queue, as the network stack spreads flows; and where its packets get a VLAN tag.
fn hints(mode: &str) -> Outcome {
    const VLAN: u16 = 7;
    needs(Feature::RxHints)?;
    let side = both_ends_of(1)?;
    let device = side.inside(|| Device::lookup("tx0"))?;
    let tagging = side.inside(|| programs::tag_sent(&device, VLAN));
    let _tagging = tagging.map_err(|error| Skip::new(format!("no tcx: {error}")))?;
    run_on(
        &side,
        "tests/c/hints.c",
        &[mode, &VLAN.to_string()],
        "each packet had its hints",
    )
}

/// Skips a test of a feature that the kernel lacks.
fn needs(feature: Feature) -> Outcome {
    Ok(feature
        .probe()
        .map_err(|missing| Skip::new(missing.to_string()))?)
}

fn own(mode: &str) -> Outcome {
    let side = both_ends()?;
    let map = programs::xskmap(1)?;
    let program = programs::load_kind(Kind::ByDestination, map.as_fd())?;
    let numbers = [&program, &map].map(|it| it.as_raw_fd().to_string());
    run_with(
        &side,
        "tests/c/own.c",
        Calls::Inlined,
        &[mode, &numbers[0], &numbers[1]],
        "the packets came by the caller's program",
        vec![program, map],
    )?;
    assert!(has_no_program(&side), "the program is still attached");
    Ok(())
}

/// Skipped where the kernel shows no node 0 with memory.
fn numa() -> Outcome {
    let umem = Umem::builder().chunks(64).numa_node(0).build();
    if let Err(error) = umem {
        return Err(skip(error.to_string()));
    }
    run("tests/c/numa.c", "0", "the memory is on its node")
}

/// On devices that take jumbo frames.
fn fragments(mode: &str, chunk_size: &str) -> Outcome {
    needs(Feature::Fragments)?;
    let side = both_ends()?;
    for device in ["rx0", "tx0"] {
        side.ip(&format!("link set dev {device} mtu 9000"))?;
    }
    run_on(
        &side,
        "tests/c/fragments.c",
        &[mode, chunk_size],
        "all packets as they were sent",
    )
}

fn misuse() -> Outcome {
    let build = if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    };
    run("tests/c/misuse.c", build, "every misuse was refused")
}

fn inlined(mode: &str) -> Outcome {
    run_with(
        &both_ends()?,
        "tests/c/inlined.c",
        Calls::Inlined,
        &[mode],
        "the inlined calls refused what they can",
        Vec::new(),
    )
}

fn random(calls: Calls) -> Outcome {
    run_with(
        &both_ends()?,
        "tests/c/random.c",
        calls,
        &["20261126"],
        "every handle was as it should be",
        Vec::new(),
    )
}
