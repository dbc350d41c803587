//! A change of the host that can be undone.

use std::fmt;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use super::context::{Context, shell};
use crate::report::shell::quote;

/// A change that can be undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Step {
    /// Writes a file of /proc or /sys.
    Write {
        /// The file, such as `/proc/sys/net/core/bpf_jit_enable`.
        path: String,
        /// Its value now.
        old: String,
        /// Its new value.
        new: String,
    },
    /// Runs a command.
    Run {
        /// The command and its arguments.
        apply: Vec<String>,
        /// The command that restores the old state.
        undo: Vec<String>,
        /// The command that reads the state.
        read: Read,
        /// The state before.
        old: String,
    },
}

/// A command whose output is a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Read {
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Only lines that start with this, after white space, count; all if empty.
    pub lines: String,
    /// Whether the state is of the network namespace, and not of the whole host.
    pub of_namespace: bool,
}

impl Step {
    /// A write of `new` to a file that reads `old`.
    pub fn write(path: impl Into<String>, old: impl Into<String>, new: impl Into<String>) -> Self {
        Self::Write {
            path: path.into(),
            old: old.into(),
            new: new.into(),
        }
    }

    /// The shell command that applies it.
    pub fn command(&self) -> String {
        match self {
            Self::Write { path, new, .. } => write_command(path, new),
            Self::Run { apply, .. } => shell(apply),
        }
    }

    /// The shell command that undoes it.
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

/// A write as an administrator types it: sysctl(8) for the settings it knows.
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

impl Step {
    /// The state before it.
    pub fn old(&self) -> &str {
        match self {
            Self::Write { old, .. } | Self::Run { old, .. } => old,
        }
    }

    /// Whether it writes a file.
    pub fn is_write(&self) -> bool {
        matches!(self, Self::Write { .. })
    }

    /// Whether it changes one network namespace, and not the whole host.
    pub fn is_of_a_namespace(&self) -> bool {
        match self {
            Self::Write { path, .. } => {
                path.starts_with("/proc/sys/net/") || path.starts_with("/sys/class/net/")
            }
            Self::Run { read, .. } => read.of_namespace,
        }
    }

    /// The state now.
    pub fn read(&self, context: &Context) -> Result<String> {
        match self {
            Self::Write { path, .. } => Ok(selected(&context.read(path)?)),
            Self::Run { read, .. } => read.run(context),
        }
    }

    /// Applies it and returns the state afterwards.
    pub fn apply(&self, context: &Context) -> Result<String> {
        match self {
            Self::Write { path, new, .. } => context.write(path, new)?,
            Self::Run { apply, .. } => drop(context.run(apply)?),
        }
        let set = self.read(context)?;
        match self {
            Self::Write { path, new, .. } => ensure!(
                set == *new,
                "{path} is {set} after {new} was written: the kernel does not accept this value"
            ),
            Self::Run { old, apply, .. } => {
                ensure!(set != *old, "`{}` changed nothing", shell(apply));
            }
        }
        Ok(set)
    }

    /// Undoes it and verifies the state.
    pub fn undo(&self, context: &Context) -> Result<()> {
        match self {
            Self::Write { path, old, .. } => context.write(path, old)?,
            Self::Run { undo, .. } => drop(context.run(undo)?),
        }
        let set = self.read(context)?;
        ensure!(
            set == self.old(),
            "after `{}` the state is {set}, and was {} before the fix",
            self.undo_command(),
            self.old()
        );
        Ok(())
    }
}

impl Read {
    /// A command that reads a state of the network namespace; only its lines that start with
    /// `lines` count.
    pub fn of_namespace(command: &str, lines: impl Into<String>) -> Self {
        Self {
            command: words(command),
            lines: lines.into(),
            of_namespace: true,
        }
    }

    /// A command that reads a state of the whole host.
    pub fn of_host(command: &str, lines: impl Into<String>) -> Self {
        Self {
            of_namespace: false,
            ..Self::of_namespace(command, lines)
        }
    }

    /// The state now.
    pub fn run(&self, context: &Context) -> Result<String> {
        let output = context.run(&self.command)?;
        let lines = output.lines().map(str::trim);
        let lines: Vec<_> = lines.filter(|line| line.starts_with(&self.lines)).collect();
        Ok(lines.join("\n"))
    }
}

/// The words of a command without quotes.
pub fn words(command: &str) -> Vec<String> {
    command.split_whitespace().map(str::to_owned).collect()
}

/// The selected entry of a file that lists all choices, such as `always [madvise] never`.
fn selected(text: &str) -> String {
    let inside = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or_else(|| text.to_owned(), |(selected, _)| selected.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::context::LOOK;

    #[test]
    fn a_write_is_typed_as_an_administrator_would() {
        let write = |path: &str| Step::write(path, "0", "1 2");
        let sysctl = write("/proc/sys/net/core/x");
        assert_eq!(sysctl.command(), "sysctl -w 'net.core.x=1 2'");
        assert_eq!(sysctl.undo_command(), "sysctl -w net.core.x=0");
        let echo = write("/sys/class/net/eth0/x");
        assert_eq!(echo.command(), "echo '1 2' > /sys/class/net/eth0/x");
    }

    #[test]
    fn the_selected_entry_of_a_choice_counts() {
        assert_eq!(selected("always [madvise] never"), "madvise");
        assert_eq!(selected("12"), "12");
    }

    #[test]
    fn only_lines_with_the_prefix_count() -> Result<()> {
        let host = Context::host(Vec::new(), &[], LOOK);
        let mut read = Read::of_host("printf", "b ");
        read.command.push("a 1\n  b 2\n".into());
        assert_eq!(read.run(&host)?, "b 2");
        assert!(Read::of_host("false", "").run(&host).is_err());
        assert!(Read::of_host("weir-is-not-this", "").run(&host).is_err());
        Ok(())
    }
}
