//! Turns: load and engine work one after the other, each when the bench says so, and neither ever
//! waits for the other. The cost of a packet is then the time of both for it, whoever else wants
//! the CPU, and one CPU is enough.
//!
//! The bench writes a line to the standard input of the one whose turn it is, which answers with
//! an event when it has done its part. It ends when its standard input does.

use std::io;

use rustix::time::{ClockId, clock_gettime};

/// Waits for this process's turn; `false` if there will be none any more.
pub fn granted() -> io::Result<bool> {
    Ok(io::stdin().read_line(&mut String::new())? > 0)
}

/// The CPU time of the calling thread, in nanoseconds. The clock on the wall would count waits too:
/// the kernel waits for RCU wherever a load begins and ends.
pub fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
