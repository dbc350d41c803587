//! The XDP forwarder: bpf/forward.bpf.c on the device of a lab's host.

use anyhow::{Context as _, Result};

use crate::bpf::layout::shared_structs;
use crate::bpf::{Attached, Object, Programs};
use crate::lab::Side;
use hostnet::netns;
use hostnet::tap::Tap;

static OBJECT: Object = Object {
    name: "forward",
    bytes: include_bytes!(concat!(env!("OUT_DIR"), "/forward.bpf.o")),
    needs: "Linux 4.14, for device maps",
    layouts: &[Station::LAYOUT, ForwardCounts::LAYOUT],
    constants: &[],
    arrays_by_cpu: &[],
};

shared_structs! {
    /// The address of a guest.
    struct Station = "station" {
        /// 0 for frames without a tag.
        vlan: u16,
        mac: [u8; 6],
    }

    /// The frames of the forwarder, by their fate.
    #[derive(Default)]
    pub struct ForwardCounts = "forward_counts" {
        /// Frames redirected to a port.
        forwarded: u64,
        /// Frames left to the network stack.
        unknown: u64,
    }
}

/// The program on a device, with the ports that it knows.
#[must_use = "the program is detached when this is dropped"]
pub struct Forwarder {
    programs: Programs,
    _attached: Attached,
}

impl Forwarder {
    /// Has the side's device hand frames for these addresses to their taps.
    pub fn attach(side: &Side, stations: &[(&Tap, [u8; 6])]) -> Result<Self> {
        let index = |(tap, mac): &(&Tap, [u8; 6])| Ok((tap.device().index()?, vec![*mac]));
        let ports = stations.iter().map(index).collect::<Result<Vec<_>>>()?;
        Self::attach_to_ports(side, ports)
    }

    /// Has the side's device hand frames to these other devices of its namespace, each with the
    /// addresses behind it.
    pub fn attach_to_ports(
        side: &Side,
        ports: impl IntoIterator<Item = (u32, Vec<[u8; 6]>)>,
    ) -> Result<Self> {
        let device = side.index()?;
        let programs = Programs::load(&OBJECT, None, |_| true)?;
        let stations = programs.map::<Station, u32>("stations")?;
        for (port, (index, macs)) in (0_u32..).zip(ports) {
            // Not attached yet, so that it never meets a port without a device.
            netns::run_in(side.netns(), || {
                programs.map::<u32, u32>("ports")?.set(&port, &index)
            })?;
            for mac in macs {
                stations.set(&Station { vlan: 0, mac }, &port)?;
            }
        }
        let attached = netns::run_in(side.netns(), || programs.attach_xdp("forward", device))?;
        Ok(Self {
            programs,
            _attached: attached,
        })
    }

    /// What it did so far.
    pub fn counts(&self) -> Result<ForwardCounts> {
        let values = self
            .programs
            .map::<u32, ForwardCounts>("counts")?
            .get_per_cpu(&0)?
            .context("forward.bpf.o has no counters")?;
        Ok(ForwardCounts {
            forwarded: values.iter().map(|it| it.forwarded).sum(),
            unknown: values.iter().map(|it| it.unknown).sum(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::OBJECT;

    #[test]
    fn types_are_those_of_the_header() {
        OBJECT.check().expect("the same types");
    }
}
