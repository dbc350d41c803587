//! One run: an echo and a pinger are started, read and ended, and their counts compared with those of
//! the devices.

use std::time::Duration;

use anyhow::{Result, bail, ensure};

use super::plan::Case;
use crate::bench::check::{Check, Counted};
use crate::bench::place::Place;
use crate::bench::runner::{Outcome, Runner, Settings, end_worker};
use crate::engine::pinger::{PingEvent, PingerArgs, RoundTrips};
use crate::engine::protocol::{Event, Totals};
use crate::engine::{Engine, Mode};
use crate::lab::Lab;
use crate::process::child::{CHILD_TIMEOUT, Child, own_command};
use crate::process::stop::StopSignal;
use crate::traffic::frame::{APP_ADDRESS, LOAD_ADDRESS, MAX_LIVE_SIZE, PREFIX};
use crate::traffic::programs::SinkCounts;

/// Networks for echoes.
pub struct Labs {
    /// Without an address, so that the network stack answers nothing that packet sockets see too.
    plain: Place,
    /// With the addresses of the frames.
    addressed: Place,
}

impl Labs {
    /// New ones, which are gone with this process.
    pub fn new() -> Result<Self> {
        let addressed = Place::lab(MAX_LIVE_SIZE as u16)?;
        let app = lab(&addressed)?.app();
        app.add_address(APP_ADDRESS, PREFIX)?;
        // ARP would be packets that nobody counts.
        app.add_neighbour(LOAD_ADDRESS, lab(&addressed)?.load().mac)?;
        Ok(Self {
            plain: Place::lab(MAX_LIVE_SIZE as u16)?,
            addressed,
        })
    }

    /// Their settings, one sentence each.
    pub fn notes(&self) -> Result<Vec<String>> {
        let mut notes = lab(&self.plain)?.notes().to_vec();
        notes.push(format!(
            "The UDP socket has a network of the same kind to itself, with the address {APP_ADDRESS}, and \
             {LOAD_ADDRESS} as a permanent neighbour."
        ));
        Ok(notes)
    }

    fn place(&self, engine: Engine) -> &Place {
        match engine {
            Engine::Udp => &self.addressed,
            _ => &self.plain,
        }
    }
}

fn lab(place: &Place) -> Result<&Lab> {
    match place {
        Place::Lab(lab) => Ok(lab),
        Place::Device { name, .. } => bail!("{name} is no lab"),
    }
}

/// The figures of one run.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The mode that the kernel reports.
    pub mode_obtained: Option<Mode>,
    /// Better modes that were tried first, with reasons.
    pub refusals: Vec<String>,
    /// Packets that the echo returned in its window.
    pub packets: u64,
    /// The window's true length.
    pub seconds: f64,
    /// CPU time of the echo's process in the window, in user mode and in the kernel.
    pub cpu_ns: u64,
    /// The counts and latencies of the pinger.
    pub trips: RoundTrips,
    /// Whether the numbers add up.
    pub check: Check,
}

/// Measures cases, one at a time.
pub struct RttRunner<'a> {
    /// The networks.
    pub labs: &'a Labs,
    /// The settings of each run.
    pub settings: &'a Settings,
    /// Ends a run early.
    pub stop: &'a StopSignal,
}

impl RttRunner<'_> {
    /// Measures one case.
    pub fn measure(&self, case: Case) -> Result<Outcome<Box<Measured>>> {
        let combination = case.way.combination();
        let place = self.labs.place(combination.engine);
        let runner = Runner {
            place,
            settings: self.settings,
            stop: self.stop,
        };
        let before = runner.counters()?;
        let mut worker = runner.start_worker(combination)?;
        let (mode_obtained, refusals) = match worker.expect(CHILD_TIMEOUT)? {
            Event::Ready {
                mode_obtained,
                refusals,
            } => (mode_obtained, refusals),
            event => return runner.refusal(combination, event),
        };
        let mut pinger = self.start_pinger(lab(place)?, case)?;
        let Some(window) = worker.event(runner.longest_window())? else {
            // If the pinger failed, its own error is the reason.
            stop_sending(&mut pinger)?;
            let engine = end_worker(worker)?;
            bail!("{}", silence(&end_pinger(pinger)?, engine));
        };
        let Event::Window {
            packets,
            seconds,
            user_ns,
            sys_ns,
        } = window
        else {
            return runner.refusal(combination, window);
        };
        stop_sending(&mut pinger)?;
        let engine = end_worker(worker)?;
        let trips = end_pinger(pinger)?;
        let after = runner.counters()?;
        let queue_full = after.load.since(&before.load).tx_dropped;
        let check = Check::in_lab(
            combination.bench,
            combination.engine,
            Counted {
                load_sent: Some(trips.sent.saturating_sub(queue_full)),
                device: after.app.since(&before.app),
                device_queue_full: Some(queue_full),
                engine,
                sink: Some(arrived(&trips)),
            },
        );
        ensure!(
            trips.latency.samples > 0,
            "no answer to a packet of the window came: {}",
            silence(&trips, engine)
        );
        Ok(Outcome::Measured(Box::new(Measured {
            mode_obtained,
            refusals,
            packets,
            seconds,
            cpu_ns: user_ns + sys_ns,
            trips,
            check,
        })))
    }

    fn start_pinger(&self, lab: &Lab, case: Case) -> Result<Child<'_>> {
        let settings = self.settings;
        let millis = |time: Duration| time.as_millis() as u64;
        let args = PingerArgs {
            dev: lab.load().device.clone(),
            pps: case.rate,
            size: settings.size.into(),
            warmup_ms: millis(settings.warmup),
            window_ms: millis(settings.window),
            cpu: settings.load_cpu as u32,
        };
        let mut command = own_command("bench-pinger");
        command.args(args.to_words());
        let spawn = |command: &mut _| lab.load().spawn(command);
        let mut pinger = Child::start_listening("pinger", command, self.stop, spawn)?;
        match pinger.expect(CHILD_TIMEOUT)? {
            PingEvent::Ready => Ok(pinger),
            event => Err(unexpected(event)),
        }
    }
}

/// Waits until a pinger sends no more, so that the echo can drain.
fn stop_sending(pinger: &mut Child<'_>) -> Result<()> {
    pinger.say("stop")?;
    match pinger.expect(CHILD_TIMEOUT)? {
        PingEvent::Stopped => Ok(()),
        event => Err(unexpected(event)),
    }
}

/// Ends a pinger, once the last answers are there.
fn end_pinger(mut pinger: Child<'_>) -> Result<RoundTrips> {
    pinger.terminate();
    match pinger.expect(CHILD_TIMEOUT)? {
        PingEvent::Done(trips) => {
            pinger.wait()?;
            Ok(*trips)
        }
        event => Err(unexpected(event)),
    }
}

fn unexpected(event: PingEvent) -> anyhow::Error {
    match event {
        PingEvent::Failed { message } => anyhow::anyhow!("the pinger failed: {message}"),
        event => anyhow::anyhow!("unexpected event of the pinger: {event:?}"),
    }
}

/// Answers as the counts of a sink: all that reached the pinger's socket.
fn arrived(trips: &RoundTrips) -> SinkCounts {
    SinkCounts {
        packets: trips.answers.packets + trips.dropped,
        ..trips.answers
    }
}

fn silence(trips: &RoundTrips, echo: Totals) -> String {
    format!(
        "the pinger sent {} and received {}, and the echo counted {echo:?}: is this machine overloaded?",
        trips.sent, trips.answers.packets
    )
}
