//! Frames in arrays.
#![allow(unsafe_code)] // C calls these, with arrays.

use crate::abi;
use crate::fault::{Fault, Result, call};
use crate::memory;
use crate::object::{Opened, poison, with};
use crate::table::{FrameTable, move_frame};
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use xsk::{SendErrorKind, Socket};

const FRAMES: &str = "the array of frames";

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
    let mut table = opened.memory.frames();
    let mut kept = 0;
    let max = places.len() as u32;
    let mut places = places.iter_mut();
    // The number read counts descriptors that were rejected, too.
    opened
        .socket
        .receive_each(max, |packet| match places.next() {
            Some(place) => {
                let (frame, done) = packet.keep();
                place.write(table.insert(frame));
                kept += 1;
                done
            }
            None => packet.recycle(),
        });
    kept
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
                let Some(frame) = opened.socket.alloc() else {
                    break;
                };
                place.write(table.insert(frame));
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
    // SAFETY: the caller promises what the header asks for.
    unsafe { each(socket, frames, count, Opened::check_sends, send) }
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
    // SAFETY: the caller promises what the header asks for.
    unsafe { each(socket, frames, count, |_| Ok(()), free) }
}

/// Does something with each frame until one cannot be taken; returns the number of those before, or,
/// where it is the first, the error.
///
/// # Safety
///
/// The array is NULL or as the header says.
#[inline(always)]
unsafe fn each(
    socket: *mut c_void,
    frames: *const abi::Frame,
    count: u32,
    check: impl Fn(&Opened) -> Result<()>,
    take: impl Fn(&mut Socket, &mut FrameTable, &abi::Frame) -> Result<bool>,
) -> c_int {
    call(|| {
        // SAFETY: needed to read C's array; the caller promises what the header asks for.
        let frames = unsafe { memory::array(frames, count, FRAMES) }?;
        with(socket, |opened| {
            check(opened)?;
            let mut table = opened.memory.frames();
            let mut taken = 0;
            for shown in frames {
                match take(&mut opened.socket, &mut table, shown) {
                    Ok(true) => taken += 1,
                    Err(fault) if taken == 0 => return Err(fault),
                    Ok(false) | Err(_) => break,
                }
            }
            Ok(taken)
        })
    })
}

/// Whether the frame was sent; it is the program's still when TX is full.
#[inline(always)]
fn send(socket: &mut Socket, table: &mut FrameTable, shown: &abi::Frame) -> Result<bool> {
    let mut frame = table.take(shown)?;
    if let Err(fault) = move_frame(&mut frame, shown) {
        table.put_back(shown, frame);
        return Err(fault);
    }
    match socket.send(frame) {
        Ok(()) => Ok(true),
        Err(refused) => {
            table.put_back(shown, refused.packet);
            match refused.kind {
                SendErrorKind::Full => Ok(false),
                kind => Err(Fault::from(kind)),
            }
        }
    }
}

#[inline(always)]
fn free(socket: &mut Socket, table: &mut FrameTable, shown: &abi::Frame) -> Result<bool> {
    let mut frame = table.take(shown)?;
    poison(&mut frame);
    socket.free_frames([frame]);
    Ok(true)
}
