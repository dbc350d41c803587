//! setsockopt(2) of busy polling.

use super::session::Session;
use super::sys;
use crate::policy::BusyPoll;
use crate::seccomp::Answer;
use crate::supervise::Call;
use rustix::io::Errno;
use rustix::net::AddressFamily;
use rustix::net::sockopt::socket_domain;
use std::os::fd::AsFd as _;

pub(super) fn handle(session: &Session, call: &Call<'_>) -> Result<Answer, Errno> {
    let (level, option) = (call.int(1), call.int(2));
    if level != libc::SOL_SOCKET || !is_of_busy_polling(option) {
        return Ok(Answer::Continue);
    }
    let target = call.target()?;
    let socket = target.descriptor(call.int(0))?;
    // The kernel asks the caller's own privilege.
    if socket_domain(&socket) != Ok(AddressFamily::XDP) {
        return Ok(Answer::Continue);
    }
    let limits = limits(session).ok_or(Errno::PERM)?;
    let mut value = [0; 4];
    if call.int(4) < 4 {
        return Err(Errno::INVAL);
    }
    target.read(call.word(3), &mut value)?;
    let value = i32::from_ne_bytes(value);
    let clamped = clamp(option, value, limits);
    call.describe(format!("option {option} to {value}: {clamped}"));
    call.check_alive()?;
    sys::set_option(socket.as_fd(), option, clamped)?;
    Ok(Answer::Value(0))
}

fn is_of_busy_polling(option: i32) -> bool {
    matches!(
        option,
        libc::SO_BUSY_POLL | libc::SO_PREFER_BUSY_POLL | libc::SO_BUSY_POLL_BUDGET
    )
}

/// The least limits of all grants, since the socket may be bound to any of their devices later.
fn limits(session: &Session) -> Option<BusyPoll> {
    let mut grants = session.all_grants().iter().map(|grant| grant.busy_poll);
    let first = grants.next()??;
    grants.try_fold(first, |least, next| {
        let next = next?;
        Some(BusyPoll {
            most_usecs: least.most_usecs.min(next.most_usecs),
            most_budget: least.most_budget.min(next.most_budget),
        })
    })
}

/// A negative value is the kernel's to refuse.
fn clamp(option: i32, value: i32, limits: BusyPoll) -> i32 {
    match option {
        libc::SO_BUSY_POLL => value.min(i32::try_from(limits.most_usecs).unwrap_or(i32::MAX)),
        libc::SO_BUSY_POLL_BUDGET => value.min(limits.most_budget.into()),
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_clamped_and_negative_ones_kept() {
        let limits = BusyPoll {
            most_usecs: 20,
            most_budget: 64,
        };
        assert_eq!(clamp(libc::SO_BUSY_POLL, 1_000_000, limits), 20);
        assert_eq!(clamp(libc::SO_BUSY_POLL, 5, limits), 5);
        assert_eq!(clamp(libc::SO_BUSY_POLL_BUDGET, 65535, limits), 64);
        assert_eq!(clamp(libc::SO_BUSY_POLL_BUDGET, -1, limits), -1);
        assert_eq!(clamp(libc::SO_PREFER_BUSY_POLL, 1, limits), 1);
    }
}
