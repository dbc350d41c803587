//! Reserved words.

use crate::rule::Dialect;

macro_rules! keywords {
    ($($variant:ident $text:literal,)*) => {
        /// A reserved word of the language, OpenBSD's and FreeBSD's.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum Keyword {
            $($variant,)*
        }

        impl Keyword {
            /// All, in the order of the alphabet.
            const ALL: &[(&str, Keyword)] = &[$(($text, Keyword::$variant),)*];

            /// The word.
            pub fn text(self) -> &'static str {
                Self::ALL[self as usize].0
            }
        }
    };
}

keywords! {
    AfTo "af-to",
    All "all",
    AllowOpts "allow-opts",
    Altq "altq",
    Anchor "anchor",
    Antispoof "antispoof",
    Any "any",
    Bandwidth "bandwidth",
    Binat "binat",
    BinatAnchor "binat-anchor",
    BinatTo "binat-to",
    Bitmask "bitmask",
    Block "block",
    BlockPolicy "block-policy",
    BridgeTo "bridge-to",
    Buckets "buckets",
    Burst "burst",
    Cbq "cbq",
    Code "code",
    Codelq "codelq",
    Crop "crop",
    Debug "debug",
    Default "default",
    Delay "delay",
    DivertPacket "divert-packet",
    DivertReply "divert-reply",
    DivertTo "divert-to",
    DnPipe "dnpipe",
    DnQueue "dnqueue",
    Drop "drop",
    DropOvl "drop-ovl",
    DupTo "dup-to",
    EndpointIndependent "endpoint-independent",
    Ether "ether",
    FailPolicy "fail-policy",
    Fairq "fairq",
    Fastroute "fastroute",
    File "file",
    Fingerprints "fingerprints",
    Flags "flags",
    Floating "floating",
    Flows "flows",
    Flush "flush",
    For "for",
    Fragment "fragment",
    From "from",
    Global "global",
    Group "group",
    Hfsc "hfsc",
    Hogs "hogs",
    HostId "hostid",
    IcmpType "icmp-type",
    Icmp6Type "icmp6-type",
    IfBound "if-bound",
    In "in",
    Include "include",
    Inet "inet",
    Inet6 "inet6",
    Interval "interval",
    Keep "keep",
    KeepCounters "keepcounters",
    L3 "l3",
    Label "label",
    LeastStates "least-states",
    Limit "limit",
    Linkshare "linkshare",
    Load "load",
    Log "log",
    LogInterface "loginterface",
    MapEPortset "map-e-portset",
    Match "match",
    Matches "matches",
    Max "max",
    MaxMss "max-mss",
    MaxPktRate "max-pkt-rate",
    MaxSrcConn "max-src-conn",
    MaxSrcConnRate "max-src-conn-rate",
    MaxSrcNodes "max-src-nodes",
    MaxSrcStates "max-src-states",
    Min "min",
    MinTtl "min-ttl",
    Modulate "modulate",
    Nat "nat",
    NatAnchor "nat-anchor",
    NatTo "nat-to",
    No "no",
    NoDf "no-df",
    NoRoute "no-route",
    NoSync "no-sync",
    On "on",
    Once "once",
    Optimization "optimization",
    Os "os",
    Out "out",
    Overload "overload",
    Parent "parent",
    Pass "pass",
    Pflow "pflow",
    Port "port",
    Prio "prio",
    Priority "priority",
    Priq "priq",
    Probability "probability",
    Proto "proto",
    Qlimit "qlimit",
    Quantum "quantum",
    Queue "queue",
    Quick "quick",
    Random "random",
    RandomId "random-id",
    Rdomain "rdomain",
    Rdr "rdr",
    RdrAnchor "rdr-anchor",
    RdrTo "rdr-to",
    Realtime "realtime",
    Reassemble "reassemble",
    ReceivedOn "received-on",
    ReplyTo "reply-to",
    RequireOrder "require-order",
    Return "return",
    ReturnIcmp "return-icmp",
    ReturnIcmp6 "return-icmp6",
    ReturnRst "return-rst",
    Ridentifier "ridentifier",
    RoundRobin "round-robin",
    Route "route",
    RouteTo "route-to",
    Rtable "rtable",
    Rule "rule",
    RulesetOptimization "ruleset-optimization",
    Scrub "scrub",
    Set "set",
    SetTos "set-tos",
    Skip "skip",
    Sloppy "sloppy",
    SourceHash "source-hash",
    SourceTrack "source-track",
    State "state",
    StateDefaults "state-defaults",
    StatePolicy "state-policy",
    StaticPort "static-port",
    StickyAddress "sticky-address",
    Syncookies "syncookies",
    Synproxy "synproxy",
    Table "table",
    Tag "tag",
    Tagged "tagged",
    Target "target",
    Tbrsize "tbrsize",
    Timeout "timeout",
    To "to",
    Tos "tos",
    Ttl "ttl",
    Upperlimit "upperlimit",
    UrpfFailed "urpf-failed",
    User "user",
    Weight "weight",
}

impl Keyword {
    /// Index of the first word that starts with each letter, and past the last.
    const STARTS: [usize; 27] = {
        let mut starts = [0; 27];
        let mut letter = 0;
        let mut at = 0;
        while letter < 26 {
            starts[letter] = at;
            while at < Self::ALL.len() && Self::ALL[at].0.as_bytes()[0] == b'a' + letter as u8 {
                at += 1;
            }
            letter += 1;
        }
        starts[26] = at;
        starts
    };

    /// The keyword of this text in a dialect: a word of the other one is a name like any other.
    #[must_use]
    pub fn by_text(text: &[u8], dialect: Dialect) -> Option<Self> {
        let letter = text.first().filter(|byte| byte.is_ascii_lowercase())? - b'a';
        let (start, end) = (
            Self::STARTS[letter as usize],
            Self::STARTS[letter as usize + 1],
        );
        let mut words = Self::ALL[start..end].iter();
        let &(_, keyword) = words.find(|(word, _)| word.as_bytes() == text)?;
        let foreign = match dialect {
            Dialect::OpenBsd => Self::FREEBSD,
            Dialect::FreeBsd => Self::OPENBSD,
        };
        (!foreign.contains(&keyword)).then_some(keyword)
    }

    /// Words that only OpenBSD reserves.
    const OPENBSD: &[Self] = &[
        Self::Burst,
        Self::Default,
        Self::Delay,
        Self::DivertPacket,
        Self::Flows,
        Self::LeastStates,
        Self::Min,
        Self::Parent,
        Self::Quantum,
        Self::Rdomain,
        Self::Weight,
    ];

    /// Words that only FreeBSD reserves.
    const FREEBSD: &[Self] = &[
        Self::Altq,
        Self::Binat,
        Self::BinatAnchor,
        Self::BridgeTo,
        Self::Buckets,
        Self::Cbq,
        Self::Codelq,
        Self::Crop,
        Self::DnPipe,
        Self::DnQueue,
        Self::DropOvl,
        Self::EndpointIndependent,
        Self::Ether,
        Self::FailPolicy,
        Self::Fairq,
        Self::Fastroute,
        Self::Hfsc,
        Self::Hogs,
        Self::Interval,
        Self::KeepCounters,
        Self::L3,
        Self::Linkshare,
        Self::MapEPortset,
        Self::Nat,
        Self::NatAnchor,
        Self::Priority,
        Self::Priq,
        Self::Rdr,
        Self::RdrAnchor,
        Self::Realtime,
        Self::RequireOrder,
        Self::Ridentifier,
        Self::SetTos,
        Self::Target,
        Self::Tbrsize,
        Self::Upperlimit,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_sorted() {
        assert!(Keyword::ALL.is_sorted_by(|(a, _), (b, _)| a < b));
    }

    #[test]
    fn each_word_is_found() {
        for (text, keyword) in Keyword::ALL {
            let openbsd = Keyword::by_text(text.as_bytes(), Dialect::OpenBsd);
            let freebsd = Keyword::by_text(text.as_bytes(), Dialect::FreeBsd);
            assert_eq!(openbsd.or(freebsd), Some(*keyword));
            assert_eq!(keyword.text(), *text);
        }
        assert_eq!(Keyword::by_text(b"passs", Dialect::OpenBsd), None);
    }

    #[test]
    fn words_of_one_dialect_are_names_in_the_other() {
        assert_eq!(Keyword::by_text(b"nat", Dialect::OpenBsd), None);
        assert_eq!(
            Keyword::by_text(b"nat", Dialect::FreeBsd),
            Some(Keyword::Nat)
        );
        assert_eq!(
            Keyword::by_text(b"default", Dialect::OpenBsd),
            Some(Keyword::Default)
        );
        assert_eq!(Keyword::by_text(b"default", Dialect::FreeBsd), None);
    }
}
