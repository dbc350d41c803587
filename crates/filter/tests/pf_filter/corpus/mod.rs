//! OpenBSD's own regression tests of pfctl, given as a directory: their texts are not ours, so
//! they are not part of this repository.
//!
//! `PF_FILTER_CORPUS` names `regress/sbin/pfctl` of OpenBSD's sources, `PF_FILTER_CORPUS_FREEBSD`
//! `sbin/pfctl/tests/files` of FreeBSD's. Without them the tests are
//! skipped; `--ignored corpus` runs them.

mod freebsd;

mod policy;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::{Display, Write as _};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pf_filter::diagnostic::Severity;
use pf_filter::host::Host;
use pf_filter::parse::{Config, Dialect, Parsed, parse};
use pf_filter::print;
use pf_filter::source::Loader;

/// Files of the corpus, by the names that its tests use.
struct Corpus {
    directory: PathBuf,
    stdin: Vec<u8>,
}

impl Loader for Corpus {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        if path == "-" {
            return Ok(self.stdin.clone());
        }
        if path == "/dev/null" {
            return Ok(Vec::new());
        }
        let path = Path::new(path);
        if path.is_absolute() {
            return Err(io::ErrorKind::NotFound.into());
        }
        fs::read(self.directory.join(path))
    }
}

/// The host that the tests expect.
fn host() -> Host {
    Host::parse(include_str!("host.toml")).expect("the host model is right")
}

fn read_openbsd(directory: &Path, text: &[u8], macros: &[(String, String)]) -> Parsed {
    read(directory, &host(), Dialect::OpenBsd, text, macros)
}

fn read(
    directory: &Path,
    host: &Host,
    dialect: Dialect,
    text: &[u8],
    macros: &[(String, String)],
) -> Parsed {
    let corpus = Corpus {
        directory: directory.into(),
        stdin: text.into(),
    };
    let config = Config {
        dialect,
        host,
        loader: &corpus,
        macros,
    };
    parse("-", &config)
}

fn errors(parsed: &Parsed) -> String {
    let mut text = String::new();
    for diagnostic in parsed
        .diagnostics
        .iter()
        .filter(|found| found.severity == Severity::Error)
    {
        let place = parsed.ruleset.sources.place(diagnostic.primary.span);
        let _ = writeln!(
            text,
            "{place}: {} [{}]",
            diagnostic.message, diagnostic.code
        );
    }
    text
}

/// Compares the canonical text, and names the first line that differs.
fn same(parsed: &Parsed, wanted: &str) -> Result<(), Failed> {
    without_errors(parsed)?;
    let got = print::canonical(&parsed.ruleset);
    if got == wanted {
        return Ok(());
    }
    let lines = got.lines().zip(wanted.lines());
    let first = lines
        .clone()
        .position(|(got, wanted)| got != wanted)
        .unwrap_or_else(|| lines.count());
    let line = |text: &str| text.lines().nth(first).unwrap_or("(end)").to_owned();
    Err(format!(
        "line {}:\n  wanted {:?}\n  got    {:?}",
        first + 1,
        line(wanted),
        line(&got)
    )
    .into())
}

/// `X=1 2 3` and `X+=4` of the corpus's Makefile.
fn list(makefile: &str, name: &str) -> Vec<String> {
    let lines = makefile.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        rest.strip_prefix("+=").or_else(|| rest.strip_prefix('='))
    });
    lines
        .flat_map(str::split_whitespace)
        .map(str::to_owned)
        .collect()
}

/// Why a file is not as it should be.
type Failed = Box<dyn Error>;

/// The outcome of each file.
#[derive(Default)]
struct Outcomes {
    passed: usize,
    failures: Vec<String>,
}

impl Outcomes {
    fn add(&mut self, name: impl Display, outcome: Result<(), Failed>) {
        match outcome {
            Ok(()) => self.passed += 1,
            Err(error) => self.failures.push(format!("{name}: {error}")),
        }
    }

    /// Names all failures.
    fn end(&self) {
        println!("{} are right", self.passed);
        assert!(
            self.failures.is_empty(),
            "{} of {} fail:\n{}",
            self.failures.len(),
            self.failures.len() + self.passed,
            self.failures.join("\n")
        );
        assert!(self.passed > 0, "the corpus has no file");
    }
}

/// The directory that a variable names.
fn directory(variable: &str) -> PathBuf {
    std::env::var_os(variable)
        .unwrap_or_else(|| panic!("{variable} names no directory"))
        .into()
}

#[test]
#[ignore = "PF_FILTER_CORPUS must name OpenBSD's regress/sbin/pfctl"]
fn openbsd() {
    let directory = directory("PF_FILTER_CORPUS");
    let makefile =
        fs::read_to_string(directory.join("Makefile")).expect("PF_FILTER_CORPUS has a Makefile");
    let mut outcomes = Outcomes::default();
    for (class, prefix, check) in CLASSES {
        for number in list(&makefile, class) {
            let name = format!("{prefix}{number}");
            outcomes.add(format!("{class} {name}"), check(&directory, &name));
        }
    }
    let kernel = directory.join("../../sys/net");
    if let Ok(makefile) = fs::read_to_string(kernel.join("pf_policy/Makefile")) {
        for (name, wanted) in policy::cases(&makefile) {
            let outcome = policy::verdicts(&kernel.join("pf_policy"), &name, &wanted);
            outcomes.add(format!("policy {name}"), outcome);
        }
    }
    if kernel.join("pf_table").exists() {
        outcomes.add("pf_table", tables::lookups(&kernel.join("pf_table")));
    }
    outcomes.end();
}

#[test]
#[ignore = "PF_FILTER_CORPUS_FREEBSD must name FreeBSD's sbin/pfctl/tests/files"]
fn freebsd() {
    let mut outcomes = Outcomes::default();
    freebsd::check(&directory("PF_FILTER_CORPUS_FREEBSD"), &mut outcomes);
    outcomes.end();
}

/// A check of a file in a directory.
type Check = fn(&Path, &str) -> Result<(), Failed>;

/// Lists of the Makefile, the names of their files, and what each file must do.
const CLASSES: [(&str, &str, Check); 6] = [
    ("PFTESTS", "pf", prints),
    ("PFTESTS", "pf", prints_again),
    ("PFFAIL", "pfail", fails),
    ("PFSIMPLE", "pfsimple", is_accepted),
    ("PFOPT", "pfopt", takes_options),
    ("PFTABLE", "pfr", tables::script),
];

fn input(directory: &Path, name: &str) -> io::Result<Vec<u8>> {
    fs::read(directory.join(format!("{name}.in")))
}

fn wanted(directory: &Path, name: &str) -> io::Result<String> {
    fs::read_to_string(directory.join(format!("{name}.ok")))
}

fn prints(directory: &Path, name: &str) -> Result<(), Failed> {
    let parsed = read_openbsd(directory, &input(directory, name)?, &[]);
    same(&parsed, &wanted(directory, name)?)
}

fn prints_again(directory: &Path, name: &str) -> Result<(), Failed> {
    let text = wanted(directory, name)?;
    same(&read_openbsd(directory, text.as_bytes(), &[]), &text)
}

fn is_accepted(directory: &Path, name: &str) -> Result<(), Failed> {
    without_errors(&read_openbsd(directory, &input(directory, name)?, &[]))
}

fn without_errors(parsed: &Parsed) -> Result<(), Failed> {
    if parsed.has_errors() {
        return Err(errors(parsed).into());
    }
    Ok(())
}

fn takes_options(directory: &Path, name: &str) -> Result<(), Failed> {
    let options = fs::read_to_string(directory.join(format!("{name}.opts")))?;
    let macros: Vec<_> = options
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("-D")?.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let parsed = read_openbsd(directory, &input(directory, name)?, &macros);
    same(&parsed, &wanted(directory, name)?)
}

/// Fragments of pfctl's messages, and the codes of ours that name the same cause.
const CAUSES: &[(&str, &[&str])] = &[
    ("rule expands to no valid", &["no-combination"]),
    ("syntax error", &["syntax", "flags"]),
    ("string too long", &["too-long"]),
    ("port only applies", &["needs-port-protocol"]),
    ("doesn't match address family", &["icmp-family"]),
    ("icmp-type mismatch", &["icmp-type"]),
    ("af mismatch", &["family"]),
    ("not supported on block", &["needs-pass"]),
    ("could not parse host", &["unknown-host", "prefix"]),
    ("binat", &["binat"]),
    ("illegal port", &["range"]),
    ("flags only apply", &["needs-tcp"]),
    ("cannot be respecified", &["given-twice"]),
    ("illegal min-ttl", &["range"]),
    ("state handling on anchors", &["anchor"]),
    ("tag too long", &["too-long"]),
    ("netmask", &["prefix"]),
    ("cannot load", &["unreadable"]),
    ("tables cannot contain", &["table-entry"]),
    ("not permitted inside tables", &["table-entry"]),
    ("hostid", &["range"]),
    ("incompatible with", &["source-track"]),
    ("invalid interface name", &["interface-name"]),
    ("flags always false", &["flags"]),
    ("prio must be", &["range"]),
    ("is not defined", &["unknown-queue"]),
    ("divert-to address family", &["family"]),
    ("af-to cannot be used together", &["af-to"]),
    ("no default queue", &["queue-default"]),
    ("no bandwidth was specified", &["queue-bandwidth"]),
    ("not a leaf queue", &["queue-leaf"]),
    ("no bandwidth or flow", &["queue"]),
    ("more than one divert", &["given-twice"]),
    ("used with outgoing", &["divert"]),
    ("used with incoming", &["divert"]),
];

/// Lines on which pfctl is silent, and why.
const SILENT: &[(&str, u32, &str)] = &[(
    "pfail53",
    14,
    "yacc reports no error until three tokens are shifted after the last one",
)];

/// Consequences that pfctl reports beside a cause.
const CONSEQUENCES: &[&str] = &["skipping rule", "rule expands to no valid"];

/// Each line that pfctl complains of has an error of ours with the same cause, and no other has.
fn fails(directory: &Path, name: &str) -> Result<(), Failed> {
    let wanted = wanted(directory, name)?;
    let mut lines: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    let mut whole = Vec::new();
    for line in wanted.lines() {
        if let Some((number, message)) = line
            .strip_prefix("stdin:")
            .and_then(|rest| rest.split_once(": "))
        {
            lines.entry(number.parse()?).or_default().push(message);
        } else if let Some(message) = line.strip_prefix("pfctl: ") {
            whole.push(message);
        } else if let Some(message) = line
            .strip_prefix("netmask ")
            .filter(|_| line.contains("invalid"))
        {
            whole.push(message);
        }
    }
    let parsed = read_openbsd(directory, &input(directory, name)?, &[]);
    let mut ours: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
    for found in parsed
        .diagnostics
        .iter()
        .filter(|found| found.severity == Severity::Error)
    {
        let span = found.primary.span;
        let end = pf_filter::source::Span {
            start: span.end.saturating_sub(1).max(span.start),
            ..span
        };
        // pfctl names the line on which a statement ends.
        let line = parsed.ruleset.sources.line(end);
        let line = (line..line + 5)
            .find(|line| lines.contains_key(line))
            .unwrap_or(line);
        ours.entry(line).or_default().insert(found.code);
    }
    let mut problems = String::new();
    for (line, messages) in &lines {
        let codes = ours.remove(line).unwrap_or_default();
        let causes: Vec<_> = messages
            .iter()
            .filter(|message| {
                messages.len() == 1 || !CONSEQUENCES.iter().any(|part| message.contains(part))
            })
            .collect();
        let fits = |message: &str| {
            let cause = CAUSES.iter().find(|(part, _)| message.contains(part));
            cause.is_some_and(|(_, wanted)| wanted.iter().any(|code| codes.contains(code)))
        };
        let only_consequences = causes.is_empty() && !codes.is_empty();
        if !only_consequences && !causes.iter().any(|message| fits(message)) {
            let _ = writeln!(
                problems,
                "line {line}: pfctl says {messages:?}, ours are {codes:?}"
            );
        }
    }
    if lines.is_empty() && !whole.is_empty() {
        let codes: BTreeSet<_> = ours.values().flatten().copied().collect();
        let fits = |message: &&&str| {
            let cause = CAUSES.iter().find(|(part, _)| message.contains(part));
            cause.is_some_and(|(_, wanted)| wanted.iter().any(|code| codes.contains(code)))
        };
        if !whole.iter().any(|message| fits(&message)) {
            let _ = writeln!(problems, "pfctl says {whole:?}, ours are {codes:?}");
        }
        ours.clear();
    }
    ours.retain(|line, _| {
        !SILENT
            .iter()
            .any(|(file, silent, _)| *file == name && silent == line)
    });
    if !ours.is_empty() {
        let _ = writeln!(problems, "errors that pfctl has not: {}", errors(&parsed));
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems.into())
    }
}
