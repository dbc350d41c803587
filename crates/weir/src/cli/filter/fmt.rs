//! `weir filter fmt`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use pf_filter::format::format;
use pf_filter::source::Loader as _;

use super::answer::{COULD_NOT, answer, complain, print};
use crate::filter::disk::{DASH, Disk};
use crate::filter::rewrite::rewrite;

const AFTER_HELP: &str = "\
Examples:
  weir filter fmt pf.conf
      Format a file in place
  weir filter fmt --check pf.conf anchors/*.conf
      List files that are not formatted
  weir filter fmt - <pf.conf
      Print formatted rules

A file is replaced at once, with its mode and owner; one that is formatted already is not touched. Files that
it includes are formatted where they are named.

Exit status:
  0  everything is formatted
  1  with --check: some files are not
  2  a file cannot be read or written, or invalid arguments";

/// `weir filter fmt`
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct FmtArgs {
    /// Rules; `-` formats standard input to standard output
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Change nothing; list the files that would change
    #[arg(long)]
    pub check: bool,
}

/// The fate of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Done {
    AsItWas,
    Changed,
    Failed,
}

/// Runs `weir filter fmt`.
pub fn run(args: &FmtArgs) -> ExitCode {
    let mut worst = Done::AsItWas;
    for file in &args.files {
        // One file that cannot be formatted does not keep the others from it.
        let done = one(file, args).unwrap_or_else(|error| {
            complain(&format!("weir: error: {error:#}\n"));
            Done::Failed
        });
        worst = worst.max(done);
    }
    match worst {
        Done::Failed => COULD_NOT.into(),
        Done::Changed => answer(!args.check),
        Done::AsItWas => ExitCode::SUCCESS,
    }
}

fn one(file: &Path, args: &FmtArgs) -> Result<Done> {
    let disk = Disk::open(file)?;
    let bytes = disk.read(disk.name())?;
    let Ok(text) = String::from_utf8(bytes) else {
        anyhow::bail!("cannot format {}: it is no UTF-8", disk.name());
    };
    let formatted = format(&text);
    let changed = formatted != text;
    if args.check {
        if changed {
            print(&(disk.name().to_owned() + "\n"))?;
        }
    } else if file.as_os_str() == DASH {
        print(&formatted)?;
    } else if changed {
        rewrite(file, &formatted)?;
    }
    Ok(if changed {
        Done::Changed
    } else {
        Done::AsItWas
    })
}
