//! `weir man` and `weir completions`, from the definition that the command line is parsed by.

use std::io;
use std::path::{Path, PathBuf};

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
    let mut command = weir.disable_help_subcommand(true);
    // Gives subcommands their full names.
    command.build();
    if let Some(dir) = &args.dir {
        return write_pages(&command, dir).with_context(|| {
            format!(
                "cannot write man pages to {}: is it a writable directory?",
                dir.display()
            )
        });
    }
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
    manual(described)
        .render(&mut page)
        .context("cannot make the man page")?;
    print(&page)
}

/// Writes the page of a command, and of those below it that are not hidden.
fn write_pages(command: &Command, dir: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        write_pages(below, dir)?;
    }
    manual(command).generate_to(dir).map(drop)
}

fn manual(command: &Command) -> clap_mangen::Man {
    clap_mangen::Man::new(command.clone())
        .source(concat!("weir ", env!("CARGO_PKG_VERSION")))
        .manual("weir manual")
}

/// Runs `weir completions`; `weir` is the whole command line.
pub fn completions(args: &CompletionsArgs, weir: &Command) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut visible(weir), "weir", &mut script);
    print(&script)
}

/// The command line without the commands that weir runs itself: `clap_complete` offers hidden ones too.
fn visible(weir: &Command) -> Command {
    Command::new("weir")
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .args(weir.get_arguments().cloned())
        .subcommands(
            weir.get_subcommands()
                .filter(|it| !it.is_hide_set())
                .cloned(),
        )
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn completions_offer_all_commands_but_the_hidden() {
        let weir = Cli::command();
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut visible(&weir), "weir", &mut script);
            let script = String::from_utf8(script).expect("text");
            for command in weir.get_subcommands() {
                let offered = script.contains(command.get_name());
                assert_eq!(offered, !command.is_hide_set(), "{shell}: {command}");
            }
        }
    }
}
