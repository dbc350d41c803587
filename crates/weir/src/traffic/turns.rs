//! Turns: load and engine work one after the other, as scheduled by the bench, and neither ever
//! waits for the other. The cost of a packet is then the CPU time of both, independent of other
//! tasks, and one CPU is enough.
//!
//! The bench writes a line to the standard input of the process whose turn it is, which prints an
//! event at the end of the turn. It ends when its standard input does.

use std::io;

/// Waits for this process's turn; `false` after the last one.
pub fn granted() -> io::Result<bool> {
    Ok(io::stdin().read_line(&mut String::new())? > 0)
}
