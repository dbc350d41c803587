//! How BPF programs are run and kept.

use anyhow::Result;

use super::setting::{Wrong, absent, fine, found, judge};
use crate::doctor::{Check, Context, Evidence, Fix, Read, Severity, Step, Verdict, fix::words};

const JIT: &str = "/proc/sys/net/core/bpf_jit_enable";
const STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";
const MOUNTS: &str = "/proc/self/mounts";
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
           The fix mounts it until the next boot; systemd does so at each boot unless it is told not to.",
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
    let mut known = mounts.lines().filter(|line| is_bpffs(line));
    if let Some(line) = known.next() {
        return Ok(fine(MOUNTS, line));
    }
    if !context.list("/sys/fs")?.contains(&"bpf".to_owned()) {
        return Ok(absent(context, BPFFS_AT));
    }
    let read = Read::of_host(&["cat", MOUNTS], "bpf /sys/fs/bpf ");
    let step = Step::Run {
        apply: words(&["mount", "-t", "bpf", "bpf", BPFFS_AT]),
        undo: words(&["umount", BPFFS_AT]),
        read,
        old: String::new(),
    };
    let evidence = vec![Evidence::new(
        MOUNTS,
        format!("nothing of type bpf at {BPFFS_AT}"),
    )];
    let message = "Tools that pin programs or maps fail.";
    Ok(found(evidence, message, Fix::Steps(vec![step])))
}

fn is_bpffs(mount: &str) -> bool {
    let mut words = mount.split_whitespace().skip(1);
    words.next() == Some(BPFFS_AT) && words.next() == Some("bpf")
}

#[cfg(test)]
mod tests {
    use super::is_bpffs;

    #[test]
    fn mounts() {
        assert!(is_bpffs("none /sys/fs/bpf bpf rw,mode=700 0 0"));
        assert!(!is_bpffs("bpf /run/bpf bpf rw 0 0"));
        assert!(!is_bpffs("tmpfs /sys/fs/bpf tmpfs rw 0 0"));
        assert!(!is_bpffs(""));
    }
}
