//! The text of a policy: TOML, of which every fault is reported at once.

mod calls;
mod conflicts;
mod device;
mod section;
mod tenant;
#[cfg(test)]
mod tests;
mod text;
mod value;

pub use text::{Checked, MOST_BYTES};
