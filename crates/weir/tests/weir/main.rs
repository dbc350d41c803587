//! Tests of `weir` on real packets, in network namespaces of their own.
//!
//! A test that lacks a privilege or a kernel feature is reported as ignored, with the reason,
//! never as passed.

mod accounting;
mod bench;
mod broker;
mod busy_loop;
mod cost;
mod cures;
mod curve;
mod doctor;
mod doctor_faults;
mod doctor_faults_device;
mod doctor_faults_stack;
mod doctor_score;
mod doctor_xdp;
mod exporter;
mod filter;
mod flame;
mod guide;
mod lab;
mod ledger;
mod ledger_capture;
mod ledger_faults;
mod load;
mod names;
mod quiet;
mod quiet_rule;
mod random;
mod rtt;
mod sandbox;
mod storm;
mod switch;
mod switch_bench;
mod switch_fuzz;
mod switch_programs;
mod top;
mod truth;

use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::panic::resume_unwind;
use std::process::{Command, ExitCode, Output};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result};
use hostnet::cpulist::CpuList;
use hostnet::netns;
use testkit::{Need, PacketSocket, Suite, Test, skip, tests, tests_alone};
use weir::lab::Side;

fn main() -> ExitCode {
    lab::run_as_owner_of_an_anonymous_lab();
    ledger::run_as_overflow();
    truth::run_as_measurement();
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    if let Some(result) = program(&words) {
        return match result {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("weir: error: {error:?}");
                ExitCode::FAILURE
            }
        };
    }
    Suite::new().needing(&[Need::Root]).run(trials())
}

/// The program that the first words ask for instead of tests: whether it succeeded.
fn program(words: &[OsString]) -> Option<Result<bool>> {
    match words.first()?.to_str()? {
        ledger_faults::SUITE => ledger_faults::program(words),
        switch_fuzz::SUITE => switch_fuzz::program(words),
        _ => None,
    }
}

fn trials() -> Vec<Test> {
    let trials = [
        accounting::trials(),
        bench::trials(),
        broker::trials(),
        busy_loop::trials(),
        cost::trials(),
        cures::trials(),
        curve::trials(),
        doctor::trials(),
        doctor_faults_device::trials(),
        doctor_score::trials(),
        doctor_xdp::trials(),
        exporter::trials(),
        filter::trials(),
        flame::trials(),
        guide::trials(),
        lab::trials(),
        ledger::trials(),
        ledger_capture::trials(),
        ledger_faults::trials(),
        load::trials(),
        names::trials(),
        quiet_rule::trials(),
        rtt::trials(),
        sandbox::trials(),
        storm::trials(),
        switch_bench::trials(),
        switch::trials(),
        switch_fuzz::trials(),
        switch_programs::trials(),
        top::trials(),
        truth::trials(),
    ];
    trials.into_iter().flatten().collect()
}

/// The `weir` that was built with these tests.
fn weir() -> Command {
    Command::new(env!("CARGO_BIN_EXE_weir"))
}

/// The limit of a wait for an event that comes at once: only a hang takes it.
const SOON: Duration = Duration::from_secs(30);

/// Waits for an event that comes at once.
fn until(event: &str, is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    testkit::until(SOON, event, is_so)
}

/// Does something for each item, some at the same time: for work that waits most of the time. The results are in the
/// order of the items.
fn some_at_once<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    const AT_ONCE: usize = 8;
    let work = &work;
    let some = |items: &[T]| -> Vec<R> {
        thread::scope(|scope| {
            let threads = items.iter().map(|item| scope.spawn(move || work(item)));
            let threads: Vec<_> = threads.collect();
            let done = threads.into_iter().map(ScopedJoinHandle::join);
            done.map(|result| result.unwrap_or_else(|panic| resume_unwind(panic)))
                .collect()
        })
    };
    items.chunks(AT_ONCE).flat_map(some).collect()
}

/// A socket on the device of a lab's side.
fn packets(side: &Side) -> Result<PacketSocket> {
    packets_of(side.netns(), side.index()?)
}

/// A socket on a device of a network namespace.
fn packets_of(namespace: BorrowedFd<'_>, index: u32) -> Result<PacketSocket> {
    netns::run_in(namespace, || Ok(PacketSocket::on(index).open()?))
}

/// A CPU that this process may use, for commands that name one.
fn a_cpu() -> Result<usize> {
    let allowed = CpuList::allowed()?;
    allowed.as_slice().first().copied().context("no CPU")
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
