//! The library from C: programs of `tests/c` and the examples, built with the address and the
//! undefined-behaviour sanitizer, on real sockets in network namespaces of their own.

mod abi;
#[path = "../../../xsk/tests/xsk/budget.rs"]
#[expect(dead_code, reason = "some is for the tests of xsk")]
mod budget;
#[expect(dead_code, reason = "some is for the bench")]
mod compile;
mod examples;
mod misuse;
#[path = "../../../xsk/tests/xsk/netns.rs"]
#[expect(dead_code, reason = "some is for the tests of xsk")]
mod netns;
#[path = "../../../xsk/tests/xsk/packet.rs"]
#[expect(dead_code, reason = "some is for the tests of xsk")]
mod packet;
mod process;

use libtest_mimic::{Arguments, Completion, Trial};
use std::process::ExitCode;
use xsk::Feature;

/// A result whose error is for people only.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
/// The result of a test's body.
type Outcome = Result<()>;

/// The error of a test that turns out not to apply here.
#[derive(Debug)]
struct Skipped(String);

impl std::fmt::Display for Skipped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skipped {}

/// A test that needs a C compiler alone.
fn compiling(name: &str, body: fn() -> Outcome) -> Trial {
    Trial::ignorable_test(name, move || match body() {
        Ok(()) => Ok(Completion::Completed),
        Err(error) => match error.downcast::<Skipped>() {
            Ok(skipped) => Ok(Completion::ignored_with(skipped.to_string())),
            Err(error) => Err(error.into()),
        },
    })
}

/// A test that needs sockets, too.
fn moving(name: &str, body: fn() -> Outcome) -> Trial {
    let missing = [Feature::Sockets, Feature::XdpLink]
        .into_iter()
        .find_map(|feature| feature.probe().err());
    match missing {
        None => compiling(name, body),
        Some(missing) => Trial::ignorable_test(name, move || {
            Ok(Completion::ignored_with(format!("{missing} (run as root)")))
        }),
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut tests = abi::tests();
    tests.extend(misuse::tests());
    tests.extend(examples::tests());
    libtest_mimic::run(&arguments, tests).exit_code()
}
