//! From text to rules: tokens, statements, expansion.
//!
//! As in pfctl's `parse.y`, one pass reads the file from top to bottom: a macro, `set
//! block-policy` or `set state-policy` holds from its line on. Unlike it, the parser goes on
//! behind each error, inside braces too, and reports each cause once.

mod address;
mod anchor;
mod config;
pub mod freebsd;
mod number;
mod option;
mod parser;
mod queue;
mod redirect;
mod resolve;
mod rule;
mod scope;
mod scrub;
mod state;
mod statement;
pub(crate) mod syntax;
mod table;
mod translation;

pub use crate::rule::Dialect;
pub use config::{
    BRACE_DEPTH_MAX, BYTES_MAX, Config, ERRORS_MAX, FILES_MAX, INCLUDE_DEPTH_MAX, Parsed, RULES_MAX,
};
pub(crate) use parser::{Failed, Parser};
pub(crate) use table::tables_of;

use crate::diagnostic::Diagnostic;
use crate::source::Span;

/// Reads a configuration, through the loader.
#[must_use]
pub fn parse(path: &str, config: &Config<'_>) -> Parsed {
    let mut parser = Parser::new(config);
    match config.loader.read(path) {
        Ok(bytes) => {
            parser.read_main(path, &bytes);
        }
        Err(error) => {
            let file = parser.ruleset.sources.add(path, "");
            let span = Span {
                file,
                start: 0,
                end: 0,
            };
            let message = format!("cannot read \"{path}\": {error}");
            parser.report(Diagnostic::error("unreadable", span, message));
        }
    }
    parser.finish()
}
