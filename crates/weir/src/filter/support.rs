//! Support of rules by XDP and tcx, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use comfy_table::{Row, presets};
use pf_filter::rule::{Anchor, Rule, Ruleset};
use pf_filter::source::Span;
use pf_filter::support::{Honour, Hook, Obstacle, Support, globals, support};
use serde::Serialize;

use super::finding::Region;
use super::text::one_line;
use crate::report::text::{plain, table, unframed, wrap};

/// Commands of a statement that a table shows.
const MOST_COMMANDS: usize = 6;
/// Characters of a statement that a table shows.
const MOST_CHARACTERS: usize = 56;

/// Support of a rule set.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The file.
    pub file: String,
    /// Statements that every hook which sees their packets honours.
    pub honoured: usize,
    /// Statements that some hook does not.
    pub refused: usize,
    /// The statements, in the order of the source.
    pub statements: Vec<Statement>,
    /// Options and queues that cannot be honoured.
    pub globals: Vec<Refusal>,
}

/// A statement, and the rules that it was expanded to.
#[derive(Debug, Serialize)]
pub struct Statement {
    /// The source.
    #[serde(flatten)]
    pub region: Region,
    /// Its text.
    pub source: String,
    /// How many rules.
    pub rules: usize,
    /// At XDP.
    pub xdp_in: Honour,
    /// At tcx ingress.
    pub tcx_in: Honour,
    /// At tcx egress.
    pub tcx_out: Honour,
    /// Why not.
    pub refusals: Vec<Refusal>,
    /// Notes.
    pub notes: Vec<&'static str>,
}

/// A feature that cannot be honoured.
#[derive(Debug, Serialize)]
pub struct Refusal {
    /// The feature.
    pub feature: &'static str,
    /// The hooks that it cannot be honoured at.
    pub hooks: Vec<&'static str>,
    /// The reason.
    pub reason: &'static str,
    /// Commands that do the same; none where Linux has nothing.
    pub instead: Vec<String>,
}

impl Report {
    /// Of these rules.
    pub fn new(file: &str, ruleset: &Ruleset) -> Self {
        let mut statements = Vec::new();
        let mut seen = BTreeMap::new();
        let loaded = ruleset.loaded.iter().flat_map(|loaded| &loaded.rules);
        for rule in ruleset.rules.iter().chain(loaded) {
            add(rule, ruleset, &mut statements, &mut seen);
        }
        let is_refused = |statement: &&Statement| !statement.refusals.is_empty();
        let refused = statements.iter().filter(is_refused).count();
        Self {
            file: file.to_owned(),
            honoured: statements.len() - refused,
            refused,
            statements,
            globals: globals(ruleset).iter().map(Refusal::new).collect(),
        }
    }

    /// As a table, with the reasons below it.
    pub fn text(&self) -> String {
        let mut rows = table(presets::NOTHING);
        rows.set_header(["line", "statement", "XDP in", "tcx in", "tcx out"]);
        for statement in &self.statements {
            rows.add_row(statement.row(&self.file));
        }
        let mut text = unframed(rows) + "\n";
        for statement in self.statements.iter().filter(|it| !it.refusals.is_empty()) {
            let (place, source) = (statement.place(&self.file), plain(&statement.source));
            let _ = write!(text, "\n{place}: {source}\n");
            statement
                .refusals
                .iter()
                .for_each(|refusal| text += &refusal.text());
        }
        if !self.globals.is_empty() {
            text += "\nThe whole rule set:\n";
            self.globals
                .iter()
                .for_each(|refusal| text += &refusal.text());
        }
        text += &self.notes();
        let (honoured, refused) = (self.honoured, self.refused);
        let _ = write!(
            text,
            "\n{}: {honoured} honoured, {refused} refused\n",
            plain(&self.file)
        );
        text
    }
}

impl Report {
    /// Each note once, with the lines that it is about.
    fn notes(&self) -> String {
        let mut lines: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for statement in &self.statements {
            for note in &statement.notes {
                lines
                    .entry(note)
                    .or_default()
                    .push(statement.place(&self.file));
            }
        }
        let mut text = String::new();
        for (note, lines) in lines {
            let lines = lines.join(", ");
            let _ = write!(text, "\n{}\n", wrap(&format!("note: {note}: {lines}"), 6));
        }
        text
    }
}

/// Adds a rule to its statement, and the rules of its anchor.
fn add(
    rule: &Rule,
    ruleset: &Ruleset,
    statements: &mut Vec<Statement>,
    seen: &mut BTreeMap<Span, usize>,
) {
    let support = support(rule, ruleset);
    let span = rule.origin.span;
    let at = *seen.entry(span).or_insert(statements.len());
    if at == statements.len() {
        statements.push(Statement::new(rule, &support, ruleset));
    } else {
        statements[at].merge(&support);
    }
    if let Some(Anchor::Inline { rules, .. }) = rule.anchor.as_deref() {
        for rule in rules {
            add(rule, ruleset, statements, seen);
        }
    }
}

impl Statement {
    fn new(rule: &Rule, support: &Support, ruleset: &Ruleset) -> Self {
        let span = rule.origin.span;
        let [xdp_in, tcx_in, tcx_out] = support.hooks;
        Self {
            region: Region::new(span, "", &ruleset.sources),
            source: one_line(ruleset.sources.text(span)),
            rules: 1,
            xdp_in,
            tcx_in,
            tcx_out,
            refusals: support.obstacles.iter().map(Refusal::new).collect(),
            notes: support.notes.clone(),
        }
    }

    /// Adds another rule of the same statement: the worst counts.
    fn merge(&mut self, support: &Support) {
        self.rules += 1;
        let own = [&mut self.xdp_in, &mut self.tcx_in, &mut self.tcx_out];
        for (own, other) in own.into_iter().zip(support.hooks) {
            if other == Honour::No || *own == Honour::Never {
                *own = other;
            }
        }
        for obstacle in &support.obstacles {
            let same = self
                .refusals
                .iter_mut()
                .find(|it| it.feature == obstacle.feature);
            match same {
                Some(refusal) => refusal.merge(obstacle),
                None => self.refusals.push(Refusal::new(obstacle)),
            }
        }
        let new = support
            .notes
            .iter()
            .filter(|note| !self.notes.contains(note));
        let new: Vec<_> = new.copied().collect();
        self.notes.extend(new);
    }

    /// The line in this file, or another file and the line.
    fn place(&self, file: &str) -> String {
        let Region {
            file: own, line, ..
        } = &self.region;
        if own == file {
            line.to_string()
        } else {
            format!("{}:{line}", plain(own))
        }
    }

    fn row(&self, file: &str) -> Row {
        let word = |honour| match honour {
            Honour::Yes => "yes",
            Honour::No => "no",
            Honour::Never => "-",
        };
        let mut source = shortened(&plain(&self.source));
        if self.rules > 1 {
            let _ = write!(source, " (\u{d7}{})", self.rules);
        }
        Row::from([
            self.place(file),
            source,
            word(self.xdp_in).to_owned(),
            word(self.tcx_in).to_owned(),
            word(self.tcx_out).to_owned(),
        ])
    }
}

impl Refusal {
    fn new(obstacle: &Obstacle) -> Self {
        let hooks = Hook::ALL.into_iter().filter(|&hook| obstacle.is_at(hook));
        Self {
            feature: obstacle.feature,
            hooks: hooks.map(Hook::name).collect(),
            reason: obstacle.reason,
            instead: obstacle.instead.clone(),
        }
    }

    fn merge(&mut self, obstacle: &Obstacle) {
        for command in &obstacle.instead {
            if !self.instead.contains(command) {
                self.instead.push(command.clone());
            }
        }
    }

    fn text(&self) -> String {
        let mut text = format!("  {}: {}\n", self.feature, wrap(self.reason, 4));
        for command in self.instead.iter().take(MOST_COMMANDS) {
            let _ = writeln!(text, "    {}", plain(command));
        }
        let more = self.instead.len().saturating_sub(MOST_COMMANDS);
        if more > 0 {
            let _ = writeln!(text, "    {more} more: see --format json");
        }
        text
    }
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= MOST_CHARACTERS {
        return text.to_owned();
    }
    let short: String = text.chars().take(MOST_CHARACTERS - 1).collect();
    short + "\u{2026}"
}

#[cfg(test)]
mod tests {
    use pf_filter::rule::{Action, Direction, Origin, Tagged};
    use pf_filter::source::Sources;

    use super::*;

    #[test]
    fn rules_of_a_statement_are_one_row() {
        let mut sources = Sources::default();
        let file = sources.add("pf.conf", "pass in proto \\\n  { tcp udp } tagged A\n");
        let span = Span {
            file,
            start: 0,
            end: 38,
        };
        let origin = Origin {
            span,
            elements: Vec::new(),
        };
        let mut rule = Rule::new(Action::Pass, origin);
        rule.direction = Some(Direction::In);
        rule.rtable = Some(1);
        let mut other = rule.clone();
        other.tagged = Some(Tagged {
            name: "A".into(),
            negated: false,
        });
        let ruleset = Ruleset {
            sources,
            rules: vec![rule, other],
            ..Ruleset::default()
        };
        let report = Report::new("pf.conf", &ruleset);
        assert_eq!((report.honoured, report.refused), (0, 1));
        let expected = "\
line  statement                                XDP in  tcx in  tcx out
1     pass in proto { tcp udp } tagged A (\u{d7}2)  no      no      -

1: pass in proto { tcp udp } tagged A
  rtable: the routing table is not chosen by BPF: policy routing does
    nft add rule inet filter prerouting meta mark set 100
    ip rule add fwmark 100 lookup 1

note: sees tags of the same hook, unless tags are carried by marks: 1

pf.conf: 0 honoured, 1 refused
";
        assert_eq!(report.text(), expected);
    }
}
