//! Random rule sets and packets, biased to overlaps and to the edges of rules.

use std::net::IpAddr;

use pf_filter::analysis::{Assumption, Fact, Witness};
use pf_filter::host::{Host, Interface};
use pf_filter::parse::Dialect;
use pf_filter::rule::{Direction, Ruleset};
use pf_filter::source::Memory;

use crate::support;
use crate::support::choices::Random;

pub const INTERFACES: [&str; 4] = ["em0", "em1", "vlan7", "lo0"];

/// The host of the tests.
pub fn host() -> Host {
    let interface = |name: &str, groups: &[&str], addresses: &[&str]| Interface {
        name: name.into(),
        groups: groups.iter().map(|&group| group.into()).collect(),
        addresses: addresses
            .iter()
            .map(|address| address.parse().expect("an address"))
            .collect(),
        broadcast: None,
    };
    Host::with_interfaces(vec![
        interface("lo0", &[], &["127.0.0.1/8", "::1/128"]),
        interface("em0", &["egress"], &["192.0.2.1/28", "2001:db8::1/64"]),
        interface("em1", &["inside"], &["10.0.0.1/24"]),
        interface("vlan7", &["inside"], &["10.0.7.1/24", "10.0.7.9/24"]),
    ])
}

const ADDRESSES: [&str; 16] = [
    "any",
    "10.0.0.0/8",
    "10.0.0.0/24",
    "10.0.0.128/25",
    "10.0.0.5",
    "10.0.0.5 - 10.0.0.20",
    "192.0.2.0/28",
    "! 10.0.0.0/24",
    "2001:db8::/32",
    "2001:db8::1",
    "! 2001:db8::/64",
    "<few>",
    "! <few>",
    "<none>",
    "(em1)",
    "(em0:network)",
];
const PORTS: [&str; 8] = [
    "22",
    "80",
    "443",
    "1:1023",
    "!= 25",
    "> 1023",
    "79 >< 81",
    "53 <> 443",
];
const TAGS: [&str; 3] = ["RED", "BLUE", "GREEN"];

/// A random rule, as text.
fn rule(random: &mut Random, simple: bool) -> String {
    let kind = random.below(10);
    let action = match kind {
        0..=4 => "pass",
        5..=7 => random.pick(&["block", "block drop", "block return", "block return-icmp"]),
        _ => "match",
    };
    let mut words = vec![action.to_owned()];
    if random.chance(70) {
        words.push(random.pick(&["in", "out"]).to_owned());
    }
    if random.chance(15) {
        words.push(
            random
                .pick(&["log", "log (all)", "log (to pflog3)", "log (matches)"])
                .to_owned(),
        );
    }
    if random.chance(if action == "match" { 5 } else { 25 }) {
        words.push("quick".into());
    }
    if random.chance(30) {
        words.push(format!(
            "on {}",
            random.pick(&["em0", "em1", "inside", "! em0", "egress", "any"])
        ));
    }
    if random.chance(25) {
        words.push(random.pick(&["inet", "inet6"]).to_owned());
    }
    let protocol = random.pick(&[
        "",
        "",
        "tcp",
        "tcp",
        "udp",
        "{ tcp, udp }",
        "icmp",
        "icmp6",
        "gre",
        "ah",
    ]);
    if !protocol.is_empty() {
        words.push(format!("proto {protocol}"));
    }
    let ports = matches!(protocol, "tcp" | "udp" | "{ tcp, udp }");
    for (name, likely) in [("from", 60), ("to", 60)] {
        let address = if random.chance(likely) {
            random.pick(&ADDRESSES)
        } else {
            "any"
        };
        let port = if ports && random.chance(45) {
            format!(" port {}", random.pick(&PORTS))
        } else {
            String::new()
        };
        words.push(format!("{name} {address}{port}"));
    }
    if protocol == "tcp" && random.chance(25) {
        words.push(format!(
            "flags {}",
            random.pick(&["any", "S/SA", "R/R", "/SFRA", "SF/SFRA", "A/A"])
        ));
    }
    if protocol == "icmp" && random.chance(50) {
        words.push(format!(
            "icmp-type {}",
            random.pick(&[
                "echoreq",
                "echorep",
                "unreach",
                "unreach code port-unr",
                "{ echoreq, timex }"
            ])
        ));
    }
    if protocol == "icmp6" && random.chance(50) {
        words.push(format!(
            "icmp6-type {}",
            random.pick(&["echoreq", "echorep", "toobig", "neighbradv"])
        ));
    }
    for (percent, choices) in [
        (5, &["tos lowdelay", "tos 0x28"][..]),
        (4, &["prio 3", "prio 5"][..]),
        (5, &["fragment"][..]),
        (5, &["received-on em0", "! received-on inside"][..]),
    ] {
        if random.chance(percent) {
            words.push(random.pick(choices).to_owned());
        }
    }
    if action == "pass" {
        for (percent, choices) in [
            (
                30,
                &[
                    "no state",
                    "keep state",
                    "modulate state",
                    "synproxy state",
                    "keep state (sloppy)",
                    "keep state (max 100)",
                ][..],
            ),
            (10, &["allow-opts"][..]),
        ] {
            if random.chance(percent) {
                words.push(random.pick(choices).to_owned());
            }
        }
    }
    if !simple {
        if random.chance(20) {
            words.push(format!("tag {}", random.pick(&TAGS)));
        }
        if random.chance(20) {
            words.push(format!(
                "{}tagged {}",
                random.pick(&["", "! "]),
                random.pick(&TAGS)
            ));
        }
        if action == "match" && random.chance(40) {
            words.push(
                random
                    .pick(&[
                        "nat-to 192.0.2.1",
                        "nat-to 192.0.2.1 static-port",
                        "rdr-to 10.0.0.5",
                        "rdr-to 10.0.0.5 port 80",
                        "set prio 4",
                        "set tos 0x10",
                    ])
                    .to_owned(),
            );
        }
        if random.chance(4) {
            words.push(
                random
                    .pick(&["probability 30%", "once", "max-pkt-rate 100/10"])
                    .to_owned(),
            );
        }
    }
    words.join(" ")
}

fn rules(random: &mut Random, count: usize, depth: usize, simple: bool, lines: &mut Vec<String>) {
    for at in 0..count {
        if depth < 3 && random.chance(8) {
            let quick = random.pick(&["", "quick "]);
            let direction = random.pick(&["", "in ", "out "]);
            let on = random.pick(&["", "on em0 ", "on inside "]);
            let from = random.pick(&["", "from 10.0.0.0/8 to any ", "from any to 10.0.0.0/24 "]);
            let tagged = if simple {
                ""
            } else {
                random.pick(&["", "", "tagged RED ", "tag BLUE "])
            };
            lines.push(format!(
                "anchor \"a{depth}x{at}\" {direction}{quick}{on}{from}{tagged}{{"
            ));
            let inner = 1 + random.below(4);
            rules(random, inner, depth + 1, simple, lines);
            lines.push("}".into());
        } else {
            lines.push(rule(random, simple));
        }
    }
}

/// Lines of a random configuration of so many rules.
pub fn configuration(random: &mut Random, count: usize, simple: bool) -> Vec<String> {
    let mut lines = vec![
        "table <few> const { 10.0.0.0/24, !10.0.0.16/28, 10.0.0.18, 2001:db8::/48 }".to_owned(),
        "table <none> const { }".to_owned(),
    ];
    if random.chance(20) {
        lines.push("set skip on lo".into());
    }
    if random.chance(20) {
        lines.push("set reassemble no".into());
    }
    rules(random, count, 0, simple, &mut lines);
    lines
}

/// The same with one to three lines of rules dropped, added, moved or changed.
pub fn edited(random: &mut Random, lines: &[String], simple: bool) -> Vec<String> {
    let mut lines = lines.to_vec();
    for _ in 0..=random.below(3) {
        let plain: Vec<usize> = (0..lines.len())
            .filter(|&at| {
                ["pass", "block", "match"]
                    .iter()
                    .any(|word| lines[at].starts_with(word))
            })
            .collect();
        if plain.is_empty() {
            break;
        }
        let at = plain[random.below(plain.len())];
        match random.below(4) {
            0 => drop(lines.remove(at)),
            1 => lines.insert(at, rule(random, simple)),
            2 => {
                let line = lines.remove(at);
                let to = plain[random.below(plain.len())].min(lines.len());
                lines.insert(to, line);
            }
            _ => lines[at] = rule(random, simple),
        }
    }
    lines
}

/// Reads a configuration; rules with errors are left out.
pub fn read(lines: &[String], host: &Host) -> Ruleset {
    let text = lines.join("\n") + "\n";
    support::read(text, Dialect::OpenBsd, host, &mut Memory::default()).ruleset
}

fn address(random: &mut Random, inet6: bool) -> IpAddr {
    let base: &str = if inet6 {
        random.pick(&[
            "2001:db8::1",
            "2001:db8::ffff:ffff:ffff:ffff",
            "2001:db9::",
            "::1",
            "fe80::1",
            "2001:db8:1::",
        ])
    } else {
        random.pick(&[
            "10.0.0.0",
            "10.0.0.5",
            "10.0.0.20",
            "10.0.0.16",
            "10.0.0.18",
            "10.0.0.31",
            "10.0.0.127",
            "10.0.0.255",
            "10.255.255.255",
            "192.0.2.1",
            "192.0.2.15",
            "198.51.100.7",
            "127.0.0.1",
            "10.0.7.1",
        ])
    };
    let step = random.below(3) as i8 - 1;
    match base.parse().expect("an address") {
        IpAddr::V4(address) => IpAddr::V4(u32::from(address).wrapping_add(step as u32).into()),
        IpAddr::V6(address) => IpAddr::V6(u128::from(address).wrapping_add(step as u128).into()),
    }
}

fn port(random: &mut Random) -> u16 {
    let base: u16 = [22, 25, 53, 79, 80, 443, 1023, 40_000][random.below(8)];
    (base + random.below(3) as u16).saturating_sub(1).max(1)
}

/// A random packet.
pub fn packet(random: &mut Random, facts: &[Assumption]) -> Witness {
    let inet6 = random.chance(30);
    let protocol = match random.below(10) {
        0..=3 => 6,
        4..=5 => 17,
        6..=7 if inet6 => 58,
        6..=7 => 1,
        _ => [47, 50, 99, 2][random.below(4)],
    };
    let icmp: &[u8] = if inet6 {
        &[1, 2, 3, 128, 129, 136, 135, 137, 139, 140, 200, 5]
    } else {
        &[0, 3, 5, 8, 9, 10, 11, 13, 14, 15, 16, 17, 18, 30, 34, 36]
    };
    let direction = if random.chance(50) {
        Direction::In
    } else {
        Direction::Out
    };
    // A reassembled packet never gets to the rules as a fragment.
    let fragment = random.chance(5);
    let protocol = if fragment && inet6 { 44 } else { protocol };
    let received = direction == Direction::Out && random.chance(60);
    Witness {
        direction,
        interface: random.pick(&INTERFACES).to_owned(),
        received_on: received.then(|| random.pick(&INTERFACES).to_owned()),
        rdomain: 0,
        protocol,
        source: address(random, inet6),
        destination: address(random, inet6),
        source_port: port(random),
        destination_port: port(random),
        flags: [2, 2, 2, 16, 18, 4, 20, 17, 24, 66, 194, 1, 3, 0, 6][random.below(15)],
        icmp: (icmp[random.below(icmp.len())], random.below(4) as u8),
        tos: [0, 0, 0, 0x10, 0x28, 0xb8][random.below(6)],
        priority: [3, 3, 5, 0][random.below(4)],
        user: u32::MAX,
        group: u32::MAX,
        tag: if random.chance(25) {
            Some(random.pick(&TAGS).to_owned())
        } else {
            None
        },
        options: random.chance(10),
        fragment,
        facts: facts
            .iter()
            .map(|fact| (fact.clone(), holds(fact)))
            .collect(),
    }
}

/// Whether a fact holds for an interpreter that was just made and lets all probabilities hold.
pub fn holds(fact: &Assumption) -> bool {
    fact.fact == Fact::Other
        && ["probability", "once", "max-pkt-rate"]
            .iter()
            .any(|word| fact.text.starts_with(word))
}
