//! seccomp(2), prctl(2), `landlock_restrict_self(2)`: a supervised process forbids itself more.

use super::super::landlock;
use super::super::rule::{Condition, Rule};
use super::super::{Call, Handler};
use crate::seccomp::{Answer, Notification, Target};
use rustix::io::Errno;

/// The handler's name.
pub const NAME: &str = "filters";

/// When its calls are notified.
pub const RULES: &[Rule] = &[
    Rule::when(
        libc::SYS_seccomp,
        "seccomp",
        &[Condition::int(
            0,
            libc::SECCOMP_SET_MODE_FILTER.cast_signed(),
        )],
    ),
    Rule::when(
        libc::SYS_prctl,
        "prctl",
        &[
            Condition::int(0, libc::PR_SET_SECCOMP),
            Condition::int(1, libc::SECCOMP_MODE_FILTER.cast_signed()),
        ],
    ),
    Rule::always(libc::SYS_landlock_restrict_self, "landlock_restrict_self"),
];

/// Bytes of `struct sock_filter`.
const INSTRUCTION: usize = 8;

/// Logs filters that hide calls from the broker, marks processes that restrict themselves by Landlock, and
/// leaves all to the kernel: a process may forbid itself more, and the kernel refuses a second listener.
#[derive(Debug)]
pub struct Filters;

impl Handler for Filters {
    fn name(&self) -> &'static str {
        NAME
    }

    fn calls(&self) -> &'static [i64] {
        &[
            libc::SYS_seccomp,
            libc::SYS_prctl,
            libc::SYS_landlock_restrict_self,
        ]
    }

    /// A mark is made by a child of the broker's.
    fn is_slow(&self, notification: &Notification) -> bool {
        i64::from(notification.call) == libc::SYS_landlock_restrict_self
    }

    fn handle(&self, call: &Call<'_>) -> Result<Answer, Errno> {
        let number = i64::from(call.notification.call);
        if number == libc::SYS_landlock_restrict_self {
            call.describe(
                "Landlock: the broker makes no more calls in this process's place".to_owned(),
            );
            landlock::mark(call.target()?)?;
            return Ok(Answer::Continue);
        }
        let is_seccomp = number == libc::SYS_seccomp;
        let listens = is_seccomp && call.word(1) & libc::SECCOMP_FILTER_FLAG_NEW_LISTENER != 0;
        // Only for the log: the caller may change the filter meanwhile.
        let words = if listens {
            "a filter with a listener of its own: EBUSY, as a process can have one supervisor"
        } else if notifies(call.target()?, call.word(2)) {
            "a filter that notifies calls to nobody: they fail with ENOSYS, and do not reach the broker"
        } else {
            "another filter: calls that it refuses do not reach the broker"
        };
        call.describe(words.to_owned());
        Ok(Answer::Continue)
    }
}

/// Whether a program (`struct sock_fprog`) has an instruction that returns a notification.
fn notifies(target: &Target, program: u64) -> bool {
    let mut header = [0; 16];
    if target.read(program, &mut header).is_err() {
        return false;
    }
    let [low, high, _, _, _, _, _, _, pointer @ ..] = header;
    let len = usize::from(u16::from_le_bytes([low, high]));
    let code = target.read_bytes(u64::from_le_bytes(pointer), len * INSTRUCTION);
    code.is_ok_and(|code| code.chunks_exact(INSTRUCTION).any(returns_notification))
}

fn returns_notification(instruction: &[u8]) -> bool {
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let [a, b, _, _, k @ ..] = instruction else {
        return false;
    };
    let k = k.try_into().map_or(0, u32::from_le_bytes);
    u16::from_le_bytes([*a, *b]) == RETURN
        && k & libc::SECCOMP_RET_ACTION_FULL == libc::SECCOMP_RET_USER_NOTIF
}
