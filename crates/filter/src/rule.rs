//! Rules as pf evaluates them: each list is expanded, each name resolved, each default filled in.
//!
//! Field by field this is `struct pf_rule` of `sys/net/pfvar.h`, with types that rule out refused
//! combinations.

use std::net::IpAddr;
use std::sync::Arc;

use crate::source::{Sources, Span};

/// Which system's language is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Dialect {
    /// OpenBSD 7.8.
    #[default]
    OpenBsd,
    /// FreeBSD, with `nat`, `rdr`, `binat` and `scrub` rules.
    FreeBsd,
}

/// A rule set: the meaning of a configuration file.
///
/// OpenBSD has one list of rules. FreeBSD has five, each walked for itself, in this order:
///
/// 1. [`scrubs`](Self::scrubs): the first rule that matches normalises the packet, and
///    `no scrub` leaves it alone, as no match does. Without any scrub rule, packets are
///    normalised as in OpenBSD, and reassembled under `set reassemble yes`.
/// 2. [`translations`](Self::translations), for packets that no state knows. Those that come in
///    look at the rules of kind `rdr`, then at `binat`; those that leave at `binat`, then at
///    `nat`. Of each kind the first rule that matches decides: `no …` goes on to the next kind,
///    another translates and ends the search. Fragments are not translated.
/// 3. [`rules`](Self::rules), which see the translated addresses, as in OpenBSD. A packet that a
///    rule with [`FreeBsd::pass`] translated passes without them. Whatever lets a translated
///    packet pass keeps a state, even with `no state` and without any rule.
///
/// A call of an anchor in a list walks the same list of the anchor's rule set. Its rules decide
/// like those around it: the first that matches ends the walk.
#[derive(Debug, Default)]
pub struct Ruleset {
    /// The language that it was read in.
    pub dialect: Dialect,
    /// The files it was read from, which every [`Span`] refers to.
    pub sources: Sources,
    /// Macros, options and tables in the order of the file, for printing.
    pub preamble: Vec<Preamble>,
    /// Effective options.
    pub options: Options,
    /// Queues, parents before children, in the order in which pfctl loads them.
    pub queues: Vec<Queue>,
    /// Tables of the main rule set and of inline anchors, hidden ones of redirection lists
    /// included, in the order of the file.
    pub tables: Vec<Table>,
    /// Rules of the main rule set, inline anchors with their rules inside.
    pub rules: Vec<Rule>,
    /// `scrub` and `no scrub` of FreeBSD, in the order of the file.
    pub scrubs: Vec<Rule>,
    /// `nat`, `rdr`, `binat`, `no …` and `…-anchor` of FreeBSD: all of one kind, then the next
    /// kind, each in the order of the file. Their kind is [`Rule::kind`].
    pub translations: Vec<Rule>,
    /// Rule sets of `load anchor`.
    pub loaded: Vec<LoadedAnchor>,
}

/// A line that pfctl prints before the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Preamble {
    /// A macro's definition.
    Macro {
        /// Its name.
        name: Arc<str>,
        /// Its value.
        value: Arc<str>,
    },
    /// An option, as pfctl prints it: `set skip on { lo0 }`.
    Option(String),
    /// A table: its index in [`Ruleset::tables`].
    Table(usize),
}

/// A rule set that `load anchor NAME from FILE` names.
#[derive(Debug)]
pub struct LoadedAnchor {
    /// Its path from the main rule set, without a leading slash.
    pub path: Arc<str>,
    /// Its rules.
    pub rules: Vec<Rule>,
    /// As [`Ruleset::scrubs`].
    pub scrubs: Vec<Rule>,
    /// As [`Ruleset::translations`].
    pub translations: Vec<Rule>,
    /// Its macros and tables, for printing.
    pub preamble: Vec<Preamble>,
    /// The `load anchor` statement.
    pub span: Span,
}

/// Effective options (`set …`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Interfaces, and groups of them, on which pf does nothing (`set skip on`).
    pub skip: Vec<Arc<str>>,
    /// Fragments are reassembled before rules see them (`set reassemble`); the default.
    pub reassemble: bool,
    /// Fragments with the don't-fragment bit are reassembled too (`no-df`).
    pub reassemble_no_df: bool,
    /// Timeouts in seconds, by [`Timeout`].
    pub timeouts: [u32; Timeout::ALL.len()],
    /// Most states (`set limit states`).
    pub limit_states: u32,
    /// Most source nodes (`set limit src-nodes`).
    pub limit_source_nodes: u32,
    /// Most fragments waiting (`set limit frags`).
    pub limit_fragments: u32,
    /// Most tables (`set limit tables`).
    pub limit_tables: u32,
    /// Most addresses in all tables (`set limit table-entries`).
    pub limit_table_entries: u32,
    /// `set syncookies`.
    pub syncookies: Syncookies,
}

/// `set syncookies`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Syncookies {
    /// Never; the default.
    #[default]
    Never,
    /// Always.
    Always,
    /// While many states are half open.
    Adaptive,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            skip: Vec::new(),
            reassemble: true,
            reassemble_no_df: false,
            timeouts: Timeout::DEFAULTS,
            limit_states: 100_000,
            limit_source_nodes: 10_000,
            limit_fragments: 65_536,
            limit_tables: 1000,
            limit_table_entries: 200_000,
            syncookies: Syncookies::Never,
        }
    }
}

impl Options {
    /// Options without any `set`. FreeBSD reassembles fragments only where a rule or an option says
    /// so, and keeps fewer of them.
    pub fn of(dialect: Dialect) -> Self {
        match dialect {
            Dialect::OpenBsd => Self::default(),
            Dialect::FreeBsd => Self {
                reassemble: false,
                limit_fragments: 5000,
                ..Self::default()
            },
        }
    }
}

/// A timeout's name, in the order in which pfctl prints a rule's (`PFTM_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timeout {
    /// `tcp.first`
    TcpFirst,
    /// `tcp.opening`
    TcpOpening,
    /// `tcp.established`
    TcpEstablished,
    /// `tcp.closing`
    TcpClosing,
    /// `tcp.finwait`
    TcpFinWait,
    /// `tcp.closed`
    TcpClosed,
    /// `udp.first`
    UdpFirst,
    /// `udp.single`
    UdpSingle,
    /// `udp.multiple`
    UdpMultiple,
    /// `icmp.first`
    IcmpFirst,
    /// `icmp.error`
    IcmpError,
    /// `other.first`
    OtherFirst,
    /// `other.single`
    OtherSingle,
    /// `other.multiple`
    OtherMultiple,
    /// `frag`
    Fragment,
    /// `interval`
    Interval,
    /// `adaptive.start`, in states
    AdaptiveStart,
    /// `adaptive.end`, in states
    AdaptiveEnd,
    /// `src.track`
    SourceTrack,
    /// `tcp.tsdiff`
    TcpTimestampDifference,
}

impl Timeout {
    /// All, in order.
    pub const ALL: [Self; 20] = [
        Self::TcpFirst,
        Self::TcpOpening,
        Self::TcpEstablished,
        Self::TcpClosing,
        Self::TcpFinWait,
        Self::TcpClosed,
        Self::UdpFirst,
        Self::UdpSingle,
        Self::UdpMultiple,
        Self::IcmpFirst,
        Self::IcmpError,
        Self::OtherFirst,
        Self::OtherSingle,
        Self::OtherMultiple,
        Self::Fragment,
        Self::Interval,
        Self::AdaptiveStart,
        Self::AdaptiveEnd,
        Self::SourceTrack,
        Self::TcpTimestampDifference,
    ];

    /// Defaults in seconds, the adaptive ones in states (`PFTM_*_VAL`, `PFSTATE_ADAPT_*`).
    pub const DEFAULTS: [u32; 20] = [
        120, 30, 86_400, 900, 45, 90, 60, 30, 60, 20, 10, 60, 30, 60, 60, 10, 60_000, 120_000, 0,
        30,
    ];

    /// Its name in the language.
    #[must_use]
    pub fn name(self) -> &'static str {
        const NAMES: [&str; 20] = [
            "tcp.first",
            "tcp.opening",
            "tcp.established",
            "tcp.closing",
            "tcp.finwait",
            "tcp.closed",
            "udp.first",
            "udp.single",
            "udp.multiple",
            "icmp.first",
            "icmp.error",
            "other.first",
            "other.single",
            "other.multiple",
            "frag",
            "interval",
            "adaptive.start",
            "adaptive.end",
            "src.track",
            "tcp.tsdiff",
        ];
        NAMES[self as usize]
    }

    /// The timeout of this name, in any case.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|timeout| timeout.name().eq_ignore_ascii_case(name))
    }
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name, without brackets.
    pub name: Arc<str>,
    /// Path of the anchor that holds it; empty for the main rule set.
    pub anchor: Arc<str>,
    /// `const`: not to be changed once loaded.
    pub constant: bool,
    /// `persist`: kept when no rule refers to it.
    pub persist: bool,
    /// `counters`: counts per address.
    pub counters: bool,
    /// The entries, of lists and files alike.
    pub entries: Vec<TableEntry>,
    /// Lists and files, as written; empty when it has neither.
    pub parts: Vec<TablePart>,
    /// The statement.
    pub span: Span,
}

/// A list or a file of a table's definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TablePart {
    /// `{ … }`: how many of [`Table::entries`] it gave.
    List(usize),
    /// `file "…"`: its path, and how many of [`Table::entries`] it gave.
    File(Arc<str>, usize),
}

/// An address of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableEntry {
    /// The network.
    pub network: Network,
    /// `!`: the most specific entry wins, and this one excludes.
    pub negated: bool,
    /// `weight`, for `least-states`; 0 without.
    pub weight: u16,
}

/// An address and a prefix length. Host bits are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network {
    /// The address.
    pub address: IpAddr,
    /// Length of the prefix: 0 to 32 or 128.
    pub bits: u8,
}

impl Network {
    /// The network of an address: its host bits are cleared, `bits` is cut to the family's.
    #[must_use]
    pub fn new(address: IpAddr, bits: u8) -> Self {
        match address {
            IpAddr::V4(address) => {
                let bits = bits.min(32);
                let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
                Self {
                    address: IpAddr::V4((u32::from(address) & mask).into()),
                    bits,
                }
            }
            IpAddr::V6(address) => {
                let bits = bits.min(128);
                let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
                Self {
                    address: IpAddr::V6((u128::from(address) & mask).into()),
                    bits,
                }
            }
        }
    }

    /// Whether it holds the address. An address of the other family is in no network.
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => {
                Self::new(address, self.bits).address == self.address
            }
            _ => false,
        }
    }
}

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4
    Inet,
    /// IPv6
    Inet6,
}

impl Family {
    /// The family of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() {
            Self::Inet
        } else {
            Self::Inet6
        }
    }

    /// Bits of an address.
    #[must_use]
    pub fn bits(self) -> u8 {
        match self {
            Self::Inet => 32,
            Self::Inet6 => 128,
        }
    }

    /// `inet` or `inet6`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Inet => "inet",
            Self::Inet6 => "inet6",
        }
    }
}

/// Which way a packet goes, seen from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// It arrived.
    In,
    /// It leaves.
    Out,
}

impl Direction {
    /// `in` or `out`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
        }
    }
}

/// Which list of rules a rule is in. All but [`Filter`](Self::Filter) are FreeBSD's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleKind {
    /// `pass`, `block`, `match`, `anchor`
    #[default]
    Filter,
    /// `scrub`; `no scrub` where [`Rule::scrub`] is `None`. Packets of both directions match,
    /// unless [`Rule::direction`] is given.
    Scrub,
    /// `nat`, with the pool in [`Rule::nat`]; `no nat` where there is none, unless it calls an
    /// anchor. Only packets that leave match: their source is translated.
    Nat,
    /// `rdr`, with the pool in [`Rule::rdr`]; `no rdr` where there is none, unless it calls an
    /// anchor. Only packets that come in match: their destination is translated.
    Rdr,
    /// `binat`, with its one network in [`Rule::nat`]; `no binat` where there is none, unless it
    /// calls an anchor. Packets that leave match by `from` and `to`, and get the network as
    /// source. Packets that come in match when they are from `to` and to the network, and get
    /// `from` as destination. Host bits stay.
    Binat,
}

impl RuleKind {
    /// The word that its statements start with; none for filter rules.
    pub fn word(self) -> &'static str {
        match self {
            Self::Filter => "",
            Self::Scrub => "scrub",
            Self::Nat => "nat",
            Self::Rdr => "rdr",
            Self::Binat => "binat",
        }
    }
}

/// Fields of FreeBSD's rules alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FreeBsd {
    /// `nat pass` and its kin: packets that are translated pass without the filter rules.
    pub pass: bool,
    /// Of a pass rule under `set fail-policy return`: a packet for which no state could be made
    /// is answered, as [`Return::Return`] does, and not dropped silently.
    pub fail_return: bool,
    /// Labels after the first, which is [`Rule::label`].
    pub more_labels: Vec<Arc<str>>,
    /// `ridentifier`; 0 for none.
    pub ridentifier: u32,
    /// `dnpipe`, `dnqueue`
    pub dummynet: Option<Dummynet>,
    /// Of a scrub rule: `fragment no reassemble`.
    pub no_reassemble: bool,
}

/// `dnpipe`, `dnqueue`: where dummynet(4) takes the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dummynet {
    /// `dnqueue`
    pub queue: bool,
    /// Number of the pipe or queue for the state's own direction; 0 for none.
    pub forward: u16,
    /// For replies; 0 for none.
    pub reverse: u16,
}

/// A rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The list that it is in.
    pub kind: RuleKind,
    /// Pass, block or match. A rule that calls an anchor has [`Action::Pass`], one of another
    /// list than the filter's has [`Action::Match`].
    pub action: Action,
    /// The anchor that is evaluated where the rule matches.
    pub anchor: Option<Box<Anchor>>,
    /// Direction; `None` for both.
    pub direction: Option<Direction>,
    /// `log`
    pub log: Option<Log>,
    /// `quick`
    pub quick: bool,
    /// `on`
    pub on: Option<On>,
    /// Family; `None` for both.
    pub family: Option<Family>,
    /// Protocol; `None` for all. Never 0.
    pub protocol: Option<u8>,
    /// `from`
    pub source: Peer,
    /// `os`
    pub os: Option<Arc<str>>,
    /// `to`
    pub destination: Peer,
    /// `received-on`
    pub received_on: Option<InterfaceMatch>,
    /// `user`
    pub user: Option<IdMatch>,
    /// `group`
    pub group: Option<IdMatch>,
    /// `flags`; `None` is `flags any`.
    pub flags: Option<Flags>,
    /// `icmp-type` or `icmp6-type`
    pub icmp: Option<Icmp>,
    /// `tos`; 0 is none, as in pf.
    pub tos: u8,
    /// `prio`
    pub prio: Option<u8>,
    /// `max-pkt-rate`
    pub max_packet_rate: Option<Rate>,
    /// `probability`, of 2^32; `None` for always.
    pub probability: Option<u32>,
    /// `fragment`
    pub fragment: bool,
    /// `allow-opts`
    pub allow_options: bool,
    /// `once`
    pub once: bool,
    /// `label`
    pub label: Option<Arc<str>>,
    /// `tag`
    pub tag: Option<Arc<str>>,
    /// `tagged`
    pub tagged: Option<Tagged>,
    /// `rtable`
    pub rtable: Option<u32>,
    /// `keep state` and its kin
    pub state: KeepState,
    /// Options of the state; `None` when all are at their defaults.
    pub state_options: Option<Box<StateOptions>>,
    /// `set (…)`
    pub set: Option<Box<Set>>,
    /// `scrub (…)`
    pub scrub: Option<Box<Scrub>>,
    /// `divert-to`, `divert-reply`, `divert-packet`
    pub divert: Option<Box<Divert>>,
    /// `nat-to`, or the source of `af-to`
    pub nat: Option<Box<Pool>>,
    /// `rdr-to`, or the destination of `af-to`
    pub rdr: Option<Box<Pool>>,
    /// `af-to`: the family that the packet gets.
    pub af_to: Option<Family>,
    /// `route-to`, `reply-to`, `dup-to`
    pub route: Option<Box<Route>>,
    /// FreeBSD's own fields; `None` when all is at its default.
    pub freebsd: Option<Box<FreeBsd>>,
    /// Where it comes from.
    pub origin: Origin,
}

impl Rule {
    /// A rule that matches every packet, without state or other effects.
    #[must_use]
    pub fn new(action: Action, origin: Origin) -> Self {
        Self {
            kind: RuleKind::Filter,
            action,
            anchor: None,
            direction: None,
            log: None,
            quick: false,
            on: None,
            family: None,
            protocol: None,
            source: Peer::ANY,
            os: None,
            destination: Peer::ANY,
            received_on: None,
            user: None,
            group: None,
            flags: None,
            icmp: None,
            tos: 0,
            prio: None,
            max_packet_rate: None,
            probability: None,
            fragment: false,
            allow_options: false,
            once: false,
            label: None,
            tag: None,
            tagged: None,
            rtable: None,
            state: KeepState::No,
            state_options: None,
            set: None,
            scrub: None,
            divert: None,
            nat: None,
            rdr: None,
            af_to: None,
            route: None,
            freebsd: None,
            origin,
        }
    }
}

/// Where a rule comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The statement.
    pub span: Span,
    /// The elements of lists, and the uses of macros, that gave this rule: in the order of
    /// expansion. Dimensions with one element that no macro gave are left out.
    pub elements: Vec<Element>,
}

/// An element of a list that a rule was expanded from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// The list's dimension: `interface`, `proto`, `icmp-type`, `source`, `destination`,
    /// `source port`, `destination port`, `os`, `user`, `group`.
    pub dimension: &'static str,
    /// The element: in the macro's definition, when a macro gave it.
    pub span: Span,
    /// Index of the element in its list, from 0.
    pub index: u32,
    /// How many elements the list has.
    pub count: u32,
    /// The macro that gave it.
    pub macro_name: Option<Arc<str>>,
}

/// The action of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// `pass`
    Pass,
    /// `match`: apply the rule's effects, decide nothing.
    Match,
    /// `block`
    Block(Return),
}

/// How a block rule answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Return {
    /// Not at all.
    Drop,
    /// `return`: RST for TCP, ICMP for the rest.
    Return {
        /// The ICMP error.
        icmp: IcmpError,
    },
    /// `return-rst`
    Rst {
        /// `ttl`; 0 for the default.
        ttl: u8,
    },
    /// `return-icmp` and `return-icmp6`
    Icmp {
        /// The ICMP error.
        icmp: IcmpError,
    },
}

/// The ICMP errors that a block rule answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IcmpError {
    /// Type and code for IPv4.
    pub v4: (u8, u8),
    /// Type and code for IPv6.
    pub v6: (u8, u8),
}

impl IcmpError {
    /// Port unreachable.
    pub const DEFAULT: Self = Self {
        v4: (3, 3),
        v6: (1, 4),
    };
}

/// `log`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Log {
    /// `all`: every packet of the state, too.
    pub all: bool,
    /// `matches`: on every later matching rule, too.
    pub matches: bool,
    /// `user`: with the socket's owner.
    pub user: bool,
    /// `to pflogN`
    pub to: u8,
}

/// `on`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum On {
    /// An interface, a group of interfaces, or `any` (all but loopback).
    Interface(InterfaceMatch),
    /// A routing domain.
    Rdomain {
        /// Its number.
        id: u32,
        /// `!`
        negated: bool,
    },
}

/// An interface, or a group of interfaces.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InterfaceMatch {
    /// Its name. `any` matches every interface outside the group `lo`.
    pub name: Arc<str>,
    /// `!`
    pub negated: bool,
}

/// Source or destination of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The address.
    pub address: Address,
    /// `!`
    pub negated: bool,
    /// The port.
    pub port: Option<PortMatch>,
}

impl Peer {
    /// Any address, any port.
    pub const ANY: Self = Self {
        address: Address::Any,
        negated: false,
        port: None,
    };
}

/// An address of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// `any`, of either family.
    Any,
    /// An address or network.
    Network(Network),
    /// `first - last`, both of one family.
    Range(IpAddr, IpAddr),
    /// `(interface)`: its addresses at the time of the packet.
    Interface(DynamicInterface),
    /// A name, with its modifiers, whose addresses nobody gave: a host, or an interface that is
    /// not in parentheses. Only where the host is [not known](crate::host::Host::is_known).
    Unresolved(Arc<str>),
    /// `<table>`
    Table(Arc<str>),
    /// `no-route`
    NoRoute,
    /// `urpf-failed`
    UrpfFailed,
    /// `route "label"`
    RouteLabel(Arc<str>),
}

/// `(interface:modifiers)/bits`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DynamicInterface {
    /// Name of the interface or group.
    pub name: Arc<str>,
    /// `:network`, `:broadcast`, `:peer`
    pub part: Option<InterfacePart>,
    /// `:0`: without aliases
    pub no_alias: bool,
    /// Prefix length that the addresses are widened to; 128 (32 in a rule of IPv4) for none.
    pub bits: u8,
}

impl DynamicInterface {
    /// Whether it can stand for several addresses.
    pub fn has_several_addresses(&self) -> bool {
        !self.no_alias || !self.name.ends_with(|c: char| c.is_ascii_digit())
    }
}

/// A modifier of an interface's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InterfacePart {
    /// `:network`
    Network,
    /// `:broadcast`
    Broadcast,
    /// `:peer`
    Peer,
}

/// A comparison with one or two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// `= a`
    Equal,
    /// `!= a`
    NotEqual,
    /// `< a`
    Less,
    /// `<= a`
    LessOrEqual,
    /// `> a`
    Greater,
    /// `>= a`
    GreaterOrEqual,
    /// `a:b`: inside, limits included
    Range,
    /// `a >< b`: inside, limits excluded
    Inside,
    /// `a <> b`: outside, limits excluded
    Outside,
}

impl Comparison {
    /// Whether `value` satisfies the comparison with `low` and `high` (`pf_match` in `pf.c`).
    #[must_use]
    pub fn holds(self, value: u32, low: u32, high: u32) -> bool {
        match self {
            Self::Equal => value == low,
            Self::NotEqual => value != low,
            Self::Less => value < low,
            Self::LessOrEqual => value <= low,
            Self::Greater => value > low,
            Self::GreaterOrEqual => value >= low,
            Self::Range => value >= low && value <= high,
            Self::Inside => value > low && value < high,
            Self::Outside => value < low || value > high,
        }
    }
}

/// `port`, in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortMatch {
    /// The comparison.
    pub comparison: Comparison,
    /// Its first number.
    pub low: u16,
    /// Its second number; 0 without.
    pub high: u16,
}

/// `user` or `group`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IdMatch {
    /// The comparison.
    pub comparison: Comparison,
    /// Its first number; `u32::MAX` is `unknown`.
    pub low: u32,
    /// Its second number; equal to `low` where there is none.
    pub high: u32,
}

/// `flags set/mask`, bits as in the TCP header: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32,
/// ECE 64, CWR 128.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flags {
    /// Flags that must be set.
    pub set: u8,
    /// Flags that are looked at.
    pub mask: u8,
}

/// `icmp-type … code …`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Icmp {
    /// The type.
    pub kind: u8,
    /// The code; `None` for any.
    pub code: Option<u8>,
}

/// A number of events in a number of seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Most events.
    pub limit: u32,
    /// In this many seconds.
    pub seconds: u32,
}

/// `tagged`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tagged {
    /// The tag.
    pub name: Arc<str>,
    /// `!`
    pub negated: bool,
}

/// State that a pass rule makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeepState {
    /// `no state`, and every rule that is not `pass`
    No,
    /// `keep state`
    Keep,
    /// `modulate state`
    Modulate,
    /// `synproxy state`
    Synproxy,
}

/// Options of a rule's state.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct StateOptions {
    /// `max`; 0 for no limit.
    pub max: u32,
    /// `no-sync`
    pub no_sync: bool,
    /// `source-track`
    pub source_track: Option<SourceTrack>,
    /// `max-src-nodes`; 0 for no limit.
    pub max_source_nodes: u32,
    /// `max-src-states`; 0 for no limit.
    pub max_source_states: u32,
    /// `max-src-conn`; 0 for no limit.
    pub max_source_connections: u32,
    /// `max-src-conn-rate`
    pub max_source_rate: Option<Rate>,
    /// `overload`
    pub overload: Option<Overload>,
    /// `if-bound`
    pub if_bound: bool,
    /// `sloppy`
    pub sloppy: bool,
    /// `pflow`
    pub pflow: bool,
    /// Timeouts that are not 0, in the order of [`Timeout::ALL`].
    pub timeouts: Vec<(Timeout, u32)>,
}

/// `source-track`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SourceTrack {
    /// Each rule counts for itself.
    Rule,
    /// All rules count together.
    Global,
}

/// `overload <table> flush global`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Overload {
    /// The table that takes the source.
    pub table: Arc<str>,
    /// `flush`: the source's states of this rule end.
    pub flush: bool,
    /// `global`: its states of all rules end.
    pub global: bool,
}

/// `set (…)`
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Set {
    /// `prio`, and that of packets with low delay or of pure ACKs.
    pub prio: Option<(u8, u8)>,
    /// `queue`, and that of packets with low delay or of pure ACKs.
    pub queue: Option<(Arc<str>, Option<Arc<str>>)>,
    /// `tos`
    pub tos: Option<u8>,
    /// `delay`, in ms
    pub delay: Option<u16>,
}

/// `scrub (…)`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Scrub {
    /// `no-df`
    pub no_df: bool,
    /// `random-id`
    pub random_id: bool,
    /// `min-ttl`; 0 for none.
    pub min_ttl: u8,
    /// `max-mss`; 0 for none.
    pub max_mss: u16,
    /// `reassemble tcp`
    pub reassemble_tcp: bool,
}

/// `divert-…`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Divert {
    /// `divert-to`
    To {
        /// Address of the socket.
        address: IpAddr,
        /// Its port.
        port: u16,
    },
    /// `divert-reply`
    Reply,
    /// `divert-packet`
    Packet {
        /// Port of the divert socket.
        port: u16,
    },
}

/// Ports that `nat-to` chooses from (`PF_NAT_PROXY_PORT_*`).
pub(crate) const NAT_PORTS: (u16, u16) = (50_001, 65_535);

/// Addresses and ports of a translation or a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pool {
    /// The addresses: a network, a dynamic interface or a table. [`Address::Any`] where FreeBSD's
    /// `route-to` names an interface only.
    pub address: Address,
    /// The interface that FreeBSD's `route-to` sends packets through.
    pub interface: Option<Arc<str>>,
    /// The rest of a list of FreeBSD. OpenBSD has a hidden table as its address instead.
    pub more: Vec<Hop>,
    /// First and last port. For `nat-to` (50001, 65535) by default and (0, 0) with
    /// `static-port`; for `rdr-to` (0, 0) where the port stays.
    pub ports: (u16, u16),
    /// For `rdr-to`: ports were given as a range, which the packet's port is mapped to at random.
    pub port_range: bool,
    /// How an address is chosen.
    pub kind: PoolKind,
    /// `sticky-address`
    pub sticky: bool,
}

impl Pool {
    /// All its addresses.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        std::iter::once(&self.address).chain(self.more.iter().map(|hop| &hop.address))
    }
}

/// An address of a list in a pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hop {
    /// The address, as [`Pool::address`].
    pub address: Address,
    /// The interface, as [`Pool::interface`].
    pub interface: Option<Arc<str>>,
}

/// How a pool chooses an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolKind {
    /// The only one.
    None,
    /// `bitmask`: the packet's address with the network's prefix.
    Bitmask,
    /// `random`
    Random,
    /// `source-hash`, with its key; `None` for one that is drawn at load.
    SourceHash(Option<[u32; 4]>),
    /// `round-robin`
    RoundRobin,
    /// `least-states`
    LeastStates,
}

/// `route-to`, `reply-to`, `dup-to`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// Which of them.
    pub kind: RouteKind,
    /// The next hops.
    pub pool: Pool,
}

/// `route-to`, `reply-to`, `dup-to`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RouteKind {
    /// `route-to`
    RouteTo,
    /// `reply-to`
    ReplyTo,
    /// `dup-to`
    DupTo,
}

/// An anchor that a rule calls.
#[derive(Clone, Debug, PartialEq)]
pub enum Anchor {
    /// `anchor "name" { … }`; names that pfctl makes up begin with `_`.
    Inline {
        /// Its name, relative to the rule set that calls it.
        name: Arc<str>,
        /// Its rules.
        rules: Vec<Rule>,
    },
    /// `anchor "path"`: rules that are loaded separately. A path that begins with `/` is
    /// absolute, `..` is the parent, a last component `*` is every child in the order of names.
    Call(Arc<str>),
}

/// A queue (`queue NAME …`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Its name.
    pub name: Arc<str>,
    /// Its parent; `None` for a root queue.
    pub parent: Option<Arc<str>>,
    /// Its interface.
    pub interface: Option<Arc<str>>,
    /// `flows`; 0 for none.
    pub flows: u32,
    /// `quantum`; 0 for none.
    pub quantum: u32,
    /// `bandwidth`
    pub bandwidth: ServiceCurve,
    /// `min`
    pub min: ServiceCurve,
    /// `max`
    pub max: ServiceCurve,
    /// `default`
    pub default: bool,
    /// `qlimit`; 0 for the default.
    pub limit: u32,
    /// The statement.
    pub span: Span,
}

/// A service curve of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ServiceCurve {
    /// Bandwidth in bit/s; 0 for none.
    pub rate: u64,
    /// Bandwidth of the burst, in bit/s.
    pub burst: u64,
    /// Length of the burst, in ms.
    pub milliseconds: u32,
}
