//! The socket, with requests that read and change objects.

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;

use crate::error::{Context as _, Result};
use crate::netlink::Socket;

/// Flags for an object that must not exist yet.
pub(super) const NEW: u16 = NLM_F_CREATE | NLM_F_EXCL;

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

    /// Reads one object.
    pub(super) fn get(
        &mut self,
        message: RouteNetlinkMessage,
    ) -> Result<Option<RouteNetlinkMessage>> {
        Ok(self.0.request(message, NLM_F_ACK)?.into_iter().next())
    }

    /// Reads every object of a kind.
    pub(super) fn dump(
        &mut self,
        message: RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>> {
        self.0.request(message, NLM_F_DUMP)
    }

    /// Makes, changes or removes an object. `step` names that in an error.
    pub(super) fn change(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        step: impl FnOnce() -> String,
    ) -> Result<()> {
        let answer = self.0.request(message, NLM_F_ACK | flags);
        answer.with_context(step).needs("CAP_NET_ADMIN")?;
        Ok(())
    }
}
