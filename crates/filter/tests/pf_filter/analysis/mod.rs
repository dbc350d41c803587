//! The comparison of rule sets against the interpreter.

mod random;
mod view;

use pf_filter::analysis::{
    Comparison, Compiled, Coverage, Limits, RulePath, Witness, cover, diff, equal,
};
use pf_filter::eval::{Cause, Chance, Engine, RuleId};
use pf_filter::host::Host;
use pf_filter::rule::{Origin, Ruleset};
use random::{configuration, edited, host, packet, read};
use view::View;

use crate::support::cases;
use crate::support::choices::Random;

/// Packets that the random tests look at in all.
fn samples() -> u64 {
    cases(24_000, 1_200_000)
}

/// The interpreter's treatment of a packet.
fn interpret(ruleset: &Ruleset, host: &Host, packet: &Witness) -> View {
    let mut engine = Engine::new(ruleset, host);
    engine.set_chance(Chance::Always);
    let decision = engine.run(&packet.to_packet());
    View::of_decision(&decision, &engine)
}

/// Packets for each of so many rule sets.
const PACKETS: u64 = 400;

#[test]
fn decisions_are_the_interpreters() {
    let host = host();
    for seed in 0..samples() / PACKETS {
        let mut random = Random::new(seed);
        let size = 1 + random.below(25);
        let lines = configuration(&mut random, size, seed % 3 == 0);
        let ruleset = read(&lines, &host);
        let mut compiled = Compiled::new(&ruleset, &host).unwrap();
        let facts = compiled.facts();
        for _ in 0..PACKETS {
            let packet = packet(&mut random, &facts);
            let expected = interpret(&ruleset, &host, &packet);
            let found = compiled.decide(&packet);
            let found = View::of_outcome(found.as_ref().map(|decision| &decision.outcome));
            // On an interface that is skipped even packets pass that pf refuses elsewhere.
            if packet.interface == "lo0" && matches!(found, View::Refused | View::Waits) {
                continue;
            }
            assert_eq!(
                found,
                expected,
                "seed {seed}, {packet}\n{}",
                lines.join("\n")
            );
        }
    }
}

#[test]
fn exactly_the_packets_of_the_difference_change() {
    let host = host();
    for seed in 0..samples() / PACKETS {
        let mut random = Random::new(seed ^ 0xd1ff);
        let simple = seed % 3 == 0;
        let size = 1 + random.below(25);
        let lines = configuration(&mut random, size, simple);
        let other = if seed % 4 == 0 {
            configuration(&mut random, size, simple)
        } else {
            edited(&mut random, &lines, simple)
        };
        let (before, after) = (read(&lines, &host), read(&other, &host));
        let mut comparison = Comparison::new(&before, &after, &host, Limits::default()).unwrap();
        let mut compiled = [
            Compiled::new(&before, &host).unwrap(),
            Compiled::new(&after, &host).unwrap(),
        ];
        let facts = comparison.facts();
        let context = || {
            format!(
                "seed {seed}\n{}\n--\n{}",
                lines.join("\n"),
                other.join("\n")
            )
        };
        for _ in 0..PACKETS {
            let packet = packet(&mut random, &facts);
            let found = comparison.classify(&packet);
            let [first, second] = [0, 1].map(|side: usize| {
                compiled[side]
                    .decide(&packet)
                    .map(|decision| decision.outcome)
            });
            let expected = if first == second {
                None
            } else {
                first.zip(second)
            };
            assert_eq!(found, expected, "{packet}\n{}", context());
        }
        let difference = comparison.diff();
        assert_eq!(
            difference.regions.is_empty(),
            equal(&before, &after, &host).unwrap(),
            "{}",
            context()
        );
        for region in &difference.regions {
            let packet = &region.witness;
            let [first, second] = [0, 1].map(|side: usize| compiled[side].decide(packet).unwrap());
            assert_eq!(
                (&first, &second),
                (&region.before, &region.after),
                "{packet}\n{}",
                context()
            );
            assert!(!region.packets.is_empty());
            // The interpreter knows nothing of facts that do not hold by default.
            if packet
                .facts
                .iter()
                .all(|(fact, holds)| random::holds(fact) == *holds)
            {
                let packet = with_facts(packet, &facts);
                let views = [&before, &after].map(|ruleset| interpret(ruleset, &host, &packet));
                let outcomes = [&region.before, &region.after]
                    .map(|decision| View::of_outcome(Some(&decision.outcome)));
                assert_eq!(views, outcomes, "{packet}\n{}", context());
            }
        }
    }
}

/// The packet with all facts as the interpreter takes them.
fn with_facts(packet: &Witness, facts: &[pf_filter::analysis::Assumption]) -> Witness {
    Witness {
        facts: facts
            .iter()
            .map(|fact| (fact.clone(), random::holds(fact)))
            .collect(),
        ..packet.clone()
    }
}

#[test]
fn nothing_differs_from_itself() {
    let host = host();
    for seed in 0..cases(50, 2_000) {
        let mut random = Random::new(seed);
        let size = 1 + random.below(40);
        let lines = configuration(&mut random, size, false);
        let (before, after) = (read(&lines, &host), read(&lines, &host));
        assert!(diff(&before, &after, &host).unwrap().regions.is_empty());
    }
}

#[test]
fn rules_decide_their_witness_and_idle_ones_are_not_missed() {
    let host = host();
    for seed in 0..samples() / 2000 {
        let mut random = Random::new(seed ^ 0xc0);
        let size = 1 + random.below(15);
        let lines = configuration(&mut random, size, seed % 2 == 0);
        let ruleset = read(&lines, &host);
        let covered = cover(&ruleset, &host).unwrap();
        let mut compiled = Compiled::new(&ruleset, &host).unwrap();
        for rule in &covered.rules {
            let context = || {
                format!(
                    "seed {seed}, {}, {:?}\n{}",
                    rule.path,
                    rule.coverage,
                    lines.join("\n")
                )
            };
            match &rule.coverage {
                Coverage::Decides(witness) => {
                    let decision = compiled.decide(witness).unwrap();
                    let pf_filter::analysis::Decider::Rule { path, .. } = &decision.by else {
                        panic!("{}", context())
                    };
                    assert_eq!(*path, rule.path, "{witness} {}", context());
                }
                Coverage::EffectOnly(_) => {}
                Coverage::Shadowed { .. } | Coverage::NeverMatches(_) => {
                    let mut without = read(&lines, &host);
                    remove(&mut without, &rule.path);
                    assert!(equal(&ruleset, &without, &host).unwrap(), "{}", context());
                    if let Coverage::Shadowed { by, skip, .. } = &rule.coverage {
                        assert!(!by.is_empty() || *skip, "{}", context());
                    }
                }
            }
        }
    }
}

/// A rule, in rule sets that were read from the same lines.
fn identity(engine: &Engine<'_>, id: RuleId) -> (String, Origin) {
    let rule = engine.rule(id);
    (rule.anchor.to_string(), rule.rule.origin.clone())
}

/// Without the rule that an explanation names, the verdict is another, or the rule that it names next decides; behind a
/// quick rule, a quick anchor or a tag also one that was not reached.
#[test]
fn without_the_rule_that_decides_the_next_one_does() {
    let host = host();
    let (mut turned, mut exposed) = (0, 0);
    for seed in 0..samples() / 300 {
        let mut random = Random::new(seed ^ 0xde1e);
        let size = 1 + random.below(25);
        let lines = configuration(&mut random, size, seed % 2 == 0);
        let ruleset = read(&lines, &host);
        for _ in 0..5 {
            let packet = packet(&mut random, &[]).to_packet();
            let mut engine = Engine::new(&ruleset, &host);
            engine.set_chance(Chance::Always);
            let before = engine.explain(&packet).decision;
            let (Cause::Rule, Some(id)) = (before.cause, before.rule) else {
                continue;
            };
            let named = engine.rule(id);
            let mut without = read(&lines, &host);
            let (anchor, number) = (named.anchor.clone(), named.index as u32);
            remove(&mut without, &RulePath { anchor, number });
            let mut other = Engine::new(&without, &host);
            other.set_chance(Chance::Always);
            let after = other.run(&packet);
            if after.verdict != before.verdict {
                turned += 1;
                continue;
            }
            let next = before.overridden().last().map(|id| identity(&engine, id));
            let found = after.rule.map(|id| identity(&other, id));
            let reaches_more =
                named.rule.quick || named.rule.tag.is_some() || !named.anchor.is_empty();
            let met = |rule: &(String, Origin)| {
                before
                    .matches
                    .iter()
                    .any(|matched| identity(&engine, matched.rule) == *rule)
            };
            let new = found.as_ref().is_some_and(|rule| !met(rule));
            assert!(
                found == next || reaches_more && new,
                "seed {seed}, {packet}: {next:?} was named, {found:?} decides\n{}",
                lines.join("\n")
            );
            exposed += 1;
        }
    }
    let few = samples() / 1200;
    assert!(
        turned > few && exposed > few,
        "{turned} turned, {exposed} exposed"
    );
}

/// Takes a rule out of a rule set.
fn remove(ruleset: &mut Ruleset, path: &RulePath) {
    let mut rules = &mut ruleset.rules;
    for name in path.anchor.split('/').filter(|name| !name.is_empty()) {
        let inner = rules
            .iter_mut()
            .find_map(|rule| match rule.anchor.as_deref_mut() {
                Some(pf_filter::rule::Anchor::Inline { name: own, rules }) if **own == *name => {
                    Some(rules)
                }
                _ => None,
            });
        rules = inner.expect("the anchor is there");
    }
    rules.remove(path.number as usize);
}
