//! Differences of two rule sets, and the coverage of one, as text and as JSON.

use std::fmt::Write as _;

use pf_filter::analysis::{
    Certainty, Change, Cover, Coverage, Decider, Decision, Diff, Packets, Region as Part, RulePath,
};
use pf_filter::source::Sources;
use serde::Serialize;

use super::finding::Region;
use super::text::{many, one_line};
use crate::report::text::{plain, wrap};

/// Sets of packets of a difference that a text shows.
const MOST_SETS: usize = 4;

/// Packets that two rule sets treat differently.
#[derive(Debug, Serialize)]
pub struct DiffReport {
    /// The file before.
    pub before: String,
    /// The file after.
    pub after: String,
    /// No packet is treated differently.
    pub equal: bool,
    /// All differences are here, each with all its packets.
    pub complete: bool,
    /// Differences that are not here.
    pub omitted: usize,
    /// The differences, the most important first.
    pub differences: Vec<Difference>,
    /// Assumptions.
    pub assumptions: Vec<String>,
}

/// Packets that are treated in one way before, and in another after.
#[derive(Debug, Serialize)]
pub struct Difference {
    /// The kind of change.
    pub change: &'static str,
    /// `always`, or `sometimes` or `maybe` where it depends on facts that are not known.
    pub certainty: &'static str,
    /// How many packets, all values of all fields counted.
    pub packets_count: f64,
    /// The packets, by fields of rules.
    pub packets: Vec<PacketSet>,
    /// At least so many further sets of packets.
    pub more: u64,
    /// The decision before.
    pub before: Side,
    /// The decision after.
    pub after: Side,
    /// One of the packets.
    pub example: String,
    /// Facts that are assumed for it.
    pub example_facts: Vec<Fact>,
}

/// A set of packets.
#[derive(Debug, Serialize)]
pub struct PacketSet {
    /// In words of the language.
    pub text: String,
    /// Fields and their values; a field that is missing has any.
    pub fields: Vec<Field>,
    /// Facts on which it depends whether a packet is in the set.
    pub facts: Vec<Fact>,
}

/// A field and its values.
#[derive(Debug, Serialize)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its values.
    pub values: Vec<String>,
}

/// A fact that neither the packet nor the configuration gives.
#[derive(Debug, Serialize)]
pub struct Fact {
    /// The fact.
    pub text: String,
    /// Whether it holds.
    pub holds: bool,
}

/// A decision.
#[derive(Debug, Serialize)]
pub struct Side {
    /// The outcome, in words of the language.
    pub outcome: String,
    /// `rule`, `default`, or `skip` for an interface of `set skip`.
    pub by: &'static str,
    /// The rule.
    pub rule: Option<Place>,
}

/// A rule and its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Its number as pfctl counts, behind the path of its anchor: `staff@3`.
    pub path: String,
    /// The statement that it was expanded from.
    pub source: String,
    /// Where that is.
    #[serde(flatten)]
    pub region: Region,
}

impl DiffReport {
    /// Of two files and their difference.
    pub fn new(before: (&str, &Sources), after: (&str, &Sources), diff: &Diff) -> Self {
        let difference = |part: &Part| Difference::new(part, before.1, after.1);
        Self {
            before: before.0.to_owned(),
            after: after.0.to_owned(),
            equal: diff.regions.is_empty() && diff.omitted == 0,
            complete: diff.complete,
            omitted: diff.omitted,
            differences: diff.regions.iter().map(difference).collect(),
            assumptions: diff.assumptions.clone(),
        }
    }

    /// As text, with so many differences.
    pub fn text(&self, most: usize) -> String {
        let mut text = String::new();
        for (index, difference) in self.differences.iter().take(most).enumerate() {
            text += &difference.text(index + 1);
        }
        let more = self.differences.len().saturating_sub(most) + self.omitted;
        if more > 0 {
            let _ = writeln!(text, "{more} more: see --most, or --format json\n");
        }
        let (before, after) = (plain(&self.before), plain(&self.after));
        if self.equal {
            let _ = writeln!(text, "{before} and {after} treat all packets the same");
        } else {
            let count = many(self.differences.len() + self.omitted, "difference");
            let _ = writeln!(text, "{before} and {after}: {count}");
        }
        for assumption in &self.assumptions {
            let line = wrap(&format!("assumed: {}", plain(assumption)), 4);
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

impl Difference {
    fn new(part: &Part, before: &Sources, after: &Sources) -> Self {
        let fact = |(fact, holds): &(pf_filter::analysis::Assumption, bool)| Fact {
            text: fact.to_string(),
            holds: *holds,
        };
        let set = |packets: &Packets| PacketSet {
            text: packets.text.clone(),
            fields: packets
                .fields
                .iter()
                .map(|(name, values)| Field {
                    name,
                    values: values.clone(),
                })
                .collect(),
            facts: packets.facts.iter().map(fact).collect(),
        };
        Self {
            change: change_name(part.change),
            certainty: certainty_name(part.certainty),
            packets_count: part.size,
            packets: part.packets.iter().map(set).collect(),
            more: part.more,
            before: Side::new(&part.before, before),
            after: Side::new(&part.after, after),
            example: part.witness.to_string(),
            example_facts: part.witness.facts.iter().map(fact).collect(),
        }
    }

    fn text(&self, number: usize) -> String {
        let mut text = format!("{number}. {}", self.change.replace('-', " "));
        if self.certainty != "always" {
            let _ = write!(text, ", {}", self.certainty);
        }
        let _ = writeln!(text, " ({} packets)", power(self.packets_count));
        for set in self.packets.iter().take(MOST_SETS) {
            let _ = writeln!(text, "     {}", wrap(&plain(&set.text), 9));
        }
        let more = self.packets.len().saturating_sub(MOST_SETS) as u64 + self.more;
        if more > 0 {
            let _ = writeln!(text, "     and {more} more such sets");
        }
        for (title, side) in [("before", &self.before), ("after", &self.after)] {
            let _ = writeln!(text, "   {title:<7} {}", plain(&side.outcome));
            let _ = writeln!(text, "           {}", side.who());
        }
        let _ = writeln!(text, "   example {}", plain(&self.example));
        text + "\n"
    }
}

impl Side {
    fn new(decision: &Decision, sources: &Sources) -> Self {
        let (by, rule) = match &decision.by {
            Decider::Default => ("default", None),
            Decider::Skip => ("skip", None),
            Decider::Rule { path, origin } => {
                ("rule", Some(Place::new(path, origin.span, sources)))
            }
        };
        Self {
            outcome: decision.outcome.to_string(),
            by,
            rule,
        }
    }

    fn who(&self) -> String {
        match (&self.rule, self.by) {
            (Some(rule), _) => rule.line(),
            (None, "skip") => "by set skip".to_owned(),
            (None, _) => "by no rule".to_owned(),
        }
    }
}

impl Place {
    fn new(path: &RulePath, span: pf_filter::source::Span, sources: &Sources) -> Self {
        Self {
            path: path.to_string(),
            source: one_line(sources.text(span)),
            region: Region::new(span, "", sources),
        }
    }

    fn line(&self) -> String {
        let Region { file, line, .. } = &self.region;
        format!("{}:{line}: {}", plain(file), plain(&self.source))
    }
}

fn change_name(change: Change) -> &'static str {
    match change {
        Change::NewlyPassed => "newly-passed",
        Change::NewlyBlocked => "newly-blocked",
        Change::Answer => "other-answer",
        Change::State => "other-state",
        Change::Translation => "other-translation",
        Change::Actions => "other-actions",
        Change::Log => "other-log",
    }
}

fn certainty_name(certainty: Certainty) -> &'static str {
    match certainty {
        Certainty::Always => "always",
        Certainty::Sometimes => "sometimes",
        Certainty::Maybe => "maybe",
    }
}

/// A count, above a million as a power of two.
fn power(count: f64) -> String {
    if count < 1e6 {
        format!("{count:.0}")
    } else {
        format!("about 2^{:.0}", count.log2())
    }
}

/// Coverage of a file's rules.
#[derive(Debug, Serialize)]
pub struct CoverReport {
    /// The file.
    pub file: String,
    /// Rules that decide about some packet.
    pub deciding: usize,
    /// Rules that never decide, but have an effect.
    pub effect_only: usize,
    /// Rules that others hide.
    pub shadowed: usize,
    /// Rules that no packet matches.
    pub never_matching: usize,
    /// The rules, in the order of evaluation.
    pub rules: Vec<Covered>,
}

/// Coverage of a rule.
#[derive(Debug, Serialize)]
pub struct Covered {
    /// The rule.
    #[serde(flatten)]
    pub rule: Place,
    /// `decides`, `effect-only`, `shadowed` or `never-matches`.
    pub coverage: &'static str,
    /// A packet that it decides, or that has its effect.
    pub example: Option<String>,
    /// The rules that decide instead of it.
    pub hidden_by: Vec<Place>,
    /// Why it decides nothing.
    pub why: Option<String>,
}

impl CoverReport {
    /// Of a file.
    pub fn new(file: &str, cover: &Cover, sources: &Sources) -> Self {
        let place = |path: &RulePath| {
            let rule = cover.rules.iter().find(|rule| rule.path == *path)?;
            Some(Place::new(path, rule.origin.span, sources))
        };
        let covered = |rule: &pf_filter::analysis::RuleCover| {
            let (coverage, example, why) = match &rule.coverage {
                Coverage::Decides(packet) => ("decides", Some(packet.to_string()), None),
                Coverage::EffectOnly(packet) => ("effect-only", Some(packet.to_string()), None),
                Coverage::Shadowed { more, skip, .. } => ("shadowed", None, hidden(*more, *skip)),
                Coverage::NeverMatches(why) => ("never-matches", None, Some(why.to_string())),
            };
            let hidden_by = match &rule.coverage {
                Coverage::Shadowed { by, .. } => by.iter().filter_map(place).collect(),
                _ => Vec::new(),
            };
            Covered {
                rule: Place::new(&rule.path, rule.origin.span, sources),
                coverage,
                example,
                hidden_by,
                why,
            }
        };
        let rules: Vec<_> = cover.rules.iter().map(covered).collect();
        let count = |name| rules.iter().filter(|rule| rule.coverage == name).count();
        Self {
            file: file.to_owned(),
            deciding: count("decides"),
            effect_only: count("effect-only"),
            shadowed: count("shadowed"),
            never_matching: count("never-matches"),
            rules,
        }
    }

    /// Every rule is good for something.
    pub fn is_full(&self) -> bool {
        self.shadowed + self.never_matching == 0
    }

    /// As text: statements with rules that are good for nothing, and with `all` every rule.
    pub fn text(&self, all: bool) -> String {
        let mut text = String::new();
        if all {
            self.rules.iter().for_each(|rule| text += &rule.text());
        } else {
            text = self.idle();
        }
        let _ = writeln!(
            text,
            "{}: {}: {} decide, {} have an effect only, {} are shadowed, {} never match",
            plain(&self.file),
            many(self.rules.len(), "rule"),
            self.deciding,
            self.effect_only,
            self.shadowed,
            self.never_matching
        );
        text
    }

    /// Statements that have idle rules, with the reasons, each once.
    fn idle(&self) -> String {
        let mut statements: Vec<(&Place, usize, usize, Vec<String>)> = Vec::new();
        for rule in &self.rules {
            let at = statements
                .iter()
                .rposition(|it| it.0.region == rule.rule.region && it.0.source == rule.rule.source);
            let at = at.unwrap_or_else(|| {
                statements.push((&rule.rule, 0, 0, Vec::new()));
                statements.len() - 1
            });
            let (_, all, idle, reasons) = &mut statements[at];
            *all += 1;
            if rule.is_idle() {
                *idle += 1;
                let reason = rule.reason();
                if !reasons.contains(&reason) {
                    reasons.push(reason);
                }
            }
        }
        let mut text = String::new();
        for (place, all, idle, reasons) in statements.iter().filter(|it| it.2 > 0) {
            let _ = writeln!(text, "{}", place.line());
            let _ = match (*all, *idle) {
                (1, _) => writeln!(text, "  it decides nothing:"),
                (all, idle) if all == idle => {
                    writeln!(text, "  all of its {all} rules decide nothing:")
                }
                (all, idle) => writeln!(text, "  {idle} of its {all} rules decide nothing:"),
            };
            for reason in reasons {
                let _ = writeln!(text, "    {reason}");
            }
            text.push('\n');
        }
        text
    }
}

fn hidden(more: bool, skip: bool) -> Option<String> {
    match (more, skip) {
        (_, true) => Some("set skip hides it too".to_owned()),
        (true, false) => Some("more rules hide it".to_owned()),
        (false, false) => None,
    }
}

impl Covered {
    fn is_idle(&self) -> bool {
        matches!(self.coverage, "shadowed" | "never-matches")
    }

    /// Why it decides nothing, in a line.
    fn reason(&self) -> String {
        let hiders: Vec<_> = self.hidden_by.iter().map(Place::line).collect();
        match (&self.why, hiders.as_slice()) {
            (Some(why), []) => plain(why),
            (None, []) => {
                "no packet reaches it as it is named: others decide, or translate it".to_owned()
            }
            (None, hiders) => format!("hidden by {}", hiders.join("\n              ")),
            (Some(why), hiders) => format!(
                "hidden by {}\n              {}",
                hiders.join("\n              "),
                plain(why)
            ),
        }
    }

    fn text(&self) -> String {
        let path = plain(&self.rule.path);
        let mut text = format!("{} {path}: {}\n", self.coverage, self.rule.line());
        for rule in &self.hidden_by {
            let _ = writeln!(text, "  by {}: {}", plain(&rule.path), rule.line());
        }
        if let Some(why) = &self.why {
            let _ = writeln!(text, "  {}", wrap(&plain(why), 4));
        }
        if let Some(example) = &self.example {
            let _ = writeln!(text, "  such as {}", plain(example));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_counts_are_powers() {
        assert_eq!(power(65_536.0), "65536");
        assert_eq!(power(2_f64.powi(40)), "about 2^40");
    }
}
