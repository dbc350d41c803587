//! Queueing disciplines: which take a lock for each packet, and how to put one back.

use std::collections::BTreeSet;

use super::command::words;
use hostnet::rtnetlink::{Qdisc, TcHandle};

/// Those that need no lock of their own to take a packet: `noqueue` has no queue, `pfifo_fast`
/// is lockless (`TCQ_F_NOLOCK`, Linux 4.16), `noop` drops everything.
const LOCKLESS: [&str; 3] = ["noqueue", "pfifo_fast", "noop"];
/// Those that only hand a packet on to a discipline for each transmit queue.
const PER_QUEUE: [&str; 3] = ["mq", "mqprio", "taprio"];
/// Those that hold packets back, so that nothing else can stand in for them.
const SHAPERS: [&str; 8] = ["tbf", "htb", "hfsc", "cake", "netem", "cbs", "etf", "prio"];

/// What is at the root of `device`, where every packet that is sent passes.
pub fn root(qdiscs: &[Qdisc], device: u32) -> Option<&Qdisc> {
    qdiscs
        .iter()
        .find(|qdisc| qdisc.device == device && qdisc.parent == TcHandle::ROOT)
}

/// The locked disciplines that packets to the device of `root` may meet at.
pub fn locked<'a>(qdiscs: &'a [Qdisc], root: &'a Qdisc) -> BTreeSet<&'a str> {
    let is_locked = |kind: &str| !LOCKLESS.contains(&kind) && !PER_QUEUE.contains(&kind);
    let below = qdiscs.iter().filter(|qdisc| {
        PER_QUEUE.contains(&root.kind.as_str())
            && qdisc.device == root.device
            && qdisc.parent.major == root.handle.major
    });
    std::iter::once(root)
        .chain(below)
        .map(|qdisc| qdisc.kind.as_str())
        .filter(|kind| is_locked(kind))
        .collect()
}

/// Whether packets to the device of `root` are spread over a lock for each transmit queue.
pub fn is_per_queue(root: &Qdisc) -> bool {
    PER_QUEUE.contains(&root.kind.as_str())
}

/// Whether `kind` limits a rate or orders packets on purpose.
pub fn is_shaper(kind: &str) -> bool {
    SHAPERS.contains(&kind)
}

/// The command that puts `root` back on `device` as it is; none if that cannot be told.
pub fn restore(device: &str, root: &Qdisc) -> Option<Vec<String>> {
    if root.handle == TcHandle::UNSPEC {
        return Some(words(&format!("tc qdisc del dev {device} root")));
    }
    let settings = root.tc_settings()?;
    let (kind, handle) = (&root.kind, root.handle.major);
    Some(words(&format!(
        "tc qdisc replace dev {device} root handle {handle:x}: {kind} {settings}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hostnet::rtnetlink::{FqCodelOptions, QdiscOptions};

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
            options: QdiscOptions::None,
        }
    }

    fn restored(qdisc: &Qdisc) -> Option<String> {
        restore("tap0", qdisc).map(|words| words.join(" "))
    }

    #[test]
    fn the_default_comes_back_by_itself() {
        let default = qdisc("fq", TcHandle::UNSPEC, TcHandle::ROOT);
        assert_eq!(
            restored(&default).as_deref(),
            Some("tc qdisc del dev tap0 root")
        );
    }

    #[test]
    fn settings_come_back() {
        let mut pfifo = qdisc("pfifo", MAJOR, TcHandle::ROOT);
        assert_eq!(restored(&pfifo), None, "a limit that is not known");
        pfifo.options = QdiscOptions::Fifo { limit: 1000 };
        assert_eq!(
            restored(&pfifo).as_deref(),
            Some("tc qdisc replace dev tap0 root handle 8004: pfifo limit 1000")
        );
        let mut codel = qdisc("fq_codel", MAJOR, TcHandle::ROOT);
        codel.options = QdiscOptions::FqCodel(FqCodelOptions {
            target: Some(4999),
            ecn: Some(true),
            ..FqCodelOptions::default()
        });
        assert_eq!(
            restored(&codel).as_deref(),
            Some("tc qdisc replace dev tap0 root handle 8004: fq_codel target 5000us ecn")
        );
        assert_eq!(restored(&qdisc("tbf", MAJOR, TcHandle::ROOT)), None);
    }

    #[test]
    fn a_lock_may_be_below_one_for_each_queue() {
        let queue = TcHandle { major: 0, minor: 1 };
        let qdiscs = [
            qdisc("mq", TcHandle::UNSPEC, TcHandle::ROOT),
            qdisc("fq_codel", TcHandle::UNSPEC, queue),
            qdisc("clsact", TcHandle::INGRESS, TcHandle::INGRESS),
        ];
        let found = root(&qdiscs, 3).map(|root| (root.kind.as_str(), locked(&qdiscs, root)));
        assert_eq!(found, Some(("mq", BTreeSet::from(["fq_codel"]))));
        for kind in ["noqueue", "pfifo_fast"] {
            assert!(locked(&[], &qdisc(kind, MAJOR, TcHandle::ROOT)).is_empty());
        }
        assert!(root(&qdiscs, 4).is_none());
    }
}
