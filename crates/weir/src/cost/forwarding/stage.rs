//! A lab with one switch in it, ready for load.

use std::os::fd::BorrowedFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::Path;
use super::counts::Counts;
use super::plan::{Settings, Traffic};
use crate::cost::accelerated::{Accelerated, Mirror};
use crate::cost::curve::forward::Forwarder;
use crate::cost::curve::ovs::Switch;
use crate::lab::leg::{Leg, add_bridge_of};
use crate::lab::{Lab, LabConfig, Side};
use crate::process::child::CHILD_TIMEOUT;
use crate::process::stop::StopSignal;
use crate::switch::Hook;
use crate::traffic::load::{LoadArgs, LoadEvent};
use crate::traffic::programs::{SinkHook, StationSide, StationSink, station_mac};
use crate::traffic::rate::Rate;
use hostnet::device::Counters;
use hostnet::netns;
use hostnet::rtnetlink::{BridgeOptions, FdbKey, FdbKind, Rtnetlink};

/// The name of the bridge.
pub const BRIDGE: &str = "weirbr";
/// The MAC address of the ingress port: no frame is for it.
const INGRESS_MAC: [u8; 6] = [0x02, 0, 0, 0, 1, 0];
/// No entry ages during a measurement.
const AGEING: Duration = Duration::from_secs(1_000_000);
/// Frames a second from stations that a switch is to learn: slow enough for one in user space.
const LEARNING: u64 = 10_000;
/// Time limit for every station to send, and the interval of looking.
const TEACHING: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(5);
/// Time for their last frames to arrive.
const QUIET: Duration = Duration::from_millis(20);
/// Frames from each station until a switch must have learned it.
const ATTEMPTS: u32 = 40;
/// Times without a flooded frame after which a switch that loses frames is taken to know all stations.
const ENOUGH: u32 = 3;

/// A lab with one switch in it.
#[must_use = "the lab is removed when this is dropped"]
pub struct Stage<'a> {
    /// The switch.
    pub path: Path,
    /// The stations and entries that it knows.
    pub traffic: Traffic,
    // Before the lab: programs and processes end first.
    installed: Installed<'a>,
    sink: StationSink,
    ports: Option<Ports>,
    lab: Lab,
}

/// The ports behind the switch.
struct Ports {
    egress: Leg,
    witness: Leg,
}

/// The switch as it is set up.
enum Installed<'a> {
    /// Kernel objects alone, which are gone with the lab.
    Kernel,
    Program {
        _forwarder: Forwarder,
    },
    Accelerated(Accelerated),
    Switch(Switch<'a>),
}

impl<'a> Stage<'a> {
    /// Makes the lab, sets the switch up in it, and has it learn all stations.
    pub fn make(
        path: Path,
        traffic: Traffic,
        settings: &Settings,
        stop: &'a StopSignal,
    ) -> Result<Self> {
        let mut lab = Lab::anonymous(&LabConfig::default())?;
        if path == Path::Load {
            let sink = attach_sink(lab.app(), path, traffic, settings)?;
            return Ok(Self {
                path,
                traffic,
                installed: Installed::Kernel,
                sink,
                ports: None,
                lab,
            });
        }
        lab.set_app_mac(INGRESS_MAC)?;
        let leg = |number| -> Result<Leg> {
            let leg = Leg::add(lab.app().netns(), number)?;
            leg.port.send_whole_frames(true)?;
            leg.far.send_whole_frames(false)?;
            Ok(leg)
        };
        let ports = Ports {
            egress: leg(1)?,
            witness: leg(2)?,
        };
        let sink = attach_sink(&ports.egress.far, path, traffic, settings)?;
        let installed = install(path, traffic, &lab, &ports, settings, stop)?;
        let mut stage = Self {
            path,
            traffic,
            installed,
            sink,
            ports: Some(ports),
            lab,
        };
        if path != Path::Xdp {
            stage.learn(settings, stop)?;
        }
        stage.accelerate()?;
        Ok(stage)
    }

    /// The load's side.
    pub fn load(&self) -> &Side {
        self.lab.load()
    }

    /// The network namespace of the switch.
    pub fn host(&self) -> BorrowedFd<'_> {
        self.lab.app().netns()
    }

    /// The processes that forward.
    pub fn pids(&self) -> &[u32] {
        match &self.installed {
            Installed::Switch(switch) => &switch.pids,
            _ => &[],
        }
    }

    /// CPU time so far of the thread that keeps a bridge accelerated, in nanoseconds.
    pub fn keeper_ns(&self) -> Result<u64> {
        match &self.installed {
            Installed::Accelerated(accelerated) => accelerated.cpu_ns(),
            _ => Ok(0),
        }
    }

    /// The state of an accelerated bridge; none of other paths.
    pub fn mirror(&self) -> Result<Option<Mirror>> {
        match &self.installed {
            Installed::Accelerated(accelerated) => Ok(Some(accelerated.settle()?)),
            _ => Ok(None),
        }
    }

    /// All counters, now.
    pub fn counts(&self) -> Result<Counts> {
        let ingress = self.lab.app().counters()?;
        let of = |side: fn(&Ports) -> &Side| -> Result<Counters> {
            match &self.ports {
                Some(ports) => side(ports).counters(),
                None => Ok(Counters::default()),
            }
        };
        Ok(Counts {
            load: self.lab.load().counters()?,
            ingress,
            egress: of(|ports| &ports.egress.port)?,
            sink_device: match &self.ports {
                Some(ports) => ports.egress.far.counters()?,
                None => ingress,
            },
            witness: of(|ports| &ports.witness.far)?,
            sink: self.sink.counts()?,
        })
    }

    /// Attaches the accelerator, if this is its path, after the bridge has learned everything.
    fn accelerate(&mut self) -> Result<()> {
        let hook = match self.path {
            Path::WeirXdp => Hook::Xdp,
            Path::WeirTcx => Hook::Tcx,
            _ => return Ok(()),
        };
        let accelerated = Accelerated::start(self.host(), BRIDGE, hook)?;
        accelerated.settle()?;
        self.installed = Installed::Accelerated(accelerated);
        Ok(())
    }

    /// Sends frames from every station, first of the far side, until all of those back arrive and
    /// none is flooded: a switch in user space may miss some.
    fn learn(&self, settings: &Settings, stop: &StopSignal) -> Result<()> {
        let Some(ports) = &self.ports else {
            return Ok(());
        };
        // A frame that is lost may be one that would have been flooded.
        let mut quiet = 0;
        for _ in 0..ATTEMPTS {
            self.sweep(&ports.egress.far, true, settings, stop)?;
            let before = self.counts()?;
            self.sweep(self.load(), false, settings, stop)?;
            sleep(QUIET);
            let run = self.counts()?.since(&before);
            let is_whole = run.sink.packets == run.ingress.rx_packets;
            quiet = match run.witness.rx_packets {
                0 => quiet + 1,
                _ => 0,
            };
            if is_whole && quiet > 0 || quiet >= ENOUGH {
                return Ok(());
            }
        }
        bail!(
            "{} still floods frames after {ATTEMPTS} frames from every station: \
             is this machine overloaded?",
            self.path
        )
    }

    fn sweep(
        &self,
        side: &Side,
        from_far: bool,
        settings: &Settings,
        stop: &StopSignal,
    ) -> Result<()> {
        let pairs = self.traffic.pairs;
        let load = LoadArgs {
            size: settings.size.into(),
            pps: Some(Rate(LEARNING)),
            stations: Some(pairs),
            sweep: true,
            from_far,
            ..LoadArgs::new(&side.device, settings.load_cpu)
        };
        let before = side.counters()?;
        let mut load = load.start(stop, |command| side.spawn(command))?;
        wait_until_sent(side, before.tx_packets + pairs)?;
        load.terminate();
        match load.expect(CHILD_TIMEOUT)? {
            LoadEvent::Done { .. } => load.wait(),
            event => bail!("the load ended with {event:?} instead of its counters"),
        }
    }
}

fn wait_until_sent(side: &Side, frames: u64) -> Result<()> {
    let end = Instant::now() + TEACHING;
    while side.counters()?.tx_packets < frames {
        ensure!(
            Instant::now() < end,
            "the stations cannot send the frames that a switch learns from: \
             is this machine overloaded?"
        );
        sleep(LOOK);
    }
    Ok(())
}

fn attach_sink(
    side: &Side,
    path: Path,
    traffic: Traffic,
    settings: &Settings,
) -> Result<StationSink> {
    // A frame from a socket would be copied for XDP, and the copy counted as the switch's.
    let hook = match path {
        Path::Ovs => SinkHook::Tcx,
        _ => SinkHook::Xdp,
    };
    let index = side.index()?;
    netns::run_in(side.netns(), || {
        StationSink::attach(index, settings.size.into(), traffic.pairs, hook)
    })
}

fn install<'a>(
    path: Path,
    traffic: Traffic,
    lab: &Lab,
    ports: &Ports,
    settings: &Settings,
    stop: &'a StopSignal,
) -> Result<Installed<'a>> {
    let host = lab.app();
    let (egress, witness) = (&ports.egress.port, &ports.witness.port);
    Ok(match path {
        Path::Load => Installed::Kernel,
        Path::Bridge | Path::WeirXdp | Path::WeirTcx => {
            let ports = [host.index()?, egress.index()?, witness.index()?];
            netns::run_in(host.netns(), || -> Result<()> {
                let options = BridgeOptions {
                    ageing_time: Some(AGEING),
                    ..BridgeOptions::default()
                };
                add_bridge_of(BRIDGE, &options, &ports)?;
                add_idle_entries(&ports[..2], traffic.idle_entries)
            })?;
            Installed::Kernel
        }
        Path::Xdp => {
            let pairs = u32::try_from(traffic.pairs).context("too many stations")?;
            let macs = (0..pairs).map(|number| station_mac(StationSide::Far, number));
            let ports = [(egress.index()?, macs.collect())];
            Installed::Program {
                _forwarder: Forwarder::attach_to_ports(host, ports)?,
            }
        }
        Path::Ovs => {
            let ports = [egress, witness].map(|side| side.device.clone());
            let switch = Switch::start_learning(host, ports.into(), settings.app_cpu, stop)?;
            Installed::Switch(switch)
        }
    })
}

/// Adds entries for stations that send nothing, behind each port in turn, in the calling thread's
/// network namespace.
pub fn add_idle_entries(ports: &[u32], count: u64) -> Result<()> {
    let entries = (0..count).zip(ports.iter().cycle());
    let entries: Vec<FdbKey> = entries
        .map(|(number, port)| (*port, idle_mac(number), 0))
        .collect();
    Ok(Rtnetlink::open()?.add_fdb_entries(&entries, FdbKind::Dynamic)?)
}

/// The MAC address of a station that sends nothing.
pub fn idle_mac(number: u64) -> [u8; 6] {
    let [.., a, b, c, d] = number.to_be_bytes();
    [0x02, 0xa0, a, b, c, d]
}
