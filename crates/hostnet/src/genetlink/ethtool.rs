//! The family `ethtool`: notifications of changed channels
//! (Documentation/networking/ethtool-netlink.rst, Linux 5.6 with `CONFIG_ETHTOOL_NETLINK`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::protocols::NETLINK_GENERIC;

use super::{Genetlink, HEADER};
use crate::error::{Context as _, ErrorKind, Result};
use crate::ethtool::Queues;
use crate::netlink::{attribute, push_attribute, push_nested, u32_of};
use crate::notifications::{Notification, Notifications};

const FAMILY: &str = "ethtool";
const GROUP: &str = "monitor";
/// `ETHTOOL_MSG_CHANNELS_GET` and `ETHTOOL_MSG_CHANNELS_NTF` (`linux/ethtool_netlink.h`).
const GET_CHANNELS: u8 = 17;
const CHANNELS_CHANGED: u8 = 19;
/// `ETHTOOL_A_CHANNELS_HEADER`, with `ETHTOOL_A_HEADER_DEV_INDEX` in it, and
/// `ETHTOOL_A_CHANNELS_…_COUNT`.
const CHANNELS_HEADER: u16 = 1;
const DEVICE_INDEX: u16 = 1;
const RX_COUNT: u16 = 6;
const TX_COUNT: u16 = 7;
const COMBINED_COUNT: u16 = 9;
/// The room for notifications that wait, in bytes: some hundreds.
const WAITING: usize = 256 << 10;

/// A change of the channels of a device, see [`ChannelMonitor`].
///
/// ```
/// use hostnet::genetlink::ethtool::ChannelEvent;
///
/// fn is_overflow(event: &ChannelEvent) -> bool {
///     matches!(event, ChannelEvent::Overflow)
/// }
/// assert!(is_overflow(&ChannelEvent::Overflow));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChannelEvent {
    /// The channels of a device were set (`ethtool -L`), to other numbers or the same.
    Set {
        /// The index of the device.
        index: u32,
        /// The numbers in use.
        used: Queues,
    },
    /// Notifications were lost, because more waited than the socket has room for.
    Overflow,
}

/// A socket that receives notifications about the channels of all devices of a network namespace,
/// that of the thread that opened it.
///
/// ```no_run
/// use hostnet::genetlink::ethtool::ChannelMonitor;
///
/// if let Some(mut monitor) = ChannelMonitor::open()? {
///     println!("queues of device 2: {:?}", monitor.channels(2)?);
///     while let Some(event) = monitor.next()? {
///         println!("{event:?}");
///     }
/// }
/// # Ok::<(), hostnet::Error>(())
/// ```
#[derive(Debug)]
pub struct ChannelMonitor {
    notifications: Notifications,
    requests: Genetlink,
    family: u16,
}

impl ChannelMonitor {
    /// Opens a socket in the calling thread's network namespace; `None` for a kernel without this
    /// family.
    pub fn open() -> Result<Option<Self>> {
        let mut requests = Genetlink::open()?;
        let family = requests.family(FAMILY)?;
        let (Some(family), Some(group)) = (family, requests.group(FAMILY, GROUP)?) else {
            return Ok(None);
        };
        let notifications = subscribe(group);
        Ok(Some(Self {
            notifications: notifications
                .context("cannot subscribe to changes of channels")
                .needs_none()?,
            requests,
            family,
        }))
    }

    /// The next notification; none if nothing waits.
    ///
    /// # Errors
    ///
    /// A failed read. Notifications that cannot be parsed are skipped.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator ends; this one goes on"
    )]
    pub fn next(&mut self) -> Result<Option<ChannelEvent>> {
        let family = self.family;
        let of_family = |kind, payload: &[u8]| (kind == family).then(|| event(payload))?;
        let next = self.notifications.next(of_family);
        let next = next.context("cannot read notifications of channels")?;
        Ok(next.map(|next| match next {
            Notification::Read(event) => event,
            Notification::Overflow => ChannelEvent::Overflow,
        }))
    }

    /// The queues in use of the device with this index; `None` if its driver does not report them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if there is no such device.
    pub fn channels(&mut self, index: u32) -> Result<Option<Queues>> {
        let (mut header, mut attributes) = (Vec::new(), Vec::new());
        push_attribute(&mut header, DEVICE_INDEX, &index.to_ne_bytes());
        push_nested(&mut attributes, CHANNELS_HEADER, &header);
        let answers = self
            .requests
            .request(self.family, GET_CHANNELS, &attributes);
        match answers {
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(None),
            answers => {
                let answers =
                    answers.with_context(|| format!("cannot read the queues of device {index}"))?;
                Ok(answers.first().map(|answer| queues(answer)))
            }
        }
    }
}

impl AsFd for ChannelMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.notifications.as_fd()
    }
}

fn subscribe(group: u32) -> io::Result<Notifications> {
    let mut notifications = Notifications::open(NETLINK_GENERIC, WAITING)?;
    notifications.join(group)?;
    Ok(notifications)
}

/// Reads a notification; none for one of another kind.
fn event(payload: &[u8]) -> Option<ChannelEvent> {
    let attributes = payload.get(HEADER..)?;
    if payload[0] != CHANNELS_CHANGED {
        return None;
    }
    let header = attribute(attributes, CHANNELS_HEADER)?;
    Some(ChannelEvent::Set {
        index: u32_of(&attribute(&header, DEVICE_INDEX)?)?,
        used: queues(attributes),
    })
}

/// A driver without queues of a kind leaves their number out.
fn queues(attributes: &[u8]) -> Queues {
    let number = |kind| attribute(attributes, kind).and_then(|value| u32_of(&value));
    let number = |kind| number(kind).unwrap_or_default();
    Queues {
        rx: number(RX_COUNT),
        tx: number(TX_COUNT),
        combined: number(COMBINED_COUNT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::damaged;

    fn message(command: u8) -> Vec<u8> {
        let mut header = Vec::new();
        push_attribute(&mut header, DEVICE_INDEX, &7_u32.to_ne_bytes());
        let mut bytes = vec![command, 1, 0, 0];
        push_nested(&mut bytes, CHANNELS_HEADER, &header);
        push_attribute(&mut bytes, TX_COUNT, &2_u32.to_ne_bytes());
        push_attribute(&mut bytes, COMBINED_COUNT, &4_u32.to_ne_bytes());
        bytes
    }

    #[test]
    fn a_notification_has_the_device_and_its_queues() {
        let used = Queues {
            rx: 0,
            tx: 2,
            combined: 4,
        };
        let set = ChannelEvent::Set { index: 7, used };
        assert_eq!(event(&message(CHANNELS_CHANGED)), Some(set));
        assert_eq!(event(&message(17)), None, "of the rings");
        assert_eq!(event(&[]), None);
        for bytes in damaged(&message(CHANNELS_CHANGED)) {
            event(&bytes);
        }
    }

    #[test]
    fn the_loopback_has_no_channels() -> Result<()> {
        // A kernel without the family has no monitor.
        if let Some(mut monitor) = ChannelMonitor::open()? {
            assert_eq!(monitor.channels(1)?, None);
            let error = monitor.channels(i32::MAX as u32).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        }
        Ok(())
    }
}
