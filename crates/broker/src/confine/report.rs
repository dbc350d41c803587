//! The layers, and which of them are in force.

use serde::Serialize;
use std::fmt;

/// A layer of the confinement. Each refuses by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// No debugger and no core dump, no privileges by execve(2).
    Process,
    /// A mount namespace with the needed paths only.
    View,
    /// The least set of capabilities.
    Capabilities,
    /// Rules for files, and TCP where no connection is granted.
    Landlock,
    /// The system calls that the broker makes.
    Filter,
}

impl Layer {
    /// All, in the order in which they are applied: each takes away privileges that those before it need.
    pub const ALL: [Self; 5] = [
        Self::Process,
        Self::View,
        Self::Capabilities,
        Self::Landlock,
        Self::Filter,
    ];
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => "process",
            Self::View => "view of the file tree",
            Self::Capabilities => "capabilities",
            Self::Landlock => "Landlock",
            Self::Filter => "seccomp filter",
        })
    }
}

/// Whether a layer is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is; with its extent.
    InForce(String),
    /// It is not; with the reason.
    Absent(String),
}

/// Layers that confine the broker, for its log and `weir broker status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Each layer and its state.
    pub layers: Vec<(Layer, State)>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (layer, state)) in self.layers.iter().enumerate() {
            let end = if at + 1 < self.layers.len() { "\n" } else { "" };
            match state {
                State::InForce(extent) => write!(f, "{layer}: {extent}{end}")?,
                State::Absent(missing) => write!(f, "{layer}: not in force, {missing}{end}")?,
            }
        }
        Ok(())
    }
}
