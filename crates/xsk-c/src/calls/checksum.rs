//! Checksums of packets.
#![allow(unsafe_code)] // C calls these, with packets.

use crate::abi::{SUM_ABSENT, SUM_CORRECT, SUM_PARTIAL, SUM_UNKNOWN, SUM_WRONG};
use crate::fault::call;
use crate::memory;
use std::ffi::c_int;
use xsk::checksum::{self, Checksum};

const PACKET: &str = "the packet";

/// Checks the sums of a packet.
///
/// # Safety
///
/// The packet is NULL or of so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_xsk_checksum_check(packet: *const u8, len: u32) -> c_int {
    call(|| {
        // SAFETY: needed to read C's packet; the caller promises what the header asks for.
        let packet = unsafe { memory::array(packet, len, PACKET) }?;
        Ok(match checksum::check(packet) {
            None => SUM_UNKNOWN,
            Some(Checksum::Correct) => SUM_CORRECT,
            Some(Checksum::Partial) => SUM_PARTIAL,
            Some(Checksum::Absent) => SUM_ABSENT,
            Some(Checksum::Wrong) => SUM_WRONG,
        })
    })
}

/// Completes a partial sum.
///
/// # Safety
///
/// The packet is NULL or of so many bytes, which nobody else uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_xsk_checksum_complete(packet: *mut u8, len: u32) -> c_int {
    call(|| {
        // SAFETY: needed to write C's packet; the caller promises what the header asks for.
        let packet = unsafe { memory::bytes(packet, len, PACKET) }?;
        Ok(checksum::complete(packet).into())
    })
}

/// Writes the sums of a packet.
///
/// # Safety
///
/// The packet is NULL or of so many bytes, which nobody else uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_xsk_checksum_write(packet: *mut u8, len: u32) -> c_int {
    call(|| {
        // SAFETY: needed to write C's packet; the caller promises what the header asks for.
        let packet = unsafe { memory::bytes(packet, len, PACKET) }?;
        Ok(checksum::write(packet).into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_checked_completed_and_written() {
        // A datagram over IPv4 with the sum of its pseudo-header.
        let partial =
            *b"\x02\0\0\0\0\x01\x02\0\0\0\0\x02\x08\0\x45\0\0\x21\0\0\0\0\x40\x11\xf6\xc8\
            \xc0\0\x02\x02\xc0\0\x02\x01\x0f\xa0\0\x35\0\x0d\x84\x22hello";
        let mut packet = partial;
        // SAFETY: the packet is of so many bytes, at most.
        let check = |packet: &[u8], len| unsafe { weir_xsk_checksum_check(packet.as_ptr(), len) };
        let len = packet.len() as u32;
        assert_eq!(check(&packet, len), 2);
        assert_eq!(check(&packet, len - 1), 0);
        // SAFETY: as above.
        let complete =
            |packet: &mut [u8]| unsafe { weir_xsk_checksum_complete(packet.as_mut_ptr(), len) };
        assert_eq!((complete(&mut packet), check(&packet, len)), (1, 1));
        assert_eq!(complete(&mut packet), 0);
        let whole = packet;
        packet[46] ^= 1;
        assert_eq!(check(&packet, len), 4);
        packet[40..42].fill(0);
        assert_eq!(check(&packet, len), 3);
        // SAFETY: as above.
        let write =
            |packet: &mut [u8], len| unsafe { weir_xsk_checksum_write(packet.as_mut_ptr(), len) };
        packet = partial;
        assert_eq!(write(&mut packet, len - 1), 0);
        assert_eq!(packet, partial);
        assert_eq!(write(&mut packet, len), 1);
        assert_eq!(packet, whole);
    }
}
