//! Instructions a packet of the calls from C, beside the same moves in Rust, on real rings: counted by
//! Callgrind, without the kernel's part. It needs root, valgrind and a C compiler.

#[path = "../../tests/xsk_c/compile.rs"]
#[expect(dead_code, reason = "some is for the tests")]
mod compile;
mod rust;

use compile::{measured_program, scratch, succeed};
use rust::{BATCH, IN_C, MOVES, ROUNDS};
use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;
use testkit::{Side, Temporary};

/// A result whose error is for people only.
type Result<T> = testkit::Result<T>;
/// The result of a part.
type Outcome = Result<()>;

/// The first of this program's arguments, when it makes a move itself.
const RUST: &str = "--rust";

fn main() -> Outcome {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [first, device, peer, name] = &arguments[..]
        && first == RUST
    {
        return Ok(rust::run(device, peer, name)?);
    }
    let scratch = scratch("calls")?;
    let in_c = measured_program(&scratch, "benches/calls/count.c")?;
    let in_rust = env::current_exe()?;
    let side = Side::new("tx0")?;
    side.ip("link add tx0 type veth peer name rx0")?;
    for device in ["tx0", "rx0"] {
        side.ip(&format!("link set dev {device} up"))?;
    }
    println!("{:16} {:>8} {:>8} {:>6}", "", "C", "Rust", "ratio");
    for (name, ..) in MOVES {
        let rust = count(&side, &scratch, &in_rust, &[RUST], name)?;
        if !IN_C.contains(&name) {
            println!("{name:16} {:>8} {rust:8.2}", "-");
            continue;
        }
        let c = count(&side, &scratch, &in_c, &[], name)?;
        println!("{name:16} {c:8.2} {rust:8.2} {:6.2}", c / rust);
    }
    Ok(())
}

/// Instructions a packet.
fn count(
    side: &Side,
    scratch: &Temporary,
    program: &Path,
    first: &[&str],
    name: &str,
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
        .args(["tx0", "rx0", name]);
    side.inside(|| succeed(&mut command))?;
    let counted = fs::read_to_string(output)?;
    let total = counted
        .lines()
        .find_map(|line| line.strip_prefix("totals: "));
    let total: f64 = total.ok_or("a total of Callgrind")?.trim().parse()?;
    Ok(total / f64::from(ROUNDS * BATCH))
}
