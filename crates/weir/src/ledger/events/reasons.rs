//! The reasons for which the kernel frees packets, by the running kernel's numbers: they move from release to
//! release.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

use super::abi::REASON_WORDS;
use crate::bpf::kernel_types::KernelTypes;

/// The reasons whose packets a socket refused. Of others the socket is not counted: a host has many
/// connections that free packets in normal operation.
const OF_SOCKETS: [&str; 6] = [
    "SOCKET_RCVBUFF",
    "SOCKET_BACKLOG",
    "SOCKET_FILTER",
    "PROTO_MEM",
    "TCP_LISTEN_OVERFLOW",
    "PACKET_SOCK_ERROR",
];

/// Bits of a reason's number that name the subsystem that it belongs to (`SKB_DROP_REASON_SUBSYS_SHIFT` in
/// include/net/dropreason.h).
const SUBSYSTEM_SHIFT: u32 = 16;

/// The reasons by their number.
#[derive(Debug)]
pub struct Reasons {
    core: BTreeMap<u32, String>,
    subsystems: BTreeMap<u32, String>,
}

impl Reasons {
    /// Reads them from the running kernel's types.
    pub fn read(types: &KernelTypes) -> Result<Self> {
        let core = types.constants("skb_drop_reason").context(
            "this kernel gives no reasons for freed packets (enum skb_drop_reason, Linux 5.17)",
        )?;
        let subsystems = types
            .constants("skb_drop_reason_subsys")
            .unwrap_or_default();
        Ok(Self {
            core: named(core, "SKB_DROP_REASON_"),
            subsystems: named(subsystems, "SKB_DROP_REASON_SUBSYS_"),
        })
    }

    /// The name of a reason, without `SKB_DROP_REASON_`. Those of a subsystem have its name and a number: the
    /// types of its module are its own.
    pub fn name(&self, reason: u32) -> String {
        let subsystem = reason >> SUBSYSTEM_SHIFT;
        if subsystem == 0 {
            let name = self.core.get(&reason).cloned();
            return name.unwrap_or_else(|| format!("reason {reason}"));
        }
        let number = reason & ((1 << SUBSYSTEM_SHIFT) - 1);
        match self.subsystems.get(&subsystem) {
            Some(name) => format!("{name} {number}"),
            None => format!("subsystem {subsystem} {number}"),
        }
    }

    /// The set of the reasons of sockets, a bit for each number.
    pub fn of_sockets(&self) -> [u64; REASON_WORDS] {
        let mut words = [0; REASON_WORDS];
        for (number, name) in &self.core {
            if OF_SOCKETS.contains(&name.as_str())
                && let Some(word) = words.get_mut(*number as usize / 64)
            {
                *word |= 1 << (number % 64);
            }
        }
        words
    }
}

fn named(constants: Vec<(String, i64)>, prefix: &str) -> BTreeMap<u32, String> {
    let constants = constants.into_iter().filter_map(|(name, value)| {
        let name = name.strip_prefix(prefix).unwrap_or(&name).to_owned();
        Some((u32::try_from(value).ok()?, name))
    });
    constants.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_the_numbers_of_the_kernel_that_runs() {
        let reasons = Reasons {
            core: named(
                vec![
                    ("SKB_CONSUMED".into(), 1),
                    ("SKB_DROP_REASON_NO_SOCKET".into(), 3),
                    ("SKB_DROP_REASON_SOCKET_RCVBUFF".into(), 70),
                ],
                "SKB_DROP_REASON_",
            ),
            subsystems: named(
                vec![("SKB_DROP_REASON_SUBSYS_OPENVSWITCH".into(), 3)],
                "SKB_DROP_REASON_SUBSYS_",
            ),
        };
        assert_eq!(reasons.name(3), "NO_SOCKET");
        assert_eq!(reasons.name(1), "SKB_CONSUMED");
        assert_eq!(reasons.name(9), "reason 9");
        assert_eq!(reasons.name(3 << 16 | 5), "OPENVSWITCH 5");
        assert_eq!(reasons.name(4 << 16 | 5), "subsystem 4 5");
        assert_eq!(reasons.of_sockets(), [0, 1 << 6, 0, 0]);
    }
}
