//! Why a packet gets its verdict, as text and as JSON.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::Duration;

use pf_filter::eval::{Answer, Engine, Explanation, Key, RuleId, StateUse, Verdict};
use pf_filter::names;
use pf_filter::packet::{Packet, Refusal};
use pf_filter::print;
use pf_filter::source::{Sources, Span};
use serde::Serialize;

use super::finding::Region;
use super::text::{Painter, one_line};
use crate::report::text::{plain, wrap};

/// A verdict and its reasons.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Number of the packet in a capture, from 1.
    pub number: Option<u64>,
    /// Its time in the capture, in seconds since the first packet.
    pub seconds: Option<f64>,
    /// The packet in words; none for one that cannot be decoded.
    pub packet: Option<String>,
    /// `pass`, `block`, or `wait` for a fragment that waits for others.
    pub verdict: &'static str,
    /// pf's answer.
    pub answer: Option<String>,
    /// The cause, by a name that stays.
    pub cause: &'static str,
    /// The same as a sentence.
    pub why: String,
    /// pf's name for it, as `pfctl -si` has it.
    pub reason: &'static str,
    /// The rule that decided, or made the state.
    pub rule: Option<Deciding>,
    /// Pass and block rules that matched before, and were overridden, in order.
    pub overridden: Vec<Deciding>,
    /// Match rules that had their effect, in order.
    pub effects: Vec<Deciding>,
    /// The rule that would have turned the verdict most easily.
    pub nearest: Option<Nearest>,
    /// The state that was made, used, or that refused it.
    pub state: Option<State>,
    /// The packet as it leaves pf, where that changed it.
    pub becomes: Option<String>,
    /// The tag that it leaves with.
    pub tag: Option<String>,
    /// The queue that it goes to.
    pub queue: Option<String>,
    /// Differences on Linux.
    pub linux: Vec<String>,
    /// Unknown facts.
    pub notes: Vec<String>,
    #[serde(skip)]
    span: Option<Span>,
}

/// A rule and its source.
#[derive(Clone, Debug, Serialize)]
pub struct Deciding {
    /// As pfctl prints it.
    pub text: String,
    /// Path of the anchor that holds it; empty for the main rule set.
    pub anchor: String,
    /// Its number there, from 0.
    pub number: usize,
    /// The statement that it was expanded from.
    pub source: String,
    /// Where that is.
    #[serde(flatten)]
    pub region: Region,
}

/// A rule that nearly decided.
#[derive(Debug, Serialize)]
pub struct Nearest {
    /// The rule.
    #[serde(flatten)]
    pub rule: Deciding,
    /// The tests that failed, in pf's order.
    pub failed: Vec<&'static str>,
    /// The rule's value in the first of them.
    pub wanted: String,
    /// The packet's value.
    pub found: String,
}

/// A state.
#[derive(Debug, Serialize)]
pub struct State {
    /// The packet made it.
    pub made: bool,
    /// The packet goes in the state's direction, and not in reverse.
    pub forward: bool,
    /// Direction of its first packet.
    pub direction: &'static str,
    /// The interface that it is bound to; none for a floating one.
    pub interface: Option<String>,
    /// Its addresses and ports on the wire, as pfctl prints states.
    pub wire: String,
    /// The same behind a translation; none without one.
    pub stack: Option<String>,
    /// States of the end that sent the first packet, and of the other.
    pub peers: [&'static str; 2],
    /// The timeout that holds.
    pub timeout: &'static str,
    /// Seconds until it ends.
    pub expires_seconds: u64,
}

impl Report {
    /// Of a packet that an engine judges.
    pub fn judge(engine: &mut Engine<'_>, packet: &Packet, sources: &Sources) -> Self {
        let explanation = engine.explain(packet);
        Self::new(&explanation, packet, engine, sources)
    }

    /// Of a packet that an engine judges, for its [line](Self::line): without the reasons, which take ten
    /// times as long.
    pub fn verdict(engine: &mut Engine<'_>, packet: &Packet, sources: &Sources) -> Self {
        let explanation = Explanation {
            decision: engine.run(packet),
            steps: Vec::new(),
            nearest: None,
            linux: Vec::new(),
        };
        Self::new(&explanation, packet, engine, sources)
    }

    /// Of bytes that pf refuses before it has a packet.
    pub fn refused(refusal: Refusal) -> Self {
        Self {
            number: None,
            seconds: None,
            packet: None,
            verdict: "block",
            answer: None,
            cause: refusal.name(),
            why: refusal.sentence().to_owned(),
            reason: refusal.reason().name(),
            rule: None,
            overridden: Vec::new(),
            effects: Vec::new(),
            nearest: None,
            state: None,
            becomes: None,
            tag: None,
            queue: None,
            linux: Vec::new(),
            notes: Vec::new(),
            span: None,
        }
    }

    fn new(
        explanation: &Explanation,
        packet: &Packet,
        engine: &Engine<'_>,
        sources: &Sources,
    ) -> Self {
        let decision = &explanation.decision;
        let deciding = |id: RuleId| Deciding::new(id, engine, sources);
        let is_effect = |id: &RuleId| {
            let rule = engine.rule(*id).rule;
            rule.action == pf_filter::rule::Action::Match && rule.anchor.is_none()
        };
        let effects = decision.matches.iter().map(|matched| matched.rule);
        let becomes = decision.packet.as_ref().map(Packet::to_words);
        let words = packet.to_words();
        let nearest = explanation.nearest.as_ref().map(|near| Nearest {
            rule: deciding(near.rule),
            failed: near
                .failed
                .iter()
                .map(pf_filter::eval::Field::name)
                .collect(),
            wanted: near.rule_value.clone(),
            found: near.packet_value.clone(),
        });
        Self {
            verdict: match decision.verdict {
                Verdict::Pass => "pass",
                Verdict::Block(_) => "block",
                Verdict::Wait => "wait",
            },
            answer: answer(decision.verdict),
            cause: decision.cause.name(),
            why: decision.cause.sentence().to_owned(),
            reason: decision.reason().name(),
            rule: decision.rule.map(deciding),
            overridden: decision
                .overridden()
                .filter(|id| !is_effect(id))
                .map(deciding)
                .collect(),
            effects: effects.filter(is_effect).map(deciding).collect(),
            nearest,
            state: decision.state.as_ref().map(State::new),
            becomes: becomes.filter(|becomes| *becomes != words),
            packet: Some(words),
            tag: decision.tag.as_deref().map(str::to_owned),
            queue: decision.queue.as_deref().map(str::to_owned),
            linux: explanation.linux.clone(),
            notes: decision.notes.clone(),
            span: decision.rule.map(|id| engine.rule(id).rule.origin.span),
            number: None,
            seconds: None,
        }
    }

    /// The same for a packet of a capture.
    #[must_use]
    pub fn of_capture(self, number: u64, since_first: Duration) -> Self {
        Self {
            number: Some(number),
            seconds: Some(since_first.as_secs_f64()),
            ..self
        }
    }

    /// Whether the packet passes.
    pub fn passes(&self) -> bool {
        self.verdict == "pass"
    }

    /// One line: number, time, verdict, rule and packet.
    pub fn line(&self) -> String {
        let rule = match &self.rule {
            Some(rule) => rule.place(),
            None => self.cause.to_owned(),
        };
        let (number, seconds) = (self.number.unwrap_or(0), self.seconds.unwrap_or(0.0));
        let packet = plain(self.packet.as_deref().unwrap_or(&self.why));
        format!(
            "{number:>6} {seconds:>11.6} {:<5} {rule}: {packet}\n",
            self.verdict
        )
    }

    /// All of it.
    pub fn text(&self, painter: &Painter, sources: &Sources) -> String {
        let mut text = String::new();
        if let Some(packet) = &self.packet {
            let _ = writeln!(text, "{}\n", plain(packet));
        }
        let _ = writeln!(text, "{}: {}", self.headline(), plain(&self.why));
        if let (Some(rule), Some(span)) = (&self.rule, self.span) {
            let title = format!("{} {}", rule.path(), rule.text);
            text += &painter.source(&title, span, "", sources);
        }
        self.add_rules(&mut text);
        self.add_nearest(&mut text);
        self.add_result(&mut text);
        for (title, lines) in [("On Linux", &self.linux), ("Not known", &self.notes)] {
            if !lines.is_empty() {
                let _ = writeln!(text, "\n{title}:");
            }
            for line in lines {
                let _ = writeln!(text, "  {}", wrap(&plain(line), 4));
            }
        }
        text
    }

    fn headline(&self) -> String {
        let mut headline = self.verdict.to_owned();
        if let Some(answer) = &self.answer {
            let _ = write!(headline, ", {answer}");
        }
        headline
    }

    fn add_rules(&self, text: &mut String) {
        let lists = [
            ("Matched before, and overridden", &self.overridden),
            ("Match rules that had their effect", &self.effects),
        ];
        for (title, rules) in lists {
            if !rules.is_empty() {
                let _ = writeln!(text, "\n{title}:");
            }
            for rule in rules {
                let _ = writeln!(text, "  {}: {}", rule.place(), plain(&rule.source));
            }
        }
    }

    fn add_nearest(&self, text: &mut String) {
        let Some(near) = &self.nearest else { return };
        let would = if self.passes() { "block" } else { "pass" };
        let (place, source) = (near.rule.place(), plain(&near.rule.source));
        let _ = writeln!(
            text,
            "\nNearest rule that would {would} it:\n  {place}: {source}"
        );
        let failed = near.failed.join(", ");
        let (wanted, found) = (plain(&near.wanted), plain(&near.found));
        let _ = writeln!(
            text,
            "  fails: {failed}; it asks for `{wanted}`, the packet has `{found}`"
        );
    }

    fn add_result(&self, text: &mut String) {
        if let Some(state) = &self.state {
            let _ = writeln!(text, "\n{}", state.text());
        }
        for (title, value) in [
            ("Becomes", &self.becomes),
            ("Tag", &self.tag),
            ("Queue", &self.queue),
        ] {
            if let Some(value) = value {
                let _ = writeln!(text, "\n{title}: {}", plain(value));
            }
        }
    }
}

impl Deciding {
    fn new(id: RuleId, engine: &Engine<'_>, sources: &Sources) -> Self {
        let found = engine.rule(id);
        let span = found.rule.origin.span;
        Self {
            text: print::rule(found.rule),
            anchor: found.anchor.to_string(),
            number: found.index,
            source: one_line(sources.text(span)),
            region: Region::new(span, "", sources),
        }
    }

    fn place(&self) -> String {
        format!("{}:{}", plain(&self.region.file), self.region.line)
    }

    /// `@12`, or `staff@3` in an anchor.
    fn path(&self) -> String {
        format!("{}@{}", self.anchor, self.number)
    }
}

impl State {
    fn new(used: &StateUse) -> Self {
        let info = &used.info;
        let direction = info.direction;
        let forward = |key: &Key| match direction {
            pf_filter::rule::Direction::In => ends(key, [0, 1]),
            pf_filter::rule::Direction::Out => ends(key, [1, 0]),
        };
        Self {
            made: used.made,
            forward: used.forward,
            direction: direction.name(),
            interface: info.interface.as_deref().map(str::to_owned),
            wire: forward(&info.wire),
            stack: (info.wire != info.stack).then(|| forward(&info.stack)),
            peers: [info.peers.0, info.peers.1],
            timeout: info.timeout.name(),
            expires_seconds: info.expires,
        }
    }

    fn text(&self) -> String {
        let verb = if self.made { "Makes" } else { "Meets" };
        let place = match &self.interface {
            Some(name) => format!("on {}", plain(name)),
            None => "on any interface".to_owned(),
        };
        let mut text = format!("{verb} a state: {} {place}, {}", self.direction, self.wire);
        if let Some(stack) = &self.stack {
            let _ = write!(text, ", translated {stack}");
        }
        let [first, second] = self.peers;
        let _ = write!(
            text,
            "\n  {first}:{second}, {} in {} s",
            self.timeout, self.expires_seconds
        );
        if !self.made {
            let way = if self.forward {
                "forward"
            } else {
                "in reverse"
            };
            let _ = write!(text, "; the packet goes {way}");
        }
        text
    }
}

/// `tcp 10.0.0.5:4000 -> 192.0.2.1:22`
fn ends(key: &Key, order: [usize; 2]) -> String {
    let protocol = names::protocol_name(key.protocol);
    let protocol = protocol.map_or_else(|| key.protocol.to_string(), str::to_owned);
    let [from, to] = order.map(|at| end(key.addresses[at], key.ports[at]));
    format!("{protocol} {from} -> {to}")
}

fn end(address: IpAddr, port: u16) -> String {
    match address {
        _ if port == 0 => address.to_string(),
        IpAddr::V4(address) => format!("{address}:{port}"),
        // As pfctl prints it.
        IpAddr::V6(address) => format!("{address}[{port}]"),
    }
}

fn answer(verdict: Verdict) -> Option<String> {
    match verdict {
        Verdict::Block(Answer::Tcp {
            flags, seq, ack, ..
        }) => {
            let name = if flags & 4 != 0 {
                "RST"
            } else {
                "a TCP segment"
            };
            Some(format!("answered with {name} (seq {seq}, ack {ack})"))
        }
        Verdict::Block(Answer::Icmp { kind, code }) => {
            Some(format!("answered with ICMP type {kind} code {code}"))
        }
        Verdict::Block(Answer::None) | Verdict::Pass | Verdict::Wait => None,
    }
}
