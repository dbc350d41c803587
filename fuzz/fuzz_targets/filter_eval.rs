//! Rules and a sequence of packets. Each packet has a decision, within the limits of the rules; an engine
//! that starts anew decides the same.
#![no_main]

use std::sync::LazyLock;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use pf_filter::eval::Engine;
use pf_filter::host::Host;
use pf_filter::packet::Packet;
use pf_filter::parse::Dialect;
use pf_filter::rule::Direction;
use pf_filter::source::Memory;

#[path = "../../crates/filter/tests/pf_filter/support/mod.rs"]
mod support;

use support::choices::Choices;
use support::generate;

static HOST: LazyLock<Host> = LazyLock::new(|| Host::parse(generate::HOST).unwrap());

fuzz_target!(|input: &[u8]| {
    let (rules, packets) = input.split_at(input.len() / 2);
    let host = &*HOST;
    let mut files = Memory::default();
    files.add("second", "10.1.0.0/24 !10.1.0.7\n");
    let text = "set limit { states 5, src-nodes 3, frags 3 }\n".to_owned()
        + &generate::configuration(&mut Choices::new(rules));
    let ruleset = support::read(text, Dialect::OpenBsd, host, &mut files).ruleset;
    let mut engines = [Engine::new(&ruleset, host), Engine::new(&ruleset, host)];
    let mut choices = Choices::new(packets);
    while !choices.is_empty() {
        let direction = *choices.pick(&[Direction::In, Direction::Out]);
        let interface = *choices.pick(&["em0", "em1", "lo0", "gif0", "vlan7"]);
        let seconds = Duration::from_secs([0, 0, 1, 20, 90_000][choices.below(5)]);
        let bytes = generate::packet(&mut choices);
        let [first, second] = engines.each_mut().map(|engine| {
            engine.advance(seconds);
            engine.run_bytes(&bytes, direction, interface)
        });
        assert_eq!(first, second);
        assert!(!first.cause.sentence().is_empty());
        if let Ok(packet) = Packet::decode(&bytes, direction, interface) {
            let _ = engines[0].clone().explain(&packet);
        }
        let states = engines[0].states().count();
        assert!(states <= 5 && engines[0].source_nodes() <= 3 && engines[0].fragments() <= 3);
    }
});
