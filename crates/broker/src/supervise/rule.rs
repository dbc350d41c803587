//! Which calls a filter notifies, and which it lets fail.

use rustix::io::Errno;

/// A system call that a filter treats when its arguments meet all conditions. Several rules for a
/// call: the first whose conditions they meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// The call's number.
    pub call: i64,
    /// Its name, by which an OCI profile knows it.
    pub name: &'static str,
    /// Conditions for its arguments.
    pub conditions: &'static [Condition],
    /// How the filter treats it.
    pub action: Action,
}

/// How a filter treats a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The broker answers it.
    Notify,
    /// It fails without asking anybody.
    Fail(Errno),
}

/// A condition for an argument, which counts from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// The lower 32 bits, which are all that the kernel looks at of an int, have this value below the
    /// mask.
    Masked {
        /// The argument.
        argument: u8,
        /// The bits that count.
        mask: u32,
        /// Their value.
        value: u32,
    },
    /// All 64 bits are at least this value.
    AtLeast {
        /// The argument.
        argument: u8,
        /// The least value.
        value: u64,
    },
}

impl Rule {
    /// Notifies each such call.
    pub const fn always(call: i64, name: &'static str) -> Self {
        Self::when(call, name, &[])
    }

    /// Notifies calls that meet all conditions.
    pub const fn when(call: i64, name: &'static str, conditions: &'static [Condition]) -> Self {
        Self {
            call,
            name,
            conditions,
            action: Action::Notify,
        }
    }

    /// Lets each such call fail: programs use another one then.
    pub const fn fails(call: i64, name: &'static str, errno: Errno) -> Self {
        Self {
            call,
            name,
            conditions: &[],
            action: Action::Fail(errno),
        }
    }
}

impl Condition {
    /// An int is this value.
    pub const fn int(argument: u8, value: i32) -> Self {
        Self::bits(argument, u32::MAX, value as u32)
    }

    /// The bits of `mask` in an int are this value.
    pub const fn bits(argument: u8, mask: u32, value: u32) -> Self {
        Self::Masked {
            argument,
            mask,
            value,
        }
    }

    /// A size is at least this value.
    pub const fn at_least(argument: u8, value: u64) -> Self {
        Self::AtLeast { argument, value }
    }
}
