//! UDP: receive buffers, ports without a listener, groups of sockets.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use anyhow::Result;

use super::socket::{Counted, MOST_NAMED, counted};
use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::context::watch::Lists;
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::host::setting::{fine_all, found, unchecked};
use crate::doctor::mib::{Moved, SNMP, SNMP6, period, rate};
use crate::doctor::owner::Processes;
use crate::doctor::severity::Severity;
use crate::doctor::verdict::Verdict;

const RMEM_MAX: &str = "/proc/sys/net/core/rmem_max";
/// The kernel's default since Linux 6.17 (`net/core/sock.c`).
const ENOUGH_RMEM: u64 = 4 << 20;
/// Fewer datagrams for closed ports are a scan or a client that is late.
const NO_LISTENER_A_SECOND: f64 = 100.0;
const NO_UDP_DIAG: &str = "this kernel does not list UDP sockets: load the module udp_diag, or use a kernel with CONFIG_INET_UDP_DIAG";

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[UDP_RECEIVE_BUFFER, REUSEPORT_IMBALANCE, UDP_NO_LISTENER];

const UDP_RECEIVE_BUFFER: Check = Check {
    id: "udp-receive-buffer",
    title: "the receive buffer of a UDP socket overflows (RcvbufErrors)",
    severity: Severity::Critical,
    why: "A datagram that meets a full receive buffer is lost, and UDP does not send it again.",
    source: "__udp_enqueue_schedule_skb in net/ipv4/udp.c; udp(7); socket(7), SO_RCVBUF",
    more: "Reads Udp RcvbufErrors in /proc/net/snmp and Udp6RcvbufErrors in snmp6 twice, some seconds \
           apart: it is a finding if one of them grows meanwhile. The sockets are those whose drops \
           grow (sock_diag, SK_MEMINFO_DROPS), and their processes those that have them open.\n\n\
           A burst needs a larger buffer: the process asks for it with SO_RCVBUF, up to \
           net.core.rmem_max. The fix raises that to 4 MiB, the default since Linux 6.17, if the buffer \
           is at the limit; the process has to open its socket again. A process that is constantly \
           slower than its input loses the same with any buffer: give it a CPU (`weir cost`), more \
           sockets (SO_REUSEPORT), or recvmmsg(2).\n\n\
           `nstat -az UdpRcvbufErrors` and `ss -uamp` (d in skmem) show the effect.",
    counters: &[SNMP, SNMP6],
    run: receive_buffer,
};

const REUSEPORT_IMBALANCE: Check = Check {
    id: "reuseport-imbalance",
    title: "one socket of an SO_REUSEPORT group drops while others are idle",
    severity: Severity::Warning,
    why: "The kernel picks the socket by a hash of addresses and ports: few flows, or one large one, fill a socket although its neighbours have room.",
    source: "reuseport_select_sock in net/core/sock_reuseport.c; socket(7), SO_REUSEPORT and SO_ATTACH_REUSEPORT_EBPF",
    more: "Reads the drops and the queue of the UDP sockets that share a local address, port and \
           device (sock_diag) twice, some seconds apart: it is a finding if one of a group drops \
           meanwhile, and another neither drops nor has a datagram waiting. Receivers of multicast that share a \
           port (SO_REUSEADDR) look the same, but each gets every datagram: of those one is too slow.\n\n\
           The kernel cannot be told to balance. The process can choose the socket itself \
           (SO_ATTACH_REUSEPORT_CBPF or _EBPF, by CPU or at random), or hand datagrams over inside.",
    counters: &[],
    run: reuseport,
};

const UDP_NO_LISTENER: Check = Check {
    id: "udp-no-listener",
    title: "UDP datagrams arrive for ports without a listener (NoPorts)",
    severity: Severity::Warning,
    why: "Each costs a lookup and an ICMP answer, up to the limit of answers, and nobody gets it: the receiver is down, or it is a flood.",
    source: "__udp4_lib_rcv in net/ipv4/udp.c; RFC 1122, 3.2.2.1",
    more: "Reads Udp NoPorts in /proc/net/snmp and Udp6NoPorts in snmp6 twice, some seconds apart: it \
           is a finding from 100 a second. No counter has the port: the ICMP answers have, `tcpdump \
           -ni any 'icmp[0] = 3 and icmp[1] = 3'`.\n\n\
           There is no automatic fix: start the receiver, stop the sender, or drop the port before \
           the stack (nftables' ingress hook, XDP).",
    counters: &[SNMP, SNMP6],
    run: no_listener,
};

/// Every UDP socket, those that lost most first; none for a kernel that does not list them.
fn receivers(lists: &Lists<'_>) -> Option<Vec<Counted>> {
    let (before, after) = lists.before.udp.as_ref().zip(lists.after.udp.as_ref())?;
    Some(counted(before, after))
}

/// The first of these sockets as evidence, and the owner of the first.
fn named(
    context: &Context,
    losing: &[&Counted],
    seconds: f64,
) -> Result<(Vec<Evidence>, Option<String>)> {
    let losing = &losing[..losing.len().min(MOST_NAMED)];
    let inodes: BTreeSet<_> = losing.iter().map(|it| it.socket.inode).collect();
    let processes = Processes::of(context, &inodes)?;
    let one = |it: &&Counted| {
        let owner = processes.owner(it.socket.inode);
        let source = format!("sock_diag, drops of {}, {owner}", it.local());
        let (lost, buffer) = (rate(it.lost.into(), seconds), it.memory().rcvbuf);
        Evidence::new(source, format!("{lost}, receive buffer {buffer}"))
    };
    let first = losing.first().map(|it| processes.owner(it.socket.inode));
    Ok((losing.iter().map(one).collect(), first))
}

fn receive_buffer(context: &Context) -> Result<Vec<Verdict>> {
    let moved = Moved::read(
        context,
        &[(SNMP, "Udp.RcvbufErrors"), (SNMP6, "Udp6.RcvbufErrors")],
    )?;
    let mut evidence = moved.evidence()?;
    if moved.by() == 0 {
        return Ok(fine_all(evidence));
    }
    let lists = context.lists()?;
    let all = receivers(&lists).unwrap_or_default();
    let losing: Vec<_> = all.iter().filter(|it| it.lost > 0).collect();
    let (sockets, owner) = named(context, &losing, lists.seconds)?;
    evidence.extend(sockets);
    let limit = context.read_if_there(RMEM_MAX)?;
    evidence.extend(limit.iter().map(|limit| Evidence::new(RMEM_MAX, limit)));
    let by = match (losing.first(), owner) {
        (Some(it), Some(owner)) => format!("most at {} of {owner}", it.local()),
        _ => "at sockets that are closed since, or not listed here".into(),
    };
    let buffer = losing.first().map(|it| it.memory().rcvbuf);
    let message = format!(
        "{} datagrams were lost {}, {by}.",
        moved.by(),
        moved.period()
    );
    let fix = larger_buffer(context, limit.as_deref(), buffer.map(u64::from));
    Ok(found(evidence, message, fix))
}

/// The fix for a receive buffer of this size under a limit.
fn larger_buffer(context: &Context, limit: Option<&str>, buffer: Option<u64>) -> Fix {
    let value = limit.and_then(|limit| limit.parse::<u64>().ok());
    // The kernel doubles the size that a process asks for.
    let at_limit = buffer
        .zip(value)
        .is_some_and(|(buffer, most)| buffer >= 2 * most);
    match (limit, value) {
        (Some(limit), Some(value)) if at_limit && value < ENOUGH_RMEM => {
            let set = Fix::write(RMEM_MAX, limit, ENOUGH_RMEM.to_string());
            if context.is_initial_netns() {
                return set;
            }
            Fix::manual(
                "in the initial network namespace `sysctl -w net.core.rmem_max=4194304`; then start the process again",
            )
        }
        (_, Some(value)) if value < ENOUGH_RMEM => Fix::manual(format!(
            "have the process ask for a larger buffer with SO_RCVBUF, which net.core.rmem_max limits to {value} bytes (212992 is the kernel's default before Linux 6.17): `sysctl -w net.core.rmem_max=4194304`, undo with {value}; or read faster"
        )),
        (_, Some(value)) => Fix::manual(format!(
            "have the process ask for a larger buffer with SO_RCVBUF, which net.core.rmem_max limits to {value} bytes; or read faster: a CPU of its own, recvmmsg(2), several sockets with SO_REUSEPORT"
        )),
        (_, None) => Fix::manual(
            "have the process ask for a larger buffer with SO_RCVBUF, or read faster: a CPU of its own, recvmmsg(2), several sockets with SO_REUSEPORT",
        ),
    }
}

fn reuseport(context: &Context) -> Result<Vec<Verdict>> {
    let lists = context.lists()?;
    let Some(all) = receivers(&lists) else {
        return Ok(unchecked(NO_UDP_DIAG));
    };
    let mut groups: BTreeMap<(SocketAddr, u32), Vec<&Counted>> = BTreeMap::new();
    for it in all.iter().filter(|it| it.socket.remote_port == 0) {
        let group = (it.local(), it.socket.device);
        groups.entry(group).or_default().push(it);
    }
    groups.retain(|_, group| group.len() > 1);
    let is_idle = |it: &&&Counted| it.lost == 0 && it.memory().rmem_alloc == 0;
    let unbalanced = groups.iter().find_map(|((local, _), group)| {
        let idle = group.iter().filter(is_idle).count();
        let losing: Vec<_> = group.iter().filter(|it| it.lost > 0).copied().collect();
        (idle > 0 && !losing.is_empty()).then_some((local, group.len(), idle, losing))
    });
    let Some((local, sockets, idle, losing)) = unbalanced else {
        let value = format!(
            "{} shared by several sockets, none unbalanced",
            groups.len()
        );
        return Ok(fine_all(vec![Evidence::new("sock_diag, UDP ports", value)]));
    };
    let (mut evidence, owner) = named(context, &losing, lists.seconds)?;
    evidence.push(Evidence::new(
        format!("sock_diag, sockets of {local} without drops or datagrams"),
        format!("{idle} of {sockets}"),
    ));
    let lost: u64 = losing.iter().map(|it| u64::from(it.lost)).sum();
    let message = format!(
        "{} of the {sockets} sockets of {local}, {}, lost {lost} datagrams {}, while {idle} were idle.",
        losing.len(),
        owner.unwrap_or_default(),
        period(lost, lists.seconds)
    );
    let fix = "have the process choose the socket (SO_ATTACH_REUSEPORT_CBPF or _EBPF, by CPU or at random), or hand datagrams over between its threads";
    Ok(found(evidence, message, Fix::manual(fix)))
}

fn no_listener(context: &Context) -> Result<Vec<Verdict>> {
    let moved = Moved::read(context, &[(SNMP, "Udp.NoPorts"), (SNMP6, "Udp6.NoPorts")])?;
    let evidence = moved.evidence()?;
    if (moved.by() as f64) < NO_LISTENER_A_SECOND * moved.seconds {
        return Ok(fine_all(evidence));
    }
    let message = format!(
        "{} datagrams found no socket at their port {}.",
        moved.by(),
        moved.period()
    );
    let fix = "find the port with `tcpdump -ni any 'icmp[0] = 3 and icmp[1] = 3'`; start its receiver, stop the sender, or drop it in nftables' ingress hook or XDP";
    Ok(found(evidence, message, Fix::manual(fix)))
}
