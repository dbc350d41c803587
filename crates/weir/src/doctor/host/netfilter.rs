//! Rules of iptables and nftables that packets meet, or do not.

use anyhow::{Context as _, Result};
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};
use rustix::io::Errno;

use super::setting::{fine, fine_all, found, write};
use crate::doctor::context::LinkBrief;
use crate::doctor::{Check, Context, Evidence, Fix, Severity, Verdict};

const BRIDGE_NF: [&str; 3] = [
    "/proc/sys/net/bridge/bridge-nf-call-iptables",
    "/proc/sys/net/bridge/bridge-nf-call-ip6tables",
    "/proc/sys/net/bridge/bridge-nf-call-arptables",
];
const LEGACY: [&str; 3] = [
    "/proc/net/ip_tables_names",
    "/proc/net/ip6_tables_names",
    "/proc/net/arp_tables_names",
];
const NFTABLES: &str = "netlink, tables of nftables";

pub const BRIDGE_NETFILTER: Check = Check {
    id: "bridge-netfilter",
    title: "bridged packets go through iptables",
    severity: Severity::Advice,
    why: "Each packet that a bridge forwards passes the hooks of IP too; a fast path that forwards it in XDP passes by these rules.",
    source: "net/bridge/br_netfilter_hooks.c; Documentation/networking/bridge.rst, br_netfilter",
    more: "Where there is a bridge it reads net.bridge.bridge-nf-call-iptables, -ip6tables and \
           -arptables, and the tables of iptables and nftables.\n\n\
           Without any table the fix switches it off. With tables it does not: Docker and Kubernetes \
           rely on it to keep containers apart, so that is yours to decide. Measure it with \
           `weir cost curve` over the path `bridge`.",
    run: bridge_netfilter,
};

pub const NETFILTER_BYPASS: Check = Check {
    id: "netfilter-bypass",
    title: "an XDP program works in front of the firewall",
    severity: Severity::Advice,
    why: "What an XDP program redirects, sends back or gives to an AF_XDP socket never meets a rule of iptables or nftables.",
    source: "Documentation/networking/af_xdp.rst; do_xdp_generic and sch_handle_ingress in net/core/dev.c",
    more: "It reads which devices of this network namespace have an XDP program, and the tables of \
           iptables and nftables. Either alone is no finding. Only you know whether what passes by \
           the rules is meant to.",
    run: netfilter_bypass,
};

fn bridge_netfilter(context: &Context) -> Result<Vec<Verdict>> {
    let is_bridge = |link: &&LinkBrief| link.kind.as_deref() == Some("bridge");
    let bridges: Vec<_> = context.links()?.iter().filter(is_bridge).collect();
    let Some(bridge) = bridges.first() else {
        return Ok(Vec::new());
    };
    let mut evidence = Vec::new();
    let mut steps = Vec::new();
    for path in BRIDGE_NF {
        let Some(value) = context.read_if_there(path)? else {
            continue;
        };
        evidence.push(Evidence::new(path, &value));
        if value != "0" {
            steps.push(write(path, &value, "0"));
        }
    }
    if evidence.is_empty() {
        return Ok(fine(
            BRIDGE_NF[0],
            "no such file: br_netfilter is not there",
        ));
    }
    if steps.is_empty() {
        return Ok(fine_all(evidence));
    }
    evidence.push(Evidence::new(
        "netlink, a device of kind bridge",
        &bridge.name,
    ));
    let tables = tables(context)?;
    if tables.is_empty() {
        let message = "No table has a rule, so the packets pass the hooks for nothing.";
        return Ok(found(evidence, message, Fix::Steps(steps)));
    }
    evidence.extend(tables);
    let message = "Rules see bridged packets now, and would not those that a fast path forwards.";
    let fix = "if no rule is meant for bridged packets: `sysctl -w net.bridge.bridge-nf-call-iptables=0`, and so the others; back with =1";
    Ok(found(evidence, message, Fix::Text(fix.into())))
}

fn netfilter_bypass(context: &Context) -> Result<Vec<Verdict>> {
    let with_program = |link: &LinkBrief| {
        let id = link.xdp_program?;
        let source = format!("netlink, XDP program of {}", link.name);
        Some(Evidence::new(source, format!("id {id}")))
    };
    let mut programs: Vec<_> = context.links()?.iter().filter_map(with_program).collect();
    if programs.is_empty() {
        return Ok(Vec::new());
    }
    let tables = tables(context)?;
    if tables.is_empty() {
        return Ok(fine_all(programs));
    }
    programs.extend(tables);
    let message = "Packets that the program takes away never meet these rules.";
    let fix =
        "nothing if that is meant; else let the program pass (XDP_PASS) what the rules are for";
    Ok(found(programs, message, Fix::Text(fix.into())))
}

/// The tables of all kinds that there are in this network namespace.
fn tables(context: &Context) -> Result<Vec<Evidence>> {
    let mut found = Vec::new();
    for path in LEGACY {
        let names = context.read_if_there(path)?.unwrap_or_default();
        let names: Vec<_> = names.split_whitespace().collect();
        if !names.is_empty() {
            found.push(Evidence::new(path, names.join(" ")));
        }
    }
    if context.is_host() {
        let names = nftables().context("cannot list the tables of nftables: run as root")?;
        if !names.is_empty() {
            found.push(Evidence::new(NFTABLES, names.join(" ")));
        }
    }
    Ok(found)
}

/// Of `linux/netfilter/nfnetlink.h` and `nf_tables.h`.
const SUBSYSTEM_NFTABLES: u16 = 10;
const GET_TABLE: u16 = 1;
const TABLE_NAME: u16 = 1;
/// Of linux/netlink.h.
const REQUEST_DUMP: u16 = 0x301;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const HEADER: usize = 16;
/// `struct nfgenmsg`.
const GENERIC: usize = 4;
const ATTRIBUTE: usize = 4;

/// The names of the tables of nftables.
fn nftables() -> Result<Vec<String>> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&table_request(), 0)?;
    let mut names = Vec::new();
    loop {
        let (answer, _) = socket.recv_from_full()?;
        if tables_in(&answer, &mut names)? {
            return Ok(names);
        }
    }
}

/// A request for all tables of all families.
fn table_request() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + GENERIC);
    bytes.extend(((HEADER + GENERIC) as u32).to_ne_bytes());
    bytes.extend((SUBSYSTEM_NFTABLES << 8 | GET_TABLE).to_ne_bytes());
    bytes.extend(REQUEST_DUMP.to_ne_bytes());
    // Sequence and port, then family, version and resource: all zero.
    bytes.resize(HEADER + GENERIC, 0);
    bytes
}

/// Adds the names in an answer. Gives whether it was the last.
fn tables_in(mut answer: &[u8], names: &mut Vec<String>) -> Result<bool> {
    while let Some((length, kind, payload)) = message(answer) {
        match kind {
            DONE => return Ok(true),
            ERROR => {
                let code = payload
                    .first_chunk()
                    .map_or(0, |bytes| i32::from_ne_bytes(*bytes));
                // A kernel without nftables has no such subsystem.
                if [Errno::OPNOTSUPP, Errno::INVAL]
                    .map(|it| -it.raw_os_error())
                    .contains(&code)
                {
                    return Ok(true);
                }
                return Err(std::io::Error::from_raw_os_error(-code).into());
            }
            _ => names.extend(name_in(payload.get(GENERIC..).unwrap_or_default())),
        }
        answer = answer.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// The first message in `bytes`: its length, its type and what it carries.
fn message(bytes: &[u8]) -> Option<(usize, u16, &[u8])> {
    let length = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    Some((length, kind, bytes.get(HEADER..length)?))
}

/// The name among the attributes of a table.
fn name_in(mut attributes: &[u8]) -> Option<String> {
    loop {
        let length = u16::from_ne_bytes(*attributes.first_chunk()?) as usize;
        let kind = u16::from_ne_bytes(*attributes.get(2..)?.first_chunk()?);
        let value = attributes.get(ATTRIBUTE..length)?;
        if kind == TABLE_NAME {
            let name = String::from_utf8_lossy(value);
            return Some(name.trim_end_matches('\0').to_owned());
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(kind: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER + payload.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.resize(HEADER, 0);
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn names_of_tables() -> Result<()> {
        let mut names = Vec::new();
        let mut attributes = vec![2, 0, 0, 0];
        attributes.extend(8u16.to_ne_bytes());
        attributes.extend(9u16.to_ne_bytes());
        attributes.extend([0; 4]);
        attributes.extend(8u16.to_ne_bytes());
        attributes.extend(TABLE_NAME.to_ne_bytes());
        attributes.extend(*b"nat\0");
        let mut bytes = answer(SUBSYSTEM_NFTABLES << 8, &attributes);
        assert!(!tables_in(&bytes, &mut names)?);
        bytes.extend(answer(DONE, &[0; 4]));
        assert!(tables_in(&bytes, &mut names)?);
        assert_eq!(names, ["nat", "nat"]);
        Ok(())
    }

    #[test]
    fn what_is_cut_off_is_no_table() -> Result<()> {
        let mut names = Vec::new();
        let whole = answer(
            SUBSYSTEM_NFTABLES << 8,
            &[2, 0, 0, 0, 8, 0, 1, 0, b'a', 0, 0, 0],
        );
        for length in 0..whole.len() {
            tables_in(&whole[..length], &mut names)?;
        }
        assert!(names.is_empty());
        let mut short = whole;
        short[HEADER + GENERIC] = 0;
        tables_in(&short, &mut names)?;
        assert!(names.is_empty());
        Ok(())
    }

    #[test]
    fn a_refusal_is_an_error() {
        let refusal = answer(ERROR, &(-1i32).to_ne_bytes());
        assert!(tables_in(&refusal, &mut Vec::new()).is_err());
    }
}
