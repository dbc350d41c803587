//! Decisions about packets, and their causes.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::program::RuleId;
use super::state::{Key, StateInfo};
use crate::packet::{Packet, Reason, Refusal};
use crate::rule::{Divert, RouteKind};

/// The decision about a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Pass, block, or wait.
    pub verdict: Verdict,
    /// Why, in detail.
    pub cause: Cause,
    /// The pass or block rule that decided: the last that matched, or the one that made the
    /// state. `None` for the default, and where no rule was asked.
    pub rule: Option<RuleId>,
    /// Each rule that matched, in the order of the walk: match rules, and pass and block rules
    /// that later ones overrode. A rule that an anchor's call reaches twice can be there twice.
    pub matches: Vec<Match>,
    /// The packet as it leaves pf; `None` if it does not.
    pub packet: Option<Packet>,
    /// The datagram that rules saw, if it was put together from fragments.
    pub reassembled: Option<Packet>,
    /// Log entries.
    pub log: Vec<LogEvent>,
    /// The tag that the packet leaves with.
    pub tag: Option<Arc<str>>,
    /// `set queue`
    pub queue: Option<Arc<str>>,
    /// `set prio`, the one of the two that holds for this packet.
    pub prio: Option<u8>,
    /// `set tos`
    pub tos: Option<u8>,
    /// `set delay`, in ms.
    pub delay: Option<u16>,
    /// `rtable`
    pub rtable: Option<u32>,
    /// The state that was made, used, or that refused the packet.
    pub state: Option<StateUse>,
    /// `route-to`, `reply-to` or `dup-to`, with the address that was chosen.
    pub route: Option<(RouteKind, IpAddr)>,
    /// `divert-…`
    pub divert: Option<Divert>,
    /// Addresses that went into the table of `overload`.
    pub overloaded: Vec<IpAddr>,
    /// Unknown facts, and deviations from pf; each once.
    pub notes: Vec<String>,
}

/// Pass, block, or wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It passes.
    Pass,
    /// It is dropped, perhaps with an answer.
    Block(Answer),
    /// It is a fragment that waits for the others.
    Wait,
}

impl Verdict {
    /// Whether it passes.
    pub fn is_pass(self) -> bool {
        self == Self::Pass
    }

    /// Whether it is dropped.
    pub fn is_block(self) -> bool {
        matches!(self, Self::Block(_))
    }
}

/// pf's answer to the source of a packet that it drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing.
    None,
    /// A TCP segment: an RST, a challenge ACK, or the SYN+ACK of `synproxy`.
    Tcp {
        /// Its flags.
        flags: u8,
        /// Its sequence number.
        seq: u32,
        /// Its acknowledgement number.
        ack: u32,
        /// Its TTL; 0 for the default.
        ttl: u8,
    },
    /// An ICMP error about the packet.
    Icmp {
        /// Its type.
        kind: u8,
        /// Its code.
        code: u8,
    },
}

/// A rule that matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// The rule.
    pub rule: RuleId,
    /// It is a pass or block rule, which decides unless a later one does.
    pub decides: bool,
    /// Addresses and ports that later rules see, if this rule translated them.
    pub translated: Option<Box<Translated>>,
}

/// Addresses and ports after a translation. For ICMP queries, the ports are the identifier and
/// the type of the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translated {
    /// Source address.
    pub source: IpAddr,
    /// Source port.
    pub source_port: u16,
    /// Destination address.
    pub destination: IpAddr,
    /// Destination port.
    pub destination_port: u16,
}

/// A packet that was logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEvent {
    /// The rule that is logged; `None` for a packet that was dropped without one.
    pub rule: Option<RuleId>,
    /// Number of the pflog interface.
    pub interface: u8,
    /// Why.
    pub because: LogCause,
}

/// Why a packet was logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogCause {
    /// The rule has `log`.
    Rule,
    /// An earlier rule has `log (matches)`.
    Matches(RuleId),
    /// The rule of its state has `log (all)`.
    All,
    /// pf dropped it for another reason than a rule.
    Forced,
}

/// A state, and how a packet met it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateUse {
    /// The packet made it.
    pub made: bool,
    /// The packet goes in its direction, and not in reverse.
    pub forward: bool,
    /// The state, after the packet.
    pub info: StateInfo,
}

impl StateUse {
    /// Its keys as packets outside and inside have them: those that it matches coming in, and
    /// those that it matches going out.
    pub fn keys(&self) -> [&Key; 2] {
        [&self.info.wire, &self.info.stack]
    }
}

/// Why a packet got its verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// A rule matched last.
    Rule,
    /// No pass or block rule matched.
    NoRule,
    /// It belongs to a state.
    State,
    /// The interface is in `set skip`.
    Skip,
    /// pf made the packet.
    Generated,
    /// It is a fragment that waits for the others.
    Fragment,
    /// pf refuses such packets.
    Refused(Refusal),
    /// Anchors call each other in a circle, or are nested too deep.
    AnchorDepth,
    /// The rule, or the default, does not allow IP options.
    IpOptions,
    /// The state was made without `allow-opts`.
    StateIpOptions,
    /// `max`
    StateLimit,
    /// `max-src-nodes`, or the pool of source nodes is used up.
    SourceNodeLimit,
    /// `max-src-states`
    SourceStateLimit,
    /// `max-src-conn` or `max-src-conn-rate`
    ConnectionLimit,
    /// The pool of states is used up.
    StatePool,
    /// Another state has one of the keys.
    StateCollision,
    /// Sequence numbers are outside the window.
    Window,
    /// A SYN meets an established state.
    SynOnEstablished,
    /// An ICMP query comes from the side that answers, or the reverse.
    IcmpDirection,
    /// An ICMP error is about a segment outside the window.
    IcmpWindow,
    /// The proxy of `synproxy` answers, or does not accept the segment.
    Synproxy,
    /// No address or port is left to translate to.
    Translate,
    /// No address is left to route to.
    NoRoute,
}

impl Cause {
    /// A name that stays, in kebab case.
    pub fn name(self) -> &'static str {
        self.parts().0
    }

    /// The cause, in one sentence without a full stop.
    pub fn sentence(self) -> &'static str {
        self.parts().2
    }

    /// pf's name for it.
    pub fn reason(self) -> Reason {
        self.parts().1
    }

    fn parts(self) -> (&'static str, Reason, &'static str) {
        use Reason as R;
        match self {
            Self::Refused(refusal) => (refusal.name(), refusal.reason(), refusal.sentence()),
            Self::Rule => ("rule", R::Match, "the rule is the last that matched"),
            Self::NoRule => (
                "no-rule",
                R::Match,
                "no pass or block rule matched: pf passes without a state",
            ),
            Self::State => (
                "state",
                R::Match,
                "it belongs to a state, so that no rule was asked",
            ),
            Self::Skip => (
                "skip",
                R::Match,
                "pf does nothing on an interface of `set skip`",
            ),
            Self::Generated => (
                "generated",
                R::Match,
                "pf made the packet itself, so that no rule was asked",
            ),
            Self::Fragment => (
                "fragment",
                R::Match,
                "it is a fragment that waits for the rest of its datagram",
            ),
            Self::AnchorDepth => (
                "anchor-depth",
                R::Match,
                "more than 63 anchors are nested, or they call each other",
            ),
            Self::IpOptions => (
                "ip-options",
                R::IpOption,
                "it has IP options, and the rule that would pass it has no `allow-opts`",
            ),
            Self::StateIpOptions => (
                "state-ip-options",
                R::IpOption,
                "it has IP options, and the rule of its state has no `allow-opts`",
            ),
            Self::StateLimit => (
                "state-limit",
                R::StateLimit,
                "the rule has as many states as `max` allows",
            ),
            Self::SourceNodeLimit => (
                "source-node-limit",
                R::SrcLimit,
                "no more sources are tracked (`max-src-nodes`, or `set limit src-nodes`)",
            ),
            Self::SourceStateLimit => (
                "source-state-limit",
                R::SrcLimit,
                "the source has as many states as `max-src-states` allows",
            ),
            Self::ConnectionLimit => (
                "connection-limit",
                R::SrcLimit,
                "the source exceeds `max-src-conn` or `max-src-conn-rate`",
            ),
            Self::StatePool => (
                "state-pool",
                R::Memory,
                "there are as many states as `set limit states` allows",
            ),
            Self::StateCollision => (
                "state-collision",
                R::StateInsert,
                "another state has the same addresses and ports",
            ),
            Self::Window => (
                "window",
                R::StateMismatch,
                "its sequence numbers are outside the window of its state",
            ),
            Self::SynOnEstablished => (
                "syn-on-established",
                R::StateMismatch,
                "a SYN meets an established state; a challenge ACK answers it",
            ),
            Self::IcmpDirection => (
                "icmp-direction",
                R::StateMismatch,
                "an ICMP query comes from the side that answers, or the reverse",
            ),
            Self::IcmpWindow => (
                "icmp-window",
                R::StateMismatch,
                "an ICMP error is about a segment outside the window of its state",
            ),
            Self::Synproxy => (
                "synproxy",
                R::Synproxy,
                "the TCP proxy answers, or does not accept the segment",
            ),
            Self::Translate => (
                "translate",
                R::Translate,
                "no address or port is left to translate to",
            ),
            Self::NoRoute => ("no-route", R::NoRoute, "no address is left to route to"),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

impl Decision {
    pub(super) fn new(verdict: Verdict, cause: Cause) -> Self {
        Self {
            verdict,
            cause,
            rule: None,
            matches: Vec::new(),
            packet: None,
            reassembled: None,
            log: Vec::new(),
            tag: None,
            queue: None,
            prio: None,
            tos: None,
            delay: None,
            rtable: None,
            state: None,
            route: None,
            divert: None,
            overloaded: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// pf's name for the reason.
    pub fn reason(&self) -> Reason {
        self.cause.reason()
    }

    /// Pass and block rules that matched and were overridden, in order. Without the rule that
    /// decided, the last of these would.
    pub fn overridden(&self) -> impl Iterator<Item = RuleId> {
        let last = self
            .matches
            .iter()
            .rposition(|matched| Some(matched.rule) == self.rule);
        let before = self.matches.get(..last.unwrap_or(0)).unwrap_or(&[]);
        before
            .iter()
            .filter(|matched| matched.decides)
            .map(|matched| matched.rule)
    }
}
