//! `weir filter support`.

use std::io::stderr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::answer::{NO, answer, complain, print};
use super::flags::ReadArgs;
use crate::cli::flags::Format;
use crate::cli::output;
use crate::filter::rules::Rules;
use crate::filter::support::Report;
use crate::filter::text::Painter;

const AFTER_HELP: &str = "\
Examples:
  weir filter support pf.conf
      A row for each statement, and the commands for those that cannot be honoured
  weir filter support --format json pf.conf | jq -r '.statements[].refusals[].instead[]'
      The commands alone

The columns are the hooks of the kernel: XDP in and tcx in see packets that arrive, tcx out those that leave.
`-` is a hook that does not see the statement's packets.

The commands are meant for base chains prerouting, input, forward, output and postrouting of a table
`inet filter`, and prerouting and postrouting of `ip nat` and `ip6 nat`. $egress in a line is for the interfaces
of that group: `nft -D egress=eth0 -f FILE`.

Exit status:
  0  every statement could be honoured
  1  some could not, or the rules have errors
  2  a file cannot be read, or invalid arguments";

/// `weir filter support`
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct SupportArgs {
    /// Rules, such as /etc/pf.conf; `-` for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub read: ReadArgs,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

/// Runs `weir filter support`.
pub fn run(args: &SupportArgs) -> Result<ExitCode> {
    let rules = Rules::read(&args.file, &args.read.settings())?;
    if rules.parsed.has_errors() {
        complain(&Painter::new(&stderr()).errors(&rules.parsed));
        return Ok(NO.into());
    }
    let report = Report::new(&rules.name, &rules.parsed.ruleset);
    print(&match args.format {
        Format::Table => report.text(),
        Format::Json => output::json(&report)?,
    })?;
    Ok(answer(report.refused == 0 && report.globals.is_empty()))
}
