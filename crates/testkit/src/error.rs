//! Errors of tests, which are for people only.

use std::fmt;

/// The error of a test, of any kind.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The result of a test.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// The error of this crate's functions, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(String);

impl Failure {
    /// A failure in these words.
    pub fn new(words: impl Into<String>) -> Self {
        Self(words.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<rustix::io::Errno> for Failure {
    fn from(error: rustix::io::Errno) -> Self {
        Self(error.to_string())
    }
}

impl From<hostnet::Error> for Failure {
    fn from(error: hostnet::Error) -> Self {
        Self(error.to_string())
    }
}
