//! Sockets: opening, asking, flushing, closing.
#![allow(unsafe_code)] // C calls these, with pointers.

use super::rules;
use crate::abi::{NO_NEED_WAKEUP, NONE, OWN_MAP, OWN_PROGRAM, RX_HINTS, SocketOptions, Statistics};
use crate::descriptor::duplicate;
use crate::fault::{Fault, Result, call};
use crate::memory::{self, Out};
use crate::object::statistics as statistics_of;
use crate::object::{UMEMS, add_socket, remove_socket, shared, with};
use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::time::Duration;
use xsk::{Mode, ModeObtained, Program, Socket, SocketBuilder, Wait};

/// Opens a socket.
///
/// # Safety
///
/// The pointers are NULL or as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_xsk_open(
    umem: *mut c_void,
    device: *const c_char,
    queue: u32,
    options: *const SocketOptions,
    socket: *mut *mut c_void,
) -> c_int {
    call(|| {
        // SAFETY: needed to read C's text; the caller promises what the header asks for.
        let device = unsafe { memory::text(device, "the name of the device") }?;
        // SAFETY: as above, for its structure.
        let options = unsafe { memory::read(options) }?;
        // SAFETY: as above, for its variable.
        let out = unsafe { Out::new(socket, "the place for the socket") }?;
        let memory = UMEMS.get(umem)?;
        let mut builder = configure(Socket::builder(&memory.umem, device, queue), &options)?;
        if !options.rules.is_null() || options.rule_count != 0 {
            // SAFETY: as above, for its array.
            let rules = unsafe { memory::array(options.rules, options.rule_count, "`rules`") }?;
            builder = builder.filter(rules::filter(rules)?);
        }
        let (receives, sends) = (options.rx_ring != NONE, options.tx_ring != NONE);
        out.set(add_socket(builder.open()?, memory, receives, sends)?);
        Ok(0)
    })
}

fn configure(builder: SocketBuilder, options: &SocketOptions) -> Result<SocketBuilder> {
    const KNOWN: u32 = NO_NEED_WAKEUP | OWN_PROGRAM | OWN_MAP | RX_HINTS;
    if options.flags & !KNOWN != 0 || options.reserved != 0 {
        return Err(Fault::invalid(
            "unknown flags of a socket: use WEIR_XSK_NO_NEED_WAKEUP, _OWN_PROGRAM, _OWN_MAP and _RX_HINTS, and set `reserved` to 0",
        ));
    }
    let builder = builder
        .mode(mode(options.mode)?)
        .wait(waiting(options)?)
        .need_wakeup(options.flags & NO_NEED_WAKEUP == 0)
        .rx_hints(options.flags & RX_HINTS != 0);
    let builder = set(builder, options.rx_ring, SocketBuilder::rx_ring);
    let builder = set(builder, options.tx_ring, SocketBuilder::tx_ring);
    let builder = set(builder, options.fill_ring, SocketBuilder::fill_ring);
    let builder = set(
        builder,
        options.completion_ring,
        SocketBuilder::completion_ring,
    );
    let builder = set(builder, options.fill_chunks, SocketBuilder::fill_chunks);
    redirect(builder, options)
}

/// Selects the program that redirects packets to the socket, or the map in which programs find it.
fn redirect(builder: SocketBuilder, options: &SocketOptions) -> Result<SocketBuilder> {
    let own = options.flags & (OWN_PROGRAM | OWN_MAP);
    check_redirect(own, options)?;
    let map = || duplicate(options.map_fd, "`map_fd`");
    match own {
        OWN_PROGRAM => Ok(builder.attach(duplicate(options.program_fd, "`program_fd`")?, map()?)),
        OWN_MAP => Ok(builder.map(map()?)),
        _ if options.program_of.is_null() => Ok(builder),
        _ => Ok(builder.program(&program(options.program_of)?)),
    }
}

/// Refuses more than one origin of the program, and descriptors that no flag is for.
fn check_redirect(own: u32, options: &SocketOptions) -> Result<()> {
    if own == OWN_PROGRAM | OWN_MAP || own != 0 && !options.program_of.is_null() {
        return Err(Fault::invalid(
            "more than one XDP program: use one of WEIR_XSK_OWN_PROGRAM, WEIR_XSK_OWN_MAP and `program_of`",
        ));
    }
    if own & OWN_PROGRAM == 0 && options.program_fd != 0 {
        return Err(Fault::invalid(
            "`program_fd` without its flag: set WEIR_XSK_OWN_PROGRAM, or the field to 0",
        ));
    }
    if own == 0 && options.map_fd != 0 {
        return Err(Fault::invalid(
            "`map_fd` without its flag: set WEIR_XSK_OWN_PROGRAM or WEIR_XSK_OWN_MAP, or the field to 0",
        ));
    }
    Ok(())
}

/// Sets a number, of which 0 means the default.
fn set(
    builder: SocketBuilder,
    number: u32,
    set: impl FnOnce(SocketBuilder, u32) -> SocketBuilder,
) -> SocketBuilder {
    match number {
        0 => builder,
        NONE => set(builder, 0),
        number => set(builder, number),
    }
}

fn mode(mode: u32) -> Result<Mode> {
    match mode {
        0 => Ok(Mode::Auto),
        1 => Ok(Mode::Skb),
        2 => Ok(Mode::Driver),
        3 => Ok(Mode::ZeroCopy),
        _ => Err(Fault::invalid(format!(
            "mode {mode} is not possible: use WEIR_XSK_AUTO, _SKB, _DRV or _ZC"
        ))),
    }
}

fn waiting(options: &SocketOptions) -> Result<Wait> {
    match (options.waiting, options.max_delay_us) {
        (0, 0) => Ok(Wait::adaptive()),
        (0, delay) => Ok(Wait::Adaptive {
            max_delay: Duration::from_micros(delay.into()),
        }),
        (1, _) => Ok(Wait::Poll),
        (2, _) => Ok(Wait::Spin),
        (3, _) => Ok(Wait::BusyPoll),
        (other, _) => Err(Fault::invalid(format!(
            "waiting {other} is not possible: use WEIR_XSK_ADAPTIVE, _POLL, _SPIN or _BUSY_POLL"
        ))),
    }
}

fn program(of: *mut c_void) -> Result<Program> {
    shared(of)?.program.clone().ok_or_else(|| {
        Fault::invalid("`program_of` is a socket that only sends, and so has no XDP program")
    })
}

/// Closes a socket.
#[unsafe(no_mangle)]
pub extern "C" fn weir_xsk_close(socket: *mut c_void) -> c_int {
    call(|| {
        let (opened, asked) = remove_socket(socket)?;
        // First, so that the program goes with the socket, and not behind it.
        drop(asked);
        drop(opened);
        Ok(0)
    })
}

/// The mode obtained.
#[unsafe(no_mangle)]
pub extern "C" fn weir_xsk_mode(socket: *mut c_void) -> c_int {
    call(|| obtained(shared(socket)?.mode))
}

fn obtained(mode: ModeObtained) -> Result<u32> {
    match mode {
        ModeObtained::Skb => Ok(1),
        ModeObtained::Driver => Ok(2),
        ModeObtained::ZeroCopy => Ok(3),
        ModeObtained::Copy => Ok(4),
        other => Err(Fault::not_recoverable(format!(
            "mode {other} has no number"
        ))),
    }
}

/// The NAPI instance that a socket busy polls.
#[unsafe(no_mangle)]
pub extern "C" fn weir_xsk_napi_id(socket: *mut c_void) -> c_int {
    call(|| Ok(shared(socket)?.counters.napi_id()?.unwrap_or(0)))
}

/// The fault of a socket's device or program.
#[unsafe(no_mangle)]
pub extern "C" fn weir_xsk_fault(socket: *mut c_void) -> c_int {
    call(|| with(socket, |opened| fault_number(opened.socket.fault())))
}

fn fault_number(fault: Option<xsk::Fault>) -> Result<u32> {
    match fault {
        None => Ok(0),
        Some(xsk::Fault::DeviceDown) => Ok(1),
        Some(xsk::Fault::DeviceGone) => Ok(2),
        Some(xsk::Fault::ProgramDetached) => Ok(3),
        Some(xsk::Fault::ProgramReplaced) => Ok(4),
        Some(other) => Err(Fault::not_recoverable(format!(
            "the fault has no number: {other}"
        ))),
    }
}

/// Writes the text of a refusal.
///
/// # Safety
///
/// The pointer to the text is NULL or as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_xsk_refusal(
    socket: *mut c_void,
    index: u32,
    text: *mut c_char,
    size: usize,
) -> c_int {
    call(|| {
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        let room = match size {
            0 => &mut [],
            // SAFETY: needed to write C's text; the caller promises what the header asks for.
            _ => unsafe { memory::places(text.cast::<u8>(), size, "the place for the text") }?,
        };
        let asked = shared(socket)?;
        let refusal = asked.refusals.get(index as usize);
        let refusal =
            refusal.ok_or_else(|| Fault::new(libc::ENOENT, "there are no more refusals"))?;
        Ok(copy(refusal, room))
    })
}

/// Writes as much of a text as there is room for, and a 0; returns the length of all of it.
fn copy(text: &str, room: &mut [MaybeUninit<u8>]) -> u32 {
    let fits = room.len().saturating_sub(1);
    let bytes = text.bytes().take(fits).chain(std::iter::once(0));
    for (place, byte) in room.iter_mut().zip(bytes) {
        place.write(byte);
    }
    text.len() as u32
}

/// Hands the packets in TX to the kernel.
#[unsafe(no_mangle)]
pub extern "C" fn weir_xsk_flush(socket: *mut c_void) -> c_int {
    call(|| {
        with(socket, |opened| {
            opened.flush()?;
            Ok(0)
        })
    })
}

/// Takes back the chunks of sent packets.
#[unsafe(no_mangle)]
pub extern "C" fn weir_xsk_reclaim(socket: *mut c_void) -> c_int {
    call(|| with(socket, |opened| Ok(opened.socket.reclaim())))
}

/// Looks after the rings for the inlined functions: see [`xsk::Socket::look_after_raw`].
#[unsafe(no_mangle)]
pub extern "C" fn weir_xsk_look_after(socket: *mut c_void, want: u32) -> c_int {
    call(|| {
        with(socket, |opened| {
            opened.socket.look_after_raw(want);
            Ok(0)
        })
    })
}

/// The counters of a socket.
///
/// # Safety
///
/// The pointer to the counters is NULL or as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_xsk_statistics(
    socket: *mut c_void,
    statistics: *mut Statistics,
) -> c_int {
    call(|| {
        let counted = counted(&statistics_of(socket)?);
        // SAFETY: needed to write C's structure; the caller promises what the header asks for.
        unsafe { memory::write(statistics, &counted) }?;
        Ok(0)
    })
}

fn counted(counts: &xsk::Statistics) -> Statistics {
    Statistics {
        size: 0,
        reserved: 0,
        received: counts.received,
        sent: counts.sent,
        completed: counts.completed,
        invalid_descs: counts.invalid_descs,
        invalid_indices: counts.invalid_indices,
        wakeups: counts.wakeups,
        send_drops: counts.send_drops,
        sleeps: counts.sleeps,
        rx_dropped: counts.rx_dropped,
        rx_ring_full: counts.rx_ring_full,
        fill_ring_empty: counts.fill_ring_empty,
        tx_invalid_descs: counts.tx_invalid_descs,
        tx_ring_empty: counts.tx_ring_empty,
        fragmented: counts.fragmented,
        lost_timestamps: counts.lost_timestamps,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the order of `enum weir_xsk_fault`.
    #[test]
    fn each_fault_has_its_number() {
        let faults = [
            None,
            Some(xsk::Fault::DeviceDown),
            Some(xsk::Fault::DeviceGone),
            Some(xsk::Fault::ProgramDetached),
            Some(xsk::Fault::ProgramReplaced),
        ];
        for (number, fault) in (0..).zip(faults) {
            assert_eq!(fault_number(fault).ok(), Some(number));
        }
    }

    #[test]
    fn a_text_is_cut_as_snprintf_does() {
        for (room, expected) in [(0, ""), (1, "\0"), (3, "re\0"), (8, "refused\0")] {
            let mut bytes = vec![MaybeUninit::new(b'-'); room];
            assert_eq!(copy("refused", &mut bytes), 7);
            // SAFETY: all bytes were set above.
            let written: Vec<u8> = bytes
                .iter()
                .map(|byte| unsafe { byte.assume_init() })
                .collect();
            assert_eq!(written, expected.as_bytes());
        }
    }
}
