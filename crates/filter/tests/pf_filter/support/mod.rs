//! Code that the tests and the fuzz targets share: `fuzz/fuzz_targets` includes this folder by its path.
#![allow(dead_code, missing_docs)]

pub mod checks;
pub mod choices;
pub mod generate;

use pf_filter::host::Host;
use pf_filter::parse::{Config, Dialect, Parsed, parse};
use pf_filter::source::Memory;

/// Reads a text as `pf.conf`, which may name the other files.
pub fn read(text: impl Into<Vec<u8>>, dialect: Dialect, host: &Host, files: &mut Memory) -> Parsed {
    files.add("pf.conf", text);
    let config = Config {
        dialect,
        host,
        loader: files,
        macros: &[],
    };
    parse("pf.conf", &config)
}

/// A number of random cases; the larger one with `WEIR_TEST_LONG`, for a library built with optimization.
pub fn cases(usual: u64, long: u64) -> u64 {
    if std::env::var_os("WEIR_TEST_LONG").is_some() {
        long
    } else {
        usual
    }
}
