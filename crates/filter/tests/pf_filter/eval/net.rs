//! Rule sets and packets in a few words.

use std::time::Duration;

use pf_filter::diagnostic::Severity;
use pf_filter::eval::{Answer, Cause, Decision, Engine, RuleId, Verdict};
use pf_filter::host::Host;
use pf_filter::packet::Packet;
use pf_filter::parse::Dialect;
use pf_filter::rule::Ruleset;
use pf_filter::source::Memory;

use crate::support;

/// The host of most tests.
pub const HOST: &str = r#"
[[interfaces]]
name = "em0"
groups = ["egress"]
addresses = ["192.0.2.1/24", "2001:db8::1/64"]

[[interfaces]]
name = "em1"
addresses = ["10.0.0.1/24"]
"#;

/// A rule set and an engine that lives as long as the test.
pub struct Net {
    pub engine: Engine<'static>,
    pub host: &'static Host,
    pub ruleset: &'static Ruleset,
}

/// A rule set and its host.
pub fn load(conf: &str, host: &str, mut files: Memory) -> (&'static Ruleset, &'static Host) {
    let host: &'static Host = Box::leak(Box::new(Host::parse(host).expect("a host model")));
    let parsed = support::read(conf, Dialect::OpenBsd, host, &mut files);
    let errors: Vec<_> = parsed
        .diagnostics
        .iter()
        .filter(|found| found.severity == Severity::Error)
        .collect();
    assert!(errors.is_empty(), "{conf}: {errors:?}");
    (Box::leak(Box::new(parsed.ruleset)), host)
}

/// A packet in short: `in tcp 10.0.0.5:4000 > 192.0.2.1:22 flags S`, or `in@em1 …`.
pub fn packet(text: &str, host: &Host) -> Packet {
    let mut words = text.split_whitespace();
    let mut next = || words.next().unwrap_or_else(|| panic!("{text}: too short"));
    let way = next();
    let (direction, interface) = way.split_once('@').unwrap_or((way, "em0"));
    let (protocol, from, arrow, to) = (next(), next(), next(), next());
    assert_eq!(arrow, ">", "{text}");
    let rest: Vec<_> = words.collect();
    let long = format!(
        "{direction} on {interface} proto {protocol} from {from} to {to} {}",
        rest.join(" ")
    );
    Packet::parse(&long, host).unwrap_or_else(|error| panic!("{long}: {error}"))
}

/// A rule set that refers to files.
pub fn load_with(conf: &str, host: &str, files: Memory) -> Net {
    let (ruleset, host) = load(conf, host, files);
    Net {
        engine: Engine::new(ruleset, host),
        host,
        ruleset,
    }
}

impl Net {
    pub fn new(conf: &str) -> Self {
        Self::with_host(conf, HOST)
    }

    pub fn with_host(conf: &str, host: &str) -> Self {
        load_with(conf, host, Memory::default())
    }

    pub fn packet(&self, text: &str) -> Packet {
        packet(text, self.host)
    }

    pub fn run(&mut self, text: &str) -> Decision {
        let packet = self.packet(text);
        self.engine.run(&packet)
    }

    /// Runs a packet and sums its verdict up.
    pub fn verdict(&mut self, text: &str) -> String {
        let decision = self.run(text);
        self.sum_up(&decision)
    }

    /// Asserts the summary of a packet.
    #[track_caller]
    pub fn expect(&mut self, text: &str, summary: &str) -> Decision {
        let decision = self.run(text);
        assert_eq!(self.sum_up(&decision), summary, "{text}\n{decision:#?}");
        decision
    }

    pub fn wait(&mut self, seconds: u64) {
        self.engine.advance(Duration::from_secs(seconds));
    }

    /// Line of a rule in the configuration.
    pub fn line(&self, id: RuleId) -> u32 {
        self.ruleset
            .sources
            .line(self.engine.rule(id).rule.origin.span)
    }

    /// Verdict, the line of the rule or the cause, and the answer.
    pub fn sum_up(&self, decision: &Decision) -> String {
        let (verdict, answer) = match decision.verdict {
            Verdict::Pass => ("pass", Answer::None),
            Verdict::Wait => ("wait", Answer::None),
            Verdict::Block(answer) => ("block", answer),
        };
        let cause = match (decision.cause, decision.rule) {
            (Cause::Rule, Some(rule)) => format!("@{}", self.line(rule)),
            (cause, _) => cause.name().to_owned(),
        };
        let answer = match answer {
            Answer::None => String::new(),
            Answer::Tcp { flags, .. } => format!(" tcp {flags:#04x}"),
            Answer::Icmp { kind, code } => format!(" icmp {kind} {code}"),
        };
        format!("{verdict} {cause}{answer}")
    }
}
