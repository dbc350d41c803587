//! What this process may do.

use anyhow::{Context as _, Result};
use rustix::process::geteuid;

use super::memory::memlock;
use super::setting::{fine_all, found, unchecked};
use crate::doctor::{Check, Context, Evidence, Fix, Severity, Verdict};

const STATUS: &str = "/proc/self/status";
const LIMITS: &str = "/proc/self/limits";
/// A UMEM of 4096 frames of 4 KiB.
const UMEM: u64 = 16 << 20;

/// Bits of linux/capability.h.
const NET_ADMIN: u32 = 12;
const NET_RAW: u32 = 13;
const IPC_LOCK: u32 = 14;
const SYS_ADMIN: u32 = 21;
const PERFMON: u32 = 38;
const BPF: u32 = 39;

pub const CAPABILITIES: Check = Check {
    id: "capabilities",
    title: "root lacks capabilities",
    severity: Severity::Warning,
    why: "An AF_XDP socket takes CAP_NET_RAW and memory that may be locked, an XDP program CAP_NET_ADMIN and CAP_BPF, and tracing CAP_PERFMON.",
    source: "capabilities(7); net/xdp/xsk.c, xsk_create; net/xdp/xdp_umem.c, xdp_umem_account_pages",
    more: "It reads the effective capabilities and the limit of locked memory of this process. \
           CAP_SYS_ADMIN stands for CAP_BPF and CAP_PERFMON; CAP_IPC_LOCK for a limit of 16 MiB, the \
           size of a UMEM of 4096 frames. A missing CAP_SYS_RESOURCE is no fault.\n\n\
           An ordinary user has none of them, and that is no finding.",
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
    if held == 0 && !geteuid().is_root() {
        return Ok(unchecked(
            "an ordinary user has no capabilities: run as root, e.g. with sudo",
        ));
    }
    let message = format!("Missing: {}.", missing.join(", "));
    let fix = "give them to the container or service: --cap-add of docker or podman, CapabilityBoundingSet= and LimitMEMLOCK= of systemd";
    Ok(found(evidence, message, Fix::Text(fix.into())))
}

fn effective(status: &str) -> Result<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = line.context("/proc/self/status has no capabilities")?;
    u64::from_str_radix(bits.trim(), 16).context("/proc/self/status: no capabilities")
}

/// What is missing of what AF_XDP, XDP and tracing take.
fn missing(held: u64, memlock: Option<u64>) -> Vec<&'static str> {
    let has = |bit: u32| held & (1 << bit) != 0;
    let may_lock = has(IPC_LOCK) || memlock.is_none_or(|bytes| bytes >= UMEM);
    [
        ("CAP_NET_ADMIN", has(NET_ADMIN)),
        ("CAP_NET_RAW", has(NET_RAW)),
        ("CAP_BPF", has(BPF) || has(SYS_ADMIN)),
        ("CAP_PERFMON", has(PERFMON) || has(SYS_ADMIN)),
        (
            "CAP_IPC_LOCK or a limit of locked memory of 16 MiB",
            may_lock,
        ),
    ]
    .into_iter()
    .filter_map(|(name, has)| (!has).then_some(name))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing() {
        assert_eq!(missing(u64::MAX, Some(0)), Vec::<&str>::new());
        assert_eq!(missing(!(1_u64 << BPF), Some(0)), Vec::<&str>::new());
        assert_eq!(missing(!(1_u64 << NET_RAW), None), ["CAP_NET_RAW"]);
        let no_lock = !(1_u64 << IPC_LOCK);
        assert_eq!(missing(no_lock, Some(8 << 20)).len(), 1);
        assert_eq!(missing(no_lock, None).len(), 0);
        assert_eq!(missing(no_lock, Some(UMEM)).len(), 0);
    }

    #[test]
    fn the_line_of_capabilities() {
        let status = "CapPrm:\t0\nCapEff:\t000001fffeffffff\n";
        assert_eq!(effective(status).ok(), Some(0x1ff_feff_ffff));
        assert!(effective("CapEff:\tx").is_err() && effective("").is_err());
    }
}
