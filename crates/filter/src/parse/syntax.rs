//! Statements as they are written: lists are not expanded yet.

use std::rc::Rc;
use std::sync::Arc;

use crate::lex::At;
use crate::rule::{
    Action, Comparison, Direction, DynamicInterface, Family, Flags, FreeBsd, KeepState, Log,
    PoolKind, Rate, RouteKind, RuleKind, Scrub, StateOptions, TableEntry, Tagged,
};
use crate::source::Span;

/// A value and where it is written.
#[derive(Clone, Debug)]
pub(crate) struct Node<T> {
    pub value: T,
    pub at: Rc<At>,
}

impl<T> Node<T> {
    pub(crate) fn new(value: T, at: &At) -> Self {
        Self {
            value,
            at: Rc::new(at.clone()),
        }
    }
}

/// `on …`: one element.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    pub name: Option<Arc<str>>,
    pub rdomain: Option<u32>,
    pub negated: bool,
}

/// An address as it is written, names resolved: several stand for a name with several addresses.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Host {
    pub address: HostAddress,
    pub family: Option<Family>,
    pub negated: bool,
    /// The interface of a link-local address.
    pub scope: Option<Arc<str>>,
    /// The interface of `route-to (em0 192.0.2.1)`.
    pub via: Option<Arc<str>>,
    pub weight: u16,
}

/// An address as it is written. Prefix lengths are not checked against the family yet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum HostAddress {
    Network(std::net::IpAddr, u8),
    Range(std::net::IpAddr, std::net::IpAddr),
    Dynamic(DynamicInterface),
    Unresolved(Arc<str>),
    Table(Arc<str>),
    NoRoute,
    UrpfFailed,
    RouteLabel(Arc<str>),
}

/// A comparison of ports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port {
    pub comparison: Comparison,
    pub low: u16,
    pub high: u16,
}

/// A comparison of users or groups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Id {
    pub comparison: Comparison,
    pub low: u32,
    pub high: u32,
}

/// An ICMP type of one of the two protocols.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IcmpType {
    pub protocol: u8,
    pub kind: u8,
    pub code: Option<u8>,
}

/// `from` or `to`. No hosts are any host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peer {
    pub hosts: Vec<Node<Host>>,
    pub ports: Vec<Node<Port>>,
}

/// Ports of a translation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PortRange {
    pub low: u16,
    pub high: u16,
    pub kind: RangeKind,
}

/// The part after the first port of a translation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum RangeKind {
    /// Nothing.
    #[default]
    One,
    /// `:*`: as many as the rule has.
    Same,
    /// `:last`
    Range,
}

/// `nat-to`, `rdr-to`, `binat-to`, `af-to`, `route-to` and their kin.
#[derive(Clone, Debug)]
pub(crate) struct Redirect {
    pub hosts: Vec<Node<Host>>,
    pub ports: PortRange,
    pub kind: PoolKind,
    pub sticky: bool,
    pub static_port: bool,
    pub binat: bool,
    /// The family that `af-to` names.
    pub family: Option<Family>,
    pub at: Rc<At>,
}

/// `divert-…`
#[derive(Clone, Debug)]
pub(crate) enum Divert {
    To(Vec<Node<Host>>, u16),
    Reply,
    Packet(u16),
}

/// Options of a rule, after its addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub users: Vec<Node<Id>>,
    pub groups: Vec<Node<Id>>,
    /// `Some(None)` is `flags any`.
    pub flags: Option<Node<Option<Flags>>>,
    pub icmp: Option<Vec<Node<IcmpType>>>,
    pub prio: Option<u8>,
    pub tos: Option<u8>,
    /// The word and the options; `None` for the options is `no state`.
    pub keep: Option<Node<(KeepState, Vec<Node<StateOption>>)>>,
    pub fragment: bool,
    pub allow_opts: Option<Rc<At>>,
    pub label: Option<Node<Arc<str>>>,
    pub queue: Option<(Arc<str>, Option<Arc<str>>)>,
    pub tag: Option<Node<Arc<str>>>,
    pub tagged: Option<Node<Tagged>>,
    pub probability: Option<u32>,
    pub rtable: Option<u32>,
    pub divert: Option<Node<Divert>>,
    pub scrub: Option<Scrub>,
    pub scrub_at: Option<Rc<At>>,
    pub nat: Option<Redirect>,
    pub rdr: Option<Redirect>,
    /// `af-to`, with its own place.
    pub af_to: Option<Rc<At>>,
    pub route: Option<(RouteKind, Redirect)>,
    pub received_on: Option<Node<Interface>>,
    pub once: Option<Rc<At>>,
    pub max_packet_rate: Option<Rate>,
    pub set_prio: Option<(u8, u8)>,
    pub set_tos: Option<u8>,
    pub set_delay: Option<u16>,
    pub freebsd: FreeBsd,
}

/// An option of a state.
#[derive(Clone, Debug)]
pub(crate) enum StateOption {
    Max(u32),
    NoSync,
    SourceTrack(Track),
    MaxSourceStates(u32),
    MaxSourceConnections(u32),
    MaxSourceRate(Rate),
    MaxSourceNodes(u32),
    Overload(crate::rule::Overload),
    IfBound(bool),
    Sloppy,
    Pflow,
    Timeout(crate::rule::Timeout, u32),
}

/// `source-track`, and its argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Track {
    Plain,
    Global,
    Rule,
}

/// A rule as it is written.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub kind: RuleKind,
    pub action: Action,
    pub anchor: Option<crate::rule::Anchor>,
    pub is_anchor: bool,
    pub direction: Option<Direction>,
    pub log: Option<Log>,
    pub quick: bool,
    pub interfaces: Vec<Node<Interface>>,
    pub family: Option<Family>,
    pub protocols: Vec<Node<u8>>,
    pub source: Peer,
    pub oses: Vec<Node<Arc<str>>>,
    pub destination: Peer,
    pub options: Options,
    /// State, with defaults filled in.
    pub state: KeepState,
    pub state_options: Option<Box<StateOptions>>,
    pub flags: Option<Flags>,
    pub span: Span,
}

/// Options of a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct TableOptions {
    pub constant: bool,
    pub persist: bool,
    pub counters: bool,
    pub parts: Vec<TablePart>,
}

/// A list or a file of a table.
#[derive(Clone, Debug)]
pub(crate) enum TablePart {
    List(Vec<TableEntry>),
    File(Node<Arc<str>>),
}
