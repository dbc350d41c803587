//! `weir man` and `weir completions`, from the definition that the command line is parsed by.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Command};
use clap_complete::Shell;

use crate::cli::output::print;

/// `weir man`
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Command, e.g. `bench` or `lab up` [default: weir itself]
    #[arg(value_name = "COMMAND", conflicts_with = "dir")]
    pub command: Vec<String>,
    /// Write the pages of all commands to DIR, e.g. /usr/local/share/man/man1
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// `weir completions`
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Runs `weir man`; `weir` is the whole command line.
pub fn man(args: &ManArgs, weir: Command) -> Result<()> {
    if let Some(dir) = &args.dir {
        return clap_mangen::generate_to(weir, dir).with_context(|| {
            format!(
                "cannot write man pages to {}: is it a writable directory?",
                dir.display()
            )
        });
    }
    let mut command = weir.disable_help_subcommand(true);
    // Gives subcommands their full names.
    command.build();
    let mut described = &command;
    for name in &args.command {
        let found = described.find_subcommand(name);
        ensure!(
            found.is_some_and(|it| !it.is_hide_set()),
            "there is no command '{name}': see `weir help`"
        );
        described = found.unwrap_or(described);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(described.clone())
        .source(concat!("weir ", env!("CARGO_PKG_VERSION")))
        .render(&mut page)
        .context("cannot make the man page")?;
    print(&page)
}

/// Runs `weir completions`; `weir` is the whole command line.
pub fn completions(args: &CompletionsArgs, mut weir: Command) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut weir, "weir", &mut script);
    print(&script)
}
