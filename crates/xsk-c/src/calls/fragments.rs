//! Packets of several chunks, in arrays of frames.
#![allow(unsafe_code)] // C calls these, with arrays.

use super::frames::FRAMES;
use crate::abi;
use crate::fault::{Fault, Result, call};
use crate::memory;
use crate::object::{Opened, with};
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use xsk::{Fragments, MAX_FRAGMENTS, SendErrorKind, TxRequest};

/// `WEIR_XSK_MAX_FRAGMENTS`.
const MOST: u32 = MAX_FRAGMENTS as u32;

/// Receives packets, each as the frames that its bytes are in.
///
/// # Safety
///
/// The arrays are NULL or as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_xsk_recv_fragments(
    socket: *mut c_void,
    frames: *mut abi::Frame,
    room: u32,
    counts: *mut u32,
    max: u32,
) -> c_int {
    call(|| {
        // SAFETY: needed to write C's array; the caller promises what the header asks for.
        let frames = unsafe { memory::places(frames, room, FRAMES) }?;
        // SAFETY: as above.
        let counts = unsafe { memory::places(counts, max, "the array of counts") }?;
        if room < MOST {
            return Err(Fault::invalid(format!(
                "an array of {room} frames may be too short for a packet: WEIR_XSK_MAX_FRAGMENTS, {MOST}, is the least"
            )));
        }
        with(socket, |opened| {
            opened.check_receives()?;
            Ok(receive(opened, frames, counts))
        })
    })
}

fn receive(
    opened: &mut Opened,
    places: &mut [MaybeUninit<abi::Frame>],
    counts: &mut [MaybeUninit<u32>],
) -> u32 {
    let mut table = opened.memory.frames();
    // The last packet of a batch may have more frames than were asked for, as many as a packet has.
    let room = places.len() as u32 - (MOST - 1);
    let mut batch = opened.socket.recv(room.min(counts.len() as u32));
    let mut places = places.iter_mut();
    let mut received = 0;
    for count in counts {
        let Some(packet) = batch.next_fragments() else {
            break;
        };
        count.write(packet.frames().len() as u32);
        for (mut frame, place) in packet.into_frames().zip(places.by_ref()) {
            let (data, len) = (frame.as_mut_ptr(), frame.len() as u32);
            place.write(table.insert(frame, data, len));
        }
        received += 1;
    }
    received
}

/// Sends frames as one packet.
///
/// # Safety
///
/// The array is NULL or as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_xsk_send_fragments(
    socket: *mut c_void,
    frames: *const abi::Frame,
    count: u32,
) -> c_int {
    call(|| {
        // SAFETY: needed to read C's array; the caller promises what the header asks for.
        let frames = unsafe { memory::array(frames, count, FRAMES) }?;
        with(socket, |opened| {
            send_packet(opened, frames, TxRequest::new())
        })
    })
}

/// Sends all frames, or none, which are the program's still.
pub(super) fn send_packet(
    opened: &mut Opened,
    frames: &[abi::Frame],
    request: TxRequest,
) -> Result<u32> {
    opened.check_sends()?;
    let count = frames.len() as u32;
    if count > MOST {
        return Err(Fault::new(
            libc::EMSGSIZE,
            format!("a packet of {count} frames: it has at most {MOST}, WEIR_XSK_MAX_FRAGMENTS"),
        ));
    }
    let Opened { socket, memory, .. } = opened;
    let mut table = memory.frames();
    let mut packet = Fragments::new();
    packet.set_request(request);
    for shown in frames {
        let taken = table.take_moved(shown).map(|frame| packet.push(frame));
        if let Err(fault) = taken {
            table.put_back(frames, packet.into_frames());
            return Err(fault);
        }
    }
    match socket.send_fragments(packet) {
        Ok(()) => Ok(count),
        Err(refused) => {
            table.put_back(frames, refused.packet.into_frames());
            match refused.kind {
                SendErrorKind::Full => Ok(0),
                kind => Err(Fault::from(kind)),
            }
        }
    }
}
