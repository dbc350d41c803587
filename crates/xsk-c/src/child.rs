//! Children of the calling program.
#![allow(unsafe_code)] // The C library keeps the handler.

use crate::fault::{Fault, Result};
use std::io::Error;
use std::sync::{Mutex, PoisonError};

/// Has each child of fork(2) run a handler first, which only stores to atomics: a child of a program with threads may
/// do little else.
pub(crate) fn once_forked(handler: extern "C" fn()) -> Result<()> {
    static DONE: Mutex<bool> = Mutex::new(false);
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    if *done {
        return Ok(());
    }
    // SAFETY: needed to register with the C library. The handler is safe, and stays while this library is loaded.
    let code = unsafe { libc::pthread_atfork(None, None, Some(handler)) };
    if code != 0 {
        let error = Error::from_raw_os_error(code);
        return Err(Fault::new(code, format!("pthread_atfork: {error}")));
    }
    *done = true;
    Ok(())
}
