//! The way of a packet through pf: `pf_test` and `pf_test_rule` of `sys/net/pf.c`.

use std::sync::Arc;

use super::actions::Actions;
use super::decision::{Answer, Cause, Decision, LogCause, LogEvent, StateUse, Verdict};
use super::descriptor::Descriptor;
use super::engine::Engine;
use super::fragment::Reassembly;
use super::freebsd::Normalization;
use super::interface;
use super::match_rule::Status;
use super::program::{Program, RuleId};
use super::step::Step;
use super::tcp;
use super::walk::Walk;
use crate::names::TCP;
use crate::packet::flags::{ACK, FIN, RST, SYN};
use crate::packet::{Content, Packet, Refusal};
use crate::rule::{
    Action, Direction, Divert, Family, IcmpError, KeepState, Return, RouteKind, Rule, RuleKind,
};

/// The note on `scrub (reassemble tcp)`, which is not followed.
const NO_TIMESTAMPS: &str = "scrub (reassemble tcp): timestamps and their checks are not followed";

/// The fate of a packet that met a state.
pub(super) enum StateTest {
    /// It has none: the rules decide.
    NoState,
    /// It passes by this state.
    Pass(u64),
    /// It is dropped; the state is that which it met.
    Drop {
        state: Option<StateUse>,
        rule: Option<RuleId>,
        cause: Cause,
        answer: Answer,
    },
}

impl Engine<'_> {
    /// Judges a packet, and keeps its changes of states, sources, counters, fragments.
    pub fn run(&mut self, packet: &Packet) -> Decision {
        self.judge(packet, false).0
    }

    /// Judges an IP packet in bytes.
    pub fn run_bytes(&mut self, bytes: &[u8], direction: Direction, interface: &str) -> Decision {
        if self.skips(interface) {
            return Decision::new(Verdict::Pass, Cause::Skip);
        }
        match Packet::decode(bytes, direction, interface) {
            Ok(packet) => self.run(&packet),
            Err(refusal) => refused(refusal),
        }
    }

    /// Judges a packet; with the steps of the walk, if asked.
    pub(super) fn judge(&mut self, packet: &Packet, explain: bool) -> (Decision, Vec<Step>) {
        let passes = |cause| {
            let mut decision = Decision::new(Verdict::Pass, cause);
            decision.packet = Some(packet.clone());
            decision.tag.clone_from(&packet.tag);
            (decision, Vec::new())
        };
        if self.skips(&packet.interface) {
            return passes(Cause::Skip);
        }
        if packet.generated {
            return passes(Cause::Generated);
        }
        if let Some(refusal) = packet.refusal() {
            return (refused(refusal), Vec::new());
        }
        let how = self.normalization(packet);
        match self.normalize(packet, &how) {
            Ok(Some(whole)) => {
                let reassembled = packet.fragment().is_some() && whole.fragment().is_none();
                let copy = reassembled.then(|| whole.clone());
                let (mut decision, steps) = self.judge_whole(whole, how.tcp, explain);
                if how.actions.is_some_and(|actions| actions.reassemble_tcp) {
                    decision.notes.push(NO_TIMESTAMPS.into());
                }
                decision.overloaded = std::mem::take(&mut self.overloaded);
                decision.reassembled = copy;
                (decision, steps)
            }
            Ok(None) => (Decision::new(Verdict::Wait, Cause::Fragment), Vec::new()),
            Err(refusal) => (refused(refusal), Vec::new()),
        }
    }

    fn skips(&self, interface: &str) -> bool {
        let skip = &self.options().skip;
        skip.iter()
            .any(|name| interface::matches(name, interface, self.program.host) == Some(true))
    }

    /// Handles fragments (`pf_normalize_ip`). `None` if the packet waits.
    fn normalize(
        &mut self,
        packet: &Packet,
        how: &Normalization,
    ) -> Result<Option<Packet>, Refusal> {
        let whole = self.defragment(packet, how)?;
        Ok(whole.map(|mut packet| {
            if let Some(actions) = &how.actions {
                let random = &mut self.random;
                actions.scrub(&mut packet, || random.number() as u16);
            }
            packet
        }))
    }

    fn defragment(
        &mut self,
        packet: &Packet,
        how: &Normalization,
    ) -> Result<Option<Packet>, Refusal> {
        let Some(fragment) = packet.fragment() else {
            return Ok(Some(packet.clone()));
        };
        let &Normalization {
            reassemble, no_df, ..
        } = how;
        let mut packet = packet.clone();
        if packet.family() == Family::Inet {
            packet.dont_fragment &= !no_df;
            if packet.dont_fragment {
                return Err(Refusal::FragmentWithDf);
            }
        }
        if !reassemble {
            return Ok(Some(packet));
        }
        let (now, limit) = (self.now(), self.options().limit_fragments as usize);
        match self.fragments.take(&packet, fragment, now, limit)? {
            Reassembly::Wait => Ok(None),
            Reassembly::Whole(whole) => Ok(Some(*whole)),
        }
    }

    fn judge_whole(
        &mut self,
        packet: Packet,
        normal_tcp: bool,
        explain: bool,
    ) -> (Decision, Vec<Step>) {
        let program = Arc::clone(&self.program);
        let mut packet = Descriptor::new(packet);
        if normal_tcp
            && let Content::Tcp(segment) = &mut packet.packet.content
            && let Err(refusal) = tcp::normalize(segment)
        {
            return (refused(refusal), Vec::new());
        }
        let test = match &packet.packet.content {
            Content::Fragment(_) => StateTest::NoState,
            Content::Icmp(_) => self.test_icmp_state(&program, &mut packet),
            Content::Tcp(_) | Content::Udp(_) | Content::Other(_) => {
                self.test_state(&program, &mut packet)
            }
        };
        match test {
            StateTest::NoState => self.judge_by_rules(&program, packet, explain),
            StateTest::Pass(id) => (self.pass_by_state(&program, packet, id), Vec::new()),
            StateTest::Drop {
                state,
                rule,
                cause,
                answer,
            } => {
                let mut decision = Decision::new(Verdict::Block(answer), cause);
                (decision.state, decision.rule) = (state, rule);
                (decision, Vec::new())
            }
        }
    }

    /// How a state is met.
    pub(super) fn state_use(&self, id: u64, packet: &Descriptor, made: bool) -> Option<StateUse> {
        let state = self.states.get(id)?;
        Some(StateUse {
            made,
            forward: packet.direction() == state.direction,
            info: self.info(state),
        })
    }

    /// The packet belongs to a state, which has let it through.
    fn pass_by_state(&mut self, program: &Program<'_>, packet: Descriptor, id: u64) -> Decision {
        let state_use = self.state_use(id, &packet, false);
        let Some(state) = self.states.get(id) else {
            return Decision::new(Verdict::Pass, Cause::State);
        };
        let (rule, allows, actions) = (state.rule, state.allow_options, state.actions.clone());
        let forward = packet.direction() == state.direction;
        let (tag, match_rules) = (state.tag.clone(), state.match_rules.clone());
        let route = state.route.filter(|(kind, _)| {
            *kind == RouteKind::DupTo || (*kind == RouteKind::RouteTo) == forward
        });
        let mut decision = Decision::new(Verdict::Pass, Cause::State);
        decision.rule = Some(rule);
        decision.state = state_use;
        if actions.log_all {
            log_all(program, rule, &match_rules, &mut decision);
        }
        if packet.lacks_permission(allows) {
            decision.verdict = Verdict::Block(Answer::None);
            decision.cause = Cause::StateIpOptions;
            decision.log.push(LogEvent {
                rule: Some(rule),
                interface: 0,
                because: LogCause::Forced,
            });
            return decision;
        }
        decision.route = route;
        decision.rtable = actions.rtable.filter(|_| forward);
        decision.divert = divert(program.entry(rule).rule, packet.direction());
        self.finish(packet, &actions, tag, &mut decision);
        decision
    }

    /// Sets the fields of the packet that leaves.
    fn finish(
        &mut self,
        packet: Descriptor,
        actions: &Actions,
        tag: Option<Arc<str>>,
        decision: &mut Decision,
    ) {
        let urgent = packet.is_urgent();
        let mut out = packet.packet;
        decision.queue = if urgent {
            actions.urgent_queue.clone()
        } else {
            actions.queue.clone()
        };
        decision.prio = actions
            .prio
            .map(|(usual, of_urgent)| if urgent { of_urgent } else { usual });
        decision.tos = actions.tos;
        decision.delay = actions.delay;
        out.prio = decision.prio.unwrap_or(out.prio);
        let random = &mut self.random;
        actions.scrub(&mut out, || random.number() as u16);
        if actions.reassemble_tcp {
            decision.notes.push(NO_TIMESTAMPS.into());
        }
        out.tag = tag.or(out.tag);
        decision.tag.clone_from(&out.tag);
        decision.packet = Some(out);
    }

    fn judge_by_rules(
        &mut self,
        program: &Program<'_>,
        mut packet: Descriptor,
        explain: bool,
    ) -> (Decision, Vec<Step>) {
        packet.set_icmp_ports();
        let interface = self.interface(&packet.packet.interface);
        let mut walk = Walk::new(packet, explain);
        let translation = self.translate_by_list(program, &interface, &mut walk);
        let passes = translation.filter(|&id| passes_by_translation(program, id));
        let status = match passes {
            Some(_) => Status::Ok,
            None => self.walk(program, &interface, 0, None, 0, &mut walk),
        };
        let steps = walk.steps.take().unwrap_or_default();
        let mut decision = if status == Status::Fail {
            let cause = walk.failure.unwrap_or(Cause::AnchorDepth);
            Decision::new(Verdict::Block(Answer::None), cause)
        } else if let Some(id) = passes {
            self.pass_by_rule(program, id, &mut walk)
        } else {
            self.decide(program, &mut walk, translation)
        };
        decision.matches = walk.matches;
        let mut log = walk.log;
        log.append(&mut decision.log);
        decision.log = log;
        let mut notes = walk.notes;
        notes.append(&mut decision.notes);
        decision.notes = notes;
        (decision, steps)
    }

    /// The walk is over: the winner's verdict.
    fn decide(
        &mut self,
        program: &Program<'_>,
        walk: &mut Walk,
        translation: Option<RuleId>,
    ) -> Decision {
        let Some(id) = walk.winner else {
            let Some(translation) = translation else {
                return self.pass_by_default(walk);
            };
            // A translation keeps a state, whatever lets the packet pass.
            let mut decision = self.pass_by_rule(program, translation, walk);
            if decision.cause == Cause::Rule {
                (decision.cause, decision.rule) = (Cause::NoRule, None);
            }
            return decision;
        };
        let rule = program.entry(id).rule;
        walk.actions.add(rule);
        match self.translate(program, id, walk) {
            Ok(translated) => {
                if let Some(last) = walk
                    .matches
                    .iter_mut()
                    .rev()
                    .find(|matched| matched.rule == id)
                {
                    last.translated = translated.map(Box::new);
                }
            }
            Err(_) => return decided(id, Verdict::Block(Answer::None), Cause::Translate),
        }
        walk.log_rule(program, id);
        walk.log_matches(program, id);
        match rule.action {
            Action::Block(how) => {
                decided(id, Verdict::Block(answer(how, &walk.packet)), Cause::Rule)
            }
            Action::Pass | Action::Match => self.pass_by_rule(program, id, walk),
        }
    }

    /// No rule matched: pass, without a state.
    fn pass_by_default(&mut self, walk: &mut Walk) -> Decision {
        if walk.packet.lacks_permission(false) {
            return dropped_options(None);
        }
        let mut decision = Decision::new(Verdict::Pass, Cause::NoRule);
        decision.rtable = walk.actions.rtable;
        self.finish(
            walk.packet.clone(),
            &Actions::default(),
            walk.tag.clone(),
            &mut decision,
        );
        decision
    }

    fn pass_by_rule(&mut self, program: &Program<'_>, id: RuleId, walk: &mut Walk) -> Decision {
        let rule = program.entry(id).rule;
        if walk.packet.lacks_permission(rule.allow_options) {
            return dropped_options(Some(id));
        }
        let mut decision = decided(id, Verdict::Pass, Cause::Rule);
        decision.rtable = walk.actions.rtable;
        decision.divert = divert(rule, walk.packet.direction());
        let error = walk.packet.icmp.is_some_and(|mapping| mapping.is_error);
        let translated = walk
            .nat_rule
            .is_some_and(|id| program.entry(id).rule.kind != RuleKind::Filter);
        let keeps =
            (rule.state != KeepState::No || translated) && !walk.packet.is_fragment && !error;
        if !keeps {
            // Without a state, only the rule's own `set` and `scrub` hold, not those of match rules.
            let mut actions = Actions::default();
            actions.add(rule);
            self.finish(
                walk.packet.clone(),
                &actions,
                walk.tag.clone(),
                &mut decision,
            );
            return decision;
        }
        match self.create_state(program, id, walk) {
            Ok(made) => {
                decision.state = self.state_use(made, &walk.packet, true);
                decision.route = self.states.get(made).and_then(|state| state.route);
                decision.route = decision
                    .route
                    .filter(|(kind, _)| *kind != RouteKind::ReplyTo);
                let (packet, actions) = (walk.packet.clone(), walk.actions.clone());
                self.finish(packet, &actions, walk.tag.clone(), &mut decision);
                if let Some(answer) = self.proxy_answer(made, &walk.packet) {
                    decision.verdict = Verdict::Block(answer);
                    decision.cause = Cause::Synproxy;
                    decision.packet = None;
                }
                decision
            }
            Err(cause) => {
                let mut decision = self.at_limit(id, cause, walk);
                let answers = rule
                    .freebsd
                    .as_deref()
                    .is_some_and(|freebsd| freebsd.fail_return);
                if answers && !decision.verdict.is_pass() {
                    let icmp = IcmpError::DEFAULT;
                    decision.verdict =
                        Verdict::Block(answer(Return::Return { icmp }, &walk.packet));
                }
                decision
            }
        }
    }

    /// A state could not be made: the packet is dropped.
    fn at_limit(&mut self, id: RuleId, cause: Cause, walk: &mut Walk) -> Decision {
        let now = self.now();
        // The limits before it leave the nodes to the next sweep.
        if matches!(
            cause,
            Cause::StatePool | Cause::StateCollision | Cause::NoRoute
        ) {
            for key in std::mem::take(&mut walk.nodes) {
                self.nodes.remove_idle(&key, now);
            }
        }
        decided(id, Verdict::Block(Answer::None), cause)
    }
}

/// `nat pass` and its kin.
fn passes_by_translation(program: &Program<'_>, id: RuleId) -> bool {
    let freebsd = program.entry(id).rule.freebsd.as_deref();
    freebsd.is_some_and(|freebsd| freebsd.pass)
}

/// `log (all)`
fn log_all(program: &Program<'_>, rule: RuleId, match_rules: &[RuleId], decision: &mut Decision) {
    for &id in std::iter::once(&rule).chain(match_rules.iter().rev()) {
        if let Some(log) = program.entry(id).rule.log.filter(|log| log.all) {
            decision.log.push(LogEvent {
                rule: Some(id),
                interface: log.to,
                because: LogCause::All,
            });
        }
    }
}

fn refused(refusal: Refusal) -> Decision {
    let mut decision = Decision::new(Verdict::Block(Answer::None), Cause::Refused(refusal));
    decision.log.push(LogEvent {
        rule: None,
        interface: 0,
        because: LogCause::Forced,
    });
    decision
}

fn decided(id: RuleId, verdict: Verdict, cause: Cause) -> Decision {
    let mut decision = Decision::new(verdict, cause);
    decision.rule = Some(id);
    decision
}

fn dropped_options(id: Option<RuleId>) -> Decision {
    let mut decision = Decision::new(Verdict::Block(Answer::None), Cause::IpOptions);
    decision.rule = id;
    decision.log.push(LogEvent {
        rule: id,
        interface: 0,
        because: LogCause::Forced,
    });
    decision
}

/// Sockets are only for packets that come in; divert-packet takes both.
fn divert(rule: &Rule, direction: Direction) -> Option<Divert> {
    let divert = rule.divert.as_deref()?;
    let fits = direction == Direction::In || matches!(divert, Divert::Packet { .. });
    fits.then_some(*divert)
}

/// The answer of a block rule.
fn answer(how: Return, packet: &Descriptor) -> Answer {
    if packet.is_fragment {
        return Answer::None;
    }
    let (rst, icmp) = match how {
        Return::Drop => return Answer::None,
        Return::Return { icmp } => (Some(0), Some(icmp)),
        Return::Rst { ttl } => (Some(ttl), None),
        Return::Icmp { icmp } => (None, Some(icmp)),
    };
    if let (Some(ttl), Some(segment), TCP) = (rst, packet.tcp(), packet.packet.protocol)
        && segment.flags & RST == 0
    {
        if !packet.packet.checksum_ok {
            return Answer::None;
        }
        let mut ack = segment.seq.wrapping_add(u32::from(segment.length));
        for flag in [SYN, FIN] {
            ack = ack.wrapping_add(u32::from(segment.flags & flag != 0));
        }
        return Answer::Tcp {
            flags: RST | ACK,
            seq: segment.ack,
            ack,
            ttl,
        };
    }
    icmp.map_or(Answer::None, |icmp| icmp_answer(icmp, packet))
}

/// An ICMP error about the packet, unless that is one itself.
fn icmp_answer(icmp: IcmpError, packet: &Descriptor) -> Answer {
    let (kind, code) = match packet.family {
        Family::Inet => icmp.v4,
        Family::Inet6 => icmp.v6,
    };
    let asks = packet
        .packet
        .icmp()
        .is_none_or(|message| match packet.family {
            Family::Inet => matches!(message.kind, 0 | 8..=10 | 13..=18),
            Family::Inet6 => message.kind >= 128 && message.kind != 137,
        });
    // The stack answers no multicast, whatever pf asks for.
    if asks && !packet.packet.destination.is_multicast() {
        Answer::Icmp { kind, code }
    } else {
        Answer::None
    }
}
