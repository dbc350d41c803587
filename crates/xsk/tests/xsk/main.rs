//! The library on real sockets, in network namespaces of its own. The kernel's conformance tests
//! have the kernel's names; see `conformance.rs`.

#[cfg(not(xsk_internals))]
compile_error!(
    "this needs what `xsk` has for this workspace alone: RUSTFLAGS takes the place of the flags in .cargo/config.toml, so add `--cfg xsk_internals` to it"
);

mod budget;
mod cards;
mod child;
mod compile_fail;
mod conformance;
mod devices;
#[cfg(feature = "libxdp")]
mod dispatcher;
mod errors;
mod event_loops;
mod events;
mod examples;
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
mod needs;
mod netns;
mod outside;
mod overload;
mod packet;
mod port;
mod programs;
mod rates;
mod rings;
mod sandbox;
mod sharing;
mod soundness;
mod steering;
mod torture;
mod traffic;
mod waiting;

use std::process::ExitCode;
use testkit::{Suite, Test};
use xsk::{AttachMode, Mode};

/// A result whose error is for people only.
pub type Result<T> = testkit::Result<T>;
/// The result of a test's body.
pub type Outcome = Result<()>;

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

/// A test of which a failure that is known to be the driver's does not count.
fn with_known(test: Test) -> Test {
    match known::reason(test.name()) {
        Some(reason) => test.known_to_fail(reason),
        None => test,
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
    if let Some(exit) = torture::program() {
        return exit;
    }
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
        tests.extend(devices::tests());
        tests.extend(sandbox::tests());
        tests.extend(filter::tests());
        tests.extend(programs::tests());
        tests.extend(steering::tests());
        tests.extend(soundness::tests());
        tests.extend(overload::tests());
        tests.extend(waiting::tests());
        tests.extend(event_loops::tests());
        tests.extend(handover::tests());
        tests.extend(events::tests());
        tests.extend(examples::tests());
        #[cfg(feature = "libxdp")]
        tests.extend(dispatcher::tests());
    }
    // Before, the other tests use these resources.
    tests.push(memory::test());
    if !netns::are_cards() {
        tests.push(torture::test());
        tests.push(compile_fail::test());
    }
    tests.push(leaks::test());
    let suite = Suite::new().needing(needs::ALL);
    let exit = suite.run(tests.into_iter().map(with_known));
    life::print_table();
    exit
}
