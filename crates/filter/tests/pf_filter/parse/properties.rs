//! Properties of all configurations, tried on generated ones. `WEIR_TEST_LONG` tries more.

use pf_filter::eval::{Cause, Engine, Verdict};
use pf_filter::parse::ERRORS_MAX;
use pf_filter::print;
use pf_filter::rule::{Direction, Ruleset};

use super::{findings, known_host, read};
use crate::support::choices::{Choices, Random};
use crate::support::{cases, generate};

/// Calls `check` with random bytes, and names the seed of those that fail.
fn for_all(count: u64, length: usize, check: impl Fn(&[u8])) {
    for seed in 0..cases(count, 100 * count) {
        let shown = Seed(seed);
        check(&Random::new(seed).bytes(length));
        std::mem::forget(shown);
    }
}

/// Prints itself when a check panics.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        eprintln!("seed {}", self.0);
    }
}

fn canonical(text: &str) -> String {
    print::canonical(&read(text).ruleset)
}

#[test]
fn what_is_printed_is_read_as_the_same() {
    let (tried, right) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    for_all(300, 200, |bytes| {
        // Long configurations have errors; a statement or two are mostly right.
        for length in [6, 20, 200] {
            let text = generate::configuration(&mut Choices::new(&bytes[..length]));
            // The check itself is in `read`.
            let parsed = read(&text);
            tried.set(tried.get() + 1);
            right.set(right.get() + u32::from(!parsed.has_errors()));
        }
    });
    assert!(
        right.get() * 3 > tried.get(),
        "{right:?} of {tried:?} are right"
    );
}

/// The text with each use of a macro replaced by its value.
fn inline_macros(text: &str) -> String {
    let is_definition = |line: &&str| line.starts_with('m') && line.contains(" = \"");
    let (definitions, rest): (Vec<&str>, Vec<&str>) = text.lines().partition(is_definition);
    let mut text = rest.join("\n") + "\n";
    for definition in definitions.iter().rev() {
        let (name, value) = definition.split_once(" = ").expect("a definition");
        text = text.replace(&format!("${name}"), value.trim_matches('"'));
    }
    text
}

#[test]
fn macros_are_text() {
    for_all(300, 60, |bytes| {
        let text = generate::configuration(&mut Choices::new(bytes));
        let (with, without) = (read(&text), read(inline_macros(&text)));
        let codes = |found: &[String]| -> Vec<String> {
            found
                .iter()
                .filter_map(|line| line.rsplit_once(' '))
                .map(|(_, code)| code.to_owned())
                .collect()
        };
        assert_eq!(
            codes(&findings(&with)),
            codes(&findings(&without)),
            "{text}"
        );
        let printed = print::canonical(&with.ruleset);
        let is_macro = |line: &&str| line.starts_with('m') && line.contains(" = \"");
        let printed: String = printed
            .lines()
            .filter(|line| !is_macro(line))
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(printed, print::canonical(&without.ruleset), "{text}");
    });
}

/// Other blanks between words, comments and lines that are joined.
fn lay_out(text: &str, choices: &mut Choices<'_>) -> String {
    let mut out = String::new();
    let mut quoted = false;
    for c in text.chars() {
        quoted ^= c == '"';
        match c {
            ' ' if !quoted => {
                out.push_str(choices.pick::<&str>(&[" ", "  ", "\t", " \\\n", "\\\n\t "]));
            }
            '\n' => out.push_str(choices.pick::<&str>(&[
                "\n",
                " # a comment\n",
                "\n\n",
                "\t\n",
                " # {\n# }\n",
                " \\\n\n",
            ])),
            c => out.push(c),
        }
    }
    out
}

#[test]
fn layout_means_nothing() {
    for_all(300, 400, |bytes| {
        let (first, second) = bytes.split_at(80);
        let text = generate::configuration(&mut Choices::new(first));
        let other = lay_out(&text, &mut Choices::new(second));
        assert_eq!(canonical(&text), canonical(&other), "{text}\n{other}");
    });
}

/// Elements of each dimension, in the order of expansion.
const DIMENSIONS: [&[&str]; 8] = [
    &["em0", "! em1", "egress"],
    &["tcp", "udp", "17"],
    &["10.1/16", "2001:db8::/32", "<t>", "! 192.0.2.1", "(em0)"],
    &[
        "192.0.2.7/28",
        "em1",
        "fe80::1%em0",
        "v4.example.org",
        "no-route",
    ],
    &["1", "< 9", "2:3"],
    &["ssh", "> 1023", "1:5", "7 >< 9"],
    &["root", "> 5", "1000"],
    &["0", "!= 7"],
];

/// The rule with these elements; the destination stands behind the source's port.
fn of_elements(elements: &[String]) -> String {
    let [on, proto, from, to, source_port, port, user, group] = elements else {
        panic!("one of each dimension");
    };
    format!(
        "pass on {on} proto {proto} from {from} port {source_port} to {to} port {port} user {user} group {group}\n"
    )
}

/// A rule with a list in each dimension, and the same by hand.
fn lists(choices: &mut Choices<'_>) -> (String, String) {
    let mut lists = Vec::new();
    let mut rules = vec![Vec::new()];
    for elements in DIMENSIONS {
        let chosen: Vec<&str> = (0..=choices.below(3))
            .map(|_| *choices.pick(elements))
            .collect();
        let comma = *choices.pick(&[", ", " "]);
        lists.push(format!("{{ {} }}", chosen.join(comma)));
        let with = |rule: &Vec<String>, element: &str| [&rule[..], &[element.to_owned()]].concat();
        rules = rules
            .iter()
            .flat_map(|rule| chosen.iter().map(move |element| with(rule, element)))
            .collect();
    }
    (
        of_elements(&lists),
        rules.iter().map(|rule| of_elements(rule)).collect(),
    )
}

#[test]
fn lists_are_rules_in_order() {
    for_all(60, 40, |bytes| {
        let (list, rules) = lists(&mut Choices::new(bytes));
        // By hand each combination of two families is an error, and the last error ends the file.
        if rules.lines().count() > ERRORS_MAX {
            return;
        }
        assert_eq!(canonical(&list), canonical(&rules), "{list}");
    });
}

/// Decisions about packets one after the other.
fn verdicts(ruleset: &Ruleset, bytes: &[u8]) -> Vec<(Verdict, Cause)> {
    let host = known_host();
    let mut engine = Engine::new(ruleset, &host);
    let mut choices = Choices::new(bytes);
    let mut verdicts = Vec::new();
    while !choices.is_empty() {
        let direction = *choices.pick(&[Direction::In, Direction::Out]);
        let interface = *choices.pick(&["em0", "em1", "gif0", "lo0"]);
        let decision = engine.run_bytes(&generate::packet(&mut choices), direction, interface);
        verdicts.push((decision.verdict, decision.cause));
    }
    verdicts
}

#[test]
fn lists_decide_as_their_rules_do() {
    for_all(100, 300, |bytes| {
        let (rules, packets) = bytes.split_at(60);
        let text = generate::configuration(&mut Choices::new(rules));
        let parsed = read(&text);
        // Options are printed before all rules, also those that held for some rules only.
        if parsed.has_errors()
            || text.contains("set state-policy")
            || text.contains("set reassemble")
        {
            return;
        }
        let by_hand = read(print::canonical(&parsed.ruleset));
        // A tag of several words is printed without quotes, as by pfctl; `read` finds other errors.
        if by_hand.has_errors() {
            return;
        }
        assert_eq!(
            verdicts(&parsed.ruleset, packets),
            verdicts(&by_hand.ruleset, packets),
            "{text}"
        );
    });
}
