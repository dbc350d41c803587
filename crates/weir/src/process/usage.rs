//! What the kernel says that a thread has used of its CPU.
//!
//! This file lifts the crate's ban on unsafe code for one system call that rustix does
//! not offer.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

/// CPU time of one thread since it started.
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
        let mut usage = MaybeUninit::<libc::rusage>::uninit();
        // SAFETY: needed because rustix has no getrusage. The kernel writes one `rusage`
        // to the address given, which has room for it.
        if unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call above succeeded, so the kernel has written all of it.
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
