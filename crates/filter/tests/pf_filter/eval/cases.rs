//! Cases: a rule set, packets in order, and the verdict of each.

use std::time::Duration;

use super::net::{HOST, Net};

/// A rule set with packets. A packet that begins with `+` is a number of seconds to wait.
pub struct Case {
    pub name: &'static str,
    pub conf: &'static str,
    pub packets: &'static [(&'static str, &'static str)],
}

/// Deviations from the expected results.
pub fn differences(case: &Case, net: &mut Net) -> Vec<String> {
    let mut differences = Vec::new();
    for (text, expected) in case.packets {
        if let Some(seconds) = text.strip_prefix('+') {
            net.engine
                .advance(Duration::from_secs(seconds.parse().expect("seconds")));
            continue;
        }
        let verdict = net.verdict(text);
        if verdict != *expected {
            differences.push(format!(
                "{}: {text}\n  expected {expected}, got {verdict}",
                case.name
            ));
        }
    }
    differences
}

#[test]
fn each_case_gets_its_verdict() {
    let found: Vec<String> = CASES
        .iter()
        .flat_map(|case| differences(case, &mut Net::with_host(case.conf, HOST)))
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

pub const CASES: &[Case] = &[
    Case {
        name: "the last match wins",
        conf: "block all\npass in proto tcp to port 22\nblock in from 10.0.0.66\n",
        packets: &[
            ("in tcp 10.0.0.5:4000 > 192.0.2.1:22", "pass @2"),
            ("in tcp 10.0.0.66:4000 > 192.0.2.1:22", "block @3"),
            ("in tcp 10.0.0.5:4000 > 192.0.2.1:23", "block @1"),
            ("out tcp 10.0.0.5:4001 > 192.0.2.1:22", "block @1"),
        ],
    },
    Case {
        name: "no rule: pass without a state",
        conf: "block in proto udp\n",
        packets: &[
            (
                "in tcp 10.0.0.5:4000 > 192.0.2.1:22 flags A",
                "pass no-rule",
            ),
            (
                "out tcp 192.0.2.1:22 > 10.0.0.5:4000 flags A",
                "pass no-rule",
            ),
            ("in udp 10.0.0.5:4000 > 192.0.2.1:53", "block @1"),
        ],
    },
    Case {
        name: "quick",
        conf: "pass in quick proto udp to port 53\nblock in\n",
        packets: &[
            ("in udp 10.0.0.5:4000 > 192.0.2.1:53", "pass @1"),
            ("in udp 10.0.0.5:4000 > 192.0.2.1:54", "block @2"),
        ],
    },
    Case {
        name: "quick in an anchor is final",
        conf: "anchor \"a\" {\nanchor \"b\" {\npass quick proto udp\n}\n}\nblock all\n",
        packets: &[
            ("in udp 10.0.0.5:4000 > 192.0.2.1:53", "pass @3"),
            ("in esp 10.0.0.5 > 192.0.2.1", "block @6"),
        ],
    },
    Case {
        name: "match quick stops, and decides nothing",
        conf: "pass no state\nmatch quick proto udp\nblock all\n",
        packets: &[
            ("in udp 10.0.0.5:1 > 192.0.2.1:53", "pass @1"),
            ("in esp 10.0.0.5 > 192.0.2.1", "block @3"),
        ],
    },
    Case {
        name: "match quick first: the default stands",
        conf: "match quick proto udp\nblock all\n",
        packets: &[("in udp 10.0.0.5:1 > 192.0.2.1:53", "pass no-rule")],
    },
    Case {
        name: "a tag is set by each rule that matches, and seen at once",
        conf: "block from 10.0.0.5 tag SEEN\nblock to 192.0.2.1\npass proto udp tagged SEEN\n",
        packets: &[
            ("in udp 10.0.0.5:1 > 192.0.2.1:53", "pass @3"),
            ("in udp 10.0.0.6:1 > 192.0.2.1:53", "block @2"),
        ],
    },
    Case {
        name: "the last tag holds, and an anchor's counts",
        conf: "block all\nmatch tag A\nanchor tag B {\nmatch tag C\n}\npass proto udp tagged C no state\n\
               pass proto esp tagged B no state\npass proto gre ! tagged A no state\n",
        packets: &[
            ("in udp 10.0.0.5:1 > 192.0.2.1:53", "pass @6"),
            ("in esp 10.0.0.5 > 192.0.2.1", "block @1"),
            ("in gre 10.0.0.5 > 192.0.2.1", "pass @8"),
        ],
    },
    Case {
        name: "set skip and packets of pf",
        conf: "set skip on { lo em1 }\nblock all\n",
        packets: &[
            ("in@em1 tcp 10.0.0.5:4000 > 10.0.0.1:22", "pass skip"),
            ("in@lo0 tcp 127.0.0.1:4000 > 127.0.0.1:22", "pass skip"),
            ("in tcp 10.0.0.5:4000 > 192.0.2.1:22", "block @2"),
            (
                "out tcp 192.0.2.1:22 > 10.0.0.5:4000 flags RA generated",
                "pass generated",
            ),
        ],
    },
    Case {
        name: "packets that no rule sees",
        conf: "pass\n",
        packets: &[
            ("in tcp 10.0.0.5:4000 > 192.0.2.1:0", "block port-0"),
            ("in udp 10.0.0.5:4000 > 192.0.2.1:0", "block port-0"),
            ("in tcp 10.0.0.5:0 > 192.0.2.1:22", "pass @1"),
            (
                "in tcp 10.0.0.5:4000 > 192.0.2.1:22 flags SR",
                "block tcp-syn-rst",
            ),
            (
                "in tcp 10.0.0.5:4000 > 192.0.2.1:22 flags none",
                "block tcp-no-flags",
            ),
            (
                "in tcp 10.0.0.5:4000 > 192.0.2.1:22 flags F",
                "block tcp-no-flags",
            ),
            (
                "in tcp 10.0.0.5:4000 > 192.0.2.1:22 flags SP",
                "block tcp-flags-without-ack",
            ),
            (
                "in tcp 10.0.0.5:4000 > 192.0.2.1:22 flags RU",
                "block tcp-flags-without-ack",
            ),
            (
                "in icmp6 10.0.0.5 > 192.0.2.1 icmp-type echoreq",
                "block icmp-of-other-family",
            ),
            (
                "in icmp 2001:db8::5 > 2001:db8::1 icmp-type echoreq",
                "block icmp-of-other-family",
            ),
            (
                "in icmp6 fe80::5 > ff02::1:ff00:1 icmp-type neighbrsol ttl 254",
                "block nd-hop-limit",
            ),
            (
                "in icmp6 fe80::5 > ff02::1:ff00:1 icmp-type neighbrsol",
                "pass @1",
            ),
            (
                "in icmp6 fe80::5 > ff02::1 icmp-type 137 ttl 64",
                "block nd-hop-limit",
            ),
            (
                "in icmp6 2001:db8::5 > ff02::1 icmp-type listqry",
                "block bad-mld",
            ),
            (
                "in icmp6 fe80::5 > ff02::1 icmp-type listqry ttl 2",
                "block bad-mld",
            ),
            ("in igmp 10.0.0.5 > 224.0.0.1 ttl 2", "block igmp-ttl"),
            ("in igmp 10.0.0.5 > 224.0.0.2 ttl 2", "pass @1"),
        ],
    },
    Case {
        name: "SYN and FIN: the FIN goes, so that no rule sees both",
        conf: "pass no state\nblock proto tcp flags SF/SFRA\n",
        packets: &[("in tcp 10.0.0.5:4000 > 192.0.2.1:22 flags SF", "pass @1")],
    },
    Case {
        name: "IP options need allow-opts",
        conf: "pass proto udp\npass proto esp allow-opts\nblock proto gre\n",
        packets: &[
            (
                "in udp 10.0.0.5:1 > 192.0.2.1:53 options",
                "block ip-options",
            ),
            ("in esp 10.0.0.5 > 192.0.2.1 options", "pass @2"),
            ("in gre 10.0.0.5 > 192.0.2.1 options", "block @3"),
            (
                "in tcp 10.0.0.5:1 > 192.0.2.1:22 options",
                "block ip-options",
            ),
            (
                "in udp 2001:db8::5 > 2001:db8::1:53 port 53 options",
                "block ip-options",
            ),
            ("in igmp 10.0.0.5 > 224.0.0.2 router-alert", "pass no-rule"),
            (
                "in udp 10.0.0.5:1 > 192.0.2.1:53 router-alert",
                "block ip-options",
            ),
            (
                "in icmp6 fe80::5 > ff02::1 icmp-type listqry router-alert",
                "pass no-rule",
            ),
        ],
    },
    Case {
        name: "a state without allow-opts drops options",
        conf: "pass in proto udp\n",
        packets: &[
            ("in udp 10.0.0.5:1 > 192.0.2.1:53", "pass @1"),
            (
                "in udp 10.0.0.5:1 > 192.0.2.1:53 options",
                "block state-ip-options",
            ),
        ],
    },
    Case {
        name: "fragments without reassembly match no ports",
        conf: "set reassemble no\nblock all\npass in proto udp to port 53\npass in proto udp from 10.0.0.7 fragment\n",
        packets: &[
            ("in udp 10.0.0.5 > 192.0.2.1 fragment", "block @2"),
            (
                "in udp 10.0.0.5 > 192.0.2.1 fragment offset 0 more",
                "block @2",
            ),
            ("in udp 10.0.0.7 > 192.0.2.1 fragment", "pass @4"),
            ("in udp 10.0.0.7:1 > 192.0.2.1:54", "block @2"),
            ("in udp 10.0.0.5:1 > 192.0.2.1:53", "pass @3"),
            (
                "in udp 10.0.0.5 > 192.0.2.1 fragment df",
                "block fragment-with-df",
            ),
        ],
    },
    Case {
        name: "without reassembly, flags and ICMP types of fragments",
        conf: "set reassemble no\nblock all\npass in proto tcp flags S/SA\npass in inet proto icmp icmp-type echoreq\n\
               pass in proto tcp from 10.0.0.9 flags any\n",
        packets: &[
            ("in tcp 10.0.0.5 > 192.0.2.1 fragment", "block @2"),
            ("in icmp 10.0.0.5 > 192.0.2.1 fragment", "block @2"),
            ("in tcp 10.0.0.9 > 192.0.2.1 fragment", "pass @5"),
        ],
    },
    Case {
        name: "flags are tested on TCP only",
        conf: "block all\npass in from 10.0.0.5\n",
        packets: &[
            ("in tcp 10.0.0.5:1 > 192.0.2.1:22 flags S", "pass @2"),
            ("in tcp 10.0.0.5:2 > 192.0.2.1:22 flags A", "block @1"),
            ("in tcp 10.0.0.5:3 > 192.0.2.1:22 flags SA", "block @1"),
            ("in tcp 10.0.0.5:4 > 192.0.2.1:22 flags SEW", "pass @2"),
            ("in udp 10.0.0.5:1 > 192.0.2.1:53", "pass @2"),
            ("in esp 10.0.0.5 > 192.0.2.1", "pass @2"),
        ],
    },
    Case {
        name: "flags any",
        conf: "block all\npass in proto tcp flags any\n",
        packets: &[("in tcp 10.0.0.5:1 > 192.0.2.1:22 flags A", "pass @2")],
    },
    Case {
        name: "tos without ECN",
        conf: "block all\npass in tos 0x10 no state\n",
        packets: &[
            ("in udp 10.0.0.5:1 > 192.0.2.1:53 tos 0x10", "pass @2"),
            ("in udp 10.0.0.5:1 > 192.0.2.1:53 tos 0x12", "pass @2"),
            ("in udp 10.0.0.5:1 > 192.0.2.1:53 tos 0x14", "block @1"),
        ],
    },
    Case {
        name: "ICMP answers are not matched by keep state",
        conf: "block log all\npass in proto icmp\n",
        packets: &[
            (
                "in icmp 10.0.0.5 > 192.0.2.1 icmp-type echorep id 7",
                "block @1",
            ),
            (
                "in icmp 10.0.0.5 > 192.0.2.1 icmp-type echoreq id 7",
                "pass @2",
            ),
            (
                "out icmp 192.0.2.1 > 10.0.0.5 icmp-type echorep id 7",
                "pass state",
            ),
            (
                "out icmp 192.0.2.1 > 10.0.0.5 icmp-type echorep id 8",
                "block @1",
            ),
            (
                "out icmp 192.0.2.1 > 10.0.0.5 icmp-type echoreq id 7",
                "block @1",
            ),
            // Identifier and type can be swapped only where they are equal.
            (
                "in icmp 10.0.0.5 > 192.0.2.1 icmp-type echoreq id 8",
                "pass @2",
            ),
            (
                "out icmp 192.0.2.1 > 10.0.0.5 icmp-type echoreq id 8",
                "block icmp-direction",
            ),
        ],
    },
    Case {
        name: "ICMP answers by no state, sloppy, or an earlier rule",
        conf: "pass proto icmp no state\npass in proto icmp\npass in proto icmp from 10.0.0.9 keep state (sloppy)\n",
        packets: &[
            (
                "in icmp 10.0.0.5 > 192.0.2.1 icmp-type echorep id 7",
                "pass @1",
            ),
            (
                "in icmp 10.0.0.5 > 192.0.2.1 icmp-type echoreq id 7",
                "pass @2",
            ),
            (
                "in icmp 10.0.0.9 > 192.0.2.1 icmp-type echorep id 7",
                "pass @3",
            ),
        ],
    },
    Case {
        name: "ICMP errors match rules, and make no state",
        conf: "block all\npass in inet proto icmp icmp-type unreach\n",
        packets: &[
            (
                "in icmp 10.0.0.5 > 192.0.2.1 icmp-type unreach code port-unr",
                "pass @2",
            ),
            ("in icmp 10.0.0.5 > 192.0.2.1 icmp-type timex", "block @1"),
        ],
    },
    Case {
        name: "codes of ICMP errors",
        conf: "block all\npass in inet proto icmp icmp-type unreach code port-unr\n",
        packets: &[
            (
                "in icmp 10.0.0.5 > 192.0.2.1 icmp-type unreach code port-unr",
                "pass @2",
            ),
            (
                "in icmp 10.0.0.5 > 192.0.2.1 icmp-type unreach code host-unr",
                "block @1",
            ),
        ],
    },
    Case {
        name: "neighbour advertisements match, and make no state",
        conf: "block all\npass inet6 proto icmp6 icmp6-type { neighbrsol neighbradv }\n",
        packets: &[
            (
                "in icmp6 fe80::5 > fe80::1 icmp-type neighbradv target fe80::5",
                "pass @2",
            ),
            (
                "in icmp6 fe80::5 > fe80::1 icmp-type neighbradv target fe80::5",
                "pass @2",
            ),
            (
                "in icmp6 fe80::5 > ff02::1:ff00:1 icmp-type neighbrsol target fe80::1",
                "pass @2",
            ),
            (
                "in icmp6 fe80::5 > ff02::1:ff00:1 icmp-type neighbrsol target fe80::1",
                "pass state",
            ),
        ],
    },
    Case {
        name: "proto ah matches only later fragments",
        conf: "set reassemble no\nblock all\npass proto ah\n",
        packets: &[("in ah 10.0.0.5 > 192.0.2.1 fragment", "pass @3")],
    },
    Case {
        name: "a state is oriented",
        conf: "block all\npass in on em0 proto tcp to port 22\n",
        packets: &[
            ("in tcp 10.0.0.5:4000 > 192.0.2.1:22", "pass @2"),
            ("in tcp 10.0.0.5:4000 > 192.0.2.1:22", "pass state"),
            ("out tcp 10.0.0.5:4000 > 192.0.2.1:22", "block @1"),
            (
                "in tcp 192.0.2.1:22 > 10.0.0.5:4000 flags SA ack 1001",
                "block @1",
            ),
            (
                "out tcp 192.0.2.1:22 > 10.0.0.5:4000 flags SA ack 1001",
                "pass state",
            ),
            (
                "out@em1 tcp 192.0.2.1:22 > 10.0.0.5:4000 flags SA ack 1001",
                "pass state",
            ),
        ],
    },
    Case {
        name: "a forwarded connection needs two states",
        conf: "block all\npass in on em1 proto tcp from 10.0.0.0/24\npass out on em0 proto tcp\n",
        packets: &[
            ("in@em1 tcp 10.0.0.5:4000 > 198.51.100.1:80", "pass @2"),
            (
                "out@em0 tcp 10.0.0.5:4000 > 198.51.100.1:80 received-on em1",
                "pass @3",
            ),
            (
                "in@em0 tcp 198.51.100.1:80 > 10.0.0.5:4000 flags SA seq 9000 ack 1001",
                "pass state",
            ),
            (
                "out@em1 tcp 198.51.100.1:80 > 10.0.0.5:4000 flags SA seq 9000 ack 1001",
                "pass state",
            ),
            (
                "in@em1 tcp 10.0.0.5:4000 > 198.51.100.1:80 flags A seq 1001 ack 9001",
                "pass state",
            ),
        ],
    },
    Case {
        name: "one state for in and out is not enough",
        conf: "block all\npass in on em1 proto tcp from 10.0.0.0/24\n",
        packets: &[
            ("in@em1 tcp 10.0.0.5:4000 > 198.51.100.1:80", "pass @2"),
            (
                "out@em0 tcp 10.0.0.5:4000 > 198.51.100.1:80 received-on em1",
                "block @1",
            ),
        ],
    },
    Case {
        name: "a state that is bound to its interface",
        conf: "block all\npass in on em0 proto udp keep state (if-bound)\n",
        packets: &[
            ("in udp 10.0.0.5:1 > 192.0.2.1:53", "pass @2"),
            ("out@em1 udp 192.0.2.1:53 > 10.0.0.5:1", "block @1"),
            ("out udp 192.0.2.1:53 > 10.0.0.5:1", "pass state"),
            ("in@em1 udp 10.0.0.5:1 > 192.0.2.1:53", "block @1"),
        ],
    },
    Case {
        name: "limits drop",
        conf: "set limit states 3\npass in proto udp to port 53 keep state (max 1)\npass in proto udp to port 54\n",
        packets: &[
            ("in udp 10.0.0.5:1 > 192.0.2.1:53", "pass @2"),
            ("in udp 10.0.0.5:2 > 192.0.2.1:53", "block state-limit"),
            ("in udp 10.0.0.5:1 > 192.0.2.1:53", "pass state"),
            ("in udp 10.0.0.5:1 > 192.0.2.1:54", "pass @3"),
            ("in udp 10.0.0.5:2 > 192.0.2.1:54", "pass @3"),
            ("in udp 10.0.0.5:3 > 192.0.2.1:54", "block state-pool"),
            ("in udp 10.0.0.5:3 > 192.0.2.1:55", "pass no-rule"),
        ],
    },
    Case {
        name: "limits of sources",
        conf: "pass in proto udp keep state (max-src-states 2, source-track rule)\n\
               pass in proto esp keep state (max-src-nodes 1, source-track rule)\n",
        packets: &[
            ("in udp 10.0.0.5:1 > 192.0.2.1:53", "pass @1"),
            ("in udp 10.0.0.5:2 > 192.0.2.1:53", "pass @1"),
            (
                "in udp 10.0.0.5:3 > 192.0.2.1:53",
                "block source-state-limit",
            ),
            ("in udp 10.0.0.6:3 > 192.0.2.1:53", "pass @1"),
            ("in esp 10.0.0.5 > 192.0.2.1", "pass @2"),
            ("in esp 10.0.0.5 > 192.0.2.2", "pass @2"),
            ("in esp 10.0.0.6 > 192.0.2.1", "block source-node-limit"),
            ("+61", ""),
            ("in esp 10.0.0.6 > 192.0.2.1", "pass @2"),
            ("in udp 10.0.0.5:3 > 192.0.2.1:53", "pass @1"),
        ],
    },
    Case {
        name: "answers",
        conf: "block return\nblock return-rst proto tcp to port 1\nblock return-icmp(host-unr) proto udp to port 2\n\
               block drop proto udp to port 3\n",
        packets: &[
            ("in tcp 10.0.0.5:1 > 192.0.2.1:9", "block @1 tcp 0x14"),
            ("in tcp 10.0.0.5:1 > 192.0.2.1:9 bad-checksum", "block @1"),
            (
                "in tcp 10.0.0.5:1 > 192.0.2.1:9 flags R",
                "block @1 icmp 3 3",
            ),
            ("in udp 10.0.0.5:1 > 192.0.2.1:9", "block @1 icmp 3 3"),
            (
                "in udp 2001:db8::5 > 2001:db8::1 port 9",
                "block @1 icmp 1 4",
            ),
            ("in esp 10.0.0.5 > 192.0.2.1", "block @1 icmp 3 3"),
            (
                "in icmp 10.0.0.5 > 192.0.2.1 icmp-type echoreq",
                "block @1 icmp 3 3",
            ),
            ("in icmp 10.0.0.5 > 192.0.2.1 icmp-type unreach", "block @1"),
            ("in tcp 10.0.0.5:1 > 192.0.2.1:1", "block @2 tcp 0x14"),
            ("in tcp 10.0.0.5:1 > 192.0.2.1:1 flags RA", "block @2"),
            ("in udp 10.0.0.5:1 > 192.0.2.1:2", "block @3 icmp 3 1"),
            ("in udp 10.0.0.5:1 > 192.0.2.1:3", "block @4"),
        ],
    },
    Case {
        name: "interfaces, groups, any and negation",
        conf: "block all\npass on egress proto udp to port 1 no state\npass on ! em0 proto udp to port 2 no state\n\
               pass on any proto udp to port 3 no state\npass on em proto udp to port 4 no state\n",
        packets: &[
            ("in udp 10.0.0.5:9 > 192.0.2.1:1", "pass @2"),
            ("in@em1 udp 10.0.0.5:9 > 192.0.2.1:1", "block @1"),
            ("in udp 10.0.0.5:9 > 192.0.2.1:2", "block @1"),
            ("in@em1 udp 10.0.0.5:9 > 192.0.2.1:2", "pass @3"),
            ("in@em1 udp 10.0.0.5:9 > 192.0.2.1:3", "pass @4"),
            ("in@lo0 udp 10.0.0.5:9 > 192.0.2.1:3", "block @1"),
            ("in@em1 udp 10.0.0.5:9 > 192.0.2.1:4", "pass @5"),
        ],
    },
    Case {
        name: "received-on",
        conf: "block all\npass out proto udp to port 1 received-on em1 no state\n\
               pass out proto udp to port 2 received-on em0 no state\n",
        packets: &[
            (
                "out udp 10.0.0.5:9 > 192.0.2.9:1 received-on em1",
                "pass @2",
            ),
            (
                "out udp 10.0.0.5:9 > 192.0.2.9:1 received-on em0",
                "block @1",
            ),
            ("out udp 10.0.0.5:9 > 192.0.2.9:1", "block @1"),
            (
                "out udp 10.0.0.5:9 > 192.0.2.9:2 received-on em0",
                "pass @3",
            ),
        ],
    },
    Case {
        name: "dynamic interface addresses, tables, ranges",
        conf: "table <good> { 10.0.0.0/8, !10.1.0.0/16, 10.1.2.0/24, !10.1.2.3 }\nblock all\n\
               pass proto udp from <good> to port 1 no state\npass proto udp from ! <good> to port 2 no state\n\
               pass proto udp to (em0) port 3 no state\npass proto udp to (em0:network) port 4 no state\n\
               pass proto udp from 10.2.0.10 - 10.2.0.20 to port 5 no state\n",
        packets: &[
            ("in udp 10.0.0.5:9 > 192.0.2.1:1", "pass @3"),
            ("in udp 10.1.0.5:9 > 192.0.2.1:1", "block @2"),
            ("in udp 10.1.2.5:9 > 192.0.2.1:1", "pass @3"),
            ("in udp 10.1.2.3:9 > 192.0.2.1:1", "block @2"),
            ("in udp 10.1.2.3:9 > 192.0.2.1:2", "pass @4"),
            ("in udp 10.0.0.5:9 > 192.0.2.1:2", "block @2"),
            ("in udp 10.0.0.5:9 > 192.0.2.1:3", "pass @5"),
            ("in udp 10.0.0.5:9 > 192.0.2.2:3", "block @2"),
            ("in udp 2001:db8::5 > 2001:db8::1 port 3", "pass @5"),
            ("in udp 10.0.0.5:9 > 192.0.2.200:4", "pass @6"),
            ("in udp 10.2.0.9:9 > 192.0.2.1:5", "block @2"),
            ("in udp 10.2.0.10:9 > 192.0.2.1:5", "pass @7"),
            ("in udp 10.2.0.20:9 > 192.0.2.1:5", "pass @7"),
            ("in udp 10.2.0.21:9 > 192.0.2.1:5", "block @2"),
        ],
    },
    Case {
        name: "a negated list matches everything",
        conf: "block all\npass proto udp from { !10.0.0.5, !10.0.0.6 } no state\n",
        packets: &[
            ("in udp 10.0.0.5:9 > 192.0.2.1:1", "pass @2"),
            ("in udp 10.0.0.6:9 > 192.0.2.1:1", "pass @2"),
        ],
    },
    Case {
        name: "ports",
        conf: "block all\npass proto udp to port 10:12 no state\npass proto udp to port 20 >< 22 no state\n\
               pass proto udp to port 30 <> 65000 no state\npass proto udp from port > 60000 to port 500 no state\n",
        packets: &[
            ("in udp 10.0.0.5:9 > 192.0.2.1:10", "pass @4"),
            ("in udp 10.0.0.5:9 > 192.0.2.1:12", "pass @4"),
            ("in udp 10.0.0.5:9 > 192.0.2.1:30", "block @1"),
            ("in udp 10.0.0.5:9 > 192.0.2.1:65001", "pass @4"),
            ("in udp 10.0.0.5:60000 > 192.0.2.1:500", "block @1"),
            ("in udp 10.0.0.5:60001 > 192.0.2.1:500", "pass @5"),
        ],
    },
    Case {
        name: "user, group, os, prio: only where known",
        conf: "block all\npass proto tcp to port 1 user root no state\npass proto tcp to port 2 group wheel no state\n\
               pass proto tcp to port 3 user unknown no state\npass proto tcp from any os OpenBSD to port 4 no state\n\
               pass proto udp to port 5 prio 6 no state\npass proto tcp to port 6 user > 999 no state\n",
        packets: &[
            ("in tcp 10.0.0.5:9 > 192.0.2.1:1 user root", "pass @2"),
            ("in tcp 10.0.0.5:9 > 192.0.2.1:1 user 1000", "block @1"),
            ("in tcp 10.0.0.5:9 > 192.0.2.1:1", "block @1"),
            ("in tcp 10.0.0.5:9 > 192.0.2.1:2 group 0", "pass @3"),
            ("in tcp 10.0.0.5:9 > 192.0.2.1:3 user unknown", "pass @4"),
            (
                "out tcp 10.0.0.5:9 > 192.0.2.1:3 received-on em1",
                "pass @4",
            ),
            ("in tcp 10.0.0.5:9 > 192.0.2.1:4 os \"OpenBSD\"", "pass @5"),
            ("in tcp 10.0.0.5:9 > 192.0.2.1:4", "block @1"),
            ("in udp 10.0.0.5:9 > 192.0.2.1:5 prio 6", "pass @6"),
            ("in udp 10.0.0.5:9 > 192.0.2.1:5", "block @1"),
            ("in tcp 10.0.0.5:9 > 192.0.2.1:6 user 1000", "pass @7"),
            ("in tcp 10.0.0.5:9 > 192.0.2.1:6 user unknown", "block @1"),
        ],
    },
    Case {
        name: "routes: only where known",
        conf: "pass no state\nblock from no-route\nblock from urpf-failed\n",
        packets: &[
            ("in udp 10.0.0.5:9 > 192.0.2.1:1", "pass @1"),
            (
                "in udp 10.0.0.5:9 > 192.0.2.1:1 source-route none urpf passed",
                "block @2",
            ),
            (
                "in udp 10.0.0.5:9 > 192.0.2.1:1 source-route some urpf failed",
                "block @3",
            ),
            (
                "in udp 10.0.0.5:9 > 192.0.2.1:1 source-route some urpf passed",
                "pass @1",
            ),
        ],
    },
    Case {
        name: "routing domains, whose negation never matches",
        conf: "block all\npass on rdomain 1 no state\npass on ! rdomain 2 no state\n",
        packets: &[
            ("in udp 10.0.0.5:9 > 192.0.2.1:1", "block @1"),
            ("in udp 10.0.0.5:9 > 192.0.2.1:1 rdomain 1", "pass @2"),
        ],
    },
    Case {
        name: "once",
        conf: "pass in quick proto udp once\nblock in proto udp\n",
        packets: &[
            ("in udp 10.0.0.5:9 > 192.0.2.1:1", "pass @1"),
            ("in udp 10.0.0.5:8 > 192.0.2.1:1", "block @2"),
            ("in udp 10.0.0.5:9 > 192.0.2.1:1", "pass state"),
        ],
    },
    Case {
        name: "max-pkt-rate",
        conf: "block all\npass in proto udp max-pkt-rate 2/10 no state\n",
        packets: &[
            ("in udp 10.0.0.5:9 > 192.0.2.1:1", "pass @2"),
            ("in udp 10.0.0.5:9 > 192.0.2.1:1", "pass @2"),
            ("in udp 10.0.0.5:9 > 192.0.2.1:1", "block @1"),
            ("+10", ""),
            ("in udp 10.0.0.5:9 > 192.0.2.1:1", "pass @2"),
        ],
    },
    Case {
        name: "UDP timeouts",
        conf: "block all\npass in proto udp\n",
        packets: &[
            ("in udp 10.0.0.5:9 > 192.0.2.1:1", "pass @2"),
            ("+59", ""),
            ("out udp 192.0.2.1:1 > 10.0.0.5:9", "pass state"),
            ("+29", ""),
            ("out udp 192.0.2.1:1 > 10.0.0.5:9", "pass state"),
            ("+30", ""),
            ("out udp 192.0.2.1:1 > 10.0.0.5:9", "block @1"),
        ],
    },
    Case {
        name: "UDP both ways",
        conf: "block all\npass in proto udp\n",
        packets: &[
            ("in udp 10.0.0.5:9 > 192.0.2.1:1", "pass @2"),
            ("out udp 192.0.2.1:1 > 10.0.0.5:9", "pass state"),
            ("in udp 10.0.0.5:9 > 192.0.2.1:1", "pass state"),
            ("out udp 192.0.2.1:1 > 10.0.0.5:9", "pass state"),
            ("+59", ""),
            ("out udp 192.0.2.1:1 > 10.0.0.5:9", "pass state"),
            ("+60", ""),
            ("out udp 192.0.2.1:1 > 10.0.0.5:9", "block @1"),
        ],
    },
    Case {
        name: "block policy holds from its line",
        conf: "block in proto udp to port 1\nset block-policy return\nblock in proto udp to port 2\n",
        packets: &[
            ("in udp 10.0.0.5:9 > 192.0.2.1:1", "block @1"),
            ("in udp 10.0.0.5:9 > 192.0.2.1:2", "block @3 icmp 3 3"),
        ],
    },
    Case {
        name: "antispoof",
        conf: "pass no state\nantispoof for em1\n",
        packets: &[
            ("in udp 10.0.0.5:9 > 192.0.2.1:1", "block @2"),
            ("in@em1 udp 10.0.0.5:9 > 192.0.2.1:1", "pass @1"),
            ("in@em1 udp 10.0.0.1:9 > 192.0.2.1:1", "block @2"),
        ],
    },
];
