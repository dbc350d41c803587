//! `/run/netns`, where ip-netns(8) looks for namespaces: made when the first lab gets its names,
//! and gone with the last name.
//!
//! ip-netns(8) wants it to be a mount point that shares the mounts below it, so that a
//! namespace unmounted here is unmounted everywhere and can go. Directories and mounts of others stay.
//! Our own are known by marks that a kill at any moment cannot separate from it: the
//! directory by its sticky bit, the mount by its name in /proc/self/mounts.

use std::fs::{DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context as _, Result};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change,
    unmount,
};

use hostnet::mounts::{MOUNTS, top_mount};

/// Where ip-netns(8) looks for namespaces.
pub const NETNS_DIR: &str = "/run/netns";
/// The device that a mount made here has in /proc/self/mounts.
const MOUNT_NAME: &str = "weir";
const STICKY: u32 = 0o1000;
/// How long to wait for whoever has the directory open at this moment, to read it.
const READERS: Duration = Duration::from_millis(200);

/// The directory under the lock that ip-netns(8) takes too, while it is prepared and while names
/// come and go.
#[derive(Debug)]
#[must_use = "release it, or an empty directory stays"]
pub struct Locked(File);

/// Makes the directory as ip-netns(8) wants it, and locks it.
pub fn make() -> Result<Locked> {
    loop {
        make_directory()?;
        // It may have gone since.
        let Some(locked) = lock()? else { continue };
        if share()? {
            return Ok(locked);
        }
        // The lock of the new mount is another one.
        mount_directory()?;
    }
}

/// Locks the directory, if there is one.
pub fn lock() -> Result<Option<Locked>> {
    loop {
        let directory = match File::open(NETNS_DIR) {
            Ok(directory) => directory,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot open {NETNS_DIR}")),
        };
        rustix::fs::flock(&directory, FlockOperation::LockExclusive)
            .with_context(|| format!("cannot lock {NETNS_DIR}"))?;
        // While this waited, the directory may have been removed, or mounted on.
        if is_current(&directory)? {
            return Ok(Some(Locked(directory)));
        }
    }
}

fn is_current(directory: &File) -> Result<bool> {
    let context = || format!("cannot stat {NETNS_DIR}");
    let opened = directory.metadata().with_context(context)?;
    match fs::metadata(NETNS_DIR) {
        Ok(now) => Ok((now.dev(), now.ino()) == (opened.dev(), opened.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(context),
    }
}

fn make_directory() -> Result<()> {
    match DirBuilder::new().mode(0o755 | STICKY).create(NETNS_DIR) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("cannot make {NETNS_DIR}"))
        }
        _ => Ok(()),
    }
}

/// Shares the mounts below; `false` where nothing is mounted on the directory itself.
fn share() -> Result<bool> {
    let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    match mount_change(NETNS_DIR, shared) {
        Err(Errno::INVAL) => Ok(false),
        other => other
            .map(|()| true)
            .with_context(|| format!("cannot share {NETNS_DIR}")),
    }
}

/// Somebody else's names must stay visible: then it is mounted on itself, as ip-netns(8) does, and
/// is theirs to unmount.
fn mount_directory() -> Result<()> {
    let mounted = if is_empty()? {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount(MOUNT_NAME, NETNS_DIR, "tmpfs", flags, c"mode=0755")
    } else {
        mount_bind_recursive(NETNS_DIR, NETNS_DIR)
    };
    mounted.with_context(|| format!("cannot mount {NETNS_DIR}: this needs CAP_SYS_ADMIN"))
}

fn is_empty() -> Result<bool> {
    match fs::read_dir(NETNS_DIR) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error).with_context(|| format!("cannot read {NETNS_DIR}")),
    }
}

impl Locked {
    /// Unlocks the directory. If there is no name left in it, removes our own mount and directory.
    pub fn release(self) -> Result<()> {
        let is_unused = is_empty()?;
        // An open directory cannot be unmounted. From now on others may put names into it, which
        // keep it, as does whoever has opened it to take the lock.
        drop(self.0);
        if !is_unused {
            return Ok(());
        }
        if is_mounted_here()? {
            unmount_unused()?;
        }
        remove_directory()
    }
}

fn is_mounted_here() -> Result<bool> {
    let mounts = fs::read_to_string(MOUNTS).with_context(|| format!("cannot read {MOUNTS}"))?;
    Ok(top_mount(&mounts, NETNS_DIR)
        .is_some_and(|(kind, line)| kind == "tmpfs" && line.split(' ').next() == Some(MOUNT_NAME)))
}

/// Unmounts the directory unless it is in use: by whoever makes a lab at this moment, and removes
/// it with that, or has it open for longer than it takes to read.
fn unmount_unused() -> Result<()> {
    let deadline = Instant::now() + READERS;
    loop {
        match unmount(NETNS_DIR, UnmountFlags::NOFOLLOW) {
            Err(Errno::BUSY) if Instant::now() < deadline && is_empty()? => {
                thread::sleep(Duration::from_millis(5));
            }
            // NOENT, INVAL: somebody else has done it since.
            Ok(()) | Err(Errno::BUSY | Errno::NOENT | Errno::INVAL) => return Ok(()),
            Err(errno) => {
                return Err(errno).with_context(|| format!("cannot unmount {NETNS_DIR}"));
            }
        }
    }
}

/// Removes the directory if it was made here. Whoever has mounted on it since, or put something
/// into it, keeps it.
fn remove_directory() -> Result<()> {
    let is_made_here = fs::metadata(NETNS_DIR).is_ok_and(|it| it.mode() & STICKY != 0);
    if !is_made_here {
        return Ok(());
    }
    match fs::remove_dir(NETNS_DIR) {
        Err(error)
            if !matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::ResourceBusy | ErrorKind::DirectoryNotEmpty
            ) =>
        {
            Err(error).with_context(|| format!("cannot remove {NETNS_DIR}"))
        }
        _ => Ok(()),
    }
}
