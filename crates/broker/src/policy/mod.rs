//! Tenants and their grants: the file `/etc/weir/broker.toml`.
//!
//! [`Policy::check`] reads its text and reports every fault with its place, [`Policy::load`] the file
//! itself, which nobody else may be able to write. [`Policy::admit`] finds the tenant of a process.

mod admit;
mod diagnostic;
mod load;
mod names;
mod parse;

pub use admit::Refusal;
pub use diagnostic::Diagnostic;
pub use load::{DEFAULT_PATH, LoadError, insecure};
pub use names::Names;
pub use parse::{Checked, MOST_BYTES};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// The policy: the first tenant whose conditions a process meets is its tenant; without one it gets
/// nothing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Policy {
    /// In the order of the file.
    pub tenants: Vec<Tenant>,
}

/// A kind of process, and its grants.
#[derive(Debug, Clone, PartialEq)]
pub struct Tenant {
    /// Name in logs, `weir broker status` and `weir run --tenant NAME`.
    pub name: String,
    /// All conditions must hold.
    pub who: Who,
    /// Whether it may see every frame of its queues, as in zero-copy.
    pub trusted: bool,
    /// Most queues that it holds at one time; 64 by default.
    pub leases: u32,
    /// Most bytes of all its UMEMs; 256 MiB by default.
    pub memory_total: u64,
    /// Most of the broker's own resources.
    pub limits: Limits,
    /// Grants of devices.
    pub devices: Vec<DeviceGrant>,
    /// Grants of supervised calls.
    pub calls: Calls,
    /// Whether the processes of its control group are killed to free a queue that another tenant's
    /// operator wants back (`weir broker revoke`).
    pub kill: bool,
}

impl Default for Tenant {
    fn default() -> Self {
        Self {
            name: String::new(),
            who: Who::default(),
            trusted: false,
            leases: 64,
            memory_total: 256 << 20,
            limits: Limits::default(),
            devices: Vec::new(),
            calls: Calls::default(),
            kill: false,
        }
    }
}

/// Most of the broker's own resources that a tenant has at one time, of all its processes together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Supervised process trees.
    pub sessions: u32,
    /// Descriptors of the broker's process.
    pub descriptors: u32,
    /// Threads for slow calls, besides one of each session.
    pub threads: u32,
    /// BPF maps, as long as a process has them.
    pub maps: u32,
    /// BPF programs, as long as a process has them.
    pub programs: u32,
    /// BPF links, and programs that are attached by netlink.
    pub links: u32,
    /// Loads of BTF, as long as a process has them.
    pub btfs: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 256,
            descriptors: 8192,
            threads: 64,
            maps: 1024,
            programs: 512,
            links: 256,
            btfs: 256,
        }
    }
}

/// Conditions for a process; those that are `None` or empty hold for all. The file says
/// `everyone = true` where all of them are.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Who {
    /// One of these effective user ids, as the broker's user namespace sees them.
    pub uids: Vec<u32>,
    /// One of these effective group ids; supplementary groups do not count.
    pub gids: Vec<u32>,
    /// The executable: the very file at this path, as the broker or process 1 sees it.
    pub executable: Option<PathBuf>,
    /// SHA-256 of the executable's bytes.
    pub sha256: Option<[u8; 32]>,
    /// Path of the control group, or of one above it.
    pub cgroup: Option<String>,
    /// Id of the container, from a runtime that root runs, or one of `uids`.
    pub container: Option<String>,
    /// Annotations of the container, from such a runtime.
    pub annotations: BTreeMap<String, String>,
}

/// Queues of a device.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceGrant {
    /// Name of the device, or an alternative one, in the broker's network namespace.
    pub device: String,
    /// Its queues.
    pub queues: Vec<RangeInclusive<u32>>,
    /// Whether to receive.
    pub rx: bool,
    /// Whether to send.
    pub tx: bool,
    /// Modes of the socket, the first possible one is used.
    pub modes: Vec<Mode>,
    /// Most bytes of a socket's UMEM.
    pub memory: u64,
    /// Packets to receive; all of the queue without a rule.
    pub filter: Vec<FilterRule>,
    /// Limits of busy polling, where it is granted.
    pub busy_poll: Option<BusyPoll>,
    /// Whether the device-plugin protocol hands out its XSKMAP.
    pub plugin: bool,
    /// Whether that is pinned as well, to a file of the tenant's user: nobody asks, so the device is the
    /// tenant's as long as the broker runs.
    pub pinned_map: bool,
}

/// Mode of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Zero-copy: every frame of the queue reaches the tenant's memory before a program judges it.
    ZeroCopy,
    /// Native XDP, copied.
    Driver,
    /// Generic XDP, copied.
    Skb,
}

/// A condition for packets; see `xsk::Rule`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FilterRule {
    /// Protocol of the packets.
    pub protocol: FilterProtocol,
    /// Source prefix.
    pub source: Option<(std::net::IpAddr, u8)>,
    /// Destination prefix.
    pub destination: Option<(std::net::IpAddr, u8)>,
    /// Source port.
    pub source_port: Option<u16>,
    /// Destination port.
    pub destination_port: Option<u16>,
}

/// Protocol of a [`FilterRule`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum FilterProtocol {
    /// IPv4 and IPv6.
    #[default]
    Ip,
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
    /// An EtherType.
    EtherType(u16),
}

/// Limits of busy polling; greater requests are clamped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BusyPoll {
    /// `SO_BUSY_POLL`, in microseconds.
    pub most_usecs: u32,
    /// `SO_BUSY_POLL_BUDGET`, in packets.
    pub most_budget: u16,
}

/// Supervised calls; those not granted are left to the kernel.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Calls {
    /// An unmodified AF_XDP program, on the devices granted.
    pub af_xdp: bool,
    /// Redirections of connect(2).
    pub connect: Vec<Redirect>,
    /// Character devices that mknod(2) makes.
    pub mknod: Vec<CharacterDevice>,
    /// Filesystems that mount(2) mounts.
    pub mount: Option<Mounts>,
    /// Whether BPF programs of type `CGROUP_DEVICE` can be loaded, attached and detached.
    pub bpf_cgroup_device: bool,
    /// Whether the attribute `trusted.overlay.opaque` can be set.
    pub setxattr: bool,
    /// Whether sysinfo(2) returns the limits of the control group.
    pub sysinfo: bool,
    /// Highest real-time priority of `sched_setscheduler(2)`; 0 for normal policies only.
    pub sched_setscheduler: Option<u8>,
}

/// A redirection of connect(2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// Address that the process connects to.
    pub from: SocketAddr,
    /// Backends, taken in turn.
    pub to: Vec<SocketAddr>,
}

/// A character device that does no harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of the files below /dev")]
pub enum CharacterDevice {
    Null,
    Zero,
    Full,
    Random,
    Urandom,
    Tty,
}

/// Filesystems that mount(2) mounts.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Mounts {
    /// Types that the kernel mounts, such as `tmpfs`.
    pub filesystems: Vec<String>,
    /// Types that a FUSE program mounts, and its path below one of [`PROGRAMS`].
    pub fuse: BTreeMap<String, PathBuf>,
}

/// The types that the broker can have the kernel mount. Others either show the broker's view (proc,
/// sysfs), or read images with all of the kernel's privilege.
pub const FILESYSTEMS: &[&str] = &["tmpfs"];

/// Directories of the programs and their libraries that a confined broker can run.
pub const PROGRAMS: [&str; 5] = ["/usr", "/bin", "/sbin", "/lib", "/lib64"];
