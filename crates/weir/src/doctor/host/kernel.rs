//! Features and configuration of the kernel.

use anyhow::{Result, bail};
use hostnet::privilege::{self, Capability};
use xsk::{Feature, MissingFeature};

use super::setting::{fine, fine_all, found, unchecked};
use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::severity::Severity;
use crate::doctor::verdict::Verdict;

const BTF_FILE: &str = "/sys/kernel/btf/vmlinux";
const SECURITY: &str = "/sys/kernel/security";
const LOCKDOWN_FILE: &str = "/sys/kernel/security/lockdown";

/// What each program gains from. The newer features matter only to a program that asks for them, and are
/// refused to it by name.
const EXPECTED: [Feature; 4] = [
    Feature::Sockets,
    Feature::NeedWakeup,
    Feature::XdpLink,
    Feature::RingStatistics,
];

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[KERNEL_FEATURES, BTF, LOCKDOWN];

const KERNEL_FEATURES: Check = Check {
    id: "kernel-features",
    title: "the kernel lacks AF_XDP features",
    severity: Severity::Warning,
    why: "Without AF_XDP sockets there is no fast path to a program; without the other features each send costs more, or an XDP program outlives its process.",
    source: "net/xdp/xsk.c; kernel/bpf/syscall.c, BPF_LINK_TYPE_XDP",
    more: "Probes the kernel for each feature with a system call that changes nothing: AF_XDP \
           sockets (4.18), need_wakeup (5.4), XDP links and ring statistics (5.9). Newer ones, which \
           few programs ask for, are not required.\n\n\
           It is unchecked if this process may not probe: without CAP_NET_RAW and CAP_BPF, or under a system call \
           filter of a container or a service, such as systemd's RestrictAddressFamilies=, which refuses AF_XDP.",
    counters: &[],
    run: features,
};

const BTF: Check = Check {
    id: "btf",
    title: "the kernel has no BTF",
    severity: Severity::Warning,
    why: "Tracing programs, such as those of `weir cost`, cannot be loaded without the kernel's BTF.",
    source: "Documentation/bpf/btf.rst",
    more: "Looks for /sys/kernel/btf/vmlinux, which needs CONFIG_DEBUG_INFO_BTF. XDP programs and \
           AF_XDP sockets do not need it.",
    counters: &[],
    run: btf,
};

const LOCKDOWN: Check = Check {
    id: "lockdown",
    title: "kernel lockdown is in confidentiality mode",
    severity: Severity::Warning,
    why: "BPF programs then cannot read kernel memory, so tracing and `weir cost` do not work.",
    source: "kernel_lockdown(7); LOCKDOWN_BPF_READ_KERNEL in include/linux/security.h",
    more: "Reads /sys/kernel/security/lockdown. Integrity mode, the usual one with Secure Boot, does \
           not affect XDP, AF_XDP and tracing.\n\n\
           A running kernel can only raise the mode: set lockdown= on the kernel's command line.",
    counters: &[],
    run: lockdown,
};

fn features(context: &Context) -> Result<Vec<Verdict>> {
    let mut evidence = Vec::new();
    let mut missing = Vec::new();
    for feature in EXPECTED {
        let source = format!("probe of {feature} (Linux {})", feature.since());
        match context.probe(feature) {
            Ok(()) => evidence.push(Evidence::new(source, "available")),
            Err(missing) if missing.unprobed => bail!("{source}: {}", missing.why),
            Err(MissingFeature { why, .. }) => {
                evidence.push(Evidence::new(source, &why));
                missing.push(feature.to_string());
            }
        }
    }
    if missing.is_empty() {
        return Ok(fine_all(evidence));
    }
    let message = format!("Missing: {}.", missing.join(", "));
    let fix = "use a kernel of at least that version with CONFIG_XDP_SOCKETS";
    Ok(found(evidence, message, Fix::manual(fix)))
}

fn btf(context: &Context) -> Result<Vec<Verdict>> {
    let names = context.list("/sys/kernel/btf")?;
    if names.iter().any(|name| name == "vmlinux") {
        return Ok(fine(BTF_FILE, "exists"));
    }
    let read = vec![Evidence::new(BTF_FILE, "no such file")];
    let fix = Fix::manual("use a kernel with CONFIG_DEBUG_INFO_BTF");
    Ok(found(
        read,
        "`weir cost` cannot account for interrupts on this kernel.",
        fix,
    ))
}

fn lockdown(context: &Context) -> Result<Vec<Verdict>> {
    let Some(modes) = context.read_if_there(LOCKDOWN_FILE)? else {
        return no_lockdown(context);
    };
    if !modes.contains("[confidentiality]") {
        return Ok(fine(LOCKDOWN_FILE, &modes));
    }
    let fix = "boot with lockdown=integrity on the kernel's command line, if Secure Boot permits";
    let read = vec![Evidence::new(LOCKDOWN_FILE, &modes)];
    Ok(found(
        read,
        "BPF programs cannot read kernel memory.",
        Fix::manual(fix),
    ))
}

/// Without the file, the kernel has no lockdown, or securityfs is not mounted.
fn no_lockdown(context: &Context) -> Result<Vec<Verdict>> {
    if !context.list(SECURITY)?.is_empty() {
        return Ok(fine(LOCKDOWN_FILE, "no such file in securityfs"));
    }
    let config = context.kernel_config();
    if let Some(config) = config
        .ok()
        .filter(|it| !it.has("CONFIG_SECURITY_LOCKDOWN_LSM"))
    {
        let read = "CONFIG_SECURITY_LOCKDOWN_LSM is not set";
        return Ok(fine(config.source(), read));
    }
    let why = privilege::missing(&[Capability::SysAdmin]);
    let why = why.map_or_else(String::new, |why| format!("; {why}"));
    Ok(unchecked(format!(
        "securityfs is not mounted: `mount -t securityfs securityfs /sys/kernel/security`{why}"
    )))
}
