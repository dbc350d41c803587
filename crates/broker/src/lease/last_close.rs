//! The last close of a socket of which this process has no descriptor.
//!
//! A watch of inotify(7) reports when the last descriptor and mapping of a file are gone
//! (`fsnotify_close` in `__fput`, `fs/file_table.c`), and holds none itself. It is of the file, so it sees
//! copies in other processes, in messages on their way, and in `io_uring`; and it costs the socket's
//! packets nothing.
//!
//! Some kernels send no such events for sockets. There an entry of epoll(7) stands in, which the kernel
//! removes at the same time, and /proc shows: it has to be looked at, and each wake-up of the socket
//! meets it.

use super::record::LeaseId;
use anyhow::{Context as _, Result};
use rustix::event::epoll;
use rustix::fs::inotify;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time between two looks where the kernel sends no events for sockets.
const LOOK: Duration = Duration::from_millis(25);
/// And where it does: for sockets that could not be watched.
const SAFETY: Duration = Duration::from_secs(2);
/// Without a socket to look for, where a new one wakes nobody.
const IDLE: Duration = Duration::from_secs(1);
/// And where its end does.
const ENDLESS: Duration = Duration::from_secs(3600);

/// Watches sockets.
#[derive(Debug)]
pub(super) struct LastClose {
    inotify: OwnedFd,
    /// Where the kernel sends no events for sockets.
    epoll: Option<OwnedFd>,
    watched: Mutex<Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    by_inode: BTreeMap<u64, (LeaseId, i32)>,
    by_watch: BTreeMap<i32, u64>,
    /// Memory that tenants have.
    memories: BTreeMap<i32, LeaseId>,
}

/// Leases that have ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Closed {
    /// The leases whose sockets nobody holds any more.
    pub(super) leases: Vec<LeaseId>,
    /// Those of whose memory tenants have no descriptor and mapping any more.
    pub(super) memories: Vec<LeaseId>,
    /// Whether there were more events than the kernel keeps: others may have ended, too.
    pub(super) lost_events: bool,
}

impl LastClose {
    pub(super) fn new() -> Result<Self> {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let mut this = Self {
            inotify: inotify::init(flags).context("inotify")?,
            epoll: None,
            watched: Mutex::default(),
        };
        if !this.sends_events()? {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll")?;
            this.epoll = Some(epoll);
        }
        Ok(this)
    }

    /// Whether the close of a socket is an event: some kernels send none for sockets.
    fn sends_events(&self) -> Result<bool> {
        let socket = UnixDatagram::unbound()?;
        self.watch(LeaseId(0), inode(socket.as_fd())?, socket.as_fd())?;
        drop(socket);
        let closed = self.closed();
        self.watched().forget_all(&self.inotify);
        // The end of the watch is an event as well.
        self.closed();
        Ok(!closed.leases.is_empty())
    }

    /// The descriptor that is readable after a close.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }

    /// Longest time between two calls of [`closed`](Self::closed).
    pub(super) fn patience(&self) -> Duration {
        if self.epoll.is_none() { SAFETY } else { LOOK }
    }

    /// The same while nothing is to be looked for.
    pub(super) fn idle_patience(&self) -> Duration {
        if self.epoll.is_none() { ENDLESS } else { IDLE }
    }

    /// Watches a socket for a lease.
    pub(super) fn watch(&self, id: LeaseId, inode: u64, socket: BorrowedFd<'_>) -> Result<()> {
        let mut watched = self.watched();
        if let Some(epoll) = &self.epoll {
            let data = epoll::EventData::new_u64(id.0);
            epoll::add(epoll, socket, data, epoll::EventFlags::empty())
                .context("adding a socket to epoll")?;
        }
        let path = format!("/proc/self/fd/{}", socket.as_raw_fd());
        let closes = inotify::WatchFlags::CLOSE_WRITE | inotify::WatchFlags::CLOSE_NOWRITE;
        let watch = inotify::add_watch(&self.inotify, path, closes)
            .context("watching a socket by inotify")?;
        watched.by_inode.insert(inode, (id, watch));
        watched.by_watch.insert(watch, inode);
        Ok(())
    }

    /// Watches the file of a lease's memory, which one open file description has but for this process's own,
    /// that was made without a path and sends no events, or is closed later.
    pub(super) fn watch_memory(&self, id: LeaseId, memory: BorrowedFd<'_>) -> Result<()> {
        let mut watched = self.watched();
        let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
        let watch = inotify::add_watch(&self.inotify, path, inotify::WatchFlags::CLOSE_WRITE)
            .context("watching memory by inotify")?;
        watched.memories.insert(watch, id);
        Ok(())
    }

    /// Watches a socket no more.
    pub(super) fn forget(&self, inode: u64) {
        self.watched().forget(&self.inotify, inode);
    }

    /// The sockets that are watched.
    pub(super) fn inodes(&self) -> BTreeSet<u64> {
        self.watched().by_inode.keys().copied().collect()
    }

    /// Leases that have ended since the last call.
    pub(super) fn closed(&self) -> Closed {
        let (closed, lost_events) = self.read_events();
        let mut watched = self.watched();
        let memories = watched.closed_memories(&self.inotify, &closed, lost_events);
        let gone: BTreeSet<u64> = if let Some(Ok(open)) = self.epoll.as_ref().map(open_inodes) {
            let inodes = watched.by_inode.keys().copied();
            inodes.filter(|inode| !open.contains(inode)).collect()
        } else {
            let inode = |watch| watched.by_watch.get(watch).copied();
            closed.iter().filter_map(inode).collect()
        };
        let gone = gone.into_iter();
        let leases = gone.filter_map(|inode| watched.forget(&self.inotify, inode));
        Closed {
            leases: leases.collect(),
            memories,
            lost_events,
        }
    }

    /// The watches that have events, and whether others were lost.
    fn read_events(&self) -> (Vec<i32>, bool) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        let (mut watches, mut lost) = (Vec::new(), false);
        let closes = inotify::ReadFlags::CLOSE_WRITE | inotify::ReadFlags::CLOSE_NOWRITE;
        // The descriptor does not block: the end is an error.
        while let Ok(event) = reader.next() {
            lost |= event.events().contains(inotify::ReadFlags::QUEUE_OVERFLOW);
            if event.events().intersects(closes) {
                watches.push(event.wd());
            }
        }
        (watches, lost)
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The inodes in the table of an epoll instance.
fn open_inodes(epoll: &OwnedFd) -> Result<BTreeSet<u64>> {
    let path = format!("/proc/self/fdinfo/{}", epoll.as_raw_fd());
    let table = std::fs::read_to_string(path)?;
    let inode = |line: &str| {
        let hexadecimal = line.split_once(" ino:")?.1.split(' ').next()?;
        u64::from_str_radix(hexadecimal, 16).ok()
    };
    Ok(table.lines().filter_map(inode).collect())
}

impl Watched {
    fn forget(&mut self, inotify: &OwnedFd, inode: u64) -> Option<LeaseId> {
        let (id, watch) = self.by_inode.remove(&inode)?;
        self.by_watch.remove(&watch);
        // It is of an inode that is going away.
        let _ = inotify::remove_watch(inotify, watch);
        Some(id)
    }

    /// The memories that have events; all of them if there may be others.
    fn closed_memories(&mut self, inotify: &OwnedFd, closed: &[i32], all: bool) -> Vec<LeaseId> {
        let mut ids = Vec::new();
        self.memories.retain(|watch, id| {
            let is_closed = all || closed.contains(watch);
            if is_closed {
                ids.push(*id);
                let _ = inotify::remove_watch(inotify, *watch);
            }
            !is_closed
        });
        ids
    }

    fn forget_all(&mut self, inotify: &OwnedFd) {
        let inodes: Vec<u64> = self.by_inode.keys().copied().collect();
        for inode in inodes {
            self.forget(inotify, inode);
        }
    }
}

/// The inode of an open file.
fn inode(file: BorrowedFd<'_>) -> Result<u64> {
    Ok(rustix::fs::fstat(file)?.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::os::unix::net::UnixStream;

    fn is_ready(closes: &LastClose, millis: i64) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(closes.as_fd(), PollFlags::IN)];
        let time = Timespec {
            tv_sec: millis / 1000,
            tv_nsec: millis % 1000 * 1_000_000,
        };
        poll(&mut fds, Some(&time)).is_ok_and(|ready| ready > 0)
    }

    /// A socket whose last close ends lease 7.
    fn watched() -> (LastClose, UnixDatagram) {
        let closes = LastClose::new().expect("inotify and epoll");
        let socket = UnixDatagram::unbound().expect("a socket");
        let ino = inode(socket.as_fd()).expect("an inode");
        closes
            .watch(LeaseId(7), ino, socket.as_fd())
            .expect("a watch");
        (closes, socket)
    }

    #[test]
    fn the_last_copy_counts() {
        let (closes, socket) = watched();
        let copy = socket.try_clone().expect("a copy");
        drop(socket);
        assert!(!is_ready(&closes, 20));
        assert_eq!(closes.closed().leases, []);
        drop(copy);
        assert_eq!(is_ready(&closes, 1000), closes.epoll.is_none());
        assert_eq!(closes.closed().leases, [LeaseId(7)]);
        assert_eq!(closes.closed().leases, []);
    }

    #[test]
    fn a_copy_in_a_message_counts() {
        let (closes, socket) = watched();
        let (here, there) = UnixStream::pair().expect("a pair");
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
        let fds = [socket.as_fd()];
        assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(&fds)));
        let data = [std::io::IoSlice::new(b"x")];
        rustix::net::sendmsg(&here, &data, &mut control, rustix::net::SendFlags::empty())
            .expect("room");
        drop(socket);
        assert_eq!(closes.closed().leases, [], "it is on its way");
        drop((here, there));
        // The kernel collects messages that nobody received.
        assert!(is_ready(&closes, 2000) || closes.epoll.is_some());
        assert_eq!(closes.closed().leases, [LeaseId(7)]);
    }
}
