//! The balances between stages.

mod draft;
mod ground;
mod receive;
mod transmit;
mod xdp;

use self::ground::Ground;
use super::books::Closed;
use super::delta::Deltas;
use super::method::Method;
use crate::ledger::sheet::Edge;
use crate::ledger::snapshot::Snapshot;

/// All balances of the namespaces.
pub fn edges(
    method: Method,
    before: &Snapshot,
    after: &Snapshot,
    deltas: &Deltas,
    closed: &Closed,
) -> Vec<Edge> {
    let mut edges = Vec::new();
    for (&netns, namespace) in &after.namespaces {
        let ground = Ground {
            method,
            before,
            after,
            deltas,
            losses: &closed.losses,
            refusals: &closed.refusals,
            netns,
            namespace,
        };
        for (&index, device) in &namespace.devices {
            edges.extend(ground.xdp(index, device));
            edges.extend(ground.af_xdp(index, device));
            edges.extend(ground.redirects(index, device));
        }
        if !after.devices_only {
            edges.push(ground.devices_to_ip());
            edges.extend(ground.stack_to_ip());
            edges.push(ground.ip_to_transport());
            edges.push(ground.transport());
            edges.push(ground.sending());
        }
        for (&index, device) in &namespace.devices {
            edges.extend(ground.qdisc(index, device));
        }
    }
    edges.retain(|edge| !edge.is_idle());
    edges
}
