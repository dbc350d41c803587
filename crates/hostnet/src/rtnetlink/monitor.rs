//! Notifications about devices, bridges and forwarding databases.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::protocols::NETLINK_ROUTE;

use super::fdb::FdbEntry;
use super::link::{Link, NEW_NETNSID, link_attribute};
use super::socket::{DEL_LINK, DEL_NEIGH, DEL_VLAN, NEW_LINK, NEW_NEIGH, NEW_VLAN};
use super::vlan::vlan_device;
use crate::error::{Context as _, Result};
use crate::notifications::{Notification, Notifications};

/// Groups of notifications (`RTNLGRP_*` in `linux/rtnetlink.h`).
const LINKS: u32 = 1;
const NEIGHBOURS: u32 = 3;
const BRIDGE_VLANS: u32 = 33;
/// The room for notifications that wait, in bytes: some 10,000 of a forwarding database, which take
/// 768 bytes each.
const WAITING: usize = 8 << 20;

/// A change in the network namespace of a [`Monitor`].
///
/// ```
/// use hostnet::rtnetlink::Event;
///
/// fn is_overflow(event: &Event) -> bool {
///     matches!(event, Event::Overflow)
/// }
/// assert!(is_overflow(&Event::Overflow));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A device is new, or something about it has changed.
    Link(Box<Link>),
    /// A device is gone from the namespace.
    LinkGone {
        /// The index that it had.
        index: u32,
        /// The name that it had.
        name: String,
        /// Whether it has moved to another namespace (`IFLA_NEW_NETNSID`, Linux 4.15).
        moved: bool,
    },
    /// A device is a new port, or the settings or VLANs of a port or a bridge have changed: to be
    /// read anew.
    BridgePort {
        /// The index of the port or bridge.
        index: u32,
        /// The index of the port's bridge, where the kernel reports it: not for a bridge itself, and
        /// not with a change of VLANs.
        bridge: Option<u32>,
    },
    /// A device is no port any more.
    BridgePortGone {
        /// The index of the device.
        index: u32,
    },
    /// An entry of a forwarding database is new, has moved to another port, or has another state.
    Fdb(FdbEntry),
    /// An entry is gone from its forwarding database.
    FdbGone(FdbEntry),
    /// Notifications were lost, because more waited than the socket has room for. Those that waited
    /// were thrown away too: everything is to be read anew.
    Overflow,
}

/// A socket that receives notifications about all devices, bridges and forwarding databases of a
/// network namespace.
///
/// It belongs to the namespace of the thread that opened it. Open it before everything is read
/// for the first time, so that no change is missed in between.
///
/// ```no_run
/// use std::os::fd::AsFd as _;
///
/// use hostnet::rtnetlink::{Event, Monitor};
/// use rustix::event::{PollFd, PollFlags, poll};
///
/// let mut monitor = Monitor::open()?;
/// loop {
///     while let Some(event) = monitor.next()? {
///         match event {
///             Event::Fdb(entry) => println!("{:x?} is at port {}", entry.mac, entry.port),
///             Event::Overflow => println!("read everything anew"),
///             _ => {}
///         }
///     }
///     let waiting = &mut [PollFd::from_borrowed_fd(monitor.as_fd(), PollFlags::IN)];
///     poll(waiting, None).map_err(std::io::Error::from)?;
/// }
/// # #[allow(unreachable_code)]
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Monitor(Notifications);

impl Monitor {
    /// Opens a socket in the calling thread's network namespace, with room for 8 MiB of notifications
    /// that wait; without `CAP_NET_ADMIN`, for no more than `net.core.rmem_max`.
    pub fn open() -> Result<Self> {
        Self::with_room(WAITING)
    }

    /// The same with room for so many bytes. A notification of a forwarding database takes about 768
    /// bytes, one of a device some thousands.
    pub fn with_room(bytes: usize) -> Result<Self> {
        let subscribe = || {
            let mut notifications = Notifications::open(NETLINK_ROUTE, bytes)?;
            notifications.join(LINKS)?;
            notifications.join(NEIGHBOURS)?;
            match notifications.join(BRIDGE_VLANS) {
                // A kernel before Linux 5.6, which has no such group.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
                added => added?,
            }
            Ok(Self(notifications))
        };
        opened(subscribe())
    }

    /// Opens a socket for devices alone, without bridges' VLANs and forwarding databases, with room for
    /// so many bytes.
    ///
    /// ```no_run
    /// let monitor = hostnet::rtnetlink::Monitor::of_devices(256 << 10)?;
    /// # Ok::<(), hostnet::Error>(())
    /// ```
    pub fn of_devices(bytes: usize) -> Result<Self> {
        let subscribe = || {
            let mut notifications = Notifications::open(NETLINK_ROUTE, bytes)?;
            notifications.join(LINKS)?;
            Ok(Self(notifications))
        };
        opened(subscribe())
    }

    /// The next notification; none if nothing waits.
    ///
    /// # Errors
    ///
    /// A failed read. Neither lost notifications nor such as cannot be parsed are errors; the latter
    /// are skipped.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator ends; this one goes on"
    )]
    pub fn next(&mut self) -> Result<Option<Event>> {
        let next = self.0.next(event).context("cannot read notifications")?;
        Ok(next.map(|next| match next {
            Notification::Read(event) => event,
            Notification::Overflow => Event::Overflow,
        }))
    }
}

fn opened(monitor: io::Result<Monitor>) -> Result<Monitor> {
    monitor
        .context("cannot open a netlink socket for notifications")
        .needs_none()
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Reads a notification; none for one of another kind, or of another family.
fn event(kind: u16, payload: &[u8]) -> Option<Event> {
    let is_of_bridge = *payload.first()? == libc::AF_BRIDGE as u8;
    Some(match kind {
        NEW_NEIGH => Event::Fdb(FdbEntry::read(payload)?),
        DEL_NEIGH => Event::FdbGone(FdbEntry::read(payload)?),
        NEW_LINK if !is_of_bridge => Event::Link(Box::new(Link::read(payload)?)),
        NEW_LINK => {
            let port = Link::read(payload)?;
            Event::BridgePort {
                index: port.index,
                bridge: port.controller,
            }
        }
        DEL_LINK if !is_of_bridge => {
            let link = Link::read(payload)?;
            Event::LinkGone {
                moved: link_attribute(payload, NEW_NETNSID).is_some(),
                index: link.index,
                name: link.name,
            }
        }
        DEL_LINK => Event::BridgePortGone {
            index: Link::read(payload)?.index,
        },
        NEW_VLAN | DEL_VLAN => Event::BridgePort {
            index: vlan_device(payload)?,
            bridge: None,
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{RawMessage, damaged, push_attribute};
    use crate::rtnetlink::socket::link_message;

    fn entry() -> RawMessage {
        let mut payload = vec![libc::AF_BRIDGE as u8, 0, 0, 0];
        payload.extend(3_u32.to_ne_bytes());
        payload.extend([2_u16, 0].map(u16::to_ne_bytes).concat());
        push_attribute(&mut payload, 2, &[2, 0, 0, 0, 0, 1]);
        push_attribute(&mut payload, 9, &2_u32.to_ne_bytes());
        RawMessage {
            kind: NEW_NEIGH,
            payload,
        }
    }

    fn name(mut message: RawMessage) -> RawMessage {
        push_attribute(&mut message.payload, 3, b"p0\0");
        push_attribute(&mut message.payload, 10, &2_u32.to_ne_bytes());
        message
    }

    /// One of each kind.
    fn messages() -> Vec<RawMessage> {
        let vlan = |kind| RawMessage {
            kind,
            payload: [7_u32, 3].map(u32::to_ne_bytes).concat(),
        };
        let link = |kind, family| name(link_message(kind, family, 3));
        let gone = RawMessage {
            kind: DEL_NEIGH,
            ..entry()
        };
        vec![
            entry(),
            gone,
            link(NEW_LINK, libc::AF_UNSPEC),
            link(DEL_LINK, libc::AF_UNSPEC),
            link(NEW_LINK, libc::AF_BRIDGE),
            link(DEL_LINK, libc::AF_BRIDGE),
            vlan(NEW_VLAN),
            vlan(DEL_VLAN),
        ]
    }

    #[test]
    fn each_kind_of_message_is_an_event() {
        let events = messages()
            .into_iter()
            .map(|message| event(message.kind, &message.payload).expect("an event"));
        let entry = FdbEntry {
            mac: [2, 0, 0, 0, 0, 1],
            port: 3,
            bridge: 2,
            ..FdbEntry::default()
        };
        let link = Link {
            name: "p0".into(),
            index: 3,
            controller: Some(2),
            ..Link::default()
        };
        let changed = |bridge| Event::BridgePort { index: 3, bridge };
        let expected = [
            Event::Fdb(entry),
            Event::FdbGone(entry),
            Event::Link(Box::new(link)),
            Event::LinkGone {
                index: 3,
                name: "p0".into(),
                moved: false,
            },
            changed(Some(2)),
            Event::BridgePortGone { index: 3 },
            changed(None),
            changed(None),
        ];
        assert!(events.eq(expected));
    }

    #[test]
    fn damaged_and_foreign_messages_are_skipped() {
        for message in messages() {
            for bytes in damaged(&message.payload) {
                event(message.kind, &bytes);
            }
            assert_eq!(event(message.kind, &[]), None);
            // An address of a device.
            assert_eq!(event(20, &message.payload), None);
        }
        let mut neighbour = entry();
        neighbour.payload[0] = libc::AF_INET6 as u8;
        assert_eq!(event(NEW_NEIGH, &neighbour.payload), None);
    }
}
