//! Tests of `weir` on real packets, in network namespaces of their own.
//!
//! A test that needs what this process has not is reported as ignored, with the reason, and
//! never as passed.

mod accounting;
mod bench;
mod cost;
mod flame;
mod lab;
mod load;
mod packet;
mod progress;

use std::process::{Command, ExitCode, Output};

use anyhow::{Context as _, Result};
use libtest_mimic::{Arguments, Completion, Trial};

fn main() -> ExitCode {
    lab::run_as_owner_of_an_anonymous_lab();
    let arguments = Arguments::from_args();
    let trials = [
        accounting::trials(),
        bench::trials(),
        cost::trials(),
        flame::trials(),
        lab::trials(),
        load::trials(),
        progress::trials(),
    ]
    .concat();
    libtest_mimic::run(
        &arguments,
        trials.into_iter().map(Test::into_trial).collect(),
    )
    .exit_code()
}

/// A test that needs root.
#[derive(Clone, Copy)]
struct Test {
    name: &'static str,
    run: fn() -> Result<()>,
}

impl Test {
    fn into_trial(self) -> Trial {
        Trial::ignorable_test(self.name, move || {
            if !rustix::process::geteuid().is_root() {
                return Ok(Completion::ignored_with("network namespaces need root"));
            }
            (self.run)().map_err(|error| format!("{error:?}"))?;
            Ok(Completion::Completed)
        })
    }
}

/// A [`Test`] of each function, under its name.
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        vec![$(crate::Test { name: concat!(module_path!(), "::", stringify!($name)), run: $name }),*]
    };
}
use tests;

/// The `weir` that was built with these tests.
fn weir() -> Command {
    Command::new(env!("CARGO_BIN_EXE_weir"))
}

/// A time limit, scaled as `WEIR_TEST_SCALE` tells.
fn scale(limit: std::time::Duration) -> std::time::Duration {
    let scale = std::env::var("WEIR_TEST_SCALE").ok();
    limit * scale.and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn output(command: &mut Command) -> Result<Output> {
    command.output().context("cannot run weir")
}

/// What a command that succeeded wrote.
fn success(command: &mut Command) -> Result<String> {
    let output = output(command)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{command:?} failed: {stderr}");
    Ok(String::from_utf8(output.stdout)?)
}

/// What a command that failed with exit code `code` wrote on standard error.
fn failure(command: &mut Command, code: i32) -> Result<String> {
    let output = output(command)?;
    let stderr = String::from_utf8(output.stderr)?;
    anyhow::ensure!(
        output.status.code() == Some(code),
        "{command:?} ended with {} instead of exit code {code}: {stderr}",
        output.status
    );
    Ok(stderr)
}
