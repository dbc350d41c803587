//! The live view, and the view of a recording.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context as _, Result};

use super::collector::Collector;
use super::draw::{self, Status};
use super::frame::Frame;
use super::priced::Priced;
use super::record::Recording;
use super::state::{Action, State};
use super::table::Table;
use super::terminal::{Event, Terminal};
use super::view::{Scene, View};
use crate::ledger::read::Scope;
use crate::report::date::date;
use crate::report::text::plain;

/// The intervals that keys choose, in seconds.
const INTERVALS: [f64; 9] = [0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0];

/// The speeds of a recording that keys choose.
const SPEEDS: [f64; 9] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];

/// The longest wait between two frames of a recording that is shown: the rest of a gap is skipped.
const LONGEST: Duration = Duration::from_secs(60);

/// How the view ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By a key.
    Quit,
    /// By a signal, or with the terminal.
    Stopped,
}

/// The settings of the live view.
#[derive(Debug)]
pub struct Live<'a> {
    /// The namespaces and devices.
    pub scope: Scope,
    /// The time between two frames.
    pub every: Duration,
    /// The file to record to.
    pub record: Option<&'a Path>,
    /// Parts that are measured also while they are not shown.
    pub measure: BTreeSet<Priced>,
    /// The view that is shown first.
    pub view: Option<View>,
    /// Whether there are colours.
    pub is_coloured: bool,
}

/// Shows this host until a key or a signal ends it.
pub fn live(settings: Live<'_>) -> Result<End> {
    let mut terminal = Terminal::open()?;
    let collector = Collector::start(
        settings.scope,
        settings.every,
        settings.record,
        settings.measure.clone(),
    )?;
    let source = Source::Host {
        collector,
        every: settings.every,
        record: settings.record.map(Path::to_owned),
        measure: settings.measure,
    };
    Viewer::new(source, settings.view, settings.is_coloured).run(&mut terminal)
}

/// Shows a recording.
pub fn replay(recording: Recording, view: Option<View>, is_coloured: bool) -> Result<End> {
    let mut terminal = Terminal::open()?;
    let source = Source::File {
        recording,
        at: 0,
        speed: 1.0,
        due: Instant::now(),
    };
    Viewer::new(source, view, is_coloured).run(&mut terminal)
}

/// Where frames come from.
enum Source {
    Host {
        collector: Collector,
        every: Duration,
        record: Option<PathBuf>,
        measure: BTreeSet<Priced>,
    },
    File {
        recording: Recording,
        /// The frame that is shown.
        at: usize,
        speed: f64,
        /// When the next one is.
        due: Instant,
    },
}

struct Viewer {
    source: Source,
    state: State,
    is_coloured: bool,
    /// The parts that are held.
    held: Option<BTreeSet<Priced>>,
    /// The frame from which totals count.
    first: Option<Arc<Frame>>,
    /// The last frames, also while the view is frozen.
    last: Option<Arc<Frame>>,
    scene: Option<Scene>,
    table: Table,
    /// Whether one more frame is shown while the view is frozen.
    steps: bool,
}

impl Viewer {
    fn new(source: Source, view: Option<View>, is_coloured: bool) -> Self {
        let mut state = State::default();
        state.is_replay = matches!(source, Source::File { .. });
        state.show(view.unwrap_or(View::Devices));
        Self {
            source,
            state,
            is_coloured,
            held: None,
            first: None,
            last: None,
            scene: None,
            table: Table::default(),
            steps: false,
        }
    }

    fn run(mut self, terminal: &mut Terminal) -> Result<End> {
        if self.state.is_replay {
            self.seek_to(0)?;
        }
        loop {
            self.hold();
            if self.draw(terminal).is_err() {
                return Ok(End::Stopped);
            }
            let event = match &self.source {
                Source::Host { collector, .. } => terminal.wait(Some(collector.bell()), None)?,
                Source::File { due, .. } => {
                    let wait = due.saturating_duration_since(Instant::now());
                    let is_playing = !self.state.is_frozen && !self.is_at_end();
                    terminal.wait(None, is_playing.then_some(wait))?
                }
            };
            match event {
                Event::Key(key) => {
                    let action = self.state.press(key, &self.table.rows);
                    match action {
                        Action::Quit => return Ok(End::Quit),
                        Action::Suspend => terminal.suspend()?,
                        Action::Redraw => terminal.clear()?,
                        action => self.act(action)?,
                    }
                    self.refresh();
                }
                Event::Readable => self.take()?,
                Event::Timeout => self.step(1)?,
                Event::Redraw => {}
                Event::Stopped | Event::Gone => return Ok(End::Stopped),
            }
        }
    }

    /// Measures the parts of the view that is shown.
    fn hold(&mut self) {
        let Source::Host {
            collector, measure, ..
        } = &self.source
        else {
            return;
        };
        let mut wanted = measure.clone();
        wanted.extend(self.state.view().needs());
        if self.held.as_ref() != Some(&wanted) {
            collector.hold(wanted.clone());
            self.held = Some(wanted);
        }
    }

    fn act(&mut self, action: Action) -> Result<()> {
        match action {
            Action::Step(by) if self.state.is_replay => self.step(by)?,
            Action::Step(_) => self.steps = true,
            Action::Seek(seconds) => self.seek(seconds)?,
            Action::Faster(is_faster) => self.change_pace(is_faster),
            Action::Zero => {
                self.first = self.last.clone();
                if let Some(scene) = self.scene.take() {
                    let after = scene.after;
                    self.scene = Some(Scene::new(Arc::clone(&after), scene.before, after));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes the frames that came.
    fn take(&mut self) -> Result<()> {
        loop {
            let Source::Host { collector, .. } = &self.source else {
                return Ok(());
            };
            let Some(frame) = collector.take() else {
                return Ok(());
            };
            self.show_next(frame?);
        }
    }

    fn show_next(&mut self, frame: Arc<Frame>) {
        let before = self.last.replace(Arc::clone(&frame));
        if !self.state.is_frozen || self.steps || self.scene.is_none() {
            self.steps = false;
            self.show(before, frame);
        }
    }

    fn show(&mut self, before: Option<Arc<Frame>>, after: Arc<Frame>) {
        let first = first_of(self.first.take(), &after);
        self.first = Some(Arc::clone(&first));
        self.scene = Some(Scene::new(first, before, after));
        self.refresh();
    }

    /// The table anew, as the state has it now.
    fn refresh(&mut self) {
        if let Some(scene) = &self.scene {
            self.table = self.state.table(scene);
        }
    }

    fn change_pace(&mut self, is_faster: bool) {
        match &mut self.source {
            Source::Host {
                collector, every, ..
            } => {
                *every =
                    Duration::from_secs_f64(next_of(&INTERVALS, every.as_secs_f64(), !is_faster));
                collector.every(*every);
            }
            Source::File { speed, due, .. } => {
                *speed = next_of(&SPEEDS, *speed, is_faster);
                *due = Instant::now();
            }
        }
    }

    /// The next frame of a recording, or an earlier one.
    fn step(&mut self, by: isize) -> Result<()> {
        let Source::File { at, .. } = &self.source else {
            return Ok(());
        };
        self.seek_to(at.saturating_add_signed(by))
    }

    /// So many seconds on.
    fn seek(&mut self, seconds: i64) -> Result<()> {
        let Source::File { recording, at, .. } = &self.source else {
            return Ok(());
        };
        let now = recording.realtime_ns(*at);
        let wanted = now.saturating_add_signed(seconds.saturating_mul(1_000_000_000));
        let to = if seconds < 0 {
            (0..*at)
                .rev()
                .find(|it| recording.realtime_ns(*it) <= wanted)
                .unwrap_or(0)
        } else {
            let last = recording.len() - 1;
            (*at..last)
                .find(|it| recording.realtime_ns(*it) >= wanted)
                .unwrap_or(last)
        };
        self.seek_to(to)
    }

    fn seek_to(&mut self, to: usize) -> Result<()> {
        let Source::File {
            recording,
            at,
            speed,
            due,
        } = &mut self.source
        else {
            return Ok(());
        };
        let to = to.min(recording.len() - 1);
        let before = match &self.last {
            Some(last) if to == *at + 1 => Some(Arc::clone(last)),
            _ if to == 0 => None,
            _ => Some(Arc::new(recording.frame(to - 1)?)),
        };
        let frame = Arc::new(recording.frame(to)?);
        let ns = recording
            .realtime_ns(to + 1)
            .saturating_sub(recording.realtime_ns(to));
        let wait = Duration::from_nanos(ns).min(LONGEST).div_f64(*speed);
        (*at, *due) = (to, Instant::now() + wait);
        self.last = Some(Arc::clone(&frame));
        self.show(before, frame);
        Ok(())
    }

    fn is_at_end(&self) -> bool {
        matches!(&self.source, Source::File { recording, at, .. } if *at + 1 >= recording.len())
    }

    fn draw(&mut self, terminal: &mut Terminal) -> Result<()> {
        let status = self.status();
        let Some(scene) = &self.scene else {
            return Ok(());
        };
        let (state, table) = (&mut self.state, &self.table);
        terminal
            .draw(|canvas| draw::draw(canvas, state, scene, table, &status))
            .context("cannot draw on the terminal")
    }

    fn status(&self) -> Status {
        let Some(scene) = &self.scene else {
            return Status::default();
        };
        Status {
            left: format!("weir top  {}", summary(scene, self.state.is_replay)),
            right: self.mode(),
            message: match &self.source {
                // Where it is noticed: at the beginning, and where frames may be missing at the end.
                Source::File { recording, at, .. } if *at == 0 || self.is_at_end() => {
                    recording.damage()
                }
                _ => None,
            },
            is_coloured: self.is_coloured,
        }
    }

    fn mode(&self) -> String {
        match &self.source {
            Source::Host { every, record, .. } => {
                let record = record.as_ref().map(|file| {
                    let name = file.file_name().unwrap_or_default().to_string_lossy();
                    format!("to {}  ", plain(&name))
                });
                let state = if self.state.is_frozen {
                    "FROZEN"
                } else {
                    "LIVE"
                };
                format!(
                    "{}every {}s  {state}",
                    record.unwrap_or_default(),
                    every.as_secs_f64()
                )
            }
            Source::File {
                recording,
                at,
                speed,
                ..
            } => {
                let state = if self.is_at_end() {
                    "END"
                } else if self.state.is_frozen {
                    "PAUSED"
                } else {
                    "REPLAY"
                };
                format!("{}/{} {speed}x {state}", at + 1, recording.len())
            }
        }
    }
}

/// The frame from which totals count: of a host that was booted anew, the first one that is shown since then.
fn first_of(first: Option<Arc<Frame>>, after: &Arc<Frame>) -> Arc<Frame> {
    let is_of_boot = |first: &Arc<Frame>| first.snapshot.boot_id == after.snapshot.boot_id;
    first
        .filter(is_of_boot)
        .unwrap_or_else(|| Arc::clone(after))
}

/// The time, with the date where that is not today, and the price of looking.
pub(super) fn summary(scene: &Scene, with_date: bool) -> String {
    let now = scene.now();
    let time = date(UNIX_EPOCH + Duration::from_nanos(now.realtime_ns)).replace('T', " ");
    let time = match time.split_once(' ') {
        Some((_, of_day)) if !with_date => of_day,
        _ => &time,
    };
    let read = now.took_ns as f64 / 1e6;
    let own = scene.before.as_ref().zip(scene.seconds());
    let own = own.and_then(|(before, seconds)| {
        let ns = scene.after.own_ns.checked_sub(before.own_ns)?;
        Some(format!("  own {:.1}%", ns as f64 / seconds / 1e7))
    });
    let gaps = match now.gaps.len() {
        0 => String::new(),
        gaps => format!("  {gaps} hidden (i)"),
    };
    format!("{time}  read {read:.0} ms{}{gaps}", own.unwrap_or_default())
}

/// The next larger choice, or the next smaller one.
fn next_of(choices: &[f64], now: f64, is_larger: bool) -> f64 {
    let next = if is_larger {
        choices.iter().find(|it| **it > now)
    } else {
        choices.iter().rev().find(|it| **it < now)
    };
    next.copied().unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_count_anew_from_a_boot_on() {
        let frame = |boot: &str, boottime_ns| {
            let mut frame = Frame::default();
            frame.snapshot.boot_id = boot.into();
            frame.snapshot.boottime_ns = boottime_ns;
            Arc::new(frame)
        };
        let (old, new) = (frame("old", 900), frame("new", 100));
        let first = first_of(Some(old), &new);
        assert!(Arc::ptr_eq(&first, &new));
        assert!(Arc::ptr_eq(
            &first_of(Some(first), &frame("new", 200)),
            &new
        ));
    }

    #[test]
    fn paces_have_bounds() {
        assert_eq!(next_of(&SPEEDS, 1.0, true).to_bits(), 2.0_f64.to_bits());
        assert_eq!(next_of(&INTERVALS, 0.7, false).to_bits(), 0.5_f64.to_bits());
        assert_eq!(
            next_of(&INTERVALS, 100.0, true).to_bits(),
            100.0_f64.to_bits()
        );
    }
}
