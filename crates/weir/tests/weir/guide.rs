//! The guide in docs/guide: its links lead somewhere, its commands are ones that weir has, its
//! blocks marked `run` do run, and the errors that it explains are errors that the sources have.

mod markdown;
mod reports;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser as _;
use clap::error::ErrorKind;
use markdown::{Block, Page, include};
use testkit::Temporary;
use weir::cli::Cli;
use weir::switch::REASONS;
use weir::top::view::View;
use xsk::Feature;

use crate::{Test, some_at_once, tests, weir};

pub fn trials() -> Vec<Test> {
    let of_anyone = tests![
        every_link_leads_somewhere,
        every_page_is_in_the_summary,
        every_command_is_one_of_weir,
        rust_is_compiled,
        explained_errors_are_in_the_sources,
        every_feature_has_its_kernel,
        every_reason_is_explained,
        every_column_of_top_is_explained,
    ];
    let of_root = tests![marked_blocks_run];
    let of_anyone = of_anyone.into_iter().map(Test::for_everyone);
    of_anyone.chain(of_root).chain(reports::trials()).collect()
}

const BOOK: &str = "docs/guide/src";

pub fn sources() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().context("the sources are not here")
}

/// Every file below a directory with this extension.
pub fn files(directory: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path, extension)?);
        } else if path.extension().is_some_and(|it| it == extension) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The pages of the documentation, those at the root of the repository first.
fn pages() -> Result<Vec<Page>> {
    let root = sources()?;
    let at_root = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];
    let mut paths: Vec<_> = at_root.iter().map(|name| root.join(name)).collect();
    paths.extend(files(&root.join("docs"), "md")?);
    paths.iter().map(|path| Page::read(path)).collect()
}

fn is_in_book(path: &Path) -> Result<bool> {
    Ok(path.starts_with(sources()?.join(BOOK)))
}

/// All complaints at once, so that one run shows them.
pub fn none_of(complaints: &[String]) -> Result<()> {
    ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    Ok(())
}

fn every_link_leads_somewhere() -> Result<()> {
    let mut wrong = Vec::new();
    for page in pages()? {
        for (line, file) in page.includes() {
            if !file.is_file() {
                wrong.push(format!(
                    "{}:{line}: no {}",
                    page.path.display(),
                    file.display()
                ));
            }
        }
        for page in page.included_pages()?.iter().chain([&page]) {
            for (line, target) in page.links() {
                if let Err(why) = check_link(page, &target) {
                    wrong.push(format!("{}:{line}: {target}: {why}", page.path.display()));
                }
            }
        }
    }
    none_of(&wrong)
}

fn check_link(page: &Page, target: &str) -> Result<()> {
    if target.contains("://") {
        return Ok(());
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() {
        page.path.clone()
    } else {
        normal(&page.beside(file))
    };
    ensure!(path.exists(), "no {}", path.display());
    ensure!(
        is_in_book(&path)? || !is_in_book(&page.path)?,
        "the built book has only the files of {BOOK}"
    );
    if !anchor.is_empty() {
        let ids = Page::read(&path)?.ids()?;
        ensure!(ids.iter().any(|id| id == anchor), "no such heading");
    }
    Ok(())
}

/// The path without `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            normal.pop();
        } else {
            normal.push(part);
        }
    }
    normal
}

fn every_page_is_in_the_summary() -> Result<()> {
    let book = sources()?.join(BOOK);
    let summary = Page::read(&book.join("SUMMARY.md"))?;
    let listed: BTreeSet<_> = summary
        .links()
        .iter()
        .map(|(_, target)| book.join(target))
        .collect();
    let pages: BTreeSet<_> = files(&book, "md")?.into_iter().collect();
    let wrong: Vec<_> = pages
        .difference(&listed)
        .filter(|path| !path.ends_with("SUMMARY.md"))
        .map(|path| format!("not in SUMMARY.md: {}", path.display()))
        .collect();
    none_of(&wrong)
}

fn every_command_is_one_of_weir() -> Result<()> {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for page in pages()? {
        let is_shell =
            |block: &&Block| block.info.is_empty() || block.is("sh") || block.is("console");
        for block in page.blocks.iter().filter(is_shell) {
            for words in commands(&block.text) {
                seen += 1;
                if let Err(why) = check_command(&words) {
                    let (page, line) = (page.path.display(), block.line);
                    wrong.push(format!("{page}:{line}: {}: {why}", words.join(" ")));
                }
            }
        }
    }
    ensure!(seen > 20, "only {seen} commands were found");
    none_of(&wrong)
}

/// The commands of a block that run weir, as words. `./run bench` is `weir bench`.
fn commands(block: &str) -> Vec<Vec<String>> {
    let joined = block.replace("\\\n", " ");
    joined.lines().filter_map(command).collect()
}

fn command(line: &str) -> Option<Vec<String>> {
    let prompt = ["$ ", "# "];
    let line = line.trim_start();
    let line = prompt
        .iter()
        .find_map(|it| line.strip_prefix(it))
        .unwrap_or(line);
    let ends = ["#", "|", ">", "2>", "&&", "||", "&", ";"];
    let mut words = line
        .split_whitespace()
        .take_while(|word| !ends.contains(word))
        .map(|word| word.trim_matches(['\'', '"']).to_owned())
        .skip_while(|word| word == "sudo")
        .peekable();
    let program = words.next()?;
    let is_run = program == "./run" && words.peek().is_some_and(|word| word == "bench");
    if !is_run && program != "weir" && !program.ends_with("/weir") {
        return None;
    }
    Some(["weir".to_owned()].into_iter().chain(words).collect())
}

fn check_command(words: &[String]) -> Result<()> {
    // `./run bench` alone is another command.
    if words.len() == 2 && words[1] == "bench" {
        return Ok(());
    }
    match Cli::try_parse_from(words) {
        Ok(_) => Ok(()),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
            ) =>
        {
            Ok(())
        }
        Err(error) => bail!("{}", error.to_string().lines().next().unwrap_or_default()),
    }
}

/// Rust in the guide is included from the library's examples, which are compiled.
fn rust_is_compiled() -> Result<()> {
    let examples = sources()?.join("crates/xsk/examples");
    let mut wrong = Vec::new();
    for page in pages()? {
        if !is_in_book(&page.path)? {
            continue;
        }
        for block in page.blocks.iter().filter(|block| block.is("rust")) {
            let is_example = include(&block.text)
                .is_some_and(|it| normal(&page.beside(it.name)).starts_with(&examples));
            if !is_example {
                let (page, line) = (page.path.display(), block.line);
                wrong.push(format!("{page}:{line}: not an example of crates/xsk"));
            }
        }
    }
    none_of(&wrong)
}

/// The headings of the troubleshooting page are errors; `...` stands for words that differ.
fn explained_errors_are_in_the_sources() -> Result<()> {
    let root = sources()?;
    let mut text = String::new();
    for directory in fs::read_dir(root.join("crates"))? {
        for file in files(&directory?.path().join("src"), "rs")? {
            text += &fs::read_to_string(file)?;
        }
    }
    let text = unbroken(&text);
    let page = Page::read(&root.join(BOOK).join("troubleshooting.md"))?;
    let mut wrong = Vec::new();
    let errors: Vec<_> = page.headings(3).map(|it| it.trim_matches('`')).collect();
    ensure!(
        errors.len() > 20,
        "only {} errors are explained",
        errors.len()
    );
    for error in errors {
        let missing = error.split("...").find(|part| !text.contains(part.trim()));
        wrong.extend(missing.map(|part| format!("{error}: no error has {part:?}")));
    }
    none_of(&wrong)
}

/// Source text in which each string literal is on one line.
pub fn unbroken(text: &str) -> String {
    let mut parts = text.split("\\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.trim_start())
}

fn every_feature_has_its_kernel() -> Result<()> {
    let page = sources()?.join(BOOK).join("requirements.md");
    let text = fs::read_to_string(page)?;
    for feature in Feature::ALL {
        let row = text
            .lines()
            .find(|line| line.starts_with(&format!("| {feature}")))
            .with_context(|| format!("no row of {feature}"))?;
        let since = format!("| {} |", feature.since());
        ensure!(row.contains(&since), "not since {}: {row}", feature.since());
    }
    Ok(())
}

/// The reasons of `weir switch`, in the order of the sources, and in the schema of its report.
fn every_reason_is_explained() -> Result<()> {
    let page = fs::read_to_string(sources()?.join(BOOK).join("operators/switch.md"))?;
    let (_, section) = page.split_once("\n## Reasons\n").context("no section")?;
    let (section, _) = section.split_once("\n## ").context("no other section")?;
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let explained: Vec<_> = rows.filter_map(|row| row.split('`').next()).collect();
    let reasons: Vec<_> = REASONS.iter().map(|(name, _)| *name).collect();
    ensure!(explained == reasons, "{explained:?}, not {reasons:?}");
    let schema = fs::read_to_string(sources()?.join(BOOK).join("schemas/switch.json"))?;
    let alternatives = format!("\"^({})$\"", reasons.join("|"));
    ensure!(schema.contains(&alternatives), "no {alternatives}");
    Ok(())
}

/// The columns of `weir top`, with the explanations that its key shows, in the guide and in the schema of its report.
fn every_column_of_top_is_explained() -> Result<()> {
    let page = fs::read_to_string(sources()?.join(BOOK).join("operators/top-columns.md"))?;
    let schema = fs::read_to_string(sources()?.join(BOOK).join("schemas/top.json"))?;
    let schema: serde_json::Value = serde_json::from_str(&schema)?;
    let mut wrong = Vec::new();
    for view in View::ALL {
        let mut section = format!("## {}\n\n", view.title());
        for column in view.columns() {
            let about = &column.explanation;
            let check = about.check.map(|check| format!(" Check: `{check}`."));
            let _ = write!(
                section,
                "**`{}`** (`{}`): {}.\nRead: {}. Scope: {}. Without: {}.\nBy hand: `{}`.{}\n\n",
                column.title,
                column.id,
                about.meaning,
                about.read,
                about.scope,
                about.without,
                about.command,
                check.unwrap_or_default()
            );
            let property = &schema["properties"][view.id()]["items"]["properties"][column.id];
            if property["description"] != column.explanation.meaning {
                wrong.push(format!("top.json: {} has no {}", view.id(), column.id));
            }
        }
        if !page.contains(section.trim_end()) {
            wrong.push(format!("top-columns.md must have:\n\n{section}"));
        }
    }
    none_of(&wrong)
}

/// The lab that blocks of the guide make and remove, by its name. One that fails leaves it.
struct Leftover(String);

impl Drop for Leftover {
    fn drop(&mut self) {
        // Usually there is none.
        let _ = weir().args(["lab", "down", &self.0]).output();
    }
}

/// Blocks marked `run` are run by a shell, in the order of their page, in a directory of their own.
fn marked_blocks_run() -> Result<()> {
    let pages = pages()?;
    let run = some_at_once(&pages, run_blocks);
    let run: Vec<usize> = run.into_iter().collect::<Result<_>>()?;
    let count: usize = run.iter().sum();
    ensure!(count > 3, "only {count} blocks are marked");
    Ok(())
}

/// Runs the marked blocks of a page, and returns their number. Their lab `guide` has a name of its own here, so that
/// those of other pages and another run of this test do no harm.
fn run_blocks(page: &Page) -> Result<usize> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let lab = Leftover(format!("guide-{}-{number}", std::process::id()));
    let program = Path::new(env!("CARGO_BIN_EXE_weir"));
    let beside = program.parent().context("no directory")?;
    let path = std::env::var("PATH").unwrap_or_default();
    let directory = Temporary::new("guide")?;
    let marked = || page.blocks.iter().filter(|block| block.is("run"));
    for block in marked() {
        let output = Command::new("sh")
            .args(["-euc", &block.text.replace("guide", &lab.0)])
            .current_dir(directory.path())
            .env("PATH", format!("{}:{path}", beside.display()))
            .output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        let (page, line) = (page.path.display(), block.line);
        ensure!(
            output.status.success(),
            "{page}:{line}: {}: {stderr}",
            output.status
        );
    }
    Ok(marked().count())
}
