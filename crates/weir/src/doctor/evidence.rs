//! A value read from the host.

use serde::Serialize;

/// A value read from the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// Its origin: a file, a command, a netlink attribute.
    pub source: String,
    /// The value.
    pub value: String,
}

impl Evidence {
    /// The `value` that was read from `source`.
    pub fn new(source: impl Into<String>, value: impl AsRef<str>) -> Self {
        Self {
            source: source.into(),
            value: value.as_ref().trim().to_owned(),
        }
    }

    /// A switch that was read from `source`.
    pub fn on_off(source: impl Into<String>, on: bool) -> Self {
        Self::new(source, if on { "on" } else { "off" })
    }
}
