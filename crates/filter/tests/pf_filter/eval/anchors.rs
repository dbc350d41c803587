//! Anchors: the ten shapes of OpenBSD's `pf_policy` tests, and the cases that they leave open.

use pf_filter::eval::Cause;
use pf_filter::source::Memory;

use super::net::{HOST, Net, load_with};

const PING: &str = "out icmp 192.0.2.1 > 198.51.100.1 icmp-type echoreq id 1";
const OTHER_PING: &str = "out icmp 192.0.2.1 > 198.51.100.1 icmp-type echoreq id 2";

#[track_caller]
fn expect(conf: &str, summary: &str) {
    Net::new(conf).expect(PING, summary);
}

#[test]
fn the_last_anchor_wins() {
    expect(
        "anchor \"a\" {\n pass inet proto icmp\n}\nanchor \"b\" {\n block inet proto icmp\n}\n",
        "block @5",
    );
}

#[test]
fn a_rule_after_an_anchor_wins() {
    expect(
        "anchor \"a\" {\n pass inet proto icmp\n}\nblock inet proto icmp\n",
        "block @4",
    );
}

#[test]
fn quick_is_final_from_within_an_anchor() {
    expect(
        "anchor \"a\" {\n pass quick inet proto icmp\n}\nanchor \"b\" {\n block inet proto icmp\n}\n",
        "pass @2",
    );
}

#[test]
fn a_block_after_a_nested_pass_wins() {
    expect(
        "anchor \"a\" {\n anchor \"b\" {\n  pass inet proto icmp\n }\n block inet proto icmp\n}\n",
        "block @5",
    );
}

#[test]
fn anchors_are_called_by_relative_and_absolute_paths() {
    for path in ["../b", "/b"] {
        let conf = format!(
            "anchor \"a\" {{\n anchor \"{path}\"\n block inet proto icmp\n}}\nanchor \"b\" {{\n pass quick inet proto icmp\n}}\n\
             block inet proto icmp\n"
        );
        expect(&conf, "pass @6");
    }
}

#[test]
fn circles_drop() {
    for (first, second) in [("../b", "../a"), ("/b", "/a")] {
        let conf = format!(
            "anchor \"a\" {{\n anchor \"{first}\"\n}}\nanchor \"b\" {{\n anchor \"{second}\"\n}}\n"
        );
        let decision = Net::new(&conf).run(PING);
        assert_eq!(decision.cause, Cause::AnchorDepth);
        assert!(decision.verdict.is_block());
    }
}

#[test]
fn sixty_three_anchors_nest() {
    // The call of the leaf is one more.
    for (count, summary) in [(62, "pass @1"), (63, "block anchor-depth")] {
        let open: Vec<String> = (0..count)
            .map(|at| format!("anchor \"a{at}\" {{"))
            .collect();
        let open = open.join(
            "
",
        ) + "
";
        let conf = format!(
            "{open}anchor \"/leaf\"\n{}anchor \"leaf\" on lo9 {{\n pass\n}}\n",
            "}\n".repeat(count)
        );
        let mut net = Net::new(&conf);
        let decision = net.run(PING);
        let got = if decision.verdict.is_pass() {
            format!(
                "pass @{}",
                net.line(decision.rule.expect("a rule")) - 2 * count as u32 - 2
            )
        } else {
            format!("block {}", decision.cause.name())
        };
        assert_eq!(got, summary);
        assert_eq!(decision.rule.is_some(), decision.verdict.is_pass());
    }
}

#[test]
fn a_rule_matches_once_in_and_out_of_anchors() {
    let mut net = Net::new("pass quick inet proto icmp once\nblock inet proto icmp\n");
    net.expect(PING, "pass @1");
    net.expect(OTHER_PING, "block @2");
    let mut net = Net::new(
        "anchor \"a\" {\n anchor \"b\" {\n  pass inet proto icmp\n  anchor \"c\" {\n   pass quick inet proto icmp once\n  }\n }\n \
         block inet proto icmp\n}\n",
    );
    net.expect(PING, "pass @5");
    net.expect(OTHER_PING, "block @8");
}

#[test]
fn a_quick_anchor_stops_after_a_match_of_its_own_rules() {
    expect(
        "anchor \"a\" quick {\n pass inet proto icmp\n}\nblock inet proto icmp\n",
        "pass @2",
    );
}

#[test]
fn a_quick_anchor_goes_on_after_a_match_of_nested_rules() {
    expect(
        "anchor \"a\" quick {\n anchor \"b\" {\n  pass inet proto icmp\n }\n}\nblock inet proto icmp\n",
        "block @6",
    );
    expect(
        "anchor \"a\" quick {\n pass inet proto icmp\n anchor \"b\" {\n  pass inet proto icmp\n }\n}\nblock inet proto icmp\n",
        "block @7",
    );
}

#[test]
fn a_quick_anchor_goes_on_after_match_rules_alone() {
    expect(
        "anchor \"a\" quick {\n match inet proto icmp\n}\nblock inet proto icmp\n",
        "block @4",
    );
}

#[test]
fn conditions_of_an_anchor_hold_for_its_rules() {
    let mut net = Net::new("block all\nanchor \"a\" in on em1 {\n pass inet proto icmp\n}\n");
    net.expect(PING, "block @1");
    net.expect(
        "in@em1 icmp 10.0.0.5 > 10.0.0.1 icmp-type echoreq",
        "pass @3",
    );
}

#[test]
fn a_star_calls_children_by_name() {
    let conf = "anchor \"x/*\"\nload anchor \"x/b\" from \"b\"\nload anchor \"x/a\" from \"a\"\n\
                load anchor \"x/a/deep\" from \"deep\"\n";
    let mut files = Memory::default();
    files.add("a", "block inet proto icmp\n");
    files.add("b", "pass inet proto icmp\n");
    files.add("deep", "pass quick inet proto udp\n");
    let mut net = load_with(conf, HOST, files);
    let decision = net.run(PING);
    let anchors: Vec<_> = decision
        .matches
        .iter()
        .map(|matched| net.engine.rule(matched.rule).anchor)
        .collect();
    assert_eq!(
        anchors.iter().map(AsRef::as_ref).collect::<Vec<_>>(),
        ["x/a", "x/b"]
    );
    assert!(decision.verdict.is_pass());
    net.expect("in udp 10.0.0.5:1 > 192.0.2.1:1", "pass no-rule");
}

#[test]
fn anchors_without_rules_are_noted() {
    let decision = Net::new("anchor \"relayd/*\"\nanchor \"later\"\npass\n").run(PING);
    assert!(decision.verdict.is_pass());
    assert_eq!(decision.notes, ["anchor \"later\" has no rules here"]);
}

#[test]
fn an_anchors_table_hides_that_of_the_main_rule_set() {
    let conf = "table <t> { 192.0.2.1 }\nblock all\nanchor \"own\" {\n table <t> { 203.0.113.1 }\n \
                pass inet proto icmp from <t>\n}\nanchor \"none\" {\n pass inet proto icmp from <t> to 198.51.100.2\n}\n";
    let mut net = Net::new(conf);
    net.expect(PING, "block @2");
    net.expect(
        "out icmp 203.0.113.1 > 198.51.100.1 icmp-type echoreq",
        "pass @5",
    );
    net.expect(
        "out icmp 192.0.2.1 > 198.51.100.2 icmp-type echoreq",
        "pass @8",
    );
}

#[test]
fn an_undefined_table_is_empty() {
    let conf = "pass no state\nblock from <gone>\npass from ! <gone> to 198.51.100.2 no state\n";
    let mut net = Net::new(conf);
    let decision = net.expect(PING, "pass @1");
    assert_eq!(
        decision.notes,
        ["no table <gone> is defined: it holds no address"]
    );
    net.expect(
        "out icmp 192.0.2.1 > 198.51.100.2 icmp-type echoreq",
        "pass @3",
    );
}

#[test]
fn a_walk_that_would_take_forever_is_given_up() {
    // Each anchor calls the next one twice.
    let anchors: Vec<String> = (0..60)
        .map(|at| {
            format!(
                "anchor \"a{at}\" on em0 {{\n anchor \"/a{0}\"\n anchor \"/a{0}\"\n}}",
                at + 1
            )
        })
        .collect();
    let decision = Net::new(&(anchors.join("\n") + "\n")).run(PING);
    assert_eq!(decision.cause, Cause::AnchorDepth);
    assert_eq!(
        decision.notes.last().map(String::as_str),
        Some("the walk was given up after 65536 rules")
    );
}
