//! Attributes of the whole process.

use anyhow::{Context as _, Result};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::set_no_new_privs;

/// No privileges by execve(2); no debugger, no core dump, and /proc/PID of root alone.
pub(super) fn harden() -> Result<()> {
    set_no_new_privs(true).context("no_new_privs")?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).context("PR_SET_DUMPABLE")
}
