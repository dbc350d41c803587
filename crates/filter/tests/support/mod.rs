//! Code that the tests and the fuzz targets share: `fuzz/fuzz_targets` includes this folder by its path.
#![allow(dead_code, missing_docs)]

pub mod checks;
pub mod choices;
pub mod generate;
