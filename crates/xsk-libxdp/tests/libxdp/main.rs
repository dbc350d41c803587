//! Programs written against `<xdp/xsk.h>` alone, on weir's library by link and by `LD_PRELOAD`, and on
//! Debian's libxdp beside it: real sockets, in network namespaces.

mod build;
mod errors;
mod forward;
mod instructions;
mod jumbo;
mod lab;

use libtest_mimic::{Arguments, Completion, Trial};
use std::process::ExitCode;

/// A result whose error is for people.
type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A test by its name.
type Test = (&'static str, fn() -> Result);

/// Why a test cannot run here.
#[derive(Debug)]
struct Skip(String);

impl std::fmt::Display for Skip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skip {}

fn into_trial((name, run): Test) -> Trial {
    Trial::ignorable_test(name, move || match lab::missing().map_or_else(run, Err) {
        Ok(()) => Ok(Completion::Completed),
        Err(error) if error.is::<Skip>() => Ok(Completion::ignored_with(error.to_string())),
        Err(error) => Err(error.to_string().into()),
    })
}

/// The tests of a file, by their functions' names.
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        pub(crate) fn tests() -> Vec<crate::Test> {
            vec![$((concat!(module_path!(), "::", stringify!($name)), $name as fn() -> _)),*]
        }
    };
}
use tests;

fn main() -> ExitCode {
    let tests = [
        build::tests(),
        errors::tests(),
        forward::tests(),
        instructions::tests(),
        jumbo::tests(),
    ]
    .concat();
    let trials = tests.into_iter().map(into_trial).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
