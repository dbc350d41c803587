//! `union bpf_attr`, copied.

use crate::supervise::Call;
use rustix::io::Errno;

/// Bytes that any command here looks at; the kernel's is smaller.
const LEN: usize = 192;
/// Most bytes that the kernel takes.
const MOST: u32 = 4096;

/// The argument of a call of bpf(2). Bytes that the caller has left out are zero.
pub(super) struct Attr([u8; LEN]);

impl Attr {
    /// Copies it.
    ///
    /// # Errors
    ///
    /// As those of bpf(2): `E2BIG` when it has more than any kernel knows.
    pub(super) fn copy(call: &Call<'_>) -> Result<Self, Errno> {
        let len = call.int(2) as u32;
        if len > MOST {
            return Err(Errno::TOOBIG);
        }
        let bytes = call.target()?.read_bytes(call.word(1), len as usize)?;
        Self::new(&bytes)
    }

    fn new(bytes: &[u8]) -> Result<Self, Errno> {
        let beyond = bytes.get(LEN..).unwrap_or_default();
        if beyond.iter().any(|&byte| byte != 0) {
            return Err(Errno::TOOBIG);
        }
        let mut attr = [0; LEN];
        for (to, from) in attr.iter_mut().zip(bytes) {
            *to = *from;
        }
        Ok(Self(attr))
    }

    pub(super) fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        let bytes = self.0.get(at..).and_then(|bytes| bytes.first_chunk());
        bytes.copied().unwrap_or([0; N])
    }

    pub(super) fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.bytes(at))
    }

    pub(super) fn int(&self, at: usize) -> i32 {
        i32::from_ne_bytes(self.bytes(at))
    }

    pub(super) fn long(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.bytes(at))
    }

    /// Refuses fields that this broker does not know, or does not grant.
    pub(super) fn check_zero(&self, fields: std::ops::Range<usize>) -> Result<(), Errno> {
        let fields = self.0.get(fields.start..fields.end.min(LEN));
        if fields.unwrap_or_default().iter().any(|&byte| byte != 0) {
            return Err(Errno::INVAL);
        }
        Ok(())
    }

    /// Refuses fields from here to the end.
    pub(super) fn check_end(&self, at: usize) -> Result<(), Errno> {
        self.check_zero(at..LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_attr_must_end_with_zeroes() {
        let mut bytes = vec![0; LEN + 8];
        bytes[4] = 7;
        let attr = Attr::new(&bytes).expect("zeroes");
        assert_eq!((attr.word(0), attr.word(4)), (0, 7));
        assert!(attr.check_zero(0..4).is_ok());
        assert_eq!(attr.check_zero(0..5), Err(Errno::INVAL));
        assert!(attr.check_end(8).is_ok());
        bytes[LEN + 7] = 1;
        assert_eq!(Attr::new(&bytes).err(), Some(Errno::TOOBIG));
    }

    #[test]
    fn a_shorter_attr_is_filled_with_zeroes() {
        let attr = Attr::new(&[1, 0, 0]).expect("short");
        assert_eq!((attr.word(0), attr.long(184)), (1, 0));
    }
}
