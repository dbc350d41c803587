//! OpenBSD's own regression tests of pfctl, given as a directory: their texts are not ours, so
//! they are not part of this repository.
//!
//! `PF_FILTER_CORPUS` names `regress/sbin/pfctl` of OpenBSD's sources, `PF_FILTER_CORPUS_FREEBSD`
//! `sbin/pfctl/tests/files` of FreeBSD's. Without them the tests report themselves as skipped.

mod freebsd;

mod policy;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use libtest_mimic::{Arguments, Failed, Trial};
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
    if parsed.has_errors() {
        return Err(errors(parsed).into());
    }
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

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = openbsd_trials();
    trials.extend(freebsd::trials());
    libtest_mimic::run(&arguments, trials).exit();
}

fn openbsd_trials() -> Vec<Trial> {
    let Some(directory) = std::env::var_os("PF_FILTER_CORPUS").map(PathBuf::from) else {
        let skipped = Trial::test(
            "openbsd_corpus [skipped: PF_FILTER_CORPUS names no directory]",
            || Ok(()),
        );
        return vec![skipped.with_ignored_flag(true)];
    };
    let makefile =
        fs::read_to_string(directory.join("Makefile")).expect("PF_FILTER_CORPUS has a Makefile");
    let mut trials = Vec::new();
    for number in list(&makefile, "PFTESTS") {
        let name = format!("pf{number}");
        let (input, output) = (
            directory.join(format!("{name}.in")),
            directory.join(format!("{name}.ok")),
        );
        let (here, again) = (directory.clone(), directory.clone());
        let wanted = output.clone();
        trials.push(Trial::test(format!("print::{name}"), move || {
            same(
                &read_openbsd(&here, &fs::read(&input)?, &[]),
                &fs::read_to_string(&wanted)?,
            )
        }));
        trials.push(Trial::test(format!("idempotent::{name}"), move || {
            let text = fs::read_to_string(&output)?;
            same(&read_openbsd(&again, text.as_bytes(), &[]), &text)
        }));
    }
    for number in list(&makefile, "PFFAIL") {
        let name = format!("pfail{number}");
        let here = directory.clone();
        trials.push(Trial::test(format!("fail::{name}"), move || {
            fails(&here, &name)
        }));
    }
    for number in list(&makefile, "PFSIMPLE") {
        let here = directory.clone();
        trials.push(Trial::test(
            format!("simple::pfsimple{number}"),
            move || {
                let parsed = read_openbsd(
                    &here,
                    &fs::read(here.join(format!("pfsimple{number}.in")))?,
                    &[],
                );
                if parsed.has_errors() {
                    Err(errors(&parsed).into())
                } else {
                    Ok(())
                }
            },
        ));
    }
    for number in list(&makefile, "PFOPT") {
        let here = directory.clone();
        trials.push(Trial::test(format!("options::pfopt{number}"), move || {
            let options = fs::read_to_string(here.join(format!("pfopt{number}.opts")))?;
            let macros: Vec<_> = options
                .split_whitespace()
                .filter_map(|word| word.strip_prefix("-D")?.split_once('='))
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect();
            let parsed = read_openbsd(
                &here,
                &fs::read(here.join(format!("pfopt{number}.in")))?,
                &macros,
            );
            same(
                &parsed,
                &fs::read_to_string(here.join(format!("pfopt{number}.ok")))?,
            )
        }));
    }
    for number in list(&makefile, "PFTABLE") {
        let here = directory.clone();
        trials.push(Trial::test(format!("tables::pfr{number}"), move || {
            tables::script(&here, &format!("pfr{number}"))
        }));
    }
    let kernel = directory.join("../../sys/net");
    if let Ok(makefile) = fs::read_to_string(kernel.join("pf_policy/Makefile")) {
        for (name, wanted) in policy::cases(&makefile) {
            let here = kernel.join("pf_policy");
            trials.push(Trial::test(format!("policy::{name}"), move || {
                policy::verdicts(&here, &name, &wanted)
            }));
        }
    }
    if kernel.join("pf_table").exists() {
        trials.push(Trial::test("lookups::pf_table", move || {
            tables::lookups(&kernel.join("pf_table"))
        }));
    }
    trials
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
    let wanted = fs::read_to_string(directory.join(format!("{name}.ok")))?;
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
    let parsed = read_openbsd(
        directory,
        &fs::read(directory.join(format!("{name}.in")))?,
        &[],
    );
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
