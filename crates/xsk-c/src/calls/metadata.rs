//! Metadata of packets: hints of the driver with those received, requests with those sent.
#![allow(unsafe_code)] // C calls these, with arrays and structures.

use super::fragments::send_packet;
use super::frames::{FRAMES, keep_each};
use crate::abi::{self, HINT_HASH, HINT_TIMESTAMP, HINT_VLAN};
use crate::abi::{TX_CHECKSUM, TX_LAUNCH_TIME, TX_TIMESTAMP};
use crate::fault::{Fault, Result, call};
use crate::memory::{self, Out};
use crate::object::{Opened, shared, with};
use std::ffi::{c_int, c_void};
use xsk::{RxHints, TxRequest, TxSupport};

/// Receives packets as frames, with their hints.
///
/// # Safety
///
/// The arrays are NULL or as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_xsk_recv_with_hints(
    socket: *mut c_void,
    frames: *mut abi::Frame,
    hints: *mut abi::RxHints,
    max: u32,
) -> c_int {
    call(|| {
        // SAFETY: needed to write C's array; the caller promises what the header asks for.
        let frames = unsafe { memory::places(frames, max, FRAMES) }?;
        // SAFETY: as above.
        let hints = unsafe { memory::places(hints, max, "the array of hints") }?;
        with(socket, |opened| {
            opened.check_receives()?;
            Ok(keep_each(opened, frames, |at, packet| {
                hints[at].write(shown(&packet.hints()));
            }))
        })
    })
}

fn shown(hints: &RxHints) -> abi::RxHints {
    let mut shown = abi::RxHints::default();
    if let Some(timestamp) = hints.timestamp {
        shown.flags |= HINT_TIMESTAMP;
        shown.timestamp = timestamp;
    }
    if let Some(hash) = hints.hash {
        shown.flags |= HINT_HASH;
        (shown.hash, shown.hash_kind) = (hash.value, hash.kind);
    }
    if let Some(tag) = hints.vlan_tag {
        shown.flags |= HINT_VLAN;
        (shown.vlan_protocol, shown.vlan_tci) = (tag.protocol, tag.tci);
    }
    shown
}

/// Whether packets have hints.
#[unsafe(no_mangle)]
pub extern "C" fn weir_xsk_has_rx_hints(socket: *mut c_void) -> c_int {
    call(|| Ok(shared(socket)?.has_rx_hints.into()))
}

/// Sends frames as one packet, with a request.
///
/// # Safety
///
/// The array and the request are NULL or as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_xsk_send_with(
    socket: *mut c_void,
    frames: *const abi::Frame,
    count: u32,
    request: *const abi::TxRequest,
) -> c_int {
    call(|| {
        if request.is_null() {
            return Err(Fault::new(libc::EFAULT, "the request is NULL"));
        }
        // SAFETY: needed to read C's structure; the caller promises what the header asks for.
        let request = unsafe { memory::read(request) }?;
        // SAFETY: as above, for its array.
        let frames = unsafe { memory::array(frames, count, FRAMES) }?;
        let requested = requested(&request)?;
        with(socket, |opened| {
            check_support(opened, request.flags)?;
            send_packet(opened, frames, requested)
        })
    })
}

fn requested(request: &abi::TxRequest) -> Result<TxRequest> {
    let flags = request.flags;
    if flags & !(TX_CHECKSUM | TX_TIMESTAMP | TX_LAUNCH_TIME) != 0 || request.reserved != 0 {
        return Err(Fault::invalid(
            "unknown flags of a request: use WEIR_XSK_TX_CHECKSUM, _TX_TIMESTAMP and _TX_LAUNCH_TIME, and set `reserved` to 0",
        ));
    }
    let mut requested = TxRequest::new();
    if flags & TX_CHECKSUM != 0 {
        requested = requested.checksum(request.checksum_start, request.checksum_offset);
    }
    if flags & TX_TIMESTAMP != 0 {
        requested = requested.timestamp(request.tag);
    }
    if flags & TX_LAUNCH_TIME != 0 {
        requested = requested.launch_time(request.launch_time);
    }
    Ok(requested)
}

/// Refuses requests that the socket does not have, by their names.
fn check_support(opened: &Opened, flags: u32) -> Result<()> {
    let missing = flags & !supported(opened.socket.tx_support());
    if missing == 0 {
        return Ok(());
    }
    let text = if opened.memory.umem.tx_metadata() {
        let names = [
            (TX_CHECKSUM, "WEIR_XSK_TX_CHECKSUM"),
            (TX_TIMESTAMP, "WEIR_XSK_TX_TIMESTAMP"),
            (TX_LAUNCH_TIME, "WEIR_XSK_TX_LAUNCH_TIME"),
        ];
        let missing = names.into_iter().filter(|(flag, _)| missing & flag != 0);
        let missing: Vec<&str> = missing.map(|(_, name)| name).collect();
        format!(
            "the device does not do {}: request what weir_xsk_tx_support() returns",
            missing.join(" and ")
        )
    } else {
        "the UMEM has no room for requests in front of packets: make it with WEIR_XSK_TX_METADATA"
            .into()
    };
    Err(Fault::new(libc::EOPNOTSUPP, text))
}

/// The requests that a socket has, as flags.
#[unsafe(no_mangle)]
pub extern "C" fn weir_xsk_tx_support(socket: *mut c_void) -> c_int {
    call(|| Ok(supported(shared(socket)?.tx_support)))
}

fn supported(support: TxSupport) -> u32 {
    let flags = [
        (support.checksum, TX_CHECKSUM),
        (support.timestamp, TX_TIMESTAMP),
        (support.launch_time, TX_LAUNCH_TIME),
    ];
    flags.iter().map(|&(is, flag)| u32::from(is) * flag).sum()
}

/// Takes the oldest time at which a packet was sent.
///
/// # Safety
///
/// The pointer to the time is NULL or as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_xsk_take_timestamp(
    socket: *mut c_void,
    timestamp: *mut abi::TxTimestamp,
) -> c_int {
    call(|| {
        // SAFETY: needed to write C's structure; the caller promises what the header asks for.
        let out = unsafe { Out::new(timestamp, "the place for the timestamp") }?;
        with(socket, |opened| {
            let Some(taken) = opened.socket.take_tx_timestamp() else {
                return Ok(0);
            };
            out.set(abi::TxTimestamp {
                tag: taken.tag,
                nanoseconds: taken.nanoseconds,
            });
            Ok(1)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_has_its_flag_and_its_fields() {
        let of = |flags| abi::TxRequest {
            size: 32,
            flags,
            checksum_start: 34,
            checksum_offset: 6,
            reserved: 0,
            tag: 7,
            launch_time: 9,
        };
        let none = TxRequest::new();
        for (flags, expected) in [
            (0, none),
            (1, none.checksum(34, 6)),
            (2, none.timestamp(7)),
            (4, none.launch_time(9)),
            (7, none.checksum(34, 6).timestamp(7).launch_time(9)),
        ] {
            assert_eq!(requested(&of(flags)).ok(), Some(expected));
        }
        for flags in [8, u32::MAX, 1 << 31] {
            assert_eq!(
                requested(&of(flags)).map_err(|it| it.code),
                Err(libc::EINVAL)
            );
        }
        let reserved = abi::TxRequest {
            reserved: 1,
            ..of(1)
        };
        assert!(requested(&reserved).is_err());
    }
}
