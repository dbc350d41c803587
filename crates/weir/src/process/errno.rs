//! Names of error numbers.

/// The kernel's own "not supported", which some drivers return instead of EOPNOTSUPP; not in libc.
pub const ENOTSUPP: i32 = 524;

/// The name to search for, of the error numbers that sockets, BPF and XDP drivers return.
pub fn errno_name(errno: i32) -> Option<&'static str> {
    Some(match errno {
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        ENOTSUPP => "ENOTSUPP",
        libc::EBUSY => "EBUSY",
        libc::EPERM => "EPERM",
        libc::EINVAL => "EINVAL",
        libc::ENODEV => "ENODEV",
        libc::ENETDOWN => "ENETDOWN",
        libc::ENOMEM => "ENOMEM",
        libc::ENOBUFS => "ENOBUFS",
        _ => return None,
    })
}
