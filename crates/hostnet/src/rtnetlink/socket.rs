//! The socket, with requests that read and change objects.

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;

use crate::error::{Context as _, Error, Result};
use crate::netlink::{RawMessage, Socket};
use crate::privilege::Capability;

/// Flags for an object that must not exist yet.
pub(super) const NEW: u16 = NLM_F_CREATE | NLM_F_EXCL;

/// Types of messages (`linux/rtnetlink.h`).
pub(super) const NEW_LINK: u16 = 16;
pub(super) const DEL_LINK: u16 = 17;
pub(super) const GET_LINK: u16 = 18;
pub(super) const SET_LINK: u16 = 19;
pub(super) const NEW_ADDRESS: u16 = 20;
pub(super) const GET_ADDRESS: u16 = 22;
pub(super) const NEW_ROUTE: u16 = 24;
pub(super) const GET_ROUTE: u16 = 26;
pub(super) const NEW_NEIGH: u16 = 28;
pub(super) const DEL_NEIGH: u16 = 29;
pub(super) const GET_NEIGH: u16 = 30;
pub(super) const NEW_FILTER: u16 = 44;
pub(super) const GET_FILTER: u16 = 46;
pub(super) const NEW_VLAN: u16 = 112;
pub(super) const DEL_VLAN: u16 = 113;
pub(super) const GET_VLAN: u16 = 114;

/// `struct ifinfomsg`, before the attributes of a device: family, a byte of padding, a type of two
/// bytes, index, flags, changed flags.
pub(super) const LINK_HEADER: usize = 16;

/// A message about a device, or a bridge's message about it, without attributes.
pub(super) fn link_message(kind: u16, family: i32, index: u32) -> RawMessage {
    let mut payload = vec![0; LINK_HEADER];
    payload[0] = family as u8;
    payload[4..8].copy_from_slice(&index.to_ne_bytes());
    RawMessage { kind, payload }
}

/// A socket to the kernel's routing subsystem, for one request at a time.
///
/// It belongs to the network namespace of the thread that opened it, in whichever thread it is
/// used. Changes need `CAP_NET_ADMIN` in the user namespace that owns the network namespace.
///
/// # Errors
///
/// A method fails with [`ErrorKind::PermissionDenied`] without that capability, with
/// [`ErrorKind::NotFound`] if a device that it names is not there, and with
/// [`ErrorKind::AlreadyExists`] if an object that it makes is there already. The message has the
/// kernel's own reason where it gives one (`NLMSGERR_ATTR_MSG`).
///
/// ```no_run
/// use hostnet::rtnetlink::Rtnetlink;
///
/// let mut rtnetlink = Rtnetlink::open()?;
/// for link in rtnetlink.links()? {
///     println!("{}: {} mtu {}", link.index, link.name, link.mtu);
/// }
/// let link = rtnetlink.link("eth0")?;
/// rtnetlink.set_up(link.index)?;
/// # Ok::<(), hostnet::Error>(())
/// ```
///
/// [`ErrorKind::PermissionDenied`]: crate::ErrorKind::PermissionDenied
/// [`ErrorKind::NotFound`]: crate::ErrorKind::NotFound
/// [`ErrorKind::AlreadyExists`]: crate::ErrorKind::AlreadyExists
#[derive(Debug)]
pub struct Rtnetlink(Socket);

impl Rtnetlink {
    /// Opens a socket in the calling thread's network namespace.
    pub fn open() -> Result<Self> {
        Ok(Self(Socket::open(NETLINK_ROUTE)?))
    }

    /// Reads one object: `answer` takes the content of the message with it.
    pub(super) fn get(
        &mut self,
        message: &RawMessage,
        answer: &mut dyn FnMut(u16, &[u8]),
    ) -> Result<()> {
        self.0.ask(message, NLM_F_ACK, answer)
    }

    /// Reads every object of a kind: `answer` takes the type and content of each message.
    pub(super) fn list(
        &mut self,
        message: &RawMessage,
        answer: &mut dyn FnMut(u16, &[u8]),
    ) -> Result<()> {
        self.0.ask(message, NLM_F_DUMP, answer)
    }

    /// Reads every object of a kind.
    pub(super) fn dump(
        &mut self,
        message: &RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>> {
        self.0.request(message, NLM_F_DUMP)
    }

    /// Makes, changes or removes an object. `step` names that in an error.
    pub(super) fn change(
        &mut self,
        message: &RouteNetlinkMessage,
        flags: u16,
        step: impl FnOnce() -> String,
    ) -> Result<()> {
        let answer = self.0.request(message, NLM_F_ACK | flags);
        answer
            .with_context(step)
            .request_needs(Capability::NetAdmin)?;
        Ok(())
    }

    /// The same with a message that this crate writes itself.
    pub(super) fn change_raw(
        &mut self,
        message: &RawMessage,
        flags: u16,
        step: impl FnOnce() -> String,
    ) -> Result<()> {
        let answer = self.0.ask(message, NLM_F_ACK | flags, &mut |_, _| {});
        answer
            .with_context(step)
            .request_needs(Capability::NetAdmin)
    }

    /// The same with many messages, of which none waits for the answer to the one before. `refused`
    /// takes the place and the error of each that the kernel refuses.
    pub(super) fn change_all(
        &mut self,
        messages: impl IntoIterator<Item = RawMessage>,
        flags: u16,
        refused: &mut dyn FnMut(usize, Error),
    ) -> Result<()> {
        self.0.request_all(messages, flags, refused)
    }
}
