//! The kit on the kernel's own network, and the layers of all crates.

mod layers;
mod netns;

use std::process::ExitCode;
use testkit::{Need, Suite};

fn main() -> ExitCode {
    let tests = [layers::tests(), netns::tests()];
    let suite = Suite::new().needing(&[Need::SOCKETS]);
    suite.run(tests.into_iter().flatten())
}
