//! The place of a measurement: a lab, or a queue of a device of this host.

use std::fmt::Write as _;

use anyhow::{Result, bail, ensure};
use hostnet::privilege::{self, Capability};

use super::plan::Plan;
use crate::lab::{Lab, LabConfig};
use crate::traffic::frame::ETHERNET_HEADER;
use hostnet::device::Device;

/// The network that packets go through.
pub enum Place {
    /// Two namespaces and a veth pair, made for this run.
    Lab(Box<Lab>),
    /// A queue of a device of this host, to which others send.
    Device {
        /// The device's name.
        name: String,
        /// The queue.
        queue: u32,
        /// The device.
        device: Device,
    },
}

impl Place {
    /// A new lab for frames of `size` bytes.
    pub fn lab(size: u16) -> Result<Self> {
        let usual = LabConfig::default();
        let config = LabConfig {
            mtu: usual.mtu.max(u32::from(size) - ETHERNET_HEADER as u32),
            ..usual
        };
        Ok(Self::Lab(Box::new(Lab::anonymous(&config)?)))
    }

    /// A queue of a device of this host that every engine of `plan` can use: an obstacle is one
    /// error here instead of one for each run.
    pub fn device(name: &str, queue: u32, size: u16, plan: &Plan) -> Result<Self> {
        let found = xsk::Device::lookup(name)?;
        let name = found.name.as_str();
        ensure!(
            found.up,
            "{name} is down: bring it up with `ip link set dev {name} up`"
        );
        let queues = found.rx_queues.min(found.tx_queues);
        ensure!(
            queue < queues,
            "{name} has no queue {queue}: it has {queues}, counted from 0 (`ethtool -l {name}`)"
        );
        let longest = found.mtu + ETHERNET_HEADER as u32;
        ensure!(
            u32::from(size) <= longest,
            "frames of {size} bytes are too long for {name}: lower --size to {longest}, or raise the MTU"
        );
        need(Capability::NetRaw)?;
        if plan.uses_af_xdp() {
            need(Capability::NetAdmin)?;
            if let Some(program) = found.programs.first() {
                bail!(
                    "{name} has an XDP program already ({program}): {}; or bench packet sockets only with \
                     --engine packet-v2,packet-v3",
                    program.removal(&found)
                );
            }
        }
        Ok(Self::Device {
            name: name.into(),
            queue,
            device: Device::open(name)?,
        })
    }

    /// `lab`, or device and queue.
    pub fn name(&self) -> String {
        match self {
            Self::Lab(_) => "lab".into(),
            Self::Device { name, queue, .. } => format!("{name} queue {queue}"),
        }
    }

    /// The effects of `plan` on a device of this host; `None` in a lab.
    pub fn notice(&self, plan: &Plan) -> Option<String> {
        let Self::Device { name, queue, .. } = self else {
            return None;
        };
        let mut text =
            format!("weir: on {name}, one after another, each removed at the end of its run:\n");
        if plan.uses_af_packet() {
            text += "  packet sockets, which get a copy of every frame that the device receives\n";
        }
        if plan.uses_af_xdp() {
            let _ = writeln!(
                text,
                "  an XDP program, and an AF_XDP socket on queue {queue}: packets of that queue go to the \
                 bench, not to this host"
            );
        }
        for bench in plan.benches() {
            if let Some(notice) = bench.notice() {
                let _ = writeln!(text, "  {bench}: {notice}");
            }
        }
        Some(text)
    }
}

fn need(capability: Capability) -> Result<()> {
    match privilege::missing(&[capability]) {
        Some(why) => bail!("cannot bench on a device: {why}"),
        None => Ok(()),
    }
}
