//! Two small rule sets. One does not differ from itself; where two differ, the packet that witnesses it is
//! decided as the analysis says, and not the same by both.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pf_filter::analysis::{Compiled, Limits, diff_within};
use pf_filter::host::Host;
use pf_filter::parse::{Dialect, Parsed};
use pf_filter::source::Memory;

#[path = "../../crates/filter/tests/pf_filter/support/mod.rs"]
mod support;

use support::choices::Choices;
use support::generate;

const LIMITS: Limits = Limits {
    nodes: 5_000,
    work: 300_000,
    regions: 200,
    packets: 4,
};

fn read(bytes: &[u8], host: &Host) -> Parsed {
    let mut choices = Choices::new(bytes);
    let mut text = String::from("table <trusted> { 192.0.2.0/24 !192.0.2.7 }\n");
    while !choices.is_empty() && text.len() < 400 {
        text += &generate::rule(&mut choices);
    }
    support::read(text, Dialect::OpenBsd, host, &mut Memory::default())
}

static HOST: LazyLock<Host> = LazyLock::new(|| Host::parse(generate::HOST).unwrap());

fuzz_target!(|input: &[u8]| {
    let host = &*HOST;
    let (first, second) = input.split_at(input.len() / 2);
    let (before, after) = (read(first, host).ruleset, read(second, host).ruleset);
    if let Ok(same) = diff_within(&before, &before, host, LIMITS) {
        assert!(same.regions.is_empty(), "a rule set differs from itself");
    }
    let Ok(found) = diff_within(&before, &after, host, LIMITS) else {
        return;
    };
    let mut sides = [&before, &after].map(|ruleset| Compiled::new(ruleset, host).unwrap());
    for region in &found.regions {
        let [old, new] = sides.each_mut().map(|side| side.decide(&region.witness));
        assert_ne!(
            old.as_ref().map(|decision| &decision.outcome),
            new.as_ref().map(|decision| &decision.outcome),
            "{}",
            region.witness
        );
        assert_eq!(
            (old.as_ref(), new.as_ref()),
            (Some(&region.before), Some(&region.after)),
            "{}",
            region.witness
        );
    }
});
