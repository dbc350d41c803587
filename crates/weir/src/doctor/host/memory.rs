//! Huge pages.

use anyhow::Result;

use super::setting::{fine_all, found};
use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::severity::Severity;
use crate::doctor::verdict::Verdict;

const THP: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// Those of 2 MiB, which a UMEM takes. The default size, of `vm.nr_hugepages`, may be another one: 32 MiB on arm64 with
/// pages of 16 KiB.
const RESERVED: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
/// Enough for two sockets of 4096 frames of 4 KiB.
const ENOUGH: &str = "16";

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[HUGE_PAGES];

const HUGE_PAGES: Check = Check {
    id: "huge-pages",
    title: "there are no huge pages",
    severity: Severity::Advice,
    why: "With frames in pages of 4 KiB almost every packet costs a TLB miss.",
    source: "Documentation/admin-guide/mm/hugetlbpage.rst; Documentation/admin-guide/mm/transhuge.rst",
    more: "Reads the number of reserved huge pages of 2 MiB and the mode of transparent huge pages. It is a \
           finding only if none is reserved and the mode is never.\n\n\
           The fix reserves 16, or fewer if memory is fragmented: to be sure, reserve them at boot \
           with hugepages= on the kernel's command line.",
    counters: &[],
    run: huge_pages,
};

fn huge_pages(context: &Context) -> Result<Vec<Verdict>> {
    let Some(reserved) = context.read_if_there(RESERVED)? else {
        return Ok(Vec::new());
    };
    let thp = context
        .read_if_there(THP)?
        .unwrap_or_else(|| "[never]".into());
    let evidence = vec![Evidence::new(RESERVED, &reserved), Evidence::new(THP, &thp)];
    if reserved != "0" || !thp.contains("[never]") {
        return Ok(fine_all(evidence));
    }
    let message = "No huge page of 2 MiB is reserved, and transparent huge pages are off.";
    let fix = Fix::write(RESERVED, &reserved, ENOUGH);
    Ok(found(evidence, message, fix))
}
