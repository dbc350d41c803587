//! Tables about bridges.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, Row, presets};

use crate::report::text::{plain, table, unframed, wrap};
use crate::switch::daemon::Report;
use crate::switch::status::{BridgeStatus, HIDDEN, PortStatus};

/// All bridges.
pub fn bridges(reports: &[Report]) -> String {
    if reports.is_empty() {
        return "No bridge is attached: `weir switch attach BRIDGE`\n".into();
    }
    let texts = reports.iter().map(|report| match report {
        Report::Attached(status) => bridge(status),
        Report::Waiting { bridge, why } => {
            format!("{}: waits: {}\n", plain(bridge), plain(why))
        }
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// One bridge.
pub fn bridge(status: &BridgeStatus) -> String {
    let mut text = head(status);
    text += &ports(&status.ports);
    let has_xdp = status.ports.iter().any(|port| port.hook == "xdp");
    for port in &status.ports {
        text += &notes(port, has_xdp);
    }
    if !status.vlans.is_empty() {
        text += &vlans(status);
    }
    let _ = writeln!(text, "{}", wrap(HIDDEN, 0));
    if !status.pinned {
        text += "Without a BPF filesystem the programs end with the daemon.\n";
    }
    text
}

fn head(status: &BridgeStatus) -> String {
    let name = plain(&status.bridge);
    let mut text = match (&status.forwarding, &status.why_not) {
        (false, Some(why)) => format!("{name}: left to the kernel: {}\n", plain(why)),
        (false, None) => format!("{name}: left to the kernel\n"),
        (true, _) => format!("{name}: forwarding"),
    };
    if status.forwarding {
        let vlan = status.vlan_protocol.as_ref();
        let vlan = vlan.map_or_else(String::new, |it| format!(", VLAN-aware ({it})"));
        let _ = writeln!(
            text,
            "{vlan}, {} of {} addresses",
            status.addresses, status.room
        );
    }
    let mirror = &status.mirror;
    if mirror.not_mirrored > 0 {
        let _ = writeln!(text, "{} addresses found no room", mirror.not_mirrored);
    }
    text
}

fn ports(ports: &[PortStatus]) -> String {
    if ports.is_empty() {
        return "it has no ports\n".into();
    }
    let mut table = table(presets::NOTHING);
    table.set_header([
        "port", "hook", "state", "MACs", "received", "sent", "kernel", "dropped",
    ]);
    for port in ports {
        let dropped: u64 = DROPS
            .iter()
            .map(|name| port.reasons.get(*name).unwrap_or(&0))
            .sum();
        let all: u64 = port.reasons.values().sum();
        let figures = [
            u64::from(port.addresses),
            port.received.packets,
            port.sent.packets,
            all - dropped,
            dropped,
        ];
        let words = [port.port.as_str(), &port.hook, &port.state]
            .map(plain)
            .map(Cell::new);
        let figures = figures.map(|figure| Cell::new(figure).set_alignment(CellAlignment::Right));
        table.add_row(Row::from(words.into_iter().chain(figures)));
    }
    unframed(table) + "\n"
}

/// The reasons of drops.
const DROPS: [&str; 2] = ["storm", "mac-limit"];

fn notes(port: &PortStatus, has_xdp: bool) -> String {
    let mut text = String::new();
    let name = plain(&port.port);
    let _ = writeln!(
        text,
        "{}",
        wrap(&format!("{name}: {}: {}", port.hook, plain(&port.why)), 2)
    );
    if let Some(why) = port.no_redirect.as_ref().filter(|_| has_xdp) {
        let line = format!(
            "{name}: XDP ports cannot send to it, the kernel does: {}",
            plain(why)
        );
        let _ = writeln!(text, "{}", wrap(&line, 2));
    }
    if !port.reasons.is_empty() {
        let reasons = port
            .reasons
            .iter()
            .map(|(reason, count)| format!("{reason} {count}"));
        let line = format!(
            "{name}: not forwarded here: {}",
            reasons.collect::<Vec<_>>().join(", ")
        );
        let _ = writeln!(text, "{}", wrap(&line, 2));
    }
    text
}

fn vlans(status: &BridgeStatus) -> String {
    let mut table = table(presets::NOTHING);
    table.set_header(["VLAN", "packets", "bytes"]);
    let vlans = status.vlans.iter();
    let mut vlans: Vec<_> = vlans
        .map(|(vid, it)| (vid.parse().unwrap_or(0), it))
        .collect();
    vlans.sort_by_key(|(vid, _)| *vid);
    for (vid, traffic) in vlans {
        let figures: [u64; 3] = [vid, traffic.packets, traffic.bytes];
        let cells = figures.map(|figure| Cell::new(figure).set_alignment(CellAlignment::Right));
        table.add_row(Row::from(cells));
    }
    unframed(table) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::switch::Figures;
    use std::collections::BTreeMap;

    #[test]
    fn names_are_no_commands_to_the_terminal() {
        let name = "\u{1b}[2Jbr".to_owned();
        let mut status = BridgeStatus {
            bridge: name.clone(),
            forwarding: true,
            why_not: None,
            pinned: true,
            vlan_protocol: None,
            addresses: 0,
            room: 1,
            ports: Vec::new(),
            vlans: BTreeMap::new(),
            mirror: Figures::default(),
            news: Vec::new(),
        };
        let forwarding = bridge(&status);
        status.forwarding = false;
        let left = bridge(&status);
        status.why_not = Some("rules".into());
        let reports = [
            Report::Attached(Box::new(status)),
            Report::Waiting {
                bridge: name,
                why: "none".into(),
            },
        ];
        for text in [forwarding, left, bridges(&reports)] {
            assert!(
                text.starts_with("?[2Jbr: ") && !text.contains('\u{1b}'),
                "{text:?}"
            );
        }
    }
}
