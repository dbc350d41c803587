//! A port of an accelerated bridge: its program, and its settings in the map.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use hostnet::ErrorKind;
use hostnet::ethtool;
use hostnet::privilege::{self, Capability, Feature};
use hostnet::rtnetlink::{BridgePort, Link, PortState, Rtnetlink};

use super::abi::{Port, PortCounters, PortVlans, flag};
use super::choice::{Choice, Facts};
use super::datapath::Datapath;
use super::facts::{Own, takes_tags};
use super::keep::{self, Keep};
use super::settings::{Hook, PortSettings};
use crate::bpf::hook::{NetLink, Place, TcFilter};

/// A card that resets itself is tried this often, with a pause in between.
const RESET_TRIES: u32 = 20;
const RESET_PAUSE: Duration = Duration::from_millis(100);

/// A program on a port.
#[derive(Debug)]
pub enum Attachment {
    /// By a link, and where it is pinned.
    Link {
        /// The link.
        link: NetLink,
        /// Its place.
        place: Place,
        /// Its pin.
        pin: Option<PathBuf>,
    },
    /// By a filter of tc.
    Filter(TcFilter),
}

/// A port.
#[derive(Debug)]
pub struct OnPort {
    /// Its number in the maps.
    pub number: u32,
    /// The device, as of the last look.
    pub link: Link,
    /// Its settings.
    pub settings: PortSettings,
    /// Its VLANs.
    pub vlans: PortVlans,
    /// The VLAN of frames without a tag; 0 for none.
    pub pvid: u16,
    /// The devices of a bond that it uses.
    pub legs: Vec<u32>,
    /// Those of them that are cards, by name.
    pub cards: Vec<String>,
    /// Its hook and why.
    pub choice: Choice,
    /// The facts that it was chosen by.
    pub facts: Option<Facts>,
    /// The facts with which XDP was refused, and why: it is tried again with others. Each try may reset a card.
    pub refused: Option<(Facts, String)>,
    /// Why frames cannot be redirected to it by XDP.
    pub no_redirect: Option<String>,
    /// The program.
    pub attached: Option<Attachment>,
    /// The port in the map.
    pub written: Option<Port>,
    /// The devices of a bond in the map.
    pub written_legs: Vec<u32>,
    /// The addresses that were let through to be learned, at the last look.
    pub newcomers: u64,
    /// The counters of programs that were replaced.
    pub counted: PortCounters,
    /// The features of VLAN offload at receive that were turned off for XDP.
    pub vlan_offload_off: Vec<String>,
    /// The XDP program, at first that of an earlier daemon.
    program: Option<u32>,
    keep: Option<Keep>,
}

/// A port that cannot have a hook.
#[derive(Debug)]
pub struct AttachError {
    port: String,
    why: String,
}

impl AttachError {
    /// The refusal of a port.
    pub fn new(port: &str, why: String) -> Self {
        Self {
            port: port.to_owned(),
            why,
        }
    }
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port {}: {}", self.port, self.why)
    }
}

impl std::error::Error for AttachError {}

impl OnPort {
    /// A port that has no program yet.
    pub fn new(number: u32, link: Link, keep: Option<Keep>) -> Self {
        let vlan_offload_off = keep
            .as_ref()
            .map(|keep| keep.vlan_offload_of(&link.name))
            .unwrap_or_default();
        let program = keep
            .as_ref()
            .and_then(|keep| keep.program(link.index, Place::Xdp));
        Self {
            number,
            link,
            settings: PortSettings::default(),
            vlans: PortVlans::default(),
            pvid: 0,
            legs: Vec::new(),
            cards: Vec::new(),
            choice: Choice {
                hook: Hook::Kernel,
                why: "not looked at yet".into(),
                may_fall_back: true,
            },
            facts: None,
            refused: None,
            no_redirect: None,
            attached: None,
            written: None,
            written_legs: Vec::new(),
            newcomers: 0,
            counted: PortCounters::default(),
            vlan_offload_off,
            program,
            keep,
        }
    }

    /// Whether frames take the fast path from it and to it, when it is in the right state.
    pub fn forwards(&self) -> bool {
        self.choice.hook != Hook::Kernel
    }

    /// What on the port is ours.
    pub fn own(&self) -> Own {
        Own {
            xdp_program: self.program,
            tcx_program: match &self.attached {
                Some(Attachment::Link { place, .. }) => *place == Place::Tcx,
                Some(Attachment::Filter(_)) => false,
                // That of an earlier daemon.
                None => {
                    let keep = self.keep.as_ref();
                    keep.is_some_and(|keep| keep.program(self.link.index, Place::Tcx).is_some())
                }
            },
        }
    }

    /// The pin of its program.
    pub fn pin(&self) -> Option<PathBuf> {
        match &self.attached {
            Some(Attachment::Link { pin, .. }) => pin.clone(),
            _ => None,
        }
    }

    fn bridge_port(&self) -> BridgePort {
        self.link.bridge_port.clone().unwrap_or_default()
    }

    /// Whether the kernel learns addresses from its frames, or where it is locked, from control frames.
    pub fn learns(&self) -> bool {
        let port = self.bridge_port();
        let in_state = matches!(port.state, PortState::Learning | PortState::Forwarding);
        port.learning && in_state
    }

    /// The port for the map, with `macs` addresses behind it.
    pub fn value(&self, macs: u32) -> Port {
        let port = self.bridge_port();
        let storm = self.settings.storm();
        let flags = [
            (
                self.forwards() && port.state == PortState::Forwarding,
                flag::FORWARDING,
            ),
            (self.no_redirect.is_none(), flag::XDP_EGRESS),
            (port.isolated, flag::ISOLATED),
            (self.learns(), flag::LEARNING),
            (storm.iter().any(|rate| *rate > 0), flag::STORM),
            (self.settings.mac_limit.is_some(), flag::MAC_LIMIT),
        ];
        let set = flags.iter().filter(|(is_set, _)| *is_set);
        let is_limited = self.settings.mac_limit.is_some();
        Port {
            ifindex: self.link.index,
            flags: set.fold(0, |all, (_, flag)| all | flag),
            mtu: self.link.mtu,
            pvid: self.pvid.into(),
            storm,
            mac_limit: self.settings.mac_limit.unwrap_or(0),
            // Without a limit they would only cause writes.
            macs: if is_limited { macs } else { 0 },
            padding: 0,
            newcomers_seen: if is_limited { self.newcomers } else { 0 },
        }
    }

    /// Attaches the program of the chosen hook, or another one where that is refused and may be. Returns
    /// news for the log.
    ///
    /// # Errors
    ///
    /// [`AttachError`] where the hook is refused.
    pub fn attach(&mut self, datapath: &Datapath, choice: Choice) -> Result<Option<String>> {
        let present = self.attached.as_ref().map(Attachment::hook);
        // A port that is left to the kernel for a setting still watches for addresses that have moved to it.
        let watches = choice.hook == Hook::Kernel && choice.why != "as set";
        let wanted = match choice.hook {
            Hook::Kernel if watches => Some(Hook::Tcx),
            Hook::Kernel => None,
            hook => Some(hook),
        };
        let told = format!("{}: {}, {}", self.link.name, choice.hook, choice.why);
        let is_news = self.choice != choice;
        if present == wanted {
            self.choice = choice;
            return Ok(is_news.then_some(told));
        }
        let Some(hook) = wanted else {
            self.detach()?;
            self.choice = choice;
            return Ok(is_news.then_some(told));
        };
        let place = if hook == Hook::Xdp {
            Place::Xdp
        } else {
            Place::Tcx
        };
        let attached = match self.refusal(place) {
            Some(why) => Err(anyhow!(why)),
            None => self.attach_at(datapath, place),
        };
        if let (Err(error), Place::Xdp, Some(facts)) = (&attached, place, &self.facts) {
            self.refused = Some((facts.clone(), format!("{error:#}")));
        }
        match attached {
            Ok(()) => {
                self.choice = choice;
                Ok(is_news.then_some(told))
            }
            Err(error) if place == Place::Xdp && choice.may_fall_back => {
                let why = format!("XDP is refused: {error:#}");
                let told = format!("{}: tcx, {why}", self.link.name);
                let choice = Choice {
                    hook: Hook::Tcx,
                    why,
                    may_fall_back: false,
                };
                if present != Some(Hook::Tcx) {
                    self.attach_at(datapath, Place::Tcx)
                        .map_err(|error| AttachError::new(&self.link.name, format!("{error:#}")))?;
                }
                let is_news = self.choice != choice;
                self.choice = choice;
                Ok(is_news.then_some(told))
            }
            Err(error) if watches => {
                self.choice = choice;
                Ok(Some(format!("{told}; it cannot be watched: {error:#}")))
            }
            Err(error) => Err(AttachError::new(&self.link.name, format!("{error:#}")).into()),
        }
    }

    /// Why XDP was refused before, with these facts.
    fn refusal(&self, place: Place) -> Option<String> {
        let (facts, why) = self.refused.as_ref().filter(|_| place == Place::Xdp)?;
        (Some(facts) == self.facts.as_ref()).then(|| why.clone())
    }

    fn attach_at(&mut self, datapath: &Datapath, place: Place) -> Result<()> {
        if place == Place::Xdp {
            self.turn_vlan_offload_off()?;
        }
        let new = match self.make(datapath, place) {
            Ok(new) => new,
            Err(error) => {
                let has_xdp = self.attached.as_ref().map(Attachment::hook) == Some(Hook::Xdp);
                if !has_xdp && self.program.is_none() {
                    self.restore_vlan_offload()?;
                }
                return Err(error);
            }
        };
        // The old program goes after the new one has come.
        let old = self.attached.replace(new);
        if let Some(old) = old {
            old.detach()?;
        }
        self.unpin_all_but(Some(place))?;
        if place == Place::Xdp {
            self.program = Some(datapath.program_id(Place::Xdp)?);
        } else {
            self.program = None;
            self.restore_vlan_offload()?;
        }
        Ok(())
    }

    /// Detaches what an earlier daemon has left at other places than this one.
    fn unpin_all_but(&self, place: Option<Place>) -> Result<()> {
        let Some(keep) = &self.keep else {
            return Ok(());
        };
        let others = [Place::Xdp, Place::Tcx].into_iter();
        for other in others.filter(|other| Some(*other) != place) {
            if let Some(pin) = keep.pin(self.link.index, other) {
                keep::unpin(&pin)
                    .with_context(|| format!("cannot remove the pin {}", pin.display()))?;
            }
        }
        Ok(())
    }

    fn make(&self, datapath: &Datapath, place: Place) -> Result<Attachment> {
        let index = self.link.index;
        let pin = self.keep.as_ref().and_then(|keep| keep.pin(index, place));
        if let Some(pin) = &pin
            && let Ok(link) = NetLink::open(pin)
        {
            if link.ifindex().is_ok_and(|of| of == index) && datapath.replace(&link, place).is_ok()
            {
                let pin = Some(pin.clone());
                return Ok(Attachment::Link { link, place, pin });
            }
            keep::unpin(pin).with_context(|| format!("cannot remove the pin {}", pin.display()))?;
        }
        match datapath.attach(index, place) {
            Ok(link) => {
                if let Some(pin) = &pin {
                    link.pin(pin)
                        .with_context(|| format!("cannot pin a program to {}", pin.display()))?;
                }
                Ok(Attachment::Link { link, place, pin })
            }
            Err(error) if place == Place::Tcx && has_no_tcx(&error) => {
                self.make_filter(datapath).map(Attachment::Filter)
            }
            Err(error) => Err(refused(error, place, &self.link)),
        }
    }

    fn make_filter(&self, datapath: &Datapath) -> Result<TcFilter> {
        let mut filter = datapath.attach_filter(self.link.index)?;
        if let Some(keep) = &self.keep {
            let earlier = keep.filters().into_iter();
            let earlier = earlier.filter(|it| it.ifindex == filter.ifindex);
            filter.made_qdisc |= earlier.into_iter().any(|it| it.made_qdisc);
            keep.note_filter(filter)
                .context("cannot note a filter of tc")?;
        }
        Ok(filter)
    }

    /// Puts the programs of another datapath in the place of the present one.
    pub fn replace(&mut self, datapath: &Datapath) -> Result<()> {
        match &self.attached {
            Some(Attachment::Link { link, place, .. }) => {
                datapath.replace(link, *place)?;
                if *place == Place::Xdp {
                    self.program = Some(datapath.program_id(Place::Xdp)?);
                }
            }
            Some(Attachment::Filter(filter)) => {
                datapath.attach_filter(filter.ifindex)?;
            }
            None => {}
        }
        Ok(())
    }

    /// Detaches the program, and puts back what was changed for it.
    pub fn detach(&mut self) -> Result<()> {
        let detached = self.attached.take().map_or(Ok(()), Attachment::detach);
        let detached = detached.and(self.unpin_all_but(None));
        if let Some(keep) = &self.keep
            && detached.is_ok()
        {
            keep.forget_filter(self.link.index);
        }
        self.program = None;
        self.choice = Choice {
            hook: Hook::Kernel,
            why: "detached".into(),
            may_fall_back: true,
        };
        detached.and(self.restore_vlan_offload())
    }

    /// Turns VLAN offload off again where somebody has turned it on beside an XDP program; whether it was.
    pub fn hold_vlan_offload_off(&mut self) -> Result<bool> {
        match self.attached.as_ref().map(Attachment::hook) {
            Some(Hook::Xdp) => self.turn_vlan_offload_off(),
            _ => Ok(false),
        }
    }

    /// A card that takes tags out of frames would hide them from XDP. Whether it did.
    fn turn_vlan_offload_off(&mut self) -> Result<bool> {
        let name = &self.link.name;
        if self.link.kind.is_some() {
            return Ok(false);
        }
        let on = takes_tags(name)?;
        for feature in &on {
            if !self.vlan_offload_off.contains(feature) {
                self.vlan_offload_off.push(feature.clone());
            }
            if let Some(keep) = &self.keep {
                keep.note_vlan_offload(name, &self.vlan_offload_off)
                    .context("cannot note the VLAN offload")?;
            }
            ethtool::set_feature(name, feature, false)
                .with_context(|| format!("{name} takes VLAN tags out of frames, where XDP cannot see them: `ethtool -K {name} {feature} off` is refused"))?;
        }
        Ok(!on.is_empty())
    }

    fn restore_vlan_offload(&mut self) -> Result<()> {
        let off = std::mem::take(&mut self.vlan_offload_off);
        if !off.is_empty() {
            restore_vlan_offload(&self.link.name, &off)?;
            if let Some(keep) = &self.keep {
                keep.forget_vlan_offload(&self.link.name);
            }
        }
        Ok(())
    }
}

/// Turns features of VLAN offload at receive on again; a device that is gone needs nothing.
///
/// # Errors
///
/// Where the driver refuses.
pub fn restore_vlan_offload(name: &str, features: &[String]) -> Result<()> {
    features
        .iter()
        .try_for_each(|feature| turn_on(name, feature))
}

fn turn_on(name: &str, feature: &str) -> Result<()> {
    let mut rtnetlink = Rtnetlink::open()?;
    let mut tries = 0;
    loop {
        let Err(error) = ethtool::set_feature(name, feature, true) else {
            return Ok(());
        };
        if rtnetlink
            .link(name)
            .is_err_and(|error| error.kind() == ErrorKind::NotFound)
        {
            return Ok(());
        }
        tries += 1;
        // A card that resets itself, as it does when an XDP program goes, is not there for a moment.
        if tries == RESET_TRIES {
            return Err(error).with_context(|| {
                format!(
                    "cannot turn VLAN offload of {name} on again: `ethtool -K {name} {feature} on`"
                )
            });
        }
        sleep(RESET_PAUSE);
    }
}

impl Attachment {
    /// Its hook.
    pub fn hook(&self) -> Hook {
        match self {
            Self::Link {
                place: Place::Xdp, ..
            } => Hook::Xdp,
            _ => Hook::Tcx,
        }
    }

    /// The name of the kernel's mechanism.
    pub fn mechanism(&self) -> &'static str {
        match self {
            Self::Link {
                place: Place::Xdp, ..
            } => "xdp",
            Self::Link { .. } => "tcx",
            Self::Filter(_) => "tc",
        }
    }

    fn detach(self) -> Result<()> {
        match self {
            Self::Link { link, pin, .. } => {
                if let Some(pin) = pin {
                    // Detached all the same.
                    let _ = std::fs::remove_file(pin);
                }
                match link.detach() {
                    // Its device is gone.
                    Err(error) if error.raw_os_error() != Some(libc::ENOLINK) => {
                        Err(error).context("cannot detach a program")
                    }
                    _ => Ok(()),
                }
            }
            Self::Filter(filter) => filter.detach(),
        }
    }
}

fn has_no_tcx(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP))
}

/// The refusal of a place, with its likely cause.
fn refused(error: io::Error, place: Place, link: &Link) -> anyhow::Error {
    let name = &link.name;
    let errno = error.raw_os_error();
    let needed = [Capability::NetAdmin, Capability::Bpf];
    let refused = errno.and_then(|errno| privilege::refusal(errno, Feature::Bpf, &needed));
    let cause = match (place, errno) {
        _ if refused.is_some() => refused.unwrap_or_default(),
        (Place::Xdp, Some(libc::EBUSY | libc::EEXIST)) => {
            format!("another XDP program is attached to {name}: `bpftool net` shows it")
        }
        (Place::Xdp, Some(libc::ERANGE | libc::EINVAL)) => format!(
            "its MTU of {} or its number of queues is none that its driver has with XDP",
            link.mtu
        ),
        (Place::Xdp, Some(libc::EOPNOTSUPP)) => "its driver has no XDP".into(),
        (Place::Xdp, _) => "the driver refuses".into(),
        (Place::Tcx, _) => "the kernel refuses".into(),
    };
    anyhow::Error::new(error).context(cause)
}
