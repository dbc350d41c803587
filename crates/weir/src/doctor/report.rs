//! What the doctor found, for people and for programs.

use std::fmt;
use std::fmt::Write as _;

use serde::Serialize;

use super::{Check, Context, Evidence, Finding, Fix, Severity, Verdict};
use crate::report::text::wrap;
use hostnet::netns;

const NO_BREAK: &str = "\u{a0}";
/// The width of the names before a finding's lines.
const INDENT: usize = 9;
/// The most commands of a fix that people are shown; programs are given all.
const MAX_COMMANDS: usize = 4;

/// What the doctor found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// What was looked at.
    pub host: Host,
    /// What is wrong, worst first.
    pub findings: Vec<Found>,
    /// What could not be looked at.
    pub unchecked: Vec<Unchecked>,
    /// What is as it should be.
    pub ok: Vec<Fine>,
    /// The checks that have nothing to look at here.
    pub not_applicable: Vec<&'static str>,
}

/// What was looked at.
#[derive(Debug, Serialize)]
pub struct Host {
    /// The kernel's name and release.
    pub kernel: String,
    /// The number of the network namespace.
    pub netns: Option<u64>,
    /// Whether that is the one that the host started with.
    pub initial_netns: bool,
    /// Its devices, or those that were asked for.
    pub devices: Vec<String>,
}

/// A finding and what its check says of it.
#[derive(Debug, Serialize)]
pub struct Found {
    /// The id of the check.
    pub id: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What it is, in a few words.
    pub title: &'static str,
    /// What it is wrong with.
    pub subject: String,
    /// What was read.
    pub evidence: Vec<Evidence>,
    /// What it means here.
    pub message: String,
    /// Why it matters.
    pub why: &'static str,
    /// Where that is from.
    pub source: &'static str,
    /// What mends it.
    pub fix: FixText,
}

/// What mends a finding, as it is typed.
#[derive(Debug, Serialize)]
pub struct FixText {
    /// Whether `--fix` can do it.
    pub automatic: bool,
    /// The commands, if so.
    pub commands: Vec<String>,
    /// The commands that take it back, in their order.
    pub undo: Vec<String>,
    /// What to do, if not.
    pub text: Option<String>,
}

/// What could not be looked at.
#[derive(Debug, Serialize)]
pub struct Unchecked {
    /// The id of the check.
    pub id: &'static str,
    /// What was to be looked at.
    pub subject: String,
    /// Why not.
    pub reason: String,
}

/// What is as it should be.
#[derive(Debug, Serialize)]
pub struct Fine {
    /// The id of the check.
    pub id: &'static str,
    /// What was looked at.
    pub subject: String,
    /// What was read.
    pub evidence: Vec<Evidence>,
}

impl Report {
    /// Looks at everything that these checks look at.
    pub fn new<'a>(context: &Context, checks: impl Iterator<Item = &'a Check>) -> Self {
        let mut report = Self {
            host: Host::of(context),
            findings: Vec::new(),
            unchecked: Vec::new(),
            ok: Vec::new(),
            not_applicable: Vec::new(),
        };
        for check in checks {
            report.add(check, check.verdicts(context));
        }
        report.findings.sort_by_key(|found| found.severity);
        report
    }

    fn add(&mut self, check: &Check, verdicts: Vec<Verdict>) {
        let id = check.id;
        if verdicts.is_empty() {
            self.not_applicable.push(id);
        }
        for verdict in verdicts {
            match verdict {
                Verdict::Fine { subject, evidence } => self.ok.push(Fine {
                    id,
                    subject,
                    evidence,
                }),
                Verdict::Finding(finding) => self.findings.push(Found::new(check, finding)),
                Verdict::Unchecked { subject, reason } => self.unchecked.push(Unchecked {
                    id,
                    subject,
                    reason,
                }),
            }
        }
    }

    /// Whether nothing at all could be looked at.
    pub fn is_blind(&self) -> bool {
        self.findings.is_empty() && self.ok.is_empty()
    }
}

impl Host {
    fn of(context: &Context) -> Self {
        let asked = context.devices();
        let all = || context.links().unwrap_or_default().iter();
        Self {
            kernel: format!(
                "Linux {}",
                context
                    .read("/proc/sys/kernel/osrelease")
                    .unwrap_or_default()
            ),
            netns: netns::current().ok(),
            initial_netns: context.is_initial_netns(),
            devices: if asked.is_empty() {
                all().map(|link| link.name.clone()).collect()
            } else {
                asked.to_vec()
            },
        }
    }
}

impl Found {
    fn new(check: &Check, finding: Finding) -> Self {
        Self {
            id: check.id,
            severity: check.severity,
            title: check.title,
            subject: finding.subject,
            evidence: finding.evidence,
            message: finding.message,
            why: check.why,
            source: check.source,
            fix: FixText::from(finding.fix),
        }
    }
}

impl From<Fix> for FixText {
    fn from(fix: Fix) -> Self {
        let (steps, text) = match fix {
            Fix::Steps(steps) => (steps, None),
            Fix::Text(text) => (Vec::new(), Some(text)),
        };
        Self {
            automatic: text.is_none(),
            commands: steps.iter().map(super::Step::command).collect(),
            undo: steps.iter().rev().map(super::Step::undo_command).collect(),
            text,
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Critical => "CRITICAL",
            Self::Warning => "WARNING",
            Self::Advice => "ADVICE",
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.host)?;
        for found in &self.findings {
            write!(f, "\n{found}")?;
        }
        self.write_unchecked(f)?;
        self.write_end(f)
    }
}

impl Report {
    fn write_unchecked(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.unchecked.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nCould not be checked:")?;
        for (reason, what) in self.by_reason() {
            f.write_str(&paragraph(
                "  ",
                &format!("{}: {reason}", what.join(", ")),
                4,
            ))?;
        }
        Ok(())
    }

    /// Each reason once, with all that it is the reason for.
    fn by_reason(&self) -> Vec<(&str, Vec<String>)> {
        let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
        for it in &self.unchecked {
            let what = titled(it.id, &it.subject);
            match reasons.iter_mut().find(|(reason, _)| *reason == it.reason) {
                Some((_, all)) => all.push(what),
                None => reasons.push((&it.reason, vec![what])),
            }
        }
        reasons
    }

    fn write_end(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |count: usize, what: &str| {
            let plural = if count == 1 { "" } else { "s" };
            format!("{count} {what}{plural}")
        };
        let mut end = format!(
            "{}; {} fine, {} not checked, {} with nothing to look at.",
            count(self.findings.len(), "finding"),
            self.ok.len(),
            self.unchecked.len(),
            self.not_applicable.len()
        );
        if let Some(first) = self.findings.first() {
            let _ = write!(end, " More of one: `weir doctor --explain {}`.", first.id);
        }
        if let Some(first) = self.findings.iter().find(|found| found.fix.automatic) {
            let _ = write!(end, " Mend one: `weir doctor --fix {}`.", first.id);
        }
        write!(f, "\n{}", paragraph("", &end, 0))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, network namespace ", self.kernel)?;
        match self.netns {
            Some(number) => write!(f, "{number}")?,
            None => f.write_str("unknown")?,
        }
        if !self.initial_netns {
            f.write_str(" (not the host's own)")?;
        }
        write!(f, ", devices: {}", self.devices.join(" "))
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:INDENT$}{}: {}",
            self.severity.to_string(),
            titled(self.id, &self.subject),
            self.title
        )?;
        for read in &self.evidence {
            let value = read.value.replace('\n', " | ");
            f.write_str(&line("read", &format!("{} = {value}", read.source)))?;
        }
        f.write_str(&line("means", &self.message))?;
        f.write_str(&line("why", &format!("{} [{}]", self.why, self.source)))?;
        self.fix.write(f)
    }
}

impl FixText {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            return f.write_str(&line("fix", text));
        }
        for (name, commands) in [("fix", &self.commands), ("undo", &self.undo)] {
            for command in commands.iter().take(MAX_COMMANDS) {
                // A command is copied: it stays on one line, however long.
                writeln!(f, "  {name:0$}{command}", INDENT - 2)?;
            }
            if let Some(more) = commands.len().checked_sub(MAX_COMMANDS + 1) {
                f.write_str(&line("", &format!("and {} more, see --json", more + 1)))?;
            }
        }
        Ok(())
    }
}

/// A check's id, with the subject unless that is the host.
fn titled(id: &str, subject: &str) -> String {
    if subject == super::HOST {
        id.into()
    } else {
        format!("{id} {subject}")
    }
}

/// A line of a finding.
fn line(name: &str, text: &str) -> String {
    paragraph(&format!("  {name:0$}", INDENT - 2), text, INDENT)
}

/// A paragraph that begins with `start`, its further lines indented.
fn paragraph(start: &str, text: &str, indent: usize) -> String {
    // Lines are not broken, and nothing is left out, at a space that is none to `wrap`.
    let start = start.replace(' ', NO_BREAK);
    let text: Vec<_> = text.split_whitespace().collect();
    let wrapped = wrap(&format!("{start}{}", text.join(" ")), indent);
    format!("{}\n", wrapped.replace(NO_BREAK, " "))
}

/// The long text of one check.
pub fn explain(check: &Check) -> String {
    let mut text = format!(
        "{}: {} ({})\n\n",
        check.id,
        check.title,
        check.severity.to_string().to_lowercase()
    );
    text.push_str(&paragraph("", check.why, 0));
    for part in check.more.split("\n\n") {
        text.push('\n');
        text.push_str(&paragraph("", part, 0));
    }
    let _ = write!(text, "\n{}", paragraph("Source: ", check.source, 8));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{HOST, Step};

    fn check() -> Check {
        Check {
            id: "some-check",
            title: "it is off",
            severity: Severity::Warning,
            why: "That costs time.",
            source: "net/core/dev.c",
            more: "One.\n\nTwo.",
            run: |_| Ok(Vec::new()),
        }
    }

    fn report(verdicts: Vec<Verdict>) -> Report {
        let mut report = Report {
            host: Host {
                kernel: "Linux 6.18".into(),
                netns: Some(7),
                initial_netns: false,
                devices: vec!["lo".into(), "eth0".into()],
            },
            findings: Vec::new(),
            unchecked: Vec::new(),
            ok: Vec::new(),
            not_applicable: Vec::new(),
        };
        report.add(&check(), verdicts);
        report
    }

    fn finding(fix: Fix) -> Verdict {
        Verdict::Finding(Finding {
            subject: "eth0".into(),
            evidence: vec![Evidence::new("/proc/x", "0\n")],
            message: "word ".repeat(40),
            fix,
        })
    }

    fn steps(count: usize) -> Fix {
        let step = |number| Step::Write {
            path: format!("/proc/sys/x{number}"),
            old: "0".into(),
            new: "1".into(),
        };
        Fix::Steps((0..count).map(step).collect())
    }

    #[test]
    fn a_finding_shows_what_was_read_and_what_to_type() {
        let text = report(vec![finding(steps(1))]).to_string();
        for line in [
            "WARNING  some-check eth0: it is off",
            "  read   /proc/x = 0",
            "  fix    sysctl -w x0=1",
            "  undo   sysctl -w x0=0",
            "  why    That costs time. [net/core/dev.c]",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} in {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 100));
        assert!(text.contains("not the host's own"));
        assert!(text.contains("1 finding; 0 fine"), "{text}");
    }

    #[test]
    fn steps_are_taken_back_in_reverse() {
        let fix = FixText::from(steps(2));
        assert_eq!(fix.commands, ["sysctl -w x0=1", "sysctl -w x1=1"]);
        assert_eq!(fix.undo, ["sysctl -w x1=0", "sysctl -w x0=0"]);
    }

    #[test]
    fn many_commands_are_counted() {
        let text = report(vec![finding(steps(MAX_COMMANDS + 2))]).to_string();
        assert_eq!(text.matches("  fix    ").count(), MAX_COMMANDS);
        assert!(text.contains("and 2 more"), "{text}");
        let text = report(vec![finding(steps(MAX_COMMANDS))]).to_string();
        assert!(!text.contains("more, see"), "{text}");
    }

    #[test]
    fn what_could_not_be_checked_gives_each_reason_once() {
        let unchecked = |subject: &str| Verdict::Unchecked {
            subject: subject.into(),
            reason: "no permission".into(),
        };
        let report = report(vec![unchecked(HOST), unchecked("eth0")]);
        let text = report.to_string();
        assert!(
            text.contains("  some-check, some-check eth0: no permission\n"),
            "{text}"
        );
        assert!(report.is_blind());
    }

    #[test]
    fn programs_are_given_everything() {
        let fine = Verdict::Fine {
            subject: HOST.into(),
            evidence: vec![Evidence::new("/proc/x", "1")],
        };
        let report = report(vec![finding(Fix::Text("wait".into())), fine]);
        let json = serde_json::to_value(&report).expect("it is JSON");
        let found = &json["findings"][0];
        assert_eq!(found["id"], "some-check");
        assert_eq!(found["severity"], "warning");
        assert_eq!(found["evidence"][0]["source"], "/proc/x");
        assert_eq!(found["fix"]["automatic"], false);
        assert_eq!(found["fix"]["text"], "wait");
        assert_eq!(json["ok"][0]["evidence"][0]["value"], "1");
    }

    #[test]
    fn an_explanation_has_paragraphs() {
        let text = explain(&check());
        assert!(text.starts_with("some-check: it is off (warning)\n\nThat costs time.\n"));
        assert!(
            text.contains("\n\nOne.\n\nTwo.\n\nSource: net/core/dev.c\n"),
            "{text}"
        );
    }
}
