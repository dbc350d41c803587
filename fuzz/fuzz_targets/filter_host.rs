//! The model of a host, in TOML. Any text is a host for which rules can be read, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pf_filter::host::Host;
use pf_filter::parse::Dialect;
use pf_filter::source::Memory;

#[path = "../../crates/filter/tests/pf_filter/support/mod.rs"]
mod support;

use support::checks;

/// Each way in which rules ask the host.
const RULES: &str = "\
set skip on lo
antispoof for { em0 (em1) lo0 }
table <own> { self, em0:network, www.example.org }
pass in on egress proto tcp from { em0 em0:network em0:broadcast em0:peer em0:0 } to self port { ssh metrics }
pass in proto { tcp udp } from www.example.org to { egress lo } user { root alice } group wheel
pass out inet from any to em:network nat-to em0 rtable 1
pass out inet6 proto icmp6 from fe80::1%em0 to any icmp6-type echoreq label \"$if $srcaddr $proto\"
queue q on em0 bandwidth 10M default
";

fuzz_target!(|text: &str| {
    match Host::parse(text) {
        Ok(host) => {
            let mut files = Memory::default();
            let parsed = support::read(RULES, Dialect::OpenBsd, &host, &mut files);
            checks::places(&parsed);
            checks::idempotent(&parsed, &host, Dialect::OpenBsd, &files);
        }
        Err(error) => assert!(!error.trim().is_empty()),
    }
});
