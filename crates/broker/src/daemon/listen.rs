//! The sockets that a daemon listens on.

use anyhow::{Context as _, Result, anyhow, bail};
use hostnet::privilege::{FileStep, file_note};
use rustix::fs::{Gid, Mode, chmod, chown};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
    sockopt,
};
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Connections that wait to be accepted. Others wait before, or are refused if they do not block: a longer queue
/// is one that a flood fills, and each who comes waits for all of it.
const BACKLOG: i32 = 128;

/// Who may connect to a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// The user of the daemon.
    Root,
    /// And a group, by its name or id.
    Group(String),
    /// Every user.
    Everyone,
}

/// A listening socket, whose file is removed with it.
#[derive(Debug)]
pub struct Listening {
    socket: OwnedFd,
    /// The file and its inode; none for a socket that the service manager made.
    file: Option<(PathBuf, u64)>,
}

impl Listening {
    /// Makes a listening socket at a path, where no other process listens.
    ///
    /// # Errors
    ///
    /// Where another process listens at the path, or something else is there.
    pub fn new(path: &Path, kind: SocketType, access: &Access) -> Result<Self> {
        let shown = path.display();
        if let Some(parent) = path.parent() {
            let mut directory = fs::DirBuilder::new();
            let made = directory.recursive(true).mode(0o755).create(parent);
            made.map_err(|error| {
                let why = file_note(&error, parent, FileStep::Write);
                anyhow!(error).context(format!("cannot make {}{why}", parent.display()))
            })?;
        }
        remove_stale(path, kind)?;
        let address = SocketAddrUnix::new(path);
        let address = address.with_context(|| format!("{shown} is too long for a Unix socket"))?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            socket_with(AddressFamily::UNIX, kind, flags, None).context("a Unix socket")?;
        bind(&socket, &address).map_err(|errno| {
            let why = file_note(&errno.into(), path, FileStep::Write);
            anyhow!(errno).context(format!("cannot make the socket {shown}{why}"))
        })?;
        let inode = fs::metadata(path)
            .map(|file| file.ino())
            .unwrap_or_default();
        let listening = Self {
            socket,
            file: Some((path.into(), inode)),
        };
        // Nobody is answered before.
        admit(path, access)?;
        listen(&listening.socket, BACKLOG).with_context(|| format!("cannot listen on {shown}"))?;
        Ok(listening)
    }

    /// One that the service manager listens on, which also removes its file.
    ///
    /// # Errors
    ///
    /// For a socket of another type.
    pub fn passed(socket: OwnedFd, kind: SocketType) -> Result<Self> {
        if sockopt::socket_type(&socket) != Ok(kind) {
            bail!("the service manager passed a socket of another type: see weir-broker.socket");
        }
        rustix::io::ioctl_fionbio(&socket, true).context("a socket of the service manager")?;
        Ok(Self { socket, file: None })
    }
}

impl AsFd for Listening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some((path, inode)) = &self.file
            && fs::metadata(path).is_ok_and(|file| file.ino() == *inode)
        {
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes the socket file of a broker that was killed.
fn remove_stale(path: &Path, kind: SocketType) -> Result<()> {
    let shown = path.display();
    match fs::symlink_metadata(path) {
        Err(_) => return Ok(()),
        Ok(file) if !is_socket(&file) => {
            bail!("{shown} exists and is no socket: remove it, or give another path")
        }
        Ok(_) => {}
    }
    let probe = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    match connect(&probe, &SocketAddrUnix::new(path)?) {
        Err(Errno::CONNREFUSED) => {
            fs::remove_file(path).with_context(|| format!("cannot remove the stale socket {shown}"))
        }
        _ => bail!("another process listens on {shown}: end it, or give another path"),
    }
}

fn is_socket(file: &fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    file.file_type().is_socket()
}

fn admit(path: &Path, access: &Access) -> Result<()> {
    let shown = path.display();
    let mode = match access {
        Access::Root => 0o600,
        Access::Group(group) => {
            let gid = group_id(group)?;
            chown(path, None, Some(Gid::from_raw(gid)))
                .with_context(|| format!("cannot give {shown} to the group {group}"))?;
            0o660
        }
        Access::Everyone => 0o666,
    };
    chmod(path, Mode::from_raw_mode(mode))
        .with_context(|| format!("cannot set the mode of {shown}"))
}

fn group_id(group: &str) -> Result<u32> {
    if let Ok(id) = group.parse() {
        return Ok(id);
    }
    let groups = fs::read_to_string("/etc/group").context("cannot read /etc/group")?;
    let id = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == group).then(|| fields.nth(1)?.parse().ok())?
    });
    id.with_context(|| {
        format!(
            "there is no group {group:?}: make it with `groupadd --system {group}`, or give its id"
        )
    })
}
