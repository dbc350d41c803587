//! Offloads, queues, rings and interrupt coalescing, by the ioctl of ethtool(8)
//! (linux/ethtool.h).
//!
//! Every function works in the calling thread's network namespace.
//!
//! Unsafe code is needed because SIOCETHTOOL takes a pointer inside a structure: the type
//! system cannot see which bytes the kernel reads and writes behind it.
#![allow(unsafe_code)]

use std::fmt;

use rustix::ioctl::{Opcode, Setter, ioctl};
use rustix::net::{AddressFamily, SocketType};

use crate::error::{Context as _, Error, ErrorKind, Result};
use crate::ifreq::{self, IFNAMSIZ};

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

/// The queues of a device (`ethtool -l`), each a channel with an interrupt.
///
/// ```
/// use hostnet::ethtool::{Channels, Queues};
///
/// let most = Queues { rx: 0, tx: 0, combined: 8 };
/// let channels = Channels { most, used: Queues { combined: 4, ..most } };
/// assert!(channels.used.combined < channels.most.combined);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Channels {
    /// The limits.
    pub most: Queues,
    /// The queues in use.
    pub used: Queues,
}

/// Numbers of queues by their direction, see [`Channels`].
///
/// ```
/// use hostnet::ethtool::Queues;
///
/// let queues = Queues { rx: 0, tx: 2, combined: 4 };
/// assert_eq!(queues.tx + queues.combined, 6);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queues {
    /// Queues that only receive.
    pub rx: u32,
    /// Queues that only send.
    pub tx: u32,
    /// Queues that receive and send.
    pub combined: u32,
}

/// The receive ring of a device, in descriptors (`ethtool -g`).
///
/// ```
/// use hostnet::ethtool::RxRing;
///
/// let ring = RxRing { most: 4096, used: 512 };
/// assert!(ring.used < ring.most);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxRing {
    /// The limit.
    pub most: u32,
    /// The size in use.
    pub used: u32,
}

/// The coalescing of receive interrupts (`ethtool -c`): an interrupt comes at the earlier of two
/// limits.
///
/// ```
/// use hostnet::ethtool::RxCoalesce;
///
/// let coalesce = RxCoalesce { usecs: 50, frames: 0, adaptive: false };
/// assert!(!coalesce.adaptive);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxCoalesce {
    /// The time after a packet, in microseconds (`rx-usecs`).
    pub usecs: u32,
    /// The number of packets (`rx-frames`).
    pub frames: u32,
    /// Whether the driver chooses both by itself (`Adaptive RX`).
    pub adaptive: bool,
}

const SIOCETHTOOL: Opcode = 0x8946;
/// Commands of linux/ethtool.h.
const GET_COALESCE: u32 = 0x0e;
const GET_RING: u32 = 0x10;
const GET_STRINGS: u32 = 0x1b;
const GET_STRING_COUNTS: u32 = 0x37;
const GET_FEATURES: u32 = 0x3a;
const GET_CHANNELS: u32 = 0x3c;
/// The names of the features (`ETH_SS_FEATURES`).
const FEATURE_NAMES: u32 = 4;
/// Words of one name (`ETH_GSTRING_LEN` bytes).
const NAME_WORDS: usize = 8;
/// Words of `struct ethtool_get_features_block`: available, requested, active, never changed.
const BLOCK_WORDS: usize = 4;

const REST: usize = size_of::<libc::ifreq>() - IFNAMSIZ - size_of::<usize>();

/// `struct ifreq` with the one member of its union that this call uses, at its full size,
/// all of which the kernel copies.
#[repr(C)]
struct Ifreq {
    name: [u8; IFNAMSIZ],
    data: *mut u32,
    rest: [u8; REST],
}

const _: () = assert!(size_of::<Ifreq>() == size_of::<libc::ifreq>());

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
pub fn set(device: &str, offload: Offload, on: bool) -> Result<()> {
    // `struct ethtool_value`.
    let switched = call(device, &mut [offload as u32, u32::from(on)]).with_context(|| {
        let value = if on { "on" } else { "off" };
        format!("cannot switch {offload} of {device} {value}")
    });
    switched.needs("CAP_NET_ADMIN")
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
pub fn features(device: &str) -> Result<Vec<Feature>> {
    feature_words(device).with_context(|| format!("cannot read the offloads of {device}"))
}

fn feature_words(device: &str) -> Result<Vec<Feature>> {
    // `struct ethtool_sset_info`: the mask of 64 bits asks for one count, which follows it.
    let mut count = [GET_STRING_COUNTS, 0, 0, 0, 0];
    write_mask(&mut count, 1 << FEATURE_NAMES);
    call(device, &mut count)?;
    let count = count[4];
    // `struct ethtool_gstrings`.
    let mut names = vec![0; 3 + count as usize * NAME_WORDS];
    names[..3].copy_from_slice(&[GET_STRINGS, FEATURE_NAMES, count]);
    call(device, &mut names)?;
    // `struct ethtool_gfeatures`.
    let blocks = count.div_ceil(32);
    let mut values = vec![0; 2 + blocks as usize * BLOCK_WORDS];
    values[..2].copy_from_slice(&[GET_FEATURES, blocks]);
    call(device, &mut values)?;
    Ok(name_features(&names[3..], &values[2..]))
}

/// Sets the mask of `struct ethtool_sset_info`, 64 bits in this machine's order of bytes.
fn write_mask(words: &mut [u32; 5], mask: u64) {
    let bytes = mask.to_ne_bytes();
    for (word, bytes) in words[2..4].iter_mut().zip(bytes.as_chunks().0) {
        *word = u32::from_ne_bytes(*bytes);
    }
}

/// Puts names to the bits of blocks; a name may be empty, for a bit of no use here.
fn name_features(names: &[u32], blocks: &[u32]) -> Vec<Feature> {
    let names = names.chunks(NAME_WORDS).map(text);
    let bits = blocks.chunks(BLOCK_WORDS).flat_map(|block| {
        (0..32).map(move |bit| {
            let is_set = |word: usize| block.get(word).is_some_and(|word| word >> bit & 1 == 1);
            // A bit that is "never changed" is fixed, also where it is available.
            (is_set(2), is_set(0) && !is_set(3))
        })
    });
    names
        .zip(bits)
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, (on, changeable))| Feature {
            name,
            on,
            changeable,
        })
        .collect()
}

fn text(words: &[u32]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let end = bytes.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

/// The queues of `device`; `None` if its driver does not report them.
///
/// # Errors
///
/// [`ErrorKind::NotFound`] if there is no such device.
///
/// ```no_run
/// use hostnet::ethtool;
///
/// if let Some(channels) = ethtool::channels("eth0")? {
///     println!("{} of {}", channels.used.combined, channels.most.combined);
/// }
/// # Ok::<(), hostnet::Error>(())
/// ```
pub fn channels(device: &str) -> Result<Option<Channels>> {
    // `struct ethtool_channels`: the limits of rx, tx, other, combined, then the numbers in use.
    let mut words = [0; 9];
    words[0] = GET_CHANNELS;
    let known =
        ask(device, &mut words).with_context(|| format!("cannot read the queues of {device}"))?;
    let queues = |at: usize| Queues {
        rx: words[at],
        tx: words[at + 1],
        combined: words[at + 3],
    };
    Ok(known.then(|| Channels {
        most: queues(1),
        used: queues(5),
    }))
}

/// The receive ring of `device`; `None` if its driver does not report it.
///
/// # Errors
///
/// [`ErrorKind::NotFound`] if there is no such device.
///
/// ```no_run
/// let ring = hostnet::ethtool::rx_ring("eth0")?;
/// println!("{:?} descriptors", ring.map(|ring| ring.used));
/// # Ok::<(), hostnet::Error>(())
/// ```
pub fn rx_ring(device: &str) -> Result<Option<RxRing>> {
    // `struct ethtool_ringparam`: the limits of rx, mini, jumbo, tx, then the sizes in use.
    let mut words = [0; 9];
    words[0] = GET_RING;
    let known =
        ask(device, &mut words).with_context(|| format!("cannot read the rings of {device}"))?;
    Ok(known.then_some(RxRing {
        most: words[1],
        used: words[5],
    }))
}

/// The coalescing of receive interrupts of `device`; `None` if its driver does not report it.
///
/// # Errors
///
/// [`ErrorKind::NotFound`] if there is no such device.
///
/// ```no_run
/// let coalesce = hostnet::ethtool::rx_coalesce("eth0")?;
/// println!("{:?} µs", coalesce.map(|coalesce| coalesce.usecs));
/// # Ok::<(), hostnet::Error>(())
/// ```
pub fn rx_coalesce(device: &str) -> Result<Option<RxCoalesce>> {
    // `struct ethtool_coalesce`.
    let mut words = [0; 23];
    words[0] = GET_COALESCE;
    let known = ask(device, &mut words)
        .with_context(|| format!("cannot read the interrupt coalescing of {device}"))?;
    Ok(known.then_some(RxCoalesce {
        usecs: words[1],
        frames: words[2],
        adaptive: words[10] != 0,
    }))
}

/// [`call`], with `false` for a command that the device's driver does not have.
fn ask(device: &str, words: &mut [u32]) -> Result<bool> {
    match call(device, words) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(false),
        Err(error) => Err(error),
    }
}

/// One command. `words` is its structure, which begins with the command and has all the room
/// that the kernel writes to.
fn call(device: &str, words: &mut [u32]) -> Result<()> {
    let request = Ifreq {
        name: ifreq::name(device)?,
        data: words.as_mut_ptr(),
        rest: [0; REST],
    };
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)
        .context("cannot open a socket for SIOCETHTOOL")?;
    // SAFETY: needed to name the structure that SIOCETHTOOL takes. Sound because that structure is
    // an ifreq of the kernel's size (asserted above), which it only reads.
    let call = unsafe { Setter::<SIOCETHTOOL, Ifreq>::new(request) };
    // SAFETY: needed because the request holds a pointer. Sound because every caller in this
    // file gives the whole structure of its command, or one sized by a count that the kernel
    // gave before and that is constant while it runs (that of the features); it is writable and
    // outlives the call, and the kernel keeps no pointer to it.
    unsafe { ioctl(socket, call) }.map_err(|errno| Error::os(errno, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_words(name: &str) -> Vec<u32> {
        let mut bytes = [0; NAME_WORDS * 4];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        bytes
            .as_chunks()
            .0
            .iter()
            .map(|word| u32::from_ne_bytes(*word))
            .collect()
    }

    #[test]
    fn features_have_their_own_bits() {
        let mut names: Vec<u32> = Vec::new();
        for bit in 0..34 {
            names.extend(name_words(match bit {
                1 => "rx-lro",
                2 => "fixed",
                33 => "rx-gro",
                _ => "",
            }));
        }
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
        assert_eq!(name_features(&names, &blocks), expected);
    }

    #[test]
    fn the_loopback_has_features_and_no_rings() -> Result<()> {
        let features = features("lo")?;
        let loopback = features.iter().find(|feature| feature.name == "loopback");
        let loopback = loopback.expect("a feature of the loopback");
        assert!(loopback.on && !loopback.changeable);
        assert_eq!(rx_ring("lo")?, None);
        assert_eq!(channels("lo")?, None);
        assert_eq!(rx_coalesce("lo")?, None);
        Ok(())
    }

    #[test]
    fn a_device_that_is_not_there_is_an_error() {
        let error = channels("hostnet-none").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let error = features("a-name-that-is-too-long").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}
