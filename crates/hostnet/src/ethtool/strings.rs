//! Names that a driver gives to its features and statistics (`struct ethtool_gstrings`).

use super::ioctl::{Driver, Request};
use crate::error::Result;

const GET_STRINGS: u32 = 0x1b;
const GET_STRING_COUNTS: u32 = 0x37;
/// Words of one name (`ETH_GSTRING_LEN` bytes).
const NAME_WORDS: usize = 8;

/// A set of names, by its number in `enum ethtool_stringset`.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(super) enum StringSet {
    Statistics = 1,
    Features = 4,
}

/// The names of a set, in their order; none if the device has no such set.
pub(super) fn read(driver: &dyn Driver, set: StringSet) -> Result<Vec<String>> {
    // `struct ethtool_sset_info`: the mask of 64 bits asks for one count, which follows it.
    let mut counts = Request::new(GET_STRING_COUNTS, 5)?;
    counts.bytes_mut()[8..16].copy_from_slice(&(1_u64 << set as u32).to_ne_bytes());
    driver.call(&mut counts)?;
    let count = counts[4];
    if count == 0 {
        return Ok(Vec::new());
    }
    let mut names = Request::new(GET_STRINGS, 3 + count as usize * NAME_WORDS)?;
    names[1..3].copy_from_slice(&[set as u32, count]);
    driver.call(&mut names)?;
    Ok(names.bytes()[12..]
        .chunks(NAME_WORDS * size_of::<u32>())
        .map(text)
        .collect())
}

/// The text before the first zero.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}
