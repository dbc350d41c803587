//! Taking frames of this host.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::frame::{Bill, Frame, Programs, RunPrice};
use super::priced::Priced;
use crate::accounting::duty_cycle::DutyCycle;
use crate::accounting::tracepoints::Tracepoints;
use crate::bpf;
use crate::ledger::read::{Reader, Scope};
use crate::process::clock::now_ns;
use crate::process::usage::CpuTime;
use crate::traffic::programs::{LEAST, least};
use hostnet::cpulist::CpuList;

/// The limit of the tracepoints' cost, in percent of one CPU, as of `weir cost`.
const LIMIT: f64 = 1.0;

/// Runs by which the price of a measured run is found out: a millisecond.
const RUNS: u32 = 10_000;
/// How often: the shortest time is the one without interruptions.
const TRIES: usize = 3;

/// A packet as short as Ethernet has them.
const FRAME: [u8; 60] = [0; 60];

/// Takes frames of this host.
pub struct Sampler {
    reader: Reader,
    cpus: Held<Cpus>,
    programs: Held<Measuring>,
}

/// A part that is measured while it is held; or the reason why it cannot be.
type Held<T> = Option<Result<T, String>>;

/// The CPUs' time.
struct Cpus {
    begun_ns: u64,
    duty_cycle: DutyCycle,
}

/// The run time of BPF programs.
struct Measuring {
    _descriptor: OwnedFd,
    price: Option<RunPrice>,
}

impl Sampler {
    /// Begins to count.
    pub fn open(scope: Scope) -> Self {
        Self {
            reader: Reader::open(scope, false),
            cpus: None,
            programs: None,
        }
    }

    /// Measures these parts, and no others.
    pub fn hold(&mut self, wanted: &BTreeSet<Priced>) {
        hold(&mut self.cpus, wanted.contains(&Priced::Cpus), Cpus::start);
        hold(
            &mut self.programs,
            wanted.contains(&Priced::Programs),
            Measuring::start,
        );
    }

    /// Whether [`tick`](Self::tick) has something to do.
    pub fn ticks(&self) -> bool {
        matches!(self.cpus, Some(Ok(_)))
    }

    /// Keeps the tracepoints within their limit. Has to be called some ten times a second.
    pub fn tick(&mut self) {
        if let Some(Ok(cpus)) = &mut self.cpus
            && let Err(error) = cpus.duty_cycle.sample()
        {
            self.cpus = Some(Err(format!("{error:#}")));
        }
    }

    /// All counters now.
    pub fn frame(&mut self) -> Result<Frame> {
        self.tick();
        let snapshot = self.reader.snapshot()?;
        let bill = self.cpus.as_ref().map(|cpus| match cpus {
            Ok(cpus) => cpus.bill().map_err(|error| format!("{error:#}")),
            Err(reason) => Err(reason.clone()),
        });
        let programs = self.programs.as_ref().map(|programs| match programs {
            Ok(measuring) => Ok(Programs::of(bpf::all_programs(), measuring.price)),
            Err(reason) => Err(reason.clone()),
        });
        let own = CpuTime::of_this_process().context("cannot ask for this process's CPU time")?;
        let (bill, no_bill) = both(bill);
        let (programs, no_programs) = both(programs);
        Ok(Frame {
            snapshot,
            bill,
            programs,
            own_ns: (own.user + own.system).as_nanos() as u64,
            no_bill,
            no_programs,
        })
    }
}

/// Starts a part that is wanted, and ends one that is not.
fn hold<T>(held: &mut Held<T>, is_wanted: bool, start: impl FnOnce() -> Result<T>) {
    if !is_wanted {
        *held = None;
    } else if held.is_none() {
        *held = Some(start().map_err(|error| format!("{error:#}")));
    }
}

fn both<T>(held: Option<Result<T, String>>) -> (Option<T>, Option<String>) {
    match held {
        None => (None, None),
        Some(Ok(value)) => (Some(value), None),
        Some(Err(reason)) => (None, Some(reason)),
    }
}

impl Cpus {
    fn start() -> Result<Self> {
        let cpus = CpuList::online()?;
        let tracepoints = Tracepoints::start(cpus.as_slice())?;
        Ok(Self {
            begun_ns: now_ns(),
            duty_cycle: DutyCycle::new(tracepoints, LIMIT)?,
        })
    }

    fn bill(&self) -> Result<Bill> {
        Ok(Bill::of(self.duty_cycle.so_far()?, self.begun_ns))
    }
}

impl Measuring {
    fn start() -> Result<Self> {
        let least = least();
        let without = least.as_ref().ok().and_then(|it| shortest(it).ok());
        let descriptor = bpf::count_run_time()?;
        let price = without
            .zip(least.as_ref().ok())
            .and_then(|(without, least)| {
                let with = shortest(least).ok()?;
                let (_, run) = least.run_times().ok()?.pop()?;
                (run.count > 0).then(|| RunPrice {
                    total_ns: with.saturating_sub(without).as_nanos() as f64,
                    reported_ns: run.ns as f64 / run.count as f64,
                })
            });
        Ok(Self {
            _descriptor: descriptor,
            price,
        })
    }
}

/// The time of a run of the program that does the least.
fn shortest(least: &bpf::Programs) -> Result<Duration> {
    let mut times = Vec::new();
    for _ in 0..TRIES {
        times.push(least.time_runs(LEAST, &FRAME, RUNS)?);
    }
    times.into_iter().min().context("not measured")
}
