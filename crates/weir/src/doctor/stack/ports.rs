//! Local ports of outgoing connections.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use anyhow::{Context as _, Result};
use hostnet::sock_diag::inet::State;

use crate::doctor::check::Check;
use crate::doctor::context::{Context, InetSocket};
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::host::setting::{fine_all, found, unchecked};
use crate::doctor::severity::Severity;
use crate::doctor::verdict::Verdict;

const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
const RESERVED: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";
const NO_TCP_DIAG: &str = "this kernel does not list TCP connections: load the module tcp_diag, or use a kernel with CONFIG_INET_TCP_DIAG";
const SUMMARIES: [&str; 2] = ["/proc/net/sockstat", "/proc/net/sockstat6"];
/// The kernel's default range, as it writes it.
const DEFAULT_RANGE: &str = "32768\t60999";
/// Ports in the default range.
const DEFAULT_PORTS: usize = 28_232;
/// From this percentage of the ports on, connect(2) has to search long, and soon fails.
const FULL_PERCENT: usize = 90;

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[LOCAL_PORTS];

const LOCAL_PORTS: Check = Check {
    id: "local-ports",
    title: "the local ports for connections are exhausted (EADDRNOTAVAIL)",
    severity: Severity::Critical,
    why: "Each connection from one address to one address and port needs a local port of its own; without a free one connect(2) fails with \"Cannot assign requested address\".",
    source: "__inet_hash_connect in net/ipv4/inet_hashtables.c; Documentation/networking/ip-sysctl.rst, ip_local_port_range, tcp_tw_reuse",
    more: "Reads the TCP connections (sock_diag, but only if /proc/net/sockstat has enough of them), \
           also those in TIME_WAIT, and counts the local ports by local address, remote address and \
           remote port. It is a finding from 90% of net.ipv4.ip_local_port_range without \
           ip_local_reserved_ports.\n\n\
           The fix restores a range that is narrower than the default. Otherwise: keep connections \
           open and use them again; more local or remote addresses; a wider range, in which no server \
           listens; with TIME_WAIT net.ipv4.tcp_tw_reuse=1. IP_BIND_ADDRESS_NO_PORT helps a process \
           that binds an address before it connects. `ss -tan | awk '{print $1}' | sort | uniq -c` \
           shows the states.",
    counters: &[],
    run: local_ports,
};

/// The connections of one local address to one remote address and port.
#[derive(Default)]
struct Connections {
    ports: BTreeSet<u16>,
    waiting: usize,
}

fn local_ports(context: &Context) -> Result<Vec<Verdict>> {
    let Some(setting) = context.read_if_there(RANGE)? else {
        return Ok(Vec::new());
    };
    let range = range(&setting).with_context(|| format!("{RANGE} has no range: {setting}"))?;
    let reserved = context.read_if_there(RESERVED)?.unwrap_or_default();
    let free: BTreeSet<u16> = {
        let reserved: Vec<_> = reserved.split(',').filter_map(span).collect();
        let is_free = |port: &u16| !reserved.iter().any(|span| span.contains(port));
        range.filter(is_free).collect()
    };
    let full = free.len() * FULL_PERCENT / 100;
    let mut evidence = vec![Evidence::new(RANGE, setting.replace('\t', " "))];
    if !reserved.is_empty() {
        evidence.push(Evidence::new(RESERVED, &reserved));
    }
    let all = connections(context)?;
    evidence.push(Evidence::new(
        SUMMARIES.join(", "),
        format!("{all} connections"),
    ));
    if all < full {
        return Ok(fine_all(evidence));
    }
    let Some(sockets) = context.connections()? else {
        return Ok(unchecked(NO_TCP_DIAG));
    };
    let most = most_ports(&sockets, &free);
    let Some(((from, to), connections)) = most.filter(|(_, it)| it.ports.len() >= full) else {
        return Ok(fine_all(evidence));
    };
    let (used, waiting) = (connections.ports.len(), connections.waiting);
    evidence.push(Evidence::new(
        format!("sock_diag, local ports from {from} to {to}"),
        format!("{used} of {}, {waiting} of them in TIME_WAIT", free.len()),
    ));
    let message = format!(
        "{used} of {} local ports are in use from {from} to {to}, {waiting} of them in TIME_WAIT: connect(2) fails, or soon will.",
        free.len()
    );
    let fix = if free.len() < DEFAULT_PORTS && setting != DEFAULT_RANGE {
        Fix::write(RANGE, &setting, DEFAULT_RANGE)
    } else {
        Fix::manual(
            "keep connections open and use them again, or give the client or the server more addresses; for TIME_WAIT `sysctl -w net.ipv4.tcp_tw_reuse=1`, undo with the value that it has now",
        )
    };
    Ok(found(evidence, message, fix))
}

/// The number of TCP connections, open and in `TIME_WAIT`.
fn connections(context: &Context) -> Result<usize> {
    let mut all = 0;
    for summary in SUMMARIES {
        let text = context.read_if_there(summary)?.unwrap_or_default();
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        let line = lines.find(|(name, _)| ["TCP", "TCP6"].contains(name));
        let words: Vec<_> = line.unwrap_or_default().1.split_whitespace().collect();
        let (pairs, _) = words.as_chunks::<2>();
        let counted = pairs
            .iter()
            .filter(|[name, _]| ["inuse", "tw"].contains(name));
        all += counted
            .filter_map(|[_, count]| count.parse::<usize>().ok())
            .sum::<usize>();
    }
    Ok(all)
}

/// The two ends of connections with the most local ports among these.
fn most_ports(
    sockets: &[InetSocket],
    ports: &BTreeSet<u16>,
) -> Option<((IpAddr, SocketAddr), Connections)> {
    let mut by_ends: BTreeMap<_, Connections> = BTreeMap::new();
    for socket in sockets.iter().filter(|it| ports.contains(&it.local_port)) {
        // An IPv6 socket may be connected over IPv4.
        let ends = (
            socket.local.to_canonical(),
            SocketAddr::new(socket.remote.to_canonical(), socket.remote_port),
        );
        let connections = by_ends.entry(ends).or_default();
        connections.ports.insert(socket.local_port);
        connections.waiting += usize::from(socket.state == State::TimeWait);
    }
    let most = by_ends.into_iter();
    most.max_by_key(|(_, connections)| connections.ports.len())
}

/// The two numbers of `ip_local_port_range`.
fn range(setting: &str) -> Option<RangeInclusive<u16>> {
    let mut numbers = setting.split_whitespace().map(str::parse);
    let (first, last) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some(first..=last)
}

/// A port or a span of ports of `ip_local_reserved_ports`.
fn span(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_spans_are_inclusive() {
        assert_eq!(range("32768\t60999"), Some(32768..=60999));
        assert_eq!(
            range(DEFAULT_RANGE).map(Iterator::count),
            Some(DEFAULT_PORTS)
        );
        assert_eq!(range("1"), None);
        assert_eq!(span("8080"), Some(8080..=8080));
        assert_eq!(span("9000-9010"), Some(9000..=9010));
        assert_eq!(span(""), None);
    }
}
