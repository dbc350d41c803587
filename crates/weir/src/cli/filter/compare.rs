//! `weir filter diff`, `weir filter equal` and `weir filter cover`.

use std::io::stderr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use pf_filter::analysis;
use pf_filter::host::Host;

use super::answer::{COULD_NOT, answer, complain, print};
use super::explain::TextOrJson;
use super::flags::ReadArgs;
use crate::cli::output;
use crate::filter::compare::{CoverReport, DiffReport};
use crate::filter::rules::Rules;
use crate::filter::text::Painter;

const DIFF_HELP: &str = "\
Examples:
  weir filter diff /etc/pf.conf pf.conf
      Differences of a new version
  weir filter diff --host office.toml <(git show HEAD:pf.conf) pf.conf
      Differences of an edit, on a host whose addresses are known

The comparison is exact and complete for packets that meet no state: the first packet of each connection. States
outlive a reload, so a newly blocked connection stays open where it is open. A fact that nobody knows in advance, such as a
table that is filled at run time or a name, is a fact: a difference that depends on it says so.

Exit status:
  0  no packet is treated differently
  1  there are differences
  2  a file cannot be read, has errors, the rules are too complex, or invalid arguments";

const EQUAL_HELP: &str = "\
The same comparison as of `weir filter diff`, without a list of differences: sooner done.

Exit status:
  0  no packet is treated differently
  1  some packets are
  2  a file cannot be read, has errors, the rules are too complex, or invalid arguments";

const COVER_HELP: &str = "\
A rule decides if some packet exists whose verdict is the rule's. A rule that never decides has an effect only (a
match rule, one that sets a tag), is shadowed by others, or matches no packet at all.

Exit status:
  0  every rule decides or has an effect
  1  some do not
  2  a file cannot be read, has errors, the rules are too complex, or invalid arguments";

/// `weir filter diff`
#[derive(Debug, Args)]
#[command(after_long_help = DIFF_HELP)]
pub struct DiffArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub files: TwoFiles,
    /// Differences that the text shows
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub most: usize,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = TextOrJson::Text)]
    pub format: TextOrJson,
}

/// `weir filter equal`
#[derive(Debug, Args)]
#[command(after_long_help = EQUAL_HELP)]
pub struct EqualArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub files: TwoFiles,
}

/// Two files and the settings for reading them.
#[derive(Debug, Args)]
pub struct TwoFiles {
    /// Rules before; `-` for standard input
    #[arg(value_name = "BEFORE")]
    pub before: PathBuf,
    /// Rules after
    #[arg(value_name = "AFTER")]
    pub after: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub read: ReadArgs,
}

/// `weir filter cover`
#[derive(Debug, Args)]
#[command(after_long_help = COVER_HELP)]
pub struct CoverArgs {
    /// Rules, such as /etc/pf.conf; `-` for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub read: ReadArgs,
    /// List rules that are good for something, too, each with a packet
    #[arg(long)]
    pub all: bool,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = TextOrJson::Text)]
    pub format: TextOrJson,
}

/// Runs `weir filter diff`.
pub fn diff(args: &DiffArgs) -> Result<ExitCode> {
    let Some((before, after, host)) = args.files.read()? else {
        return Ok(COULD_NOT.into());
    };
    let (old, new) = (&before.parsed.ruleset, &after.parsed.ruleset);
    let diff = analysis::diff(old, new, &host).context("cannot compare the rules")?;
    let report = DiffReport::new(
        (&before.name, &old.sources),
        (&after.name, &new.sources),
        &diff,
    );
    print(&match args.format {
        TextOrJson::Text => report.text(args.most),
        TextOrJson::Json => output::json(&report)?,
    })?;
    Ok(answer(report.equal))
}

/// Runs `weir filter equal`.
pub fn equal(args: &EqualArgs) -> Result<ExitCode> {
    let Some((before, after, host)) = args.files.read()? else {
        return Ok(COULD_NOT.into());
    };
    let (old, new) = (&before.parsed.ruleset, &after.parsed.ruleset);
    let equal = analysis::equal(old, new, &host).context("cannot compare the rules")?;
    print(if equal { "equal\n" } else { "different\n" })?;
    Ok(answer(equal))
}

/// Runs `weir filter cover`.
pub fn cover(args: &CoverArgs) -> Result<ExitCode> {
    let rules = Rules::read(&args.file, &args.read.settings())?;
    if refuse(&rules) {
        return Ok(COULD_NOT.into());
    }
    let ruleset = &rules.parsed.ruleset;
    let cover = analysis::cover(ruleset, &rules.host).context("cannot examine the rules")?;
    let report = CoverReport::new(&rules.name, &cover, &ruleset.sources);
    print(&match args.format {
        TextOrJson::Text => report.text(args.all),
        TextOrJson::Json => output::json(&report)?,
    })?;
    Ok(answer(report.is_full()))
}

impl TwoFiles {
    /// The rules, and the host with the names of both; none if they have errors, which are printed.
    fn read(&self) -> Result<Option<(Rules, Rules, Host)>> {
        let settings = self.read.settings();
        let before = Rules::read(&self.before, &settings)?;
        let after = Rules::read(&self.after, &settings)?;
        let refused = [refuse(&before), refuse(&after)];
        if refused.contains(&true) {
            return Ok(None);
        }
        let mut host = after.host.clone();
        host.names.extend(before.host.names.clone());
        Ok(Some((before, after, host)))
    }
}

/// Whether rules have errors, which are printed.
fn refuse(rules: &Rules) -> bool {
    let has_errors = rules.parsed.has_errors();
    if has_errors {
        complain(&Painter::new(&stderr()).errors(&rules.parsed));
    }
    has_errors
}
