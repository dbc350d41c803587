//! What mends a finding, as steps that can be taken back.

use std::fmt;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use super::Context;
use crate::report::shell::quote;

/// What mends a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fix {
    /// Steps that `--fix` can take, in this order, and `--undo` takes back.
    Steps(Vec<Step>),
    /// What a person has to do, or why there is nothing to be done.
    Text(String),
}

/// A change that can be taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Step {
    /// Writes a file of /proc or /sys.
    Write {
        /// The file, such as `/proc/sys/net/core/bpf_jit_enable`.
        path: String,
        /// What it says now.
        old: String,
        /// What it is to say.
        new: String,
    },
    /// Runs a command.
    Run {
        /// The command and its arguments.
        apply: Vec<String>,
        /// The command that restores what was.
        undo: Vec<String>,
        /// How to tell what is set.
        read: Read,
        /// What `read` said before.
        old: String,
    },
}

/// A command whose output tells what is set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Read {
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Only the lines that begin with this, after white space, count; all if empty.
    pub lines: String,
    /// Whether it tells of the network namespace it runs in, and not of the whole host.
    pub of_namespace: bool,
}

impl Step {
    /// The shell command that takes the step.
    pub fn command(&self) -> String {
        match self {
            Self::Write { path, new, .. } => write_command(path, new),
            Self::Run { apply, .. } => shell(apply),
        }
    }

    /// The shell command that takes it back.
    pub fn undo_command(&self) -> String {
        match self {
            Self::Write { path, old, .. } => write_command(path, old),
            Self::Run { undo, .. } => shell(undo),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.command())
    }
}

/// A write as an administrator would type it: sysctl(8) for what it knows.
fn write_command(path: &str, value: &str) -> String {
    match path.strip_prefix("/proc/sys/") {
        // A dot in a name, as in that of a VLAN's directory, is sysctl's separator.
        Some(name) if !name.contains('.') => {
            let setting = format!("{}={value}", name.replace('/', "."));
            shell(&["sysctl".into(), "-w".into(), setting])
        }
        _ => format!("echo {} > {}", quote(value), quote(path)),
    }
}

fn shell(words: &[String]) -> String {
    let words: Vec<_> = words.iter().map(|word| quote(word)).collect();
    words.join(" ")
}

impl Step {
    /// What was set before.
    pub fn old(&self) -> &str {
        match self {
            Self::Write { old, .. } | Self::Run { old, .. } => old,
        }
    }

    /// What is to be set; a command does not tell.
    pub fn target(&self) -> Option<&str> {
        match self {
            Self::Write { new, .. } => Some(new),
            Self::Run { .. } => None,
        }
    }

    /// Whether it writes a file, whose text says all there is to know.
    pub fn is_write(&self) -> bool {
        matches!(self, Self::Write { .. })
    }

    /// Whether it is of one network namespace, and not of the whole host.
    pub fn is_of_a_namespace(&self) -> bool {
        match self {
            Self::Write { path, .. } => {
                path.starts_with("/proc/sys/net/") || path.starts_with("/sys/class/net/")
            }
            Self::Run { read, .. } => read.of_namespace,
        }
    }

    /// What is set now.
    pub fn read(&self, context: &Context) -> Result<String> {
        match self {
            Self::Write { path, .. } => Ok(selected(&context.read(path)?)),
            Self::Run { read, .. } => read.run(),
        }
    }

    /// Takes the step. Gives what is set then.
    pub fn apply(&self, context: &Context) -> Result<String> {
        match self {
            Self::Write { path, new, .. } => write(context, path, new)?,
            Self::Run { apply, .. } => drop(run(apply)?),
        }
        let set = self.read(context)?;
        match self {
            Self::Write { path, new, .. } => ensure!(
                set == *new,
                "{path} says {set} after {new} was written: the kernel takes another value only"
            ),
            Self::Run { old, apply, .. } => {
                ensure!(set != *old, "`{}` changed nothing", shell(apply));
            }
        }
        Ok(set)
    }

    /// Takes the step back, and makes sure of it.
    pub fn undo(&self, context: &Context) -> Result<()> {
        match self {
            Self::Write { path, old, .. } => write(context, path, old)?,
            Self::Run { undo, .. } => drop(run(undo)?),
        }
        let set = self.read(context)?;
        ensure!(
            set == self.old(),
            "`{}` left {set} where {} was before",
            self.undo_command(),
            self.old()
        );
        Ok(())
    }
}

impl Read {
    /// A command that tells of the network namespace it runs in; of its output only the lines
    /// that begin with `lines`.
    pub fn of_namespace(command: &[&str], lines: &str) -> Self {
        Self {
            command: words(command),
            lines: lines.into(),
            of_namespace: true,
        }
    }

    /// A command that tells of the whole host.
    pub fn of_host(command: &[&str], lines: &str) -> Self {
        Self {
            of_namespace: false,
            ..Self::of_namespace(command, lines)
        }
    }

    /// What it says now.
    pub fn run(&self) -> Result<String> {
        let output = run(&self.command)?;
        let lines = output.lines().map(str::trim);
        let lines: Vec<_> = lines.filter(|line| line.starts_with(&self.lines)).collect();
        Ok(lines.join("\n"))
    }
}

/// The words of a command.
pub fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.into()).collect()
}

/// Of a file that lists what can be chosen, what is.
fn selected(text: &str) -> String {
    let inside = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or_else(|| text.to_owned(), |(chosen, _)| chosen.to_owned())
}

fn write(context: &Context, path: &str, value: &str) -> Result<()> {
    std::fs::write(context.path(path)?, value).with_context(|| {
        let cure = if geteuid().is_root() {
            "the kernel or the container does not permit it"
        } else {
            "run as root"
        };
        format!("cannot write {value} to {path}: {cure}")
    })
}

/// Runs a command and gives what it wrote.
fn run(command: &[String]) -> Result<String> {
    let (program, arguments) = command.split_first().context("there is no command")?;
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {program}: is it installed?"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "`{}` failed: {}",
        shell(command),
        said.trim()
    );
    String::from_utf8(output.stdout).with_context(|| format!("{program} wrote no text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_typed_as_an_administrator_would() {
        let write = |path: &str| Step::Write {
            path: path.into(),
            old: "0".into(),
            new: "1 2".into(),
        };
        let sysctl = write("/proc/sys/net/core/x");
        assert_eq!(sysctl.command(), "sysctl -w 'net.core.x=1 2'");
        assert_eq!(sysctl.undo_command(), "sysctl -w net.core.x=0");
        let echo = write("/sys/class/net/eth0/x");
        assert_eq!(echo.command(), "echo '1 2' > /sys/class/net/eth0/x");
    }

    #[test]
    fn of_a_choice_what_is_chosen_counts() {
        assert_eq!(selected("always [madvise] never"), "madvise");
        assert_eq!(selected("12"), "12");
    }

    #[test]
    fn only_the_lines_asked_for_count() -> Result<()> {
        let read = Read::of_host(&["printf", "a 1\n  b 2\n"], "b ");
        assert_eq!(read.run()?, "b 2");
        assert!(Read::of_host(&["false"], "").run().is_err());
        assert!(Read::of_host(&["weir-is-not-this"], "").run().is_err());
        Ok(())
    }
}
