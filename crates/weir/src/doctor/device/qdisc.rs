//! Queueing disciplines: their locks, and the command that restores one.

use std::collections::BTreeSet;

use crate::doctor::context::{Qdisc, TcHandle};

/// Disciplines without a lock per packet: `noqueue` has no queue, `pfifo_fast` is lockless
/// (`TCQ_F_NOLOCK`, Linux 4.16), `noop` drops everything.
const LOCKLESS: [&str; 3] = ["noqueue", "pfifo_fast", "noop"];
/// Disciplines that pass packets to one discipline per transmit queue.
const PER_QUEUE: [&str; 3] = ["mq", "mqprio", "taprio"];
/// Disciplines that shape traffic, which no other can replace.
const SHAPERS: [&str; 8] = ["tbf", "htb", "hfsc", "cake", "netem", "cbs", "etf", "prio"];

/// The root discipline of `device`.
pub fn root(qdiscs: &[Qdisc], device: u32) -> Option<&Qdisc> {
    qdiscs
        .iter()
        .find(|qdisc| qdisc.device == device && qdisc.parent == TcHandle::ROOT)
}

/// The disciplines directly below `root`.
pub fn children<'a>(qdiscs: &'a [Qdisc], root: &'a Qdisc) -> impl Iterator<Item = &'a Qdisc> {
    qdiscs.iter().filter(|qdisc| {
        qdisc.device == root.device
            && qdisc.parent != TcHandle::ROOT
            && qdisc.parent.major == root.handle.major
    })
}

/// The disciplines with a lock on the way through `root`.
pub fn locked<'a>(qdiscs: &'a [Qdisc], root: &'a Qdisc) -> BTreeSet<&'a str> {
    let is_locked = |kind: &str| !LOCKLESS.contains(&kind) && !PER_QUEUE.contains(&kind);
    std::iter::once(root)
        .chain(children(qdiscs, root).filter(|_| is_per_queue(root)))
        .map(|qdisc| qdisc.kind.as_str())
        .filter(|kind| is_locked(kind))
        .collect()
}

/// Whether `root` has one lock per transmit queue.
pub fn is_per_queue(root: &Qdisc) -> bool {
    PER_QUEUE.contains(&root.kind.as_str())
}

/// Whether `kind` shapes or prioritises traffic.
pub fn is_shaper(kind: &str) -> bool {
    SHAPERS.contains(&kind)
}

/// The command that restores `root` on `device`; none if its settings are not known.
pub fn restore(device: &str, root: &Qdisc) -> Option<String> {
    if root.handle == TcHandle::UNSPEC {
        return Some(format!("tc qdisc del dev {device} root"));
    }
    let (kind, handle) = (&root.kind, root.handle.major);
    let settings = root.tc_settings()?;
    Some(format!(
        "tc qdisc replace dev {device} root handle {handle:x}: {kind} {settings}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::context::QdiscOptions;

    const MAJOR: TcHandle = TcHandle {
        major: 0x8004,
        minor: 0,
    };

    fn qdisc(kind: &str, handle: TcHandle, parent: TcHandle) -> Qdisc {
        Qdisc {
            device: 3,
            kind: kind.into(),
            handle,
            parent,
            options: QdiscOptions::Unknown,
            statistics: None,
        }
    }

    #[test]
    fn deleting_the_root_restores_the_default() {
        let default = qdisc("fq", TcHandle::UNSPEC, TcHandle::ROOT);
        let restored = restore("tap0", &default);
        assert_eq!(restored.as_deref(), Some("tc qdisc del dev tap0 root"));
    }

    #[test]
    fn known_settings_are_restored() {
        let mut pfifo = qdisc("pfifo", MAJOR, TcHandle::ROOT);
        assert_eq!(restore("tap0", &pfifo), None);
        pfifo.options = QdiscOptions::Fifo { limit: 1000 };
        assert_eq!(
            restore("tap0", &pfifo).as_deref(),
            Some("tc qdisc replace dev tap0 root handle 8004: pfifo limit 1000")
        );
    }

    #[test]
    fn a_lock_may_be_below_the_root() {
        let queue = TcHandle { major: 0, minor: 1 };
        let ingress = TcHandle {
            major: 0xffff,
            minor: 0xfff1,
        };
        let qdiscs = [
            qdisc("mq", TcHandle::UNSPEC, TcHandle::ROOT),
            qdisc("fq_codel", TcHandle::UNSPEC, queue),
            qdisc("clsact", ingress, ingress),
        ];
        let found = root(&qdiscs, 3).map(|root| (root.kind.as_str(), locked(&qdiscs, root)));
        assert_eq!(found, Some(("mq", BTreeSet::from(["fq_codel"]))));
        for kind in ["noqueue", "pfifo_fast"] {
            assert!(locked(&[], &qdisc(kind, MAJOR, TcHandle::ROOT)).is_empty());
        }
        assert!(root(&qdiscs, 4).is_none());
    }
}
