//! Fixes that are commands.

use crate::doctor::{Fix, Read, Step};

/// A fix by one command, whose undo is another. What `read` says now is what there was; where
/// that cannot be read, the fix is for a person.
pub fn fix(apply: Vec<String>, undo: Vec<String>, read: Read) -> Fix {
    match read.run() {
        Ok(old) => Fix::Steps(vec![Step::Run {
            apply,
            undo,
            read,
            old,
        }]),
        Err(error) => Fix::Text(format!(
            "`{}`; not by itself, since the setting could not be read: {error:#}",
            apply.join(" ")
        )),
    }
}

/// The words of a command.
pub fn words(command: &str) -> Vec<String> {
    command.split_whitespace().map(str::to_owned).collect()
}
