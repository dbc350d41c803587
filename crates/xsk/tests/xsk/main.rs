//! The library on real sockets, in network namespaces of its own. The kernel's conformance tests
//! have the kernel's names; see `conformance.rs`.

mod budget;
mod cards;
mod child;
mod conformance;
#[cfg(feature = "libxdp")]
mod dispatcher;
mod errors;
mod event_loops;
mod events;
mod filter;
mod filter_model;
mod fragments;
mod frames;
mod handover;
mod known;
mod leaks;
mod life;
mod lifecycle;
mod memory;
mod metadata;
mod netns;
mod outside;
mod packet;
mod port;
mod programs;
mod rates;
mod rings;
mod sharing;
mod soundness;
mod steering;
mod traffic;
mod waiting;

use budget::{TEST, scaled};
use libtest_mimic::{Arguments, Completion, Conclusion, Trial};
use rustix::thread::CapabilitySet;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use xsk::{AttachMode, Feature, Mode};

/// A result whose error is for people only.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
/// The result of a test's body.
pub type Outcome = Result<()>;

/// The error of a test that turns out not to apply to the devices at hand.
#[derive(Debug)]
pub struct Skipped(pub String);

impl std::fmt::Display for Skipped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skipped {}

/// The modes and their prefix in the names of tests.
pub const MODES: [(&str, Mode); 3] = [
    ("SKB", Mode::Skb),
    ("DRV", Mode::Driver),
    ("ZC", Mode::ZeroCopy),
];

/// The modes that the tests run in: SKB and DRV, or those of the environment variable
/// `XSK_TEST_MODES`.
pub fn modes() -> Vec<(&'static str, Mode)> {
    let set = std::env::var("XSK_TEST_MODES");
    let wanted = set.as_deref().unwrap_or("SKB DRV");
    let wanted: Vec<&str> = wanted.split(' ').collect();
    MODES
        .into_iter()
        .filter(|(prefix, _)| wanted.contains(prefix))
        .collect()
}

/// The mode of a program for sockets of a mode.
pub fn attach_mode(mode: Mode) -> AttachMode {
    if mode == Mode::Skb {
        AttachMode::Skb
    } else {
        AttachMode::Driver
    }
}

/// A test.
pub struct Test {
    /// As it is shown.
    pub name: String,
    /// Kernel features that it needs.
    pub needs: &'static [Feature],
    /// Runs on a thread of its own.
    pub body: Box<dyn FnOnce() -> Outcome + Send>,
}

impl Test {
    /// A test that needs the built-in program and no more.
    pub fn new(name: impl Into<String>, body: impl FnOnce() -> Outcome + Send + 'static) -> Self {
        Self {
            name: name.into(),
            needs: &[Feature::Sockets, Feature::XdpLink],
            body: Box::new(body),
        }
    }

    fn into_trial(self) -> Trial {
        let known = known::reason(&self.name);
        Trial::ignorable_test(self.name, move || {
            if let Some(reason) = missing(self.needs) {
                return Ok(Completion::ignored_with(reason));
            }
            let Err(error) = run_in_time(self.body) else {
                return Ok(Completion::Completed);
            };
            match (error.downcast::<Skipped>(), known) {
                (Ok(skipped), _) => Ok(Completion::ignored_with(skipped.to_string())),
                (Err(_), Some(known)) => Ok(Completion::ignored_with(known)),
                (Err(error), None) => Err(error.into()),
            }
        })
    }
}

/// The reason that tests cannot run here.
fn missing(features: &[Feature]) -> Option<String> {
    let needed = [
        ("CAP_NET_RAW", CapabilitySet::NET_RAW),
        ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN),
        ("CAP_BPF", CapabilitySet::BPF),
        ("CAP_SYS_ADMIN", CapabilitySet::SYS_ADMIN),
    ];
    let have = rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |c| c.effective);
    let absent = needed
        .iter()
        .filter(|(_, capability)| !have.contains(*capability));
    let names: Vec<&str> = absent.map(|(name, _)| *name).collect();
    if !names.is_empty() {
        return Some(format!("missing: {} (run as root)", names.join(", ")));
    }
    let refused = features.iter().find_map(|feature| feature.probe().err());
    refused.map(|missing| missing.to_string())
}

/// Runs a body on a thread of its own, which may change its network namespace. One that does not
/// end is a failure, and is left behind.
fn run_in_time(body: Box<dyn FnOnce() -> Outcome + Send>) -> Outcome {
    let (done, result) = channel();
    let thread = std::thread::Builder::new().name("test".into());
    let thread = thread.spawn(move || {
        // After the timeout no receiver is left.
        let _ = done.send(body());
    })?;
    match result.recv_timeout(scaled(TEST)) {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Timeout) => Err(format!(
            "no end within {:?}; WEIR_TEST_SCALE=2 doubles the limits",
            scaled(TEST)
        )
        .into()),
        Err(RecvTimeoutError::Disconnected) => {
            let panic = thread.join().expect_err("it ended without a result");
            let words = panic.downcast_ref::<String>().cloned();
            let words = words.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            Err(words.unwrap_or_else(|| "panicked".into()).into())
        }
    }
}

fn main() -> ExitCode {
    if let Some(exit) = child::run().or_else(outside::run) {
        return exit;
    }
    #[cfg(feature = "libxdp")]
    if let Some(exit) = dispatcher::child() {
        return exit;
    }
    let arguments = Arguments::from_args();
    let mut tests = conformance::tests();
    tests.extend(fragments::tests());
    tests.extend(metadata::tests());
    tests.extend(lifecycle::tests());
    tests.extend(life::tests());
    tests.extend(cards::tests());
    tests.extend(event_loops::tests_of_cards());
    tests.extend(handover::tests_of_cards());
    if !netns::are_cards() {
        tests.extend(sharing::tests());
        tests.extend(port::tests());
        tests.extend(frames::tests());
        tests.extend(errors::tests());
        tests.extend(filter::tests());
        tests.extend(programs::tests());
        tests.extend(steering::tests());
        tests.extend(soundness::tests());
        tests.extend(waiting::tests());
        tests.extend(event_loops::tests());
        tests.extend(handover::tests());
        tests.extend(events::tests());
    }
    let trials = tests.into_iter().map(Test::into_trial);
    #[cfg(feature = "libxdp")]
    let trials = trials.chain(dispatcher::trials());
    let trials: Vec<Trial> = trials.collect();
    let first = libtest_mimic::run(&arguments, trials);
    if arguments.list {
        return ExitCode::SUCCESS;
    }
    life::print_table();
    // Alone and last: before, the other tests use these resources.
    let alone = [memory::test(), leaks::test()];
    let last = alone.map(|test| libtest_mimic::run(&arguments, vec![test.into_trial()]));
    if first.has_failed() || last.iter().any(Conclusion::has_failed) {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
