//! Tests of `weir` on real packets, in network namespaces of their own.
//!
//! A test that needs what this process has not is reported as ignored, with the reason, and
//! never as passed.

mod accounting;
mod bench;
mod cost;
mod curve;
mod doctor;
mod doctor_faults;
mod doctor_faults_device;
mod flame;
mod lab;
mod load;
mod packet;
mod progress;
mod storm;

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
        curve::trials(),
        doctor::trials(),
        doctor_faults::trials(),
        doctor_faults_device::trials(),
        flame::trials(),
        lab::trials(),
        load::trials(),
        progress::trials(),
        storm::trials(),
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
            match (self.run)() {
                Ok(()) => Ok(Completion::Completed),
                Err(error) => match error.downcast::<Skip>() {
                    Ok(Skip(reason)) => Ok(Completion::ignored_with(reason)),
                    Err(error) => Err(format!("{error:?}").into()),
                },
            }
        })
    }
}

/// Why a test cannot run here.
#[derive(Debug)]
struct Skip(String);

impl std::fmt::Display for Skip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skip {}

/// What a test that cannot run here ends with: it is reported as ignored.
fn skip(reason: &str) -> anyhow::Error {
    Skip(reason.into()).into()
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
