//! Drivers, offloads, queues, rings, interrupt coalescing, statistics, and the steering of received packets to
//! queues, by the ioctl of ethtool(8) (linux/ethtool.h).
//!
//! Every function works in the calling thread's network namespace.
//!
//! Two settings choose the queue of a received packet: [flow rules](flow_rules) come first, and
//! [RSS](rss) has the rest. Both outlive the program that changes them; [`Steering`] changes them
//! for as long as it lives. Netlink has the RSS table since Linux 6.3 to read and 6.17 to write, and
//! no flow rules; the ioctl has both on every kernel.

#[cfg(test)]
mod card;
mod channels;
mod coalesce;
mod driver;
mod features;
mod flow;
mod ioctl;
mod rings;
mod rss;
mod rule;
mod rxnfc;
mod statistics;
mod steering;
mod strings;

pub use channels::{Channels, Queues, channels};
pub use coalesce::{RxCoalesce, rx_coalesce};
pub use driver::driver;
pub use features::{Feature, Offload, features, set, set_feature};
pub use flow::{delete_flow_rule, flow_rules, insert_flow_rule};
pub(crate) use ioctl::page_size;
pub use rings::{RxRing, rx_ring};
pub use rss::{Rss, reset_rss, rss, set_rss_key, set_rss_table};
pub use rule::{Addresses, FlowRule, InstalledRule, Masked, Transport};
pub use statistics::{Statistic, rx_packets_by_queue, statistics};
pub use steering::Steering;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{ErrorKind, Result};

    #[test]
    fn the_loopback_has_features_and_no_rings() -> Result<()> {
        let features = features("lo")?;
        let loopback = features.iter().find(|feature| feature.name == "loopback");
        let loopback = loopback.expect("a feature of the loopback");
        assert!(loopback.on && !loopback.changeable);
        assert_eq!(driver("lo")?, None);
        assert_eq!(rx_ring("lo")?, None);
        assert_eq!(channels("lo")?, None);
        assert_eq!(rx_coalesce("lo")?, None);
        assert_eq!(rss("lo")?, None);
        assert_eq!(flow_rules("lo")?, None);
        assert_eq!(statistics("lo")?, []);
        Ok(())
    }

    #[test]
    fn a_device_that_is_not_there_is_an_error() {
        let error = channels("hostnet-none").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let error = features("a-name-that-is-too-long").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}
