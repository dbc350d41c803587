//! Memory that packets are put into.

use anyhow::{Context as _, Result};

use super::setting::{fine_all, found, unchecked, write};
use crate::doctor::{Check, Context, Evidence, Fix, Severity, Verdict};

const MEMINFO: &str = "/proc/meminfo";
const THP: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const RESERVED: &str = "/proc/sys/vm/nr_hugepages";
/// Enough for two sockets of 4096 frames of 4 KiB, if a huge page is of 2 MiB.
const ENOUGH: &str = "16";

pub const HUGE_PAGES: Check = Check {
    id: "huge-pages",
    title: "there are no huge pages",
    severity: Severity::Advice,
    why: "Frames in pages of 4 KiB cost a miss of the TLB for almost every packet.",
    source: "Documentation/admin-guide/mm/hugetlbpage.rst; Documentation/admin-guide/mm/transhuge.rst",
    more: "It reads how many huge pages are reserved, and whether the kernel may make others by \
           itself (transparent huge pages). It is a finding only if neither is so.\n\n\
           The fix reserves 16, or as many as are free of fragments: reserve them at boot, with \
           hugepages= on the kernel's command line, to be sure of them.",
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
        return Ok(unchecked(format!("there is no {RESERVED}")));
    };
    let fix = Fix::Steps(vec![write(RESERVED, &now, ENOUGH)]);
    Ok(found(
        evidence,
        "None is reserved, and the kernel makes none by itself.",
        fix,
    ))
}

fn field<'a>(meminfo: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = meminfo.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(key, _)| *key == name)?;
    value.split_whitespace().next()
}

/// How much memory this process may lock, in bytes; none for no limit.
pub fn memlock(limits: &str) -> Result<Option<u64>> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max locked memory"));
    let soft = line.and_then(|line| line.split_whitespace().next());
    match soft.context("/proc/self/limits has no line of locked memory")? {
        "unlimited" => Ok(None),
        bytes => Ok(Some(bytes.parse().context("/proc/self/limits: no number")?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields() {
        let meminfo = "MemTotal: 7 kB\nHugePages_Total:       3\n";
        assert_eq!(field(meminfo, "HugePages_Total"), Some("3"));
        assert_eq!(field(meminfo, "HugePages"), None);
    }

    #[test]
    fn limits() {
        let limits =
            "Limit  Soft  Hard  Units\nMax locked memory         8388608   8388608   bytes\n";
        assert_eq!(memlock(limits).ok(), Some(Some(8_388_608)));
        let limits = "Max locked memory         unlimited            unlimited            bytes";
        assert_eq!(memlock(limits).ok(), Some(None));
        assert!(memlock("").is_err() && memlock("Max locked memory  x").is_err());
    }
}
