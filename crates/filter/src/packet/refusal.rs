//! Why pf drops a packet before, or beside, any rule.

/// pf's own names for the reason of a verdict (`PFRES_NAMES` in `pfvar.h`), which `pfctl -si`
/// and tcpdump on pflog print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A rule, or none, decided.
    Match,
    /// A header's offset is wrong.
    BadOffset,
    /// Fragments.
    Fragment,
    /// Lengths.
    Short,
    /// Sanity checks.
    Normalize,
    /// A pool is used up.
    Memory,
    /// TCP timestamps.
    BadTimestamp,
    /// The host is overloaded.
    Congestion,
    /// IP options.
    IpOption,
    /// A checksum.
    ProtoCksum,
    /// Sequence numbers.
    StateMismatch,
    /// A state like the new one exists.
    StateInsert,
    /// `max`
    StateLimit,
    /// `max-src-…`
    SrcLimit,
    /// `synproxy`
    Synproxy,
    /// No address or port was left to translate to.
    Translate,
    /// No address was left to route to.
    NoRoute,
}

impl Reason {
    /// pf's name.
    pub fn name(self) -> &'static str {
        const NAMES: [&str; 17] = [
            "match",
            "bad-offset",
            "fragment",
            "short",
            "normalize",
            "memory",
            "bad-timestamp",
            "congestion",
            "ip-option",
            "proto-cksum",
            "state-mismatch",
            "state-insert",
            "state-limit",
            "src-limit",
            "synproxy",
            "translate",
            "no-route",
        ];
        NAMES[self as usize]
    }
}

macro_rules! refusals {
    ($($(#[$doc:meta])* $variant:ident $name:literal $reason:ident $sentence:literal,)+) => {
        /// Why a packet is dropped before states and rules.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Refusal {
            $(#[doc = $sentence] $variant,)+
        }

        impl Refusal {
            /// All, in the order in which pf tests.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// A name that stays, in kebab case.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// The cause, in one sentence without a full stop.
            pub fn sentence(self) -> &'static str {
                match self { $(Self::$variant => $sentence,)+ }
            }

            /// pf's name for it.
            pub fn reason(self) -> Reason {
                match self { $(Self::$variant => Reason::$reason,)+ }
            }
        }
    };
}

refusals! {
    NotIp "not-ip" Short "the packet's version is neither 4 nor 6",
    ShortIpHeader "short-ip-header" Short "the IP header is cut off",
    IpLength "ip-length" Short "the packet is shorter than its IP header says",
    HeaderLength "header-length" Short "the IPv4 header length is below 20 or above the total length",
    MixedFamilies "mixed-families" Short "source and destination are of different families",
    BadIpOption "bad-ip-option" IpOption "an IP option's length does not fit",
    IgmpTtl "igmp-ttl" IpOption "an IGMP message to all hosts has a TTL other than 1",
    HeaderLimit "header-limit" IpOption "more than 20 authentication or extension headers are nested",
    ShortExtensionHeader "short-extension-header" Short "an authentication or extension header is cut off",
    BadJumbo "bad-jumbo" IpOption "a jumbo payload option is inconsistent",
    Jumbo "jumbo" Normalize "pf does not support jumbo payloads",
    FragmentedJumbo "fragmented-jumbo" Fragment "a jumbo payload has a fragment header",
    SeveralFragmentHeaders "several-fragment-headers" Fragment "there is more than one fragment header",
    SeveralRoutingHeaders "several-routing-headers" IpOption "there is more than one routing header",
    RoutingHeaderZero "routing-header-0" IpOption "a routing header of type 0 is deprecated and unsafe",
    HopByHopNotFirst "hop-by-hop-not-first" IpOption "hop-by-hop options do not follow the IPv6 header",
    Mld "bad-mld" IpOption "an MLD message has a hop limit other than 1, or a source that is not link-local",
    NeighbourDiscovery "nd-hop-limit" Normalize
        "a message of neighbour discovery has a hop limit other than 255: a router forwarded it",
    ShortTransportHeader "short-transport-header" Short "the transport header is cut off",
    TransportLength "transport-length" Short "a length in the transport header does not fit the packet",
    PortZero "port-0" Short "the destination port is 0",
    IcmpOfOtherFamily "icmp-of-other-family" Normalize
        "an IPv4 packet holds ICMP of IPv6, or the reverse",
    FragmentWithDf "fragment-with-df" Fragment
        "a fragment has the don't-fragment bit, and `set reassemble yes no-df` is not on",
    BadFragment "bad-fragment" Fragment "a fragment is empty, not a multiple of 8 bytes, or ends past 65,535",
    FragmentOverlap "fragment-overlap" Fragment "a fragment contradicts or overlaps those before it",
    FragmentLimit "fragment-limit" Memory "too many fragments wait (`set limit frags`)",
    FragmentQueueLimit "fragment-queue-limit" Fragment "more than 64 fragments wait for one sixteenth of a datagram",
    DatagramTooLong "datagram-too-long" Short "the reassembled datagram is longer than 65,535 bytes",
    TcpSynRst "tcp-syn-rst" Normalize "a TCP segment has SYN and RST",
    TcpNoFlags "tcp-no-flags" Normalize "a TCP segment has none of ACK, RST and SYN",
    TcpFlagsWithoutAck "tcp-flags-without-ack" Normalize "a TCP segment has FIN, PSH or URG, but no ACK",
}
