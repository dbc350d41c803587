//! The cure of a finding.

use super::context::{Context, shell};
use super::step::{Read, Step, words};

/// The cure of a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fix {
    /// Steps that `--fix` applies in this order and `--undo` undoes.
    Steps(Vec<Step>),
    /// Instructions for a person, or the reason why there is no cure.
    Manual(String),
}

impl Fix {
    /// Instructions for a person, or the reason why there is no cure.
    pub fn manual(text: impl Into<String>) -> Self {
        Self::Manual(text.into())
    }

    /// A write of `new` to a file that reads `old`.
    pub fn write(path: impl Into<String>, old: impl Into<String>, new: impl Into<String>) -> Self {
        Self::Steps(vec![Step::write(path, old, new)])
    }

    /// A command and its undo. `read` reads the state that they change; if it fails, the fix is
    /// manual.
    pub fn command(context: &Context, apply: &str, undo: &str, read: Read) -> Self {
        let apply = words(apply);
        match read.run(context) {
            Ok(old) => Self::Steps(vec![Step::Run {
                apply,
                undo: words(undo),
                read,
                old,
            }]),
            Err(error) => Self::Manual(format!(
                "`{}`; --fix cannot run it, since the old state could not be read: {error:#}",
                shell(&apply)
            )),
        }
    }

    /// The steps of several fixes, one after another; the first that is manual, if one is.
    pub fn all(fixes: impl IntoIterator<Item = Self>) -> Self {
        let mut all = Vec::new();
        for fix in fixes {
            match fix {
                Self::Steps(steps) => all.extend(steps),
                manual @ Self::Manual(_) => return manual,
            }
        }
        Self::Steps(all)
    }

    /// Switches a feature of a device with `ethtool -K`; `shown` is its name in `ethtool -k`.
    pub fn ethtool(context: &Context, device: &str, feature: &str, on: bool, shown: &str) -> Self {
        let set = |on: bool| {
            let value = if on { "on" } else { "off" };
            format!("ethtool -K {device} {feature} {value}")
        };
        let read = Read::of_namespace(&format!("ethtool -k {device}"), format!("{shown}:"));
        Self::command(context, &set(on), &set(!on), read)
    }
}
