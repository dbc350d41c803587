//! A program in C that runs in a network namespace, and ends with the test.
#![allow(unsafe_code)] // A part runs between fork and exec.

use crate::budget::{STALL, TEST, scaled};
use crate::netns::Side;
use crate::{Outcome, Result};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A running program. Killed on drop.
pub struct Running {
    child: Child,
    /// The lines of its standard output, as they come.
    lines: Receiver<String>,
    /// Its standard error, when it has ended.
    errors: Receiver<String>,
}

impl Running {
    /// Starts a program inside a namespace.
    pub fn start(side: &Side, program: &Path, arguments: &[&str]) -> Result<Self> {
        Self::start_with(side, program, arguments, Vec::new())
    }

    /// The same with descriptors, which have the same numbers there.
    pub fn start_with(
        side: &Side,
        program: &Path,
        arguments: &[&str],
        descriptors: Vec<OwnedFd>,
    ) -> Result<Self> {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(directory) = program.parent() {
            command.env("LD_LIBRARY_PATH", directory);
        }
        die_with_parent(&mut command);
        inherit(&mut command, descriptors);
        let mut child = side.inside(|| command.spawn())?;
        let output = child.stdout.take().ok_or("its output")?;
        let mut error = child.stderr.take().ok_or("its errors")?;
        let (line, lines) = channel();
        std::thread::spawn(move || {
            let each = BufReader::new(output)
                .lines()
                .map_while(std::result::Result::ok);
            // After the test nobody reads them.
            each.for_each(|text| drop(line.send(text)));
        });
        let (all, errors) = channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            // Whatever could be read.
            let _ = error.read_to_string(&mut text);
            let _ = all.send(text);
        });
        Ok(Self {
            child,
            lines,
            errors,
        })
    }

    /// The next line that it prints.
    pub fn line(&mut self) -> Result<String> {
        let line = self.lines.recv_timeout(scaled(STALL));
        line.map_err(|_| format!("the program prints no line: {}", self.end_by_force()).into())
    }

    /// Reads lines until one is this.
    pub fn wait_for_line(&mut self, expected: &str) -> Outcome {
        let deadline = Instant::now() + scaled(STALL);
        let mut last = String::new();
        while Instant::now() < deadline {
            last = self.line()?;
            if last == expected {
                return Ok(());
            }
        }
        Err(format!("the program printed {last:?}, not {expected:?}").into())
    }

    /// Asks it to end, as an operator would, and waits for a good end.
    pub fn stop(&mut self) -> Outcome {
        kill_process(self.pid()?, Signal::TERM)?;
        self.end()
    }

    /// Waits for a good end.
    pub fn end(&mut self) -> Outcome {
        let deadline = Instant::now() + scaled(TEST);
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("{status}: {}", self.words()).into()),
                None if Instant::now() >= deadline => {
                    return Err(format!("it does not end: {}", self.end_by_force()).into());
                }
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// `kill -9`, and waits for the end.
    pub fn kill(&mut self) -> Outcome {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    fn pid(&self) -> Result<Pid> {
        Ok(Pid::from_raw(self.child.id().cast_signed()).ok_or("a process")?)
    }

    fn words(&self) -> String {
        self.errors.recv_timeout(scaled(STALL)).unwrap_or_default()
    }

    fn end_by_force(&mut self) -> String {
        // An error means that it has ended already.
        let _ = self.kill();
        self.words()
    }
}

/// Has the kernel kill a program when this thread ends, also by `kill -9`.
fn die_with_parent(command: &mut Command) {
    // SAFETY: needed because a child of a program with threads may only make system calls until it
    // executes another. Sound because this is one.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
    }
}

/// Lets a program have descriptors, and no other program that starts at the same time.
fn inherit(command: &mut Command, descriptors: Vec<OwnedFd>) {
    let keep_open = move || {
        for descriptor in &descriptors {
            fcntl_setfd(descriptor, FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: needed as in `die_with_parent`. Sound because it makes system calls alone.
    unsafe { command.pre_exec(keep_open) };
}

impl Drop for Running {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.kill();
    }
}
