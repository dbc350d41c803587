//! setrlimit(2), prlimit(2): the memory that an AF_XDP program may lock, which programs ask for before they make
//! a UMEM.
//!
//! A program that asks for more than its hard limit gets what the tenant may have of memory, or what it had
//! if that is more. The kernel judges all other requests.

use super::super::caller::{limit, read_proc, set_limit};
use super::super::rule::{Condition, Rule};
use super::super::{Call, Handler};
use crate::seccomp::{Answer, Notification};
use rustix::io::Errno;

/// The handler's name.
pub const NAME: &str = "memory_lock";

/// `RLIMIT_MEMLOCK`, whose type in the crate libc is not everywhere the same.
const MEMLOCK: i32 = 8;

/// When its calls are notified: not those of prlimit(2) that only read.
pub const RULES: &[Rule] = &[
    Rule::when(
        libc::SYS_setrlimit,
        "setrlimit",
        &[Condition::int(0, MEMLOCK)],
    ),
    Rule::when(
        libc::SYS_prlimit64,
        "prlimit64",
        &[Condition::int(1, MEMLOCK), Condition::at_least(2, 1)],
    ),
];

/// Raises the limit `RLIMIT_MEMLOCK` of a caller up to the grant.
#[derive(Debug)]
pub struct MemoryLock {
    most: u64,
}

impl MemoryLock {
    /// Grants this many bytes.
    pub fn new(most: u64) -> Self {
        Self { most }
    }
}

impl Handler for MemoryLock {
    fn name(&self) -> &'static str {
        NAME
    }

    fn calls(&self) -> &'static [i64] {
        &[libc::SYS_setrlimit, libc::SYS_prlimit64]
    }

    /// Without `CAP_SYS_RESOURCE` a child of the broker's makes the call.
    fn is_slow(&self, _: &Notification) -> bool {
        true
    }

    fn handle(&self, call: &Call<'_>) -> Result<Answer, Errno> {
        let is_own = i64::from(call.notification.call) == libc::SYS_setrlimit;
        let (process, new, old) = if is_own {
            (0, call.word(1), 0)
        } else {
            (call.int(0), call.word(2), call.word(3))
        };
        // Another process's.
        if process != 0 {
            return Ok(Answer::Continue);
        }
        let target = call.target()?;
        let mut bytes = [0; 16];
        target.read(new, &mut bytes)?;
        let [soft, hard] = numbers(bytes);
        let former = limit(&read_proc(target, "limits")?, "Max locked memory").ok_or(Errno::IO)?;
        let former = former.map(|limit| limit.unwrap_or(libc::RLIM_INFINITY));
        if soft > hard || hard <= former[1] {
            return Ok(Answer::Continue);
        }
        let hard = hard.min(self.most).max(former[1]);
        call.describe(format!("locked memory up to {hard} bytes"));
        call.check_alive()?;
        set_limit(target, MEMLOCK, [soft.min(hard), hard])?;
        if old != 0 {
            target.write(old, former.map(u64::to_ne_bytes).as_flattened())?;
        }
        Ok(Answer::Value(0))
    }
}

/// `struct rlimit64`.
fn numbers(bytes: [u8; 16]) -> [u64; 2] {
    let whole = u128::from_le_bytes(bytes);
    [whole as u64, (whole >> 64) as u64]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_the_kernel_lays_them_out() {
        let bytes = [(1_u64 << 20).to_ne_bytes(), u64::MAX.to_ne_bytes()];
        let bytes = bytes.as_flattened().try_into().expect("16 bytes");
        assert_eq!(numbers(bytes), [1 << 20, u64::MAX]);
    }
}
