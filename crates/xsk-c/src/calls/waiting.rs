//! Waiting for events.
#![allow(unsafe_code)] // C calls these, with pointers.

use crate::abi::{RECEIVE, ROOM};
use crate::fault::{Fault, Result, call};
use crate::memory::Out;
use crate::object::{shared, with};
use std::ffi::{c_int, c_void};
use std::time::Duration;
use xsk::{Interest, Ready};

fn interest(events: u32) -> Result<Interest> {
    const BOTH: u32 = RECEIVE | ROOM;
    match events {
        RECEIVE => Ok(Interest::Receive),
        ROOM => Ok(Interest::Send),
        BOTH => Ok(Interest::Both),
        _ => Err(Fault::invalid(format!(
            "events {events:#x} are not possible: use WEIR_XSK_RECEIVE, WEIR_XSK_ROOM or both"
        ))),
    }
}

fn events(ready: Ready) -> u32 {
    let receive = if ready.receive { RECEIVE } else { 0 };
    let room = if ready.send { ROOM } else { 0 };
    receive | room
}

/// Waits for events.
#[unsafe(no_mangle)]
pub extern "C" fn weir_xsk_wait(socket: *mut c_void, wanted: u32, timeout_ms: u32) -> c_int {
    call(|| {
        let interest = interest(wanted)?;
        let timeout = Duration::from_millis(timeout_ms.into());
        with(socket, |opened| {
            Ok(events(opened.socket.wait_for(interest, timeout)?))
        })
    })
}

/// Gets a socket ready for the program's own sleep.
///
/// # Safety
///
/// The pointer to the time is NULL or as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_xsk_prepare(
    socket: *mut c_void,
    wanted: u32,
    timeout_ms: *mut c_int,
) -> c_int {
    call(|| {
        let interest = interest(wanted)?;
        let ready = with(socket, |opened| {
            Ok(opened.socket.prepare_to_wait(interest)?)
        })?;
        // NULL is no error here.
        // SAFETY: needed to write C's variable; the caller promises what the header asks for.
        if let Ok(out) = unsafe { Out::new(timeout_ms, "the time") } {
            out.set(milliseconds(ready.sleep_at_most));
        }
        Ok(events(ready))
    })
}

/// For poll(2): rounded up, since 0 would not sleep; -1 for ever.
fn milliseconds(time: Option<Duration>) -> c_int {
    time.map_or(-1, |time| {
        let millis = time.as_micros().div_ceil(1000);
        c_int::try_from(millis).unwrap_or(c_int::MAX)
    })
}

/// The descriptor to wait for.
#[unsafe(no_mangle)]
pub extern "C" fn weir_xsk_fd(socket: *mut c_void) -> c_int {
    call(|| Ok(shared(socket)?.descriptor as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_is_rounded_up() {
        for (micros, expected) in [(0, 0), (1, 1), (1000, 1), (1001, 2), (u64::MAX, c_int::MAX)] {
            let time = Some(Duration::from_micros(micros));
            assert_eq!(milliseconds(time), expected, "{micros} µs");
        }
        assert_eq!(milliseconds(None), -1);
    }

    #[test]
    fn events_and_interests_have_the_same_bits() {
        for wanted in [RECEIVE, ROOM, RECEIVE | ROOM] {
            assert!(interest(wanted).is_ok());
        }
        for wanted in [0, 4, u32::MAX] {
            assert!(interest(wanted).is_err(), "{wanted}");
        }
    }
}
