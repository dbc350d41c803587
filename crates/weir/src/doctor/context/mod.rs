//! The state of the host, the only input of every check.

mod cached;
mod cgroup;
pub mod device;
pub mod files;
pub mod moment;
pub mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hostnet::kernel_config::KernelConfig;
use hostnet::rtnetlink::Rtnetlink;
use hostnet::sock_diag::inet::{self, Protocol, State};
use hostnet::sock_diag::{self, xdp_diag};
use hostnet::{netns, nfnetlink};
use rustix::process::geteuid;
use rustix::time::{ClockId, clock_gettime};
use xsk::{Feature, MissingFeature};

use crate::report::shell::quote;
use cached::Cached;
use device::{Device, DeviceState, Link};
use files::Files;
use moment::{Moment, Moments};
use watch::{Ksoftirqd, Lists, Twice, Watch};

pub use hostnet::ethtool::Statistic;
pub use hostnet::genetlink::netdev::XdpFeatures;
pub use hostnet::rtnetlink::{Neighbour, NeighbourState, Qdisc, QdiscOptions, TcHandle};
pub use hostnet::sock_diag::Owner;
pub use hostnet::sock_diag::inet::InetSocket;
pub use hostnet::sock_diag::xdp_diag::XdpSocket;

/// The time between the two reads of a counter, unless the caller wants another: losses come in bursts,
/// and a second is too short for many.
pub const LOOK: Duration = Duration::from_secs(3);
/// The clock is read in so many runs of so many reads each.
const CLOCK_RUNS: usize = 10;
const CLOCK_READS: u32 = 100;

/// The state of the host, or that of a test.
///
/// It is of the network namespace of the thread that made it, and is to be used on that thread.
/// Everything that netlink and ethtool report is read at most once; files are read each time,
/// since a fix changes them. Paths are those of the host, such as `/proc/net/softnet_stat`,
/// whatever the root; /sys/class/net is of this namespace even where /sys is of another.
pub struct Context {
    files: Files,
    watch: Watch,
    requested: Vec<String>,
    live: bool,
    probes_xdp: bool,
    devices: Cached<Vec<Device>>,
    qdiscs: Cached<Vec<Qdisc>>,
    xdp_sockets: Cached<Option<Vec<XdpSocket>>>,
    nft_tables: Cached<Vec<String>>,
    recorded_owners: Option<BTreeMap<u32, Owner>>,
}

/// The state that is not in files as values, for tests.
#[derive(Debug, Clone, Default)]
pub struct NetworkState {
    /// The devices.
    pub devices: Vec<DeviceState>,
    /// Their queueing disciplines.
    pub qdiscs: Vec<Qdisc>,
    /// The AF_XDP sockets; none for a kernel that does not list them.
    pub xdp_sockets: Option<Vec<XdpSocket>>,
    /// The tables of nftables.
    pub nft_tables: Vec<String>,
    /// The lists when the run starts, and one interval later.
    pub moments: [Moment; 2],
    /// The processes of sockets by inode.
    pub owners: BTreeMap<u32, Owner>,
}

impl Context {
    /// This host. The requested devices are those of `--dev`; all if none is given. `counters` are
    /// the files that [`Self::twice`] compares after `interval`.
    pub fn host(requested: Vec<String>, counters: &[&'static str], interval: Duration) -> Self {
        let files = Files::of_host();
        Self {
            watch: Watch::start(&files, counters, Moments::Live, interval),
            files,
            requested,
            live: true,
            probes_xdp: false,
            devices: Cached::empty(),
            qdiscs: Cached::empty(),
            xdp_sockets: Cached::empty(),
            nft_tables: Cached::empty(),
            recorded_owners: None,
        }
    }

    /// Lets checks open AF_XDP sockets on the requested devices (`--xdp`).
    #[must_use]
    pub fn probing_xdp(self, on: bool) -> Self {
        Self {
            probes_xdp: on,
            ..self
        }
    }

    /// A state for tests that never asks the kernel: files below `root`, everything else from
    /// `network`.
    pub fn recorded(
        root: &Path,
        network: NetworkState,
        requested: Vec<String>,
        counters: &[&'static str],
        interval: Duration,
    ) -> Self {
        let files = Files::below(root);
        let devices: Vec<_> = network.devices.into_iter().map(Device::from).collect();
        Self {
            watch: Watch::start(
                &files,
                counters,
                Moments::Recorded(network.moments.into()),
                interval,
            ),
            files,
            requested,
            live: false,
            probes_xdp: false,
            devices: devices.into(),
            qdiscs: network.qdiscs.into(),
            xdp_sockets: network.xdp_sockets.into(),
            nft_tables: network.nft_tables.into(),
            recorded_owners: Some(network.owners),
        }
    }
}

/// Files.
impl Context {
    /// The actual path of a file of the host, such as `/sys/class/net/eth0/mtu`.
    pub fn path(&self, path: &str) -> Result<PathBuf> {
        self.files.path(path)
    }

    /// The text of a file, without white space at its end.
    pub fn read(&self, path: &str) -> Result<String> {
        self.files.read(path)
    }

    /// The text of a file, or `None` if there is no such file.
    pub fn read_if_there(&self, path: &str) -> Result<Option<String>> {
        self.files.read_if_there(path)
    }

    /// The names in a directory, sorted; none if there is no such directory.
    pub fn list(&self, path: &str) -> Result<Vec<String>> {
        self.files.list(path)
    }

    /// The last part of a symbolic link's target; none without such a link.
    pub fn link_target(&self, path: &str) -> Option<String> {
        self.files.link_target(path)
    }

    /// The processes in /proc, by number.
    pub fn pids(&self) -> Vec<u32> {
        self.files.pids()
    }

    /// Writes a file that exists.
    pub fn write(&self, path: &str, value: &str) -> Result<()> {
        self.files.write(path, value)
    }

    /// A counter file at the start of the run and one interval later. It must be among the
    /// `counters` of a check. The first call waits for the second read.
    pub fn twice(&self, path: &str) -> Result<Twice<'_>> {
        self.watch.twice(&self.files, path)
    }

    /// Netlink's lists at the start of the run and one interval later. The first call of this or of
    /// [`Self::twice`] waits for the second read.
    pub fn lists(&self) -> Result<Lists<'_>> {
        self.watch.lists(&self.files)
    }

    /// The ksoftirqd threads; none if they are in another PID namespace.
    pub fn ksoftirqd(&self) -> &[Ksoftirqd] {
        self.watch.ksoftirqd()
    }

    /// The directories of the control groups with a CPU limit; [`Self::twice`] has their cpu.stat.
    pub fn limited_groups(&self) -> &[String] {
        self.watch.limited_groups()
    }

    /// The processes of a control group and of those below it.
    pub fn processes_of_group(&self, group: &str) -> Vec<u32> {
        cgroup::processes(&self.files, group)
    }

    /// The configuration of the kernel.
    pub fn kernel_config(&self) -> Result<KernelConfig> {
        KernelConfig::read_below(self.files.root())
            .context("cannot read the kernel's configuration")
    }
}

/// Devices.
impl Context {
    /// The devices of `--dev`; all if none is given.
    pub fn requested(&self) -> &[String] {
        &self.requested
    }

    /// Whether `--dev` names this device.
    pub fn is_requested(&self, device: &Device) -> bool {
        self.requested.iter().any(|name| name == device.name())
    }

    /// Whether checks may open AF_XDP sockets.
    pub fn probes_xdp(&self) -> bool {
        self.probes_xdp
    }

    /// Whether this device is to be examined: a requested one, or any but the loopback.
    pub fn is_selected(&self, device: &Device) -> bool {
        self.is_requested(device) || (self.requested.is_empty() && !device.link.loopback)
    }

    /// Whether XDP is used or intended on this device: it has a program or is requested.
    pub fn is_for_xdp(&self, device: &Device) -> Result<bool> {
        Ok(self.is_requested(device) || !device.programs()?.is_empty())
    }

    /// Every device of the network namespace.
    pub fn devices(&self) -> Result<&[Device]> {
        let read = || -> Result<Vec<Device>> {
            let links = Rtnetlink::open()?.links()?.into_iter();
            Ok(links.map(|link| Device::of_host(link.into())).collect())
        };
        self.devices.get(read).map(Vec::as_slice)
    }

    /// The devices in /sys/class/net.
    pub fn class_net(&self) -> Result<Vec<String>> {
        self.files.class_net()
    }

    /// The driver of a real device.
    pub fn driver(&self, device: &Device) -> Option<String> {
        let path = format!("/sys/class/net/{}/device/driver", device.name());
        self.link_target(&path)
    }

    /// The peer of a veth, also in another network namespace, where it needs `CAP_NET_ADMIN` over that;
    /// none for other devices.
    pub fn peer_link(&self, device: &Device) -> Result<Option<Link>> {
        if let Some(peer) = self.peer_here(device)? {
            return Ok(Some(peer.link.clone()));
        }
        let (Some(netns), Some(index)) = (device.link.lower_netns, device.link.lower) else {
            return Ok(None);
        };
        if !device.is_veth() {
            return Ok(None);
        }
        ensure!(self.live, "a recorded state has one network namespace");
        Ok(Some(Rtnetlink::open()?.link_in(netns, index)?.into()))
    }

    /// The peer of a veth; none if that is in another network namespace which is not found or may not be entered.
    pub fn veth_peer<'a>(&'a self, device: &'a Device) -> Result<Option<&'a Device>> {
        Ok(self.peer_here(device)?.or_else(|| device.peer_elsewhere()))
    }

    fn peer_here(&self, device: &Device) -> Result<Option<&Device>> {
        let link = &device.link;
        if !device.is_veth() || link.lower_netns.is_some() {
            return Ok(None);
        }
        let mut devices = self.devices()?.iter();
        Ok(devices
            .find(|peer| Some(peer.link.index) == link.lower && peer.link.index != link.index))
    }

    /// Every queueing discipline of the network namespace.
    pub fn qdiscs(&self) -> Result<&[Qdisc]> {
        let read = || Rtnetlink::open()?.qdiscs();
        self.qdiscs.get(read).map(Vec::as_slice)
    }

    /// Every bound AF_XDP socket of the network namespace; none for a kernel that does not list
    /// them (`CONFIG_XDP_SOCKETS_DIAG`).
    pub fn xdp_sockets(&self) -> Result<Option<&[XdpSocket]>> {
        let sockets = self.xdp_sockets.get(xdp_diag::xdp_sockets)?;
        Ok(sockets.as_deref())
    }

    /// The TCP connections of the network namespace, open, closing or in `TIME_WAIT`; none for a kernel
    /// that does not list them (`CONFIG_INET_TCP_DIAG`).
    pub fn connections(&self) -> Result<Option<Vec<InetSocket>>> {
        ensure!(self.live, "a recorded state has no connections");
        let states = State::ALL.into_iter();
        let states: Vec<_> = states.filter(|it| *it != State::Listen).collect();
        Ok(inet::sockets(Protocol::Tcp, &states)?)
    }

    /// The processes that have the sockets with these inodes open.
    pub fn owners(&self, inodes: &BTreeSet<u32>) -> Result<BTreeMap<u32, Owner>> {
        match &self.recorded_owners {
            Some(owners) => Ok(owners.clone()),
            None => Ok(sock_diag::owners(inodes)?.by_inode),
        }
    }

    /// The tables of nftables in the network namespace.
    pub fn nft_tables(&self) -> Result<&[String]> {
        let read = || nfnetlink::tables().context("cannot list the tables of nftables");
        self.nft_tables.get(read).map(Vec::as_slice)
    }
}

/// The kernel and this process.
impl Context {
    /// The network namespace's number.
    pub fn netns(&self) -> Result<u64> {
        ensure!(self.live, "a recorded state has no network namespace");
        netns::current().context("cannot read the number of the network namespace")
    }

    /// Whether the network namespace is the initial one: only that one has the settings of the
    /// whole host (`net_core_table` in `net/core/sysctl_net_core.c`).
    pub fn is_initial_netns(&self) -> bool {
        self.path("/proc/sys/net/core/netdev_max_backlog")
            .is_ok_and(|path| path.exists())
    }

    /// Whether this process runs as root.
    pub fn is_root(&self) -> bool {
        !self.live || geteuid().is_root()
    }

    /// Probes the kernel for a feature of AF_XDP.
    pub fn probe(&self, feature: Feature) -> Result<(), MissingFeature> {
        if !self.live {
            return Ok(());
        }
        feature.probe()
    }

    /// The time that one read of the clock takes, in nanoseconds: the mean of the fastest run, as
    /// others may be interrupted. None for a recorded state.
    pub fn clock_read_ns(&self) -> Option<u128> {
        let run = || {
            let start = Instant::now();
            for _ in 0..CLOCK_READS {
                std::hint::black_box(clock_gettime(ClockId::Monotonic));
            }
            start.elapsed().as_nanos()
        };
        let runs = std::iter::repeat_with(run).take(if self.live { CLOCK_RUNS } else { 0 });
        runs.min().map(|fastest| fastest / u128::from(CLOCK_READS))
    }

    /// Runs a command and returns its standard output.
    pub fn run(&self, command: &[String]) -> Result<String> {
        ensure!(self.live, "a recorded state runs no commands");
        let (program, arguments) = command.split_first().context("there is no command")?;
        let output = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot run {program}: is it installed?"))?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "`{}` failed: {}",
            shell(command),
            stderr.trim()
        );
        String::from_utf8(output.stdout)
            .with_context(|| format!("the output of {program} is not UTF-8"))
    }
}

/// A command as typed in a shell.
pub fn shell(command: &[String]) -> String {
    let words: Vec<_> = command.iter().map(|word| quote(word)).collect();
    words.join(" ")
}
