//! Explanations: each rule's outcome, the nearest rule, and the differences on Linux.

use pf_filter::eval::{Chance, Explanation, Field, Fields, LogCause, Outcome};
use pf_filter::host::Host;
use pf_filter::parse::Dialect;
use pf_filter::source::Memory;

use super::net::Net;
use super::packets::Numbers;
use crate::support::{self, cases};

const CONF: &str = "block return all\npass in on em1 proto tcp to port 22\npass in on em0 proto tcp from 10.0.0.0/8 to port { 22 80 }\n\
                    pass in on em0 proto tcp to port 443 flags any\n";

fn explain(net: &mut Net, text: &str) -> Explanation {
    let packet = net.packet(text);
    net.engine.explain(&packet)
}

#[test]
fn each_rule_says_which_tests_failed() {
    let mut net = Net::new(CONF);
    let explanation = explain(&mut net, "in tcp 11.0.0.5:4000 > 192.0.2.1:81");
    let outcomes: Vec<_> = explanation
        .steps
        .iter()
        .map(|step| step.outcome.clone())
        .collect();
    assert_eq!(
        outcomes,
        [
            Outcome::Matched,
            Outcome::Failed(Fields::from_iter([
                Field::Interface,
                Field::DestinationPort
            ])),
            Outcome::Failed(Fields::from_iter([Field::Source, Field::DestinationPort])),
            Outcome::Failed(Fields::from_iter([Field::Source, Field::DestinationPort])),
            Outcome::Failed(Fields::from_iter([Field::DestinationPort])),
        ]
    );
}

#[test]
fn the_nearest_rule_has_the_fewest_failing_tests() {
    let mut net = Net::new(CONF);
    for (text, line, field, rule_value, packet_value) in [
        (
            "in tcp 11.0.0.5:4000 > 192.0.2.1:81",
            4,
            Field::DestinationPort,
            "to any port = 443",
            "81",
        ),
        (
            "in tcp 11.0.0.5:4000 > 192.0.2.1:80",
            4,
            Field::DestinationPort,
            "to any port = 443",
            "80",
        ),
        (
            "in@em1 tcp 11.0.0.5:4000 > 192.0.2.1:23",
            2,
            Field::DestinationPort,
            "to any port = 22",
            "23",
        ),
        (
            "in tcp 10.0.0.5:4000 > 192.0.2.1:80 flags A",
            4,
            Field::DestinationPort,
            "to any port = 443",
            "80",
        ),
        (
            "in tcp 11.0.0.5:4000 > 192.0.2.1:22 flags A",
            4,
            Field::DestinationPort,
            "to any port = 443",
            "22",
        ),
        (
            "out tcp 11.0.0.5:4000 > 192.0.2.1:443",
            4,
            Field::Direction,
            "in",
            "out",
        ),
    ] {
        let nearest = explain(&mut net, text)
            .nearest
            .unwrap_or_else(|| panic!("{text}"));
        assert_eq!(
            (net.line(nearest.rule), nearest.field),
            (line, field),
            "{text}"
        );
        assert_eq!(
            (nearest.rule_value.as_str(), nearest.packet_value.as_str()),
            (rule_value, packet_value),
            "{text}"
        );
    }
}

#[test]
fn only_rules_that_would_turn_the_verdict_are_near() {
    let conf = "pass quick proto tcp to port 22\nblock proto tcp\nblock proto udp\npass proto tcp to port 80\n";
    let mut net = Net::new(conf);
    let explanation = explain(&mut net, "in tcp 11.0.0.5:4000 > 192.0.2.1:80");
    assert_eq!(
        explanation.nearest.map(|nearest| net.line(nearest.rule)),
        None,
        "block udp comes before the winner"
    );
    let explanation = explain(&mut net, "in tcp 11.0.0.5:4000 > 192.0.2.1:81");
    assert_eq!(
        explanation.nearest.map(|nearest| net.line(nearest.rule)),
        Some(4)
    );
    let explanation = explain(&mut net, "in tcp 11.0.0.5:4000 > 192.0.2.1:22");
    assert!(explanation.nearest.is_none());
    let explanation = explain(&mut net, "in tcp 11.0.0.5:4000 > 192.0.2.1:22");
    assert!(explanation.steps.is_empty(), "a state asks no rule");
}

#[test]
fn explain_and_run_agree() {
    for text in [
        "in tcp 10.0.0.5:4000 > 192.0.2.1:80",
        "in udp 10.0.0.5:4000 > 192.0.2.1:80",
    ] {
        let (mut one, mut other) = (Net::new(CONF), Net::new(CONF));
        assert_eq!(explain(&mut one, text).decision, other.run(text));
    }
}

#[test]
fn without_the_named_rule_the_next_it_names_decides() {
    // Deletes the deciding rule, again and again.
    let mut lines: Vec<&str> = vec![
        "block all",
        "pass in proto tcp",
        "block in from 10.0.0.5",
        "match in tag X",
        "pass in proto tcp to port 80 tagged X",
    ];
    let text = "in tcp 10.0.0.5:4000 > 192.0.2.1:80";
    loop {
        let mut net = Net::new(&format!("{}\n", lines.join("\n")));
        let decision = net.run(text);
        let Some(rule) = decision.rule else { break };
        let overridden: Vec<_> = decision.overridden().collect();
        let expected = overridden
            .last()
            .map(|&id| lines[net.line(id) as usize - 1]);
        lines.remove(net.line(rule) as usize - 1);
        let mut net = Net::new(&format!("{}\n", lines.join("\n")));
        let exposed = net
            .run(text)
            .rule
            .map(|id| lines[net.line(id) as usize - 1]);
        assert_eq!(exposed, expected);
    }
    assert_eq!(lines, ["match in tag X"]);
}

#[test]
fn logs_name_their_cause() {
    let conf =
        "match log (matches, to pflog1) proto udp\nmatch log proto udp\nblock log (to pflog2)\n";
    let mut net = Net::new(conf);
    let decision = net.run("in udp 10.0.0.5:9 > 192.0.2.1:53");
    let events: Vec<_> = decision
        .log
        .iter()
        .map(|event| {
            (
                event.rule.map(|rule| net.line(rule)),
                event.interface,
                matches!(event.because, LogCause::Matches(_)),
            )
        })
        .collect();
    // The winner is logged for `matches` in the walk, and after it.
    assert_eq!(
        events,
        [
            (Some(1), 1, false),
            (Some(2), 0, false),
            (Some(2), 1, true),
            (Some(3), 1, true),
            (Some(3), 2, false),
            (Some(3), 1, true)
        ]
    );
}

#[test]
fn chance_is_drawn_or_given() {
    let mut net = Net::new("block all\npass in proto udp probability 50% no state\n");
    let mut count = 0;
    for _ in 0..1000 {
        count += usize::from(
            net.run("in udp 10.0.0.5:9 > 192.0.2.1:53")
                .verdict
                .is_pass(),
        );
    }
    assert!((400..600).contains(&count), "{count}");
    net.engine.set_chance(Chance::Always);
    net.expect("in udp 10.0.0.5:9 > 192.0.2.1:53", "pass @2");
    net.engine.set_chance(Chance::Never);
    net.expect("in udp 10.0.0.5:9 > 192.0.2.1:53", "block @1");
    let nearest = explain(&mut net, "in udp 10.0.0.5:9 > 192.0.2.1:53")
        .nearest
        .expect("a near rule");
    assert_eq!(nearest.field, Field::Probability);
}

#[test]
fn what_is_not_known_is_noted_once() {
    let conf = "pass no state\nblock from (em7)\nblock from (em7) to 192.0.2.9\nblock proto tcp user root\n";
    let host = Host::default();
    let ruleset = support::read(conf, Dialect::OpenBsd, &host, &mut Memory::default()).ruleset;
    let mut engine = pf_filter::eval::Engine::new(&ruleset, &host);
    let packet = super::net::packet("in tcp 10.0.0.5:9 > 192.0.2.9:53", &host);
    let decision = engine.run(&packet);
    assert!(decision.verdict.is_pass());
    assert_eq!(
        decision.notes,
        [
            "the addresses of (em7) are not known: rules with it do not match",
            "the packet's user is not known: rules with user do not match"
        ]
    );
}

#[test]
fn linux_differs() {
    let mut net = Net::new("block return\n");
    let joined = |net: &mut Net, text: &str| explain(net, text).linux.join("\n");
    assert!(
        joined(&mut net, "out tcp 10.0.0.5:9 > 192.0.2.1:53")
            .contains("XDP sees no packet that leaves")
    );
    assert!(joined(&mut net, "in@lo0 tcp 127.0.0.1:9 > 127.0.0.1:53").contains("loopback"));
    assert!(joined(&mut net, "in tcp 10.0.0.5:9 > 192.0.2.1:53").contains("XDP_TX"));
    assert!(joined(&mut net, "in tcp 10.0.0.5:9 > 192.0.2.1:53 flags SR").contains("senseless"));
    assert!(joined(&mut net, "in udp 10.0.0.5 > 192.0.2.1 fragment").contains("reassembles"));
}

#[test]
fn deleting_rules_exposes_those_they_overrode() {
    const LINES: [&str; 8] = [
        "block all",
        "pass in proto { tcp udp }",
        "block in from 10.0.0.0/27",
        "match in proto tcp",
        "pass to port 1:30000 no state",
        "block proto udp to port > 20000",
        "pass in on em1 from 10.0.0.32/27 flags any",
        "block in on em0 to 10.0.0.16/28",
    ];
    let lines = |numbers: &mut Numbers| -> Vec<String> {
        let pick = |_| {
            LINES[numbers.below(LINES.len() as u64) as usize]
                .replace("pass to port", "pass proto { tcp udp } to port")
        };
        (0..8).map(pick).collect()
    };
    let mut numbers = Numbers::new(4242);
    for _ in 0..cases(200, 2_000) {
        let lines = lines(&mut numbers);
        let packet = numbers.packet();
        let run = |lines: &[String]| {
            let mut net = Net::new(&format!("set reassemble no\n{}\n", lines.join("\n")));
            let decision = net.engine.run(&packet);
            let line = |id| net.line(id) as usize - 2;
            (
                decision.rule.map(line),
                decision.overridden().map(line).collect::<Vec<_>>(),
            )
        };
        let (Some(winner), overridden) = run(&lines) else {
            continue;
        };
        // One line can give several rules.
        let expected = overridden.into_iter().rfind(|&line| line != winner);
        let mut without = lines.clone();
        without[winner] = "match in proto gre".into();
        assert_eq!(run(&without).0, expected, "{packet}\n{}", lines.join("\n"));
    }
}
