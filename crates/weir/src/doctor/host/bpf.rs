//! The BPF JIT, run-time statistics and file system.

use anyhow::Result;
use hostnet::mount::{MOUNTS, Mount};

use super::setting::{Wrong, absent, fine, found, judge, unchecked};
use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::severity::Severity;
use crate::doctor::step::Read;
use crate::doctor::verdict::Verdict;

const JIT: &str = "/proc/sys/net/core/bpf_jit_enable";
const STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";
const BPFFS_AT: &str = "/sys/fs/bpf";

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[BPF_JIT, BPF_STATS, BPFFS];

const BPF_JIT: Check = Check {
    id: "bpf-jit",
    title: "the BPF JIT is off or in debug mode",
    severity: Severity::Critical,
    why: "The interpreter takes several times as long per packet as JIT-compiled code.",
    source: "Documentation/admin-guide/sysctl/net.rst, bpf_jit_enable",
    more: "Reads net.core.bpf_jit_enable: 0 is the interpreter, 1 the JIT, 2 the JIT with a dump of \
           every program in the kernel log.\n\n\
           The fix sets it to 1, which affects programs loaded from then on: restart all users of \
           XDP. Measure the effect with `weir bench rxdrop --lab --mode drv` before and after.",
    counters: &[],
    run: jit,
};

const BPF_STATS: Check = Check {
    id: "bpf-stats",
    title: "BPF run-time statistics are on",
    severity: Severity::Advice,
    why: "Timing adds some 20 ns to each run of each program, and so to each packet.",
    source: "bpf_prog_run in include/linux/filter.h; Documentation/admin-guide/sysctl/kernel.rst, bpf_stats_enabled",
    more: "Reads kernel.bpf_stats_enabled. `bpftool prog` or bpftop may be in use; otherwise it was \
           left on.\n\n\
           Measure the effect with `weir bench rxdrop --lab --mode drv` before and after the fix.",
    counters: &[],
    run: stats,
};

const BPFFS: Check = Check {
    id: "bpffs",
    title: "bpffs is not mounted",
    severity: Severity::Advice,
    why: "Without it programs and maps cannot be pinned, and end with the process that loaded them.",
    source: "Documentation/bpf/maps.rst; bpf(2), BPF_OBJ_PIN",
    more: "Reads /proc/self/mounts for a file system of type bpf at /sys/fs/bpf, where xdp-tools, \
           ip, tc and bpftool pin. weir itself pins nothing.\n\n\
           The fix mounts it until the next boot; systemd mounts it at each boot by default. The \
           undo removes everything pinned there since.",
    counters: &[],
    run: bpffs,
};

fn jit(context: &Context) -> Result<Vec<Verdict>> {
    let verdicts = judge(context, &[JIT], |_, value| {
        let message = match value {
            "1" => return None,
            "2" => "The kernel dumps every loaded program to its log.",
            _ => "The kernel interprets programs.",
        };
        Some(Wrong {
            message: message.into(),
            new: "1".into(),
        })
    })?;
    if verdicts.is_empty() {
        let read = vec![Evidence::new(JIT, "no such file")];
        let fix = Fix::manual("use a kernel with CONFIG_BPF_JIT");
        return Ok(found(read, "This kernel has no BPF JIT.", fix));
    }
    Ok(verdicts)
}

fn stats(context: &Context) -> Result<Vec<Verdict>> {
    judge(context, &[STATS], |_, value| {
        (value != "0").then(|| Wrong {
            message: "The kernel times every run of every BPF program.".into(),
            new: "0".into(),
        })
    })
}

fn bpffs(context: &Context) -> Result<Vec<Verdict>> {
    let mounts = context.read(MOUNTS)?;
    let top = Mount::topmost(&mounts, BPFFS_AT);
    if let Some(mount) = top
        && mount.filesystem == "bpf"
    {
        return Ok(fine(MOUNTS, mount.line));
    }
    if let Some(name) = ip_netns(context, &mounts)? {
        return Ok(unchecked(format!(
            "`ip netns exec` hides the host's /sys: enter with `nsenter --net=/run/netns/{name}` instead"
        )));
    }
    if !context.list("/sys/fs")?.contains(&"bpf".to_owned()) {
        return Ok(absent(context, BPFFS_AT));
    }
    let kind = top.map_or("nothing", |mount| mount.filesystem);
    let evidence = vec![Evidence::new(format!("{MOUNTS}, type at {BPFFS_AT}"), kind)];
    let fix = Fix::command(
        context,
        &format!("mount -t bpf bpf {BPFFS_AT}"),
        &format!("umount {BPFFS_AT}"),
        // The type of the topmost mount, as a number of linux/magic.h.
        Read::of_host(&format!("stat -f -c %t {BPFFS_AT}"), ""),
    );
    let message = "Tools that pin programs or maps fail.";
    Ok(found(evidence, message, fix))
}

/// The network namespace for which ip-netns(8) has mounted a /sys, with its name as the device.
fn ip_netns(context: &Context, mounts: &str) -> Result<Option<String>> {
    let Some(mount) = Mount::topmost(mounts, "/sys") else {
        return Ok(None);
    };
    let names = context.list("/run/netns")?;
    Ok(names.into_iter().find(|name| mount.source == name))
}
