//! A file of a table. Any bytes are addresses, or an error that lies in the file.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pf_filter::host::Host;
use pf_filter::parse::Dialect;
use pf_filter::rule::{Family, Network};
use pf_filter::source::Memory;

#[path = "../../crates/filter/tests/pf_filter/support/mod.rs"]
mod support;

use support::{checks, generate};

static HOST: LazyLock<Host> = LazyLock::new(|| Host::parse(generate::HOST).unwrap());

const RULES: &str = "table <t> const { 192.0.2.1 } file \"t\"\npass from <t>\n";

fuzz_target!(|input: &[u8]| {
    let mut files = Memory::default();
    files.add("t", input);
    for host in [Host::default(), HOST.clone()] {
        let parsed = support::read(RULES, Dialect::OpenBsd, &host, &mut files);
        checks::places(&parsed);
        checks::idempotent(&parsed, &host, Dialect::OpenBsd, &files);
        assert!(parsed.has_errors() || parsed.ruleset.tables.len() == 1);
        for entry in parsed
            .ruleset
            .tables
            .iter()
            .flat_map(|table| &table.entries)
        {
            let Network { address, bits } = entry.network;
            assert!(bits <= Family::of(address).bits());
            assert_eq!(
                entry.network,
                Network::new(address, bits),
                "host bits are zero"
            );
        }
    }
});
