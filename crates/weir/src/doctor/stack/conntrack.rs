//! Connection tracking.

use anyhow::{Context as _, Result};

use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::host::setting::{fine_all, found};
use crate::doctor::mib::Moved;
use crate::doctor::severity::Severity;
use crate::doctor::verdict::Verdict;

const STATISTICS: &str = "/proc/net/stat/nf_conntrack";
const COUNT: &str = "/proc/sys/net/netfilter/nf_conntrack_count";
const MOST: &str = "/proc/sys/net/netfilter/nf_conntrack_max";
const FULL_PERCENT: u64 = 95;

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[CONNTRACK_FULL];

const CONNTRACK_FULL: Check = Check {
    id: "conntrack-full",
    title: "the connection tracking table is full (nf_conntrack: table full, dropping packet)",
    severity: Severity::Critical,
    why: "The first packet of a connection that finds the table full is dropped, and connections that are not yet confirmed are thrown out early.",
    source: "__nf_conntrack_alloc in net/netfilter/nf_conntrack_core.c; Documentation/networking/nf_conntrack-sysctl.rst",
    more: "Reads nf_conntrack_count and nf_conntrack_max, and drop and early_drop in \
           /proc/net/stat/nf_conntrack twice, some seconds apart: it is a finding if one of them \
           grows meanwhile, or from 95% of the maximum. The count is of this network namespace; the \
           maximum applies to each and can be set in the first only.\n\n\
           The fix doubles the maximum; an entry takes about 300 bytes. Connections that need no \
           tracking: notrack in nftables' raw priority. Long-lived ones: \
           nf_conntrack_tcp_timeout_established, five days by default. `conntrack -S` and `conntrack \
           -C` show the effect.",
    counters: &[STATISTICS],
    run: conntrack,
};

fn conntrack(context: &Context) -> Result<Vec<Verdict>> {
    let (Some(count), Some(most)) = (context.read_if_there(COUNT)?, context.read_if_there(MOST)?)
    else {
        return Ok(Vec::new());
    };
    let number = |text: &str| -> Result<u64> {
        text.parse()
            .with_context(|| format!("{COUNT} or {MOST} is not a number"))
    };
    let (used, limit) = (number(&count)?, number(&most)?);
    let mut evidence = vec![Evidence::new(COUNT, &count), Evidence::new(MOST, &most)];
    let mut refused = None;
    // CONFIG_NF_CONNTRACK_PROCFS.
    if context.read_if_there(STATISTICS)?.is_some() {
        let columns = ["nf_conntrack.drop", "nf_conntrack.early_drop"];
        let moved = Moved::of_table(context, (STATISTICS, "nf_conntrack"), &columns)?;
        evidence.extend(moved.evidence()?);
        refused = (moved.by() > 0).then(|| (moved.by(), moved.period()));
    }
    // 0 is no limit.
    let full = limit > 0 && used * 100 >= limit * FULL_PERCENT;
    if refused.is_none() && !full {
        return Ok(fine_all(evidence));
    }
    let refused = refused.map_or_else(String::new, |(count, period)| {
        format!(" It refused or threw out {count} {period}.")
    });
    let message = format!("The table has {used} of at most {limit} connections.{refused}");
    let fix = if context.is_initial_netns() {
        Fix::write(MOST, &most, (limit * 2).to_string())
    } else {
        Fix::manual(
            "in the initial network namespace: double net.netfilter.nf_conntrack_max; here: shorten the timeouts, or exempt traffic with notrack",
        )
    };
    Ok(found(evidence, message, fix))
}
