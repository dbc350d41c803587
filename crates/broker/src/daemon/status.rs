//! The state of the broker as JSON.

use super::server::Server;
use crate::supervise::handlers::connect::Redirections;
use crate::supervise::metrics::Figures;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The answer to `weir 2 status`.
pub(super) fn json(server: &Server) -> Value {
    let leases = server.leases.list();
    let holders = server.leases.all_holders(&leases);
    let described: Vec<Value> = leases
        .iter()
        .map(|lease| {
            let holders = holders.get(&lease.inode).cloned().unwrap_or_default();
            let mut value = serde_json::to_value(lease).unwrap_or_default();
            if let Some(fields) = value.as_object_mut() {
                fields.insert("holders".into(), json!(holders));
            }
            value
        })
        .collect();
    let metrics = server.supervision.all_metrics();
    let figures: BTreeMap<_, _> = metrics
        .iter()
        .map(|(tenant, metrics)| {
            let handlers: BTreeMap<_, _> = metrics
                .figures()
                .into_iter()
                .map(|(name, figures)| (name, describe(&figures)))
                .collect();
            (tenant, handlers)
        })
        .collect();
    let redirections = server.supervision.all_redirections();
    let redirections: Vec<_> = redirections
        .iter()
        .flat_map(|(tenant, redirections)| redirected(tenant, redirections))
        .collect();
    let policy = server.policy();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "started": server.started,
        "keeps_programs_over_a_restart": server.keeps_programs,
        "policy": {
            "file": server.policy_file.display().to_string(),
            "tenants": policy.tenants.iter().map(|tenant| &tenant.name).collect::<Vec<_>>(),
        },
        "confinement": server.confinement,
        "leases": described,
        "sessions": server.supervision.list(),
        "calls": figures,
        "redirections": redirections,
        "lost_log_lines": server.supervision.lost_lines(),
    })
}

/// Each backend of a tenant's redirections.
fn redirected(tenant: &str, redirections: &Redirections) -> Vec<Value> {
    let backends = redirections.backends().map(|(from, backend)| {
        json!({
            "tenant": tenant,
            "from": from,
            "to": backend.address(),
            "connections": backend.connections(),
            "failures": backend.failures(),
        })
    });
    backends.collect()
}

fn describe(figures: &Figures) -> Value {
    json!({
        "answered": figures.answered,
        "refused": figures.refused,
        "continued": figures.continued,
        "gone": figures.gone,
        "latency_ns_below_power_of_two": figures.buckets,
        "latency_ns_sum": figures.nanoseconds,
    })
}
