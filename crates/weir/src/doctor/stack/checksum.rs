//! Packets with a wrong checksum.

use anyhow::Result;

use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::fix::Fix;
use crate::doctor::host::setting::{fine_all, found};
use crate::doctor::mib;
use crate::doctor::mib::{Moved, NETSTAT, SNMP, SNMP6};
use crate::doctor::severity::Severity;
use crate::doctor::verdict::Verdict;

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[CHECKSUM_ERRORS];

const CHECKSUM_ERRORS: Check = Check {
    id: "checksum-errors",
    title: "packets have wrong checksums (InCsumErrors)",
    severity: Severity::Critical,
    why: "The stack drops them. Bad cables and memory do it, but most often a program or a device that left the checksum to an offload that nothing does.",
    source: "__udp4_lib_rcv in net/ipv4/udp.c; tcp_v4_rcv in net/ipv4/tcp_ipv4.c; Documentation/networking/checksum-offloads.rst",
    more: "Reads InCsumErrors of Udp, Tcp and Icmp in /proc/net/snmp, of IpExt in netstat, and of UDP \
           and ICMP over IPv6 in snmp6 twice, some seconds apart: it is a finding from one a second.\n\n\
           There is no single fix. Packets that an XDP program redirects from a container: \
           guest-offloads. A tunnel, a bridge in user space or a generator: `ethtool -K DEV tx off` \
           where they are sent. One sender behind a real cable: the cable, its card, the switch \
           between. `tcpdump -vvni DEV` marks them (bad cksum), except those that this host sends.",
    counters: mib::FILES,
    run: checksums,
};

const COUNTERS: [(&str, &str); 6] = [
    (SNMP, "Udp.InCsumErrors"),
    (SNMP, "Tcp.InCsumErrors"),
    (SNMP, "Icmp.InCsumErrors"),
    (NETSTAT, "IpExt.InCsumErrors"),
    (SNMP6, "Udp6.InCsumErrors"),
    (SNMP6, "Icmp6.InCsumErrors"),
];

fn checksums(context: &Context) -> Result<Vec<Verdict>> {
    let moved = Moved::read(context, &COUNTERS)?;
    let evidence = moved.evidence()?;
    if (moved.by() as f64) < moved.seconds {
        return Ok(fine_all(evidence));
    }
    let message = format!(
        "{} packets had a wrong checksum {}.",
        moved.by(),
        moved.period()
    );
    let fix = "see where they come from with `tcpdump -vvni DEV` (bad cksum); if a container, a tunnel or a program sends them, `ethtool -K DEV tx off` on its device; undo with `tx on`";
    Ok(found(evidence, message, Fix::manual(fix)))
}
