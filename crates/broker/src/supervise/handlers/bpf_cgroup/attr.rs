//! `union bpf_attr`, copied from the caller once.

use crate::seccomp::Target;
use rustix::io::Errno;

/// `BPF_PROG_LOAD`, `BPF_PROG_ATTACH` and `BPF_PROG_DETACH`.
pub(super) const LOAD: i32 = 5;
pub(super) const ATTACH: i32 = 8;
pub(super) const DETACH: i32 = 9;

/// `BPF_PROG_TYPE_CGROUP_DEVICE`, and `BPF_CGROUP_DEVICE`, the type of its attachments.
pub(super) const PROGRAM_TYPE: u32 = 15;
pub(super) const ATTACH_TYPE: u32 = 6;

/// `BPF_F_ALLOW_OVERRIDE` and `BPF_F_ALLOW_MULTI`.
pub(super) const ALLOW_OVERRIDE: u32 = 1;
pub(super) const ALLOW_MULTI: u32 = 2;

/// The kernel takes a page at most.
const MOST_BYTES: usize = 4096;

/// The bytes of a `union bpf_attr`; those behind its end are zero.
#[derive(Debug)]
pub(super) struct Attr(Vec<u8>);

impl Attr {
    /// Copies the argument of a call.
    pub(super) fn copy(target: &Target, pointer: u64, size: i32) -> Result<Self, Errno> {
        let size = size as u32 as usize;
        if size > MOST_BYTES {
            return Err(Errno::TOOBIG);
        }
        target.read_bytes(pointer, size).map(Self)
    }

    /// The bytes at an offset.
    pub(super) fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        std::array::from_fn(|byte| self.0.get(at + byte).copied().unwrap_or(0))
    }

    pub(super) fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.bytes(at))
    }

    /// A descriptor's number.
    pub(super) fn int(&self, at: usize) -> i32 {
        i32::from_ne_bytes(self.bytes(at))
    }

    pub(super) fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.bytes(at))
    }

    /// Refuses an attr with fields behind the known ones.
    pub(super) fn check_zero_from(&self, at: usize, error: Errno) -> Result<(), Errno> {
        let rest = self.0.get(at..).unwrap_or_default();
        if rest.iter().all(|&byte| byte == 0) {
            Ok(())
        } else {
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_fields_are_zero() {
        let attr = Attr(vec![1, 0, 0, 0, 2, 0]);
        assert_eq!((attr.u32(0), attr.u32(4), attr.u64(8)), (1, 2, 0));
        assert_eq!(attr.u32(3), 2 << 8);
    }

    #[test]
    fn unknown_fields_must_be_zero() {
        let attr = Attr(vec![1, 0, 0, 7]);
        assert_eq!(attr.check_zero_from(4, Errno::TOOBIG), Ok(()));
        assert_eq!(attr.check_zero_from(9, Errno::TOOBIG), Ok(()));
        assert_eq!(attr.check_zero_from(1, Errno::TOOBIG), Err(Errno::TOOBIG));
    }
}
