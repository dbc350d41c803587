//! Packets to try a measurement on: a lab into whose application side the first CPU sends, and
//! where the second CPU receives what comes (by RPS), in the context of whatever runs there.

use std::fs;
use std::os::fd::AsFd as _;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::accounting::measure::DeviceTraffic;
use crate::lab::{Lab, LabConfig};
use crate::process::child::{Child, own_command};
use crate::process::stop::StopSignal;
use crate::traffic::load::LoadEvent;
use hostnet::cpulist::CpuList;
use hostnet::netns;
use hostnet::sysfs::Sysfs;

/// How long the load may take to start.
const START: Duration = Duration::from_secs(10);
/// How long the load may run before the measurement, so that queues and caches are as they stay.
const WARM_UP: Duration = Duration::from_millis(200);

/// A lab with a load.
pub struct SampleLoad<'a> {
    lab: Lab,
    pps: u64,
    sender: usize,
    receiver: usize,
    _process: Child<'a>,
}

impl<'a> SampleLoad<'a> {
    /// Makes the lab, and sends `pps` frames a second.
    pub fn start(pps: u64, stop: &'a StopSignal) -> Result<Self> {
        let allowed = CpuList::allowed()?;
        let cpus = allowed.as_slice();
        let sender = cpus.first().copied().unwrap_or(0);
        let receiver = cpus.get(1).copied().unwrap_or(sender);
        let lab = Lab::anonymous(&LabConfig::default())?;
        steer(&lab, receiver)?;
        let mut command = own_command("bench-load");
        command
            .args(["--dev", &lab.load().device])
            .args(["--cpu", &sender.to_string()])
            .args(["--pps", &pps.to_string()]);
        let mut process = Child::start("load", command, stop, |command| lab.load().spawn(command))?;
        let LoadEvent::Started = process.expect(START)? else {
            anyhow::bail!("the load ended before it began");
        };
        // It says nothing more until it is asked to end.
        process.event::<LoadEvent>(WARM_UP)?;
        Ok(Self {
            lab,
            pps,
            sender,
            receiver,
            _process: process,
        })
    }

    /// What it is, in a few words.
    pub fn describe(&self) -> String {
        format!("lab with {} packets a second", self.pps)
    }

    /// Which CPU does what.
    pub fn roles(&self) -> String {
        format!(
            "CPU {} makes the load, which is a task like any other there; CPU {} receives it: RPS \
             hands the packets over, and the kernel drops them, as nobody has their address.",
            self.sender, self.receiver
        )
    }

    /// What has come.
    pub fn traffic(&self) -> Option<Vec<DeviceTraffic>> {
        let side = self.lab.app();
        let counters = side.counters().ok()?;
        Some(vec![DeviceTraffic {
            name: side.device.clone(),
            netns: netns::identity(side.netns()).ok()?,
            rx_packets: counters.rx_packets,
            tx_packets: counters.tx_packets,
            dropped: counters.rx_dropped + counters.tx_dropped,
            vanished_after: None,
        }])
    }
}

/// Has `cpu` receive what comes to the application's side.
fn steer(lab: &Lab, cpu: usize) -> Result<()> {
    let device = &lab.app().device;
    netns::run_in(lab.app().netns().as_fd(), || {
        let sysfs = Sysfs::mount().context("cannot mount sysfs: run as root")?;
        let path = sysfs.class_net(&format!("/{device}/queues/rx-0/rps_cpus"));
        fs::write(path, CpuList::new([cpu]).mask()).with_context(|| {
            format!("cannot write rps_cpus of {device}: does this kernel have CONFIG_RPS?")
        })
    })
}
