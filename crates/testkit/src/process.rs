//! Commands that end in time, and child processes that end with their test.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::error::Failure;
use crate::limit::Limit;

/// The limit of a command that does little, such as one that sets up the network, and of a child's next line.
pub const STEP: Duration = Duration::from_secs(20);

/// Runs a command to its end, without input, and returns what it printed. At the end of the limit it is killed with
/// all that it started.
pub fn output(command: &mut Command, limit: Duration) -> Result<Output, Failure> {
    let command = quiet(command);
    let child = command
        .spawn()
        .map_err(|error| not_started(command, &error))?;
    output_of(child, command, limit)
}

/// Runs a command to its end, and returns its standard output; a failure is an error with all that it said.
pub fn success(command: &mut Command, limit: Duration) -> Result<String, Failure> {
    let output = output(command, limit)?;
    text_of(command, &output)
}

/// Without input, its output to be read, and in a process group of its own.
pub(crate) fn quiet(command: &mut Command) -> &mut Command {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
}

/// Waits for the output of a child that [`quiet`] has prepared.
pub(crate) fn output_of(
    child: Child,
    command: &Command,
    limit: Duration,
) -> Result<Output, Failure> {
    let group = Pid::from_child(&child);
    let (done, result) = channel();
    thread::spawn(move || done.send(child.wait_with_output()));
    if let Ok(output) = Limit::new(limit).receive(&result) {
        return Ok(output?);
    }
    // An error means that it has ended just now.
    let _ = kill_process_group(group, Signal::KILL);
    Err(Failure::new(format!("{} does not end", shown(command))))
}

/// The standard output of a command that has succeeded.
pub(crate) fn text_of(command: &Command, output: &Output) -> Result<String, Failure> {
    let text = String::from_utf8_lossy(&output.stdout);
    if output.status.success() {
        return Ok(text.into_owned());
    }
    let (status, words) = (output.status, String::from_utf8_lossy(&output.stderr));
    let words = format!("{}: {status}: {words}{text}", shown(command));
    Err(Failure::new(words.trim_end()))
}

/// Whether a program is in `PATH`.
pub fn is_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// The command as it is typed.
fn shown(command: &Command) -> String {
    let words = [command.get_program()]
        .into_iter()
        .chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    format!("`{}`", words.join(" "))
}

pub(crate) fn not_started(command: &Command, error: &dyn std::error::Error) -> Failure {
    let program = command.get_program().display();
    Failure::new(format!("cannot start {program}: {error}"))
}

/// A child of a test, whose standard output is read line by line. Killed on drop.
#[derive(Debug)]
pub struct Process {
    child: Child,
    input: Option<ChildStdin>,
    /// The lines of its standard output, as they come.
    lines: Receiver<String>,
    /// Its standard error, when it has ended, if it has a pipe there.
    errors: Option<Receiver<String>>,
}

impl Process {
    /// Starts a command, with pipes to its standard input and output. Its standard error is this program's, unless the
    /// command says otherwise.
    pub fn start(command: &mut Command) -> Result<Self, Failure> {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command
            .spawn()
            .map_err(|error| not_started(command, &error))?;
        Self::of(child)
    }

    /// A child that was started with a pipe as its standard output, such as by [`crate::Side::spawn`].
    pub fn of(mut child: Child) -> Result<Self, Failure> {
        let output = child.stdout.take();
        let output = output.ok_or_else(|| Failure::new("its output is no pipe"))?;
        let (line, lines) = channel();
        thread::spawn(move || {
            let each = BufReader::new(output).lines().map_while(Result::ok);
            // After the test no one reads them.
            each.for_each(|text| drop(line.send(text.trim_end().to_owned())));
        });
        let errors = child.stderr.take().map(|mut error| {
            let (all, errors) = channel();
            thread::spawn(move || {
                let mut text = Vec::new();
                // Whatever could be read.
                let _ = error.read_to_end(&mut text);
                let _ = all.send(String::from_utf8_lossy(&text).into_owned());
            });
            errors
        });
        Ok(Self {
            input: child.stdin.take(),
            child,
            lines,
            errors,
        })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it prints, without the spaces at its end; an error at the end of its output.
    pub fn line(&mut self) -> Result<String, Failure> {
        self.line_within(STEP)
    }

    /// The next line that it prints within a limit; an error at its end.
    pub fn line_within(&mut self, limit: Duration) -> Result<String, Failure> {
        let line = Limit::new(limit).receive(&self.lines);
        line.map_err(|_| Failure::new(format!("no line: {}", self.end_by_force())))
    }

    /// Fails unless this is the next line that it prints.
    pub fn expect(&mut self, expected: &str) -> Result<(), Failure> {
        let line = self.line()?;
        if line == expected {
            return Ok(());
        }
        Err(Failure::new(format!("{line:?} instead of {expected:?}")))
    }

    /// Reads lines until one is this.
    pub fn wait_for_line(&mut self, expected: &str) -> Result<(), Failure> {
        let (mut limit, mut last) = (Limit::new(STEP), String::new());
        while !limit.is_over() {
            last = self.line()?;
            if last == expected {
                return Ok(());
            }
        }
        let words = format!("{last:?}, and not {expected:?}");
        Err(Failure::new(words))
    }

    /// Writes a line to its input.
    pub fn say(&mut self, line: &str) -> Result<(), Failure> {
        let input = self.input.as_mut();
        let input = input.ok_or_else(|| Failure::new("its input is closed"))?;
        Ok(writeln!(input, "{line}")?)
    }

    /// Closes its input.
    pub fn close(&mut self) {
        self.input = None;
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Result<(), Failure> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> Result<ExitStatus, Failure> {
        self.wait_within(STEP)
    }

    /// Waits for its end within a limit.
    pub fn wait_within(&mut self, limit: Duration) -> Result<ExitStatus, Failure> {
        let child = &mut self.child;
        let mut status = None;
        let ended = Limit::new(limit).until("its end", || {
            status = child.try_wait()?;
            Ok::<_, Failure>(status.is_some())
        });
        match status {
            Some(status) => Ok(status),
            None => ended.and(Err(Failure::new("no status"))).map_err(|error| {
                let words = self.end_by_force();
                Failure::new(format!("{error}: {words}"))
            }),
        }
    }

    /// Whether it has not ended.
    pub fn is_running(&mut self) -> Result<bool, Failure> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Closes its input, and waits for its end, whatever its status.
    pub fn finish(&mut self) -> Result<ExitStatus, Failure> {
        self.close();
        self.wait()
    }

    /// Closes its input, and waits for its end in success.
    pub fn end(&mut self) -> Result<(), Failure> {
        self.end_within(STEP)
    }

    /// Closes its input, and waits for its end in success within a limit.
    pub fn end_within(&mut self, limit: Duration) -> Result<(), Failure> {
        self.close();
        let status = self.wait_within(limit)?;
        if status.success() {
            return Ok(());
        }
        Err(Failure::new(format!("{status}: {}", self.words())))
    }

    /// Asks it to end, as an operator does, and waits for its end in success.
    pub fn stop(&mut self) -> Result<(), Failure> {
        self.signal(Signal::TERM)?;
        self.end()
    }

    /// `kill -9`, and waits for the end.
    pub fn kill(&mut self) -> Result<(), Failure> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Its standard error, if it has a pipe there and has ended.
    fn words(&self) -> String {
        let errors = self.errors.as_ref();
        let words = errors.and_then(|errors| Limit::new(STEP).receive(errors).ok());
        words.unwrap_or_default()
    }

    fn end_by_force(&mut self) -> String {
        // An error means that it has ended already.
        let _ = self.kill();
        self.words()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        shell
    }

    #[test]
    fn a_command_has_output_or_a_failure() {
        assert_eq!(success(&mut shell("echo yes"), LONG), Ok("yes\n".into()));
        let failed = success(&mut shell("echo no >&2; exit 3"), LONG);
        let words = failed.expect_err("a failure").to_string();
        assert!(words.contains("no") && words.contains('3'), "{words}");
    }

    #[test]
    fn a_command_that_hangs_is_killed_with_its_children() {
        let begun = std::time::Instant::now();
        let hung = output(
            &mut shell("sleep 1000 & sleep 1000"),
            Duration::from_millis(10),
        );
        let words = hung.expect_err("a failure").to_string();
        assert!(words.ends_with("does not end"), "{words}");
        assert!(begun.elapsed() < LONG);
    }

    #[test]
    fn a_child_is_read_told_and_ended() {
        let script = "echo 'ready '; read word; echo $word; cat; echo last >&2; exit 1";
        let mut child = Process::start(shell(script).stderr(Stdio::piped())).expect("a child");
        child.expect("ready").expect("its line");
        child.say("word").expect("said");
        assert_eq!(child.line(), Ok("word".into()));
        let words = child.end().expect_err("a failure").to_string();
        assert!(words.contains("last"), "{words}");
        child.line().expect_err("its end");
    }
}
