//! Frames in arrays.
#![allow(unsafe_code)] // C calls these, with arrays.

use crate::abi;
use crate::fault::{Fault, Result, call};
use crate::memory;
use crate::object::{Opened, poison, with};
use crate::table::FrameTable;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::slice;
use xsk::{Received, SendErrorKind, Socket};

pub(super) const FRAMES: &str = "the array of frames";

/// Receives packets as frames.
///
/// # Safety
///
/// The array is NULL or as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_xsk_recv(
    socket: *mut c_void,
    frames: *mut abi::Frame,
    max: u32,
) -> c_int {
    call(|| {
        // SAFETY: needed to write C's array; the caller promises what the header asks for.
        let places = unsafe { memory::places(frames, max, FRAMES) }?;
        with(socket, |opened| {
            opened.check_receives()?;
            Ok(receive(opened, places))
        })
    })
}

fn receive(opened: &mut Opened, places: &mut [MaybeUninit<abi::Frame>]) -> u32 {
    if opened.memory.umem.unaligned() {
        return keep_each(opened, places, |_, _| {});
    }
    let mut table = opened.memory.frames();
    let mut batch = opened.socket.recv(places.len() as u32);
    let mut received = 0;
    for place in places {
        let Some(mut packet) = batch.next_packet() else {
            break;
        };
        let (data, len) = (packet.as_mut_ptr(), packet.len() as u32);
        place.write(table.insert(packet.keep(), data, len));
        received += 1;
    }
    received
}

/// Receives packets in chunks of any kind, after a look at each.
pub(super) fn keep_each(
    opened: &mut Opened,
    places: &mut [MaybeUninit<abi::Frame>],
    mut look: impl FnMut(usize, &Received<'_>),
) -> u32 {
    let mut table = opened.memory.frames();
    let mut received = 0;
    opened
        .socket
        .receive_each(places.len() as u32, |mut packet| {
            look(received, &packet);
            let (data, len) = (packet.as_mut_ptr(), packet.len() as u32);
            let (frame, done) = packet.keep();
            places[received].write(table.insert(frame, data, len));
            received += 1;
            done
        });
    received as u32
}

/// Allocates frames.
///
/// # Safety
///
/// The array is NULL or as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_xsk_alloc(
    socket: *mut c_void,
    frames: *mut abi::Frame,
    count: u32,
) -> c_int {
    call(|| {
        // SAFETY: needed to write C's array; the caller promises what the header asks for.
        let places = unsafe { memory::places(frames, count, FRAMES) }?;
        with(socket, |opened| {
            let mut table = opened.memory.frames();
            let mut allocated = 0;
            for place in places {
                let Some(mut frame) = opened.socket.alloc() else {
                    break;
                };
                let data = frame.as_mut_ptr();
                place.write(table.insert(frame, data, 0));
                allocated += 1;
            }
            Ok(allocated)
        })
    })
}

/// Sends frames.
///
/// # Safety
///
/// The array is NULL or as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_xsk_send(
    socket: *mut c_void,
    frames: *const abi::Frame,
    count: u32,
) -> c_int {
    call(|| {
        // SAFETY: needed to read C's array; the caller promises what the header asks for.
        let frames = unsafe { memory::array(frames, count, FRAMES) }?;
        with(socket, |opened| {
            opened.check_sends()?;
            send(opened, frames)
        })
    })
}

/// Sends frames until one is refused; returns the number of those before, or, where it is the first,
/// the error.
fn send(opened: &mut Opened, frames: &[abi::Frame]) -> Result<u32> {
    let Opened { socket, memory, .. } = opened;
    let mut table = memory.frames();
    for (sent, shown) in (0..).zip(frames) {
        match send_one(socket, &mut table, shown) {
            Ok(true) => {}
            Ok(false) => return Ok(sent),
            Err(fault) => return before(sent, fault),
        }
    }
    Ok(frames.len() as u32)
}

fn before(count: u32, fault: Fault) -> Result<u32> {
    if count == 0 { Err(fault) } else { Ok(count) }
}

/// Whether the frame was sent; it is the program's still when TX is full.
#[inline(always)]
fn send_one(socket: &mut Socket, table: &mut FrameTable, shown: &abi::Frame) -> Result<bool> {
    match socket.send(table.take_moved(shown)?) {
        Ok(()) => Ok(true),
        Err(refused) => {
            table.put_back(slice::from_ref(shown), [refused.packet]);
            match refused.kind {
                SendErrorKind::Full => Ok(false),
                kind => Err(Fault::from(kind)),
            }
        }
    }
}

/// Frees frames.
///
/// # Safety
///
/// The array is NULL or as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_xsk_free(
    socket: *mut c_void,
    frames: *const abi::Frame,
    count: u32,
) -> c_int {
    call(|| {
        // SAFETY: needed to read C's array; the caller promises what the header asks for.
        let frames = unsafe { memory::array(frames, count, FRAMES) }?;
        with(socket, |opened| free(opened, frames))
    })
}

/// Frees frames until one is refused, as [`send`] does.
fn free(opened: &mut Opened, frames: &[abi::Frame]) -> Result<u32> {
    let Opened { socket, memory, .. } = opened;
    let mut table = memory.frames();
    let mut freed = 0;
    let ours = frames.iter().map_while(|shown| {
        let mut frame = table.take(shown)?;
        poison(&mut frame);
        freed += 1;
        Some(frame)
    });
    socket.free_frames(ours);
    match frames.get(freed as usize) {
        Some(shown) => before(freed, table.refusal(shown)),
        None => Ok(freed),
    }
}
