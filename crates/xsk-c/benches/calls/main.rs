//! Instructions a packet of the calls from C, inlined and checked, beside the same moves in Rust and those of libxdp's
//! inlined functions, on real rings: counted by Callgrind, without the kernel's part. It needs root, valgrind and a C
//! compiler, and for libxdp its development package.

#[path = "../../tests/xsk_c/compile.rs"]
#[expect(dead_code, reason = "some is for the tests")]
mod compile;
mod rust;

use compile::{Calls, measured_program, on_libxdp, scratch, succeed};
use rust::{IN_C, MOVES};
use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;
use testkit::{Side, Temporary};

/// A result whose error is for people only.
type Result<T> = testkit::Result<T>;
/// The result of a part.
type Outcome = Result<()>;

/// The last argument of a program in C that counts handing packets to the kernel, too.
const FLUSH: &[&str] = &["flush"];

/// The most that the inlined calls with a callback may take, to libxdp's functions.
const MOST: f64 = 1.1;

/// The first of this program's arguments, when it makes a move itself.
const RUST: &str = "--rust";

fn main() -> Outcome {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [first, device, peer, name] = &arguments[..]
        && first == RUST
    {
        return Ok(rust::run(device, peer, name)?);
    }
    let in_rust = env::current_exe()?;
    let scratches = [scratch("inlined")?, scratch("checked")?, scratch("libxdp")?];
    let inlined = measured_program(&scratches[0], "benches/calls/count.c", Calls::Inlined)?;
    let checked = measured_program(&scratches[1], "benches/calls/count.c", Calls::Checked)?;
    let libxdp = on_libxdp(&scratches[2], "../xsk-libxdp/tests/libxdp/moves.c");
    if let Err(error) = &libxdp {
        eprintln!("libxdp is not compared with: {error}");
    }
    let side = Side::new("tx0")?;
    side.ip("link add tx0 type veth peer name rx0")?;
    for device in ["tx0", "rx0"] {
        side.ip(&format!("link set dev {device} up"))?;
    }
    let scratch = &scratches[0];
    println!(
        "{:15} {:>8} {:>8} {:>6} {:>8} {:>8} {:>8}",
        "", "libxdp", "inlined", "ratio", "flushed", "checked", "Rust"
    );
    let mut above = Vec::new();
    for (name, ..) in MOVES {
        let libxdp = libxdp.as_ref().ok().zip(on_its_rings(name));
        let libxdp = libxdp.map(|(program, name)| count(&side, scratch, program, &[], name, &[]));
        let libxdp = libxdp.transpose()?;
        let in_c = |program: &Path, last: &[&str]| {
            let is_there = IN_C.contains(&name);
            let counted = is_there.then(|| count(&side, scratch, program, &[], name, last));
            counted.transpose()
        };
        // Who only receives has nothing to hand over.
        let flush = if name.starts_with("receive") {
            &[]
        } else {
            FLUSH
        };
        let flushed = in_c(&inlined, flush)?;
        let checked = in_c(&checked, flush)?;
        let inlined = in_c(&inlined, &[])?;
        let rust = count(&side, scratch, &in_rust, &[RUST], name, &[])?;
        let ratio = libxdp.zip(inlined).map(|(libxdp, c)| c / libxdp);
        println!(
            "{name:15} {:>8} {:>8} {:>6} {:>8} {:>8} {rust:8.2}",
            shown(libxdp),
            shown(inlined),
            shown(ratio),
            shown(flushed),
            shown(checked)
        );
        if name.ends_with("_each") && ratio.is_some_and(|ratio| ratio > MOST) {
            above.push(name);
        }
    }
    if above.is_empty() {
        return Ok(());
    }
    Err(format!(
        "more than {MOST} times libxdp's instructions: {}",
        above.join(", ")
    )
    .into())
}

fn shown(figure: Option<f64>) -> String {
    figure.map_or_else(|| "-".into(), |figure| format!("{figure:.2}"))
}

/// The move of libxdp's program that does the same.
fn on_its_rings(name: &str) -> Option<&'static str> {
    match name.split('_').next()? {
        "receive" => Some("rxdrop"),
        "forward" => Some("l2fwd"),
        "send" => Some("txpush"),
        _ => None,
    }
}

/// Instructions a packet.
fn count(
    side: &Side,
    scratch: &Temporary,
    program: &Path,
    first: &[&str],
    name: &str,
    last: &[&str],
) -> Result<f64> {
    let output = scratch.join("callgrind");
    let mut command = Command::new("valgrind");
    command
        .args([
            "--tool=callgrind",
            "--collect-atstart=no",
            "--toggle-collect=counted",
        ])
        .arg(format!("--callgrind-out-file={}", output.display()))
        .arg(program)
        .args(first)
        .args(["tx0", "rx0", name])
        .args(last);
    let packets = side.inside(|| succeed(&mut command))?;
    let packets = packets.trim().strip_suffix(" packets");
    let packets: f64 = packets.ok_or("a number of packets")?.parse()?;
    let counted = fs::read_to_string(output)?;
    let total = counted
        .lines()
        .find_map(|line| line.strip_prefix("totals: "));
    let total: f64 = total.ok_or("a total of Callgrind")?.trim().parse()?;
    Ok(total / packets)
}
