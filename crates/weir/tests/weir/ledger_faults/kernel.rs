//! Abilities of the running kernel, by its types: never by its version.

use std::collections::BTreeSet;

use anyhow::Result;
use weir::bpf::kernel_types::KernelTypes;

/// Abilities of the running kernel.
pub struct Kernel {
    reasons: BTreeSet<String>,
    /// Whether devices say that they take redirected frames, so that a redirect to one that does not is refused
    /// (Linux 6.3).
    pub has_xdp_features: bool,
}

impl Kernel {
    pub fn read() -> Result<Self> {
        let types = KernelTypes::read()?;
        let reasons = types.constants("skb_drop_reason").unwrap_or_default();
        let reasons = reasons.into_iter().map(|(name, _)| {
            let name = name.strip_prefix("SKB_DROP_REASON_").unwrap_or(&name);
            name.to_owned()
        });
        Ok(Self {
            reasons: reasons.collect(),
            has_xdp_features: types.constants("netdev_xdp_act").is_some(),
        })
    }

    /// Whether it has this reason.
    pub fn has(&self, reason: &str) -> bool {
        self.reasons.contains(reason)
    }
}
