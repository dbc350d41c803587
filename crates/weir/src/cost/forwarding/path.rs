//! The switches that are compared.

use clap::ValueEnum;
use serde::Serialize;

/// A switch between the devices of the lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// No switch: the device of the load's peer counts and drops the frames in XDP
    #[value(skip)]
    Load,
    /// Linux bridge
    Bridge,
    /// Linux bridge, accelerated by weir with XDP programs on its ports
    WeirXdp,
    /// Linux bridge, accelerated by weir with tcx programs on its ports
    WeirTcx,
    /// XDP program that looks the destination up and redirects, and does nothing else
    Xdp,
    /// Open vSwitch with its datapath in user space
    Ovs,
}

impl Path {
    /// Whether processes forward the frames.
    pub fn forwards_in_user_space(self) -> bool {
        self == Self::Ovs
    }

    /// Whether a bridge of the kernel is in it.
    pub fn has_bridge(self) -> bool {
        matches!(self, Self::Bridge | Self::WeirXdp | Self::WeirTcx)
    }

    /// The path's name in tables and charts.
    pub fn label(self) -> &'static str {
        match self {
            Self::Load => "load alone",
            Self::Bridge => "bridge",
            Self::WeirXdp => "weir, XDP",
            Self::WeirTcx => "weir, tcx",
            Self::Xdp => "bare XDP redirect",
            Self::Ovs => "Open vSwitch",
        }
    }
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self {
            Self::Load => "load",
            Self::Bridge => "bridge",
            Self::WeirXdp => "weir-xdp",
            Self::WeirTcx => "weir-tcx",
            Self::Xdp => "xdp",
            Self::Ovs => "ovs",
        };
        f.pad(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_printed_as_it_is_typed() {
        for path in Path::value_variants() {
            let name = path.to_possible_value().expect("a choice");
            assert_eq!(path.to_string(), name.get_name());
        }
    }
}
