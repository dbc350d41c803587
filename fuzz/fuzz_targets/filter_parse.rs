//! The text of a `pf.conf`. Any bytes are rules, or errors that lie in the text; none may panic, and
//! printed rules are read again as the same.
//!
//! The last byte of the input is the mode, so that any text file is an input, of OpenBSD's language and a
//! known host. Behind a byte 0x1e is a second file, that the first one can name.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pf_filter::host::Host;
use pf_filter::parse::Dialect;
use pf_filter::source::Memory;

#[path = "../../crates/filter/tests/pf_filter/support/mod.rs"]
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
    let text = if mode & 1 == 0 {
        first.to_vec()
    } else {
        generate::configuration(&mut Choices::new(input)).into()
    };
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
    let parsed = support::read(text, dialect, &host, &mut files);
    checks::places(&parsed);
    checks::idempotent(&parsed, &host, dialect, &files);
});
