//! The place of a pool that goes round.

/// Where a pool stands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    /// Index of the network, for tables and interfaces.
    pub index: usize,
    /// Number of the host in it.
    pub host: u128,
}
