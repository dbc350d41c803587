//! Huge pages.

use anyhow::Result;

use super::setting::{fine_all, found, unchecked};
use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::severity::Severity;
use crate::doctor::verdict::Verdict;

const MEMINFO: &str = "/proc/meminfo";
const THP: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const RESERVED: &str = "/proc/sys/vm/nr_hugepages";
/// Enough for two sockets of 4096 frames of 4 KiB, with huge pages of 2 MiB.
const ENOUGH: &str = "16";

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[HUGE_PAGES];

const HUGE_PAGES: Check = Check {
    id: "huge-pages",
    title: "there are no huge pages",
    severity: Severity::Advice,
    why: "With frames in pages of 4 KiB almost every packet costs a TLB miss.",
    source: "Documentation/admin-guide/mm/hugetlbpage.rst; Documentation/admin-guide/mm/transhuge.rst",
    more: "Reads the number of reserved huge pages and the mode of transparent huge pages. It is a \
           finding only if none is reserved and the mode is never.\n\n\
           The fix reserves 16, or fewer if memory is fragmented: to be sure, reserve them at boot \
           with hugepages= on the kernel's command line.",
    counters: &[],
    run: huge_pages,
};

fn huge_pages(context: &Context) -> Result<Vec<Verdict>> {
    let meminfo = context.read(MEMINFO)?;
    let Some(reserved) = field(&meminfo, "HugePages_Total") else {
        return Ok(Vec::new());
    };
    let thp = context
        .read_if_there(THP)?
        .unwrap_or_else(|| "[never]".into());
    let evidence = vec![
        Evidence::new(format!("{MEMINFO}, HugePages_Total"), reserved),
        Evidence::new(THP, &thp),
    ];
    if reserved != "0" || !thp.contains("[never]") {
        return Ok(fine_all(evidence));
    }
    let Some(now) = context.read_if_there(RESERVED)? else {
        return Ok(unchecked(format!("{RESERVED} does not exist")));
    };
    let message = "No huge page is reserved, and transparent huge pages are off.";
    let fix = Fix::write(RESERVED, &now, ENOUGH);
    Ok(found(evidence, message, fix))
}

fn field<'a>(meminfo: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = meminfo.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(key, _)| *key == name)?;
    value.split_whitespace().next()
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let meminfo = "MemTotal: 7 kB\nHugePages_Total:       3\n";
        assert_eq!(field(meminfo, "HugePages_Total"), Some("3"));
        assert_eq!(field(meminfo, "HugePages"), None);
    }
}
