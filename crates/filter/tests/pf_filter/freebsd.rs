//! Rules in FreeBSD's dialect: each statement as it is written, and as pfctl prints it.

use pf_filter::diagnostic::Severity;
use pf_filter::host::Host;
use pf_filter::parse::freebsd::UNSUPPORTED;
use pf_filter::parse::{Dialect, Parsed};
use pf_filter::print;
use pf_filter::rule::RuleKind;
use pf_filter::source::Memory;

use crate::support;

const HOST: &str = r#"
[[interfaces]]
name = "em0"
addresses = ["192.0.2.1/24", "2001:db8::1/64"]

[[interfaces]]
name = "em1"
addresses = ["10.0.0.1/24"]
"#;

fn read(text: &str, dialect: Dialect) -> Parsed {
    let host = Host::parse(HOST).expect("the host model is right");
    support::read(text, dialect, &host, &mut Memory::default())
}

fn printed(text: &str) -> String {
    let parsed = read(text, Dialect::FreeBsd);
    assert!(!parsed.has_errors(), "{text}: {:?}", parsed.diagnostics);
    print::canonical(&parsed.ruleset)
}

/// Each line prints as the other, and the print as itself.
fn prints(cases: &[(&str, &str)]) {
    for (text, wanted) in cases {
        assert_eq!(printed(text).trim_end(), *wanted, "{text}");
        assert_eq!(printed(wanted).trim_end(), *wanted, "printed again");
    }
}

fn codes(text: &str) -> Vec<&'static str> {
    let found = read(text, Dialect::FreeBsd).diagnostics;
    let errors = found
        .iter()
        .filter(|found| found.severity == Severity::Error);
    errors.map(|found| found.code).collect()
}

#[test]
fn nat_prints_its_target_behind_an_arrow() {
    prints(&[
        (
            "nat on em0 from 10.0.0.0/24 to any -> em0",
            "nat on em0 inet from 10.0.0.0/24 to any -> 192.0.2.1",
        ),
        (
            "nat pass log on em0 inet from 10/8 to any -> (em0)",
            "nat pass log on em0 inet from 10.0.0.0/8 to any -> (em0) round-robin",
        ),
        (
            "nat on em0 from 10/8 to any port 80 -> (em0:0) static-port",
            "nat on em0 inet from 10.0.0.0/8 to any port = http -> (em0:0) static-port",
        ),
        (
            "nat on em0 from 10/8 to any tag marked ! tagged other rtable 1 -> { 192.0.2.1, 192.0.2.2 } sticky-address",
            "nat on em0 inet from 10.0.0.0/8 to any tag marked ! tagged other rtable 1 -> { 192.0.2.1, 192.0.2.2 } round-robin sticky-address",
        ),
        (
            "nat on em0 from 10/8 -> 192.0.2.1 port 2000:3000",
            "nat on em0 inet from 10.0.0.0/8 to any -> 192.0.2.1 port 2000:3000",
        ),
        (
            "no nat on em0 to 10/8",
            "no nat on em0 inet from any to 10.0.0.0/8",
        ),
    ]);
}

#[test]
fn rdr_maps_ports() {
    prints(&[
        (
            "rdr on em0 proto tcp to em0 port 80 -> 10.0.0.9 port 8080",
            "rdr on em0 inet proto tcp from any to 192.0.2.1 port = http -> 10.0.0.9 port 8080",
        ),
        (
            "rdr pass on em0 proto udp from any to any port 1000:1010 -> 10.0.0.9 port 2000:*",
            "rdr pass on em0 inet proto udp from any to any port 1000:1010 -> 10.0.0.9 port 2000:2010",
        ),
        (
            "rdr on em0 inet proto tcp to port 80 -> { 10.0.0.8 10.0.0.9 }",
            "rdr on em0 inet proto tcp from any to any port = http -> { 10.0.0.8, 10.0.0.9 } round-robin",
        ),
        (
            "table <web> { 10.0.0.8 }\nrdr on em0 inet proto tcp to port 443 -> <web>",
            "table <web> { 10.0.0.8 }\nrdr on em0 inet proto tcp from any to any port = https -> <web> round-robin",
        ),
        ("no rdr on em0 proto tcp", "no rdr on em0 proto tcp all"),
    ]);
    assert_eq!(
        codes("rdr on em0 to any -> 10.0.0.9 port 80"),
        ["needs-port-protocol"]
    );
    assert_eq!(
        codes("rdr on em0 proto tcp to port > 80 -> 10.0.0.9"),
        ["port-range"]
    );
    assert_eq!(codes("rdr on em0 proto tcp to port 80"), ["translation"]);
    assert_eq!(
        codes("no rdr on em0 proto tcp to port 80 -> 10.0.0.1"),
        ["translation"]
    );
    assert_eq!(
        codes("no rdr pass on em0 proto tcp to port 80"),
        ["translation"]
    );
}

#[test]
fn binat_maps_one_network_to_another() {
    prints(&[
        (
            "binat on em0 from 10.0.0.5 to any -> 192.0.2.5",
            "binat on em0 inet from 10.0.0.5 to any -> 192.0.2.5",
        ),
        ("no binat on em0 inet", "no binat on em0 inet all"),
    ]);
    assert_eq!(
        codes("binat on em0 from 10.0.0.0/24 to any -> 192.0.2.5"),
        ["binat"]
    );
    assert_eq!(
        codes("binat on em0 from { 10.0.0.5 10.0.0.6 } to any -> 192.0.2.5"),
        ["binat"]
    );
    assert_eq!(
        codes("binat on em0 inet from <t> to any -> 192.0.2.5"),
        ["binat"]
    );
}

#[test]
fn anchors_of_translations_are_called_in_their_list() {
    prints(&[
        (
            "nat-anchor \"ftp-proxy/*\"",
            "nat-anchor \"ftp-proxy/*\" all",
        ),
        (
            "rdr-anchor relay on em0 proto tcp to port 80",
            "rdr-anchor \"relay\" on em0 proto tcp from any to any port = http",
        ),
        ("binat-anchor b rtable 1", "binat-anchor \"b\" all rtable 1"),
    ]);
    assert_eq!(codes("rdr-anchor r proto tcp from port 80"), ["anchor"]);
    assert_eq!(codes("binat-anchor b from 10.0.0.1"), ["anchor"]);
}

#[test]
fn scrub_is_a_statement() {
    prints(&[
        ("scrub in", "scrub in all fragment reassemble"),
        (
            "scrub on em0 no-df random-id min-ttl 64 max-mss 1440 set-tos lowdelay",
            "scrub on em0 all no-df random-id min-ttl 64 max-mss 1440 set-tos 0x10 fragment reassemble",
        ),
        (
            "scrub all reassemble tcp fragment no reassemble",
            "scrub all reassemble tcp fragment no reassemble",
        ),
        ("no scrub on em0 proto udp", "no scrub on em0 proto udp all"),
    ]);
    assert_eq!(codes("scrub in quick"), ["scrub"]);
    assert_eq!(codes("scrub in all reassemble tcp"), ["scrub"]);
    assert_eq!(codes("scrub no-df no-df"), ["given-twice"]);
    assert!(codes("scrub in all fragment crop").is_empty());
}

#[test]
fn filter_rules_print_keep_state_and_names_of_ports() {
    prints(&[
        ("pass", "pass all flags S/SA keep state"),
        (
            "pass in proto udp to port != 53 set prio 3",
            "pass in proto udp from any to any port != domain set ( prio 3 ) keep state",
        ),
        (
            "pass in quick on em0 route-to (em1 10.0.0.254) inet from any to any",
            "pass in quick on em0 route-to (em1 10.0.0.254) inet all flags S/SA keep state",
        ),
        (
            "pass in on em0 reply-to { (em1 10.0.0.3), (em1 10.0.0.4) } from any to any",
            "pass in on em0 reply-to { (em1 10.0.0.3), (em1 10.0.0.4) } round-robin inet all flags S/SA keep state",
        ),
        (
            "pass out on em0 route-to em1",
            "pass out on em0 route-to em1 all flags S/SA keep state",
        ),
        (
            "pass in proto tcp to port 25 divert-to 127.0.0.1 port 8025",
            "pass in proto tcp from any to any port = smtp flags S/SA keep state divert-to 8025",
        ),
        (
            "pass label a label \"$nr\" ridentifier 7 dnpipe (1, 2)",
            "pass all flags S/SA keep state label \"a\" label \"0\" ridentifier 7 dnpipe(1, 2)",
        ),
        (
            "match out on em0 from 10/8 nat-to { 192.0.2.1 192.0.2.2 }",
            "match out on em0 inet from 10.0.0.0/8 to any nat-to { 192.0.2.1, 192.0.2.2 } round-robin",
        ),
    ]);
    assert_eq!(codes("pass out proto tcp divert-reply"), ["divert"]);
    assert_eq!(
        codes(&format!("pass {}", "label x ".repeat(6))),
        ["given-twice"]
    );
}

#[test]
fn sources_expand_with_their_ports_before_destinations() {
    let text = printed("pass proto tcp from 10.0.0.1 port { 1 2 } to { 10.0.0.3 10.0.0.4 }");
    let to = |line: &str| line.contains("to 10.0.0.3");
    assert_eq!(
        text.lines().map(to).collect::<Vec<_>>(),
        [true, false, true, false]
    );
}

#[test]
fn statements_have_an_order_unless_told_otherwise() {
    let text = "pass\nnat on em0 inet from any to any -> 192.0.2.1\n";
    assert_eq!(codes(text), ["order"]);
    assert_eq!(codes("scrub in\nset limit states 10"), ["order"]);
    assert!(codes(&format!("set require-order no\n{text}")).is_empty());
}

#[test]
fn options_of_freebsd_print() {
    prints(&[(
        "set require-order no\nset fail-policy return\nset debug urgent\nset timeout interval 10\nset keepcounters\nset skip on lo0",
        "set require-order no\nset fail-policy return\nset debug urgent\nset timeout interval 10\nset skip on { lo0 }",
    )]);
}

#[test]
fn lists_hold_one_kind_after_the_other() {
    let text =
        "rdr on em0 inet proto tcp to port 80 -> 10.0.0.1\nnat on em0 inet to any -> 192.0.2.1\n";
    let parsed = read(text, Dialect::FreeBsd);
    let kinds: Vec<_> = parsed
        .ruleset
        .translations
        .iter()
        .map(|rule| rule.kind)
        .collect();
    assert_eq!(kinds, [RuleKind::Nat, RuleKind::Rdr]);
    assert!(parsed.ruleset.rules.is_empty());
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let statements = [
        "altq on em0 cbq bandwidth 10Mb queue { a }",
        "queue a bandwidth 1Mb",
        "ether pass in",
        "pass queue a",
        "nat on em0 inet from any to any -> 192.0.2.1 map-e-portset 6/8/1",
        "nat on em0 inet from any to any -> 192.0.2.1 endpoint-independent",
    ];
    for text in statements {
        assert_eq!(codes(text), ["unsupported"], "{text}");
    }
    for (word, _) in UNSUPPORTED {
        assert!(statements.iter().any(|text| text.contains(word)), "{word}");
    }
}

#[test]
fn words_of_freebsd_are_names_in_openbsd() {
    let text = "nat = \"10.0.0.1\"\npass from $nat label interval tag hogs\n";
    assert!(!read(text, Dialect::OpenBsd).has_errors());
    assert!(read(text, Dialect::FreeBsd).has_errors());
    let text = "default = \"10.0.0.1\"\npass from $default label parent tag min\n";
    assert!(read(text, Dialect::OpenBsd).has_errors());
    assert!(!read(text, Dialect::FreeBsd).has_errors());
}
