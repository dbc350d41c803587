//! Each finding of `lint`, and of the parser's warnings: a rule set that has it, and the nearest
//! one that has not.

use pf_filter::diagnostic::Severity;
use pf_filter::host::Host;
use pf_filter::lint::{Settings, lint};
use pf_filter::parse::Dialect;
use pf_filter::source::Memory;

use crate::support;

/// Codes of all warnings with their lines.
fn found(text: &str) -> Vec<(u32, &'static str)> {
    let host = Host::default();
    let parsed = support::read(text, Dialect::OpenBsd, &host, &mut Memory::default());
    assert!(!parsed.has_errors(), "{text}: {:?}", parsed.diagnostics);
    let lints = lint(&parsed.ruleset, &host, &Settings::default());
    let all = parsed.diagnostics.iter().chain(&lints);
    let warnings = all.filter(|finding| finding.severity == Severity::Warning);
    warnings
        .map(|finding| {
            (
                parsed.ruleset.sources.line(finding.primary.span),
                finding.code,
            )
        })
        .collect()
}

/// A rule set whose second part has the finding in its first line, and one that has it not.
#[track_caller]
fn only_in(code: &'static str, with: &str, without: &str) {
    let base = "block all\n";
    let with = found(&format!("{base}{with}\n"));
    assert!(with.contains(&(2, code)), "{code} is missing in {with:?}");
    let without = found(&format!("{base}{without}\n"));
    assert!(
        without.iter().all(|(_, other)| *other != code),
        "{code} is in {without:?}"
    );
}

#[test]
fn a_list_of_negated_addresses() {
    only_in(
        "negated-list",
        "pass in from { !10.0.0.1 !10.0.0.2 }",
        "pass in from !10.0.0.1",
    );
    only_in(
        "negated-list",
        "pass in from { 10/8 !10.0.0.2 }",
        "pass in from { 10/8 192.168/16 }",
    );
}

#[test]
fn a_table_that_nothing_defines() {
    only_in(
        "undefined-table",
        "pass in from <bad>",
        "pass in from <bad>\ntable <bad> persist",
    );
}

#[test]
fn a_table_defined_twice() {
    let twice = "table <a> persist { 10/8 }\ntable <a> persist { 11/8 }\npass from <a>";
    assert!(found(&format!("block all\n{twice}\n")).contains(&(3, "table-defined-twice")));
}

#[test]
fn a_table_without_addresses() {
    only_in(
        "empty-table",
        "pass in from <a>\ntable <a> const { }",
        "pass in from <a>\ntable <a> persist",
    );
    only_in(
        "empty-table",
        "pass in from !<a>\ntable <a>",
        "pass in from !<a>\ntable <a> { 10/8 }",
    );
}

/// Lines with this finding.
fn lines(code: &str, text: &str) -> Vec<u32> {
    found(text)
        .into_iter()
        .filter(|(_, other)| *other == code)
        .map(|(line, _)| line)
        .collect()
}

#[test]
fn a_rule_set_without_a_default() {
    let code = "no-default-block";
    assert_eq!(lines(code, "pass in proto tcp to port 22\n"), [1]);
    assert_eq!(
        lines(code, "block in proto tcp\npass in proto tcp to port 22\n"),
        [1]
    );
    assert_eq!(lines(code, "block in log quick all label x\n"), []);
    assert_eq!(lines(code, "block out\n"), [1]);
}

#[test]
fn rules_that_others_hide() {
    only_in(
        "shadowed",
        "pass in proto tcp to port 80\nblock in proto tcp",
        "pass in proto tcp to port 80\nblock in proto tcp to port 81",
    );
    let hidden = "pass in quick proto udp to port 80:90\nblock in proto udp to port 85\n";
    assert_eq!(lines("shadowed", &format!("block all\n{hidden}")), [3]);
    assert_eq!(
        lines("shadowed", "set skip on lo0\nblock all\npass on lo0\n"),
        [3]
    );
}

#[test]
fn a_list_of_which_one_element_is_hidden() {
    let text =
        "block all\npass in quick proto tcp to port 80\npass in proto tcp to port { 80 81 }\n";
    assert_eq!(lines("shadowed", text), [], "a notice, no warning");
}

#[test]
fn ipv6_without_neighbour_discovery() {
    let pass = "block all\npass out\npass in proto tcp to port 22\n";
    assert_eq!(lines("neighbour-discovery", pass), [1]);
    let discovery = "pass in inet6 proto icmp6 icmp6-type { neighbrsol neighbradv }\n";
    assert_eq!(
        lines("neighbour-discovery", &format!("{pass}{discovery}")),
        []
    );
    let inet = "block all\npass out inet\npass in inet proto tcp to port 22\n";
    assert_eq!(
        lines("neighbour-discovery", inet),
        [],
        "IPv6 is blocked altogether"
    );
}

#[test]
fn a_management_port_that_is_lost() {
    assert_eq!(
        lines(
            "management-port",
            "block all\npass in proto tcp to port 80\n"
        ),
        [1]
    );
    assert_eq!(
        lines(
            "management-port",
            "block all\npass in proto tcp from 10/8 to port ssh\n"
        ),
        []
    );
    assert_eq!(
        lines("management-port", "block return log all\npass out\n"),
        [1]
    );
}

#[test]
fn rules_that_match_nothing() {
    only_in("never-matches", "pass proto ah", "pass proto esp");
    only_in(
        "never-matches",
        "block proto tcp flags SF/SFRA",
        "block proto tcp flags S/SFRA",
    );
    only_in(
        "never-matches",
        "block proto tcp flags SR/SR",
        "block proto tcp flags S/SR",
    );
    only_in(
        "never-matches",
        "block proto tcp flags F/FA",
        "block proto tcp flags FA/FA",
    );
    only_in(
        "never-matches",
        "block proto tcp flags /SAR",
        "block proto tcp flags A/SAR",
    );
    only_in(
        "never-matches",
        "pass proto udp to port 0",
        "pass proto udp to port > 0",
    );
}

#[test]
fn quick_where_it_means_something_else() {
    only_in("match-quick", "match quick tag a", "match tag a");
    only_in(
        "nested-quick-anchor",
        "anchor a quick {\nanchor b {\npass\n}\n}",
        "anchor a quick {\npass\n}",
    );
}
