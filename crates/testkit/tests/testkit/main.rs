//! The kit on the kernel's own network.

mod netns;

use std::process::ExitCode;
use testkit::{Need, Suite};

fn main() -> ExitCode {
    Suite::new().needing(&[Need::SOCKETS]).run(netns::tests())
}
