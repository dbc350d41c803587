//! Misuse that must not compile: each file in `compile_fail/` is named after a misuse, with the
//! compiler's errors next to it. `TRYBUILD=overwrite` updates those.

use crate::Outcome;
use std::process::Command;
use std::time::Duration;
use testkit::{Need, Test};

/// The compiler of the expected errors.
const RUSTC: &str = "rustc 1.95.";

/// Longest time to build the library and what it needs.
const BUILD: Duration = Duration::from_secs(600);

/// Alone: it builds on all CPUs.
pub fn test() -> Test {
    let body = || -> Outcome {
        trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
        Ok(())
    };
    let test = Test::new("misuses do not compile", body).for_everyone();
    test.needing(&[Need::Probe(missing)]).within(BUILD).alone()
}

fn missing() -> Option<String> {
    if std::env::var_os("CARGO_MANIFEST_DIR").is_none() {
        return Some("cargo does not run these tests".into());
    }
    let Ok(output) = Command::new("rustc").arg("--version").output() else {
        return Some("the program rustc is missing".into());
    };
    let version = String::from_utf8_lossy(&output.stdout);
    let is_other = !version.starts_with(RUSTC);
    let version = version.trim();
    is_other.then(|| format!("the expected errors are those of {RUSTC}x, here is {version}"))
}
