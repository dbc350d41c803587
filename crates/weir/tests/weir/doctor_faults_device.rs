//! The faults of the checks in `device/`, most of them on real devices in a network namespace.
//! Automatic fixes are applied, verified and undone.

use std::io::Write as _;
use std::net::UdpSocket;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio, id};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context as _, Result, bail, ensure};
use hostnet::ethtool::RxRing;
use hostnet::netns;
use hostnet::rtnetlink::max_xdp_mtu;
use hostnet::tap::{Tap, TapOptions};
use weir::doctor;
use weir::doctor::{Check, Context, Finding, Fix, Step, Verdict};
use weir::lab::{Lab, LabConfig, Side};
use xsk::testing::programs::attach_other;
use xsk::{AttachMode, Device, Mode, Socket, Umem};

use crate::doctor_faults::{
    Fault, Fixture, IRQ_41, Outcome, RX_MISSED, Way, fixture, guest, host, turning,
};
use crate::{Test, success, tests, weir};

pub fn trials() -> Vec<Test> {
    tests![
        the_contention_is_fixed_and_undone,
        contention_by_routing_is_found,
        a_clean_lab_has_no_device_finding,
    ]
}

/// The faults of the checks in `device/`. Faults that no virtual device can have are recorded.
pub const FAULTS: &[Fault] = &[
    namespace("rps-lock-qdisc", |_| found(rps_lock_qdisc)),
    namespace("xdp-generic", |_| found(xdp_generic)),
    namespace("xdp-foreign", |_| found(xdp_foreign)),
    namespace("xdp-features", |_| found(xdp_features)),
    namespace("xdp-upper-device", |_| found(xdp_upper_device)),
    namespace("xdp-mtu", |_| found(xdp_mtu)),
    namespace("veth-napi", |_| found(veth_napi)),
    namespace("guest-offloads", |_| found(guest_offloads)),
    namespace("vlan-offload", |_| found(vlan_offload)),
    namespace("xdp-long-packets", |_| found(long_packets_of_veth)),
    namespace("xdp-long-packets", |_| found(long_packets_elsewhere)),
    namespace("xdp-long-packets", |_| found(long_packets_below)),
    namespace("xdp-long-packets", |_| found(long_packets_of_tap)),
    namespace("xdp-delivery", |_| found(xdp_delivery)),
    namespace("device-errors", |_| found(device_errors)),
    namespace("queues", |_| found(queues)),
    namespace("threaded-napi", |_| found(threaded_napi)),
    namespace("veth-mtu", |_| found(veth_mtu)),
    namespace("veth-mtu", |_| found(veth_mtu_elsewhere)),
    namespace("bridge-mtu", |_| found(bridge_mtu)),
    namespace("neighbour-stale", |_| found(neighbour_stale)),
    namespace("neighbour-failed", |_| found(neighbour_failed)),
    namespace("qdisc-drops", |_| found(qdisc_drops)),
    namespace("qdisc-drops", |_| found(shaper_drops)),
    namespace("tap-queue", |_| found(tap_queue)),
    fixture("pause-frames", |check| {
        let mut root = Fixture::healthy()?;
        root.count("tx_pause", 900);
        Ok(root.run(check))
    }),
    fixture("irq-numa", irq_numa),
    fixture("xsk-zero-copy", |check| {
        let mut root = Fixture::healthy()?;
        for socket in root.network.xdp_sockets.iter_mut().flatten() {
            socket.zero_copy = false;
        }
        Ok(root.run(check))
    }),
    guest("lro", |check| {
        let mut root = Fixture::healthy()?;
        root.switch("rx-lro", true);
        Ok(root.run(check))
    }),
    fixture("ring-sizes", |check| turning(check, RX_MISSED, "12")),
    fixture("ring-sizes", |check| {
        let mut root = Fixture::healthy()?;
        root.card().rx_ring = Some(RxRing {
            most: 256,
            used: 256,
        });
        root.count("rx_no_buffer_count", 17);
        Ok(root.run(check))
    }),
    fixture("coalescing", |check| {
        let mut root = Fixture::healthy()?;
        if let Some(coalesce) = &mut root.card().rx_coalesce {
            coalesce.usecs = 5000;
        }
        Ok(root.run(check))
    }),
];

const fn namespace(check: &'static str, inject: fn(&Check) -> Result<Outcome>) -> Fault {
    Fault {
        check,
        way: Way::Namespace,
        inject,
    }
}

fn found(fault: fn() -> Result<Finding>) -> Result<Outcome> {
    Ok(Outcome::Verdicts(vec![Verdict::Finding(fault()?)]))
}

/// A network namespace with a fault.
pub struct Broken {
    namespace: OwnedFd,
}

impl Broken {
    /// A namespace after each line of `script`.
    pub fn new(script: &str) -> Result<Self> {
        let namespace = netns::create()?;
        netns::disable_ipv6(namespace.as_fd())?;
        let broken = Self { namespace };
        broken.run(script)?;
        Ok(broken)
    }

    /// A veth pair, up.
    pub fn veth() -> Result<Self> {
        Self::new(
            "ip link add v0 type veth peer name v1
             ip link set v0 up
             ip link set v1 up",
        )
    }

    pub fn run(&self, script: &str) -> Result<()> {
        for line in script.lines() {
            let mut words = line.split_whitespace();
            let Some(program) = words.next() else {
                continue;
            };
            let mut command = Command::new(program);
            command
                .args(words)
                .stdin(Stdio::null())
                .stderr(Stdio::piped());
            let output = self.spawn(&mut command)?.wait_with_output()?;
            let stderr = String::from_utf8_lossy(&output.stderr);
            ensure!(
                output.status.success(),
                "`{}`: {}",
                line.trim(),
                stderr.trim()
            );
        }
        Ok(())
    }

    pub fn spawn(&self, command: &mut Command) -> Result<Child> {
        Ok(netns::spawn(self.namespace.as_fd(), command)?)
    }

    /// Runs `work` on a thread in the namespace.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        netns::run_in(self.namespace.as_fd(), work)
    }

    /// Writes a file of /proc/sys/net or /sys/class/net.
    fn write(&self, path: &str, value: &str) -> Result<()> {
        self.inside(|| host(&[]).write(path, value))
    }

    /// An XDP program on `device` for as long as the returned link is open.
    pub fn program(&self, device: &str, mode: AttachMode) -> Result<OwnedFd> {
        self.inside(|| Ok(attach_other(&Device::lookup(device)?, mode)?))
    }

    /// The verdicts of the check `id` about `device`, with these devices of `--dev`.
    fn verdicts(&self, id: &str, device: &str, requested: &[&str]) -> Result<Vec<Verdict>> {
        self.inside(|| {
            let verdicts = doctor::check(id)?.verdicts(&host(requested));
            Ok(of(verdicts, device))
        })
    }

    /// The one finding of the check `id` about `device`, which has evidence.
    fn finding(&self, id: &str, device: &str, requested: &[&str]) -> Result<Finding> {
        let verdicts = self.verdicts(id, device, requested)?;
        let [Verdict::Finding(finding)] = verdicts.as_slice() else {
            bail!("{id} did not find the fault of {device}: {verdicts:?}");
        };
        let evidence = &finding.evidence;
        ensure!(
            !evidence.is_empty() && evidence.iter().all(|evidence| !evidence.value.is_empty()),
            "{id} has no evidence: {finding:?}"
        );
        Ok(finding.clone())
    }

    fn is_fine(&self, id: &str, device: &str, requested: &[&str]) -> Result<()> {
        let verdicts = self.verdicts(id, device, requested)?;
        ensure!(
            matches!(verdicts.as_slice(), [Verdict::Fine { .. }]),
            "{id} has a false alarm on {device}: {verdicts:?}"
        );
        Ok(())
    }

    /// Applies the steps of `finding`, after which the check is fine. Undoes them, after which the
    /// finding is the same again.
    fn fix_and_undo(&self, id: &str, finding: &Finding, requested: &[&str]) -> Result<Finding> {
        let Fix::Steps(steps) = &finding.fix else {
            bail!("{id} has no fix: {:?}", finding.fix);
        };
        self.each(steps, |step, context| step.apply(context).map(drop))?;
        self.is_fine(id, &finding.subject, requested)?;
        let back: Vec<_> = steps.iter().rev().cloned().collect();
        self.each(&back, Step::undo)?;
        let again = self.finding(id, &finding.subject, requested)?;
        ensure!(
            again.evidence == finding.evidence,
            "the undo of {id} restored something else: {finding:?}, now {again:?}"
        );
        Ok(again)
    }

    fn each(
        &self,
        steps: &[Step],
        work: impl Fn(&Step, &Context) -> Result<()> + Sync,
    ) -> Result<()> {
        self.inside(|| {
            let context = host(&[]);
            steps.iter().try_for_each(|step| work(step, &context))
        })
    }
}

/// The verdicts about one subject.
fn of(verdicts: Vec<Verdict>, subject: &str) -> Vec<Verdict> {
    let is_of = |verdict: &Verdict| match verdict {
        Verdict::Finding(finding) => finding.subject == subject,
        Verdict::Fine { subject: of, .. } | Verdict::Unchecked { subject: of, .. } => of == subject,
    };
    verdicts.into_iter().filter(is_of).collect()
}

/// A bridge with a tap and a veth whose packets RPS spreads over two CPUs.
fn spread_over_cpus() -> Result<Broken> {
    let broken = Broken::new(
        "ip link add br0 type bridge
         ip link add v0 type veth peer name v1
         ip tuntap add tap0 mode tap
         ip link set v0 master br0
         ip link set tap0 master br0
         ip link set v1 up
         ip link set v0 up
         ip link set tap0 up
         ip link set br0 up",
    )?;
    broken.write("/sys/class/net/v0/queues/rx-0/rps_cpus", "3")?;
    Ok(broken)
}

fn rps_lock_qdisc() -> Result<Finding> {
    const ID: &str = "rps-lock-qdisc";
    let broken = spread_over_cpus()?;
    // The default takes no lock here.
    broken.is_fine(ID, "tap0", &[])?;
    broken.run("tc qdisc replace dev tap0 root pfifo limit 77")?;
    let finding = broken.finding(ID, "tap0", &[])?;
    for part in ["pfifo", "rps_cpus", "br0"] {
        let shown = |evidence: &doctor::Evidence| {
            evidence.source.contains(part) || evidence.value.contains(part)
        };
        ensure!(finding.evidence.iter().any(shown), "no {part}: {finding:?}");
    }
    let Fix::Steps(steps) = &finding.fix else {
        bail!("{ID} has no fix: {:?}", finding.fix);
    };
    ensure!(steps[0].command() == "tc qdisc replace dev tap0 root noqueue");
    ensure!(steps[0].undo_command().ends_with(": pfifo limit 77"));
    broken.fix_and_undo(ID, &finding, &[])
}

/// The same on the command line, with its journal.
fn the_contention_is_fixed_and_undone() -> Result<()> {
    let state = Temporary(std::env::temp_dir().join(format!("weir-contention-{}", id())));
    let broken = spread_over_cpus()?;
    broken.run("tc qdisc replace dev tap0 root handle 7: pfifo limit 77")?;
    let doctor = |arguments: &[&str]| {
        broken.inside(|| {
            let mut doctor = weir();
            doctor.arg("doctor").args(arguments);
            success(doctor.env("WEIR_STATE_DIR", &state.0))
        })
    };
    let root = || {
        broken.inside(|| success(Command::new("tc").args(["qdisc", "show", "dev", "tap0", "root"])))
    };
    let before = root()?;
    let output = doctor(&["--fix", "rps-lock-qdisc", "--yes"])?;
    ensure!(
        output.contains("tc qdisc replace dev tap0 root noqueue"),
        "{output}"
    );
    let fixed = root()?;
    ensure!(fixed.starts_with("qdisc noqueue"), "not fixed: {fixed}");
    broken.is_fine("rps-lock-qdisc", "tap0", &[])?;
    doctor(&["--undo"])?;
    ensure!(root()? == before, "{before} is {} now", root()?);
    broken.finding("rps-lock-qdisc", "tap0", &[]).map(drop)
}

/// Packets may also be routed; a discipline that shapes traffic is kept.
fn contention_by_routing_is_found() -> Result<()> {
    const ID: &str = "rps-lock-qdisc";
    let broken = spread_over_cpus()?;
    broken.run(
        "ip link set tap0 nomaster
         tc qdisc replace dev tap0 root tbf rate 1gbit burst 32kb latency 10ms",
    )?;
    broken.is_fine(ID, "tap0", &[])?;
    broken.write("/proc/sys/net/ipv4/conf/all/forwarding", "1")?;
    let finding = broken.finding(ID, "tap0", &[])?;
    let Fix::Manual(text) = &finding.fix else {
        bail!("the fix removes a discipline that shapes traffic: {finding:?}");
    };
    ensure!(text.contains("tbf") && text.contains("rps_cpus"), "{text}");
    // One CPU does not spin.
    broken.write("/sys/class/net/v0/queues/rx-0/rps_cpus", "2")?;
    broken.is_fine(ID, "tap0", &[])
}

fn xdp_generic() -> Result<Finding> {
    let broken = Broken::veth()?;
    let _native = broken.program("v0", AttachMode::Driver)?;
    broken.is_fine("xdp-generic", "v0", &[])?;
    let _generic = broken.program("v1", AttachMode::Skb)?;
    let finding = broken.finding("xdp-generic", "v1", &[])?;
    let shown = &finding.evidence[0].value;
    ensure!(
        shown.contains("not_of_xsk") && shown.contains("generic"),
        "{shown}"
    );
    Ok(finding)
}

fn xdp_foreign() -> Result<Finding> {
    let broken = Broken::veth()?;
    let _program = broken.program("v0", AttachMode::Driver)?;
    broken.is_fine("xdp-foreign", "v0", &[])?;
    let finding = broken.finding("xdp-foreign", "v0", &["v0"])?;
    ensure!(finding.message.contains("not_of_xsk"), "{finding:?}");
    Ok(finding)
}

fn xdp_mtu() -> Result<Finding> {
    let broken = Broken::veth()?;
    broken.is_fine("xdp-mtu", "v0", &["v0"])?;
    let most = max_xdp_mtu();
    broken.run(&format!("ip link set v1 mtu {}", most + 1))?;
    let finding = broken.finding("xdp-mtu", "v0", &["v0"])?;
    ensure!(
        broken.program("v0", AttachMode::Driver).is_err(),
        "the kernel accepts a program at this MTU"
    );
    let finding = broken.fix_and_undo("xdp-mtu", &finding, &["v0"])?;
    broken.run(&format!("ip link set v1 mtu {most}"))?;
    drop(broken.program("v0", AttachMode::Driver)?);
    Ok(finding)
}

fn xdp_features() -> Result<Finding> {
    let broken = Broken::new("ip link add none0 type ifb")?;
    broken.is_fine("xdp-features", "none0", &[])?;
    let finding = broken.finding("xdp-features", "none0", &["none0"])?;
    ensure!(
        broken.program("none0", AttachMode::Driver).is_err(),
        "the kernel accepts a native program there"
    );
    Broken::veth()?.is_fine("xdp-features", "v0", &["v0"])?;
    Ok(finding)
}

fn xdp_upper_device() -> Result<Finding> {
    let broken = Broken::veth()?;
    broken.run("ip link add upper0 link v0 type macvlan")?;
    ensure!(
        broken
            .verdicts("xdp-upper-device", "upper0", &[])?
            .is_empty()
    );
    let finding = broken.finding("xdp-upper-device", "upper0", &["upper0"])?;
    ensure!(finding.evidence[1].value == "v0", "{finding:?}");
    let _program = broken.program("upper0", AttachMode::Skb)?;
    broken.finding("xdp-upper-device", "upper0", &[])
}

fn veth_napi() -> Result<Finding> {
    let broken = Broken::veth()?;
    broken.run(
        "ip link add from0 type veth peer name from1
         ip link set from0 up
         ip link set from1 up",
    )?;
    broken.is_fine("veth-napi", "v0", &[])?;
    let file = redirecting_program()?;
    // ip(8) mounts a bpffs for a program, which would stay mounted.
    broken.run(&format!(
        "unshare --mount ip link set dev from0 xdpdrv obj {} sec xdp",
        file.0.display()
    ))?;
    let finding = broken.finding("veth-napi", "v0", &[])?;
    let finding = broken.fix_and_undo("veth-napi", &finding, &[])?;
    // A native program on the peer is another cure.
    let _program = broken.program("v1", AttachMode::Driver)?;
    broken.is_fine("veth-napi", "v0", &[])?;
    Ok(finding)
}

/// A file or a directory that is removed on drop.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // One of them fails.
        let _ = fs::remove_file(&self.0);
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A compiled XDP program with a map of devices.
fn redirecting_program() -> Result<Temporary> {
    const SOURCE: &str = r#"
#define __uint(name, value) int (*name)[value]
#define SEC(name) __attribute__((section(name), used))
struct { __uint(type, 14); __uint(max_entries, 4); __uint(key_size, 4); __uint(value_size, 4); } to SEC(".maps");
SEC("xdp") int redirecting(void *context)
{
    return ((long (*)(void *, unsigned long long, unsigned long long))51)(&to, 0, 2);
}
char _license[] SEC("license") = "GPL";
"#;
    let file = Temporary(std::env::temp_dir().join(format!("weir-redirecting-{}.o", id())));
    let mut compiler = Command::new("clang")
        .args(["-O2", "-g", "-target", "bpf", "-x", "c", "-c", "-", "-o"])
        .arg(&file.0)
        .stdin(Stdio::piped())
        .spawn()
        .context("cannot run clang")?;
    let mut input = compiler.stdin.take().context("no input")?;
    input.write_all(SOURCE.as_bytes())?;
    drop(input);
    ensure!(compiler.wait()?.success(), "clang failed");
    Ok(file)
}

fn guest_offloads() -> Result<Finding> {
    let broken = Broken::veth()?;
    ensure!(broken.verdicts("guest-offloads", "v0", &[])?.is_empty());
    let _program = broken.program("v0", AttachMode::Driver)?;
    let finding = broken.finding("guest-offloads", "v0", &[])?;
    broken.fix_and_undo("guest-offloads", &finding, &[])
}

fn vlan_offload() -> Result<Finding> {
    let broken = Broken::veth()?;
    ensure!(broken.verdicts("vlan-offload", "v0", &[])?.is_empty());
    let _program = broken.program("v0", AttachMode::Driver)?;
    let finding = broken.finding("vlan-offload", "v0", &[])?;
    broken.fix_and_undo("vlan-offload", &finding, &[])
}

/// An AF_XDP socket on `device`.
fn socket(broken: &Broken, device: &str, mode: Mode) -> Result<Socket> {
    broken.inside(|| {
        let umem = Umem::builder().chunks(64).build()?;
        Ok(Socket::builder(&umem, device, 0).mode(mode).open()?)
    })
}

const DETACH_TIMEOUT: Duration = Duration::from_secs(10);

/// With the packets themselves: lost before the fix, whole after it.
fn long_packets_of_veth() -> Result<Finding> {
    const ID: &str = "xdp-long-packets";
    let broken = Broken::veth()?;
    broken.run(
        "ip link set v0 address 02:00:00:00:00:0a
         ip addr add 10.9.1.2/24 dev v1
         ip neigh replace 10.9.1.1 lladdr 02:00:00:00:00:0a dev v1 nud permanent",
    )?;
    let native = socket(&broken, "v0", Mode::Driver)?;
    ensure!(broken.verdicts(ID, "v0", &["v0"])?.is_empty());
    drop(native);
    let dropping = broken.program("v0", AttachMode::Skb)?;
    ensure!(
        broken.verdicts(ID, "v0", &[])?.is_empty(),
        "it redirects nothing"
    );
    drop(dropping);
    // A process that another thread forks has the link until it executes its program.
    let is_free = || broken.inside(|| Ok(Device::lookup("v0")?.programs.is_empty()));
    let is_free = || is_free().unwrap_or(false);
    ensure!(testkit::wait_until(DETACH_TIMEOUT, is_free), "it stays");

    let mut socket = socket(&broken, "v0", Mode::Skb)?;
    let finding = broken.finding(ID, "v0", &[])?;
    ensure!(segments_received(&broken, &mut socket)? == 0);
    ensure!(
        socket.statistics()?.rx_dropped == 1,
        "{:?}",
        socket.statistics()
    );
    let finding = broken.fix_and_undo(ID, &finding, &[])?;
    let Fix::Steps(steps) = &finding.fix else {
        bail!("no fix: {finding:?}");
    };
    broken.each(steps, |step, context| step.apply(context).map(drop))?;
    ensure!(segments_received(&broken, &mut socket)? == SEGMENTS);
    ensure!(
        socket.statistics()?.rx_dropped == 1,
        "{:?}",
        socket.statistics()
    );
    Ok(finding)
}

const SEGMENTS: usize = 10;

/// Sends one datagram from v1 for its device to segment, and counts the packets that the socket gets.
fn segments_received(broken: &Broken, socket: &mut Socket) -> Result<usize> {
    /// `UDP_SEGMENT` (`include/uapi/linux/udp.h`).
    const UDP_SEGMENT: i32 = 103;
    const LEN: u16 = 1400;
    broken.inside(|| {
        let sender = UdpSocket::bind("10.9.1.2:0")?;
        testkit::packet::set_option(&sender, 17, UDP_SEGMENT, &i32::from(LEN))?;
        sender.send_to(&vec![7; usize::from(LEN) * SEGMENTS], "10.9.1.1:9")?;
        Ok(())
    })?;
    // It is there when the call returns, or a softirq later.
    socket.wait(Duration::from_millis(200))?;
    let mut received = 0;
    let mut batch = socket.recv(64);
    while let Some(packet) = batch.next_packet() {
        received += usize::from(packet.len() == 42 + usize::from(LEN));
    }
    Ok(received)
}

/// The peer in a container: of the veth, and of a macvlan above it.
fn long_packets_elsewhere() -> Result<Finding> {
    const ID: &str = "xdp-long-packets";
    let (broken, other) = (Broken::veth()?, Broken::new("ip link set lo up")?);
    let mut holder = other.spawn(Command::new("sleep").arg("60").stdin(Stdio::null()))?;
    let tested = || -> Result<Finding> {
        broken.run(&format!(
            "ip link set v1 netns {}
             ip link add up0 link v0 type macvlan mode bridge
             ip link set up0 up
             ethtool -K v0 gro off",
            holder.id()
        ))?;
        other.run("ip link set v1 up")?;
        let above = socket(&broken, "up0", Mode::Skb)?;
        broken.finding(ID, "up0", &[])?;
        drop(above);
        let _socket = socket(&broken, "v0", Mode::Skb)?;
        let finding = broken.finding(ID, "v0", &[])?;
        let Fix::Manual(text) = &finding.fix else {
            bail!("it changes another namespace: {finding:?}");
        };
        let commands: Vec<_> = text
            .split('`')
            .filter(|it| it.starts_with("nsenter"))
            .collect();
        ensure!(!commands.is_empty(), "{text}");
        broken.run(&commands.join("\n"))?;
        broken.is_fine(ID, "v0", &[])?;
        Ok(finding)
    };
    let finding = tested();
    holder.kill()?;
    holder.wait()?;
    finding
}

/// A bridge, whose port merges packets, and the sender on the port's other end.
fn long_packets_below() -> Result<Finding> {
    const ID: &str = "xdp-long-packets";
    let broken = Broken::veth()?;
    broken.run(
        "ip link add br0 type bridge
         ip link set v0 master br0
         ip link set br0 up
         ethtool -K v1 tso off tx-udp-segmentation off tx-sctp-segmentation off tx-gso-list off",
    )?;
    let _socket = socket(&broken, "br0", Mode::Skb)?;
    broken.run("ethtool -K v0 gro off")?;
    broken.is_fine(ID, "br0", &[])?;
    broken.run("ethtool -K v0 gro on")?;
    let finding = broken.finding(ID, "br0", &[])?;
    ensure!(
        finding.message.contains("generic-receive-offload"),
        "{finding:?}"
    );
    broken.fix_and_undo(ID, &finding, &[])?;
    broken.run("ethtool -K v1 tso on")?;
    let finding = broken.finding(ID, "br0", &[])?;
    broken.fix_and_undo(ID, &finding, &[])
}

/// A virtual machine's tap; the cure is one without the header for segments.
fn long_packets_of_tap() -> Result<Finding> {
    const ID: &str = "xdp-long-packets";
    let broken = Broken::new("ip link set lo up")?;
    let tap = |vnet_header| {
        let options = TapOptions {
            vnet_header,
            ..TapOptions::default()
        };
        broken.inside(|| {
            let tap = Tap::create_with("tap0", options)?;
            tap.device().set_up()?;
            Ok(tap)
        })
    };
    let machine = tap(true)?;
    let native = socket(&broken, "tap0", Mode::Driver)?;
    let finding = broken.finding(ID, "tap0", &[])?;
    let Fix::Manual(text) = &finding.fix else {
        bail!("its settings are the machine's: {finding:?}");
    };
    ensure!(text.contains("vnet_hdr=off"), "{text}");
    drop(native);
    drop(machine);
    let _machine = tap(false)?;
    let _native = socket(&broken, "tap0", Mode::Driver)?;
    broken.is_fine(ID, "tap0", &[])?;
    Ok(finding)
}

/// An ifb, on which no socket gets packets.
fn xdp_delivery() -> Result<Finding> {
    const ID: &str = "xdp-delivery";
    let broken = Broken::veth()?;
    broken.run(
        "ip link add none0 type ifb
         ip link set none0 up",
    )?;
    let verdicts = |device: &str| {
        broken.inside(|| {
            let context = host(&[device]).probing_xdp(true);
            Ok(of(doctor::check(ID)?.verdicts(&context), device))
        })
    };
    let healthy = verdicts("v0")?;
    ensure!(
        matches!(healthy.as_slice(), [Verdict::Fine { .. }]),
        "{healthy:?}"
    );
    let found = verdicts("none0")?;
    let [Verdict::Finding(finding)] = found.as_slice() else {
        bail!("not found: {found:?}");
    };
    let Fix::Manual(text) = &finding.fix else {
        bail!("{finding:?}");
    };
    ensure!(text.contains("open the socket on the device"), "{text}");
    Ok(finding.clone())
}

fn queues() -> Result<Finding> {
    let broken = Broken::new(
        "ip link add v0 numrxqueues 2 numtxqueues 2 type veth peer name v1 numrxqueues 2 numtxqueues 2
         ethtool -L v0 rx 1 tx 1",
    )?;
    ensure!(broken.verdicts("queues", "v0", &[])?.is_empty());
    let finding = broken.finding("queues", "v0", &["v0"])?;
    broken.fix_and_undo("queues", &finding, &["v0"])
}

fn threaded_napi() -> Result<Finding> {
    let broken = Broken::veth()?;
    // Only a device with NAPI, such as a veth with GRO, has threads.
    broken.run("ethtool -K v0 gro on")?;
    broken.is_fine("threaded-napi", "v0", &[])?;
    broken.write("/sys/class/net/v0/threaded", "1")?;
    let finding = broken.finding("threaded-napi", "v0", &[])?;
    broken.fix_and_undo("threaded-napi", &finding, &[])
}

fn device_errors() -> Result<Finding> {
    let lab = Lab::anonymous(&LabConfig::default())?;
    let tap = lab.app().add_tap("tap0")?;
    let broken = Broken {
        namespace: lab.app().netns().try_clone_to_owned()?,
    };
    broken.is_fine("device-errors", "tap0", &[])?;
    let done = AtomicBool::new(false);
    let finding = thread::scope(|scope| {
        let flood = scope.spawn(|| send_unknown_protocol(tap.descriptor(), &done));
        let finding = broken.finding("device-errors", "tap0", &[]);
        done.store(true, Ordering::Relaxed);
        let flood = flood.join();
        ensure!(matches!(flood, Ok(Ok(()))), "no flood: {flood:?}");
        finding
    })?;
    ensure!(finding.message.contains("rx drop"), "{finding:?}");
    Ok(finding)
}

fn veth_mtu() -> Result<Finding> {
    const ID: &str = "veth-mtu";
    let broken = Broken::veth()?;
    broken.is_fine(ID, "v0", &[])?;
    // Room for a VLAN tag.
    broken.run("ip link set v0 mtu 1504")?;
    broken.is_fine(ID, "v0", &[])?;
    broken.run("ip link set v0 mtu 9000")?;
    broken.is_fine(ID, "v1", &[])?;
    let finding = broken.finding(ID, "v0", &[])?;
    ensure!(finding.message.contains("v1 drops"), "{finding:?}");
    broken.fix_and_undo(ID, &finding, &[])
}

/// The same with the peer in another network namespace, seen from both.
fn veth_mtu_elsewhere() -> Result<Finding> {
    const ID: &str = "veth-mtu";
    let lab = Lab::anonymous(&LabConfig::default())?;
    let (ours, theirs) = (lab.app(), lab.load());
    let side = |side: &Side| -> Result<Broken> {
        let namespace = side.netns().try_clone_to_owned()?;
        Ok(Broken { namespace })
    };
    let (broken, peer) = (side(ours)?, side(theirs)?);
    broken.is_fine(ID, &ours.device, &[])?;
    peer.run(&format!("ip link set {} mtu 9000", theirs.device))?;
    let finding = broken.finding(ID, &ours.device, &[])?;
    let Fix::Manual(text) = &finding.fix else {
        bail!("it changes another namespace: {finding:?}");
    };
    ensure!(text.contains(&theirs.device), "{text}");
    let there = peer.finding(ID, &theirs.device, &[])?;
    peer.fix_and_undo(ID, &there, &[])
}

fn bridge_mtu() -> Result<Finding> {
    const ID: &str = "bridge-mtu";
    let broken = Broken::veth()?;
    broken.run(
        "ip link add from0 type veth peer name from1
         ip link add br0 type bridge
         ip link set v0 master br0
         ip link set from0 master br0",
    )?;
    broken.is_fine(ID, "br0", &[])?;
    broken.run("ip link set from0 mtu 9000")?;
    let finding = broken.finding(ID, "br0", &[])?;
    ensure!(
        finding.message.contains("from0 (9000)") && finding.message.contains("at v0"),
        "{finding:?}"
    );
    Ok(finding)
}

fn neighbour_stale() -> Result<Finding> {
    const ID: &str = "neighbour-stale";
    let broken = Broken::veth()?;
    broken.run(
        "ip link set v1 address 02:00:00:00:00:0b
         ip addr add 10.9.1.1/24 dev v0
         ip neigh replace 10.9.1.2 lladdr 02:00:00:00:00:0b dev v0 nud permanent",
    )?;
    broken.is_fine(ID, "v0", &[])?;
    broken.run("ip neigh replace 10.9.1.2 lladdr 02:00:00:00:00:99 dev v0 nud permanent")?;
    let finding = broken.finding(ID, "v0", &[])?;
    ensure!(finding.message.contains("02:00:00:00:00:0b"), "{finding:?}");
    let finding = broken.fix_and_undo(ID, &finding, &[])?;
    // A peer that takes frames of other addresses may pass them on.
    broken.run("ip link set v1 promisc on")?;
    broken.is_fine(ID, "v0", &[])?;
    broken.run(
        "ip link set v1 promisc off
         ip link add br0 type bridge
         ip link set v1 master br0",
    )?;
    broken.is_fine(ID, "v0", &[])?;
    Ok(finding)
}

fn neighbour_failed() -> Result<Finding> {
    const ID: &str = "neighbour-failed";
    let broken = Broken::veth()?;
    broken.run(
        "ip addr add 10.9.1.1/24 dev v0
         ip neigh replace 10.9.1.2 lladdr 02:00:00:00:00:0b dev v0 nud permanent
         ip neigh replace 10.9.1.3 dev v0 nud failed",
    )?;
    // Nobody sends to the one that failed.
    broken.is_fine(ID, "v0", &[])?;
    while_sending(&broken, "10.9.1.9:9", || {
        let finding = broken.finding(ID, "v0", &[])?;
        ensure!(finding.message.contains("10.9.1.9"), "{finding:?}");
        Ok(finding)
    })
}

/// Sends datagrams meanwhile.
fn while_sending<T>(broken: &Broken, to: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let (done, begun) = (AtomicBool::new(false), Barrier::new(2));
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            broken.inside(|| {
                let socket = UdpSocket::bind("0.0.0.0:0")?;
                // An error tells of an earlier datagram.
                let _ = socket.send_to(b"x", to);
                begun.wait();
                while !done.load(Ordering::Relaxed) {
                    let _ = socket.send_to(b"x", to);
                    thread::sleep(Duration::from_millis(1));
                }
                Ok(())
            })
        });
        begun.wait();
        let result = work();
        done.store(true, Ordering::Relaxed);
        ensure!(matches!(sender.join(), Ok(Ok(()))), "nothing was sent");
        result
    })
}

/// `v0` with an address, a shaper, and a neighbour behind it.
fn shaped() -> Result<Broken> {
    let broken = Broken::veth()?;
    broken.run(
        "ip addr add 10.9.1.1/24 dev v0
         ip neigh replace 10.9.1.2 lladdr 02:00:00:00:00:0b dev v0 nud permanent
         tc qdisc replace dev v0 root handle 7: tbf rate 8kbit burst 2kb limit 3000",
    )?;
    broken.is_fine("qdisc-drops", "v0", &[])?;
    Ok(broken)
}

fn shaper_drops() -> Result<Finding> {
    let broken = shaped()?;
    let finding = dropping(&broken)?;
    ensure!(
        finding.message.starts_with("tbf 7: root of v0"),
        "{finding:?}"
    );
    Ok(finding)
}

fn qdisc_drops() -> Result<Finding> {
    let broken = shaped()?;
    broken.run("tc qdisc replace dev v0 parent 7:1 handle 8: pfifo limit 5")?;
    let finding = dropping(&broken)?;
    ensure!(
        finding.message.starts_with("pfifo 8: parent 7:1"),
        "{finding:?}"
    );
    let Fix::Steps(steps) = &finding.fix else {
        bail!("no fix: {finding:?}");
    };
    broken.each(steps, |step, context| step.apply(context).map(drop))?;
    broken.each(steps, Step::undo)?;
    Ok(finding)
}

/// The finding about a device that drops most of 1000 datagrams.
fn dropping(broken: &Broken) -> Result<Finding> {
    let verdicts = broken.inside(|| {
        let context = host(&[]);
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        for _ in 0..1000 {
            // A full queue is an error.
            let _ = socket.send_to(&[0; 100], "10.9.1.2:9");
        }
        Ok(doctor::check("qdisc-drops")?.verdicts(&context))
    })?;
    let verdicts = of(verdicts, "v0");
    let [Verdict::Finding(finding)] = verdicts.as_slice() else {
        bail!("not found: {verdicts:?}");
    };
    Ok(finding.clone())
}

/// A tap whose process does not read.
fn tap_queue() -> Result<Finding> {
    const ID: &str = "tap-queue";
    let lab = Lab::anonymous(&LabConfig::default())?;
    let _tap = lab.app().add_tap("tap0")?;
    let broken = Broken {
        namespace: lab.app().netns().try_clone_to_owned()?,
    };
    broken.run(
        "ip addr add 10.9.1.1/24 dev tap0
         ip neigh replace 10.9.1.2 lladdr 02:00:00:00:00:0b dev tap0 nud permanent",
    )?;
    broken.is_fine(ID, "tap0", &[])?;
    let verdicts = broken.inside(|| {
        let context = host(&[]);
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        for _ in 0..5000 {
            let _ = socket.send_to(b"x", "10.9.1.2:9");
        }
        Ok([ID, "device-errors"].map(|id| doctor::check(id).map(|it| it.verdicts(&context))))
    })?;
    let [verdicts, errors] = verdicts;
    let errors = of(errors?, "tap0");
    ensure!(
        matches!(errors.as_slice(), [Verdict::Fine { .. }]),
        "found twice: {errors:?}"
    );
    let verdicts = of(verdicts?, "tap0");
    let [Verdict::Finding(finding)] = verdicts.as_slice() else {
        bail!("not found: {verdicts:?}");
    };
    let pid = format!("pid {} (", id());
    ensure!(finding.message.contains(&pid), "{finding:?}");
    let Fix::Steps(steps) = &finding.fix else {
        bail!("no fix: {finding:?}");
    };
    broken.each(steps, |step, context| step.apply(context).map(drop))?;
    broken.each(steps, Step::undo)?;
    Ok(finding.clone())
}

/// Sends frames of an `EtherType` for experiments (0x88b5, IEEE 802), which the kernel drops.
fn send_unknown_protocol(tap: BorrowedFd<'_>, done: &AtomicBool) -> Result<()> {
    let mut frame = [0_u8; 60];
    frame[..6].fill(0xff);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    while !done.load(Ordering::Relaxed) {
        rustix::io::write(tap, &frame)?;
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// An interrupt of a card on node 0 goes to a CPU of node 1; this machine may have one node.
fn irq_numa(check: &Check) -> Result<Outcome> {
    let root = Fixture::healthy()?;
    root.set(IRQ_41, "2")?;
    let verdicts = check.verdicts(&root.context(&[]));
    let [Verdict::Finding(finding)] = verdicts.as_slice() else {
        bail!("not found: {verdicts:?}");
    };
    let Fix::Steps(steps) = &finding.fix else {
        bail!("no fix: {finding:?}");
    };
    ensure!(steps[0].command() == "echo 0-1 > /proc/irq/41/smp_affinity_list");
    ensure!(steps[0].undo_command() == "echo 0-3 > /proc/irq/41/smp_affinity_list");
    Ok(Outcome::Verdicts(verdicts))
}

/// A clean lab gives no finding, with or without `--dev`.
fn a_clean_lab_has_no_device_finding() -> Result<()> {
    let lab = Lab::anonymous(&LabConfig::default())?;
    let _tap = lab.app().add_tap("tap0")?;
    for side in [lab.app(), lab.load()] {
        for requested in [&[][..], &[side.device.as_str()]] {
            netns::run_in(side.netns(), || {
                let context = host(requested);
                for check in doctor::device::CHECKS.iter().copied().flatten() {
                    let verdicts = (check.run)(&context).context(check.id)?;
                    let found = verdicts
                        .iter()
                        .find(|verdict| matches!(verdict, Verdict::Finding(_)));
                    ensure!(found.is_none(), "{}: {found:?}", check.id);
                }
                Ok(())
            })?;
        }
    }
    Ok(())
}
