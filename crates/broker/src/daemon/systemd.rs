//! The service manager: sockets and descriptors that it passes (`sd_listen_fds(3)`), and
//! notifications to it (`sd_notify(3)`).
//!
//! The crates sd-notify and listenfd open the manager's socket anew for each message, which the
//! broker's confinement forbids later, and leave descriptors without an owner.
#![allow(unsafe_code)] // environment variables are removed; descriptors with known numbers are owned.

use anyhow::{Context as _, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::time::{ClockId, clock_gettime};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// `SD_LISTEN_FDS_START`.
const FIRST: RawFd = 3;
/// Most descriptors that are taken: the unit's `FileDescriptorStoreMax=` and its sockets.
const MOST: RawFd = 8192;
/// Most descriptors of a message (the kernel's `SCM_MAX_FD`).
const MOST_AT_ONCE: usize = 253;
/// How long [`Manager::synchronize`] waits.
const PATIENCE: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};
const VARIABLES: [&str; 6] = [
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
];

/// A descriptor that the manager passed: a socket of a unit, or one of the store.
#[derive(Debug)]
pub struct Passed {
    /// `FileDescriptorName=` of the socket's unit, or its name in the store.
    pub name: String,
    /// The descriptor, closed on exec.
    pub fd: OwnedFd,
}

/// The service manager, where there is one.
#[derive(Debug, Default)]
pub struct Manager {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

/// Takes the manager's descriptors and settings, and clears their variables: the first thing that the daemon
/// does, once, while it has one thread.
///
/// # Errors
///
/// When a variable has not the form that `sd_listen_fds(3)` and `sd_notify(3)` give it.
pub fn take() -> Result<(Manager, Vec<Passed>)> {
    let [pid, count, names, socket, watchdog_pid, watchdog] = VARIABLES.map(|name| {
        let value = std::env::var(name).ok();
        // SAFETY: needed because the daemon's children are not to have them. Sound because there is
        // no other thread that could read the environment.
        unsafe { std::env::remove_var(name) };
        value
    });
    let ours = |pid: &str| pid.parse() == Ok(std::process::id());
    let passed = match (pid, count) {
        (Some(pid), Some(count)) if ours(&pid) => own(&count, names.as_deref())?,
        _ => Vec::new(),
    };
    let watchdog = watchdog.filter(|_| watchdog_pid.as_deref().is_none_or(ours));
    let watchdog = watchdog.map(|it| it.parse().context("WATCHDOG_USEC"));
    let manager = Manager {
        socket: socket.as_deref().map(connect).transpose()?,
        watchdog: watchdog.transpose()?.map(Duration::from_micros),
    };
    Ok((manager, passed))
}

fn own(count: &str, names: Option<&str>) -> Result<Vec<Passed>> {
    let count: RawFd = count.parse().context("LISTEN_FDS")?;
    ensure!(
        (0..=MOST).contains(&count),
        "LISTEN_FDS={count}: not 0 to {MOST}"
    );
    let mut names = names.unwrap_or_default().split(':');
    let passed = (FIRST..FIRST + count).map(|number| {
        // SAFETY: needed because they come as numbers. Sound because the manager opened them for this
        // process, whose first action this is: nobody else owns them. One that is not open fails in
        // fcntl(2) before it is owned.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        fcntl_setfd(fd, FdFlags::CLOEXEC)
            .with_context(|| format!("descriptor {number} of LISTEN_FDS"))?;
        // SAFETY: as above.
        let fd = unsafe { OwnedFd::from_raw_fd(number) };
        let name = names.next().unwrap_or("unknown").to_owned();
        Ok(Passed { name, fd })
    });
    passed.collect()
}

fn connect(path: &str) -> Result<UnixDatagram> {
    let address = match path.as_bytes().first() {
        Some(b'/') => SocketAddr::from_pathname(path)?,
        Some(b'@') => SocketAddr::from_abstract_name(path.get(1..).unwrap_or_default())?,
        _ => bail!("NOTIFY_SOCKET={path}: neither a path nor an abstract name"),
    };
    let socket = UnixDatagram::unbound()?;
    socket
        .connect_addr(&address)
        .with_context(|| format!("cannot reach the service manager at {path}"))?;
    Ok(socket)
}

impl Manager {
    /// Half the time after which it restarts a daemon of which it has not heard
    /// ([`alive`](Self::alive)); none without a watchdog.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog.map(|time| time / 2)
    }

    /// The daemon serves, for the first time or again after a reload.
    ///
    /// # Errors
    ///
    /// As those of sendmsg(2).
    pub fn ready(&self, status: &str) -> Result<()> {
        self.send(&format!("READY=1\nSTATUS={}", line(status)), &[])
    }

    /// It reloads its policy; [`ready`](Self::ready) follows.
    ///
    /// # Errors
    ///
    /// As those of sendmsg(2).
    pub fn reloading(&self) -> Result<()> {
        let now = clock_gettime(ClockId::Monotonic);
        let now = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={now}"), &[])
    }

    /// It ends.
    ///
    /// # Errors
    ///
    /// As those of sendmsg(2).
    pub fn stopping(&self) -> Result<()> {
        self.send("STOPPING=1", &[])
    }

    /// One line for `systemctl status`.
    ///
    /// # Errors
    ///
    /// As those of sendmsg(2).
    pub fn status(&self, status: &str) -> Result<()> {
        self.send(&format!("STATUS={}", line(status)), &[])
    }

    /// It is alive.
    ///
    /// # Errors
    ///
    /// As those of sendmsg(2).
    pub fn alive(&self) -> Result<()> {
        self.send("WATCHDOG=1", &[])
    }

    /// Has descriptors kept under `name`, also when they hang up, to be passed to the next start.
    ///
    /// # Errors
    ///
    /// When `name` is no name: up to 255 printable characters, no colon.
    pub fn store(&self, name: &str, fds: &[BorrowedFd<'_>]) -> Result<()> {
        check_name(name)?;
        for fds in fds.chunks(MOST_AT_ONCE) {
            self.send(&format!("FDSTORE=1\nFDPOLL=0\nFDNAME={name}"), fds)?;
        }
        Ok(())
    }

    /// Has the descriptors of `name` forgotten.
    ///
    /// # Errors
    ///
    /// As those of [`store`](Self::store).
    pub fn forget(&self, name: &str) -> Result<()> {
        check_name(name)?;
        self.send(&format!("FDSTOREREMOVE=1\nFDNAME={name}"), &[])
    }

    /// Waits until all that was sent before is taken notice of: messages of a process that has ended
    /// are dropped.
    ///
    /// # Errors
    ///
    /// When the manager does not answer within 5 seconds.
    pub fn synchronize(&self) -> Result<()> {
        if self.socket.is_none() {
            return Ok(());
        }
        let (ours, its) = pipe_with(PipeFlags::CLOEXEC)?;
        self.send("BARRIER=1", &[its.as_fd()])?;
        drop(its);
        // It closes its copy, which is a hang-up.
        let mut wait = [PollFd::new(&ours, PollFlags::empty())];
        let count = rustix::io::retry_on_intr(|| poll(&mut wait, Some(&PATIENCE)))?;
        ensure!(count > 0, "the service manager did not answer BARRIER=1");
        Ok(())
    }

    fn send(&self, message: &str, fds: &[BorrowedFd<'_>]) -> Result<()> {
        let Some(socket) = &self.socket else {
            return Ok(());
        };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_AT_ONCE))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            ensure!(
                ancillary.push(SendAncillaryMessage::ScmRights(fds)),
                "too many descriptors for a message"
            );
        }
        let bytes = [IoSlice::new(message.as_bytes())];
        rustix::io::retry_on_intr(|| sendmsg(socket, &bytes, &mut ancillary, SendFlags::NOSIGNAL))
            .with_context(|| format!("cannot tell the service manager {message:?}"))?;
        Ok(())
    }
}

fn line(status: &str) -> String {
    status.replace(char::is_control, " ")
}

fn check_name(name: &str) -> Result<()> {
    let valid = |byte: u8| byte.is_ascii_graphic() && byte != b':';
    ensure!(
        (1..=255).contains(&name.len()) && name.bytes().all(valid),
        "{name:?} is no name of a descriptor: 1 to 255 printable ASCII characters, no colon"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    use std::io::IoSliceMut;

    /// A manager's socket, and the [`Manager`] that notifies it.
    fn manager() -> (UnixDatagram, Manager) {
        let (its, ours) = UnixDatagram::pair().unwrap();
        let manager = Manager {
            socket: Some(ours),
            watchdog: None,
        };
        (its, manager)
    }

    fn receive(socket: &UnixDatagram) -> (String, Vec<OwnedFd>) {
        let mut bytes = [0; 1024];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_AT_ONCE))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let into = &mut [IoSliceMut::new(&mut bytes)];
        let message = recvmsg(socket, into, &mut ancillary, RecvFlags::CMSG_CLOEXEC).unwrap();
        let fds = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        let fds = fds.flatten().collect();
        let text = String::from_utf8_lossy(&bytes[..message.bytes]).into_owned();
        (text, fds)
    }

    #[test]
    fn tells_its_state() {
        let (its, manager) = manager();
        manager.ready("3 tenants\nREADY=0").unwrap();
        assert_eq!(receive(&its).0, "READY=1\nSTATUS=3 tenants READY=0");
        manager.reloading().unwrap();
        let text = receive(&its).0;
        let time = text.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        assert!(time.parse::<u64>().unwrap() > 0);
        manager.stopping().unwrap();
        assert_eq!(receive(&its).0, "STOPPING=1");
        manager.alive().unwrap();
        assert_eq!(receive(&its).0, "WATCHDOG=1");
    }

    #[test]
    fn stores_descriptors_in_messages_of_253() {
        let (its, manager) = manager();
        let fds = vec![its.as_fd(); 300];
        manager.store("listener-7", &fds).unwrap();
        let (text, first) = receive(&its);
        assert_eq!(text, "FDSTORE=1\nFDPOLL=0\nFDNAME=listener-7");
        assert_eq!(first.len() + receive(&its).1.len(), 300);
        manager.forget("listener-7").unwrap();
        assert_eq!(receive(&its).0, "FDSTOREREMOVE=1\nFDNAME=listener-7");
        for name in ["", "a:b", "a\nb", "a b", &"x".repeat(256)] {
            assert!(manager.store(name, &fds).is_err(), "{name}");
        }
    }

    #[test]
    fn synchronizes() {
        let (its, manager) = manager();
        let answer = std::thread::spawn(move || receive(&its).0);
        manager.synchronize().unwrap();
        assert_eq!(answer.join().unwrap(), "BARRIER=1");
    }

    #[test]
    fn is_silent_without_a_manager() {
        let manager = Manager::default();
        manager.ready("").unwrap();
        manager.synchronize().unwrap();
        assert_eq!(manager.watchdog(), None);
    }

    #[test]
    fn refuses_counts_and_addresses_that_are_none() {
        for count in ["-1", "8193", "x", "99999999999"] {
            assert!(own(count, None).is_err(), "{count}");
        }
        assert!(own("0", None).unwrap().is_empty());
        for path in ["", "vsock:2:1", "relative", "/nonexistent/notify"] {
            assert!(connect(path).is_err(), "{path}");
        }
    }
}
