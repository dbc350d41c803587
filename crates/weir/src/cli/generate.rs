//! `weir man` and `weir completions`: made from what the command line itself is parsed with.

use std::io::{self, Write as _, stdout};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::Cli;

/// `weir man`
#[derive(Debug, Args)]
pub struct ManArgs {
    /// The command to describe, e.g. `bench` or `lab up` [default: weir itself]
    #[arg(value_name = "COMMAND", conflicts_with = "dir")]
    pub command: Vec<String>,
    /// Write the pages of all commands into a directory, e.g. /usr/local/share/man/man1
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// `weir completions`
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell they are for
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Runs `weir man`.
pub fn man(args: &ManArgs) -> Result<()> {
    let mut command = Cli::command().disable_help_subcommand(true);
    // Gives subcommands their full names.
    command.build();
    if let Some(dir) = &args.dir {
        return write_pages(&command, dir).with_context(|| {
            format!(
                "cannot write man pages to {}: is it there and writable?",
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
fn write_pages(command: &clap::Command, dir: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        write_pages(below, dir)?;
    }
    manual(command).generate_to(dir).map(drop)
}

fn manual(command: &clap::Command) -> clap_mangen::Man {
    clap_mangen::Man::new(command.clone())
        .source(concat!("weir ", env!("CARGO_PKG_VERSION")))
        .manual("weir manual")
}

/// Runs `weir completions`.
pub fn completions(args: &CompletionsArgs) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut visible(), "weir", &mut script);
    print(&script)
}

/// The command line without the commands that weir runs itself: `clap_complete` offers hidden ones too.
fn visible() -> clap::Command {
    let all = Cli::command();
    clap::Command::new("weir")
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .args(all.get_arguments().cloned())
        .subcommands(
            all.get_subcommands()
                .filter(|it| !it.is_hide_set())
                .cloned(),
        )
}

fn print(bytes: &[u8]) -> Result<()> {
    let mut out = stdout().lock();
    out.write_all(bytes)
        .and_then(|()| out.flush())
        .context("cannot write to standard output")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn completions_offer_all_commands_but_the_hidden() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut visible(), "weir", &mut script);
            let script = String::from_utf8(script).expect("text");
            for command in Cli::command().get_subcommands() {
                let offered = script.contains(command.get_name());
                assert_eq!(offered, !command.is_hide_set(), "{shell}: {command}");
            }
        }
    }
}
