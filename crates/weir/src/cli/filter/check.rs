//! `weir filter check`.

use std::env;
use std::io::{stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};
use pf_filter::lint::Settings;
use pf_filter::parse::Parsed;
use pf_filter::print;
use serde::Serialize;

use super::answer::{answer, complain, print as say};
use super::flags::ReadArgs;
use crate::cli::output;
use crate::filter::finding::{Counts, Finding};
use crate::filter::rules::Rules;
use crate::filter::sarif::Log;
use crate::filter::text::{self, Painter, many};

const AFTER_HELP: &str = "\
Examples:
  weir filter check /etc/pf.conf
      Check the rules, whichever host they are for
  weir filter check --host office.toml -v pf.conf | diff canonical.conf -
      Compare the rules with those that pfctl would load on a host
  weir filter check --format sarif pf.conf >pf.sarif
      Write findings for a code scanning service
  git show HEAD~1:pf.conf | weir filter check -
      Check an older version

A path in the rules is relative to the working directory, as with pfctl; a file that is not there is looked for in
the folder of FILE. A file has at most 64 MiB.

A model of a host has its interfaces and names, in TOML:
  [[interfaces]]
  name = \"em0\"
  groups = [\"egress\"]
  addresses = [\"192.0.2.2/24\", \"2001:db8::2/64\"]

  [names]
  \"www.example.org\" = [\"192.0.2.80\"]

--host live reads the devices and addresses of this network namespace, /etc/passwd, /etc/group, /etc/services
and /etc/protocols, and asks the resolver for names that the rules have. A device is in the groups of its
kind, of its driver, and in egress if it has a default route.

Exit status:
  0  pf would load the rules
  1  the rules have errors, or warnings with --deny-warnings
  2  a file cannot be read, or invalid arguments";

/// `weir filter check`
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct CheckArgs {
    /// Rules, such as /etc/pf.conf; `-` for standard input. Each file is a rule set of its own
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub read: ReadArgs,
    /// Print the rules as `pfctl -nvf` prints them; findings go to standard error
    #[arg(short, long)]
    pub verbose: bool,
    /// Exit with 1 for warnings, too
    #[arg(long)]
    pub deny_warnings: bool,
    /// TCP port that must stay reachable from outside; 0 for none
    #[arg(long, value_name = "PORT", default_value_t = 22)]
    pub management_port: u16,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = CheckFormat::Text)]
    pub format: CheckFormat,
}

/// A format of findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CheckFormat {
    /// Pictures of the source, with colours on a terminal
    Text,
    /// A line for each finding: file, line, column, severity, message, code
    Short,
    /// A JSON object; of several files one a line
    Json,
    /// SARIF 2.1.0, for code scanning services
    Sarif,
}

/// The result of a check, as JSON.
#[derive(Debug, Serialize)]
struct Report<'r> {
    file: &'r str,
    valid: bool,
    rules: usize,
    tables: usize,
    #[serde(flatten)]
    counts: Counts,
    findings: &'r [Finding],
    canonical: Option<&'r str>,
}

/// Runs `weir filter check`.
pub fn run(args: &CheckArgs) -> Result<ExitCode> {
    let mut is_good = true;
    let mut all = Vec::new();
    for file in &args.files {
        let checked = Checked::new(file, args)?;
        is_good &=
            checked.counts.errors == 0 && !(args.deny_warnings && checked.counts.warnings > 0);
        match args.format {
            // One log has the findings of all files.
            CheckFormat::Sarif => all.extend(checked.findings),
            CheckFormat::Json => say(&checked.json(args)?)?,
            CheckFormat::Short => print_text(args, &checked, &text::lines(&checked.findings))?,
            CheckFormat::Text => print_text(args, &checked, &checked.pictures(args))?,
        }
    }
    if args.format == CheckFormat::Sarif {
        let folder = env::current_dir().unwrap_or_default();
        say(&output::json(&Log::new(&all, &folder))?)?;
    }
    Ok(answer(is_good))
}

/// A file that was checked.
struct Checked {
    rules: Rules,
    findings: Vec<Finding>,
    counts: Counts,
    canonical: Option<String>,
}

impl Checked {
    fn new(file: &Path, args: &CheckArgs) -> Result<Self> {
        let mut rules = Rules::read(file, &args.read.settings())?;
        rules.add_lints(&Settings {
            management_port: Some(args.management_port).filter(|&port| port != 0),
            ..Settings::default()
        });
        let findings = Finding::all(&rules.parsed.diagnostics, &rules.parsed.ruleset.sources);
        let counts = Counts::of(&findings);
        let canonical =
            (args.verbose && counts.errors == 0).then(|| print::canonical(&rules.parsed.ruleset));
        Ok(Self {
            rules,
            findings,
            counts,
            canonical,
        })
    }

    /// An object; of several files one a line.
    fn json(&self, args: &CheckArgs) -> Result<String> {
        let report = Report {
            file: &self.rules.name,
            valid: self.counts.errors == 0,
            rules: self.rules.count(),
            tables: self.rules.parsed.ruleset.tables.len(),
            counts: self.counts,
            findings: &self.findings,
            canonical: self.canonical.as_deref(),
        };
        if args.files.len() == 1 {
            output::json(&report)
        } else {
            Ok(serde_json::to_string(&report)? + "\n")
        }
    }

    fn pictures(&self, args: &CheckArgs) -> String {
        let painter = if args.verbose {
            Painter::new(&stderr())
        } else {
            Painter::new(&stdout())
        };
        let Parsed {
            ruleset,
            diagnostics,
        } = &self.rules.parsed;
        painter.findings(diagnostics, &ruleset.sources) + &summary(&self.rules, self.counts)
    }
}

/// Findings on standard output, or on standard error where the rules themselves are printed.
fn print_text(args: &CheckArgs, checked: &Checked, findings: &str) -> Result<()> {
    if !args.verbose {
        return say(findings);
    }
    complain(findings);
    checked.canonical.as_deref().map_or(Ok(()), say)
}

/// `pf.conf: valid, 12 rules, 1 table, 2 warnings`
fn summary(rules: &Rules, counts: Counts) -> String {
    let name = crate::report::text::plain(&rules.name);
    let found = text::counts(counts);
    if counts.errors > 0 {
        return format!("{name}: {found}\n");
    }
    let tables = rules.parsed.ruleset.tables.len();
    let (rules, tables) = (many(rules.count(), "rule"), many(tables, "table"));
    let separator = if found.is_empty() { "" } else { ", " };
    format!("{name}: valid, {rules}, {tables}{separator}{found}\n")
}
