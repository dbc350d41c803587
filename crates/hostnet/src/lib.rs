//! A Linux host's network, as the kernel describes it and lets it be changed: network namespaces,
//! devices over rtnetlink and ethtool, taps, sysfs, CPU lists and the kernel's configuration.
//!
//! No BPF, no C and no command line: a privileged daemon can use this crate alone.

pub mod cpulist;
pub mod device;
pub mod ethtool;
pub mod kernel_config;
pub mod mounts;
pub mod netlink;
pub mod netns;
pub mod nfnetlink;
pub mod qdisc;
pub mod rtnetlink;
pub mod sysfs;
pub mod tap;
