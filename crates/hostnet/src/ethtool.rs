//! Offloads, queues and rings, through the ioctl that ethtool(8) uses for them too.
//!
//! Unsafe code is needed because SIOCETHTOOL takes a pointer inside a structure: the type
//! system cannot see what the kernel reads and writes behind it.
#![allow(unsafe_code)]

use anyhow::{Context as _, Result, ensure};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, ioctl};
use rustix::net::{AddressFamily, SocketType};

/// A switch of a device that the lab sets, by its command in linux/ethtool.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Offload {
    /// Leave checksums to the device when sending.
    TxChecksum = 0x17,
    /// Leave cutting TCP streams to the device.
    Tso = 0x1f,
    /// Leave cutting any packet that is too large to the last moment.
    Gso = 0x24,
    /// Put packets of one flow together when receiving.
    Gro = 0x2c,
}

/// A switch of a device, as `ethtool -k` lists them, by the kernel's own name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feature {
    /// Its name, such as `rx-lro`.
    pub name: String,
    /// Whether it is on.
    pub on: bool,
    /// Whether it can be switched.
    pub changeable: bool,
}

/// The queues of a device (`ethtool -l`). A combined one counts for both ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Channels {
    /// The most that there can be.
    pub most: Queues,
    /// Those in use.
    pub used: Queues,
}

/// Queues by what they are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queues {
    /// Only for receiving.
    pub rx: u32,
    /// Only for sending.
    pub tx: u32,
    /// For both.
    pub combined: u32,
}

/// Descriptors of a device's receive ring (`ethtool -g`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxRing {
    /// The most that there can be.
    pub most: u32,
    /// Those in use.
    pub used: u32,
}

/// When a device interrupts for what it received (`ethtool -c`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxCoalesce {
    /// So long after a packet, in microseconds.
    pub usecs: u32,
    /// After so many packets.
    pub frames: u32,
    /// Whether the driver sets both by itself.
    pub adaptive: bool,
}

const SIOCETHTOOL: Opcode = 0x8946;
const IFNAMSIZ: usize = 16;
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

/// Switches `offload` of `device` on or off, in the calling thread's network namespace.
pub fn set(device: &str, offload: Offload, on: bool) -> Result<()> {
    // `struct ethtool_value`.
    call(device, &mut [offload as u32, u32::from(on)]).with_context(|| {
        format!(
            "cannot switch {offload:?} of {device} {}",
            if on { "on" } else { "off" }
        )
    })
}

/// Every feature of `device`, in the calling thread's network namespace.
pub fn features(device: &str) -> Result<Vec<Feature>> {
    feature_words(device).with_context(|| format!("cannot read the offloads of {device}"))
}

fn feature_words(device: &str) -> Result<Vec<Feature>> {
    // `struct ethtool_sset_info`: the mask of 64 bits asks for one count, which follows it.
    let mut count = [GET_STRING_COUNTS, 0, 0, 0, 0];
    write_mask(&mut count, 1 << FEATURE_NAMES);
    call(device, &mut count)?;
    let count = usize::try_from(count[4])?;
    // `struct ethtool_gstrings`.
    let mut names = vec![0; 3 + count * NAME_WORDS];
    names[..3].copy_from_slice(&[GET_STRINGS, FEATURE_NAMES, u32::try_from(count)?]);
    call(device, &mut names)?;
    // `struct ethtool_gfeatures`.
    let blocks = count.div_ceil(32);
    let mut values = vec![0; 2 + blocks * BLOCK_WORDS];
    values[..2].copy_from_slice(&[GET_FEATURES, u32::try_from(blocks)?]);
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
            // "Never changed" is what the driver fixed, also where it could be asked for.
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

/// The queues of `device`; none if its driver does not tell.
pub fn channels(device: &str) -> Result<Option<Channels>> {
    // `struct ethtool_channels`: the most of rx, tx, other, combined, then those in use.
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

/// The receive ring of `device`; none if its driver does not tell.
pub fn rx_ring(device: &str) -> Result<Option<RxRing>> {
    // `struct ethtool_ringparam`: the most of rx, mini, jumbo, tx, then those in use.
    let mut words = [0; 9];
    words[0] = GET_RING;
    let known =
        ask(device, &mut words).with_context(|| format!("cannot read the rings of {device}"))?;
    Ok(known.then_some(RxRing {
        most: words[1],
        used: words[5],
    }))
}

/// The interrupt settings of `device`; none if its driver does not tell.
pub fn rx_coalesce(device: &str) -> Result<Option<RxCoalesce>> {
    // `struct ethtool_coalesce`.
    let mut words = [0; 23];
    words[0] = GET_COALESCE;
    let known = ask(device, &mut words)
        .with_context(|| format!("cannot read the interrupt settings of {device}"))?;
    Ok(known.then_some(RxCoalesce {
        usecs: words[1],
        frames: words[2],
        adaptive: words[10] != 0,
    }))
}

/// [`call`], with `false` for what the device's driver has not.
fn ask(device: &str, words: &mut [u32]) -> Result<bool> {
    match call(device, words) {
        Ok(()) => Ok(true),
        Err(error) if error.downcast_ref() == Some(&Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error),
    }
}

/// One command. `words` is its structure, which begins with the command and has all the room
/// that the kernel writes to.
fn call(device: &str, words: &mut [u32]) -> Result<()> {
    ensure!(
        device.len() < IFNAMSIZ,
        "{device} is too long for a device's name"
    );
    let mut name = [0; IFNAMSIZ];
    name[..device.len()].copy_from_slice(device.as_bytes());
    let request = Ifreq {
        name,
        data: words.as_mut_ptr(),
        rest: [0; REST],
    };
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)
        .context("cannot open a socket to ask ethtool with")?;
    // SAFETY: needed to say which structure SIOCETHTOOL takes. Sound because that structure is
    // an ifreq of the kernel's size (asserted above), which it only reads.
    let call = unsafe { Setter::<SIOCETHTOOL, Ifreq>::new(request) };
    // SAFETY: needed because the request holds a pointer. Sound because every caller in this
    // file gives the whole structure of its command, or one sized by a count that the kernel
    // gave before and that is constant while it runs (that of the features); it is writable and
    // outlives the call, and the kernel keeps no pointer to it.
    Ok(unsafe { ioctl(socket, call) }?)
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
        let loopback = loopback.context("the loopback has no such feature")?;
        assert!(loopback.on && !loopback.changeable);
        assert_eq!(rx_ring("lo")?, None);
        assert_eq!(channels("lo")?, None);
        assert_eq!(rx_coalesce("lo")?, None);
        Ok(())
    }

    #[test]
    fn a_device_that_is_not_there_is_an_error() {
        assert!(channels("weir-none").is_err());
        assert!(features("a-name-that-is-too-long").is_err());
    }
}
