//! A broken invariant.

use std::fmt;

/// The invariant that a check found broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// A packet's bytes.
    Payload,
    /// Packets of a flow arrive once, and in order.
    Order,
    /// A chunk has one holder.
    Holder,
    /// Every chunk is free in the end.
    Chunks,
    /// A packet sent is received or counted as dropped.
    Balance,
    /// A packet sent is completed once.
    Completions,
    /// The kernel, which nobody disturbs, returns what it was lent.
    Descriptors,
    /// A queue is free again after its socket.
    Queue,
    /// Nothing stays mapped or open.
    Leftovers,
    /// A call succeeds where it must.
    Call,
    /// A thread panics.
    Panic,
    /// A thread makes no progress.
    Hang,
}

/// A broken invariant, and what was seen.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Failure {
    pub check: Check,
    pub text: String,
}

pub type Result<T> = std::result::Result<T, Failure>;

/// A failed check.
pub fn fail<T>(check: Check, text: impl Into<String>) -> Result<T> {
    let text = text.into();
    Err(Failure { check, text })
}

/// A check.
pub fn ensure(holds: bool, check: Check, text: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { fail(check, text()) }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.check, self.text)
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self {
            check: Check::Call,
            text: error.to_string(),
        }
    }
}
