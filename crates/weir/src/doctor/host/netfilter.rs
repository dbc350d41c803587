//! Rules of iptables and nftables that packets meet, or do not.

use anyhow::Result;
use hostnet::nfnetlink;

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
        let names = nfnetlink::tables()?;
        if !names.is_empty() {
            found.push(Evidence::new(NFTABLES, names.join(" ")));
        }
    }
    Ok(found)
}
