//! Origins of rules, and their fields that no text shows.

use pf_filter::rule::{Address, Anchor, Rule};

use super::read;

/// `DIMENSION INDEX/COUNT TEXT MACRO` of each element of a rule.
fn elements(text: &str) -> Vec<Vec<String>> {
    let parsed = read(text);
    assert!(!parsed.has_errors());
    let sources = &parsed.ruleset.sources;
    let of = |rule: &Rule| {
        let all = rule.origin.elements.iter().map(|element| {
            let (index, count) = (element.index, element.count);
            let name = element.macro_name.as_deref().unwrap_or("-");
            format!(
                "{} {index}/{count} {} {name}",
                element.dimension,
                sources.text(element.span)
            )
        });
        all.collect()
    };
    parsed.ruleset.rules.iter().map(of).collect()
}

#[test]
fn elements_of_lists_are_known() {
    assert_eq!(
        elements(
            "pass in on { em0, em1 } inet proto tcp from 10.1.0.1 to any port { ssh, > 1023 }\n"
        ),
        [
            ["interface 0/2 em0 -", "destination port 0/2 ssh -"],
            ["interface 0/2 em0 -", "destination port 1/2 > 1023 -"],
            ["interface 1/2 em1 -", "destination port 0/2 ssh -"],
            ["interface 1/2 em1 -", "destination port 1/2 > 1023 -"],
        ]
    );
    assert_eq!(elements("pass on em0 proto tcp from 10.1.0.1\n"), [[""; 0]]);
    assert_eq!(
        elements("block from { ! 10.1/16 }\npass from { em1, !em1 }\n")[2],
        ["source 1/2 !em1 -"]
    );
}

#[test]
fn elements_of_macros_stand_in_the_macro() {
    assert_eq!(
        elements("web = \"{ 192.0.2.80 192.0.2.81 }\"\nif = em0\npass on $if proto tcp to $web\n"),
        [
            ["interface 0/1 em0 if", "destination 0/2 192.0.2.80 web"],
            ["interface 0/1 em0 if", "destination 1/2 192.0.2.81 web"],
        ]
    );
    // Of a macro that another one is made of, the text is the first one's.
    assert_eq!(
        elements("a = \"em0\"\nb = $a\npass on $b\n"),
        [["interface 0/1 em0 b"]]
    );
}

#[test]
fn rules_know_their_statements() {
    let text =
        "pass in\nanchor a {\n  block out quick\n}\nantispoof for em1\npass out inet nat-to em0\n";
    let parsed = read(text);
    let sources = &parsed.ruleset.sources;
    let texts: Vec<_> = parsed
        .ruleset
        .rules
        .iter()
        .map(|rule| sources.text(rule.origin.span))
        .collect();
    assert_eq!(
        texts,
        [
            "pass in",
            "anchor a",
            "antispoof for em1",
            "antispoof for em1",
            "pass out inet nat-to em0"
        ]
    );
    let Some(Anchor::Inline { rules, .. }) = parsed.ruleset.rules[1].anchor.as_deref() else {
        panic!("the anchor has its rules");
    };
    assert_eq!(sources.text(rules[0].origin.span), "block out quick");
    assert_eq!(
        sources.place(rules[0].origin.span).to_string(),
        "pf.conf:3:3"
    );
    let tables: Vec<_> = parsed
        .ruleset
        .tables
        .iter()
        .map(|table| sources.text(table.span))
        .collect();
    assert_eq!(tables, ["em0"]);
}

#[test]
fn errors_in_macros_name_their_definition() {
    let parsed = read("ports = \"22 sssh\"\npass proto tcp to port { $ports }\n");
    let error = &parsed.diagnostics[0];
    let sources = &parsed.ruleset.sources;
    assert_eq!(sources.text(error.primary.span), "$ports");
    assert_eq!(sources.text(error.related[0].span), "sssh");
    assert_eq!(error.related[0].text, "from macro `ports`, defined here");
}

#[test]
fn an_interface_in_parentheses_has_a_length_of_its_family() {
    let parsed = read("pass inet from (em0)\npass inet6 from (em0)\npass inet from (em0)/24\n");
    let bits = parsed
        .ruleset
        .rules
        .iter()
        .map(|rule| match &rule.source.address {
            Address::Interface(interface) => interface.bits,
            address => panic!("{address:?}"),
        });
    assert_eq!(bits.collect::<Vec<_>>(), [32, 128, 24]);
}
