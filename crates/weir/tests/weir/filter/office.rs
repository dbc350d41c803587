//! The office of the guide: its rules, packets and edits are those of the chapter.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::{Test, output, tests};

pub fn tests() -> Vec<Test> {
    tests![the_chapter_shows_real_output]
}

fn guide() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/src/operators")
}

/// Every `console` block of the chapter is the program's output, `...` standing for lines left out.
fn the_chapter_shows_real_output() -> Result<()> {
    let chapter = std::fs::read_to_string(guide().join("filter.md"))?;
    let mut seen = 0;
    for block in chapter.split("```console\n").skip(1) {
        let (block, _) = block.split_once("```").context("a block's end")?;
        let mut parts = block.split("$ ").skip(1).peekable();
        ensure!(parts.peek().is_some(), "no command: {block}");
        for part in parts {
            seen += 1;
            let (command, shown) = part.split_once('\n').context("a command")?;
            compare(command, shown)?;
        }
    }
    ensure!(seen >= 14, "only {seen} commands");
    Ok(())
}

fn compare(command: &str, shown: &str) -> Result<()> {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_weir"));
    let beside = program.parent().context("a directory")?;
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("bash");
    shell
        .args(["-c", command])
        .current_dir(guide().join("filter"))
        .env("PATH", format!("{}:{path}", beside.display()));
    let output = output(&mut shell)?;
    let printed = String::from_utf8(output.stdout)? + &String::from_utf8(output.stderr)?;
    let shown = format!("{}\n", shown.trim_end());
    let mut rest = printed.as_str();
    for (index, part) in shown.split("...\n").enumerate() {
        let part = part.trim_end();
        let at = rest
            .find(part)
            .with_context(|| format!("{command}: no\n{part}\nin\n{printed}"))?;
        ensure!(
            index > 0 || at == 0,
            "{command}: does not begin with\n{part}\nbut is\n{printed}"
        );
        rest = &rest[at + part.len()..];
    }
    let is_open = shown.ends_with("...\n");
    ensure!(
        is_open || rest.trim().is_empty(),
        "{command}: not shown:\n{rest}"
    );
    Ok(())
}
