//! The crate on the kernel's own network, in namespaces that go with their test.

mod bridges;
mod devices;
mod monitor;
mod named;
mod namespaces;
mod protocols;
mod refusals;
mod sockets;
mod steering;

use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use rustix::thread::CapabilitySet;

/// A result whose error is for people only.
pub type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// A test, with the programs and files that it needs.
pub struct Test {
    name: &'static str,
    needs: &'static [Need],
    body: fn() -> Result<()>,
}

/// A need of a test besides capabilities.
#[derive(Clone, Copy)]
pub enum Need {
    /// A program of iproute2 or util-linux.
    Program(&'static str),
    /// A file of the kernel.
    File(&'static str),
    /// A feature of the kernel, with the first version that has it.
    Feature(&'static str, fn() -> hostnet::Result<bool>),
}

impl Test {
    /// A test without needs of its own.
    pub fn new(name: &'static str, body: fn() -> Result<()>) -> Self {
        Self::needing(name, &[], body)
    }

    /// A test that is skipped where a need is missing.
    pub fn needing(name: &'static str, needs: &'static [Need], body: fn() -> Result<()>) -> Self {
        Self { name, needs, body }
    }

    fn into_trial(self) -> Trial {
        Trial::ignorable_test(self.name, move || {
            let missing = missing_capabilities().or_else(|| self.needs.iter().find_map(missing));
            if let Some(reason) = missing {
                return Ok(Completion::ignored_with(reason));
            }
            let outcome = (self.body)().map_err(|error| Failed::from(error.to_string()));
            outcome.map(|()| Completion::Completed)
        })
    }
}

/// The error of a call that must be refused.
fn refusal<T>(result: hostnet::Result<T>) -> hostnet::Error {
    match result {
        Ok(_) => panic!("the call was not refused"),
        Err(error) => error,
    }
}

fn missing_capabilities() -> Option<String> {
    let needed = [
        ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN),
        ("CAP_SYS_ADMIN", CapabilitySet::SYS_ADMIN),
    ];
    let have = rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |c| c.effective);
    let absent = needed
        .iter()
        .filter(|(_, capability)| !have.contains(*capability));
    let names: Vec<_> = absent.map(|(name, _)| *name).collect();
    (!names.is_empty()).then(|| format!("needs root: {} missing", names.join(", ")))
}

fn missing(need: &Need) -> Option<String> {
    match need {
        Need::Program(name) => {
            let found = Command::new(name).arg("-V").output().is_ok();
            (!found).then(|| format!("the program {name} is missing"))
        }
        Need::File(path) => {
            let found = std::fs::exists(path).unwrap_or(false);
            (!found).then(|| format!("{path} is missing"))
        }
        // A probe that fails is for the test to report.
        Need::Feature(name, probe) => {
            let missing = matches!(probe(), Ok(false));
            missing.then(|| format!("the kernel lacks {name}"))
        }
    }
}

fn main() -> ExitCode {
    if let Some(exit) = named::run_as_child() {
        return exit;
    }
    let arguments = Arguments::from_args();
    let tests = [
        namespaces::tests(),
        protocols::tests(),
        devices::tests(),
        bridges::tests(),
        monitor::tests(),
        refusals::tests(),
        sockets::tests(),
        steering::tests(),
        named::tests(),
    ];
    let trials = tests.into_iter().flatten().map(Test::into_trial).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}
