//! The parts of Markdown that the guide's tests look at: code blocks, links and headings.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// A file, split into its lines outside of code and its code blocks.
pub struct Page {
    pub path: PathBuf,
    /// Lines outside of fenced blocks, each with its number.
    prose: Vec<(usize, String)>,
    pub blocks: Vec<Block>,
}

/// A fenced code block, or one that is indented.
pub struct Block {
    /// The number of its first line.
    pub line: usize,
    /// The words behind the fence, split at commas and blanks; none if it is indented.
    pub info: Vec<String>,
    pub text: String,
}

impl Block {
    pub fn is(&self, word: &str) -> bool {
        self.info.iter().any(|it| it == word)
    }
}

impl Page {
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Ok(Self::parse(path, &text))
    }

    fn parse(path: &Path, text: &str) -> Self {
        let mut page = Self {
            path: path.to_owned(),
            prose: Vec::new(),
            blocks: Vec::new(),
        };
        let mut open: Option<Block> = None;
        for (number, line) in (1..).zip(text.lines()) {
            let fence = line.trim_start().strip_prefix("```");
            match (&mut open, fence) {
                (Some(_), Some(_)) => page.blocks.extend(open.take()),
                (Some(block), None) => block.text.extend([line, "\n"]),
                (None, Some(info)) => {
                    open = Some(Block {
                        line: number + 1,
                        info: info.split([',', ' ']).map(str::to_owned).collect(),
                        text: String::new(),
                    });
                }
                (None, None) => page.add(number, line),
            }
        }
        page
    }

    fn add(&mut self, number: usize, line: &str) {
        if let Some(code) = line.strip_prefix("    ") {
            self.blocks.push(Block {
                line: number,
                info: Vec::new(),
                text: format!("{code}\n"),
            });
        }
        self.prose.push((number, line.to_owned()));
    }

    /// The targets of its links, each with its line.
    pub fn links(&self) -> Vec<(usize, String)> {
        let mut links = Vec::new();
        let mut in_code = false;
        for (number, line) in &self.prose {
            // A code span may go on in the next line, but not beyond its paragraph.
            in_code &= !line.is_empty();
            let line = without_code(line, &mut in_code);
            for part in line.split("](").skip(1) {
                if let Some((target, _)) = part.split_once(')') {
                    links.push((*number, target.to_owned()));
                }
            }
        }
        links
    }

    /// The headings of one level, without their marks.
    pub fn headings(&self, level: usize) -> impl Iterator<Item = &str> {
        let marks = "#".repeat(level) + " ";
        self.prose
            .iter()
            .filter_map(move |(_, line)| line.strip_prefix(&marks))
    }

    /// The files that a line `{{#include FILE}}` names, each with its line.
    pub fn includes(&self) -> Vec<(usize, PathBuf)> {
        let in_blocks = self.blocks.iter().flat_map(|block| {
            let lines = block.text.lines();
            (block.line..).zip(lines)
        });
        let in_prose = self.prose.iter().map(|(number, line)| (*number, &**line));
        in_blocks
            .chain(in_prose)
            .filter_map(|(number, line)| Some((number, self.beside(include(line)?.name))))
            .collect()
    }

    /// A path that this page names.
    pub fn beside(&self, target: &str) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(target)
    }

    /// The ids of its headings, those of included pages among them.
    pub fn ids(&self) -> Result<Vec<String>> {
        let own = (1..=6).flat_map(|level| self.headings(level).map(id).collect::<Vec<_>>());
        let mut ids: Vec<String> = own.collect();
        for page in self.included_pages()? {
            ids.extend(page.ids()?);
        }
        Ok(ids)
    }

    /// The pages that it includes, as if they lay where it lies.
    pub fn included_pages(&self) -> Result<Vec<Self>> {
        let is_page = |path: &PathBuf| path.extension().is_some_and(|it| it == "md");
        let files = self.prose.iter().filter_map(|(_, line)| include(line));
        files
            .map(|file| (self.beside(file.name), file.part))
            .filter(|(file, _)| is_page(file))
            .map(|(file, name)| {
                let text = fs::read_to_string(&file)?;
                Ok(Self::parse(&self.path, part(&text, name)))
            })
            .collect()
    }
}

/// A line `{{#include FILE}}` or `{{#include FILE:PART}}`.
pub struct Include<'a> {
    pub name: &'a str,
    part: Option<&'a str>,
}

pub fn include(line: &str) -> Option<Include<'_>> {
    let inside = line.trim().strip_prefix("{{#include ")?;
    let mut words = inside.strip_suffix("}}")?.split(':');
    Some(Include {
        name: words.next()?,
        part: words.next(),
    })
}

/// The lines between the anchors of a part, or the whole text.
fn part<'a>(text: &'a str, name: Option<&str>) -> &'a str {
    let Some(name) = name else {
        return text;
    };
    let after = text.split(&format!("ANCHOR: {name}")).nth(1);
    let inside = after.and_then(|it| it.split(&format!("ANCHOR_END: {name}")).next());
    inside.unwrap_or_default()
}

/// A line without its code spans.
fn without_code(line: &str, in_code: &mut bool) -> String {
    let mut prose = String::new();
    for (index, part) in line.split('`').enumerate() {
        *in_code ^= index > 0;
        if !*in_code {
            prose += part;
        }
    }
    prose
}

/// The id of a heading, as mdBook and GitHub make it.
fn id(heading: &str) -> String {
    heading
        .trim()
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
            _ => None,
        })
        .collect()
}
