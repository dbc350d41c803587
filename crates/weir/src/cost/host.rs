//! The measurement of this host, or of a lab, with its report.

use std::process::ExitStatus;
use std::time::Duration;

use anyhow::Result;

use super::report::{Report, Setting};
use super::sample_load::SampleLoad;
use crate::accounting::interrupts::irq_names;
use crate::accounting::measure::{self, DeviceTraffic, Ended};
use crate::accounting::proc_stat::irq_time_accounting;
use crate::process::stop::StopSignal;
use crate::process::user_command::UserCommand;
use crate::report::Machine;
use crate::traffic::rate::Rate;
use hostnet::cpulist::CpuList;
use hostnet::netns;
use hostnet::rtnetlink::{Link, Rtnetlink};

/// The default duration without a command.
const DURATION: Duration = Duration::from_secs(10);

/// The settings of a measurement.
#[derive(Debug)]
pub struct Options<'a> {
    /// The CPUs to measure; all allowed ones by default.
    pub cpus: Option<CpuList>,
    /// The duration; by default 10 seconds, or until the command ends.
    pub duration: Option<Duration>,
    /// Whether to leave out the busy loop.
    pub passive: bool,
    /// The limit of the tracepoints' own cost, in percent of one CPU.
    pub limit: f64,
    /// The devices whose packets are counted; all of the namespace if empty.
    pub devices: &'a [String],
    /// The rate of a lab's load; none without a lab.
    pub lab: Option<Rate>,
    /// A command to run during the measurement, with its arguments; none if empty.
    pub command: &'a [String],
    /// Whether the command's standard output goes to standard error.
    pub redirect_command: bool,
}

impl Options<'_> {
    /// The duration; none for one that the command ends.
    pub fn duration(&self) -> Option<Duration> {
        let default = self.command.is_empty().then_some(DURATION);
        self.duration.or(default)
    }
}

/// A report, and the end of the measurement.
#[derive(Debug)]
pub struct Measured {
    /// The report.
    pub report: Report,
    /// Whether a signal ended the measurement.
    pub interrupted: bool,
    /// The exit status of the command, if it ended by itself.
    pub command: Option<ExitStatus>,
}

/// Measures until the duration is over, the command ends or a signal comes. `progress` is called
/// with the elapsed time.
pub fn measure(
    options: &Options<'_>,
    stop: &StopSignal,
    progress: &dyn Fn(Duration),
) -> Result<Measured> {
    let cpus = match &options.cpus {
        Some(cpus) => cpus.clone(),
        None => CpuList::allowed()?,
    };
    cpus.check_allowed()?;
    let load = options
        .lab
        .map(|rate| SampleLoad::start(rate, stop))
        .transpose()?;
    let mut devices = devices(options, load.as_ref())?;
    let measured = measure::measure(
        measure::Options {
            cpus: &cpus,
            duration: options.duration(),
            passive: options.passive,
            limit: options.limit,
            devices: &mut *devices,
            command: UserCommand::start(options.command, options.redirect_command)?,
        },
        stop,
        progress,
    )?;
    drop(devices);
    let setting = Setting {
        host: Machine::now(CpuList::allowed()?.as_slice().len()),
        place: match &load {
            Some(load) => load.describe(),
            None => "this host".to_owned(),
        },
        irq_time_accounting: irq_time_accounting(),
        irq_names: irq_names().unwrap_or_default(),
        devices_chosen: load.is_some() || !options.devices.is_empty(),
        roles: load.as_ref().map(SampleLoad::roles),
    };
    Ok(Measured {
        report: Report::new(setting, cpus.as_slice(), &measured),
        interrupted: matches!(measured.ended, Some(Ended::Interrupted)),
        command: measured.command,
    })
}

type Devices<'a> = Box<dyn FnMut() -> Option<Vec<DeviceTraffic>> + 'a>;

/// Reads the counters of the chosen devices.
fn devices<'a>(options: &'a Options<'_>, load: Option<&'a SampleLoad<'_>>) -> Result<Devices<'a>> {
    if let Some(load) = load {
        return Ok(Box::new(|| load.traffic()));
    }
    let mut route = Rtnetlink::open()?;
    let netns = netns::current()?;
    for name in options.devices {
        route.link(name)?;
    }
    Ok(Box::new(move || {
        let links = route.links().ok()?;
        let wanted = |link: &Link| match options.devices {
            [] => link.up,
            names => names.iter().any(|name| link.is_named(name)),
        };
        let traffic = links.into_iter().filter(wanted).map(|link| DeviceTraffic {
            rx_packets: link.stats.rx_packets,
            tx_packets: link.stats.tx_packets,
            dropped: link.stats.rx_dropped + link.stats.tx_dropped,
            name: link.name,
            netns,
            vanished_after_seconds: None,
        });
        Some(traffic.collect())
    }))
}
