//! Configurations that are valid, or nearly so: each byte of [`Choices`] decides one thing.

use super::choices::Choices;

/// A host for the generated configurations, as `Host::parse` reads it.
pub const HOST: &str = r#"
rtables = [0, 1]

[[interfaces]]
name = "em0"
groups = ["egress"]
addresses = ["192.0.2.2/24", "192.0.2.3/24", "2001:db8::2/64", "fe80::2/64"]

[[interfaces]]
name = "em1"
addresses = ["10.1.0.1/16"]

[[interfaces]]
name = "gif0"
addresses = ["10.9.0.1 peer 10.9.0.2"]

[names]
"www.example.org" = ["192.0.2.80", "2001:db8::80"]
"v4.example.org" = ["192.0.2.81"]

[users]
alice = 1000

[services]
metrics = 9100
"#;

const INTERFACES: &[&str] = &["em0", "em1", "lo0", "egress", "gif0", "em"];
const HOSTS4: &[&str] = &[
    "192.0.2.1",
    "10/8",
    "10.1/16",
    "172.16.0.0/12",
    "192.0.2.77/28",
    "198.51.100.1 - 198.51.100.9",
    "0/0",
    "em1",
    "em1:network",
    "em1:broadcast",
    "gif0:peer",
    "v4.example.org",
    "em1:0",
];
const HOSTS6: &[&str] = &[
    "2001:db8::1",
    "2001:db8:1::/48",
    "fe80::1%em0",
    "::/0",
    "ff02::/16",
    "2001:db8::1 - 2001:db8::9",
    "::1",
];
const HOSTS: &[&str] = &[
    "em0",
    "em0:network",
    "em0:0",
    "em0:network:0",
    "egress",
    "self",
    "www.example.org",
    "localhost",
    "(em0)",
    "(em0:network)",
    "(em1:0)",
    "(egress:network)/24",
    "<trusted>",
    "<bad>",
    "no-route",
    "route \"up\"",
];
const PORTS: &[&str] = &[
    "22",
    "ssh",
    "http",
    "1024:65535",
    "1000 >< 2000",
    "1000 <> 2000",
    "!= 25",
    "> 1023",
    "<= 1024",
    "0:1",
    "metrics",
    "< 100",
    ">= 60000",
    "= 443",
];
const STATE_OPTIONS: &[&str] = &[
    "max 100",
    "no-sync",
    "source-track",
    "source-track rule",
    "max-src-states 3",
    "max-src-nodes 10",
    "if-bound",
    "floating",
    "sloppy",
    "pflow",
    "tcp.first 10",
    "udp.multiple 30",
    "max-src-conn 20, overload <bad> flush global",
    "max-src-conn-rate 5/10",
    "source-track global",
    "max 5, tcp.established 60",
];
const ICMP4: &[&str] = &[
    "echoreq",
    "8 code 0",
    "unreach code needfrag",
    "unreach code 200",
    "11",
    "200",
    "timex",
];
const ICMP6: &[&str] = &[
    "echoreq",
    "unreach code port-unr",
    "neighbrsol",
    "136",
    "toobig",
    "200 code 3",
];
const TOS: &[&str] = &["lowdelay", "0x10", "af21", "EF", "12", "cs0", "netcontrol"];

/// Names defined so far.
struct Writer<'c, 'b> {
    choices: &'c mut Choices<'b>,
    text: String,
    macros: usize,
    anchors: usize,
}

/// A configuration of a few statements.
pub fn configuration(choices: &mut Choices<'_>) -> String {
    let mut writer = Writer {
        choices,
        text: String::new(),
        macros: 0,
        anchors: 0,
    };
    writer.option();
    writer
        .text
        .push_str("table <trusted> { 192.0.2.0/24 !192.0.2.7 2001:db8::/32 }\n");
    while !writer.choices.is_empty() && writer.text.len() < 4000 {
        writer.statement(0);
    }
    writer.text
}

/// A rule without lists, names and options that only some hosts have, for comparisons of verdicts.
pub fn rule(choices: &mut Choices<'_>) -> String {
    let mut writer = Writer {
        choices,
        text: String::new(),
        macros: 0,
        anchors: 0,
    };
    writer.rule(0);
    writer.text
}

impl Writer<'_, '_> {
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn one_of(&mut self, all: &[&str]) {
        let text = *self.choices.pick(all);
        self.push(text);
    }

    fn sometimes(&mut self, of: usize, text: &str) {
        if self.choices.once_in(of) {
            self.push(text);
        }
    }

    fn statement(&mut self, depth: usize) {
        for _ in 0..depth {
            self.push("\t");
        }
        match self.choices.below(16) {
            8 if depth == 0 => self.definition(),
            9 if depth == 0 => self.option(),
            10 => self.table(),
            11 | 12 if depth < 4 => self.anchor(depth),
            13 if depth == 0 => self.antispoof(),
            14 => self.push("# a comment, \"of quotes\" { and braces\n"),
            15 if depth == 0 => self.queue(),
            _ => self.rule(depth),
        }
    }

    fn definition(&mut self) {
        self.macros += 1;
        let name = format!("m{}", self.macros);
        self.push(&name);
        self.push(" = \"");
        match self.choices.below(3) {
            0 => self.one_of(INTERFACES),
            1 => self.one_of(HOSTS4),
            _ => self.one_of(&[
                "{ 192.0.2.1, 10/8 }",
                "{ em0 em1 }",
                "{ ssh, http }",
                "proto tcp",
            ]),
        }
        self.push("\"\n");
    }

    fn option(&mut self) {
        self.one_of(&[
            "set skip on lo0\n",
            "set block-policy return\n",
            "set block-policy drop\n",
            "set state-policy if-bound\n",
            "set state-policy floating\n",
            "set timeout { tcp.first 10, udp.first 20 }\n",
            "set timeout interval 20\n",
            "set limit states 2000\n",
            "set limit { frags 5, tables 3 }\n",
            "set optimization aggressive\n",
            "set reassemble no\n",
            "set reassemble yes no-df\n",
            "set loginterface em0\n",
            "set debug err\n",
            "set hostid 7\n",
            "set syncookies adaptive (start 30%, end 10%)\n",
            "set skip on { lo, gif0 }\n",
            "set fingerprints \"/etc/pf.os\"\n",
            "set ruleset-optimization basic\n",
        ]);
    }

    fn table(&mut self) {
        self.push("table <");
        self.one_of(&["trusted", "bad", "t1", "t2"]);
        self.push(">");
        self.sometimes(3, " persist");
        self.sometimes(3, " const");
        self.sometimes(5, " counters");
        if self.choices.once_in(4) {
            self.push(" file \"second\"");
        }
        if !self.choices.once_in(4) {
            self.push(" {");
            for _ in 0..self.choices.below(5) {
                self.push(" ");
                self.sometimes(4, "!");
                self.one_of(&[
                    "192.0.2.1",
                    "10/8",
                    "10.1.2/24",
                    "2001:db8::/32",
                    "em0",
                    "em1:network",
                    "self",
                    "::1/128",
                ]);
                self.sometimes(5, " weight 3");
                self.sometimes(3, ",\n");
            }
            self.push(" }");
        }
        self.push("\n");
    }

    fn anchor(&mut self, depth: usize) {
        self.anchors += 1;
        self.push("anchor");
        let inline = self.choices.below(4);
        if inline != 1 {
            let name = format!(" \"a{}\"", self.anchors);
            self.push(&name);
        }
        self.one_of(&["", "", " in", " out", " quick"]);
        self.interface();
        let family = *self.choices.pick(&["", "", "inet", "inet6"]);
        self.family(family);
        let proto = self.protocol();
        self.peers(family, proto, false);
        self.sometimes(8, " tagged T1");
        if inline == 0 {
            self.push("\n");
            return;
        }
        self.push(" {\n");
        for _ in 0..self.choices.below(4) {
            self.statement(depth + 1);
        }
        for _ in 0..depth {
            self.push("\t");
        }
        self.push("}\n");
    }

    fn antispoof(&mut self) {
        self.push("antispoof");
        self.sometimes(4, " log");
        self.sometimes(3, " quick");
        self.push(" for ");
        self.one_of(&["em0", "{ em0, em1 }", "lo0", "(em0)", "{ (em1) gif0 }"]);
        self.sometimes(4, " inet");
        self.sometimes(5, " label \"spoof\"");
        self.push("\n");
    }

    fn queue(&mut self) {
        self.one_of(&[
            "queue root on em0 bandwidth 100M max 100M\nqueue std parent root bandwidth 10M default\n",
            "queue flows on em1 flows 1024 quantum 300\n",
            "queue r2 on gif0 bandwidth 20M burst 30M for 10ms\nqueue d2 parent r2 bandwidth 5M min 1M, max 8M default qlimit 30\n",
        ]);
    }

    fn interface(&mut self) {
        match self.choices.below(5) {
            1 => {
                self.push(" on ");
                self.sometimes(4, "! ");
                self.one_of(INTERFACES);
            }
            2 => {
                self.push(" on { ");
                for _ in 0..=self.choices.below(3) {
                    self.one_of(INTERFACES);
                    self.one_of(&[" ", ", "]);
                }
                self.one_of(INTERFACES);
                self.push(" }");
            }
            3 => self.one_of(&[" on any", " on rdomain 0", " on ! rdomain 1"]),
            _ => {}
        }
    }

    fn family(&mut self, family: &str) {
        if !family.is_empty() {
            self.push(" ");
            self.push(family);
        }
    }

    fn protocol(&mut self) -> &'static str {
        let proto = *self.choices.pick(&[
            "",
            "tcp",
            "udp",
            "tcp",
            "{ tcp, udp }",
            "",
            "esp",
            "icmp",
            "ipv6-icmp",
            "47",
        ]);
        if !proto.is_empty() {
            self.push(" proto ");
            self.push(proto);
        }
        proto
    }

    fn peers(&mut self, family: &str, proto: &str, may_os: bool) {
        if self.choices.once_in(5) {
            self.push(" all");
            return;
        }
        let ports = proto.contains("tcp") || proto == "udp";
        for word in [" from ", " to "] {
            if self.choices.once_in(4) {
                continue;
            }
            self.push(word);
            self.hosts(family);
            if ports && self.choices.once_in(3) {
                self.push(" port ");
                self.list(PORTS);
            }
            if word == " from " && may_os && proto == "tcp" && self.choices.once_in(12) {
                self.push(" os ");
                self.one_of(&["\"OpenBSD\"", "{ Linux, \"Windows XP\" }"]);
            }
        }
    }

    fn hosts(&mut self, family: &str) {
        match self.choices.below(6) {
            1 => self.push("any"),
            2 | 3 => {
                self.push("{");
                for _ in 0..=self.choices.below(3) {
                    self.push(" ");
                    self.host(family);
                    self.sometimes(2, ",");
                    self.sometimes(6, "\n  ");
                }
                self.push(" ");
                self.host(family);
                self.push(" }");
            }
            4 if self.macros > 0 => {
                let name = format!("$m{}", 1 + self.choices.below(self.macros));
                self.push(&name);
            }
            _ => self.host(family),
        }
    }

    fn host(&mut self, family: &str) {
        self.sometimes(6, "!");
        match (family, self.choices.below(3)) {
            ("inet6", 0) | ("", 1) => self.one_of(HOSTS6),
            ("inet" | "inet6", 1) => {
                self.one_of(&["<trusted>", "em0", "(em0)", "<bad>", "(em0:0)"]);
            }
            ("inet" | "", 0) => self.one_of(HOSTS4),
            _ => self.one_of(HOSTS),
        }
    }

    fn list(&mut self, all: &[&str]) {
        if !self.choices.once_in(3) {
            return self.one_of(all);
        }
        self.push("{ ");
        for _ in 0..=self.choices.below(3) {
            self.one_of(all);
            self.one_of(&[", ", " ", ",", " "]);
        }
        self.one_of(all);
        self.push(" }");
    }

    fn rule(&mut self, _depth: usize) {
        let action = *self.choices.pick(&[
            "pass",
            "block",
            "pass",
            "match",
            "block drop",
            "block return",
            "block return-rst",
            "block return-icmp",
            "block return-icmp(host-unr, noroute-unr)",
            "block return-icmp6(port-unr)",
        ]);
        self.push(action);
        let direction = *self.choices.pick(&["", " in", " out", " in"]);
        self.push(direction);
        self.one_of(&[
            "",
            "",
            "",
            " log",
            " log (all, to pflog1)",
            " log quick",
            " quick log",
            " log (matches)",
        ]);
        if !self.text.ends_with("quick") && !self.text.ends_with("quick log") {
            self.sometimes(4, " quick");
        }
        self.interface();
        let family = *self.choices.pick(&["", "inet", "inet6", ""]);
        self.family(family);
        let proto = if action.ends_with("rst") {
            self.push(" proto tcp");
            "tcp"
        } else {
            self.protocol()
        };
        self.peers(family, proto, true);
        if proto == "icmp" && family == "inet" && self.choices.once_in(2) {
            self.push(" icmp-type ");
            self.list(ICMP4);
        }
        if proto == "ipv6-icmp" && family == "inet6" && self.choices.once_in(2) {
            self.push(" icmp6-type ");
            self.list(ICMP6);
        }
        for _ in 0..self.choices.below(4) {
            self.rule_option(action, direction, family, proto);
        }
        self.push("\n");
    }

    fn rule_option(&mut self, action: &str, direction: &str, family: &str, proto: &str) {
        let pass = action == "pass";
        match self.choices.below(22) {
            0 if proto == "tcp" => self.one_of(&[
                " flags S/SA",
                " flags any",
                " flags /SFRA",
                " flags FPU/FSRPAUEW",
            ]),
            1 if pass => self.one_of(&[
                " no state",
                " keep state",
                " modulate state",
                " synproxy state",
            ]),
            2 | 3 if pass => {
                self.push(" keep state (");
                self.one_of(STATE_OPTIONS);
                if self.choices.once_in(2) {
                    self.push(", ");
                    self.one_of(STATE_OPTIONS);
                }
                self.push(")");
            }
            4 => {
                self.push(" label ");
                self.one_of(&[
                    "\"plain\"",
                    "\"$nr:$if\"",
                    "\"$srcaddr>$dstaddr\"",
                    "\"$proto $srcport $dstport\"",
                    "x",
                ]);
            }
            5 => self.one_of(&[" tag T1", " tag \"T $nr\"", " tag T2"]),
            6 => self.one_of(&[" tagged T1", " ! tagged T2"]),
            7 => self.one_of(&[
                " probability 50%",
                " probability 0.2",
                " probability 1",
                " probability 33.333%",
            ]),
            8 => {
                self.push(" tos ");
                self.one_of(TOS);
            }
            9 => self.one_of(&[
                " prio 3",
                " set prio 5",
                " set (prio (2, 6), tos lowdelay)",
                " set delay 30",
            ]),
            10 if proto == "tcp" || proto == "udp" => {
                self.one_of(&[
                    " user alice",
                    " user { root, > 999 }",
                    " group 0",
                    " group { wheel, 5 <> 9 }",
                    " user unknown",
                ]);
            }
            11 if pass => self.push(" allow-opts"),
            12 if action != "match" => self.push(" once"),
            13 => self.one_of(&[" received-on em1", " ! received-on egress"]),
            14 => self.one_of(&[" max-pkt-rate 100/10", " rtable 1"]),
            15 => self.one_of(&[
                " scrub (max-mss 1440)",
                " scrub (reassemble tcp, min-ttl 5)",
                " scrub (random-id, no-df)",
            ]),
            16 | 17 if direction == " out" && !action.starts_with("block") => {
                self.push(" nat-to ");
                self.one_of(&[
                    "192.0.2.2",
                    "(em0)",
                    "{ 192.0.2.2, 192.0.2.3 }",
                    "<trusted> source-hash 0x0123456789abcdef0123456789abcdef",
                    "(em0:0) port 1000:2000",
                    "192.0.2.64/28 bitmask",
                    "em1 static-port",
                ]);
            }
            16 | 17 if direction == " in" && !action.starts_with("block") => {
                self.push(" rdr-to ");
                self.one_of(&[
                    "10.1.0.5",
                    "10.1.0.5 port 8080",
                    "{ 10.1.0.5 weight 2, 10.1.0.6 } sticky-address",
                    "10.1.0.0/28 random",
                    "::1 port 8000:*",
                    "<trusted> least-states",
                    "10.1.0.9 port 80:90",
                ]);
            }
            18 if pass && direction == " in" => self.one_of(&[
                " divert-to 127.0.0.1 port 700",
                " divert-packet port 700",
                " route-to 10.1.0.2",
                " reply-to { 10.1.0.2, 10.1.0.3 }",
            ]),
            19 if pass && direction == " in" && family == "inet6" => {
                self.push(" af-to inet from 192.0.2.2");
            }
            20 if pass && direction.is_empty() && family == "inet" => {
                self.push(" binat-to 192.0.2.9");
            }
            21 if proto.is_empty() || proto == "esp" => self.push(" fragment"),
            _ => {}
        }
    }
}

const ADDRESSES4: &[[u8; 4]] = &[
    [192, 0, 2, 1],
    [192, 0, 2, 2],
    [10, 1, 0, 1],
    [10, 1, 0, 5],
    [198, 51, 100, 1],
    [10, 9, 0, 2],
    [127, 0, 0, 1],
];
const ADDRESSES6: &[[u8; 4]] = &[
    [0x20, 1, 0, 1],
    [0x20, 1, 0, 2],
    [0xfe, 0x80, 0, 2],
    [0, 0, 0, 1],
    [0xff, 2, 0, 1],
];
const PACKET_PORTS: &[u16] = &[22, 80, 53, 1024, 1500, 60_000, 25, 443, 0];

/// An IP packet in bytes, of few addresses and ports, so that packets belong together.
pub fn packet(choices: &mut Choices<'_>) -> Vec<u8> {
    let v6 = choices.once_in(4);
    let protocol = *choices.pick(&[6, 17, 6, if v6 { 58 } else { 1 }, 50, 47]);
    let mut payload = Vec::new();
    match protocol {
        6 | 17 => {
            for _ in 0..2 {
                payload.extend(choices.pick(PACKET_PORTS).to_be_bytes());
            }
            if protocol == 17 {
                payload.extend([0, 8 + 4, 0, 0, 1, 2, 3, 4]);
            } else {
                for _ in 0..2 {
                    payload.extend((choices.below(4) as u32 * 1000).to_be_bytes());
                }
                let flags = *choices.pick(&[2, 0x12, 0x10, 0x18, 0x11, 4, 0x14, 1, 6, 0]);
                payload.extend([0x50, flags, 0x10, 0, 0, 0, 0, 0]);
            }
        }
        1 | 58 => {
            let kind = *choices.pick(&[8, 0, 3, 11, 128, 129, 135, 1]);
            payload.extend([
                kind,
                choices.below(5) as u8,
                0,
                0,
                0,
                choices.below(3) as u8,
                0,
                0,
            ]);
            if choices.once_in(2) {
                // The header of another packet, as errors have it.
                payload.extend(header(choices, v6, 17, 8));
                payload.extend([0, 53, 0, 80, 0, 8, 0, 0]);
            }
        }
        _ => payload.extend([0; 16]),
    }
    let mut bytes = header(choices, v6, protocol, payload.len());
    bytes.extend(payload);
    if choices.once_in(12) {
        bytes.truncate(choices.below(bytes.len()));
    }
    bytes
}

fn header(choices: &mut Choices<'_>, v6: bool, protocol: u8, length: usize) -> Vec<u8> {
    if v6 {
        let mut bytes = vec![
            0x60,
            0,
            0,
            0,
            0,
            length as u8,
            protocol,
            *choices.pick(&[64, 255, 1]),
        ];
        for _ in 0..2 {
            let [a, b, c, d] = *choices.pick(ADDRESSES6);
            bytes.extend([a, b, 0x0d * (a == 0x20) as u8, 0xb8 * (a == 0x20) as u8]);
            bytes.extend([0; 10]);
            bytes.extend([c, d]);
        }
        return bytes;
    }
    let fragment: u16 = *choices.pick(&[0, 0, 0, 0, 0x2000, 0x0001, 0x2002, 0x4000]);
    let tos = *choices.pick(&[0, 0, 0x10, 0xb8]);
    let mut bytes = vec![0x45, tos, 0, 20 + length as u8, 0, choices.below(3) as u8];
    bytes.extend(fragment.to_be_bytes());
    bytes.extend([*choices.pick(&[64, 1]), protocol, 0, 0]);
    for _ in 0..2 {
        bytes.extend(choices.pick(ADDRESSES4));
    }
    bytes
}
