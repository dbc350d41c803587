//! The views by name.

use super::scene::Scene;
use super::{cpus, devices, drops, napi, processes, programs, queues, sockets, tasks, xdp_sockets};
use crate::top::priced::Priced;
use crate::top::table::{Column, Table};

/// A view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum View {
    /// Network devices.
    Devices,
    /// Their queues.
    Queues,
    /// CPUs.
    Cpus,
    /// NAPI instances.
    Napi,
    /// CPU time of processes.
    Tasks,
    /// BPF programs.
    Programs,
    /// AF_XDP sockets.
    XdpSockets,
    /// Losses by reason and place.
    Drops,
    /// Processes with sockets.
    Processes,
    /// Sockets.
    Sockets,
}

impl View {
    /// All, in the order of their keys: 1 to 9, and 0.
    pub const ALL: [Self; 10] = [
        Self::Devices,
        Self::Queues,
        Self::Cpus,
        Self::Napi,
        Self::Tasks,
        Self::Programs,
        Self::XdpSockets,
        Self::Drops,
        Self::Processes,
        Self::Sockets,
    ];

    /// Its title.
    pub fn title(self) -> &'static str {
        match self {
            Self::Devices => "Devices",
            Self::Queues => "Queues",
            Self::Cpus => "CPUs",
            Self::Napi => "NAPI",
            Self::Tasks => "Tasks",
            Self::Programs => "BPF",
            Self::XdpSockets => "AF_XDP",
            Self::Drops => "Drops",
            Self::Processes => "Processes",
            Self::Sockets => "Sockets",
        }
    }

    /// Its name in JSON.
    pub fn id(self) -> &'static str {
        match self {
            Self::Devices => "devices",
            Self::Queues => "queues",
            Self::Cpus => "cpus",
            Self::Napi => "napi",
            Self::Tasks => "tasks",
            Self::Programs => "programs",
            Self::XdpSockets => "xdp_sockets",
            Self::Drops => "drops",
            Self::Processes => "processes",
            Self::Sockets => "sockets",
        }
    }

    /// Its columns.
    pub fn columns(self) -> &'static [Column] {
        match self {
            Self::Devices => devices::COLUMNS,
            Self::Queues => queues::COLUMNS,
            Self::Cpus => cpus::COLUMNS,
            Self::Napi => napi::COLUMNS,
            Self::Tasks => tasks::COLUMNS,
            Self::Programs => programs::COLUMNS,
            Self::XdpSockets => xdp_sockets::COLUMNS,
            Self::Drops => drops::COLUMNS,
            Self::Processes => processes::COLUMNS,
            Self::Sockets => sockets::COLUMNS,
        }
    }

    /// Its table.
    pub fn table(self, scene: &Scene) -> Table {
        match self {
            Self::Devices => devices::table(scene),
            Self::Queues => queues::table(scene),
            Self::Cpus => cpus::table(scene),
            Self::Napi => napi::table(scene),
            Self::Tasks => tasks::table(scene),
            Self::Programs => programs::table(scene),
            Self::XdpSockets => xdp_sockets::table(scene),
            Self::Drops => drops::table(scene),
            Self::Processes => processes::table(scene),
            Self::Sockets => sockets::table(scene),
        }
    }

    /// The column by which it is sorted at first, and whether from low to high.
    pub fn order(self) -> (&'static str, bool) {
        match self {
            Self::Devices => ("rx_pps", false),
            Self::Queues => ("packets_pps", false),
            Self::Cpus => ("cpu", true),
            Self::Napi | Self::Programs => ("cpu_percent", false),
            Self::Tasks => ("running_percent", false),
            Self::XdpSockets => ("device", false),
            Self::Drops => ("pps", false),
            Self::Processes | Self::Sockets => ("drops", false),
        }
    }

    /// The part that is measured only while this view is shown.
    pub fn needs(self) -> Option<Priced> {
        match self {
            Self::Cpus | Self::Napi | Self::Tasks => Some(Priced::Cpus),
            Self::Programs => Some(Priced::Programs),
            _ => None,
        }
    }
}
