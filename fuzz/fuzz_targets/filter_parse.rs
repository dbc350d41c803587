//! The text of a `pf.conf`. Any bytes are rules, or errors that lie in the text; none may panic, and
//! printed rules are read again as the same.
//!
//! The last byte of the input is the mode, so that any text file is an input, of OpenBSD's language and a
//! known host. Behind a byte 0x1e is a second file, that the first one can name.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pf_filter::host::Host;
use pf_filter::parse::{Config, Dialect, parse};
use pf_filter::source::Memory;

#[path = "../../crates/filter/tests/support/mod.rs"]
mod support;

use support::choices::Choices;
use support::{checks, generate};

static HOST: LazyLock<Host> = LazyLock::new(|| Host::parse(generate::HOST).unwrap());

fuzz_target!(|input: &[u8]| {
    let Some((&mode, input)) = input.split_last() else {
        return;
    };
    let cut = input.iter().position(|&byte| byte == 0x1e);
    let (first, second) = input.split_at(cut.unwrap_or(input.len()));
    let mut files = Memory::default();
    files.add("second", second.get(1..).unwrap_or_default());
    if mode & 1 == 0 {
        files.add("pf.conf", first);
    } else {
        files.add("pf.conf", generate::configuration(&mut Choices::new(input)));
    }
    let host = if mode & 2 == 0 {
        Host::default()
    } else {
        HOST.clone()
    };
    let dialect = if mode & 4 == 0 {
        Dialect::OpenBsd
    } else {
        Dialect::FreeBsd
    };
    let config = Config {
        dialect,
        host: &host,
        loader: &files,
        macros: &[],
    };
    let parsed = parse("pf.conf", &config);
    checks::places(&parsed);
    checks::idempotent(&parsed, &host, dialect, &files);
});
