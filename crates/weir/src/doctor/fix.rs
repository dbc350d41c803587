//! The cure of a finding.

use super::context::device::Device;
use super::context::{Context, shell};
use super::step::{Read, Step, words};
use crate::report::shell::quote;

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

    /// The steps of several fixes, one after another; those that are manual, if one is.
    pub fn all(fixes: impl IntoIterator<Item = Self>) -> Self {
        let (mut all, mut manual) = (Vec::new(), Vec::new());
        for fix in fixes {
            match fix {
                Self::Steps(steps) => all.extend(steps),
                Self::Manual(text) => manual.push(text),
            }
        }
        if manual.is_empty() {
            Self::Steps(all)
        } else {
            Self::Manual(manual.join("; "))
        }
    }

    /// Switches a feature of a device with `ethtool -K`; `shown` is its name in `ethtool -k`. Manual in another network
    /// namespace, whose settings are a container's own.
    pub fn ethtool(
        context: &Context,
        device: &Device,
        feature: &str,
        on: bool,
        shown: &str,
    ) -> Self {
        let value = |on: bool| if on { "on" } else { "off" };
        if device.elsewhere.is_some() {
            let (name, now, before) = (quote(device.name()), value(on), value(!on));
            let command = device.command(&format!("ethtool -K {name} {feature} {now}"));
            return Self::manual(format!("`{command}`, undone with `{feature} {before}`"));
        }
        let device = device.name();
        let set = |on: bool| format!("ethtool -K {device} {feature} {}", value(on));
        let read = Read::of_namespace(&format!("ethtool -k {device}"), format!("{shown}:"));
        Self::command(context, &set(on), &set(!on), read)
    }
}
