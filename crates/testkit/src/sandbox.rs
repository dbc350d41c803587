//! Limits of the calling thread, and of the processes that it starts, as container runtimes and service managers
//! set them.
//!
//! Unsafe code is needed because rustix has no seccomp(2).
#![allow(unsafe_code)]

use std::io;
use std::mem::offset_of;

use rustix::thread::{
    CapabilitySet, capabilities, remove_capability_from_bounding_set, set_capabilities,
};

/// What a seccomp filter refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// A system call, by its number.
    Call(libc::c_long),
    /// socket(2) of an address family.
    Family(libc::c_int),
}

impl Refused {
    /// Lets it fail with `errno` for the calling thread, for good. Needs `CAP_SYS_ADMIN`.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn with(self, errno: i32) -> io::Result<()> {
        let (call, family) = match self {
            Self::Call(call) => (call, None),
            Self::Family(family) => (libc::SYS_socket, Some(family)),
        };
        let mut filter = vec![
            load(offset_of!(libc::seccomp_data, nr)),
            // The last instruction allows.
            skip_unless(call as u32, if family.is_some() { 3 } else { 1 }),
        ];
        if let Some(family) = family {
            // The lower half of the first argument.
            let half = if cfg!(target_endian = "big") { 4 } else { 0 };
            filter.push(load(offset_of!(libc::seccomp_data, args) + half));
            filter.push(skip_unless(family.cast_unsigned(), 1));
        }
        filter.push(answer(libc::SECCOMP_RET_ERRNO | errno.cast_unsigned()));
        filter.push(answer(libc::SECCOMP_RET_ALLOW));
        install(&filter)
    }
}

/// Takes capabilities from the calling thread, and from the programs that it starts.
///
/// # Errors
///
/// The kernel's.
pub fn drop_capabilities(dropped: CapabilitySet) -> io::Result<()> {
    for capability in dropped.iter() {
        remove_capability_from_bounding_set(capability)?;
    }
    let mut kept = capabilities(None)?;
    kept.effective.remove(dropped);
    kept.permitted.remove(dropped);
    kept.inheritable.remove(dropped);
    Ok(set_capabilities(None, kept)?)
}

fn load(offset: usize) -> libc::sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset as u32)
}

fn answer(action: u32) -> libc::sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, action)
}

fn skip_unless(value: u32, instructions: u8) -> libc::sock_filter {
    libc::sock_filter {
        jf: instructions,
        ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value)
    }
}

fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    }
}

fn install(filter: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: filter.len() as libc::c_ushort,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: needed because there is no wrapper. Sound because the kernel copies `len` instructions from the
    // slice, which outlives the call, and does not write.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            &raw const program,
        )
    };
    if result == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}
