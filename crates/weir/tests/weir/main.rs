//! Tests of `weir` on real packets, in network namespaces of their own.
//!
//! A test that lacks a privilege or a kernel feature is reported as ignored, with the reason,
//! never as passed.

mod accounting;
mod bench;
mod broker;
mod busy_loop;
mod cost;
mod curve;
mod doctor;
mod doctor_faults;
mod doctor_faults_device;
mod doctor_faults_stack;
mod doctor_score;
mod exporter;
mod filter;
mod flame;
mod guide;
mod lab;
mod ledger;
mod ledger_capture;
mod load;
mod packet;
mod quiet;
mod quiet_rule;
mod rtt;
mod storm;
mod switch;
mod switch_bench;
mod switch_programs;
mod top;

use std::process::{Command, ExitCode, Output};
use std::sync::{PoisonError, RwLock};

use anyhow::{Context as _, Result};
use hostnet::cpulist::CpuList;
use libtest_mimic::{Arguments, Completion, Trial};
use quiet::Noise;

fn main() -> ExitCode {
    lab::run_as_owner_of_an_anonymous_lab();
    ledger::run_as_overflow();
    let arguments = Arguments::from_args();
    let mut tests = [
        accounting::trials(),
        bench::trials(),
        broker::trials(),
        busy_loop::trials(),
        cost::trials(),
        curve::trials(),
        doctor::trials(),
        doctor_faults_device::trials(),
        doctor_score::trials(),
        exporter::trials(),
        filter::trials(),
        flame::trials(),
        guide::trials(),
        lab::trials(),
        ledger::trials(),
        ledger_capture::trials(),
        load::trials(),
        quiet_rule::trials(),
        rtt::trials(),
        storm::trials(),
        switch_bench::trials(),
        switch::trials(),
        switch_programs::trials(),
        top::trials(),
    ]
    .concat();
    // At the end, where no other test has to wait for them.
    tests.sort_by_key(|test| test.is_alone);
    let trials = tests.into_iter().map(Test::into_trial).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A test, which needs root unless it says otherwise.
#[derive(Clone, Copy)]
struct Test {
    name: &'static str,
    run: fn() -> Result<()>,
    needs_root: bool,
    /// No other test of this program runs meanwhile.
    is_alone: bool,
}

/// Held by each test that runs: shared, or by one that is alone.
static MACHINE: RwLock<()> = RwLock::new(());

impl Test {
    fn without_root(self) -> Self {
        Self {
            needs_root: false,
            ..self
        }
    }

    fn run(self) -> Result<()> {
        // A test that panicked has left nothing in the lock.
        if self.is_alone {
            let _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
            (self.run)()
        } else {
            let _shared = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
            (self.run)()
        }
    }

    fn into_trial(self) -> Trial {
        Trial::ignorable_test(self.name, move || {
            if self.needs_root && !rustix::process::geteuid().is_root() {
                return Ok(Completion::ignored_with("network namespaces need root"));
            }
            let Err(error) = self.run() else {
                return Ok(Completion::Completed);
            };
            if error.is::<Skip>() || error.is::<Noise>() {
                return Ok(Completion::ignored_with(error.to_string()));
            }
            Err(format!("{error:?}").into())
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

/// The error of a test that cannot run here: it is reported as ignored.
fn skip(reason: &str) -> anyhow::Error {
    Skip(reason.into()).into()
}

/// A [`Test`] of each function, under its name.
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        vec![$(crate::Test {
            name: concat!(module_path!(), "::", stringify!($name)),
            run: $name,
            needs_root: true,
            is_alone: false,
        }),*]
    };
}
use tests;

/// The same for tests that measure: no other test of this program runs beside them.
/// [`quiet::when_quiet`] watches for other programs.
macro_rules! tests_alone {
    ($($name:ident),* $(,)?) => {
        crate::tests![$($name),*].into_iter().map(|test| crate::Test { is_alone: true, ..test }).collect::<Vec<_>>()
    };
}
use tests_alone;

/// The `weir` that was built with these tests.
fn weir() -> Command {
    Command::new(env!("CARGO_BIN_EXE_weir"))
}

/// How long to wait for an event that comes at once: many times as long as on any machine that has
/// more to do, so that only a hang takes it.
const SOON: std::time::Duration = std::time::Duration::from_secs(60);

/// A CPU that this process may use, for commands that name one.
fn a_cpu() -> Result<usize> {
    let allowed = CpuList::allowed()?;
    allowed.as_slice().first().copied().context("no CPU")
}

/// A time limit, multiplied by `WEIR_TEST_SCALE`.
fn scale(limit: std::time::Duration) -> std::time::Duration {
    let scale = std::env::var("WEIR_TEST_SCALE").ok();
    limit * scale.and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn output(command: &mut Command) -> Result<Output> {
    command.output().context("cannot run weir")
}

/// The output of a command that succeeds.
fn success(command: &mut Command) -> Result<String> {
    let output = output(command)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{command:?} failed: {stderr}");
    Ok(String::from_utf8(output.stdout)?)
}

/// The standard error of a command that fails with exit code `code`.
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
