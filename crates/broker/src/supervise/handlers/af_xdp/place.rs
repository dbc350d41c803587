//! Network namespaces in which calls have their effect.

use super::sys::{self, IFNAMSIZ};
use crate::seccomp::Target;
use hostnet::netns;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::netdevice::{index_to_name, name_to_index};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// A network namespace.
#[derive(Debug)]
pub(super) struct Place {
    namespace: OwnedFd,
    /// Inode number of the namespace; it belongs to no other while `namespace` is open.
    identity: u64,
    /// By which devices are asked for, from whichever thread.
    socket: OwnedFd,
    cookie: u64,
    is_home: bool,
}

impl Place {
    /// The namespace of this thread.
    pub(super) fn home() -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let namespace = rustix::fs::open("/proc/thread-self/ns/net", flags, Mode::empty())?;
        Self::new(namespace, true)
    }

    /// The namespace of a caller, if it is not `home`.
    pub(super) fn of(target: &Target, home: &Self) -> Result<Option<Self>, Errno> {
        let namespace = target.open_proc("ns/net", OFlags::RDONLY)?;
        if identity(namespace.as_fd())? == home.identity {
            return Ok(None);
        }
        Self::new(namespace, false).map(Some)
    }

    fn new(namespace: OwnedFd, is_home: bool) -> Result<Self, Errno> {
        let open = || {
            let flags = SocketFlags::CLOEXEC;
            socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
        };
        let socket = if is_home {
            open()?
        } else {
            inside(namespace.as_fd(), open)?
        };
        Ok(Self {
            identity: identity(namespace.as_fd())?,
            cookie: sys::namespace_cookie(socket.as_fd())?,
            namespace,
            socket,
            is_home,
        })
    }

    /// Whether it is the broker's own.
    pub(super) fn is_home(&self) -> bool {
        self.is_home
    }

    pub(super) fn identity(&self) -> u64 {
        self.identity
    }

    /// A socket of it, for ioctls.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether a socket belongs to it.
    pub(super) fn has_socket(&self, socket: BorrowedFd<'_>) -> bool {
        sys::namespace_cookie(socket) == Ok(self.cookie)
    }

    /// The name of a device.
    pub(super) fn device(&self, ifindex: u32) -> Result<String, Errno> {
        index_to_name(&self.socket, ifindex).map_err(no_device)
    }

    /// The index of a device, by its name or an alternative one.
    pub(super) fn index(&self, device: &str) -> Result<u32, Errno> {
        if device.len() < IFNAMSIZ {
            return name_to_index(&self.socket, device).map_err(no_device);
        }
        // An ioctl has no room for it.
        self.act(|| match hostnet::device::find(device) {
            Ok(link) => Ok(link.index),
            Err(_) => Err(Errno::NODEV),
        })
    }

    /// Runs `work` inside.
    pub(super) fn act<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, Errno> + Send,
    ) -> Result<T, Errno> {
        if self.is_home {
            work()
        } else {
            inside(self.namespace.as_fd(), work)
        }
    }
}

/// Of a name or index that no device can have, the kernel says `EINVAL` or `ENXIO`.
fn no_device(_: Errno) -> Errno {
    Errno::NODEV
}

fn inside<T: Send>(
    namespace: BorrowedFd<'_>,
    work: impl FnOnce() -> Result<T, Errno> + Send,
) -> Result<T, Errno> {
    let result = netns::run_in(namespace, || Ok::<_, hostnet::Error>(work()));
    result.map_err(|error| Errno::from_raw_os_error(error.errno().unwrap_or(libc::EPERM)))?
}

fn identity(namespace: BorrowedFd<'_>) -> Result<u64, Errno> {
    rustix::fs::fstat(namespace).map(|stat| stat.st_ino)
}
