//! Answers of `weir filter`'s commands, and their exit status.

use std::io::{ErrorKind, Write as _, stderr};
use std::process::ExitCode;

use anyhow::{Error, Result};

use crate::cli::output;

/// The answer is no: errors, differences, files that are not formatted.
pub const NO: u8 = 1;
/// There is no answer.
pub const COULD_NOT: u8 = 2;

/// Prints to standard output. A reader who has seen enough, such as head(1), is no error.
pub fn print(text: &str) -> Result<()> {
    match output::print(text) {
        Err(error) if is_broken_pipe(&error) => Ok(()),
        result => result,
    }
}

fn is_broken_pipe(error: &Error) -> bool {
    let cause = error.root_cause().downcast_ref::<std::io::Error>();
    cause.is_some_and(|cause| cause.kind() == ErrorKind::BrokenPipe)
}

/// Prints to standard error. Nobody is left to hear that it cannot be written.
pub fn complain(text: &str) {
    let _ = stderr().lock().write_all(text.as_bytes());
}

/// An exit code: whether the answer is yes.
pub fn answer(yes: bool) -> ExitCode {
    if yes { ExitCode::SUCCESS } else { NO.into() }
}
