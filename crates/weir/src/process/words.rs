//! The command line of a hidden command, from the structure that it is parsed into.

use std::ffi::OsString;

/// Words of a command line, in the order that they were added.
#[derive(Debug, Default)]
#[must_use]
pub struct Words(Vec<OsString>);

impl Words {
    /// Adds `--name value`.
    pub fn value(mut self, name: &str, value: &impl ToString) -> Self {
        self.0.push(format!("--{name}").into());
        self.0.push(value.to_string().into());
        self
    }

    /// Adds `--name value`, or nothing without a value.
    pub fn option(self, name: &str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.value(name, &value),
            None => self,
        }
    }

    /// Adds `--name` if it is set.
    pub fn flag(mut self, name: &str, set: bool) -> Self {
        if set {
            self.0.push(format!("--{name}").into());
        }
        self
    }

    /// The words, for [`std::process::Command::args`].
    pub fn into_vec(self) -> Vec<OsString> {
        self.0
    }
}
