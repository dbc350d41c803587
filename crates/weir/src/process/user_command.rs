//! A command that runs during a measurement.

use std::io::stderr;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process_group};

/// The time limit of a command after SIGTERM.
const END: Duration = Duration::from_secs(3);

/// A command that does not outlive the measurement, with its process group.
#[derive(Debug)]
#[must_use = "the command is killed when this is dropped"]
pub struct UserCommand {
    child: Child,
}

impl UserCommand {
    /// Starts the command, on any CPU; none without words. With `redirect` its standard output goes to standard
    /// error, so that a report alone is on standard output.
    pub fn start(words: &[String], redirect: bool) -> Result<Option<Self>> {
        let Some((program, rest)) = words.split_first() else {
            return Ok(None);
        };
        let mut command = Command::new(program);
        // Ctrl-C on a terminal goes to the measurement, which then ends the command. In a process group
        // of its own the command cannot read from the terminal.
        command.args(rest).process_group(0).stdin(Stdio::null());
        if redirect {
            let error = stderr().as_fd().try_clone_to_owned();
            command.stdout(Stdio::from(error.context("cannot duplicate a descriptor")?));
        }
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {program}: is it installed and executable?"))?;
        Ok(Some(Self { child }))
    }

    /// Its exit status, if it has ended.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().context("cannot wait for the command")
    }

    /// Ends it by SIGTERM; its drop kills it.
    pub fn end(&mut self) -> Result<()> {
        self.signal(Signal::TERM);
        // A stopped process handles no SIGTERM.
        self.signal(Signal::CONT);
        let begun = Instant::now();
        while begun.elapsed() < END && self.try_wait()?.is_none() {
            sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            // The group may be empty.
            let _ = kill_process_group(pid, signal);
        }
    }
}

impl Drop for UserCommand {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        // It may have been reaped.
        let _ = self.child.wait();
    }
}
