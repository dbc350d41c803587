//! The tests of a suite that skips where the kernel lacks a feature.

use anyhow::Result;
use libtest_mimic::{Completion, Trial};

/// How a test ended that did not fail.
pub enum Outcome {
    Passed,
    /// The kernel has no such feature.
    Lacks(&'static str),
}

/// A test that needs root.
pub fn trial(
    suite: &str,
    name: &str,
    run: impl FnOnce() -> Result<Outcome> + Send + 'static,
) -> Trial {
    Trial::ignorable_test(format!("{suite}::{name}"), move || {
        if !rustix::process::geteuid().is_root() {
            return Ok(Completion::ignored_with("network namespaces need root"));
        }
        match run() {
            Ok(Outcome::Passed) => Ok(Completion::Completed),
            Ok(Outcome::Lacks(feature)) => Ok(Completion::ignored_with(format!(
                "the kernel lacks {feature}"
            ))),
            Err(error) => Err(format!("{error:?}").into()),
        }
    })
}
