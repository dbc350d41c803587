//! Two network namespaces and the veth pairs between them. They live in open descriptors only, so nothing is left
//! when the program is killed.

use super::failure::Result;
use hostnet::netns;
use hostnet::rtnetlink::{Rtnetlink, VethEnd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// One end of the pairs.
pub struct End {
    namespace: OwnedFd,
    netlink: Rtnetlink,
    /// Index of each device.
    devices: Vec<u32>,
}

/// The ends of the pairs: near, and far.
pub struct Lab {
    pub ends: [End; 2],
}

/// The name of a device, the same at both ends.
pub fn name(device: usize) -> String {
    format!("torture{device}")
}

impl Lab {
    /// A pair, of this MTU, for each number of queues.
    pub fn new(queues: &[u32], mtu: u32) -> Result<Self> {
        let mut ends = [End::new()?, End::new()?];
        for (device, &queues) in queues.iter().enumerate() {
            let name = name(device);
            let [near, far] = &ends;
            // The names are free: the namespaces are new.
            let near = VethEnd {
                name: &name,
                mac: [2, 0, 0, 0, device as u8, 0xa],
                netns: near.namespace(),
            };
            let far = VethEnd {
                mac: [2, 0, 0, 0, device as u8, 0xb],
                netns: far.namespace(),
                ..near
            };
            netns::run_in(near.netns, || {
                Rtnetlink::open()?.add_veth([&near, &far], queues, mtu)
            })?;
            for end in &mut ends {
                let index = end.netlink.link(&name)?.index;
                end.netlink.set_up(index)?;
                end.devices.push(index);
            }
        }
        Ok(Self { ends })
    }

    /// Sets a device at one end up or down.
    pub fn set(&mut self, end: usize, device: usize, up: bool) -> Result<()> {
        let End {
            netlink, devices, ..
        } = &mut self.ends[end];
        let index = devices[device];
        if up {
            netlink.set_up(index)?;
        } else {
            netlink.set_down(index)?;
        }
        Ok(())
    }

    /// Packets that were sent at one end and dropped by the devices, at either: as sent, and as received.
    pub fn dropped(&mut self, from: usize) -> Result<[u64; 2]> {
        Ok([
            self.ends[from].sum("tx_dropped")?,
            self.ends[1 - from].sum("rx_dropped")?,
        ])
    }
}

impl End {
    fn new() -> Result<Self> {
        let namespace = netns::create()?;
        // Users have it. Each packet here is counted, so none may be the kernel's own.
        netns::disable_ipv6(namespace.as_fd())?;
        let netlink = netns::run_in(namespace.as_fd(), Rtnetlink::open)?;
        Ok(Self {
            namespace,
            netlink,
            devices: Vec::new(),
        })
    }

    pub fn namespace(&self) -> BorrowedFd<'_> {
        self.namespace.as_fd()
    }

    fn sum(&mut self, counter: &str) -> Result<u64> {
        let mut sum = 0;
        for &device in &self.devices {
            let link = self.netlink.link_by_index(device)?;
            sum += link.statistics.get(counter).unwrap_or(0);
        }
        Ok(sum)
    }
}
