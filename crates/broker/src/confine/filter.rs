//! The broker's own seccomp filter: the calls that it makes, and no other.
//!
//! A call outside of the table fails with EPERM and is logged (audit record `SECCOMP`): one that was
//! forgotten then costs an error, not the daemon. The calls of `KILLED` have no use in the broker at
//! all, and no library tries them: who makes them has taken it over, so the process ends, and systemd
//! starts another.
#![allow(unsafe_code)] // seccomp(2) with SECCOMP_FILTER_FLAG_LOG, which the crate seccompiler does not set.

use super::calls::{Call, Group, KILLED, SOCKET_TYPE, TABLE};
use super::needs::Needs;
use anyhow::{Context as _, Result, bail};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;

/// The filter's action on a call outside of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Refused {
    /// It fails with EPERM.
    #[default]
    Fails,
    /// Its process ends by SIGSYS, which the kernel logs with the call's number: for tests, that
    /// want to see a call that the table lacks.
    Kills,
}

/// Installs the broker's filter for all threads; it can only become stricter.
///
/// # Errors
///
/// When the kernel has no seccomp filters (`CONFIG_SECCOMP_FILTER`).
pub(super) fn install(needs: &Needs, refused: Refused) -> Result<usize> {
    let groups: Vec<_> = TABLE.iter().filter(|group| (group.when)(needs)).collect();
    install_groups(&groups, &[], refused)
}

/// Installs a filter that allows the calls of `groups`, for all threads; it can only become stricter. Those of
/// `answered`, which the groups must allow, fail with an error, and that is not logged: the C library tries them,
/// and does without.
pub(super) fn install_groups(
    groups: &[&Group],
    answered: &[(libc::c_long, i32)],
    refused: Refused,
) -> Result<usize> {
    let otherwise = match refused {
        Refused::Fails => SeccompAction::Errno(libc::EPERM as u32),
        Refused::Kills => SeccompAction::KillProcess,
    };
    // Of two filters' answers the kernel takes the stricter one. The last one installed has to let
    // this function go on, so the table is the last.
    load(
        &program(
            rules([&KILLED])?,
            SeccompAction::Allow,
            SeccompAction::KillProcess,
        )?,
        LOG,
    )?;
    // Its flags are in memory, where no filter sees them; the C library falls back to clone(2), for
    // each thread, so that is not logged.
    for &(call, errno) in [(libc::SYS_clone3, libc::ENOSYS)].iter().chain(answered) {
        let rules = BTreeMap::from([(call, Vec::new())]);
        let action = SeccompAction::Errno(errno as u32);
        load(&program(rules, SeccompAction::Allow, action)?, 0)?;
    }
    load_table(groups, otherwise)
}

/// Installs a filter that allows the calls of `groups`.
pub(super) fn load_table(groups: &[&Group], otherwise: SeccompAction) -> Result<usize> {
    let rules = rules(groups.iter().copied())?;
    let count = rules.len();
    load(&program(rules, otherwise, SeccompAction::Allow)?, LOG)?;
    Ok(count)
}

/// A filter that refuses some calls with `EPERM`, to be installed in the process of a program.
#[derive(Debug)]
pub struct Refusal(BpfProgram);

impl Refusal {
    /// Of these calls.
    ///
    /// # Errors
    ///
    /// On an architecture that the filter is not for.
    pub fn of(calls: &[libc::c_long]) -> Result<Self> {
        let rules = calls.iter().map(|call| (*call, Vec::new())).collect();
        let refuse = SeccompAction::Errno(libc::EPERM as u32);
        program(rules, SeccompAction::Allow, refuse).map(Self)
    }

    /// Installs it. Allocates no memory, but for an error.
    ///
    /// # Errors
    ///
    /// Without `no_new_privs`.
    pub fn install(&self) -> std::io::Result<()> {
        load(&self.0, LOG).map_err(std::io::Error::other)
    }
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn rules<'a>(groups: impl IntoIterator<Item = &'a Group>) -> Result<Rules> {
    let mut rules = Rules::new();
    let calls = groups
        .into_iter()
        .flat_map(|group| group.calls.iter().map(move |call| (group, call)));
    for (group, call) in calls {
        let (number, rule) = rule(call).with_context(|| format!("calls for {}", group.reason))?;
        match (rules.get_mut(&number), rule) {
            (None, rule) => drop(rules.insert(number, rule.into_iter().collect())),
            // Without a condition it is allowed anyhow.
            (Some(alternatives), _) if alternatives.is_empty() => {}
            (Some(alternatives), None) => alternatives.clear(),
            (Some(alternatives), Some(rule)) => alternatives.push(rule),
        }
    }
    Ok(rules)
}

/// A call's number and its condition; `None` holds always.
fn rule(call: &Call) -> Result<(i64, Option<SeccompRule>)> {
    let conditions: Vec<(u8, SeccompCmpOp, u64)> = match *call {
        Call::Any(_) => Vec::new(),
        Call::Int(_, at, value) => vec![(at, SeccompCmpOp::Eq, value)],
        Call::Ints(_, first, second) => vec![
            (0, SeccompCmpOp::Eq, first),
            (1, SeccompCmpOp::MaskedEq(SOCKET_TYPE), second),
        ],
        Call::Without(_, at, bits) => vec![(at, SeccompCmpOp::MaskedEq(bits), 0)],
        Call::With(_, at, bits) => vec![(at, SeccompCmpOp::MaskedEq(bits), bits)],
    };
    let number = call.number();
    if conditions.is_empty() {
        return Ok((number, None));
    }
    // The kernel truncates these arguments to 32 bits.
    let conditions = conditions.into_iter().map(|(at, operator, value)| {
        SeccompCondition::new(at, SeccompCmpArgLen::Dword, operator, value)
    });
    let conditions = conditions.collect::<Result<Vec<_>, _>>()?;
    Ok((number, Some(SeccompRule::new(conditions)?)))
}

fn program(rules: Rules, otherwise: SeccompAction, matched: SeccompAction) -> Result<BpfProgram> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)
        .context("the seccomp filter is for x86_64, aarch64 and riscv64")?;
    let filter = SeccompFilter::new(rules, otherwise, matched, arch)?;
    Ok(filter.try_into()?)
}

/// The filter's refusals are logged.
const LOG: libc::c_ulong = libc::SECCOMP_FILTER_FLAG_LOG;

/// Installs a filter, which seccompiler's own function does without [`LOG`].
fn load(program: &BpfProgram, flags: libc::c_ulong) -> Result<()> {
    let header = libc::sock_fprog {
        len: u16::try_from(program.len()).context("the seccomp filter is too long")?,
        // Both crates have the layout of `struct sock_filter`.
        filter: program.as_ptr().cast_mut().cast(),
    };
    let flags = flags | libc::SECCOMP_FILTER_FLAG_TSYNC;
    // SAFETY: needed because there is no wrapper with this flag. The kernel copies `len` instructions
    // from the program, which outlives the call, and does not write.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const header,
        )
    };
    match result {
        0 => Ok(()),
        -1 => Err(std::io::Error::last_os_error()).context(
            "cannot install the seccomp filter: the kernel needs CONFIG_SECCOMP_FILTER and no_new_privs set",
        ),
        thread => bail!("thread {thread} has a seccomp filter of its own"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_allowed_or_killed_and_not_both() {
        let table = rules(TABLE).unwrap();
        let killed = rules([&KILLED]).unwrap();
        let both: Vec<_> = killed.keys().filter(|n| table.contains_key(n)).collect();
        assert!(both.is_empty(), "{both:?}");
    }

    #[test]
    fn fits_into_a_filter_of_the_kernel() {
        let rules = rules(TABLE).unwrap();
        let action = SeccompAction::Errno(1);
        let program = program(rules, action, SeccompAction::Allow).unwrap();
        assert!(program.len() <= 4096, "{}", program.len());
    }
}
