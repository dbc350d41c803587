//! Features of the kernel that tests need.

use testkit::Need;
use xsk::Feature;

/// What each test on sockets needs.
pub const ALL: &[Need] = &[
    Need::SOCKETS,
    Need::Probe(|| missing(Feature::Sockets)),
    Need::Probe(|| missing(Feature::XdpLink)),
];

pub const FRAGMENTS: Need = Need::Probe(|| missing(Feature::Fragments));
pub const RING_STATISTICS: Need = Need::Probe(|| missing(Feature::RingStatistics));
pub const RX_HINTS: Need = Need::Probe(|| missing(Feature::RxHints));
pub const TX_BUDGET: Need = Need::Probe(|| missing(Feature::TxBudget));
pub const TX_METADATA: Need = Need::Probe(|| missing(Feature::TxMetadata));

fn missing(feature: Feature) -> Option<String> {
    feature.probe().err().map(|error| error.to_string())
}
