//! Broken variants of the interpreter, to prove that tests notice them.

/// A way to be wrong that has been seen in other filters.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// The first pass or block rule that matches wins.
    FirstMatchWins,
    /// `quick` does not stop inside an anchor.
    QuickIgnoredInAnchors,
    /// `match quick` does not stop.
    MatchQuickDoesNotStop,
    /// Only the winning rule's tag is set, and at the end.
    TagFromWinnerOnly,
    /// A rule with keep state matches ICMP replies.
    IcmpReplyMatchedByKeepState,
    /// A state is found in either direction.
    StateWithoutOrientation,
    /// A pass rule with state and S/SA matches any TCP segment.
    DefaultFlagsDropped,
    /// tos is compared with its ECN bits.
    EcnNotMasked,
    /// IP options pass without allow-opts.
    AllowOptsIgnored,
    /// A later fragment matches rules with ports.
    LaterFragmentPassed,
    /// At a limit, packets pass without a state.
    LimitPasses,
}

impl Defect {
    /// All.
    pub const ALL: [Self; 11] = [
        Self::FirstMatchWins,
        Self::QuickIgnoredInAnchors,
        Self::MatchQuickDoesNotStop,
        Self::TagFromWinnerOnly,
        Self::IcmpReplyMatchedByKeepState,
        Self::StateWithoutOrientation,
        Self::DefaultFlagsDropped,
        Self::EcnNotMasked,
        Self::AllowOptsIgnored,
        Self::LaterFragmentPassed,
        Self::LimitPasses,
    ];
}
