//! Packets to try a measurement on: a lab in which the first CPU sends to the application's side, and
//! the second CPU receives the packets (RPS), in the context of the task that runs there.

use std::fs;
use std::os::fd::AsFd as _;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::accounting::measure::DeviceTraffic;
use crate::lab::{Lab, LabConfig};
use crate::process::child::Child;
use crate::process::stop::StopSignal;
use crate::traffic::load::{LoadArgs, LoadEvent};
use crate::traffic::rate::Rate;
use hostnet::cpulist::CpuList;
use hostnet::netns;
use hostnet::sysfs::Sysfs;

/// The time of the load before the measurement, to fill queues and caches.
const WARM_UP: Duration = Duration::from_millis(200);

/// A lab with a load.
pub struct SampleLoad<'a> {
    lab: Lab,
    rate: Rate,
    sender: usize,
    receiver: usize,
    _process: Child<'a>,
}

impl<'a> SampleLoad<'a> {
    /// Makes the lab, and sends `rate` frames a second.
    pub fn start(rate: Rate, stop: &'a StopSignal) -> Result<Self> {
        let allowed = CpuList::allowed()?;
        let cpus = allowed.as_slice();
        let sender = cpus.first().copied().unwrap_or(0);
        let receiver = cpus.get(1).copied().unwrap_or(sender);
        let lab = Lab::anonymous(&LabConfig::default())?;
        steer(&lab, receiver)?;
        let load = LoadArgs {
            pps: Some(rate),
            ..LoadArgs::new(&lab.load().device, sender)
        };
        let mut process = load.start(stop, |command| lab.load().spawn(command))?;
        // It has no further event until SIGTERM.
        process.event::<LoadEvent>(WARM_UP)?;
        Ok(Self {
            lab,
            rate,
            sender,
            receiver,
            _process: process,
        })
    }

    /// A short description.
    pub fn describe(&self) -> String {
        format!("lab with {} packets a second", self.rate.0)
    }

    /// The CPUs of the sender and the receiver.
    pub fn roles(&self) -> String {
        format!(
            "CPU {} sends the load, in a task; CPU {} receives it by RPS, and the kernel drops the \
             packets, as no host has their address.",
            self.sender, self.receiver
        )
    }

    /// The packets so far.
    pub fn traffic(&self) -> Option<Vec<DeviceTraffic>> {
        let side = self.lab.app();
        let counters = side.counters().ok()?;
        Some(vec![DeviceTraffic {
            name: side.device.clone(),
            netns: netns::identity(side.netns()).ok()?,
            rx_packets: counters.rx_packets,
            tx_packets: counters.tx_packets,
            dropped: counters.rx_dropped + counters.tx_dropped,
            vanished_after_seconds: None,
        }])
    }
}

/// Makes `cpu` receive the packets of the application's side.
fn steer(lab: &Lab, cpu: usize) -> Result<()> {
    let device = &lab.app().device;
    netns::run_in(lab.app().netns().as_fd(), || {
        let sysfs = Sysfs::mount()?;
        let path = sysfs.class_net(&format!("/{device}/queues/rx-0/rps_cpus"));
        fs::write(path, CpuList::new([cpu]).mask()).with_context(|| {
            format!("cannot write rps_cpus of {device}: does this kernel have CONFIG_RPS?")
        })
    })
}
