//! Queues.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::parser::{Parser, Step};
use crate::diagnostic::Diagnostic;
use crate::lex::{At, Keyword, Kind};
use crate::rule::{Anchor, Queue, Rule, ServiceCurve};
use crate::source::Span;

/// Longest name of a queue.
const NAME_MAX: usize = 63;
/// Deepest tree of queues.
const DEPTH_MAX: usize = 64;
/// Most queues of all interfaces together.
const QUEUES_MAX: usize = 10_000;

impl Parser<'_> {
    pub(super) fn queue(&mut self) -> Step<()> {
        let start = self.take().at;
        let (name, at) = self.text("the name of a queue")?;
        self.check_queue_name(&name, &at)?;
        let interfaces = self.interfaces()?;
        let mut queue = self.queue_options(name, &start)?;
        queue.span = start.usage.to(self.last_at().usage);
        let whole = start.to(&self.last_at());
        if interfaces.is_empty() && queue.parent.is_none() {
            return self.fail_with(
                "queue",
                &whole,
                "a root queue needs an interface",
                "write `on` and its name, or a `parent`",
            );
        }
        for node in &interfaces {
            let name = node.value.name.as_deref().unwrap_or("");
            let host = self.config.host;
            if host.is_known() && host.interface(name).is_none() {
                let at = node.at.clone();
                return self.fail("queue", &at, format!("the host has no interface `{name}`"));
            }
        }
        let names: Vec<Option<Arc<str>>> = match interfaces.len() {
            0 => vec![None],
            _ => interfaces.into_iter().map(|node| node.value.name).collect(),
        };
        for interface in names {
            self.add_queue(
                Queue {
                    interface,
                    ..queue.clone()
                },
                &whole,
            )?;
        }
        Ok(())
    }

    fn check_queue_name(&mut self, name: &str, at: &At) -> Step<()> {
        if name.len() <= NAME_MAX {
            return Ok(());
        }
        self.fail(
            "too-long",
            at,
            format!("a queue's name has at most {NAME_MAX} characters"),
        )
    }

    fn add_queue(&mut self, queue: Queue, at: &At) -> Step<()> {
        if self.queues.len() >= QUEUES_MAX {
            return self.fail(
                "queue",
                at,
                format!("there are more than {QUEUES_MAX} queues"),
            );
        }
        if queue.parent.is_none() {
            let first = self
                .queues
                .iter()
                .find(|other| other.parent.is_none() && other.interface == queue.interface);
            if let Some(first) = first {
                let name = queue.interface.as_deref().unwrap_or("");
                let error = Self::error(
                    "queue",
                    at,
                    format!("interface `{name}` already has a root queue"),
                );
                let error = error.related(first.span, "the first root queue");
                self.report(error);
                return Err(super::parser::Failed);
            }
        } else {
            self.queue_names.push(queue.name.clone());
        }
        self.queues.push(queue);
        Ok(())
    }

    fn queue_options(&mut self, name: Arc<str>, start: &At) -> Step<Queue> {
        let mut queue = Queue {
            name,
            parent: None,
            interface: None,
            flows: 0,
            quantum: 0,
            bandwidth: ServiceCurve::default(),
            min: ServiceCurve::default(),
            max: ServiceCurve::default(),
            default: false,
            limit: 0,
            span: start.usage,
        };
        let (mut bandwidth, mut any) = (false, false);
        loop {
            let at = self.peek().at.clone();
            match self.peek_keyword() {
                Some(Keyword::Bandwidth) => {
                    self.take();
                    self.once_only(bandwidth, "bandwidth", &at)?;
                    bandwidth = true;
                    self.bandwidth(&mut queue)?;
                }
                Some(Keyword::Parent) => {
                    self.take();
                    self.once_only(queue.parent.is_some(), "parent", &at)?;
                    let (parent, at) = self.text("the name of a queue")?;
                    self.check_queue_name(&parent, &at)?;
                    queue.parent = Some(parent);
                }
                Some(Keyword::Default) => {
                    self.take();
                    self.once_only(queue.default, "default", &at)?;
                    queue.default = true;
                }
                Some(Keyword::Qlimit) => {
                    self.take();
                    self.once_only(queue.limit != 0, "qlimit", &at)?;
                    queue.limit = self.number_to(65535, "qlimit")?;
                }
                Some(Keyword::Flows) => {
                    self.take();
                    self.once_only(queue.flows != 0, "flows", &at)?;
                    queue.flows = self.queue_number(32767, "flows")?;
                }
                Some(Keyword::Quantum) => {
                    self.take();
                    self.once_only(queue.quantum != 0, "quantum", &at)?;
                    queue.quantum = self.queue_number(65535, "quantum")?;
                }
                _ if any => break,
                _ => {
                    return self.unexpected(
                        "`bandwidth`, `parent`, `default`, `qlimit`, `flows` or `quantum`",
                    );
                }
            }
            any = true;
        }
        if !bandwidth && queue.flows == 0 {
            let at = start.to(&self.last_at());
            return self.fail_with(
                "queue",
                &at,
                "a queue needs a bandwidth or flows",
                "write `bandwidth 10M` or `flows 1024`",
            );
        }
        Ok(queue)
    }

    fn queue_number(&mut self, most: u32, what: &str) -> Step<u32> {
        let at = self.peek().at.clone();
        match self.number_to(most, what)? {
            0 => self.fail(
                "range",
                &at,
                format!("{what} is 0: 1 to {most} are allowed"),
            ),
            number => Ok(number),
        }
    }

    fn bandwidth(&mut self, queue: &mut Queue) -> Step<()> {
        queue.bandwidth = self.curve()?;
        let (mut min, mut max) = (false, false);
        loop {
            let comma = self.accept_byte(b',');
            match self.peek_keyword() {
                Some(Keyword::Min) if !min => {
                    self.take();
                    min = true;
                    queue.min = self.curve()?;
                }
                Some(Keyword::Max) if !max => {
                    self.take();
                    max = true;
                    queue.max = self.curve()?;
                }
                _ if comma => return self.unexpected("`min` or `max`, each once"),
                _ => return Ok(()),
            }
        }
    }

    fn curve(&mut self) -> Step<ServiceCurve> {
        let rate = self.rate_of_bits()?;
        if !self.accept(Keyword::Burst) {
            return Ok(ServiceCurve {
                rate,
                ..ServiceCurve::default()
            });
        }
        let burst = self.rate_of_bits()?;
        self.expect_keyword(Keyword::For)?;
        let (text, at) = self.text("a time such as `100ms`")?;
        match text
            .strip_suffix("ms")
            .and_then(|digits| digits.parse().ok())
        {
            Some(milliseconds) => Ok(ServiceCurve {
                rate,
                burst,
                milliseconds,
            }),
            None => self.fail(
                "range",
                &at,
                "the time of a burst is given in ms, such as `100ms`",
            ),
        }
    }

    /// A bandwidth in bit/s: `10M`, `1.5G`, `100Kb`.
    fn rate_of_bits(&mut self) -> Step<u64> {
        let at = self.peek().at.clone();
        if let Kind::Number(number) = self.peek().kind {
            self.take();
            return match u64::try_from(number) {
                Ok(number) => Ok(number),
                Err(_) => self.fail("range", &at, "a bandwidth cannot be negative"),
            };
        }
        let (text, at) = self.text("a bandwidth such as `10M`")?;
        let digits = text
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        if unit == "%" {
            return self.fail(
                "range",
                &at,
                "a bandwidth in percent is not supported by pf",
            );
        }
        let unit = match unit.char_indices().nth(1) {
            Some((second, _)) if matches!(&unit[second..], "Bit" | "B" | "bit" | "b") => {
                &unit[..second]
            }
            _ => unit,
        };
        let factor = match unit {
            "b" => 1.0,
            "K" => 1e3,
            "M" => 1e6,
            "G" => 1e9,
            _ => {
                return self.fail_with(
                    "range",
                    &at,
                    format!("unknown unit `{unit}`"),
                    "write b, K, M or G",
                );
            }
        };
        match number.parse::<f64>() {
            Ok(number) if number * factor <= i64::MAX as f64 => Ok((number * factor) as u64),
            _ => self.fail("range", &at, format!("`{text}` is no bandwidth")),
        }
    }

    /// `name`, `(name)` or `(name, name)`; they must be queues with a parent.
    pub(super) fn queue_names(&mut self) -> Step<(Arc<str>, Option<Arc<str>>)> {
        if !self.accept_byte(b'(') {
            return Ok((self.known_queue()?, None));
        }
        let first = self.known_queue()?;
        if self.accept_byte(b')') {
            return Ok((first, None));
        }
        self.accept_byte(b',');
        let second = self.known_queue()?;
        self.expect_byte(b')')?;
        Ok((first, Some(second)))
    }

    fn known_queue(&mut self) -> Step<Arc<str>> {
        let (name, at) = self.text("the name of a queue")?;
        if self.queue_names.contains(&name) {
            return Ok(name);
        }
        let names = self.queue_names.clone();
        let mut error = Self::error(
            "unknown-queue",
            &at,
            format!("queue `{name}` is not defined"),
        );
        if let Some(other) = crate::lex::nearest(&name, names.iter().map(AsRef::as_ref)) {
            error = error.help(format!("did you mean `{other}`?"));
        } else if self.queues.iter().any(|queue| queue.name == name) {
            error = error.help("packets go to queues that have a parent");
        } else {
            error = error.help("define it above its first use");
        }
        self.report(error);
        Err(super::parser::Failed)
    }

    /// Checks the trees of queues, and puts each behind its parent.
    pub(super) fn check_queues(&mut self) {
        let specs = std::mem::take(&mut self.queues);
        let (roots, children): (Vec<_>, Vec<_>) =
            specs.into_iter().partition(|queue| queue.parent.is_none());
        let mut used = vec![false; children.len()];
        let mut ordered = Vec::new();
        for root in &roots {
            let from = ordered.len();
            self.place_queue(root.clone(), &children, &mut used, &mut ordered, 0);
            self.check_root(root, &ordered[from..]);
        }
        for (queue, _) in children.iter().zip(&used).filter(|(_, used)| !**used) {
            let parent = queue.parent.as_deref().unwrap_or("");
            let message = format!(
                "the parent of queue `{}`, `{parent}`, is not there",
                queue.name
            );
            self.report(Diagnostic::error("queue", queue.span, message));
        }
        self.queues = ordered;
    }

    fn place_queue(
        &mut self,
        queue: Queue,
        children: &[Queue],
        used: &mut [bool],
        ordered: &mut Vec<Queue>,
        depth: usize,
    ) {
        if depth > DEPTH_MAX || ordered.len() > QUEUES_MAX {
            self.report(Diagnostic::error(
                "queue",
                queue.span,
                "the queues are each other's parents, or too many",
            ));
            return;
        }
        let (name, interface) = (queue.name.clone(), queue.interface.clone());
        let mut own: Vec<Queue> = Vec::new();
        for (index, child) in children.iter().enumerate() {
            let bound = child.interface.is_some();
            if child.parent.as_ref() != Some(&name) || bound && child.interface != interface {
                continue;
            }
            used[index] = true;
            // One that names the interface replaces one that does not.
            match own.iter_mut().find(|other| other.name == child.name) {
                None => own.push(child.clone()),
                Some(other) if other.interface.is_some() == bound => {
                    let message = format!("queue `{}` is given twice", child.name);
                    self.report(Diagnostic::error("queue", child.span, message));
                }
                Some(other) if bound => *other = child.clone(),
                Some(_) => {}
            }
        }
        if !own.is_empty() {
            self.check_inner(&queue);
        }
        ordered.push(queue);
        for mut child in own {
            if child.bandwidth.rate == 0 && child.bandwidth.burst == 0 {
                let message = format!("queue `{}` has a parent, and needs a bandwidth", child.name);
                self.report(Diagnostic::error("queue-bandwidth", child.span, message));
            }
            child.interface.clone_from(&interface);
            self.place_queue(child, children, used, ordered, depth + 1);
        }
    }

    fn check_inner(&mut self, queue: &Queue) {
        let what = match (queue.default, queue.flows > 0) {
            (true, _) => "default queue",
            (false, true) => "flow queue",
            _ => return,
        };
        let message = format!(
            "the {what} `{}` has children: it must be a leaf",
            queue.name
        );
        self.report(Diagnostic::error("queue-leaf", queue.span, message));
    }

    fn check_root(&mut self, root: &Queue, tree: &[Queue]) {
        let rooted = root.bandwidth.rate != 0 || root.bandwidth.burst != 0;
        if !rooted && tree.len() > 1 {
            let message = format!(
                "root queue `{}` has children, and needs a bandwidth",
                root.name
            );
            self.report(Diagnostic::error("queue-bandwidth", root.span, message));
        }
        if rooted && !tree.iter().any(|queue| queue.default) {
            let message = format!("no queue below `{}` is the default", root.name);
            let error = Diagnostic::error("queue-default", root.span, message);
            self.report(error.help("write `default` on the queue for all other packets"));
        }
    }

    /// Rules put packets into leaf queues only.
    pub(super) fn check_queue_uses(&mut self) {
        let queues = &self.ruleset.queues;
        let inner: BTreeSet<&str> = queues
            .iter()
            .filter_map(|queue| queue.parent.as_deref())
            .collect();
        let mut found = Vec::new();
        uses_of(&self.ruleset.rules, &mut |name, span| {
            if inner.contains(name) {
                let message =
                    format!("queue `{name}` has children: packets go to leaf queues only");
                found.push(Diagnostic::error("queue-leaf", span, message));
            }
        });
        for error in found {
            self.report(error);
        }
    }
}

/// The queues that rules put packets into.
fn uses_of(rules: &[Rule], report: &mut impl FnMut(&str, Span)) {
    for rule in rules {
        let queue = rule.set.as_deref().and_then(|set| set.queue.as_ref());
        if let Some((bulk, low_delay)) = queue {
            let names = std::iter::once(bulk).chain(low_delay);
            names.for_each(|name| report(name, rule.origin.span));
        }
        if let Some(Anchor::Inline { rules, .. }) = rule.anchor.as_deref() {
            uses_of(rules, report);
        }
    }
}
