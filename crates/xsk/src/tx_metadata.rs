//! What a packet asks the kernel or the card for when it is sent, and the answers.

use crate::counter::Counter;
use crate::umem::{Chunk, Extent, TX_METADATA_LEN};
use std::collections::{HashMap, VecDeque};

/// `XDP_TXMD_FLAGS_TIMESTAMP`, `_CHECKSUM` and `_LAUNCH_TIME` (`include/uapi/linux/if_xdp.h`).
const TIMESTAMP: u64 = 1;
const CHECKSUM: u64 = 2;
const LAUNCH_TIME: u64 = 4;

/// Offsets in `struct xsk_tx_metadata`: of the checksum's start and place, or, when the packet was sent, the
/// timestamp; and of the launch time.
const SECOND: usize = 8;
const THIRD: usize = 16;

/// Requests for one packet, as [`Socket::send_with`](crate::Socket::send_with) sends it from a UMEM with
/// [TX metadata](crate::UmemBuilder::tx_metadata); see [the guide](crate::guide::metadata).
///
/// ```
/// use xsk::TxRequest;
///
/// // UDP behind an IPv4 header without options: the checksum from byte 34 on goes to byte 34 + 6.
/// let request = TxRequest::new().checksum(34, 6).timestamp(7);
/// # let _ = request;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use = "give it to `send_with`"]
pub struct TxRequest {
    checksum: Option<(u16, u16)>,
    timestamp: Option<u64>,
    launch_time: Option<u64>,
}

impl TxRequest {
    /// No request.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests the checksum of the bytes from `start` to the packet's end, stored `offset` bytes behind
    /// `start`, where the packet has the sum of the pseudo-header (`csum_start` and `csum_offset` of a
    /// `struct sk_buff`). In copy mode the kernel sums if the card does not.
    pub fn checksum(mut self, start: u16, offset: u16) -> Self {
        self.checksum = Some((start, offset));
        self
    }

    /// Requests the time at which the packet was sent; [`TxTimestamp`] returns it with `tag`, any number
    /// of the program's.
    pub fn timestamp(mut self, tag: u64) -> Self {
        self.timestamp = Some(tag);
        self
    }

    /// Requests that the card keeps the packet until its clock shows so many nanoseconds (Linux 6.15).
    pub fn launch_time(mut self, nanoseconds: u64) -> Self {
        self.launch_time = Some(nanoseconds);
        self
    }

    /// Whether a checksum's place lies inside the packet; one outside would block the TX ring.
    pub(crate) fn fits(&self, len: u32) -> bool {
        let end = |(start, offset): (u16, u16)| u32::from(start) + u32::from(offset) + 2;
        self.checksum.is_none_or(|place| end(place) <= len)
    }

    /// Writes the metadata of one packet.
    pub(crate) fn write(&self, metadata: &mut [u8]) {
        let flags = [
            (self.timestamp.is_some(), TIMESTAMP),
            (self.checksum.is_some(), CHECKSUM),
            (self.launch_time.is_some(), LAUNCH_TIME),
        ];
        let flags: u64 = flags.iter().map(|&(is, flag)| u64::from(is) * flag).sum();
        metadata[..SECOND].copy_from_slice(&flags.to_ne_bytes());
        metadata[SECOND..THIRD].copy_from_slice(&self.second());
        let launch_time = self.launch_time.unwrap_or(0);
        metadata[THIRD..].copy_from_slice(&launch_time.to_ne_bytes());
    }

    /// The word that a timestamp replaces.
    fn second(&self) -> [u8; 8] {
        let (start, offset) = self.checksum.unwrap_or((0, 0));
        let ([a, b], [c, d]) = (start.to_ne_bytes(), offset.to_ne_bytes());
        [a, b, c, d, 0, 0, 0, 0]
    }
}

/// The time at which a packet was sent; see [`TxRequest::timestamp`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TxTimestamp {
    /// The number given with the request.
    pub tag: u64,
    /// Nanoseconds: in zero-copy mode of the card's clock, in copy mode of `CLOCK_TAI` when the kernel was done
    /// with the packet, which it may have dropped.
    pub nanoseconds: u64,
}

/// The requests that a socket can send with its packets; see [`Socket::tx_support`](crate::Socket::tx_support).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TxSupport {
    /// [`TxRequest::checksum`].
    pub checksum: bool,
    /// [`TxRequest::timestamp`].
    pub timestamp: bool,
    /// [`TxRequest::launch_time`].
    pub launch_time: bool,
}

impl TxSupport {
    /// As a number, for another process.
    pub(crate) fn bits(self) -> u32 {
        let all = [self.checksum, self.timestamp, self.launch_time];
        (0..).zip(all).map(|(bit, is)| u32::from(is) << bit).sum()
    }

    /// The same from the number.
    pub(crate) fn from_bits(bits: u32) -> Self {
        let is = |bit: u32| bits >> bit & 1 == 1;
        Self {
            checksum: is(0),
            timestamp: is(1),
            launch_time: is(2),
        }
    }

    /// Whether all of a packet's requests can be sent.
    pub(crate) fn has(self, request: &TxRequest) -> bool {
        (self.checksum || request.checksum.is_none())
            && (self.timestamp || request.timestamp.is_none())
            && (self.launch_time || request.launch_time.is_none())
    }
}

/// The packets of a queue that were sent with requests.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    pub(crate) support: TxSupport,
    /// Chunks of packets whose time was requested, by their address.
    waiting: HashMap<u64, Waiting>,
    taken: VecDeque<TxTimestamp>,
    /// Timestamps that nobody took in time.
    lost: Counter,
}

/// A packet whose time was requested.
#[derive(Debug)]
struct Waiting {
    metadata: Extent,
    tag: u64,
    /// What the timestamp replaces. A card that wrote none leaves it.
    before: [u8; 8],
}

/// Most timestamps that wait to be taken.
// Miri takes minutes for as many.
const MOST_TAKEN: usize = if cfg!(miri) { 64 } else { 1 << 14 };

impl Requests {
    /// Notes a packet that is to be sent with metadata at this place in a chunk.
    pub(crate) fn sent(&mut self, chunk_addr: u64, metadata: Extent, request: &TxRequest) {
        if let Some(tag) = request.timestamp {
            let before = request.second();
            let waiting = Waiting {
                metadata,
                tag,
                before,
            };
            self.waiting.insert(chunk_addr, waiting);
        }
    }

    /// Whether a packet is on its way whose time was requested.
    pub(crate) fn are_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Reads the time of a packet whose chunk has come back.
    pub(crate) fn completed(&mut self, chunk: &Chunk) {
        let Some(Waiting {
            metadata,
            tag,
            before,
        }) = self.waiting.remove(&chunk.addr())
        else {
            return;
        };
        let bytes = &chunk.bytes(metadata)[SECOND..THIRD];
        let Ok(word) = <[u8; 8]>::try_from(bytes) else {
            return;
        };
        if word == before {
            self.lost += 1;
            return;
        }
        if self.taken.len() == MOST_TAKEN {
            self.taken.pop_front();
            self.lost += 1;
        }
        let nanoseconds = u64::from_ne_bytes(word);
        self.taken.push_back(TxTimestamp { tag, nanoseconds });
    }

    /// The oldest timestamp that was not taken yet.
    pub(crate) fn take(&mut self) -> Option<TxTimestamp> {
        self.taken.pop_front()
    }

    /// Timestamps that were not written, or not taken in time.
    pub(crate) fn lost(&self) -> &Counter {
        &self.lost
    }
}

const _: () = assert!(TX_METADATA_LEN as usize == THIRD + size_of::<u64>());

#[cfg(test)]
mod tests {
    use super::{Requests, TxRequest, TxSupport};
    use crate::umem::{Extent, Umem};

    #[test]
    fn metadata_is_laid_out_as_the_kernel_reads_it() {
        let mut bytes = [0xff; 24];
        let request = TxRequest::new().checksum(34, 6).timestamp(1);
        request.write(&mut bytes);
        let second = [34_u16.to_ne_bytes(), 6_u16.to_ne_bytes()].concat();
        assert_eq!(bytes[..8], 3_u64.to_ne_bytes());
        assert_eq!(bytes[8..12], second);
        assert_eq!(bytes[12..], [0; 12]);
        TxRequest::new().launch_time(9).write(&mut bytes);
        assert_eq!(bytes[..8], 4_u64.to_ne_bytes());
        assert_eq!(bytes[16..], 9_u64.to_ne_bytes());
        TxRequest::new().write(&mut bytes);
        assert_eq!(bytes, [0; 24]);
    }

    #[test]
    fn a_checksum_outside_its_packet_is_refused() {
        let request = TxRequest::new().checksum(34, 6);
        assert!(request.fits(42) && !request.fits(41));
        let most = TxRequest::new().checksum(u16::MAX, u16::MAX);
        assert!(!most.fits(4096) && TxRequest::new().fits(1));
    }

    #[test]
    fn each_request_needs_its_support() {
        let asks = [
            TxRequest::new().checksum(0, 0),
            TxRequest::new().timestamp(0),
            TxRequest::new().launch_time(0),
        ];
        let [checksum, timestamp, launch_time] = asks.map(|request| TxSupport {
            checksum: request.checksum.is_some(),
            timestamp: request.timestamp.is_some(),
            launch_time: request.launch_time.is_some(),
        });
        for (at, support) in [checksum, timestamp, launch_time].into_iter().enumerate() {
            let has = asks.map(|request| support.has(&request));
            assert_eq!(has, [0, 1, 2].map(|other| other == at));
            assert!(support.has(&TxRequest::new()));
        }
    }

    #[test]
    fn a_timestamp_is_read_once_and_one_that_nobody_wrote_is_lost() {
        let umem = Umem::on_heap(1, 2048);
        let mut requests = Requests::default();
        let mut chunk = umem.take_free().expect("a chunk");
        let metadata = Extent { offset: 8, len: 24 };
        let request = TxRequest::new().checksum(1, 2).timestamp(5);
        for time in [None, Some(77_u64)] {
            request.write(chunk.bytes_mut(metadata));
            requests.sent(chunk.addr(), metadata, &request);
            assert!(requests.are_waiting());
            if let Some(time) = time {
                chunk.bytes_mut(metadata)[8..16].copy_from_slice(&time.to_ne_bytes());
            }
            requests.completed(&chunk);
            requests.completed(&chunk);
            assert!(!requests.are_waiting());
            let taken = requests.take();
            assert_eq!(
                taken.map(|it| (it.tag, it.nanoseconds)),
                time.map(|time| (5, time))
            );
            assert_eq!((requests.take(), requests.lost().get()), (None, 1));
        }
    }

    #[test]
    fn timestamps_that_nobody_takes_do_not_pile_up() {
        let umem = Umem::on_heap(1, 2048);
        let mut requests = Requests::default();
        let mut chunk = umem.take_free().expect("a chunk");
        let metadata = Extent { offset: 0, len: 24 };
        let most = super::MOST_TAKEN as u64;
        for tag in 0..=most {
            requests.sent(chunk.addr(), metadata, &TxRequest::new().timestamp(tag));
            chunk.bytes_mut(metadata)[8..16].copy_from_slice(&1_u64.to_ne_bytes());
            requests.completed(&chunk);
        }
        assert_eq!(requests.lost().get(), 1);
        assert_eq!(requests.take().map(|it| it.tag), Some(1));
    }
}
