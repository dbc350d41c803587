//! The library from C: programs of `tests/c` and the examples, built with the address and the
//! undefined-behaviour sanitizer, on real sockets in network namespaces of their own.

mod abi;
#[expect(dead_code, reason = "some is for the bench")]
mod compile;
mod examples;
mod lab;
mod misuse;
#[path = "../../../xsk/tests/xsk/packet.rs"]
#[expect(dead_code, reason = "some is for the tests of xsk")]
mod packet;

use std::process::ExitCode;
use testkit::{Need, Suite, Test};
use xsk::Feature;

/// A result whose error is for people only.
type Result<T> = testkit::Result<T>;
/// The result of a test's body.
type Outcome = Result<()>;

/// A test that needs sockets.
fn moving(name: &str, body: fn() -> Outcome) -> Test {
    let sockets = Need::Probe(|| missing(Feature::Sockets));
    let links = Need::Probe(|| missing(Feature::XdpLink));
    Test::new(name, body).needing(&[Need::SOCKETS, sockets, links])
}

fn missing(feature: Feature) -> Option<String> {
    feature.probe().err().map(|error| error.to_string())
}

fn main() -> ExitCode {
    let tests = [abi::tests(), misuse::tests(), examples::tests()];
    // Compilers with sanitizers take their time.
    let suite = Suite::new().within(compile::BUILD);
    suite.run(tests.into_iter().flatten())
}
