//! Child processes of a measurement: started, read from and ended.
//!
//! Each of them asks the kernel to kill it with its parent (`PR_SET_PDEATHSIG`), so that even
//! `kill -9` of the parent leaves none.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child as Process, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;

use super::stop::StopSignal;

/// The interval in which a wait checks for a stop signal.
const LOOK: Duration = Duration::from_millis(20);

/// Time limit for a child process to begin, to answer and to end: on a busy machine, too, only a hang takes so long.
pub const CHILD_TIMEOUT: Duration = Duration::from_secs(30);

/// A process that prints one JSON object a line.
pub struct Child<'a> {
    name: &'static str,
    process: Process,
    lines: Receiver<String>,
    complaints: Option<JoinHandle<String>>,
    stop: &'a StopSignal,
}

/// A command that runs a hidden subcommand of this program.
pub fn own_command(name: &str) -> Command {
    // Also after the file of this program was replaced or removed.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("weir").arg(name);
    command
}

impl<'a> Child<'a> {
    /// Starts `command` by `spawn`. Errors call it `name`.
    pub fn start(
        name: &'static str,
        command: Command,
        stop: &'a StopSignal,
        spawn: impl FnOnce(&mut Command) -> Result<Process>,
    ) -> Result<Self> {
        Self::start_with(Stdio::null(), name, command, stop, spawn)
    }

    /// The same for a process that reads lines of [`say`](Self::say) from its standard input.
    pub fn start_listening(
        name: &'static str,
        command: Command,
        stop: &'a StopSignal,
        spawn: impl FnOnce(&mut Command) -> Result<Process>,
    ) -> Result<Self> {
        Self::start_with(Stdio::piped(), name, command, stop, spawn)
    }

    fn start_with(
        stdin: Stdio,
        name: &'static str,
        mut command: Command,
        stop: &'a StopSignal,
        spawn: impl FnOnce(&mut Command) -> Result<Process>,
    ) -> Result<Self> {
        command
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C on a terminal is for this program, which then ends its children in order.
            .process_group(0);
        let mut process = spawn(&mut command)?;
        let (sender, lines) = channel();
        if let Some(stdout) = process.stdout.take() {
            thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        let complaints = process.stderr.take().map(|mut stderr| {
            thread::spawn(move || {
                let mut bytes = Vec::new();
                // The bytes up to a read error still explain the end.
                let _ = stderr.read_to_end(&mut bytes);
                String::from_utf8_lossy(&bytes).trim().to_owned()
            })
        });
        Ok(Self {
            name,
            process,
            lines,
            complaints,
            stop,
        })
    }

    /// Writes a line to its standard input.
    pub fn say(&mut self, line: &str) -> Result<()> {
        let name = self.name;
        let stdin = self.process.stdin.as_mut();
        let stdin =
            stdin.with_context(|| format!("the {name} has no standard input to write to"))?;
        match writeln!(stdin, "{line}") {
            Ok(()) => Ok(()),
            Err(_) => Err(self.ended_early()),
        }
    }

    /// The next event, or `None` if there is none within `timeout`.
    pub fn event<E: DeserializeOwned>(&mut self, timeout: Duration) -> Result<Option<E>> {
        let Some(line) = self.line(timeout)? else {
            return Ok(None);
        };
        let event = serde_json::from_str(&line)
            .with_context(|| format!("the {} wrote {line:?}, which is no event", self.name))?;
        Ok(Some(event))
    }

    /// The next line of output, or `None` if there is none within `timeout`.
    pub fn line(&mut self, timeout: Duration) -> Result<Option<String>> {
        let end = Instant::now() + timeout;
        loop {
            self.stop.check()?;
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left.min(LOOK)) {
                Ok(line) => return Ok(Some(line)),
                Err(RecvTimeoutError::Timeout) if left.is_zero() => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended_early()),
            }
        }
    }

    /// The next event, which must come within `timeout`.
    pub fn expect<E: DeserializeOwned>(&mut self, timeout: Duration) -> Result<E> {
        match self.event(timeout)? {
            Some(event) => Ok(event),
            None => bail!(
                "the {} wrote nothing for {} s: is this machine overloaded?",
                self.name,
                timeout.as_secs_f64()
            ),
        }
    }

    /// Asks the process to end: closes its standard input and sends SIGTERM.
    pub fn terminate(&mut self) {
        drop(self.process.stdin.take());
        self.signal(Signal::TERM);
    }

    /// Waits for its end, which must be a success.
    pub fn wait(mut self) -> Result<()> {
        match self.exit_status(CHILD_TIMEOUT) {
            Some(status) if status.success() => Ok(()),
            Some(_) => Err(self.ended_early()),
            None => bail!(
                "the {} did not end within {} s: is this machine overloaded?",
                self.name,
                CHILD_TIMEOUT.as_secs()
            ),
        }
    }

    fn ended_early(&mut self) -> anyhow::Error {
        let status = match self.exit_status(CHILD_TIMEOUT) {
            Some(status) => status.to_string(),
            None => "its output is closed".into(),
        };
        self.kill();
        let complaints = self.complaints.take().and_then(|thread| thread.join().ok());
        match complaints.as_deref().map(|text| {
            let text = text.strip_prefix("weir: ").unwrap_or(text);
            text.strip_prefix("error: ").unwrap_or(text)
        }) {
            None | Some("") => anyhow::anyhow!("the {} ended early ({status})", self.name),
            Some(text) => anyhow::anyhow!("the {} ended early ({status}): {text}", self.name),
        }
    }

    fn exit_status(&mut self, timeout: Duration) -> Option<ExitStatus> {
        let end = Instant::now() + timeout;
        loop {
            if let Ok(Some(status)) = self.process.try_wait() {
                return Some(status);
            }
            if Instant::now() >= end {
                return None;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn signal(&self, signal: Signal) {
        // It was not waited for, so its id is not reused yet.
        if let Some(pid) = Pid::from_raw(self.process.id().cast_signed()) {
            let _ = kill_process(pid, signal);
        }
    }

    fn kill(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.exit_status(CHILD_TIMEOUT);
    }
}

impl Drop for Child<'_> {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn shell<'a>(script: &str, stop: &'a StopSignal) -> Child<'a> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let spawn = |command: &mut Command| Ok(command.spawn()?);
        Child::start("shell", command, stop, spawn).expect("a shell")
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn events_come_one_a_line() {
        let stop = StopSignal::default();
        let mut child = shell("echo '{\"a\":1}'; echo '{\"a\":2}'", &stop);
        assert_eq!(child.expect::<Value>(LONG).expect("first")["a"], 1);
        assert_eq!(child.expect::<Value>(LONG).expect("second")["a"], 2);
        child.wait().expect("ends well");
    }

    #[test]
    fn an_early_end_says_why() {
        let stop = StopSignal::default();
        let mut child = shell("echo 'weir: error: no such thing' >&2; exit 1", &stop);
        let error = child.expect::<Value>(LONG).expect_err("it ended");
        assert_eq!(
            error.to_string(),
            "the shell ended early (exit status: 1): no such thing"
        );
    }

    #[test]
    fn a_listening_process_hears_lines_and_the_end() {
        let stop = StopSignal::default();
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "trap '' TERM; while read -r line; do echo \"$line\"; done",
        ]);
        let spawn = |command: &mut Command| Ok(command.spawn()?);
        let mut child = Child::start_listening("shell", command, &stop, spawn).expect("a shell");
        child.say("1").expect("it listens");
        assert_eq!(child.expect::<Value>(LONG).expect("an echo"), 1);
        child.terminate();
        child.wait().expect("ends well");
    }

    #[test]
    fn silence_ends_in_time() {
        let stop = StopSignal::default();
        let mut child = shell("sleep 20", &stop);
        let nothing = child.event::<Value>(Duration::from_millis(50));
        assert!(nothing.expect("no failure").is_none());
    }

    #[test]
    fn an_interrupt_ends_a_wait() {
        let stop = StopSignal::default();
        let mut child = shell("sleep 20", &stop);
        stop.raise();
        assert!(child.expect::<Value>(LONG).is_err());
    }
}
