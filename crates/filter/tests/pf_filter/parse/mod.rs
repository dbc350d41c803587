//! The parser from outside: canonical texts, errors and their places, hostile input, properties.
// Texts of many lines are made once.
#![allow(clippy::format_collect, clippy::format_push_string)]

mod canonical;
mod errors;
mod hostile;
mod origins;
mod properties;

use pf_filter::diagnostic::Severity;
use pf_filter::host::Host;
use pf_filter::parse::{Dialect, Parsed};
use pf_filter::source::Memory;

use crate::support;

/// Files that the tests' configurations name.
fn files() -> Memory {
    let mut files = Memory::default();
    files.add("addresses", "10.9.0.1 # one\n!10.9.0.2\n10.9.1.0/24\n");
    files.add("more", "2001:db8::1\n");
    files.add("rules", "pass in proto tcp to port 22\n");
    files.add(
        "loads",
        "pass\nanchor inner\nload anchor inner from \"rules\"\n",
    );
    files.add("bad", "pass in\nblok out\n");
    files.add("open", "pass label \"open\n");
    files.add("endless", "pass\ninclude \"endless\"\n");
    files.add("bytes", "pass\0");
    files.add("badtable", "10.1.0.1\n10.1.0.300\n");
    files.add("longtable", format!("10.1.0.1\n{}\n", "x".repeat(300)));
    files.add("weightless", "10.1.0.1 weight\n");
    files.add("heavy", "10.1.0.1 weight 70000\n");
    files
}

fn known_host() -> Host {
    Host::parse(support::generate::HOST).expect("the host model is right")
}

fn read_with(host: &Host, files: &mut Memory, text: impl AsRef<[u8]>) -> Parsed {
    let parsed = support::read(text.as_ref(), Dialect::OpenBsd, host, files);
    support::checks::places(&parsed);
    support::checks::idempotent(&parsed, host, Dialect::OpenBsd, files);
    parsed
}

fn read(text: impl AsRef<[u8]>) -> Parsed {
    read_with(&known_host(), &mut files(), text)
}

/// `FILE:LINE:COLUMN CODE` of each finding that is no notice.
fn findings(parsed: &Parsed) -> Vec<String> {
    let found = parsed
        .diagnostics
        .iter()
        .filter(|found| found.severity > Severity::Notice);
    let text = found.map(|found| {
        let place = parsed.ruleset.sources.place(found.primary.span);
        format!("{place} {}", found.code)
    });
    text.collect()
}
