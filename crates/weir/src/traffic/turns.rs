//! Turns: load and engine work one after the other, as scheduled by the bench, and neither ever
//! waits for the other. The cost of a packet is then the CPU time of both, independent of other
//! tasks, and one CPU is enough.
//!
//! The bench writes a line to the standard input of the process whose turn it is, which prints an
//! event at the end of the turn. It ends when its standard input does.

use std::io;

use rustix::time::{ClockId, clock_gettime};

/// Waits for this process's turn; `false` after the last one.
pub fn granted() -> io::Result<bool> {
    Ok(io::stdin().read_line(&mut String::new())? > 0)
}

/// The CPU time of the calling thread, in nanoseconds. Wall-clock time would include waits: the
/// kernel waits for RCU wherever a load begins and ends.
pub fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
