//! Misuse that must not compile: each file in `compile_fail/` is named after a misuse, with the
//! compiler's errors next to it. `TRYBUILD=overwrite` updates those.

use libtest_mimic::{Arguments, Completion, Trial};
use std::process::{Command, ExitCode};

/// The compiler of the expected errors.
const RUSTC: &str = "rustc 1.95.";

fn main() -> ExitCode {
    let misuses = Trial::ignorable_test("misuses do not compile", || {
        let version = Command::new("rustc").arg("--version").output()?.stdout;
        let version = String::from_utf8_lossy(&version);
        if !version.starts_with(RUSTC) {
            let version = version.trim();
            let reason = format!("the expected errors are those of {RUSTC}x, here is {version}");
            return Ok(Completion::ignored_with(reason));
        }
        trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
        Ok(Completion::Completed)
    });
    libtest_mimic::run(&Arguments::from_args(), vec![misuses]).exit_code()
}
