//! Outcomes of packets.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use super::space::{Class, Kind};
use crate::rule::{
    Action, Direction, Divert, Family, KeepState, Log, Pool, Return, Route, Rule, Scrub, Set,
    StateOptions,
};

/// The outcome of a packet that meets no state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Outcome {
    /// Pass or block.
    pub verdict: Verdict,
    /// The state that the packet makes.
    pub state: Option<State>,
    /// How its addresses change; `None` if they stay.
    pub translation: Option<Box<Translation>>,
    /// Further actions on a packet that passes.
    pub actions: Option<Box<Actions>>,
    /// Where it is logged.
    pub log: Logging,
}

/// Pass or block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It passes.
    Pass,
    /// It is blocked, and the sender gets this answer.
    Block(Answer),
    /// It would pass, but has IP options and the rule has no `allow-opts`.
    BlockOptions,
    /// A fragment that waits to be reassembled: rules see the whole packet.
    Reassemble,
}

/// The answer to the sender of a blocked packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Nothing.
    Nothing,
    /// A TCP RST.
    Reset {
        /// Its TTL; 0 for the default.
        ttl: u8,
    },
    /// An ICMP error.
    Icmp {
        /// Its family.
        family: Family,
        /// Its type.
        kind: u8,
        /// Its code.
        code: u8,
    },
}

/// The state that a packet makes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// `keep`, `modulate` or `synproxy`.
    pub kind: KeepState,
    /// Its options; `None` for the defaults.
    pub options: Option<Box<StateOptions>>,
    /// Later packets may have IP options.
    pub allow_options: bool,
    /// All its packets are logged.
    pub log_all: bool,
}

/// How addresses change.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Translation {
    /// The new source.
    pub nat: Option<Box<Pool>>,
    /// The new destination.
    pub rdr: Option<Box<Pool>>,
    /// The new family.
    pub af_to: Option<Family>,
}

/// Further actions on a packet that passes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Actions {
    /// `divert-…`
    pub divert: Option<Divert>,
    /// `route-to` and its kin.
    pub route: Option<Box<Route>>,
    /// `rtable`
    pub rtable: Option<u32>,
    /// `set (…)`
    pub set: Set,
    /// `scrub (…)`
    pub scrub: Scrub,
}

/// Where a packet is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Logging {
    /// Bit *n* for `pflog`*n*, which there are 16 of.
    pub units: u16,
    /// With the socket's owner.
    pub user: bool,
}

/// The part of a rule that [`Outcome`]s are made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Effect {
    action: Action,
    state: KeepState,
    state_options: Option<Box<StateOptions>>,
    allow_options: bool,
    log: Option<Log>,
    actions: Actions,
    translation: Translation,
}

impl Effect {
    /// The effect of a rule.
    pub fn new(rule: &Rule) -> Self {
        Self {
            action: rule.action,
            state: rule.state,
            state_options: rule
                .state_options
                .clone()
                .filter(|options| **options != StateOptions::default()),
            allow_options: rule.allow_options,
            log: rule.log,
            actions: Actions {
                divert: rule.divert.as_deref().copied(),
                route: rule.route.clone(),
                rtable: rule.rtable,
                set: rule.set.as_deref().cloned().unwrap_or_default(),
                scrub: rule.scrub.as_deref().copied().unwrap_or_default(),
            },
            translation: Translation {
                nat: rule.nat.clone(),
                rdr: rule.rdr.clone(),
                af_to: rule.af_to,
            },
        }
    }

    /// The effect of `set skip`: as if there were no pf.
    pub fn skip() -> Self {
        Self {
            allow_options: true,
            ..Self::default_pass()
        }
    }

    /// The effect of the default rule.
    pub fn default_pass() -> Self {
        Self {
            action: Action::Pass,
            state: KeepState::No,
            state_options: None,
            allow_options: false,
            log: None,
            actions: Actions::default(),
            translation: Translation::default(),
        }
    }

    /// Whether a `match` rule with this effect changes nothing.
    pub fn is_empty(&self) -> bool {
        self.log.is_none()
            && self.actions == Actions::default()
            && self.translation == Translation::default()
    }
}

/// The outcome for packets of a class that the rules of these effects match, the deciding one
/// last; `options` for a packet with IP options.
pub(super) fn outcome(
    matches: &[&Effect],
    decision: &Effect,
    class: Class,
    options: bool,
) -> Outcome {
    let all = || matches.iter().copied().chain([decision]);
    let mut log = Logging::default();
    let mut log_all = false;
    for made in all().filter_map(|effect| effect.log) {
        log.units |= 1 << made.to.min(15);
        log.user |= made.user;
        log_all |= made.all;
    }
    let blocked = |verdict| Outcome {
        verdict,
        state: None,
        translation: None,
        actions: None,
        log,
    };
    match decision.action {
        Action::Block(kind) => return blocked(Verdict::Block(answer(kind, class))),
        Action::Pass | Action::Match if options && !decision.allow_options => {
            return blocked(Verdict::BlockOptions);
        }
        Action::Pass | Action::Match => {}
    }
    let stateful = class.makes_state() && decision.state != KeepState::No;
    let mut actions = decision.actions.clone();
    actions.rtable = all().fold(None, |last, effect| effect.actions.rtable.or(last));
    let mut translation = Translation {
        af_to: decision.translation.af_to,
        ..Translation::default()
    };
    if stateful {
        // Only a state translates, and only it carries the settings of `match` rules.
        for effect in all() {
            if effect.translation.nat.is_some() {
                translation.nat.clone_from(&effect.translation.nat);
            }
            if effect.translation.rdr.is_some() {
                translation.rdr.clone_from(&effect.translation.rdr);
            }
        }
        actions.set = Set::default();
        actions.scrub = Scrub::default();
        all().for_each(|effect| merge(&mut actions, &effect.actions));
    }
    let translation =
        Some(translation).filter(|translation| stateful && *translation != Translation::default());
    Outcome {
        verdict: Verdict::Pass,
        state: stateful.then(|| State {
            kind: state_kind(decision.state, class),
            options: decision.state_options.clone(),
            allow_options: decision.allow_options,
            log_all,
        }),
        translation: translation.map(Box::new),
        actions: Some(actions)
            .filter(|actions| *actions != Actions::default())
            .map(Box::new),
        log,
    }
}

/// The kind of state that a packet of a class makes: sequence numbers are changed, and handshakes
/// taken over, only from the first SYN on; these only where it comes in.
fn state_kind(kind: KeepState, class: Class) -> KeepState {
    let first = class.kind == Kind::TcpSyn;
    let taken = kind == KeepState::Synproxy && class.direction == Some(Direction::Out);
    if first && !taken {
        kind
    } else {
        KeepState::Keep
    }
}

/// Adds a rule's settings to those of the rules before (`pf_rule_to_actions`).
fn merge(actions: &mut Actions, added: &Actions) {
    let (set, scrub) = (&mut actions.set, &mut actions.scrub);
    set.prio = added.set.prio.or(set.prio);
    if added.set.queue.is_some() {
        set.queue.clone_from(&added.set.queue);
    }
    set.tos = added.set.tos.or(set.tos);
    set.delay = added.set.delay.or(set.delay);
    scrub.no_df |= added.scrub.no_df;
    scrub.random_id |= added.scrub.random_id;
    scrub.reassemble_tcp |= added.scrub.reassemble_tcp;
    if added.scrub.min_ttl != 0 {
        scrub.min_ttl = added.scrub.min_ttl;
    }
    if added.scrub.max_mss != 0 {
        scrub.max_mss = added.scrub.max_mss;
    }
}

/// The answer to a blocked packet (`pf_test_rule`).
fn answer(kind: Return, class: Class) -> Answer {
    if class.kind == Kind::Fragment {
        return Answer::Nothing;
    }
    let resets = class.is_tcp() && class.kind != Kind::TcpReset;
    let icmp = match kind {
        Return::Rst { ttl } if resets => return Answer::Reset { ttl },
        Return::Drop | Return::Rst { .. } => return Answer::Nothing,
        Return::Return { .. } if resets => return Answer::Reset { ttl: 0 },
        Return::Return { icmp } | Return::Icmp { icmp } => icmp,
    };
    if class.icmp().is_some_and(|kind| !kind.answered) {
        return Answer::Nothing;
    }
    let (kind, code) = match class.family {
        Family::Inet => icmp.v4,
        Family::Inet6 => icmp.v6,
    };
    Answer::Icmp {
        family: class.family,
        kind,
        code,
    }
}

impl Outcome {
    /// The outcome of a fragment that waits for the rest of its packet.
    pub(super) const REASSEMBLE: Self = Self {
        verdict: Verdict::Reassemble,
        state: None,
        translation: None,
        actions: None,
        log: Logging {
            units: 0,
            user: false,
        },
    };

    /// Whether the packet passes.
    pub fn passes(&self) -> bool {
        self.verdict == Verdict::Pass
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Nothing => f.write_str("drop"),
            Self::Reset { ttl: 0 } => f.write_str("return-rst"),
            Self::Reset { ttl } => write!(f, "return-rst (ttl {ttl})"),
            Self::Icmp { family, kind, code } => {
                f.write_str(if family == Family::Inet {
                    "return-icmp ("
                } else {
                    "return-icmp6 ("
                })?;
                match crate::names::icmp_code_name(kind, code, family) {
                    Some(name) => write!(f, "{name})"),
                    None => write!(f, "{kind}, {code})"),
                }
            }
        }
    }
}

impl fmt::Display for Outcome {
    /// In the words of pf.conf, as far as it has them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.verdict {
            Verdict::Block(answer) => write!(f, "block {answer}")?,
            Verdict::BlockOptions => f.write_str("block (IP options)")?,
            Verdict::Reassemble => f.write_str("reassemble")?,
            Verdict::Pass => {
                f.write_str("pass")?;
                self.write_state(f)?;
            }
        }
        for unit in (0..16).filter(|unit| self.log.units & (1 << unit) != 0) {
            write!(f, " log")?;
            if unit != 0 {
                write!(f, " (to pflog{unit})")?;
            }
        }
        if self.log.user {
            f.write_str(" (user)")?;
        }
        if let Some(translation) = &self.translation {
            write!(f, "{}", Words(translation.as_ref()))?;
        }
        if let Some(actions) = &self.actions {
            write!(f, "{}", Words(actions.as_ref()))?;
        }
        Ok(())
    }
}

impl Outcome {
    fn write_state(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(state) = &self.state else {
            return f.write_str(" no state");
        };
        f.write_str(match state.kind {
            KeepState::No | KeepState::Keep => " keep state",
            KeepState::Modulate => " modulate state",
            KeepState::Synproxy => " synproxy state",
        })?;
        if let Some(options) = &state.options {
            write!(f, " ({})", state_words(options).join(", "))?;
        }
        if state.log_all {
            f.write_str(" log (all)")?;
        }
        if state.allow_options {
            f.write_str(" allow-opts")?;
        }
        Ok(())
    }
}

/// Options of a state in pf's words.
fn state_words(options: &StateOptions) -> Vec<String> {
    let mut words = Vec::new();
    let mut number = |name: &str, value: u32| {
        if value != 0 {
            words.push(format!("{name} {value}"));
        }
    };
    number("max", options.max);
    number("max-src-nodes", options.max_source_nodes);
    number("max-src-states", options.max_source_states);
    number("max-src-conn", options.max_source_connections);
    if let Some(rate) = options.max_source_rate {
        words.push(format!("max-src-conn-rate {}/{}", rate.limit, rate.seconds));
    }
    if let Some(track) = options.source_track {
        words.push(format!("source-track {track:?}").to_lowercase());
    }
    if let Some(overload) = &options.overload {
        words.push(format!("overload <{}>", overload.table));
    }
    let mut flag = |name: &str, set: bool| {
        if set {
            words.push(name.to_owned());
        }
    };
    flag("no-sync", options.no_sync);
    flag("if-bound", options.if_bound);
    flag("sloppy", options.sloppy);
    flag("pflow", options.pflow);
    words.extend(
        options
            .timeouts
            .iter()
            .map(|(timeout, value)| format!("{} {value}", timeout.name())),
    );
    words
}

/// Parts of an outcome as words, each with a space before it.
struct Words<'a, T>(&'a T);

impl fmt::Display for Words<'_, Translation> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(family) = self.0.af_to {
            write!(f, " af-to {}", family.name())?;
        }
        if let Some(pool) = &self.0.nat {
            write!(f, " nat-to {}", pool_words(pool))?;
        }
        if let Some(pool) = &self.0.rdr {
            write!(f, " rdr-to {}", pool_words(pool))?;
        }
        Ok(())
    }
}

impl fmt::Display for Words<'_, Actions> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let actions = self.0;
        match actions.divert {
            Some(Divert::To { address, port }) => write!(f, " divert-to {address} port {port}")?,
            Some(Divert::Reply) => f.write_str(" divert-reply")?,
            Some(Divert::Packet { port }) => write!(f, " divert-packet port {port}")?,
            None => {}
        }
        if let Some(route) = &actions.route {
            let name = match route.kind {
                crate::rule::RouteKind::RouteTo => "route-to",
                crate::rule::RouteKind::ReplyTo => "reply-to",
                crate::rule::RouteKind::DupTo => "dup-to",
            };
            write!(f, " {name} {}", pool_words(&route.pool))?;
        }
        if let Some(rtable) = actions.rtable {
            write!(f, " rtable {rtable}")?;
        }
        let set = set_words(&actions.set);
        if !set.is_empty() {
            write!(f, " set ({})", set.join(", "))?;
        }
        let scrub = scrub_words(actions.scrub);
        if !scrub.is_empty() {
            write!(f, " scrub ({})", scrub.join(" "))?;
        }
        Ok(())
    }
}

fn set_words(set: &Set) -> Vec<String> {
    let mut words = Vec::new();
    if let Some((first, second)) = set.prio {
        words.push(if first == second {
            format!("prio {first}")
        } else {
            format!("prio ({first}, {second})")
        });
    }
    if let Some((first, second)) = &set.queue {
        let second = second
            .as_ref()
            .map(|name: &Arc<str>| format!(", {name}"))
            .unwrap_or_default();
        words.push(format!("queue ({first}{second})"));
    }
    words.extend(set.tos.map(|tos| format!("tos {tos:#04x}")));
    words.extend(set.delay.map(|delay| format!("delay {delay}")));
    words
}

fn scrub_words(scrub: Scrub) -> Vec<String> {
    let mut words = Vec::new();
    let flags = [
        ("no-df", scrub.no_df),
        ("random-id", scrub.random_id),
        ("reassemble tcp", scrub.reassemble_tcp),
    ];
    words.extend(
        flags
            .into_iter()
            .filter(|flag| flag.1)
            .map(|flag| flag.0.to_owned()),
    );
    if scrub.min_ttl != 0 {
        words.push(format!("min-ttl {}", scrub.min_ttl));
    }
    if scrub.max_mss != 0 {
        words.push(format!("max-mss {}", scrub.max_mss));
    }
    words
}

/// A pool in pf's words.
pub(super) fn pool_words(pool: &Pool) -> String {
    let mut words = super::sentence::address_words(&pool.address);
    match pool.ports {
        (0, 0) | (50_001, 65_535) => {}
        (first, second) if second == 0 || first == second => {
            let _ = write!(words, " port {first}");
        }
        (first, second) => {
            let _ = write!(words, " port {first}:{second}");
        }
    }
    let kind = format!("{:?}", pool.kind).to_lowercase();
    if pool.kind != crate::rule::PoolKind::None {
        words.push(' ');
        words.push_str(&kind);
    }
    words
}
