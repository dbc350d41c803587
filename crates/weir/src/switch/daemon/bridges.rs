//! The bridges of the daemon: those of the configuration, and those that were attached by hand.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use broker::daemon::log::event;
use hostnet::device;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::offline;
use crate::switch::accelerator::{Accelerator, BridgeGone, Refusal};
use crate::switch::keep::{self, Keep};
use crate::switch::settings::{Settings, check_name};
use crate::switch::status::BridgeStatus;

/// A bridge that is not there is looked for this often.
const RETRY: Duration = Duration::from_secs(1);
/// After an error a bridge is left alone for so long. Its programs pass everything to the kernel when it
/// goes on failing.
const PAUSE: Duration = Duration::from_millis(200);

/// All bridges of the daemon.
pub struct Bridges {
    pins: Option<PathBuf>,
    state: PathBuf,
    netns: Option<PathBuf>,
    all: BTreeMap<String, Bridge>,
}

struct Bridge {
    settings: Settings,
    /// It is in the configuration, and not attached by hand.
    configured: bool,
    state: State,
    /// The last error, and when it was.
    failed: Option<(String, Instant)>,
}

impl Bridge {
    fn new(settings: &Settings, configured: bool, state: State) -> Self {
        Self {
            settings: settings.clone(),
            configured,
            state,
            failed: None,
        }
    }

    /// The rest of the time for which it is left alone.
    fn pause(&self) -> Duration {
        let failed = self.failed.as_ref();
        failed.map_or(Duration::ZERO, |(_, when)| {
            PAUSE.saturating_sub(when.elapsed())
        })
    }
}

enum State {
    Attached(Box<Accelerator>),
    Waiting { why: String, since: Instant },
}

/// The report about a bridge.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Report {
    /// It is accelerated.
    Attached(Box<BridgeStatus>),
    /// It is to be accelerated when it can be.
    Waiting {
        /// The bridge.
        bridge: String,
        /// The obstacle.
        why: String,
    },
}

impl Bridges {
    /// None yet. Programs are pinned below `pins`, and notes are below `state`. `netns`
    /// is the file of the network namespace, where it is not the one that the daemon was started in.
    pub fn new(pins: Option<PathBuf>, state: PathBuf, netns: Option<PathBuf>) -> Self {
        Self {
            pins,
            state,
            netns,
            all: BTreeMap::new(),
        }
    }

    /// The bridges that an earlier daemon had attached by hand, with their settings.
    fn left(&self) -> Vec<(String, Settings)> {
        let names = keep::directories(&self.state).into_iter();
        let left = |name: String| match Keep::at(None, &self.state, &name).settings() {
            Ok(settings) => Some((name, settings?)),
            Err(error) => {
                log(&name, &format!("{error:#}"));
                None
            }
        };
        names.filter_map(left).collect()
    }

    /// Detaches what an earlier daemon has left of bridges that this one does not have: they have gone from the
    /// configuration, or what was noted of them cannot be used.
    pub fn detach_others(&self) {
        let pinned = self.pins.iter().flat_map(|pins| Keep::pinned_bridges(pins));
        let noted = keep::directories(&self.state);
        for name in pinned.chain(noted) {
            let keep = self.keep(&name);
            let is_left = keep.state.exists() || !keep.pinned().is_empty();
            if self.all.contains_key(&name) || !is_left {
                continue;
            }
            match offline::detach(&keep) {
                Ok(()) => log(&name, "detached: there are no settings for it any more"),
                Err(error) => log(&name, &format!("{error:#}")),
            }
        }
    }

    /// Sets the bridges of the configuration; others of an earlier one are detached. What is refused is
    /// logged, and tried again.
    pub fn configure(&mut self, wanted: &BTreeMap<String, Settings>) {
        let wanted = self.by_first_name(wanted);
        let gone = |(name, bridge): (&String, &Bridge)| {
            (bridge.configured && !wanted.contains_key(name)).then(|| name.clone())
        };
        let gone: Vec<String> = self.all.iter().filter_map(gone).collect();
        for name in gone {
            if let Err(error) = self.detach(&name) {
                log(&name, &format!("{error:#}"));
            }
        }
        for (name, settings) in &wanted {
            let refusal = if self.is_attached(name) {
                Refusal::Fail
            } else {
                Refusal::LeaveToKernel
            };
            if let Err(error) = self.set(name, settings, true, refusal) {
                let why = format!("{error:#}");
                if self.is_attached(name) {
                    log(name, &format!("the earlier settings stay: {why}"));
                } else {
                    self.wait(name, settings, true, why);
                }
            }
        }
    }

    /// The name that everything of a bridge is under: its first one, if the bridge is there and called by another.
    pub fn first_name(&self, name: &str) -> String {
        if self.all.contains_key(name) {
            return name.to_owned();
        }
        device::find(name).map_or_else(|_| name.to_owned(), |link| link.name)
    }

    /// The settings of a configuration by the first names of its bridges.
    fn by_first_name<'s>(
        &self,
        wanted: &'s BTreeMap<String, Settings>,
    ) -> BTreeMap<String, &'s Settings> {
        let mut named = BTreeMap::new();
        for (name, settings) in wanted {
            let first = self.first_name(name);
            match named.entry(first) {
                Entry::Vacant(place) => {
                    place.insert(settings);
                }
                Entry::Occupied(place) => log(
                    place.key(),
                    &format!(
                        "{name} of the configuration is this bridge, too, and is not used: leave one of them out"
                    ),
                ),
            }
        }
        named
    }

    /// Accelerates the bridges that an earlier daemon had attached by hand, but for those of the
    /// configuration. What is refused is logged, and tried again.
    pub fn take_over(&mut self, configured: &BTreeMap<String, Settings>) {
        let configured = self.by_first_name(configured);
        for (name, settings) in self.left() {
            if configured.contains_key(&name) {
                continue;
            }
            if let Err(error) = self.set(&name, &settings, false, Refusal::LeaveToKernel) {
                self.wait(&name, &settings, false, format!("{error:#}"));
                if let Err(error) = self.note(&name) {
                    log(&name, &format!("{error:#}"));
                }
            }
        }
    }

    fn is_attached(&self, name: &str) -> bool {
        let bridge = self.all.get(name);
        bridge.is_some_and(|bridge| matches!(bridge.state, State::Attached(_)))
    }

    fn wait(&mut self, name: &str, settings: &Settings, configured: bool, why: String) {
        log(name, &format!("waits: {why}"));
        let since = Instant::now();
        let bridge = Bridge::new(settings, configured, State::Waiting { why, since });
        self.all.insert(name.to_owned(), bridge);
    }

    /// Accelerates a bridge, or changes the settings of one that is.
    ///
    /// # Errors
    ///
    /// Those of [`Accelerator::attach`]; nothing has changed then.
    pub fn set(
        &mut self,
        name: &str,
        settings: &Settings,
        configured: bool,
        refusal: Refusal,
    ) -> Result<()> {
        let before = self.all.get_mut(name);
        let configured = configured || before.as_ref().is_some_and(|bridge| bridge.configured);
        if let Some(bridge) = before
            && let State::Attached(accelerator) = &mut bridge.state
        {
            if let Err(error) = accelerator.set(settings, refusal) {
                return Err(
                    match accelerator.set(&bridge.settings, Refusal::LeaveToKernel) {
                        Ok(()) => error,
                        Err(earlier) => {
                            error.context(format!("the earlier settings fail, too: {earlier:#}"))
                        }
                    },
                );
            }
            bridge.settings = settings.clone();
            bridge.configured = configured;
            return self.note(name);
        }
        let accelerator = self.accelerate(name, settings, refusal).inspect_err(|_| {
            if !self.all.contains_key(name) {
                self.keep(name).remove();
            }
        })?;
        let state = State::Attached(Box::new(accelerator));
        let bridge = Bridge::new(settings, configured, state);
        self.all.insert(name.to_owned(), bridge);
        self.note(name)
    }

    fn keep(&self, name: &str) -> Keep {
        Keep::at(self.pins.as_deref(), &self.state, name)
    }

    fn accelerate(&self, name: &str, settings: &Settings, refusal: Refusal) -> Result<Accelerator> {
        check_name(name)?;
        let keep = Keep::of_bridge(self.pins.as_deref(), &self.state, name)?;
        if let Some(netns) = &self.netns {
            keep.write_netns(netns)?;
        }
        Accelerator::attach(name, settings, refusal, Some(&keep))
    }

    /// Notes the settings of a bridge that was attached by hand, for the next daemon.
    fn note(&self, name: &str) -> Result<()> {
        let Some(bridge) = self.all.get(name) else {
            return Ok(());
        };
        if bridge.configured {
            // It may have been attached by hand before.
            self.keep(name).forget_settings();
            return Ok(());
        }
        let keep = Keep::of_bridge(self.pins.as_deref(), &self.state, name)?;
        keep.write_settings(&bridge.settings)
    }

    /// Leaves a bridge to the kernel.
    ///
    /// # Errors
    ///
    /// Where the bridge is not attached.
    pub fn detach(&mut self, name: &str) -> Result<()> {
        let Some(bridge) = self.all.remove(name) else {
            let there: Vec<&str> = self.all.keys().map(String::as_str).collect();
            let there = if there.is_empty() {
                "no bridge is".into()
            } else {
                format!("these are: {}", there.join(", "))
            };
            bail!("the bridge {name} is not attached; {there}");
        };
        match bridge.state {
            State::Attached(accelerator) => accelerator.detach()?,
            // An earlier daemon may have left something.
            State::Waiting { .. } => offline::detach(&self.keep(name))?,
        }
        log(name, "detached");
        Ok(())
    }

    /// Leaves all bridges to the kernel.
    ///
    /// # Errors
    ///
    /// The last refusal; the others are detached all the same.
    pub fn detach_all(&mut self) -> Result<Vec<String>> {
        let names: Vec<String> = self.all.keys().cloned().collect();
        let mut result = Ok(());
        for name in &names {
            result = self.detach(name).and(result);
        }
        result.map(|()| names)
    }

    /// Removes the notes of bridges that wait: nothing of them is attached.
    pub fn forget_waiting(&self) {
        for (name, bridge) in &self.all {
            if matches!(bridge.state, State::Waiting { .. }) && bridge.configured {
                let _ = fs::remove_dir(self.state.join(name));
            }
        }
    }

    /// The bridges that are accelerated, but for those that are left alone for a moment.
    pub fn attached(&self) -> impl Iterator<Item = &Accelerator> {
        let bridges = self.all.values().filter(|bridge| bridge.pause().is_zero());
        bridges.filter_map(|bridge| match &bridge.state {
            State::Attached(accelerator) => Some(&**accelerator),
            State::Waiting { .. } => None,
        })
    }

    /// One that is accelerated.
    ///
    /// # Errors
    ///
    /// Where it is not.
    pub fn get(&mut self, name: &str) -> Result<&mut Accelerator> {
        match self.all.get_mut(name).map(|bridge| &mut bridge.state) {
            Some(State::Attached(accelerator)) => Ok(accelerator),
            Some(State::Waiting { why, .. }) => bail!("the bridge {name} waits: {why}"),
            None => bail!("the bridge {name} is not attached: `weir switch attach {name}`"),
        }
    }

    /// The time after which [`Bridges::poll`] has something to do.
    pub fn patience(&self) -> Duration {
        let patience = self.all.values().map(|bridge| match &bridge.state {
            State::Attached(accelerator) => accelerator.patience().max(bridge.pause()),
            State::Waiting { since, .. } => RETRY.saturating_sub(since.elapsed()),
        });
        patience.min().unwrap_or(RETRY)
    }

    /// Lets each bridge do what is due.
    pub fn poll(&mut self) {
        let names: Vec<String> = self.all.keys().cloned().collect();
        for name in names {
            self.poll_one(&name);
        }
    }

    fn poll_one(&mut self, name: &str) {
        let Some(bridge) = self.all.get_mut(name) else {
            return;
        };
        if !bridge.pause().is_zero() {
            return;
        }
        let settings = bridge.settings.clone();
        match &mut bridge.state {
            State::Attached(accelerator) => {
                let polled = accelerator.poll();
                for news in accelerator.take_news() {
                    log(name, &news);
                }
                let Err(error) = polled else {
                    bridge.failed = None;
                    return;
                };
                let is_gone = error.downcast_ref::<BridgeGone>().is_some();
                let why = format!("{error:#}");
                if bridge.failed.as_ref().is_none_or(|(last, _)| *last != why) {
                    log(name, &why);
                }
                bridge.failed = Some((why.clone(), Instant::now()));
                if is_gone {
                    bridge.state = State::Waiting {
                        why,
                        since: Instant::now(),
                    };
                }
            }
            State::Waiting { why, since } if since.elapsed() >= RETRY => {
                *since = Instant::now();
                let before = why.clone();
                if let Ok(link) = device::find(name)
                    && link.name != name
                {
                    return self.rename(name, &link.name);
                }
                let now = self.accelerate(name, &settings, Refusal::LeaveToKernel);
                let Some(bridge) = self.all.get_mut(name) else {
                    return;
                };
                match now {
                    Ok(accelerator) => {
                        log(name, "attached");
                        bridge.state = State::Attached(Box::new(accelerator));
                    }
                    Err(error) => {
                        let now = format!("{error:#}");
                        if now != before {
                            log(name, &format!("waits: {now}"));
                        }
                        bridge.state = State::Waiting {
                            why: now,
                            since: Instant::now(),
                        };
                    }
                }
            }
            State::Waiting { .. } => {}
        }
    }

    /// A bridge that waits, and was called by an alternative name, is there now.
    fn rename(&mut self, name: &str, first: &str) {
        let Some(bridge) = self.all.remove(name) else {
            return;
        };
        self.keep(name).remove();
        if self.all.contains_key(first) {
            log(
                first,
                &format!("{name} is this bridge, too, and is not used"),
            );
            return;
        }
        let is_set = self.set(
            first,
            &bridge.settings,
            bridge.configured,
            Refusal::LeaveToKernel,
        );
        if let Err(error) = is_set {
            self.wait(
                first,
                &bridge.settings,
                bridge.configured,
                format!("{error:#}"),
            );
        }
        if let Err(error) = self.note(first) {
            log(first, &format!("{error:#}"));
        }
    }

    /// The report about all bridges.
    ///
    /// # Errors
    ///
    /// Where the maps cannot be read.
    pub fn report(&self) -> Result<Vec<Report>> {
        let report = |(name, bridge): (&String, &Bridge)| match &bridge.state {
            State::Attached(accelerator) => Ok(Report::Attached(Box::new(accelerator.status()?))),
            State::Waiting { why, .. } => Ok(Report::Waiting {
                bridge: name.clone(),
                why: why.clone(),
            }),
        };
        self.all.iter().map(report).collect()
    }
}

fn log(bridge: &str, text: &str) {
    event("bridge", json!({"bridge": bridge, "text": text}));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::switch::accelerator::Figures;
    use crate::switch::status::Traffic;

    #[test]
    fn a_report_with_vlans_is_read_again() {
        let status = BridgeStatus {
            bridge: "br0".into(),
            forwarding: true,
            why_not: None,
            pinned: true,
            vlan_protocol: Some("0x8100".into()),
            addresses: 1,
            room: 2,
            ports: Vec::new(),
            vlans: BTreeMap::from([("10".to_owned(), Traffic::default())]),
            mirror: Figures::default(),
            news: Vec::new(),
        };
        let text = serde_json::to_string(&Report::Attached(Box::new(status))).expect("JSON");
        let Ok(Report::Attached(read)) = serde_json::from_str(&text) else {
            panic!("not read again: {text}");
        };
        assert!(read.vlans.contains_key("10"));
    }
}
