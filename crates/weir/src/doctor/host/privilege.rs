//! The capabilities and limits of this process.

use anyhow::{Context as _, Result};

use super::setting::{fine_all, found, unchecked};
use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::severity::Severity;
use crate::doctor::verdict::Verdict;

const STATUS: &str = "/proc/self/status";
const LIMITS: &str = "/proc/self/limits";
/// The bytes of a UMEM of 4096 frames of 4 KiB.
const UMEM: u64 = 16 << 20;

/// Bits of linux/capability.h.
const NET_ADMIN: u32 = 12;
const NET_RAW: u32 = 13;
const IPC_LOCK: u32 = 14;
const SYS_ADMIN: u32 = 21;
const PERFMON: u32 = 38;
const BPF: u32 = 39;

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[CAPABILITIES];

const CAPABILITIES: Check = Check {
    id: "capabilities",
    title: "capabilities for XDP or AF_XDP are missing",
    severity: Severity::Warning,
    why: "An AF_XDP socket needs CAP_NET_RAW and locked memory, an XDP program CAP_NET_ADMIN and CAP_BPF, and tracing CAP_PERFMON.",
    source: "capabilities(7); net/xdp/xsk.c, xsk_create; net/xdp/xdp_umem.c, xdp_umem_account_pages",
    more: "Reads the effective capabilities and RLIMIT_MEMLOCK of this process. CAP_SYS_ADMIN \
           includes CAP_BPF and CAP_PERFMON; CAP_IPC_LOCK replaces a limit of 16 MiB, the size of a \
           UMEM of 4096 frames. CAP_SYS_RESOURCE is not required.\n\n\
           An ordinary user has none of them; that is no finding.",
    counters: &[],
    run: capabilities,
};

fn capabilities(context: &Context) -> Result<Vec<Verdict>> {
    let held = effective(&context.read(STATUS)?)?;
    let limit = memlock(&context.read(LIMITS)?)?;
    let missing = missing(held, limit);
    let shown = limit.map_or("unlimited".into(), |bytes| format!("{bytes} bytes"));
    let evidence = vec![
        Evidence::new(format!("{STATUS}, CapEff"), format!("{held:016x}")),
        Evidence::new(format!("{LIMITS}, Max locked memory"), shown),
    ];
    if missing.is_empty() {
        return Ok(fine_all(evidence));
    }
    if held == 0 && !context.is_root() {
        return Ok(unchecked(
            "an ordinary user has no capabilities: run as root, e.g. with sudo",
        ));
    }
    let message = format!("Missing: {}.", missing.join(", "));
    let fix = "grant them to the container or service: --cap-add of docker or podman, CapabilityBoundingSet= and LimitMEMLOCK= of systemd";
    Ok(found(evidence, message, Fix::manual(fix)))
}

fn effective(status: &str) -> Result<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = line.context("/proc/self/status has no CapEff")?;
    u64::from_str_radix(bits.trim(), 16).context("/proc/self/status: CapEff is not hexadecimal")
}

/// `RLIMIT_MEMLOCK` in bytes; none if it is unlimited.
fn memlock(limits: &str) -> Result<Option<u64>> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max locked memory"));
    let soft = line.and_then(|line| line.split_whitespace().next());
    match soft.context("/proc/self/limits has no line of locked memory")? {
        "unlimited" => Ok(None),
        bytes => {
            Ok(Some(bytes.parse().context(
                "/proc/self/limits: locked memory is not a number",
            )?))
        }
    }
}

/// The missing capabilities for AF_XDP, XDP and tracing.
fn missing(held: u64, memlock: Option<u64>) -> Vec<&'static str> {
    let has = |bit: u32| held & (1 << bit) != 0;
    let may_lock = has(IPC_LOCK) || memlock.is_none_or(|bytes| bytes >= UMEM);
    [
        ("CAP_NET_ADMIN", has(NET_ADMIN)),
        ("CAP_NET_RAW", has(NET_RAW)),
        ("CAP_BPF", has(BPF) || has(SYS_ADMIN)),
        ("CAP_PERFMON", has(PERFMON) || has(SYS_ADMIN)),
        ("CAP_IPC_LOCK or RLIMIT_MEMLOCK of 16 MiB", may_lock),
    ]
    .into_iter()
    .filter_map(|(name, has)| (!has).then_some(name))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_capabilities_are_named() {
        assert_eq!(missing(u64::MAX, Some(0)), Vec::<&str>::new());
        assert_eq!(missing(!(1_u64 << BPF), Some(0)), Vec::<&str>::new());
        assert_eq!(missing(!(1_u64 << NET_RAW), None), ["CAP_NET_RAW"]);
        let no_lock = !(1_u64 << IPC_LOCK);
        assert_eq!(missing(no_lock, Some(8 << 20)).len(), 1);
        assert_eq!(missing(no_lock, None).len(), 0);
        assert_eq!(missing(no_lock, Some(UMEM)).len(), 0);
    }

    #[test]
    fn capabilities_are_hexadecimal() {
        let status = "CapPrm:\t0\nCapEff:\t000001fffeffffff\n";
        assert_eq!(effective(status).ok(), Some(0x1ff_feff_ffff));
        assert!(effective("CapEff:\tx").is_err() && effective("").is_err());
    }

    #[test]
    fn a_limit_is_in_bytes_or_unlimited() {
        let limits =
            "Limit  Soft  Hard  Units\nMax locked memory         8388608   8388608   bytes\n";
        assert_eq!(memlock(limits).ok(), Some(Some(8_388_608)));
        let limits = "Max locked memory         unlimited            unlimited            bytes";
        assert_eq!(memlock(limits).ok(), Some(None));
        assert!(memlock("").is_err() && memlock("Max locked memory  x").is_err());
    }
}
