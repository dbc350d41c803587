//! Rules of a file, for a host.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use pf_filter::host::Host;
use pf_filter::lint;
use pf_filter::parse::{Config, Dialect, Parsed, parse};
use pf_filter::rule::{Anchor, Rule};

use super::disk::Disk;
use super::{live, resolve};

/// The host that rules are for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostModel {
    /// A host of which nothing is known.
    Unknown,
    /// This machine.
    Live,
    /// A host that a file describes.
    File(PathBuf),
}

/// Settings for reading rules.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The host that they are for.
    pub host: HostModel,
    /// The language.
    pub dialect: Dialect,
    /// Macros that override those of the file.
    pub macros: Vec<(String, String)>,
}

/// Rules that were read.
#[derive(Debug)]
pub struct Rules {
    /// The file's name.
    pub name: String,
    /// The host that they were read for.
    pub host: Host,
    /// The rules, and their findings.
    pub parsed: Parsed,
}

impl Rules {
    /// Reads the rules of a file; `-` is standard input.
    ///
    /// # Errors
    ///
    /// When the file or the host's model cannot be read. Errors in the rules are in
    /// [`parsed`](Self::parsed).
    pub fn read(file: &Path, settings: &Settings) -> Result<Self> {
        let disk = Disk::open(file)?;
        let host = match &settings.host {
            HostModel::Unknown => Host::default(),
            HostModel::Live => live_host(&disk, settings)?,
            HostModel::File(path) => model(path)?,
        };
        let parsed = settings.parse(&disk, &host);
        let name = disk.name().to_owned();
        Ok(Self { name, host, parsed })
    }

    /// Adds findings about rules that surprise, unless there are errors, at their places.
    pub fn add_lints(&mut self, settings: &lint::Settings) {
        if self.parsed.has_errors() {
            return;
        }
        let Parsed {
            ruleset,
            diagnostics,
        } = &mut self.parsed;
        diagnostics.extend(lint::lint(ruleset, &self.host, settings));
        diagnostics.sort_by_key(|it| (it.primary.span.file, it.primary.span.start));
    }

    /// How many rules they are, those of anchors included.
    pub fn count(&self) -> usize {
        let loaded = self.parsed.ruleset.loaded.iter();
        let loaded: usize = loaded.map(|loaded| count(&loaded.rules)).sum();
        count(&self.parsed.ruleset.rules) + loaded
    }
}

impl Settings {
    fn parse(&self, disk: &Disk, host: &Host) -> Parsed {
        let config = Config {
            dialect: self.dialect,
            host,
            loader: disk,
            macros: &self.macros,
        };
        parse(disk.name(), &config)
    }
}

/// This machine, with the names that the rules have: it is asked for these alone.
fn live_host(disk: &Disk, settings: &Settings) -> Result<Host> {
    let mut host = live::host()?;
    // Where nothing is known, names stay as they are written.
    let mut nameless = Host::default();
    nameless.interfaces.clone_from(&host.interfaces);
    let parsed = settings.parse(disk, &nameless);
    resolve::add(&mut host, resolve::names(&parsed.ruleset, &nameless));
    Ok(host)
}

/// A host that a file describes.
fn model(path: &Path) -> Result<Host> {
    let name = path.display();
    let cannot = |why: &dyn std::fmt::Display| anyhow!("cannot read the host model {name}: {why}");
    let text = fs::read_to_string(path).map_err(|error| cannot(&error))?;
    Host::parse(&text).map_err(|error| cannot(&error.trim_end()))
}

fn count(rules: &[Rule]) -> usize {
    let inside = |rule: &Rule| match rule.anchor.as_deref() {
        Some(Anchor::Inline { rules, .. }) => count(rules),
        _ => 0,
    };
    rules.iter().map(|rule| 1 + inside(rule)).sum()
}
