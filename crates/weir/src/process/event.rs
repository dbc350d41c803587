//! Events of a child process: one JSON object a line, on its standard output.

use std::io;
use std::io::Write as _;

use serde::Serialize;

/// Prints an event.
pub fn print(event: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}
