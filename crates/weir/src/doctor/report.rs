//! The report, as text and as JSON.

use std::fmt;
use std::fmt::Write as _;
use std::time::SystemTime;

use serde::Serialize;

use super::check::Check;
use super::context::Context;
use super::device::delivery::XDP_DELIVERY;
use super::evidence::Evidence;
use super::finding::Finding;
use super::fix::Fix;
use super::severity::Severity;
use super::step::Step;
use super::verdict::{HOST, Verdict};
use crate::report::date::date;
use crate::report::text::{plain, wrap};

const NO_BREAK: &str = "\u{a0}";
/// The width of the labels of a finding's lines.
const INDENT: usize = 9;
/// The most commands of a fix in the text; the JSON has all.
const MAX_COMMANDS: usize = 4;

/// The report of one run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// When it was made, in UTC (RFC 3339).
    pub time: String,
    /// The host and its devices.
    pub host: Host,
    /// The findings, worst first.
    pub findings: Vec<Found>,
    /// The checks that could not run.
    pub unchecked: Vec<Unchecked>,
    /// The checks without a finding.
    pub ok: Vec<Fine>,
    /// The checks of settings or devices that this host does not have.
    pub not_applicable: Vec<&'static str>,
}

/// The host and its devices.
#[derive(Debug, Serialize)]
pub struct Host {
    /// The kernel's name and release.
    pub kernel: String,
    /// The number of the network namespace.
    pub netns: Option<u64>,
    /// Whether that is the initial namespace.
    pub initial_netns: bool,
    /// Its devices, or those of `--dev`.
    pub devices: Vec<String>,
}

/// A finding with the texts of its check.
#[derive(Debug, Serialize)]
pub struct Found {
    /// The id of the check.
    pub id: &'static str,
    /// Its severity.
    pub severity: Severity,
    /// The title of the check.
    pub title: &'static str,
    /// The device's name, or `host`.
    pub subject: String,
    /// The values that show it.
    pub evidence: Vec<Evidence>,
    /// Its effect on this host.
    pub message: String,
    /// The reason why it matters.
    pub why: &'static str,
    /// The source of that.
    pub source: &'static str,
    /// The cure.
    pub fix: FixText,
}

/// A fix as shell commands or instructions.
#[derive(Debug, Serialize)]
pub struct FixText {
    /// Whether `--fix` can apply it.
    pub automatic: bool,
    /// The commands of an automatic fix.
    pub commands: Vec<String>,
    /// The commands that undo it, in their order.
    pub undo: Vec<String>,
    /// The instructions of a manual fix.
    pub text: Option<String>,
}

/// A check that could not run.
#[derive(Debug, Serialize)]
pub struct Unchecked {
    /// The id of the check.
    pub id: &'static str,
    /// The device's name, or `host`.
    pub subject: String,
    /// The cause and the cure.
    pub reason: String,
}

impl Unchecked {
    /// Whether it is this check of this subject, or of all.
    pub fn covers(&self, id: &str, subject: &str) -> bool {
        self.id == id && (self.subject == HOST || self.subject == subject)
    }
}

/// A check without a finding.
#[derive(Debug, Serialize)]
pub struct Fine {
    /// The id of the check.
    pub id: &'static str,
    /// The device's name, or `host`.
    pub subject: String,
    /// The values that show it.
    pub evidence: Vec<Evidence>,
}

impl Report {
    /// Runs these checks.
    pub fn new<'a>(context: &Context, checks: impl Iterator<Item = &'a Check>) -> Self {
        let mut report = Self {
            time: String::new(),
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
        report.time = date(SystemTime::now());
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

    /// Whether no check could run.
    pub fn is_blind(&self) -> bool {
        self.findings.is_empty() && self.ok.is_empty()
    }
}

impl Host {
    fn of(context: &Context) -> Self {
        let release = context.read("/proc/sys/kernel/osrelease");
        let all = || {
            let devices = context.devices().unwrap_or_default().iter();
            devices.map(|device| device.name().to_owned()).collect()
        };
        Self {
            kernel: format!("Linux {}", release.unwrap_or_default()),
            netns: context.netns().ok(),
            initial_netns: context.is_initial_netns(),
            devices: match context.requested() {
                [] => all(),
                requested => requested.to_vec(),
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
            Fix::Manual(text) => (Vec::new(), Some(text)),
        };
        Self {
            automatic: text.is_none(),
            commands: steps.iter().map(Step::command).collect(),
            undo: steps.iter().rev().map(Step::undo_command).collect(),
            text,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.host)?;
        for found in &self.findings {
            write!(f, "\n{found}")?;
        }
        self.write_delivered(f)?;
        self.write_unchecked(f)?;
        self.write_end(f)
    }
}

impl Report {
    /// The check that was asked for by itself, also without a finding.
    fn write_delivered(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fine in self.ok.iter().filter(|fine| fine.id == XDP_DELIVERY.id) {
            let title = titled(fine.id, &fine.subject);
            writeln!(
                f,
                "\n{:INDENT$}{title}: frames reach an AF_XDP socket",
                "OK"
            )?;
            write_evidence(f, &fine.evidence)?;
        }
        Ok(())
    }

    fn write_unchecked(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.unchecked.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nNot checked:")?;
        for (reason, checks) in self.by_reason() {
            let text = format!("{}: {reason}", checks.join(", "));
            f.write_str(&paragraph("  ", &text, 4))?;
        }
        Ok(())
    }

    /// Each reason once, with its checks.
    fn by_reason(&self) -> Vec<(&str, Vec<String>)> {
        let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
        for it in &self.unchecked {
            let check = titled(it.id, &it.subject);
            match reasons.iter_mut().find(|(reason, _)| *reason == it.reason) {
                Some((_, checks)) => checks.push(check),
                None => reasons.push((&it.reason, vec![check])),
            }
        }
        reasons
    }

    /// The number of findings and of the other checks.
    pub fn summary(&self) -> String {
        let plural = if self.findings.len() == 1 { "" } else { "s" };
        format!(
            "{} finding{plural}; {} fine, {} not checked, {} not applicable.",
            self.findings.len(),
            self.ok.len(),
            self.unchecked.len(),
            self.not_applicable.len()
        )
    }

    fn write_end(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut end = self.summary();
        if let Some(first) = self.findings.first() {
            let _ = write!(end, " Details: `weir doctor --explain {}`.", first.id);
        }
        if let Some(first) = self.findings.iter().find(|found| found.fix.automatic) {
            let _ = write!(end, " Fix: `weir doctor --fix {}`.", first.id);
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
            f.write_str(" (not the initial one)")?;
        }
        write!(f, ", devices: {}", plain(&self.devices.join(" ")))
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
        write_evidence(f, &self.evidence)?;
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
                // A command is not wrapped, so that it can be copied.
                writeln!(f, "  {name:0$}{1}", INDENT - 2, plain(command))?;
            }
            if let Some(more) = commands.len().checked_sub(MAX_COMMANDS + 1) {
                f.write_str(&line("", &format!("and {} more, see --json", more + 1)))?;
            }
        }
        Ok(())
    }
}

fn write_evidence(f: &mut fmt::Formatter<'_>, evidence: &[Evidence]) -> fmt::Result {
    for evidence in evidence {
        let value = evidence.value.replace('\n', " | ");
        f.write_str(&line("read", &format!("{} = {value}", evidence.source)))?;
    }
    Ok(())
}

/// A check's id, with the subject unless that is the host.
pub fn titled(id: &str, subject: &str) -> String {
    if subject == HOST {
        id.into()
    } else {
        format!("{id} {}", plain(subject))
    }
}

/// A line of a finding.
fn line(name: &str, text: &str) -> String {
    paragraph(&format!("  {name:0$}", INDENT - 2), text, INDENT)
}

/// A paragraph that starts with `start`, its further lines indented.
fn paragraph(start: &str, text: &str, indent: usize) -> String {
    // `wrap` breaks lines and drops spaces at ordinary spaces only.
    let start = start.replace(' ', NO_BREAK);
    let text: Vec<_> = text.split_whitespace().collect();
    let wrapped = wrap(&format!("{start}{}", plain(&text.join(" "))), indent);
    format!("{}\n", wrapped.replace(NO_BREAK, " "))
}

/// The text of `--explain`.
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

    fn check() -> Check {
        Check {
            id: "some-check",
            title: "it is off",
            severity: Severity::Warning,
            why: "That costs time.",
            source: "net/core/dev.c",
            more: "One.\n\nTwo.",
            counters: &[],
            run: |_| Ok(Vec::new()),
        }
    }

    #[test]
    fn names_reach_no_terminal_as_commands() {
        let name = "a\x1b[2Jb";
        let fix = Fix::write(format!("/sys/class/net/{name}/mtu"), "9000", "1500");
        let evidence = vec![Evidence::new(name, name)];
        let found = Verdict::found(name, evidence, format!("{name} drops"), fix);
        let mut report = report(vec![found, Verdict::unchecked(name, name)]);
        report.host.devices.push(name.into());
        let text = report.to_string();
        assert!(text.contains("some-check a?[2Jb"), "{text}");
        let is_command = |c: char| c.is_control() && c != '\n';
        assert!(!text.contains(is_command), "{text:?}");
    }

    fn report(verdicts: Vec<Verdict>) -> Report {
        let mut report = Report {
            time: "2026-11-24T13:57:19Z".into(),
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
        let evidence = vec![Evidence::new("/proc/x", "0\n")];
        Verdict::found("eth0", evidence, "word ".repeat(40), fix)
    }

    fn steps(count: usize) -> Fix {
        let step = |number| Step::write(format!("/proc/sys/x{number}"), "0", "1");
        Fix::Steps((0..count).map(step).collect())
    }

    #[test]
    fn a_finding_has_evidence_fix_and_undo() {
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
        assert!(text.contains("not the initial one"));
        assert!(text.contains("1 finding; 0 fine"), "{text}");
    }

    #[test]
    fn steps_are_undone_in_reverse() {
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
    fn each_reason_is_listed_once() {
        let unchecked = |subject: &str| Verdict::unchecked(subject, "no permission");
        let report = report(vec![unchecked(HOST), unchecked("eth0")]);
        let text = report.to_string();
        assert!(
            text.contains("  some-check, some-check eth0: no permission\n"),
            "{text}"
        );
        assert!(report.is_blind());
    }

    #[test]
    fn the_json_has_everything() {
        let fine = Verdict::fine(HOST, vec![Evidence::new("/proc/x", "1")]);
        let report = report(vec![finding(Fix::manual("wait")), fine]);
        let json = serde_json::to_value(&report).expect("valid JSON");
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
