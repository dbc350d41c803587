//! Standard output of a command.

use std::io::{Write as _, stdout};

use anyhow::{Context as _, Result};
use serde::Serialize;

/// Prints text or bytes; a closed pipe is an error, not a panic.
pub fn print(text: impl AsRef<[u8]>) -> Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_ref())
        .and_then(|()| out.flush())
        .context("cannot write to standard output")
}

/// Prints a line.
pub fn line(text: &str) -> Result<()> {
    print(format!("{text}\n"))
}

/// JSON as it is printed and written to files.
pub fn json(report: &impl Serialize) -> Result<String> {
    Ok(serde_json::to_string_pretty(report)? + "\n")
}
