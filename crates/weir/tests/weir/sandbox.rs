//! A command that a sandbox stops names the sandbox, and one that lacks a capability names that.

use std::thread;

use anyhow::{Context as _, Result, ensure};
use rustix::thread::CapabilitySet;
use testkit::sandbox::{Refused, drop_capabilities};
use weir::switch::datapath::{self, Datapath};

use crate::{Test, tests, weir};

pub fn trials() -> Vec<Test> {
    tests![
        a_seccomp_filter_is_named,
        a_dropped_capability_is_named,
        a_mode_of_a_file_is_named,
        the_verifier_needs_perfmon
    ]
}

/// A command, and what may be refused to it.
struct Case {
    command: &'static [&'static str],
    calls: &'static [Refused],
    /// Capabilities without which it says so, and the name of one of them.
    needs: &'static [(CapabilitySet, &'static str)],
}

const BPF: Refused = Refused::Call(libc::SYS_bpf);
const XDP: Refused = Refused::Family(libc::AF_XDP);
const PACKET: Refused = Refused::Family(libc::AF_PACKET);
const NETLINK: Refused = Refused::Family(libc::AF_NETLINK);
const UNSHARE: Refused = Refused::Call(libc::SYS_unshare);
/// `CAP_SYS_ADMIN` has the rights of the other.
const ANY_BPF: (CapabilitySet, &str) = (
    CapabilitySet::BPF.union(CapabilitySet::SYS_ADMIN),
    "CAP_BPF",
);
const NET_RAW: (CapabilitySet, &str) = (CapabilitySet::NET_RAW, "CAP_NET_RAW");

const CASES: [Case; 5] = [
    Case {
        command: &["ledger", "--format", "json", "--", "true"],
        calls: &[BPF, NETLINK],
        needs: &[ANY_BPF],
    },
    Case {
        command: &[
            "bench",
            "rxdrop",
            "--lab",
            "--rounds",
            "1",
            "--seconds",
            "1",
            "--engine",
            "xsk,packet-v2",
        ],
        calls: &[BPF, XDP, PACKET, NETLINK, UNSHARE],
        needs: &[NET_RAW],
    },
    Case {
        command: &["doctor", "--json"],
        calls: &[BPF, XDP],
        needs: &[],
    },
    Case {
        command: &["cost", "flame", "--seconds", "0.1"],
        calls: &[BPF, Refused::Call(libc::SYS_perf_event_open)],
        needs: &[ANY_BPF],
    },
    Case {
        command: &["lab", "up", "sandbox"],
        calls: &[NETLINK, UNSHARE],
        needs: &[(CapabilitySet::SYS_ADMIN, "CAP_SYS_ADMIN")],
    },
];

/// All that a command says which is started by a thread that `limit` has limited.
fn said(arguments: &[&str], limit: impl FnOnce() -> std::io::Result<()> + Send) -> Result<String> {
    let run = || -> Result<String> {
        limit()?;
        let output = weir().args(arguments).output().context("cannot run weir")?;
        let text = [output.stdout, output.stderr].concat();
        Ok(String::from_utf8(text)?)
    };
    thread::scope(|scope| scope.spawn(run).join().expect("no panic"))
}

fn a_seccomp_filter_is_named() -> Result<()> {
    for case in CASES {
        for call in case.calls {
            // The tests of hostnet and xsk have the others.
            let missing = match call {
                Refused::Call(_) => libc::ENOSYS,
                Refused::Family(_) => libc::EAFNOSUPPORT,
            };
            for errno in [libc::EPERM, missing] {
                let text = said(case.command, || call.with(errno))?;
                let shown = format!("{:?}, {call:?} with {errno}: {text}", case.command);
                ensure!(text.contains("seccomp filter refuses it"), "{shown}");
                ensure!(!text.contains("run as root"), "{shown}");
                ensure!(!text.contains("this kernel has no"), "{shown}");
                ensure!(!text.contains("the kernel lacks"), "{shown}");
            }
        }
    }
    Ok(())
}

fn a_dropped_capability_is_named() -> Result<()> {
    for case in CASES {
        for (dropped, name) in case.needs {
            let text = said(case.command, || drop_capabilities(*dropped))?;
            let shown = format!("{:?} without {name}: {text}", case.command);
            ensure!(text.contains("this needs CAP_"), "{shown}");
            ensure!(text.contains(name), "{shown}");
            ensure!(!text.contains("seccomp filter"), "{shown}");
        }
    }
    Ok(())
}

/// Directories that a command makes below one of another user, whose mode lets no one else write.
fn a_mode_of_a_file_is_named() -> Result<()> {
    let directory = testkit::Temporary::new("sandbox-modes")?;
    let closed = directory.join("closed");
    std::fs::create_dir(&closed)?;
    std::os::unix::fs::chown(&closed, Some(1), Some(1))?;
    let state = closed.join("state").display().to_string();
    let socket = closed.join("socket").display().to_string();
    let other = directory.join("other").display().to_string();
    let unix = format!("unix:{socket}");
    for command in [
        &["switch", "run", "--state", &state, "--socket", &other][..],
        &["switch", "run", "--state", &other, "--socket", &socket],
        &["exporter", "--listen", &unix],
    ] {
        let dropped = CapabilitySet::DAC_OVERRIDE;
        let text = said(command, || drop_capabilities(dropped))?;
        let shown = format!("{command:?}: {text}");
        ensure!(text.contains("is of user 1 and has mode 755"), "{shown}");
        ensure!(text.contains("root lacks CAP_DAC_OVERRIDE"), "{shown}");
        ensure!(!text.contains("run as root"), "{shown}");
    }
    Ok(())
}

/// The programs of the switch subtract pointers.
fn the_verifier_needs_perfmon() -> Result<()> {
    let load = || -> Result<String> {
        drop_capabilities(CapabilitySet::PERFMON.union(CapabilitySet::SYS_ADMIN))?;
        let shape = datapath::shape(2, 2, 2, None, false)?;
        let loaded = Datapath::load(&weir::switch::OBJECT, shape);
        Ok(format!("{:#}", loaded.err().context("it was loaded")?))
    };
    let text = thread::scope(|scope| scope.spawn(load).join().expect("no panic"))?;
    let words = "CAP_PERFMON, and this process has no CAP_PERFMON";
    ensure!(text.contains(words), "{text}");
    for capability in ["CAP_BPF", "CAP_NET_ADMIN"] {
        ensure!(text.matches(capability).count() == 1, "{text}");
    }
    Ok(())
}
