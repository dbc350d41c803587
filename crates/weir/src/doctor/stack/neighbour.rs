//! The table of neighbours: ARP and neighbour discovery.

use anyhow::{Context as _, Result};
use hostnet::mib::Mib;

use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::host::setting::{NOT_INITIAL, unchecked};
use crate::doctor::mib::{Moved, period};
use crate::doctor::severity::Severity;
use crate::doctor::step::Step;
use crate::doctor::verdict::{HOST, Verdict};

/// A table: its statistics, its name in their counters, the directory of its settings.
struct Table {
    statistics: &'static str,
    name: &'static str,
    fulls: &'static str,
    swept: &'static str,
    settings: &'static str,
}

const TABLES: [Table; 2] = [
    Table {
        statistics: "/proc/net/stat/arp_cache",
        name: "arp_cache",
        fulls: "arp_cache.table_fulls",
        swept: "arp_cache.forced_gc_runs",
        settings: "/proc/sys/net/ipv4/neigh/default",
    },
    Table {
        statistics: "/proc/net/stat/ndisc_cache",
        name: "ndisc_cache",
        fulls: "ndisc_cache.table_fulls",
        swept: "ndisc_cache.forced_gc_runs",
        settings: "/proc/sys/net/ipv6/neigh/default",
    },
];
/// A table this full is swept at each new entry.
const FULL_PERCENT: u64 = 90;
/// The least `gc_thresh3` that the fix sets: four times the kernel's default.
const LEAST_LIMIT: u64 = 4096;

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[NEIGHBOUR_TABLE];

const NEIGHBOUR_TABLE: Check = Check {
    id: "neighbour-table",
    title: "the neighbour table is full (neighbour table overflow, gc_thresh3)",
    severity: Severity::Critical,
    why: "Without an entry for the next hop nothing can be sent to it: the packet is lost, and new hosts are unreachable.",
    source: "neigh_alloc and neigh_forced_gc in net/core/neighbour.c; arp(7), gc_thresh3",
    more: "Reads table_fulls and forced_gc_runs in /proc/net/stat/arp_cache and ndisc_cache twice, some \
           seconds apart: it is a finding if entries are refused meanwhile, or if the table is swept \
           while it has 90% of net.ipv4.neigh.default.gc_thresh3 (or ipv6). The tables and their \
           limits are of the whole host, so only the first network namespace shows them.\n\n\
           The fix makes the table four times as large: gc_thresh3, and gc_thresh2 and gc_thresh1 as \
           its half and its quarter. The cause may also be a scan of a large subnet: `ip -s neigh` \
           has its FAILED entries. `nstat` does not have these counters; `lnstat -c 3 -f arp_cache` \
           has.",
    counters: &[TABLES[0].statistics, TABLES[1].statistics],
    run: table,
};

fn table(context: &Context) -> Result<Vec<Verdict>> {
    if !context.is_initial_netns() {
        return Ok(unchecked(NOT_INITIAL));
    }
    let mut verdicts = Vec::new();
    for table in &TABLES {
        // Without IPv6 there is one table.
        if context.read_if_there(table.statistics)?.is_some() {
            verdicts.push(of_table(context, table)?);
        }
    }
    Ok(verdicts)
}

fn of_table(context: &Context, table: &Table) -> Result<Verdict> {
    let &Table {
        statistics,
        name,
        fulls,
        swept,
        settings,
    } = table;
    let moved = Moved::of_table(context, (statistics, name), &[fulls, swept])?;
    let (refused, swept) = (moved.of(fulls), moved.of(swept));
    let entries = Mib::parse_stat(name, &context.read(statistics)?).get(&format!("{name}.entries"));
    let entries = entries.with_context(|| format!("{statistics} has no column of entries"))?;
    let limit = format!("{settings}/gc_thresh3");
    let limit_text = context.read(&limit)?;
    let most: u64 = limit_text
        .parse()
        .with_context(|| format!("{limit} is not a number"))?;
    let mut evidence = vec![
        Evidence::new(format!("{statistics}, entries"), entries.to_string()),
        Evidence::new(&limit, &limit_text),
    ];
    evidence.extend(moved.evidence()?);
    let nearly = swept > 0 && entries * 100 >= most * FULL_PERCENT;
    if refused == 0 && !nearly {
        return Ok(Verdict::fine(HOST, evidence));
    }
    let message = if refused > 0 {
        format!(
            "{refused} neighbours were refused {}: the table has {entries} of at most {most} entries.",
            period(refused, moved.seconds)
        )
    } else {
        format!(
            "The table has {entries} of at most {most} entries, and was swept {swept} times {}.",
            period(swept, moved.seconds)
        )
    };
    let new = (most * 4).max(LEAST_LIMIT);
    let mut steps = Vec::new();
    for (name, value) in [
        ("gc_thresh3", new),
        ("gc_thresh2", new / 2),
        ("gc_thresh1", new / 4),
    ] {
        let path = format!("{settings}/{name}");
        let old = context.read(&path)?;
        steps.push(Step::write(path, old, value.to_string()));
    }
    Ok(Verdict::found(HOST, evidence, message, Fix::Steps(steps)))
}
