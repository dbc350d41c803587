//! CPU time of a thread or a process.
//!
//! Unsafe code is needed for getrusage(2), which rustix does not offer.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

/// CPU time of a thread or a process since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// In user mode.
    pub user: Duration,
    /// In the kernel.
    pub system: Duration,
}

impl CpuTime {
    /// The calling thread's, by getrusage(2).
    pub fn of_this_thread() -> io::Result<Self> {
        Self::of(libc::RUSAGE_THREAD)
    }

    /// All threads' of the calling process, by getrusage(2).
    pub fn of_this_process() -> io::Result<Self> {
        Self::of(libc::RUSAGE_SELF)
    }

    fn of(who: libc::c_int) -> io::Result<Self> {
        let mut usage = MaybeUninit::<libc::rusage>::uninit();
        // SAFETY: needed because rustix has no getrusage. Sound because the kernel writes one
        // `rusage` to the address given, which has room for it.
        if unsafe { libc::getrusage(who, usage.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: needed to read the structure. Sound because the call above succeeded, so the kernel
        // has written all of it.
        let usage = unsafe { usage.assume_init() };
        Ok(Self {
            user: duration(usage.ru_utime),
            system: duration(usage.ru_stime),
        })
    }
}

fn duration(time: libc::timeval) -> Duration {
    Duration::from_micros(time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64)
}
