//! What the driver knows of a received packet.

/// Bytes of the hints in front of a packet: a timestamp in nanoseconds; a hash and its kind; protocol and
/// tag of a VLAN; and a word with [`MAGIC`] and the flags of the hints that the driver has.
pub(crate) const HINTS_LEN: u8 = 24;

/// Those bytes.
pub(crate) type HintBytes = [u8; HINTS_LEN as usize];

/// The kernel's functions by which an XDP program asks the driver, in the order of the hints (Linux 6.3, the
/// last 6.8; `net/core/xdp.c`).
pub(crate) const FUNCTIONS: [&str; 3] = [
    "bpf_xdp_metadata_rx_timestamp",
    "bpf_xdp_metadata_rx_hash",
    "bpf_xdp_metadata_rx_vlan_tag",
];

/// Says that hints are there.
pub(crate) const MAGIC: u32 = 0x7765_6900;
/// Flags of the hints.
pub(crate) const TIMESTAMP: u32 = 1;
pub(crate) const HASH: u32 = 2;
pub(crate) const VLAN_TAG: u32 = 4;

/// What the driver knows of a received packet; see [`Packet::hints`](crate::Packet::hints).
///
/// ```no_run
/// # fn main() -> xsk::Result<()> {
/// # let umem = xsk::Umem::builder().build()?;
/// let mut socket = xsk::Socket::builder(&umem, "eth0", 0).rx_hints(true).open()?;
/// let mut batch = socket.recv(64);
/// while let Some(packet) = batch.next_packet() {
///     if let Some(tag) = packet.hints().vlan_tag {
///         println!("VLAN {}", tag.tci & 0xfff);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RxHints {
    /// When the packet was received, in nanoseconds of the card's clock.
    pub timestamp: Option<u64>,
    /// The hash of the packet's flow.
    pub hash: Option<RxHash>,
    /// The VLAN tag that the device has taken out of the packet.
    pub vlan_tag: Option<VlanTag>,
}

/// The hash of a packet's flow, as the card has it for receive side scaling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RxHash {
    /// The hash.
    pub value: u32,
    /// What was hashed, by the bits of `enum xdp_rss_hash_type` (`include/net/xdp.h`); 0 when that is not
    /// known.
    pub kind: u32,
}

/// A VLAN tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct VlanTag {
    /// 0x8100 for IEEE 802.1Q, 0x88a8 for 802.1ad.
    pub protocol: u16,
    /// Priority in the upper three bits, drop eligibility, and the VLAN in the lower twelve.
    pub tci: u16,
}

impl RxHints {
    /// Reads the hints in front of a packet. None are there when nobody wrote them.
    pub(crate) fn read(bytes: &HintBytes) -> Self {
        let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]));
        let half = |at: usize| [bytes[at], bytes[at + 1]];
        let flags = word(20);
        if flags & 0xffff_ff00 != MAGIC {
            return Self::default();
        }
        let has = |flag: u32| flags & flag != 0;
        let time = u64::from(word(0)) | u64::from(word(4)) << 32;
        let time = if cfg!(target_endian = "little") {
            time
        } else {
            time.rotate_left(32)
        };
        Self {
            // A driver that has timestamps, but not for this packet, may say 0.
            timestamp: (has(TIMESTAMP) && time > 0).then_some(time),
            hash: has(HASH).then(|| RxHash {
                value: word(8),
                kind: word(12),
            }),
            vlan_tag: has(VLAN_TAG).then(|| VlanTag {
                protocol: u16::from_be_bytes(half(16)),
                tci: u16::from_ne_bytes(half(18)),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{HASH, HINTS_LEN, HintBytes, MAGIC, RxHash, RxHints, TIMESTAMP, VLAN_TAG, VlanTag};

    fn bytes(flags: u32) -> HintBytes {
        let mut bytes = [0; HINTS_LEN as usize];
        bytes[..8].copy_from_slice(&0x1234_5678_9abc_def0_u64.to_ne_bytes());
        bytes[8..12].copy_from_slice(&77_u32.to_ne_bytes());
        bytes[12..16].copy_from_slice(&9_u32.to_ne_bytes());
        bytes[16..18].copy_from_slice(&[0x81, 0]);
        bytes[18..20].copy_from_slice(&7_u16.to_ne_bytes());
        bytes[20..].copy_from_slice(&flags.to_ne_bytes());
        bytes
    }

    #[test]
    fn each_hint_has_its_flag() {
        let timestamp = Some(0x1234_5678_9abc_def0);
        let hash = Some(RxHash { value: 77, kind: 9 });
        let vlan_tag = Some(VlanTag {
            protocol: 0x8100,
            tci: 7,
        });
        for flags in 0..8 {
            let read = RxHints::read(&bytes(MAGIC | flags));
            assert_eq!(read.timestamp, timestamp.filter(|_| flags & TIMESTAMP != 0));
            assert_eq!(read.hash, hash.filter(|_| flags & HASH != 0));
            assert_eq!(read.vlan_tag, vlan_tag.filter(|_| flags & VLAN_TAG != 0));
        }
    }

    #[test]
    fn bytes_that_are_no_hints_are_none() {
        for flags in [7, MAGIC << 8 | 7, MAGIC ^ 0x100 | 7, u32::MAX] {
            assert_eq!(RxHints::read(&bytes(flags)), RxHints::default());
        }
        let mut without_time = bytes(MAGIC | TIMESTAMP);
        without_time[..8].fill(0);
        assert_eq!(RxHints::read(&without_time).timestamp, None);
    }
}
