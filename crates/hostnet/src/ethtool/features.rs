//! Features and offloads (`ethtool -k`, `-K`).

use std::fmt;

use super::ioctl::{Driver, Kernel, Request};
use super::strings::{self, StringSet};
use crate::error::{Context as _, Error, ErrorKind, Result};
use crate::privilege::Capability;

const GET_FEATURES: u32 = 0x3a;
const SET_FEATURES: u32 = 0x3b;
/// Words of `struct ethtool_get_features_block`: available, requested, active, never changed.
const BLOCK_WORDS: usize = 4;

/// An offload that [`set`] can switch, by its command in linux/ethtool.h.
///
/// ```
/// use hostnet::ethtool::Offload;
///
/// assert_eq!(Offload::Gro.to_string(), "gro");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Offload {
    /// Checksums of sent packets are left to the device (`ETHTOOL_STXCSUM`).
    TxChecksum = 0x17,
    /// TCP segmentation is left to the device (`ETHTOOL_STSO`).
    Tso = 0x1f,
    /// Segmentation of any packet is left to the last moment (`ETHTOOL_SGSO`).
    Gso = 0x24,
    /// Received packets of one flow are merged (`ETHTOOL_SGRO`).
    Gro = 0x2c,
}

/// The keyword of `ethtool -K`.
impl fmt::Display for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TxChecksum => "tx",
            Self::Tso => "tso",
            Self::Gso => "gso",
            Self::Gro => "gro",
        })
    }
}

/// A feature of a device, one of those that `ethtool -k` lists, by the kernel's name
/// (`netdev_features_strings` in net/ethtool/common.c).
///
/// ```
/// use hostnet::ethtool::Feature;
///
/// let lro = Feature { name: "rx-lro".into(), on: true, changeable: true };
/// assert!(lro.on && lro.changeable);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feature {
    /// The name, such as `rx-lro`.
    pub name: String,
    /// Whether the feature is on.
    pub on: bool,
    /// Whether it can be switched; `ethtool -k` shows the others as `[fixed]`.
    pub changeable: bool,
}

/// Switches `offload` of `device` on or off. Needs `CAP_NET_ADMIN`.
///
/// # Errors
///
/// [`ErrorKind::NotFound`] if there is no such device, [`ErrorKind::PermissionDenied`] without the
/// capability, [`ErrorKind::Unsupported`] if the offload of the device is fixed.
///
/// ```no_run
/// use hostnet::ethtool::{self, Offload};
///
/// ethtool::set("eth0", Offload::Gro, false)?;
/// # Ok::<(), hostnet::Error>(())
/// ```
///
/// [`ErrorKind::NotFound`]: crate::ErrorKind::NotFound
/// [`ErrorKind::PermissionDenied`]: crate::ErrorKind::PermissionDenied
/// [`ErrorKind::Unsupported`]: crate::ErrorKind::Unsupported
pub fn set(device: &str, offload: Offload, on: bool) -> Result<()> {
    // `struct ethtool_value`.
    let switch = || Kernel::open(device)?.call(&mut Request::of(&[offload as u32, u32::from(on)])?);
    let switched = switch().with_context(|| {
        let value = if on { "on" } else { "off" };
        format!("cannot switch {offload} of {device} {value}")
    });
    switched.needs(Capability::NetAdmin)
}

/// Switches a feature of `device`, by the kernel's name as [`features`] lists it: `rx-vlan-hw-parse`
/// for the removal of VLAN tags (`ethtool -K DEVICE rxvlan off`), `rx-vlan-filter` for their filter.
/// Needs `CAP_NET_ADMIN`.
///
/// # Errors
///
/// [`ErrorKind::NotFound`] if there is no such device, [`ErrorKind::PermissionDenied`] without the
/// capability, [`ErrorKind::Unsupported`] if the device has no such feature, or does not switch it.
///
/// ```no_run
/// use hostnet::ethtool;
///
/// ethtool::set_feature("eth0", "rx-vlan-hw-parse", false)?;
/// # Ok::<(), hostnet::Error>(())
/// ```
pub fn set_feature(device: &str, name: &str, on: bool) -> Result<()> {
    let switched = Kernel::open(device).and_then(|driver| switch(&driver, name, on));
    let switched = switched.with_context(|| {
        let value = if on { "on" } else { "off" };
        format!("cannot switch {name} of {device} {value}")
    });
    switched.needs(Capability::NetAdmin)
}

fn switch(driver: &dyn Driver, name: &str, on: bool) -> Result<()> {
    let unsupported = |text| Error::new(ErrorKind::Unsupported, text);
    let names = strings::read(driver, StringSet::Features)?;
    let Some(bit) = names.iter().position(|other| other == name) else {
        return Err(unsupported("the kernel has no feature of this name"));
    };
    // `struct ethtool_sfeatures`: in each block, the bits that count, and their values.
    let blocks = names.len().div_ceil(32);
    let mut values = Request::new(SET_FEATURES, 2 + blocks * 2)?;
    values[1] = blocks as u32;
    let (word, mask) = (2 + bit / 32 * 2, 1 << (bit % 32));
    values[word] = mask;
    values[word + 1] = if on { mask } else { 0 };
    driver.call(&mut values)?;
    // The call also succeeds where the driver does not follow.
    let features = read(driver)?;
    match features.iter().find(|feature| feature.name == name) {
        Some(feature) if feature.on == on => Ok(()),
        Some(feature) if !feature.changeable => Err(unsupported("it is fixed for this device")),
        _ => Err(unsupported("the driver does not switch it")),
    }
}

/// Every feature of `device`.
///
/// # Errors
///
/// [`ErrorKind::NotFound`] if there is no such device.
///
/// ```no_run
/// use hostnet::ethtool;
///
/// for feature in ethtool::features("eth0")? {
///     let state = if feature.on { "on" } else { "off" };
///     let fixed = if feature.changeable { "" } else { " [fixed]" };
///     println!("{}: {state}{fixed}", feature.name);
/// }
/// # Ok::<(), hostnet::Error>(())
/// ```
///
/// [`ErrorKind::NotFound`]: crate::ErrorKind::NotFound
pub fn features(device: &str) -> Result<Vec<Feature>> {
    Kernel::open(device)
        .and_then(|driver| read(&driver))
        .with_context(|| format!("cannot read the offloads of {device}"))
}

pub(super) fn read(driver: &dyn Driver) -> Result<Vec<Feature>> {
    let names = strings::read(driver, StringSet::Features)?;
    // `struct ethtool_gfeatures`.
    let blocks = names.len().div_ceil(32);
    let mut values = Request::new(GET_FEATURES, 2 + blocks * BLOCK_WORDS)?;
    values[1] = blocks as u32;
    driver.call(&mut values)?;
    Ok(name_features(names, &values[2..]))
}

/// Puts names to the bits of blocks; a name may be empty, for a bit of no use here.
fn name_features(names: Vec<String>, blocks: &[u32]) -> Vec<Feature> {
    let bits = blocks.chunks(BLOCK_WORDS).flat_map(|block| {
        (0..32).map(move |bit| {
            let is_set = |word: usize| block.get(word).is_some_and(|word| word >> bit & 1 == 1);
            // A bit that is "never changed" is fixed, also where it is available.
            (is_set(2), is_set(0) && !is_set(3))
        })
    });
    names
        .into_iter()
        .zip(bits)
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, (on, changeable))| Feature {
            name,
            on,
            changeable,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_have_their_own_bits() {
        let names = (0..34).map(|bit| match bit {
            1 => "rx-lro".to_owned(),
            2 => "fixed".to_owned(),
            33 => "rx-gro".to_owned(),
            _ => String::new(),
        });
        let blocks = [0b110, 0, 0b010, 0b100, 0b10, 0b10, 0b10, 0];
        let feature = |name: &str, on, changeable| Feature {
            name: name.into(),
            on,
            changeable,
        };
        let expected = [
            feature("rx-lro", true, true),
            feature("fixed", false, false),
            feature("rx-gro", true, true),
        ];
        assert_eq!(name_features(names.collect(), &blocks), expected);
    }
}
