//! The checks of each network device.

use super::Check;

/// The checks of each network device.
pub const CHECKS: &[Check] = &[];
