//! The faults of the checks in `host/`, and the recorded host of those that cannot be real.
//!
//! Faults are injected for real where that is possible: in a namespace, in a process or in the
//! guest. Otherwise they are in a recorded state of files and values.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context as _, Result, bail};
use hostnet::ethtool::{Channels, Feature, Queues, RxCoalesce, RxRing};
use hostnet::netns;
use hostnet::sock_diag::inet::{Protocol, State};
use serde_json::Value;
use testkit::sandbox::Refused;
use weir::doctor;
use weir::doctor::context::device::{DeviceState, Link, Program};
use weir::doctor::context::moment::Moment;
use weir::doctor::context::{InetSocket, NetworkState, Owner, Statistic, XdpFeatures, XdpSocket};
use weir::doctor::{Check, Context, Evidence, Finding, Fix, Verdict};
use weir::lab::{Lab, LabConfig};
use xsk::AttachMode;

use crate::doctor::{namespace_with_bridge, run_in};
use crate::{doctor_faults_stack, output, weir};

/// The kind of a fault, the most real first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Real, in network namespaces of the test.
    Namespace,
    /// Real, in a process of the test.
    Process,
    /// Real in the guest, by the scripts in `tests/guest`; on this host in a recorded state.
    Guest,
    /// In a recorded state.
    Fixture,
}

/// A fault that a check must find.
pub struct Fault {
    /// The id of the check.
    pub check: &'static str,
    /// Its kind.
    pub way: Way,
    /// Injects the fault and runs the check.
    pub inject: fn(&Check) -> Result<Outcome>,
}

/// The result of a fault.
pub enum Outcome {
    /// The verdicts of the check.
    Verdicts(Vec<Verdict>),
    /// The fault cannot be injected on this host.
    Impossible(String),
}

/// The time between the two reads of this host's counters: a fault of a test is not rare.
const LOOK: Duration = Duration::from_secs(1);

/// This host, in the network namespace of the thread, with these devices of `--dev`.
pub fn host(requested: &[&str]) -> Context {
    let requested = requested.iter().map(|&name| name.to_owned()).collect();
    Context::host(requested, &doctor::counters(), LOOK)
}

/// Runs a check inside a network namespace.
fn run_check_in(namespace: BorrowedFd<'_>, check: &Check) -> Result<Outcome> {
    let verdicts = netns::run_in(namespace, || -> Result<_> {
        Ok(check.verdicts(&host(&[])))
    })?;
    Ok(Outcome::Verdicts(verdicts))
}

/// The time between the two reads of a fixture's counters.
const INTERVAL: Duration = Duration::from_millis(100);

/// A recorded host: a root directory, and devices as values.
pub struct Fixture {
    root: PathBuf,
    pub network: NetworkState,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // A failure leaves a temporary directory.
        let _ = fs::remove_dir_all(&self.root);
    }
}

impl Fixture {
    /// A host without a fault, with the card `eth0`.
    pub fn healthy() -> Result<Self> {
        let name = format!(
            "weir-doctor-{}-{:?}",
            std::process::id(),
            thread::current().id()
        );
        let name: String = name.chars().filter(|c| !"()".contains(*c)).collect();
        let fixture = Self {
            root: std::env::temp_dir().join(name),
            network: healthy_network(),
        };
        let _ = fs::remove_dir_all(&fixture.root);
        for (path, text) in HEALTHY {
            fixture.set(path, text)?;
        }
        for (path, text) in doctor_faults_stack::healthy() {
            fixture.set(path, &text)?;
        }
        Ok(fixture)
    }

    /// The state of `eth0`.
    pub fn card(&mut self) -> &mut DeviceState {
        &mut self.network.devices[CARD]
    }

    /// Sets a statistic of `eth0` at the end of the look.
    pub fn count(&mut self, name: &str, value: u64) {
        let statistics = self.network.moments[1].statistics.values_mut().flatten();
        statistics
            .filter(|it| it.name == name)
            .for_each(|it| it.value = value);
    }

    /// Switches a feature of `eth0`, by its name in the kernel.
    pub fn switch(&mut self, feature: &str, on: bool) {
        let features = self.card().features.iter_mut();
        features
            .filter(|it| it.name == feature)
            .for_each(|it| it.on = on);
    }

    /// Runs a check on it.
    pub fn run(&self, check: &Check) -> Outcome {
        Outcome::Verdicts(check.verdicts(&self.context(&[])))
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    pub fn set(&self, path: &str, text: &str) -> Result<()> {
        write(&self.path(path), text)
    }

    fn remove(&self, path: &str) -> Result<()> {
        fs::remove_file(self.path(path)).with_context(|| format!("cannot remove {path}"))
    }

    /// A context of it, with these devices of `--dev`.
    pub fn context(&self, requested: &[&str]) -> Context {
        let requested = requested.iter().map(|&name| name.to_owned()).collect();
        let network = self.network.clone();
        Context::recorded(
            &self.root,
            network,
            requested,
            &doctor::counters(),
            INTERVAL,
        )
    }
}

/// The index of `eth0` in [`healthy_network`].
const CARD: usize = 1;

fn healthy_network() -> NetworkState {
    let device = |(index, (name, kind)): (usize, (&str, Option<&str>))| DeviceState {
        link: Link {
            name: name.into(),
            index: index as u32 + 1,
            kind: kind.map(Into::into),
            loopback: name == "lo",
            mtu: 1500,
            ..Link::default()
        },
        ..DeviceState::default()
    };
    let devices = [
        ("lo", None),
        ("eth0", None),
        ("mgmt", Some("vrf")),
        ("br0", Some("bridge")),
        ("tap0", Some("tun")),
    ];
    let mut devices: Vec<_> = devices.into_iter().enumerate().map(device).collect();
    devices[CARD] = card(devices[CARD].link.clone());
    NetworkState {
        devices,
        qdiscs: Vec::new(),
        xdp_sockets: Some(vec![XdpSocket {
            device: CARD as u32 + 1,
            queue: 0,
            zero_copy: true,
        }]),
        nft_tables: Vec::new(),
        moments: [moment(), moment()],
        owners: BTreeMap::from([(
            RECEIVER,
            Owner {
                pid: 4711,
                comm: "receiver".into(),
                descriptor: 3,
            },
        )]),
    }
}

/// The inode of the one UDP socket of the host.
const RECEIVER: u32 = 77;

/// A card that has paused its link partner once, and a UDP socket that has dropped nothing.
fn moment() -> Moment {
    let statistic = |(name, value): (&str, u64)| Statistic {
        name: name.into(),
        value,
    };
    let statistics = [("tx_pause", 1), ("rx_no_buffer_count", 5)].map(statistic);
    let socket = InetSocket {
        protocol: Protocol::Udp,
        state: State::Close,
        local: [0; 4].into(),
        local_port: 53,
        remote: [0; 4].into(),
        remote_port: 0,
        device: 0,
        inode: RECEIVER,
        cookie: 1,
        uid: 0,
        receive_queue: 0,
        send_queue: 0,
        memory: None,
    };
    Moment {
        udp: Some(vec![socket]),
        listeners: Some(Vec::new()),
        statistics: BTreeMap::from([("eth0".into(), statistics.to_vec())]),
        ..Moment::default()
    }
}

/// A card of four queues with native XDP and a program.
fn card(link: Link) -> DeviceState {
    let queues = Queues {
        rx: 0,
        tx: 0,
        combined: 4,
    };
    let feature = |(name, on): (&str, bool)| Feature {
        name: name.into(),
        on,
        changeable: true,
    };
    let features = [
        ("rx-lro", false),
        ("rx-gro-hw", false),
        ("rx-vlan-hw-parse", false),
        ("rx-vlan-filter", false),
    ];
    DeviceState {
        link: Link {
            xdp_program: Some(7),
            ..link
        },
        programs: vec![Program {
            removal: String::new(),
            id: 7,
            name: Some("xsk_redirect".into()),
            mode: AttachMode::Driver,
            description: "program id 7 name xsk_redirect".into(),
            native_devmap: false,
            redirects: true,
        }],
        features: features.map(feature).to_vec(),
        channels: Some(Channels {
            most: queues,
            used: queues,
        }),
        rx_ring: Some(RxRing {
            most: 4096,
            used: 256,
        }),
        rx_coalesce: Some(RxCoalesce {
            usecs: 50,
            frames: 0,
            adaptive: false,
        }),
        // Basic, redirect, ndo-xmit and xsk-zerocopy.
        xdp_features: Some(XdpFeatures::new(0b1111)),
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
    (
        "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
        "0",
    ),
    ("/proc/self/mounts", "bpf /sys/fs/bpf bpf rw 0 0\n"),
    ("/proc/self/status", "Name:\tx\nCapEff:\t000001fffeffffff\n"),
    (
        "/proc/self/limits",
        "Limit  Soft Limit  Hard Limit  Units\nMax locked memory  8388608  8388608  bytes\n",
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
    ("/sys/devices/system/cpu/isolated", "3"),
    ("/sys/class/net/eth0/queues/rx-0/rps_cpus", "0"),
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
    // A file of the bonding module among the devices.
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
    (
        "/proc/net/dev",
        "Inter-|\n face |bytes\n  eth0: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
    ),
    (RX_MISSED, "0"),
    ("/sys/class/net/eth0/statistics/rx_fifo_errors", "0"),
    ("/sys/class/net/eth0/device/numa_node", "0"),
    ("/sys/devices/system/node/node0/cpulist", "0-1"),
    ("/sys/devices/system/node/node1/cpulist", "2-3"),
];

pub const RX_MISSED: &str = "/sys/class/net/eth0/statistics/rx_missed_errors";

const CLOCK: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
const GOVERNOR: &str = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor";
const SOFTNET: &str = "/proc/net/softnet_stat";
const SCHEDSTAT: &str = "/proc/14/schedstat";
pub const IRQ_41: &str = "/proc/irq/41/effective_affinity_list";

/// Runs a check on a healthy host with another text in this file.
pub fn with(check: &Check, path: &str, text: &str) -> Result<Outcome> {
    let root = Fixture::healthy()?;
    root.set(path, text)?;
    Ok(root.run(check))
}

/// The same without this file.
fn without(check: &Check, path: &str) -> Result<Outcome> {
    let root = Fixture::healthy()?;
    root.remove(path)?;
    Ok(root.run(check))
}

/// The same with a counter file that changes after the first read.
pub fn turning(check: &Check, path: &str, text: &str) -> Result<Outcome> {
    let root = Fixture::healthy()?;
    let context = root.context(&[]);
    root.set(path, text)?;
    Ok(Outcome::Verdicts(check.verdicts(&context)))
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

/// The faults of the checks in `host/`.
pub const FAULTS: &[Fault] = &[
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
    fixture("isolated-cpus", |check| with(check, IRQ_41, "3")),
    fixture("isolated-cpus", |check| {
        with(check, "/sys/class/net/eth0/queues/rx-0/rps_cpus", "c")
    }),
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
            // A mount in a mount namespace of its own covers /sys/fs/bpf.
            let script = "mount -t tmpfs none /sys/fs/bpf && exec \"$0\" doctor --json";
            let mut unshare = Command::new("unshare");
            unshare.args(["--mount", "sh", "-c", script, weir_path()]);
            verdicts_of(&mut unshare, check)
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
            verdicts_of(&mut setpriv, check)
        },
    },
    Fault {
        check: "kernel-features",
        way: Way::Process,
        inject: without_xdp_links,
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
            run_check_in(namespace.as_fd(), check)
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
                    AttachMode::Driver,
                )?)
            })?;
            if Command::new("nft").arg("--version").output().is_err() {
                let reason = "nft is not installed: apt install nftables";
                return Ok(Outcome::Impossible(reason.into()));
            }
            run_in(side.netns(), "nft", &["add", "table", "inet", "weir-test"])?;
            run_check_in(side.netns(), check)
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

/// The findings of a doctor in another process.
fn verdicts_of(command: &mut Command, check: &Check) -> Result<Outcome> {
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
            fix: Fix::Manual(found["fix"].to_string()),
        })
    };
    let of_check = findings.iter().filter(|found| found["id"] == check.id);
    Ok(Outcome::Verdicts(of_check.map(finding).collect()))
}

/// On a thread whose bpf(2) answers as a kernel does that knows no XDP links, before Linux 5.9.
fn without_xdp_links(check: &Check) -> Result<Outcome> {
    let run = || {
        Refused::Call(libc::SYS_bpf).with(libc::EINVAL)?;
        verdicts_of(weir().args(["doctor", "--json"]), check)
    };
    thread::scope(|scope| scope.spawn(run).join().expect("no panic"))
}
