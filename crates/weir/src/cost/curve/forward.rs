//! The XDP forwarder: bpf/forward.bpf.c on the device of a lab's host.

use anyhow::{Context as _, Result};

use crate::bpf::{Attached, Object, Programs};
use crate::lab::Side;
use hostnet::netns;
use hostnet::tap::Tap;

static OBJECT: Object = Object {
    name: "forward",
    bytes: include_bytes!(concat!(env!("OUT_DIR"), "/forward.bpf.o")),
    needs: "Linux 4.14, for device maps",
    layouts: &[],
    arrays_by_cpu: &[],
};

/// What the forwarder did, as in bpf/forward.h.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ForwardCounts {
    /// Frames redirected to a port.
    pub forwarded: u64,
    /// Frames left to the network stack.
    pub unknown: u64,
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
        let device = side.index()?;
        let programs = Programs::load(&OBJECT, None, |_| true)?;
        for (port, (tap, mac)) in (0_u32..).zip(stations) {
            let index = tap.device().index()?;
            // Not attached yet, so that it never meets a port without a device.
            netns::run_in(side.netns(), || {
                programs
                    .map("ports")?
                    .set(&port.to_ne_bytes(), &index.to_ne_bytes())
            })?;
            programs
                .map("stations")?
                .set(&station(0, *mac), &port.to_ne_bytes())?;
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
            .map("counts")?
            .get_per_cpu(&0_u32.to_ne_bytes())?
            .context("forward.bpf.o has no counters")?;
        let mut counts = ForwardCounts::default();
        for value in values {
            let word = |at| {
                let word = value.as_chunks::<8>().0.get(at).copied();
                word.map_or(0, u64::from_ne_bytes)
            };
            counts.forwarded += word(0);
            counts.unknown += word(1);
        }
        Ok(counts)
    }
}

/// The bytes of `struct station`.
fn station(vlan: u16, mac: [u8; 6]) -> [u8; 8] {
    let mut key = [0; 8];
    key[..2].copy_from_slice(&vlan.to_ne_bytes());
    key[2..].copy_from_slice(&mac);
    key
}
