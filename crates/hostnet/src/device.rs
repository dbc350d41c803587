//! A network device that stays in its namespace, whichever thread uses it.

use std::sync::{Mutex, PoisonError};

use crate::error::{Context as _, Result};
use crate::rtnetlink::{Link, Rtnetlink};

pub use crate::rtnetlink::Counters;

/// The device of the calling thread's network namespace that has this name, be it an alternative one
/// (`ip link property add dev DEVICE altname NAME`): for the edge of a program, to which a person gives a name. Files,
/// ioctls and messages take [`Link::name`].
///
/// ```
/// assert_eq!(hostnet::device::find("lo")?.name, "lo");
/// # Ok::<(), hostnet::Error>(())
/// ```
///
/// # Errors
///
/// As those of [`Rtnetlink::link`].
pub fn find(name: &str) -> Result<Link> {
    Rtnetlink::open()?.link(name)
}

/// A device of a network namespace, by its name there.
///
/// It keeps a netlink socket of that namespace open, so that any thread can use it, in whatever
/// namespace that thread is. The socket keeps the namespace alive.
///
/// # Errors
///
/// Each method fails with [`ErrorKind::NotFound`] once the device is gone or renamed, and a change
/// with [`ErrorKind::PermissionDenied`] without `CAP_NET_ADMIN`.
///
/// ```no_run
/// use std::os::fd::AsFd as _;
/// use std::path::Path;
///
/// use hostnet::device::Device;
/// use hostnet::netns;
///
/// let namespace = netns::open(Path::new("/run/netns/guest"))?;
/// let device = netns::run_in(namespace.as_fd(), || Device::open("eth0"))?;
/// device.set_up()?;
/// println!("{:?}", device.counters()?);
/// # Ok::<(), hostnet::Error>(())
/// ```
///
/// [`ErrorKind::NotFound`]: crate::ErrorKind::NotFound
/// [`ErrorKind::PermissionDenied`]: crate::ErrorKind::PermissionDenied
#[derive(Debug)]
pub struct Device {
    name: String,
    /// One request at a time: an answer belongs to the request before it.
    rtnetlink: Mutex<Rtnetlink>,
}

impl Device {
    /// The device `name` of the calling thread's network namespace.
    pub fn open(name: &str) -> Result<Self> {
        let mut rtnetlink = Rtnetlink::open()?;
        Ok(Self {
            // Of an alternative name, the one that ioctls and files take.
            name: rtnetlink.link(name)?.name,
            rtnetlink: Mutex::new(rtnetlink),
        })
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The device's index in its namespace.
    pub fn index(&self) -> Result<u32> {
        Ok(self.state()?.index)
    }

    /// The device's counters: exact once no frame is in flight, see [`Counters`].
    pub fn counters(&self) -> Result<Counters> {
        Ok(self.state()?.stats)
    }

    /// The device as rtnetlink describes it now.
    pub fn state(&self) -> Result<Link> {
        self.with_rtnetlink(|rtnetlink| rtnetlink.link(&self.name))
    }

    /// Brings the device up (`IFF_UP`).
    pub fn set_up(&self) -> Result<()> {
        self.change(Rtnetlink::set_up)
    }

    /// Removes the device; the peer of a veth goes with it.
    pub fn delete(&self) -> Result<()> {
        self.change(Rtnetlink::delete)
    }

    fn change(&self, change: impl FnOnce(&mut Rtnetlink, u32) -> Result<()>) -> Result<()> {
        let index = self.index()?;
        self.with_rtnetlink(|rtnetlink| change(rtnetlink, index))
            .context(&self.name)
    }

    fn with_rtnetlink<T>(&self, work: impl FnOnce(&mut Rtnetlink) -> Result<T>) -> Result<T> {
        // A request that panicked leaves at most an answer unread, which the next one skips.
        work(
            &mut self
                .rtnetlink
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }
}
