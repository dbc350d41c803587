//! Changes of a device, as the kernel reports them.

use super::{AttachedProgram, programs};
use crate::error::{Error, ErrorKind, Result};
use hostnet::ethtool::Queues;
use hostnet::genetlink::ethtool::{ChannelEvent, ChannelMonitor};
use hostnet::rtnetlink::{self, Link, Monitor, Rtnetlink, XdpPrograms};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// Interval of looks at the device: the kernel notifies nobody of a program that is attached, replaced
/// or detached by a `bpf_link`.
const LOOK: Duration = Duration::from_millis(250);

/// The room for notifications that wait, in bytes: some hundred, of all devices of the namespace.
const WAITING: usize = 512 << 10;

/// A change of a device, see [`DeviceWatch`].
///
/// ```
/// use xsk::DeviceEvent;
///
/// assert_eq!(DeviceEvent::Mtu(1500).to_string(), "MTU 1500");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceEvent {
    /// The device was set up (`IFF_UP`).
    Up,
    /// The device was set down: no packets, until it is up again.
    Down,
    /// The device is up and has a carrier (`IFF_LOWER_UP`).
    CarrierOn,
    /// The device has lost its carrier, or was set down.
    CarrierOff,
    /// Another MTU, in bytes.
    Mtu(u32),
    /// Other numbers of queues (`ethtool -L`), combined ones counted in each direction. Linux 5.6 with
    /// `CONFIG_ETHTOOL_NETLINK` reports them.
    Queues {
        /// Queues that receive.
        rx: u32,
        /// Queues that send.
        tx: u32,
    },
    /// Other XDP programs are attached, or none: the ones of this library, too.
    Programs(Vec<AttachedProgram>),
    /// The device was removed. Its sockets are dead.
    Removed,
    /// The device has moved to another network namespace. Its sockets are dead, also when it returns.
    Moved,
    /// A device of this name is there, new or moved here, with this index. Changes from one that is down
    /// follow.
    Returned(u32),
    /// More notifications waited than there is room for. The differences follow; the device may have
    /// been away in the meantime.
    Overflow,
}

/// The changes of a device, by its name, in the network namespace of the thread that made the watch.
///
/// Make it before the socket is opened, so that nothing is missed in between. It follows the device when
/// that is renamed; when the device is gone, it waits for one of that name. It needs no privilege.
///
/// [The guide](crate::guide::life_cycle) shows how to keep a socket over these changes.
///
/// ```no_run
/// use std::time::Duration;
///
/// # fn main() -> xsk::Result<()> {
/// let mut watch = xsk::DeviceWatch::new("eth0")?;
/// while let Some(event) = watch.wait(Duration::from_secs(60))? {
///     println!("eth0: {event}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct DeviceWatch {
    name: String,
    links: Monitor,
    /// None for a kernel without notifications of channels.
    channels: Option<ChannelMonitor>,
    rtnetlink: Rtnetlink,
    /// Readable when it is time to look.
    timer: OwnedFd,
    /// Readable when one of the others is.
    epoll: OwnedFd,
    /// The device as it was last known; none while there is none.
    state: Option<State>,
    /// Changes that the last notification or look showed.
    events: VecDeque<DeviceEvent>,
}

/// The properties of a device that are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    index: u32,
    up: bool,
    carrier: bool,
    mtu: u32,
    /// Numbers of queues that receive and send, if the driver reports them.
    queues: Option<(u32, u32)>,
    programs: XdpPrograms,
}

impl DeviceWatch {
    /// Watches the device `name`, which need not be there yet.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for a name that no device can have; [`ErrorKind::Os`] when a socket or
    /// descriptor cannot be opened.
    pub fn new(name: &str) -> Result<Self> {
        rtnetlink::check_name(name).map_err(|error| Error::host(&error))?;
        // Subscribed before the first look: a change in between is seen twice, and not missed.
        let links = Monitor::of_devices(WAITING).map_err(|error| Error::host(&error))?;
        let channels = ChannelMonitor::open().map_err(|error| Error::host(&error))?;
        let rtnetlink = Rtnetlink::open().map_err(|error| Error::host(&error))?;
        let (timer, epoll) = descriptors(&links, channels.as_ref())
            .map_err(|errno| Error::os(ErrorKind::Os, errno, "making a watch's descriptors"))?;
        let mut watch = Self {
            name: name.to_owned(),
            links,
            channels,
            rtnetlink,
            timer,
            epoll,
            state: None,
            events: VecDeque::new(),
        };
        watch.state = match watch.find()? {
            Some(link) => Some(watch.first_state(&link)?),
            None => None,
        };
        Ok(watch)
    }

    /// The next change; none if nothing has changed since. It does not wait.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Os`] when netlink cannot be read.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator ends; this one goes on"
    )]
    pub fn next(&mut self) -> Result<Option<DeviceEvent>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            if !self.read_one()? {
                return Ok(None);
            }
        }
    }

    /// Waits for the next change, for at most `timeout`. A signal may end the wait early.
    ///
    /// # Errors
    ///
    /// As those of [`next`](Self::next).
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<DeviceEvent>> {
        let start = Instant::now();
        loop {
            if let Some(event) = self.next()? {
                return Ok(Some(event));
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            let most = Timespec::try_from(left).ok();
            match poll(
                &mut [PollFd::new(&self.epoll, PollFlags::IN)],
                most.as_ref(),
            ) {
                Ok(_) => {}
                Err(Errno::INTR) => return Ok(None),
                Err(errno) => {
                    let step = "waiting for changes of the device";
                    return Err(Error::os(ErrorKind::Os, errno, step));
                }
            }
        }
    }

    /// Reads one notification, or looks if it is time; false if there was neither.
    fn read_one(&mut self) -> Result<bool> {
        if let Some(event) = self.links.next().map_err(|error| Error::host(&error))? {
            self.note_link(event)?;
            return Ok(true);
        }
        let channels = self.channels.as_mut().map(ChannelMonitor::next);
        let channels = channels.transpose().map_err(|error| Error::host(&error))?;
        if let Some(event) = channels.flatten() {
            self.note_channels(event)?;
            return Ok(true);
        }
        let mut expirations = [0; 8];
        match rustix::io::read(&self.timer, &mut expirations) {
            Ok(_) => self.look().map(|()| true),
            Err(_) => Ok(false),
        }
    }

    fn note_link(&mut self, event: rtnetlink::Event) -> Result<()> {
        let is_ours = |index| self.state.is_some_and(|state| state.index == index);
        match event {
            // A message of wireless extensions has no properties.
            rtnetlink::Event::Link(link) if is_ours(link.index) && link.mtu == 0 => self.look(),
            rtnetlink::Event::Link(link) if is_ours(link.index) => {
                self.update(&link);
                Ok(())
            }
            rtnetlink::Event::Link(link) if self.state.is_none() && link.is_named(&self.name) => {
                self.look()
            }
            rtnetlink::Event::LinkGone { index, moved, .. } if is_ours(index) => {
                self.state = None;
                self.events.push_back(if moved {
                    DeviceEvent::Moved
                } else {
                    DeviceEvent::Removed
                });
                Ok(())
            }
            rtnetlink::Event::Overflow => self.resynchronize(),
            _ => Ok(()),
        }
    }

    fn note_channels(&mut self, event: ChannelEvent) -> Result<()> {
        let Some(state) = self.state else {
            return Ok(());
        };
        let queues = match event {
            ChannelEvent::Set { index, used } if index == state.index => Some(by_direction(used)),
            ChannelEvent::Overflow => self.queues(state.index)?,
            _ => return Ok(()),
        };
        self.change_to(State { queues, ..state });
        Ok(())
    }

    /// Reads the device anew. One that is gone is left to its notification, which is on its way, and
    /// says whether it was moved.
    fn look(&mut self) -> Result<()> {
        let found = match self.state {
            Some(state) => found(self.rtnetlink.link_by_index(state.index))?,
            None => self.find()?,
        };
        match (found, self.state) {
            (Some(link), Some(_)) => self.update(&link),
            (Some(link), None) => self.note_return(&link)?,
            (None, _) => {}
        }
        Ok(())
    }

    /// Finds the differences after notifications were lost.
    fn resynchronize(&mut self) -> Result<()> {
        self.events.push_back(DeviceEvent::Overflow);
        let found = self.find()?;
        let now = found.as_ref().map(|link| link.index);
        if self.state.is_some_and(|state| Some(state.index) != now) {
            self.state = None;
            self.events.push_back(DeviceEvent::Removed);
        }
        match found {
            Some(link) if self.state.is_some() => self.update(&link),
            Some(link) => self.note_return(&link)?,
            None => {}
        }
        Ok(())
    }

    /// The device of the name.
    fn find(&mut self) -> Result<Option<Link>> {
        found(self.rtnetlink.link(&self.name))
    }

    fn note_return(&mut self, link: &Link) -> Result<()> {
        let state = self.first_state(link)?;
        self.events.push_back(DeviceEvent::Returned(link.index));
        self.state = Some(State {
            up: false,
            carrier: false,
            programs: XdpPrograms::default(),
            ..state
        });
        self.change_to(state);
        Ok(())
    }

    fn first_state(&mut self, link: &Link) -> Result<State> {
        let queues = self.queues(link.index)?;
        Ok(State::of(link, queues))
    }

    /// Numbers of queues in use; none for a driver that does not report them, and for a device that has
    /// just gone.
    fn queues(&mut self, index: u32) -> Result<Option<(u32, u32)>> {
        let Some(channels) = &mut self.channels else {
            return Ok(None);
        };
        let used = found(channels.channels(index))?.flatten();
        Ok(used.map(by_direction))
    }

    fn update(&mut self, link: &Link) {
        let queues = self.state.and_then(|state| state.queues);
        self.change_to(State::of(link, queues));
    }

    fn change_to(&mut self, state: State) {
        if let Some(before) = self.state.replace(state) {
            self.events.extend(before.changes_to(&state));
        }
    }
}

/// Numbers of queues that receive and send.
fn by_direction(used: Queues) -> (u32, u32) {
    let both = used.combined;
    (used.rx.saturating_add(both), used.tx.saturating_add(both))
}

/// An object, or none where the kernel has not found it.
fn found<T>(answer: hostnet::Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.kind() == hostnet::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::host(&error)),
    }
}

/// The timer, and an epoll instance with it and the sockets.
fn descriptors(
    links: &Monitor,
    channels: Option<&ChannelMonitor>,
) -> std::result::Result<(OwnedFd, OwnedFd), Errno> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
    let interval = Timespec {
        tv_sec: 0,
        tv_nsec: LOOK.subsec_nanos().into(),
    };
    let every = Itimerspec {
        it_interval: interval,
        it_value: interval,
    };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &every)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let watched = [Some(links.as_fd()), channels.map(AsFd::as_fd)];
    for fd in watched.into_iter().flatten().chain([timer.as_fd()]) {
        let no_data = epoll::EventData::new_u64(0);
        epoll::add(&epoll, fd, no_data, epoll::EventFlags::IN)?;
    }
    Ok((timer, epoll))
}

/// For an event loop: readable when there may be a change. Read until [`next`](DeviceWatch::next) has
/// none.
impl AsFd for DeviceWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Same as [`AsFd`].
impl AsRawFd for DeviceWatch {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl State {
    fn of(link: &Link, queues: Option<(u32, u32)>) -> Self {
        Self {
            index: link.index,
            up: link.up,
            carrier: link.carrier,
            mtu: link.mtu,
            queues,
            programs: link.xdp_programs,
        }
    }

    fn changes_to(&self, after: &Self) -> Vec<DeviceEvent> {
        let mut events = Vec::new();
        if self.up != after.up {
            events.push(if after.up {
                DeviceEvent::Up
            } else {
                DeviceEvent::Down
            });
        }
        if self.carrier != after.carrier {
            events.push(if after.carrier {
                DeviceEvent::CarrierOn
            } else {
                DeviceEvent::CarrierOff
            });
        }
        if self.mtu != after.mtu {
            events.push(DeviceEvent::Mtu(after.mtu));
        }
        if let Some((rx, tx)) = after.queues
            && self.queues != after.queues
        {
            events.push(DeviceEvent::Queues { rx, tx });
        }
        if self.programs != after.programs {
            events.push(DeviceEvent::Programs(programs(after.programs)));
        }
        events
    }
}

impl std::fmt::Display for DeviceEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Up => f.write_str("set up"),
            Self::Down => f.write_str("set down"),
            Self::CarrierOn => f.write_str("carrier on"),
            Self::CarrierOff => f.write_str("carrier off"),
            Self::Mtu(mtu) => write!(f, "MTU {mtu}"),
            Self::Queues { rx, tx } => write!(f, "{rx} RX queues, {tx} TX queues"),
            Self::Programs(programs) if programs.is_empty() => f.write_str("no XDP program"),
            Self::Programs(programs) => {
                let programs: Vec<_> = programs.iter().map(ToString::to_string).collect();
                f.write_str(&programs.join("; "))
            }
            Self::Removed => f.write_str("removed"),
            Self::Moved => f.write_str("moved to another network namespace"),
            Self::Returned(index) => write!(f, "there again, with index {index}"),
            Self::Overflow => f.write_str("notifications were lost"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: State = State {
        index: 3,
        up: true,
        carrier: true,
        mtu: 1500,
        queues: Some((2, 4)),
        programs: XdpPrograms {
            generic: None,
            driver: None,
            hardware: None,
        },
    };

    #[test]
    fn each_difference_is_an_event() {
        assert_eq!(STATE.changes_to(&STATE), []);
        let other = State {
            up: false,
            carrier: false,
            mtu: 1400,
            queues: Some((1, 4)),
            ..STATE
        };
        let events = [
            DeviceEvent::Down,
            DeviceEvent::CarrierOff,
            DeviceEvent::Mtu(1400),
            DeviceEvent::Queues { rx: 1, tx: 4 },
        ];
        assert_eq!(STATE.changes_to(&other), events);
        let back = [
            DeviceEvent::Up,
            DeviceEvent::CarrierOn,
            DeviceEvent::Mtu(1500),
            DeviceEvent::Queues { rx: 2, tx: 4 },
        ];
        assert_eq!(other.changes_to(&STATE), back);
        let unknown = State {
            queues: None,
            ..STATE
        };
        assert_eq!(STATE.changes_to(&unknown), []);
    }

    #[test]
    #[cfg(not(miri))]
    fn a_device_that_is_not_there_is_waited_for() {
        let mut watch = DeviceWatch::new("xsk-none").expect("netlink");
        let short = Duration::from_millis(1);
        assert_eq!(watch.wait(short).expect("netlink"), None);
        for name in ["", &"x".repeat(128)] {
            let error = DeviceWatch::new(name).expect_err("no such name");
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        }
    }
}
