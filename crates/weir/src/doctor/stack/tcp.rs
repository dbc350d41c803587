//! TCP: the queues of listeners.

use std::collections::BTreeSet;

use anyhow::Result;

use super::socket::{Counted, MOST_NAMED, counted};
use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::context::watch::Lists;
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::host::setting::{fine_all, found};
use crate::doctor::mib::{Moved, NETSTAT, period, rate};
use crate::doctor::owner::Processes;
use crate::doctor::severity::Severity;
use crate::doctor::verdict::Verdict;

const SOMAXCONN: &str = "/proc/sys/net/core/somaxconn";
/// The kernel's default since Linux 5.4.
const DEFAULT_SOMAXCONN: u64 = 4096;
const OVERFLOWS: &str = "TcpExt.ListenOverflows";
const DROPS: &str = "TcpExt.ListenDrops";

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[TCP_LISTEN_QUEUE];

const TCP_LISTEN_QUEUE: Check = Check {
    id: "tcp-listen-queue",
    title: "the listen queue of a TCP server overflows (ListenOverflows, ListenDrops)",
    severity: Severity::Critical,
    why: "A client whose connection finds the queue of accept(2) full is not answered, and tries again after a second, then two, then four.",
    source: "tcp_conn_request and tcp_v4_syn_recv_sock in net/ipv4; listen(2); Documentation/admin-guide/sysctl/net.rst, somaxconn",
    more: "Reads TcpExt ListenOverflows and ListenDrops in /proc/net/netstat twice, some seconds apart: \
           it is a finding if one of them grows meanwhile. The listeners are those whose drops grow \
           (sock_diag, SK_MEMINFO_DROPS); a queue is full with one connection more than the backlog \
           of listen(2), which net.core.somaxconn limits.\n\n\
           If the backlog is at that limit, and the limit below the default of 4096, the fix raises the \
           limit; the server has to call listen(2) again. Otherwise the server asks for too little, or \
           accepts too slowly: give it a CPU (`weir cost`), more threads that accept, or SO_REUSEPORT. \
           ListenDrops alone are refused for want of memory, or as a SYN flood. `nstat -az \
           TcpExtListenOverflows` and `ss -ltnp` (Recv-Q, Send-Q) show the effect.",
    counters: &[NETSTAT],
    run: listen_queue,
};

/// The listeners that lost connections, those that lost most first.
fn losing(lists: &Lists<'_>) -> Vec<Counted> {
    let [before, after] = [lists.before, lists.after].map(|it| it.listeners.as_deref());
    let mut losing = counted(before.unwrap_or_default(), after.unwrap_or_default());
    losing.retain(|it| it.lost > 0);
    losing.truncate(MOST_NAMED);
    losing
}

fn listen_queue(context: &Context) -> Result<Vec<Verdict>> {
    let moved = Moved::read(context, &[(NETSTAT, OVERFLOWS), (NETSTAT, DROPS)])?;
    let mut evidence = moved.evidence()?;
    // The drops contain the overflows.
    let lost = moved.of(DROPS).max(moved.of(OVERFLOWS));
    if lost == 0 {
        return Ok(fine_all(evidence));
    }
    let lists = context.lists()?;
    let losing = losing(&lists);
    let inodes: BTreeSet<_> = losing.iter().map(|it| it.socket.inode).collect();
    let processes = Processes::of(context, &inodes)?;
    evidence.extend(losing.iter().map(|it| {
        let (waiting, backlog) = (it.socket.receive_queue, it.socket.send_queue);
        Evidence::new(
            format!(
                "sock_diag, drops of {}, {}",
                it.local(),
                processes.owner(it.socket.inode)
            ),
            format!(
                "{}; {waiting} connections wait, backlog {backlog}",
                rate(it.lost.into(), lists.seconds)
            ),
        )
    }));
    let limit = context.read_if_there(SOMAXCONN)?;
    evidence.extend(limit.iter().map(|limit| Evidence::new(SOMAXCONN, limit)));
    let by = losing.first().map_or_else(
        || "by listeners that are closed since, or not listed here".to_owned(),
        |it| {
            let owner = processes.owner(it.socket.inode);
            format!(
                "most by {} of {owner}, whose backlog is {}",
                it.local(),
                it.socket.send_queue
            )
        },
    );
    let message = format!(
        "{lost} connections got no answer {}, {by}.",
        period(lost, moved.seconds)
    );
    let backlog = losing.first().map(|it| u64::from(it.socket.send_queue));
    Ok(found(
        evidence,
        message,
        longer_queue(limit.as_deref(), backlog),
    ))
}

/// The fix for a queue of this backlog under a limit.
fn longer_queue(limit: Option<&str>, backlog: Option<u64>) -> Fix {
    let value = limit.and_then(|limit| limit.parse::<u64>().ok());
    match (limit, value) {
        (Some(limit), Some(value)) if value < DEFAULT_SOMAXCONN && backlog >= Some(value) => {
            Fix::write(SOMAXCONN, limit, DEFAULT_SOMAXCONN.to_string())
        }
        _ => Fix::manual(format!(
            "have the server accept faster, or ask listen(2) for a longer queue, up to net.core.somaxconn ({}); against a SYN flood net.ipv4.tcp_syncookies=1",
            limit.unwrap_or("not readable here")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_limit_that_limits_is_raised() {
        let is_raised = |limit, backlog| matches!(longer_queue(limit, backlog), Fix::Steps(_));
        assert!(is_raised(Some("128"), Some(128)));
        assert!(!is_raised(Some("128"), Some(5)), "the server asks for less");
        assert!(!is_raised(Some("4096"), Some(4096)));
        assert!(!is_raised(Some("128"), None) && !is_raised(None, Some(1)));
    }
}
