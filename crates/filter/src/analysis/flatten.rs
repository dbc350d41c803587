//! A rule set as one list: rules of anchors stand where their anchor is called.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::Error;
use super::tables::Tables;
use crate::rule::{Action, Anchor, On, Origin, Rule, Ruleset};

/// Deepest nesting of anchors (`PF_ANCHOR_STACK_MAX`).
const DEPTH_MAX: usize = 64;
/// Most rules after anchors were put in place.
const RULES_MAX: usize = 1_000_000;

/// A rule's place in its rule set.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RulePath {
    /// Path of the anchor that holds it; empty for the main rule set.
    pub anchor: Arc<str>,
    /// Its number there, from 0, as pfctl counts.
    pub number: u32,
}

impl std::fmt::Display for RulePath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.anchor.is_empty() {
            write!(f, "@{}", self.number)
        } else {
            write!(f, "{}@{}", self.anchor, self.number)
        }
    }
}

/// The role of a step in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Evaluate the rule.
    Rule,
    /// Enter the anchor.
    Enter,
    /// Leave the quick anchor that the step with this index entered, and stop if the last match
    /// is a rule of its own.
    Leave(usize),
}

/// A step of the evaluation.
#[derive(Clone, Debug)]
pub struct Flat<'a> {
    /// The rule, or the rule that calls the anchor.
    pub rule: &'a Rule,
    /// Its place: an index of [`List::paths`].
    pub path: u32,
    /// Its role.
    pub step: Step,
    /// The step that entered the anchor around it.
    pub parent: Option<usize>,
    /// Path of the anchor around it.
    pub anchor: Arc<str>,
}

/// A rule set as one list.
pub struct List<'a> {
    /// The rule set.
    pub ruleset: &'a Ruleset,
    /// Its steps.
    pub steps: Vec<Flat<'a>>,
    /// Places of rules, and where they come from.
    pub paths: Vec<(RulePath, &'a Origin)>,
    /// Its tables.
    pub tables: Tables<'a>,
    /// Anchors that are called, but have no rules in the file.
    pub absent: BTreeSet<String>,
}

struct Flattener<'a> {
    anchors: BTreeMap<String, &'a [Rule]>,
    numbers: HashMap<RulePath, u32>,
    list: List<'a>,
}

/// Puts the rules of anchors where they are called.
pub fn flatten(ruleset: &Ruleset) -> Result<List<'_>, Error> {
    let loaded = ruleset.loaded.iter();
    let lists = loaded.flat_map(|anchor| [&anchor.scrubs, &anchor.translations]);
    let mut lists = lists.chain([&ruleset.scrubs, &ruleset.translations]);
    if lists.any(|rules| !rules.is_empty()) {
        return Err(Error::Translations);
    }
    let mut anchors = BTreeMap::new();
    collect(&ruleset.rules, "", 0, &mut anchors)?;
    for loaded in &ruleset.loaded {
        let path = loaded.path.trim_matches('/');
        collect(&loaded.rules, path, 0, &mut anchors)?;
        anchors.insert(path.to_owned(), &loaded.rules[..]);
    }
    let list = List {
        ruleset,
        steps: Vec::new(),
        paths: Vec::new(),
        tables: Tables::new(ruleset),
        absent: BTreeSet::new(),
    };
    let mut flattener = Flattener {
        anchors,
        numbers: HashMap::new(),
        list,
    };
    flattener.rules(&ruleset.rules, &"".into(), None, 0)?;
    Ok(flattener.list)
}

/// Names the rules of all inline anchors by their paths.
fn collect<'a>(
    rules: &'a [Rule],
    path: &str,
    depth: usize,
    anchors: &mut BTreeMap<String, &'a [Rule]>,
) -> Result<(), Error> {
    if depth > DEPTH_MAX {
        return Err(Error::AnchorsTooDeep);
    }
    for rule in rules {
        if let Some(Anchor::Inline { name, rules }) = rule.anchor.as_deref() {
            let path = join(path, name);
            anchors.insert(path.clone(), rules);
            collect(rules, &path, depth + 1, anchors)?;
        }
    }
    Ok(())
}

/// The path of an anchor that a rule of the anchor `from` calls.
fn join(from: &str, to: &str) -> String {
    let base = if to.starts_with('/') { "" } else { from };
    let mut parts: Vec<&str> = base.split('/').filter(|part| !part.is_empty()).collect();
    for part in to.split('/').filter(|part| !part.is_empty()) {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

impl<'a> Flattener<'a> {
    fn rules(
        &mut self,
        rules: &'a [Rule],
        anchor: &Arc<str>,
        parent: Option<usize>,
        depth: usize,
    ) -> Result<(), Error> {
        if depth > DEPTH_MAX {
            return Err(Error::AnchorsTooDeep);
        }
        for (number, rule) in rules.iter().enumerate() {
            let path = self.path(
                RulePath {
                    anchor: Arc::clone(anchor),
                    number: number as u32,
                },
                rule,
            );
            let flat = Flat {
                rule,
                path,
                step: Step::Rule,
                parent,
                anchor: Arc::clone(anchor),
            };
            match rule.anchor.as_deref() {
                None => self.push(flat)?,
                Some(called) => self.call(&flat, called, depth)?,
            }
        }
        Ok(())
    }

    fn path(&mut self, path: RulePath, rule: &'a Rule) -> u32 {
        let next = self.list.paths.len() as u32;
        *self.numbers.entry(path.clone()).or_insert_with(|| {
            self.list.paths.push((path, &rule.origin));
            next
        })
    }

    fn push(&mut self, flat: Flat<'a>) -> Result<(), Error> {
        if self.list.steps.len() >= RULES_MAX {
            return Err(Error::TooManyRules);
        }
        self.list.steps.push(flat);
        Ok(())
    }

    fn call(&mut self, flat: &Flat<'a>, called: &'a Anchor, depth: usize) -> Result<(), Error> {
        let (Anchor::Inline { name, .. } | Anchor::Call(name)) = called;
        let entry = self.list.steps.len();
        let leave = Flat {
            step: Step::Leave(entry),
            ..flat.clone()
        };
        let quick = flat.rule.quick;
        self.push(Flat {
            step: Step::Enter,
            ..flat.clone()
        })?;
        for (path, rules) in self.called(&flat.anchor, name, called) {
            self.rules(rules, &path.into(), Some(entry), depth + 1)?;
            if quick {
                self.push(leave.clone())?;
            }
        }
        Ok(())
    }

    /// The rule sets below a path, one level.
    fn children(&self, base: &str) -> Vec<(String, &'a [Rule])> {
        let prefix = if base.is_empty() {
            String::new()
        } else {
            format!("{base}/")
        };
        let is_child = |path: &str| {
            let rest = path.strip_prefix(&prefix);
            rest.is_some_and(|rest| !rest.is_empty() && !rest.contains('/'))
        };
        let children = self.anchors.iter().filter(|(path, _)| is_child(path));
        children
            .map(|(path, rules)| (path.clone(), *rules))
            .collect()
    }

    /// The rule sets that a call evaluates, with their paths, in order.
    fn called(&mut self, from: &str, name: &str, called: &'a Anchor) -> Vec<(String, &'a [Rule])> {
        if let Anchor::Inline { rules, .. } = called {
            return vec![(join(from, name), rules)];
        }
        let wildcard = name
            .strip_suffix('*')
            .filter(|base| base.is_empty() || base.ends_with('/'));
        let rulesets: Vec<(String, &'a [Rule])> = if let Some(base) = wildcard {
            self.children(&join(from, base))
        } else {
            let path = join(from, name);
            let found = self.anchors.get(&path).copied();
            found.map(|rules| (path, rules)).into_iter().collect()
        };
        if rulesets.is_empty() {
            self.list.absent.insert(join(from, name));
        }
        rulesets
    }
}

/// Names of interfaces and groups, and routing domains, that rules name.
pub fn names(list: &List<'_>, interfaces: &mut BTreeSet<String>, rdomains: &mut BTreeSet<u32>) {
    interfaces.extend(list.ruleset.options.skip.iter().map(ToString::to_string));
    for flat in &list.steps {
        match &flat.rule.on {
            Some(On::Interface(test)) => {
                interfaces.insert(test.name.to_string());
            }
            Some(On::Rdomain { id, .. }) => {
                rdomains.insert(*id);
            }
            None => {}
        }
        interfaces.extend(
            flat.rule
                .received_on
                .iter()
                .map(|test| test.name.to_string()),
        );
    }
    interfaces.remove("any");
    interfaces.remove("all");
}

/// Whether a step can decide the packet.
pub fn decides(flat: &Flat<'_>) -> bool {
    flat.step == Step::Rule && flat.rule.action != Action::Match
}
