//! `weir bench-count`.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;

use crate::bench::instructions::{Options, measure, table};
use crate::cli::output;

/// `weir bench-count`
#[derive(Debug, Args)]
pub struct CountArgs {
    /// Batch sizes: a column for each
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,8,64",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub batch: Vec<u32>,
    /// Frame length without the FCS, 64 to 1500: the rings have room for the frames of a turn
    #[arg(long, value_name = "BYTES", default_value_t = 64,
          value_parser = clap::value_parser!(u16).range(64..=1500))]
    pub size: u16,
    /// Number of turns
    #[arg(long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub turns: u32,
    /// Emulator and compiler, for the report
    #[arg(long, value_name = "TEXT", default_value = "unknown emulator")]
    pub machine: String,
    /// Also write the report to FILE, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Runs `weir bench-count`.
pub fn run(args: &CountArgs) -> Result<()> {
    let options = Options {
        batches: args.batch.clone(),
        size: args.size,
        turns: args.turns,
        machine: args.machine.clone(),
    };
    let report = measure(&options, |count| eprintln!("weir: {count}"))?;
    if let Some(path) = &args.json {
        let json = output::json(&report)?;
        std::fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))?;
    }
    output::print(table::render(&report, &args.batch))
}
