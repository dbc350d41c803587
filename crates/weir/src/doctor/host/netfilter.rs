//! Rules of iptables and nftables, with bridges and with XDP.

use anyhow::Result;

use super::setting::{fine, fine_all, found};
use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::context::device::Device;
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::severity::Severity;
use crate::doctor::step::Step;
use crate::doctor::verdict::Verdict;

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

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[BRIDGE_NETFILTER, NETFILTER_BYPASS];

const BRIDGE_NETFILTER: Check = Check {
    id: "bridge-netfilter",
    title: "bridged packets traverse iptables",
    severity: Severity::Advice,
    why: "Every packet that a bridge forwards also traverses the IP hooks; a fast path that forwards it in XDP bypasses these rules.",
    source: "net/bridge/br_netfilter_hooks.c; Documentation/networking/bridge.rst, br_netfilter",
    more: "Reads, if there is a bridge, net.bridge.bridge-nf-call-iptables, -ip6tables and \
           -arptables, and the tables of iptables and nftables.\n\n\
           Without any table the fix turns it off. With tables it is manual: Docker and Kubernetes \
           use it to isolate containers. Measure the effect with `weir cost curve` over the path \
           `bridge`.",
    counters: &[],
    run: bridge_netfilter,
};

const NETFILTER_BYPASS: Check = Check {
    id: "netfilter-bypass",
    title: "XDP bypasses the firewall",
    severity: Severity::Advice,
    why: "Packets that an XDP program redirects, sends back or delivers to an AF_XDP socket never meet the rules of iptables or nftables.",
    source: "Documentation/networking/af_xdp.rst; do_xdp_generic and sch_handle_ingress in net/core/dev.c",
    more: "Reads the devices of this network namespace that have an XDP program, and the tables of \
           iptables and nftables. It is a finding if there are both, which may be intended.",
    counters: &[],
    run: netfilter_bypass,
};

fn bridge_netfilter(context: &Context) -> Result<Vec<Verdict>> {
    let is_bridge = |device: &&Device| device.kind() == Some("bridge");
    let Some(bridge) = context.devices()?.iter().find(is_bridge) else {
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
            steps.push(Step::write(path, &value, "0"));
        }
    }
    if evidence.is_empty() {
        return Ok(fine(
            BRIDGE_NF[0],
            "no such file: br_netfilter is not loaded",
        ));
    }
    if steps.is_empty() {
        return Ok(fine_all(evidence));
    }
    evidence.push(Evidence::new(
        "netlink, a device of kind bridge",
        bridge.name(),
    ));
    let tables = tables(context)?;
    if tables.is_empty() {
        let message = "There is no table of rules: the packets traverse the hooks for nothing.";
        return Ok(found(evidence, message, Fix::Steps(steps)));
    }
    evidence.extend(tables);
    let message = "Rules apply to bridged packets, but not to packets that a fast path forwards.";
    let fix = "if no rule is meant for bridged packets: `sysctl -w net.bridge.bridge-nf-call-iptables=0`, likewise -ip6tables and -arptables; undo with =1";
    Ok(found(evidence, message, Fix::manual(fix)))
}

fn netfilter_bypass(context: &Context) -> Result<Vec<Verdict>> {
    let with_program = |device: &Device| {
        let id = device.link.xdp_program?;
        let source = format!("netlink, XDP program of {}", device.name());
        Some(Evidence::new(source, format!("id {id}")))
    };
    let devices = context.devices()?.iter();
    let mut programs: Vec<_> = devices.filter_map(with_program).collect();
    if programs.is_empty() {
        return Ok(Vec::new());
    }
    let tables = tables(context)?;
    if tables.is_empty() {
        return Ok(fine_all(programs));
    }
    programs.extend(tables);
    let message = "Packets that the program does not pass on never meet these rules.";
    let fix = "none if that is intended; otherwise return XDP_PASS for packets that the rules are meant for";
    Ok(found(programs, message, Fix::manual(fix)))
}

/// All tables of iptables and nftables in this network namespace.
fn tables(context: &Context) -> Result<Vec<Evidence>> {
    let mut found = Vec::new();
    for path in LEGACY {
        let names = context.read_if_there(path)?.unwrap_or_default();
        let names: Vec<_> = names.split_whitespace().collect();
        if !names.is_empty() {
            found.push(Evidence::new(path, names.join(" ")));
        }
    }
    let names = context.nft_tables()?;
    if !names.is_empty() {
        found.push(Evidence::new(NFTABLES, names.join(" ")));
    }
    Ok(found)
}
