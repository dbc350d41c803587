//! How BPF programs are run and kept.

use anyhow::Result;

use super::setting::{Wrong, absent, fine, found, judge, unchecked};
use crate::doctor::fix::words;
use crate::doctor::{Check, Context, Evidence, Fix, Read, Severity, Step, Verdict};
use hostnet::mount::{MOUNTS, Mount};

const JIT: &str = "/proc/sys/net/core/bpf_jit_enable";
const STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";
const BPFFS_AT: &str = "/sys/fs/bpf";

pub const BPF_JIT: Check = Check {
    id: "bpf-jit",
    title: "BPF programs are not compiled as they should be",
    severity: Severity::Critical,
    why: "An interpreted program takes several times as long for each packet as a compiled one.",
    source: "Documentation/admin-guide/sysctl/net.rst, bpf_jit_enable",
    more: "It reads net.core.bpf_jit_enable: 0 is the interpreter, 1 the compiler, 2 the compiler \
           with a dump of every program in the kernel's log.\n\n\
           The fix sets it to 1, for programs that are loaded from then on: restart what uses XDP. \
           Measure it with `weir bench rxdrop --lab --mode drv` before and after.",
    run: jit,
};

pub const BPF_STATS: Check = Check {
    id: "bpf-stats",
    title: "every run of a BPF program is timed",
    severity: Severity::Advice,
    why: "Timing costs some 20 ns for each run of each program, and so for each packet.",
    source: "bpf_prog_run in include/linux/filter.h; Documentation/admin-guide/sysctl/kernel.rst, bpf_stats_enabled",
    more: "It reads kernel.bpf_stats_enabled. Somebody may be looking at `bpftool prog` or bpftop \
           just now; else it was forgotten.\n\n\
           Measure it with `weir bench rxdrop --lab --mode drv` before and after the fix.",
    run: stats,
};

pub const BPFFS: Check = Check {
    id: "bpffs",
    title: "no BPF file system is mounted",
    severity: Severity::Advice,
    why: "Programs and maps cannot be pinned without one, so they go with the process that loaded them.",
    source: "Documentation/bpf/maps.rst; bpf(2), BPF_OBJ_PIN",
    more: "It reads /proc/self/mounts for a file system of type bpf at /sys/fs/bpf, where xdp-tools, \
           ip, tc and bpftool pin. weir itself pins nothing.\n\n\
           The fix mounts it until the next boot; systemd does so at each boot unless it is told not to. \
           Its undo takes with it what was pinned there since.",
    run: bpffs,
};

fn jit(context: &Context) -> Result<Vec<Verdict>> {
    let verdicts = judge(context, &[JIT], |_, value| {
        let message = match value {
            "1" => return None,
            "2" => "Every program that is loaded is dumped into the kernel's log.",
            _ => "Programs are interpreted.",
        };
        Some(Wrong {
            message: message.into(),
            new: "1".into(),
        })
    })?;
    if verdicts.is_empty() {
        let read = vec![Evidence::new(JIT, "no such file")];
        let fix = Fix::Text("use a kernel with CONFIG_BPF_JIT".into());
        return Ok(found(read, "This kernel cannot compile BPF programs.", fix));
    }
    Ok(verdicts)
}

fn stats(context: &Context) -> Result<Vec<Verdict>> {
    judge(context, &[STATS], |_, value| {
        (value != "0").then(|| Wrong {
            message: "It was switched on and not off again.".into(),
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
            "`ip netns exec` has hidden the host's /sys: enter with `nsenter --net=/run/netns/{name}` instead"
        )));
    }
    if !context.list("/sys/fs")?.contains(&"bpf".to_owned()) {
        return Ok(absent(context, BPFFS_AT));
    }
    // The type of what is on top there, as a number of linux/magic.h.
    let read = Read::of_host(&["stat", "-f", "-c", "%t", BPFFS_AT], "");
    let step = Step::Run {
        apply: words(&["mount", "-t", "bpf", "bpf", BPFFS_AT]),
        undo: words(&["umount", BPFFS_AT]),
        old: read.run()?,
        read,
    };
    let kind = top.map_or("nothing", |mount| mount.filesystem);
    let evidence = vec![Evidence::new(format!("{MOUNTS}, type at {BPFFS_AT}"), kind)];
    let message = "Tools that pin programs or maps fail.";
    Ok(found(evidence, message, Fix::Steps(vec![step])))
}

/// The network namespace that ip-netns(8) has mounted a /sys for: it gives its name as the device.
fn ip_netns(context: &Context, mounts: &str) -> Result<Option<String>> {
    let Some(mount) = Mount::topmost(mounts, "/sys") else {
        return Ok(None);
    };
    let names = context.list("/run/netns")?;
    Ok(names.into_iter().find(|name| mount.source == name))
}
