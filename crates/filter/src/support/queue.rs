//! Queues as classes of tc(8): both have the service curves of HFSC.

use std::fmt::Write as _;

use crate::rule::{Queue, ServiceCurve};

/// The commands that make the queues of every interface, parents first.
pub(super) fn commands(queues: &[Queue]) -> Vec<String> {
    let mut lines = Vec::new();
    for (index, queue) in queues.iter().enumerate() {
        let Some(device) = device(queues, queue) else {
            continue;
        };
        if queue.flows > 0 && queue.parent.is_none() && queue.bandwidth == ServiceCurve::default() {
            lines.push(fair_queue(queue, device));
            continue;
        }
        if queue.parent.is_none() {
            let default = default_class(queues, device);
            lines.push(format!(
                "tc qdisc add dev {device} root handle 1: hfsc{default}"
            ));
        }
        let parent = queue.parent.as_deref().and_then(|name| class(queues, name));
        let parent = parent.map_or(String::from("1:"), |parent| format!("1:{parent:x}"));
        let class = index + 1;
        lines.push(format!(
            "tc class add dev {device} parent {parent} classid 1:{class:x} hfsc{}",
            curves(queue)
        ));
        if queue.flows > 0 {
            lines.push(format!(
                "tc qdisc add dev {device} parent 1:{class:x} fq_codel flows {}",
                queue.flows
            ));
        }
    }
    lines
}

/// The number of a queue's class.
pub(super) fn class(queues: &[Queue], name: &str) -> Option<usize> {
    queues
        .iter()
        .position(|queue| &*queue.name == name)
        .map(|index| index + 1)
}

/// The interface of a queue: its own, else its parent's.
fn device<'q>(queues: &'q [Queue], queue: &'q Queue) -> Option<&'q str> {
    let mut queue = queue;
    // A queue has no more ancestors than there are queues.
    for _ in queues {
        if let Some(device) = &queue.interface {
            return Some(device);
        }
        let parent = queue.parent.as_deref()?;
        queue = queues.iter().find(|other| &*other.name == parent)?;
    }
    None
}

fn default_class(queues: &[Queue], name: &str) -> String {
    let is_default = |queue: &Queue| queue.default && device(queues, queue) == Some(name);
    let at = queues.iter().position(is_default);
    at.map_or_else(String::new, |at| format!(" default {:x}", at + 1))
}

fn fair_queue(queue: &Queue, device: &str) -> String {
    let mut line = format!(
        "tc qdisc add dev {device} root fq_codel flows {}",
        queue.flows
    );
    if queue.limit > 0 {
        let _ = write!(line, " limit {}", queue.limit);
    }
    line
}

/// Link share is pf's bandwidth, real time its `min`, the upper limit its `max`.
fn curves(queue: &Queue) -> String {
    let curve = |word: &str, curve: ServiceCurve| match curve {
        ServiceCurve { rate: 0, .. } => String::new(),
        ServiceCurve {
            rate,
            milliseconds: 0,
            ..
        } => format!(" {word} rate {rate}bit"),
        ServiceCurve {
            rate,
            burst,
            milliseconds,
        } => {
            format!(" {word} m1 {burst}bit d {milliseconds}ms m2 {rate}bit")
        }
    };
    curve("rt", queue.min) + &curve("ls", queue.bandwidth) + &curve("ul", queue.max)
}
