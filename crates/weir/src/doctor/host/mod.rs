//! The checks of what holds for the whole host.

use super::Check;

/// The checks of what holds for the whole host.
pub const CHECKS: &[Check] = &[];
