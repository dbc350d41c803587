//! A Linux host's network: how it is set up, and how to change it.
//!
//! Network namespaces, devices and bridges over rtnetlink and ethtool, taps, XDP features, sockets, counters of
//! the protocols, sysfs, mounts, CPU lists and the kernel's configuration. No BPF, no C library besides libc, no
//! async runtime and no command line: a small privileged daemon can use this crate alone.
//!
//! | module | source |
//! |---|---|
//! | [`netns`] | `network_namespaces(7)`, ip-netns(8) |
//! | [`rtnetlink`] | rtnetlink(7): devices, veth pairs, addresses, default routes, neighbours, queueing disciplines; bridges with their ports, VLANs and forwarding database; notifications |
//! | [`device`] | one device of a namespace, usable from threads in another |
//! | [`ethtool`] | linux/ethtool.h: offloads, queues, rings, interrupt coalescing, statistics; RSS and flow rules |
//! | [`tap`] | Documentation/networking/tuntap.rst |
//! | [`genetlink`] | generic netlink: XDP features, statistics of queues (`netdev`); changes of channels (`ethtool`) |
//! | [`sock_diag`] | `sock_diag(7)`: UDP, TCP, AF_PACKET and AF_XDP sockets, and the processes that have them |
//! | [`nfnetlink`] | tables and hooks of nftables |
//! | [`softnet`] | `/proc/net/softnet_stat`: the network's work on each CPU |
//! | [`mib`] | `/proc/net/snmp`, `netstat`, `snmp6`: counters of the protocols; neighbour tables |
//! | [`sysfs`], [`mount`] | sysfs of a namespace, proc(5) |
//! | [`privilege`] | capabilities(7), seccomp(2): whether a missing capability or a sandbox caused a refusal |
//! | [`cgroup`] | cgroups(7): the memory that a process may use |
//! | [`cpulist`] | cpuset(7), `sched_setaffinity(2)` |
//! | `kernel_config` | `/proc/config.gz` |
//!
//! A namespace belongs to a thread: functions work in the one that the calling thread is in.
//! Sockets and devices stay in the one that they were opened in.
//!
//! # Example
//!
//! Two namespaces, joined by a veth pair (as root):
//!
//! ```no_run
//! use std::os::fd::AsFd as _;
//!
//! use hostnet::device::Device;
//! use hostnet::netns;
//! use hostnet::rtnetlink::{Rtnetlink, VethEnd};
//!
//! let (a, b) = (netns::create()?, netns::create()?);
//! let ends = [
//!     &VethEnd { name: "a0", mac: [2, 0, 0, 0, 0, 0xa], netns: a.as_fd() },
//!     &VethEnd { name: "b0", mac: [2, 0, 0, 0, 0, 0xb], netns: b.as_fd() },
//! ];
//! Rtnetlink::open()?.add_veth(ends, 1, 1500)?;
//! for (namespace, name) in [(&a, "a0"), (&b, "b0")] {
//!     netns::run_in(namespace.as_fd(), || Device::open(name))?.set_up()?;
//! }
//! # Ok::<(), hostnet::Error>(())
//! ```
//!
//! # Features
//!
//! - `kernel-config`, by default: the module `kernel_config`, which needs the crate `flate2`.
//! - `serde`: [`rtnetlink::Counters`] and [`softnet::Softnet`] implement `Serialize`.

// # Layers
//
// Highest first; a module imports from the layers below it, and files never in a circle.
// The test `layers` of the crate testkit reads this list and every import.
//
//     tap                                            devices with one end in this process
//     device                                         one device, by its name
//     rtnetlink, genetlink, sock_diag, nfnetlink     families of netlink
//     notifications                                  groups of netlink
//     netlink, ethtool, netns, sysfs, mib, softnet   sockets and files of a network namespace
//     ifreq, mount, process, cpulist, kernel_config, cgroup, unix  structures and files of the kernel
//     error                                          the error type
//     privilege                                      capabilities and limits of the calling thread

pub mod cgroup;
pub mod cpulist;
pub mod device;
mod error;
pub mod ethtool;
pub mod genetlink;
mod ifreq;
#[cfg(feature = "kernel-config")]
pub mod kernel_config;
pub mod mib;
pub mod mount;
mod netlink;
pub mod netns;
pub mod nfnetlink;
mod notifications;
pub mod privilege;
mod process;
pub mod rtnetlink;
pub mod sock_diag;
pub mod softnet;
pub mod sysfs;
pub mod tap;
pub mod unix;

pub use error::{ENOTSUPP, Error, ErrorKind, Result, errno_name, errno_text};
