//! Rules of netfilter that frames between a bridge's ports meet: the fast path would skip them.

use std::fs;

use hostnet::nfnetlink::{self, ARP, BRIDGE, INET, IPV4, IPV6, NETDEV};
use hostnet::rtnetlink::BridgeSettings;

/// A protocol whose frames on a bridge `br_netfilter` hands to its rules.
struct Protocol {
    sysctl: &'static str,
    family: u8,
    /// The tables of iptables without nftables.
    legacy: &'static str,
    rules: &'static str,
}

const PROTOCOLS: [Protocol; 3] = [
    Protocol {
        sysctl: "bridge-nf-call-iptables",
        family: IPV4,
        legacy: "ip_tables_names",
        rules: "iptables",
    },
    Protocol {
        sysctl: "bridge-nf-call-ip6tables",
        family: IPV6,
        legacy: "ip6_tables_names",
        rules: "ip6tables",
    },
    Protocol {
        sysctl: "bridge-nf-call-arptables",
        family: ARP,
        legacy: "arp_tables_names",
        rules: "arptables",
    },
];

/// Why the frames of a bridge meet rules, in the calling thread's network namespace; none where they meet
/// none. Tables of ebtables without nftables are not seen.
///
/// # Errors
///
/// Where nftables cannot be asked.
pub fn rules(bridge: &BridgeSettings) -> hostnet::Result<Option<String>> {
    let hooked = nfnetlink::hooked_families()?;
    if hooked.contains(&BRIDGE) {
        return Ok(Some(
            "nftables has base chains of the family bridge (`nft list ruleset bridge`)".into(),
        ));
    }
    if hooked.contains(&NETDEV) {
        return Ok(Some(
            "nftables has base chains of the family netdev (`nft list ruleset netdev`)".into(),
        ));
    }
    let calls = [
        bridge.nf_call_iptables,
        bridge.nf_call_ip6tables,
        bridge.nf_call_arptables,
    ];
    for (protocol, called) in PROTOCOLS.iter().zip(calls) {
        let sysctl = fs::read_to_string(format!("/proc/sys/net/bridge/{}", protocol.sysctl));
        let called = called || sysctl.is_ok_and(|value| value.trim() != "0");
        let of_family =
            hooked.contains(&protocol.family) || (protocol.family != ARP && hooked.contains(&INET));
        let tables = fs::read_to_string(format!("/proc/thread-self/net/{}", protocol.legacy));
        let legacy = tables.is_ok_and(|names| !names.trim().is_empty());
        if called && (of_family || legacy) {
            return Ok(Some(format!(
                "frames pass the rules of {} (`sysctl net.bridge.{}=0` exempts them)",
                protocol.rules, protocol.sysctl
            )));
        }
    }
    Ok(None)
}
