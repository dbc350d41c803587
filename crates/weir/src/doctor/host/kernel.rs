//! What the kernel can do.

use anyhow::{Result, bail};
use rustix::process::geteuid;
use xsk::Feature;

use super::setting::{fine, fine_all, found, unchecked};
use crate::doctor::{Check, Context, Evidence, Fix, Severity, Verdict};

const BTF_FILE: &str = "/sys/kernel/btf/vmlinux";
const SECURITY: &str = "/sys/kernel/security";
const LOCKDOWN_FILE: &str = "/sys/kernel/security/lockdown";

pub const KERNEL_FEATURES: Check = Check {
    id: "kernel-features",
    title: "the kernel lacks features of AF_XDP",
    severity: Severity::Warning,
    why: "Without AF_XDP sockets there is no fast path to a program; without the others each send costs more, or a program outlives its process.",
    source: "net/xdp/xsk.c; kernel/bpf/syscall.c, BPF_LINK_TYPE_XDP",
    more: "It asks the kernel itself for each feature, by a system call that changes nothing, and \
           does not go by its version: AF_XDP sockets (4.18), need_wakeup (5.4), XDP links and ring \
           statistics (5.9), the TX budget (6.17; without it nothing is amiss, and it is not asked for).\n\n\
           A container's or a service's system call filter, such as systemd's \
           RestrictAddressFamilies=, can take AF_XDP away too.",
    run: features,
};

pub const BTF: Check = Check {
    id: "btf",
    title: "the kernel does not describe its types",
    severity: Severity::Warning,
    why: "Programs that trace the kernel, those of `weir cost` among them, cannot be loaded without its BTF.",
    source: "Documentation/bpf/btf.rst",
    more: "It looks for /sys/kernel/btf/vmlinux, which is there when the kernel was built with \
           CONFIG_DEBUG_INFO_BTF. XDP programs and AF_XDP sockets do not need it.",
    run: btf,
};

pub const LOCKDOWN: Check = Check {
    id: "lockdown",
    title: "the kernel is locked down",
    severity: Severity::Warning,
    why: "In confidentiality mode BPF programs may not read the kernel's memory, so tracing and `weir cost` see nothing.",
    source: "kernel_lockdown(7); LOCKDOWN_BPF_READ_KERNEL in include/linux/security.h",
    more: "It reads /sys/kernel/security/lockdown. Integrity mode, the usual one with Secure Boot, \
           leaves XDP, AF_XDP and tracing alone.\n\n\
           The mode can only be raised while the kernel runs: it is lowered at boot, by lockdown= on \
           the kernel's command line.",
    run: lockdown,
};

fn features(_context: &Context) -> Result<Vec<Verdict>> {
    let mut evidence = Vec::new();
    let mut missing = Vec::new();
    // The newest is no fault of a kernel that is older.
    for feature in Feature::ALL
        .into_iter()
        .filter(|it| *it != Feature::TxBudget)
    {
        let source = format!("probe of {feature} (Linux {})", feature.since());
        match feature.probe() {
            Ok(()) => evidence.push(Evidence::new(source, "there")),
            Err(why) if is_forbidden(&why.why) => bail!("{why}: run as root"),
            Err(why) => {
                evidence.push(Evidence::new(source, &why.why));
                missing.push(feature.to_string());
            }
        }
    }
    if missing.is_empty() {
        return Ok(fine_all(evidence));
    }
    let message = format!("Missing: {}.", missing.join(", "));
    let fix = "use a kernel of at least that version with CONFIG_XDP_SOCKETS, or lift the system call filter (RestrictAddressFamilies= of a service, seccomp of a container)";
    Ok(found(evidence, message, Fix::Text(fix.into())))
}

/// Whether it is this process, and not the kernel, that lacks something.
fn is_forbidden(why: &str) -> bool {
    !geteuid().is_root() && (why.contains("EPERM") || why.contains("EACCES"))
}

fn btf(context: &Context) -> Result<Vec<Verdict>> {
    let names = context.list("/sys/kernel/btf")?;
    if names.iter().any(|name| name == "vmlinux") {
        return Ok(fine(BTF_FILE, "there"));
    }
    let read = vec![Evidence::new(BTF_FILE, "no such file")];
    let fix = Fix::Text("use a kernel with CONFIG_DEBUG_INFO_BTF".into());
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
        "BPF programs may not read the kernel's memory.",
        Fix::Text(fix.into()),
    ))
}

/// Where there is no file of it, the kernel may be without it, or the file system not mounted.
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
    Ok(unchecked(
        "securityfs is not mounted: run as root, or mount -t securityfs securityfs /sys/kernel/security",
    ))
}
