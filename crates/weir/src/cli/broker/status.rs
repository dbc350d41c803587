//! `weir broker status` and `revoke`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use broker::client;
use clap::Args;
use comfy_table::{Cell, Row, presets};
use serde_json::Value;

use crate::cli::flags::Format;
use crate::cli::output;
use crate::report::text::{plain, table, unframed};

/// A lease is still held.
const STILL_HELD: u8 = 1;

/// `weir broker status`
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Socket of the broker for root
    #[arg(long, value_name = "PATH", default_value = client::ADMIN_SOCKET)]
    pub admin: PathBuf,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

/// `weir broker revoke`
#[derive(Debug, Args)]
pub struct RevokeArgs {
    /// Number of the lease, of `weir broker status`
    pub lease: u64,
    /// Socket of the broker for root
    #[arg(long, value_name = "PATH", default_value = client::ADMIN_SOCKET)]
    pub admin: PathBuf,
}

/// Runs `weir broker status`.
pub fn status(args: &StatusArgs) -> Result<ExitCode> {
    let status = client::status(&args.admin)?;
    output::print(match args.format {
        Format::Json => output::json(&status)?,
        Format::Table => text(&status),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `weir broker revoke`.
pub fn revoke(args: &RevokeArgs) -> Result<ExitCode> {
    let revoked = client::revoke(&args.admin, args.lease)?;
    let holders = holders(&revoked["holders"]);
    if revoked["killed"] == true {
        output::line(&format!("lease {}: killed {holders}", args.lease))?;
        return Ok(ExitCode::SUCCESS);
    }
    output::line(&format!(
        "lease {} is held by {holders}: end them; `kill = true` in the policy of tenant {} lets the broker do it",
        args.lease,
        word(&revoked["lease"]["tenant"])
    ))?;
    Ok(STILL_HELD.into())
}

fn text(status: &Value) -> String {
    let mut text = format!(
        "weir-broker {}, pid {}, policy {}\n",
        word(&status["version"]),
        status["pid"],
        word(&status["policy"]["file"])
    );
    if status["keeps_programs_over_a_restart"] != true {
        text += "no BPF filesystem: sockets receive nothing after the end of this broker\n";
    }
    for layer in list(&status["confinement"]["layers"]) {
        let (name, state) = (word(&layer[0]), &layer[1]);
        if let Some(missing) = state["absent"].as_str() {
            let _ = writeln!(text, "not confined by {name}: {}", plain(missing));
        }
    }
    text += "\n";
    text += &leases(list(&status["leases"]));
    text += &sessions(list(&status["sessions"]));
    text += &calls(&status["calls"]);
    text += &redirections(list(&status["redirections"]));
    text
}

/// Of a UMEM that the broker did not make it may not know the size.
fn memory(bytes: &Value) -> String {
    match bytes.as_u64() {
        None | Some(0) => "-".to_owned(),
        Some(bytes) => format!("{} KiB", bytes / 1024),
    }
}

fn leases(leases: &[Value]) -> String {
    if leases.is_empty() {
        return "no leases\n".to_owned();
    }
    let rows = leases.iter().map(|lease| {
        let flag = |name: &'static str| if lease[name] == true { name } else { "" };
        vec![
            lease["id"].to_string(),
            word(&lease["tenant"]),
            word(&lease["device"]),
            lease["queue"].to_string(),
            format!("{} {}", flag("rx"), flag("tx")).trim().to_owned(),
            word(&lease["mode"]),
            memory(&lease["memory"]),
            holders(&lease["holders"]),
        ]
    });
    let head = [
        "lease", "tenant", "device", "queue", "rings", "mode", "UMEM", "holders",
    ];
    columns(&head, rows)
}

fn sessions(sessions: &[Value]) -> String {
    if sessions.is_empty() {
        return String::new();
    }
    let rows = sessions.iter().map(|session| {
        vec![
            session["session"].to_string(),
            word(&session["tenant"]),
            word(&session["who"]),
        ]
    });
    format!("\n{}", columns(&["session", "tenant", "supervised"], rows))
}

fn calls(calls: &Value) -> String {
    let tenants = calls.as_object().into_iter().flatten();
    let rows: Vec<_> = tenants
        .flat_map(|(tenant, handlers)| {
            let handlers = handlers.as_object().into_iter().flatten();
            handlers.map(move |(handler, figures)| {
                let count = |name: &str| figures[name].to_string();
                vec![
                    plain(tenant),
                    plain(handler),
                    count("answered"),
                    count("refused"),
                    count("continued"),
                    count("gone"),
                    latency(figures, 0.5),
                    latency(figures, 0.99),
                ]
            })
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let head = [
        "tenant",
        "calls",
        "answered",
        "refused",
        "kernel",
        "gone",
        "median below",
        "99% below",
    ];
    format!("\n{}", columns(&head, rows.into_iter()))
}

fn redirections(backends: &[Value]) -> String {
    if backends.is_empty() {
        return String::new();
    }
    let rows = backends.iter().map(|backend| {
        vec![
            word(&backend["tenant"]),
            word(&backend["from"]),
            word(&backend["to"]),
            backend["connections"].to_string(),
            backend["failures"].to_string(),
        ]
    });
    let head = ["tenant", "redirected", "to", "connections", "failures"];
    format!("\n{}", columns(&head, rows))
}

/// The upper end of the bucket that a share of the calls is in or below.
fn latency(figures: &Value, share: f64) -> String {
    let buckets = list(&figures["latency_ns_below_power_of_two"]);
    let counts: Vec<u64> = buckets
        .iter()
        .map(|count| count.as_u64().unwrap_or(0))
        .collect();
    let wanted = counts.iter().sum::<u64>() as f64 * share;
    let mut seen = 0;
    for (power, count) in counts.iter().enumerate() {
        seen += count;
        if seen > 0 && seen as f64 >= wanted {
            return format!("{:.1} µs", (1_u64 << power.min(63)) as f64 / 1000.0);
        }
    }
    "-".to_owned()
}

fn columns(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = table(presets::NOTHING);
    table.set_header(Row::from(head.iter().map(Cell::new)));
    for row in rows {
        table.add_row(Row::from(row));
    }
    unframed(table) + "\n"
}

fn holders(holders: &Value) -> String {
    let names = list(holders)
        .iter()
        .map(|holder| format!("{} ({})", word(&holder["name"]), holder["pid"]));
    let names: Vec<_> = names.collect();
    if names.is_empty() {
        "nobody in /proc".to_owned()
    } else {
        names.join(", ")
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn word(value: &Value) -> String {
    plain(value.as_str().unwrap_or("-"))
}
