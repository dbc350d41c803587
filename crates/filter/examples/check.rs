//! Checks a file of pf rules: `check FILE`. Prints its findings, and its canonical text with `-v`.

use std::io;
use std::process::ExitCode;

use pf_filter::host::Host;
use pf_filter::parse::{Config, Dialect, parse};
use pf_filter::print;
use pf_filter::source::Loader;

struct Files;

impl Loader for Files {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(path) = arguments.iter().find(|argument| !argument.starts_with('-')) else {
        eprintln!("usage: check [-v] FILE");
        return ExitCode::from(2);
    };
    let host = Host::default();
    let parsed = parse(
        path,
        &Config {
            dialect: Dialect::OpenBsd,
            host: &host,
            loader: &Files,
            macros: &[],
        },
    );
    for found in &parsed.diagnostics {
        let place = parsed.ruleset.sources.place(found.primary.span);
        eprintln!(
            "{place}: {:?}: {} [{}]",
            found.severity, found.message, found.code
        );
        if let Some(help) = &found.help {
            eprintln!("    {help}");
        }
    }
    if arguments.iter().any(|argument| argument == "-v") {
        print!("{}", print::canonical(&parsed.ruleset));
    }
    if parsed.has_errors() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
