//! Settings of the reader, its limits and its result.

use crate::diagnostic::{Diagnostic, Severity};
use crate::host::Host;
use crate::rule::{Dialect, Ruleset};
use crate::source::Loader;

/// Most rules that a configuration expands to, and addresses of its pools' lists.
pub const RULES_MAX: usize = if cfg!(fuzzing) { 2000 } else { 1_000_000 };
/// Most bytes of all its files.
pub const BYTES_MAX: usize = if cfg!(fuzzing) { 256 << 10 } else { 64 << 20 };
/// Most files.
pub const FILES_MAX: usize = if cfg!(fuzzing) { 100 } else { 10_000 };
/// Most files that include each other.
pub const INCLUDE_DEPTH_MAX: usize = 16;
/// Most braces inside each other: anchors (as pfctl's), and lists.
pub const BRACE_DEPTH_MAX: usize = 64;
/// Most errors that are reported, and most warnings and notices. Behind the last error nothing is read.
pub const ERRORS_MAX: usize = 1000;
/// Most bytes of a macro's value.
pub(super) const MACRO_MAX: usize = 4 << 20;

/// Settings for reading a configuration.
#[derive(Clone, Copy)]
pub struct Config<'a> {
    /// The language.
    pub dialect: Dialect,
    /// The host it is for.
    pub host: &'a Host,
    /// Reads the files.
    pub loader: &'a dyn Loader,
    /// Macros that override those of the file (`-D name=value`).
    pub macros: &'a [(String, String)],
}

/// A configuration that was read.
#[derive(Debug)]
pub struct Parsed {
    /// Its rules; those with errors are left out.
    pub ruleset: Ruleset,
    /// Findings, in the order of the source.
    pub diagnostics: Vec<Diagnostic>,
}

impl Parsed {
    /// Whether pf would refuse the configuration.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.diagnostics
            .iter()
            .any(|diagnostic| diagnostic.severity == Severity::Error)
    }
}
