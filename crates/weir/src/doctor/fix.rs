//! What mends a finding, as steps that can be taken back.

use std::fmt;

use serde::{Deserialize, Serialize};

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
        _ => format!("echo {} > {}", quoted(value), quoted(path)),
    }
}

fn shell(words: &[String]) -> String {
    let words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
    words.join(" ")
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+.,:/@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
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
    fn a_word_reaches_the_command_as_it_is() {
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("tap0"), "tap0");
    }
}
