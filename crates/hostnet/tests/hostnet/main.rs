//! The crate on the kernel's own network, in namespaces that go with their test.

mod bridges;
mod devices;
mod monitor;
mod named;
mod namespaces;
mod protocols;
mod refusals;
mod sandbox;
mod sockets;
mod steering;

use std::process::ExitCode;

use testkit::{Need, Suite};

/// The error of a call that must be refused.
fn refusal<T>(result: hostnet::Result<T>) -> hostnet::Error {
    match result {
        Ok(_) => panic!("the call was not refused"),
        Err(error) => error,
    }
}

fn main() -> ExitCode {
    if let Some(exit) = named::run_as_child() {
        return exit;
    }
    let tests = [
        namespaces::tests(),
        protocols::tests(),
        devices::tests(),
        bridges::tests(),
        monitor::tests(),
        refusals::tests(),
        sandbox::tests(),
        sockets::tests(),
        steering::tests(),
        named::tests(),
    ];
    let suite = Suite::new().needing(&[Need::NAMESPACES]);
    suite.run(tests.into_iter().flatten())
}
