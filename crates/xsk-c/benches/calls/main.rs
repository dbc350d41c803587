//! Instructions a packet of the calls from C, beside the same moves in Rust, on real rings: counted by
//! Callgrind, without the kernel's part. It needs root, valgrind and a C compiler.

#[path = "../../../xsk/tests/xsk/budget.rs"]
#[expect(dead_code, reason = "some is for the tests of xsk")]
mod budget;
#[path = "../../tests/xsk_c/compile.rs"]
#[expect(dead_code, reason = "some is for the tests")]
mod compile;
#[path = "../../../xsk/tests/xsk/netns.rs"]
#[expect(dead_code, reason = "some is for the tests of xsk")]
mod netns;
mod rust;

use compile::{Scratch, measured_program, succeed};
use netns::Side;
use rust::{BATCH, IN_C, MOVES, ROUNDS};
use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A result whose error is for people only.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
/// The result of a part.
type Outcome = Result<()>;

/// The error of a missing tool.
#[derive(Debug)]
struct Skipped(String);

impl std::fmt::Display for Skipped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skipped {}

/// The first of this program's arguments, when it makes a move itself.
const RUST: &str = "--rust";

fn main() -> Outcome {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [first, device, peer, name] = &arguments[..]
        && first == RUST
    {
        return Ok(rust::run(device, peer, name)?);
    }
    let scratch = Scratch::new("calls")?;
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
    scratch: &Scratch,
    program: &Path,
    first: &[&str],
    name: &str,
) -> Result<f64> {
    let output = scratch.path("callgrind");
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
