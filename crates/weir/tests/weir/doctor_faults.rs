//! The doctor finds what is broken, and nothing where nothing is.
//!
//! Every check has a [`Fault`] that breaks what it looks at, as really as a test may: in a
//! namespace or a process made for it, else in files of a directory of its own.
//!
//! Unsafe code is needed for one thing: a hook that runs between fork and exec, to filter the
//! system calls of the doctor under test.
#![allow(unsafe_code)]

use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context as _, Result, bail, ensure};
use hostnet::netns;
use serde_json::Value;
use weir::doctor;
use weir::doctor::context::LinkBrief;
use weir::doctor::{Check, Context, Evidence, Finding, Fix, Verdict};
use weir::lab::{Lab, LabConfig};

use crate::doctor::{namespace_with_bridge, run_in};
use crate::{Test, doctor_faults_device, output, tests, weir};

pub fn trials() -> Vec<Test> {
    tests![
        every_check_finds_its_fault,
        a_healthy_host_gives_no_finding,
        a_clean_lab_gives_no_finding
    ]
}

/// What the guest breaks: `WORD ID` begins a line there, with one of [`BREAKS`].
const GUEST: [&str; 2] = [
    include_str!("../guest/doctor_host.sh"),
    include_str!("../guest/doctor-faults.sh"),
];
const BREAKS: [&str; 4] = ["broken", "raised", "told", "try"];

/// How something is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// For real, in namespaces made for it.
    Namespace,
    /// For real, for a process made for it.
    Process,
    /// For real in the guest, by [`GUEST`]; here in files or values that stand for a host's.
    Guest,
    /// In files that stand for a host's.
    Fixture,
}

/// What breaks what a check looks at.
pub struct Fault {
    /// The check.
    pub check: &'static str,
    /// How.
    pub way: Way,
    /// Breaks it and asks the check.
    pub inject: fn(&Check) -> Result<Outcome>,
}

/// What came of breaking something.
pub enum Outcome {
    /// What the check said.
    Said(Vec<Verdict>),
    /// It cannot be broken here, for this reason.
    Impossible(String),
}

/// What `check` says inside a network namespace.
fn ask_in(namespace: BorrowedFd<'_>, check: &Check) -> Result<Outcome> {
    let said = netns::run_in(namespace, || -> Result<_> {
        Ok(check.verdicts(&Context::host(Vec::new())))
    })?;
    Ok(Outcome::Said(said))
}

fn every_check_finds_its_fault() -> Result<()> {
    let faults: Vec<&Fault> = FAULTS.iter().chain(doctor_faults_device::FAULTS).collect();
    let mut missed = Vec::new();
    let mut found = Vec::new();
    for check in doctor::checks() {
        let mut of_check = faults
            .iter()
            .filter(|fault| fault.check == check.id)
            .peekable();
        if of_check.peek().is_none() {
            missed.push(format!("{}: nothing breaks what it looks at", check.id));
        }
        let mut ways = Vec::new();
        for fault in of_check {
            match tried(check, fault) {
                Ok(None) => ways.push(fault.way),
                Ok(Some(reason)) => println!("doctor score: {} not tried: {reason}", check.id),
                Err(error) => missed.push(format!("{}: {error:#}", check.id)),
            }
        }
        // The most real one counts.
        found.extend(ways.into_iter().min_by_key(|way| *way as u8));
    }
    for fault in &faults {
        ensure!(
            fault.way != Way::Guest || is_broken_in_guest(fault.check),
            "the guest does not break {}",
            fault.check
        );
        ensure!(
            doctor::check(fault.check).is_ok(),
            "{} is no check",
            fault.check
        );
    }
    let alarms = [clean_lab_alarms()?, healthy_host_alarms()?].concat();
    let count = |way| found.iter().filter(|it| **it == way).count();
    println!(
        "doctor score: {} of {} checks found their fault ({} namespace, {} process, {} guest, {} fixture), {} false alarms in a clean lab",
        found.len(),
        doctor::checks().count(),
        count(Way::Namespace),
        count(Way::Process),
        count(Way::Guest),
        count(Way::Fixture),
        alarms.len()
    );
    ensure!(missed.is_empty(), "not found: {}", missed.join("; "));
    ensure!(alarms.is_empty(), "false alarms: {}", alarms.join("; "));
    Ok(())
}

fn is_broken_in_guest(check: &str) -> bool {
    GUEST.iter().flat_map(|script| script.lines()).any(|line| {
        let mut words = line.split_whitespace();
        words.next().is_some_and(|word| BREAKS.contains(&word)) && words.next() == Some(check)
    })
}

/// Breaks one thing. Gives why that is impossible here, or nothing if it was found.
fn tried(check: &Check, fault: &Fault) -> Result<Option<String>> {
    match (fault.inject)(check).context("cannot break it")? {
        Outcome::Said(said) => ensure_found(&said).map(|()| None),
        Outcome::Impossible(reason) => Ok(Some(reason)),
    }
}

/// That there is a finding, each with all that belongs to one.
fn ensure_found(said: &[Verdict]) -> Result<()> {
    let mut findings = findings(said).peekable();
    ensure!(findings.peek().is_some(), "it said {said:?}");
    for finding in findings {
        ensure!(
            !finding.evidence.is_empty(),
            "without evidence: {finding:?}"
        );
        ensure!(!finding.message.is_empty(), "without a word: {finding:?}");
        match &finding.fix {
            Fix::Text(text) => ensure!(!text.is_empty(), "without a cure: {finding:?}"),
            Fix::Steps(steps) => ensure!(!steps.is_empty(), "without a step: {finding:?}"),
        }
    }
    Ok(())
}

fn findings(said: &[Verdict]) -> impl Iterator<Item = &Finding> {
    said.iter().filter_map(|verdict| match verdict {
        Verdict::Finding(finding) => Some(finding),
        _ => None,
    })
}

/// What any check finds, which is too much where nothing is wrong.
fn alarms<'a>(context: &Context, checks: impl Iterator<Item = &'a Check>) -> Vec<String> {
    let of_check = |check: &Check| {
        let said = check.verdicts(context);
        let alarm = |finding: &Finding| format!("{}: {finding:?}", check.id);
        findings(&said).map(alarm).collect::<Vec<_>>()
    };
    checks.flat_map(of_check).collect()
}

/// What is found on both sides of a lab as `weir lab` makes it, by all checks but those that
/// look at the host that the test happens to run on.
fn clean_lab_alarms() -> Result<Vec<String>> {
    let lab = Lab::anonymous(&LabConfig::default())?;
    let of_namespace = |check: &&Check| {
        let of_device = doctor::device::CHECKS.iter().any(|it| it.id == check.id);
        of_device || IN_ANY_NAMESPACE.contains(&check.id)
    };
    let mut all = Vec::new();
    for side in [lab.app(), lab.load()] {
        all.extend(netns::run_in(side.netns(), || -> Result<_> {
            let context = Context::host(Vec::new());
            Ok(alarms(&context, doctor::checks().filter(of_namespace)))
        })?);
    }
    Ok(all)
}

/// The checks of the host that look at the network namespace alone.
const IN_ANY_NAMESPACE: [&str; 5] = [
    "bridge-netfilter",
    "netfilter-bypass",
    "resolver-vrf",
    "l3mdev-accept",
    "rps-flow-table",
];

fn healthy_host_alarms() -> Result<Vec<String>> {
    let root = Fixture::healthy()?;
    let checks = doctor::host::CHECKS.iter();
    Ok(alarms(
        &root.context(),
        checks.filter(|check| check.id != "kernel-features"),
    ))
}

fn a_clean_lab_gives_no_finding() -> Result<()> {
    let alarms = clean_lab_alarms()?;
    ensure!(alarms.is_empty(), "{alarms:?}");
    Ok(())
}

/// Also that each check of the host has something to look at there, so that its silence says
/// something.
fn a_healthy_host_gives_no_finding() -> Result<()> {
    let alarms = healthy_host_alarms()?;
    ensure!(alarms.is_empty(), "{alarms:?}");
    let root = Fixture::healthy()?;
    for check in doctor::host::CHECKS {
        let said = check.verdicts(&root.context());
        let unread = |it: &Verdict| matches!(it, Verdict::Unchecked { .. });
        ensure!(!said.iter().any(unread), "{}: {said:?}", check.id);
        let looked = said.iter().any(|it| matches!(it, Verdict::Fine { .. }));
        // Without a table of flows in any queue there is nothing to look at.
        ensure!(
            looked || check.id == "rps-flow-table",
            "{}: {said:?}",
            check.id
        );
    }
    Ok(())
}

/// Counters of a fixture are watched for so long.
const WATCH: Duration = Duration::from_millis(100);

/// A directory that looks like the root of a host.
struct Fixture(PathBuf);

impl Drop for Fixture {
    fn drop(&mut self) {
        // It is in the directory for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Fixture {
    fn healthy() -> Result<Self> {
        let name = format!(
            "weir-doctor-{}-{:?}",
            std::process::id(),
            thread::current().id()
        );
        let name: String = name.chars().filter(|c| !"()".contains(*c)).collect();
        let fixture = Self(std::env::temp_dir().join(name));
        let _ = fs::remove_dir_all(&fixture.0);
        for (path, text) in HEALTHY {
            fixture.set(path, text)?;
        }
        Ok(fixture)
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    fn set(&self, path: &str, text: &str) -> Result<()> {
        write(&self.path(path), text)
    }

    fn remove(&self, path: &str) -> Result<()> {
        fs::remove_file(self.path(path)).with_context(|| format!("cannot remove {path}"))
    }

    fn context(&self) -> Context {
        let link = |name: &str, kind: Option<&str>| LinkBrief {
            name: name.into(),
            kind: kind.map(Into::into),
            xdp_program: (name == "eth0").then_some(7),
        };
        let links = vec![
            link("lo", None),
            link("eth0", None),
            link("mgmt", Some("vrf")),
            link("br0", Some("bridge")),
            link("tap0", Some("tun")),
        ];
        Context::at(&self.0, links, WATCH)
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    let directory = path.parent().context("no directory")?;
    fs::create_dir_all(directory)?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

const HEALTHY: &[(&str, &str)] = &[
    ("/proc/sys/net/core/bpf_jit_enable", "1"),
    ("/proc/sys/net/core/netdev_budget", "300"),
    ("/proc/sys/net/core/netdev_budget_usecs", "8000"),
    ("/proc/sys/net/core/netdev_max_backlog", "1000"),
    ("/proc/sys/net/core/busy_poll", "0"),
    ("/proc/sys/net/core/busy_read", "0"),
    ("/proc/sys/net/core/default_qdisc", "pfifo_fast"),
    ("/proc/sys/net/core/rps_sock_flow_entries", "0"),
    ("/proc/sys/net/ipv4/tcp_l3mdev_accept", "1"),
    ("/proc/sys/net/ipv4/udp_l3mdev_accept", "1"),
    ("/proc/sys/net/bridge/bridge-nf-call-iptables", "0"),
    ("/proc/sys/net/bridge/bridge-nf-call-ip6tables", "0"),
    ("/proc/sys/kernel/bpf_stats_enabled", "0"),
    ("/proc/sys/kernel/osrelease", "6.12.0-test"),
    ("/proc/sys/vm/nr_hugepages", "0"),
    ("/proc/self/mounts", "bpf /sys/fs/bpf bpf rw 0 0\n"),
    ("/proc/self/status", "Name:\tx\nCapEff:\t000001fffeffffff\n"),
    (
        "/proc/self/limits",
        "Limit  Soft Limit  Hard Limit  Units\nMax locked memory  8388608  8388608  bytes\n",
    ),
    (
        "/proc/meminfo",
        "MemTotal: 1 kB\nHugePages_Total:       0\n",
    ),
    (
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "always [madvise] never",
    ),
    ("/sys/kernel/btf/vmlinux", ""),
    ("/sys/fs/bpf/.keep", ""),
    (
        "/sys/kernel/security/lockdown",
        "none [integrity] confidentiality",
    ),
    (CLOCK, "tsc"),
    (
        "/sys/devices/system/clocksource/clocksource0/available_clocksource",
        "tsc hpet acpi_pm",
    ),
    ("/boot/config-6.12.0-test", "CONFIG_IRQ_TIME_ACCOUNTING=y\n"),
    (GOVERNOR, "performance"),
    (
        "/sys/devices/system/cpu/cpufreq/policy0/scaling_available_governors",
        "performance powersave",
    ),
    ("/sys/devices/system/cpu/online", "0-3"),
    (
        SOFTNET,
        "64 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n64 5 7 0 0 0 0 0 0 0 0 0 1 0 0\n",
    ),
    ("/proc/14/comm", "ksoftirqd/0"),
    (SCHEDSTAT, "1000 0 0"),
    (
        "/proc/interrupts",
        "      CPU0 CPU1\n 40:  9 0  PCI-MSI  eth0-0\n 41:  0 9  PCI-MSI  eth0-1\n",
    ),
    // A file, which the module for bonds puts among the devices.
    ("/sys/class/net/bonding_masters", "\n"),
    ("/sys/class/net/eth0/queues/rx-0/rps_flow_cnt", "0"),
    ("/sys/class/net/eth0/queues/rx-1/rps_flow_cnt", "0"),
    ("/sys/class/net/eth0/device/msi_irqs/40", "msix"),
    ("/sys/class/net/eth0/device/msi_irqs/41", "msix"),
    ("/proc/irq/40/smp_affinity_list", "0-3"),
    ("/proc/irq/40/effective_affinity_list", "0"),
    ("/proc/irq/41/smp_affinity_list", "0-3"),
    (IRQ_41, "1"),
    ("/etc/resolv.conf", "nameserver 192.0.2.1\n"),
];

const CLOCK: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
const GOVERNOR: &str = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor";
const SOFTNET: &str = "/proc/net/softnet_stat";
const SCHEDSTAT: &str = "/proc/14/schedstat";
const IRQ_41: &str = "/proc/irq/41/effective_affinity_list";

/// Asks about a healthy host with this file instead of its own.
fn with(check: &Check, path: &str, text: &str) -> Result<Outcome> {
    let root = Fixture::healthy()?;
    root.set(path, text)?;
    Ok(Outcome::Said(check.verdicts(&root.context())))
}

/// The same without a file.
fn without(check: &Check, path: &str) -> Result<Outcome> {
    let root = Fixture::healthy()?;
    root.remove(path)?;
    Ok(Outcome::Said(check.verdicts(&root.context())))
}

/// The same with a file that changes while it is watched.
fn turning(check: &Check, path: &str, text: &str) -> Result<Outcome> {
    let root = Fixture::healthy()?;
    let context = root.context();
    // The first look is behind it, the second comes when the check asks for it.
    root.set(path, text)?;
    Ok(Outcome::Said(check.verdicts(&context)))
}

pub const fn guest(check: &'static str, inject: fn(&Check) -> Result<Outcome>) -> Fault {
    Fault {
        way: Way::Guest,
        ..fixture(check, inject)
    }
}

pub const fn fixture(check: &'static str, inject: fn(&Check) -> Result<Outcome>) -> Fault {
    Fault {
        check,
        way: Way::Fixture,
        inject,
    }
}

const FAULTS: &[Fault] = &[
    guest("bpf-jit", |check| {
        with(check, "/proc/sys/net/core/bpf_jit_enable", "0")
    }),
    guest("bpf-stats", |check| {
        with(check, "/proc/sys/kernel/bpf_stats_enabled", "1")
    }),
    fixture("btf", |check| without(check, "/sys/kernel/btf/vmlinux")),
    fixture("lockdown", |check| {
        with(
            check,
            "/sys/kernel/security/lockdown",
            "none integrity [confidentiality]",
        )
    }),
    guest("clocksource", |check| with(check, CLOCK, "hpet")),
    fixture("irq-time-accounting", |check| {
        with(check, "/boot/config-6.12.0-test", "\n")
    }),
    fixture("governor", |check| with(check, GOVERNOR, "powersave")),
    guest("huge-pages", |check| {
        with(
            check,
            "/sys/kernel/mm/transparent_hugepage/enabled",
            "always madvise [never]",
        )
    }),
    guest("softnet-dropped", |check| {
        turning(
            check,
            SOFTNET,
            "64 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n64 5 7 0 0 0 0 0 0 0 0 0 1 0 0\n",
        )
    }),
    guest("softnet-squeezed", |check| {
        turning(
            check,
            SOFTNET,
            "64 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n64 5 4007 0 0 0 0 0 0 0 0 0 1 0 0\n",
        )
    }),
    guest("ksoftirqd-time", |check| {
        turning(check, SCHEDSTAT, "60000001000 0 0")
    }),
    guest("napi-budget", |check| {
        with(check, "/proc/sys/net/core/netdev_budget", "64")
    }),
    guest("netdev-backlog", |check| {
        with(check, "/proc/sys/net/core/netdev_max_backlog", "10")
    }),
    guest("busy-poll", |check| {
        with(check, "/proc/sys/net/core/busy_read", "50")
    }),
    guest("default-qdisc", |check| {
        with(check, "/proc/sys/net/core/default_qdisc", "fq_codel")
    }),
    guest("rps-flow-table", |check| {
        with(
            check,
            "/sys/class/net/eth0/queues/rx-1/rps_flow_cnt",
            "4096",
        )
    }),
    fixture("irq-affinity", |check| with(check, IRQ_41, "0")),
    guest("resolver-vrf", |check| {
        with(check, "/etc/resolv.conf", "nameserver 127.0.0.53\n")
    }),
    guest("l3mdev-accept", |check| {
        with(check, "/proc/sys/net/ipv4/tcp_l3mdev_accept", "0")
    }),
    Fault {
        check: "bpffs",
        way: Way::Namespace,
        inject: |check| {
            // Whatever is mounted there: it is covered in a mount namespace of the process's own.
            let script = "mount -t tmpfs none /sys/fs/bpf && exec \"$0\" doctor --json";
            let mut unshare = Command::new("unshare");
            unshare.args(["--mount", "sh", "-c", script, weir_path()]);
            said_by(&mut unshare, check)
        },
    },
    Fault {
        check: "capabilities",
        way: Way::Process,
        inject: |check| {
            let mut setpriv = Command::new("setpriv");
            setpriv.args([
                "--bounding-set=-net_raw,-bpf,-sys_admin",
                weir_path(),
                "doctor",
                "--json",
            ]);
            said_by(&mut setpriv, check)
        },
    },
    Fault {
        check: "kernel-features",
        way: Way::Process,
        inject: |check| said_by(without_af_xdp(weir().args(["doctor", "--json"])), check),
    },
    Fault {
        check: "bridge-netfilter",
        way: Way::Namespace,
        inject: |check| {
            let namespace = namespace_with_bridge()?;
            let Ok(true) = fs::exists("/proc/sys/net/bridge") else {
                return Ok(Outcome::Impossible("br_netfilter is not loaded".into()));
            };
            let on = "sysctl -q -w net.bridge.bridge-nf-call-iptables=1";
            run_in(namespace.as_fd(), "sh", &["-c", on])?;
            ask_in(namespace.as_fd(), check)
        },
    },
    Fault {
        check: "netfilter-bypass",
        way: Way::Namespace,
        inject: |check| {
            let lab = Lab::anonymous(&LabConfig::default())?;
            let side = lab.app();
            let _program = netns::run_in(side.netns(), || -> Result<_> {
                let device = xsk::Device::lookup(&side.device)?;
                Ok(xsk::testing::programs::attach_other(
                    &device,
                    xsk::AttachMode::Driver,
                )?)
            })?;
            if Command::new("nft").arg("--version").output().is_err() {
                let reason = "nft is not installed: apt install nftables";
                return Ok(Outcome::Impossible(reason.into()));
            }
            run_in(side.netns(), "nft", &["add", "table", "inet", "weir-test"])?;
            ask_in(side.netns(), check)
        },
    },
    fixture("netfilter-bypass", |check| {
        with(check, "/proc/net/ip_tables_names", "filter\n")
    }),
    fixture("bridge-netfilter", |check| {
        with(check, "/proc/sys/net/bridge/bridge-nf-call-iptables", "1")
    }),
];

fn weir_path() -> &'static str {
    env!("CARGO_BIN_EXE_weir")
}

/// What a doctor in a process of its own finds.
fn said_by(command: &mut Command, check: &Check) -> Result<Outcome> {
    let output = output(command)?;
    let report: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let Some(findings) = report["findings"].as_array() else {
        bail!("no findings in {report}");
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let finding = |found: &Value| {
        let evidence = found["evidence"].as_array().into_iter().flatten();
        let evidence = evidence.map(|it| Evidence::new(text(&it["source"]), text(&it["value"])));
        Verdict::Finding(Finding {
            subject: text(&found["subject"]),
            evidence: evidence.collect(),
            message: text(&found["message"]),
            fix: Fix::Text(found["fix"].to_string()),
        })
    };
    let of_check = findings.iter().filter(|found| found["id"] == check.id);
    Ok(Outcome::Said(of_check.map(finding).collect()))
}

/// Takes AF_XDP away from a process, as `RestrictAddressFamilies=` of systemd does.
fn without_af_xdp(command: &mut Command) -> &mut Command {
    // SAFETY: needed because a filter holds for the process that sets it, and those after it.
    // Sound because the hook makes two system calls and touches neither heap nor locks, all
    // that is allowed in the child of a process with several threads.
    unsafe { command.pre_exec(refuse_af_xdp) }
}

fn refuse_af_xdp() -> std::io::Result<()> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const UNLESS: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
    // The number of the call is the first of `struct seccomp_data`, and the low half of its
    // first argument, on the machines that this runs on, is 16 bytes behind.
    let mut filter = [
        step(LOAD, 0, 0),
        step(UNLESS, 3, libc::SYS_socket as u32),
        step(LOAD, 0, 16),
        step(UNLESS, 1, libc::AF_XDP as u32),
        step(
            RETURN,
            0,
            libc::SECCOMP_RET_ERRNO | libc::EAFNOSUPPORT as u32,
        ),
        step(RETURN, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: needed because rustix has no call for filters. Sound because the program points
    // to as many instructions as it says, which the kernel copies.
    let failed = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) };
    if failed == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error())
}
