//! Network namespaces with names: mounted in `/run/netns`, as ip-netns(8) keeps them.
//!
//! ip-netns(8) wants the directory to be a mount point that shares the mounts below it, so that a
//! namespace unmounted here is unmounted everywhere and can go. [`Directory`] makes it so, and
//! removes it after the last name, but only if a `Directory` made it: directories and mounts of
//! others stay. Its own are known by marks that a kill at any moment cannot separate from them:
//! the directory by its sticky bit, the mount by its source in `/proc/self/mounts`.
//!
//! To enter such a namespace, [`open`](super::open) its file.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::ErrorKind as IoErrorKind;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive,
    mount_change, unmount,
};

use crate::error::{Cause as _, Context as _, Error, Result};
use crate::mount::{MOUNTS, Mount};
use crate::privilege::Capability;

/// The directory of ip-netns(8).
pub const DIRECTORY: &str = "/run/netns";

/// The source of a mount made here.
const MOUNT_SOURCE: &str = "hostnet";
const STICKY: u32 = 0o1000;
/// The longest wait for others that have the directory open to read it.
const READERS: Duration = Duration::from_millis(200);

/// The names of all namespaces, sorted. There may be no namespace behind a name: a program that is
/// killed while it adds one leaves an empty file.
pub fn names() -> Result<Vec<String>> {
    let reading = || format!("cannot read {DIRECTORY}");
    let entries = match fs::read_dir(DIRECTORY) {
        Err(error) if error.kind() == IoErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(reading)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.with_context(reading)?.file_name();
        names.extend(name.into_string());
    }
    names.sort();
    Ok(names)
}

/// The directory, prepared for ip-netns(8) and locked with the lock that ip-netns(8) takes too
/// (`create_netns_dir` and `netns_add` in iproute2, ip/ipnetns.c), while names come and go.
///
/// ```no_run
/// use std::os::fd::AsFd as _;
///
/// use hostnet::netns;
/// use hostnet::netns::named::Directory;
///
/// let namespace = netns::create()?;
/// let directory = Directory::create()?;
/// directory.add("guest", namespace.as_fd())?;
/// directory.release()?;
/// // `ip netns exec guest …` works from here on.
///
/// if let Some(directory) = Directory::lock()? {
///     directory.remove("guest")?;
///     directory.release()?;
/// }
/// # Ok::<(), hostnet::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "release it, or an empty directory stays"]
pub struct Directory(File);

impl Directory {
    /// Makes the directory if there is none, prepares it and locks it. Needs `CAP_SYS_ADMIN`.
    pub fn create() -> Result<Self> {
        loop {
            make_directory()?;
            // It may have been removed since.
            let Some(locked) = Self::lock()? else {
                continue;
            };
            if share()? {
                return Ok(locked);
            }
            // The lock of the new mount is another one.
            mount_directory()?;
        }
    }

    /// Locks the directory, after waiting for others; `None` if there is no directory.
    pub fn lock() -> Result<Option<Self>> {
        loop {
            let directory = match File::open(DIRECTORY) {
                Err(error) if error.kind() == IoErrorKind::NotFound => return Ok(None),
                directory => directory.with_context(|| format!("cannot open {DIRECTORY}"))?,
            };
            rustix::fs::flock(&directory, FlockOperation::LockExclusive)
                .with_context(|| format!("cannot lock {DIRECTORY}"))?;
            // While this waited, the directory may have been removed, or mounted on.
            if is_current(&directory)? {
                return Ok(Some(Self(directory)));
            }
        }
    }

    /// Gives a namespace a name, which keeps it alive. Needs `CAP_SYS_ADMIN`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::AlreadyExists`] if there is such a name, [`ErrorKind::InvalidInput`] for
    /// one that is no file name.
    ///
    /// [`ErrorKind::AlreadyExists`]: crate::ErrorKind::AlreadyExists
    /// [`ErrorKind::InvalidInput`]: crate::ErrorKind::InvalidInput
    pub fn add(&self, name: &str, namespace: BorrowedFd<'_>) -> Result<()> {
        let path = path(name)?;
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o444);
        options
            .open(&path)
            .with_context(|| format!("cannot make {}", path.display()))?;
        let source = format!("/proc/self/fd/{}", namespace.as_raw_fd());
        let mounted = mount_bind(source.as_str(), &path);
        if mounted.is_err() {
            // Made above, and nothing is mounted on it.
            let _ = fs::remove_file(&path);
        }
        mounted
            .with_context(|| format!("cannot mount a network namespace at {}", path.display()))
            .needs(Capability::SysAdmin)
    }

    /// Removes a name, also one without a namespace behind it, and one that others are removing at
    /// this moment. The namespace goes with its last user. Needs `CAP_SYS_ADMIN`.
    pub fn remove(&self, name: &str) -> Result<()> {
        let path = path(name)?;
        match unmount(&path, UnmountFlags::DETACH) {
            // INVAL: there was an empty file. NOENT: it was removed without the lock.
            Err(Errno::INVAL | Errno::NOENT) => {}
            unmounted => unmounted
                .with_context(|| format!("cannot unmount {}", path.display()))
                .needs(Capability::SysAdmin)?,
        }
        match fs::remove_file(&path) {
            Err(error) if error.kind() == IoErrorKind::NotFound => Ok(()),
            removed => removed.with_context(|| format!("cannot remove {}", path.display())),
        }
    }

    /// Unlocks the directory. If it has no name left, removes the mount and the directory that
    /// [`create`](Self::create) made.
    pub fn release(self) -> Result<()> {
        let is_unused = is_empty()?;
        // An open directory cannot be unmounted. From now on others may put names into it, which
        // keep it, as does an open descriptor of one who waits for the lock.
        drop(self.0);
        if !is_unused {
            return Ok(());
        }
        if is_own_mount()? {
            unmount_unused()?;
        }
        remove_directory()
    }
}

fn path(name: &str) -> Result<PathBuf> {
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(Error::invalid(format!(
            "{name:?} is no name of a network namespace: write one without '/'"
        )));
    }
    Ok(Path::new(DIRECTORY).join(name))
}

fn is_current(directory: &File) -> Result<bool> {
    let context = || format!("cannot stat {DIRECTORY}");
    let opened = directory.metadata().with_context(context)?;
    match fs::metadata(DIRECTORY) {
        Err(error) if error.kind() == IoErrorKind::NotFound => Ok(false),
        now => {
            let now = now.with_context(context)?;
            Ok((now.dev(), now.ino()) == (opened.dev(), opened.ino()))
        }
    }
}

fn make_directory() -> Result<()> {
    match DirBuilder::new().mode(0o755 | STICKY).create(DIRECTORY) {
        Err(error) if error.kind() == IoErrorKind::AlreadyExists => Ok(()),
        made => made
            .map_err(|error| error.into_error().of_file(Path::new(DIRECTORY)))
            .with_context(|| format!("cannot make {DIRECTORY}")),
    }
}

/// Shares the mounts below; `false` where nothing is mounted on the directory itself.
fn share() -> Result<bool> {
    let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    match mount_change(DIRECTORY, shared) {
        Err(Errno::INVAL) => Ok(false),
        changed => {
            changed
                .with_context(|| format!("cannot share {DIRECTORY}"))
                .needs(Capability::SysAdmin)?;
            Ok(true)
        }
    }
}

/// Others' names must stay visible: then the directory is mounted on itself, as ip-netns(8) does,
/// and is theirs to unmount.
fn mount_directory() -> Result<()> {
    let mounted = if is_empty()? {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount(MOUNT_SOURCE, DIRECTORY, "tmpfs", flags, c"mode=0755")
    } else {
        mount_bind_recursive(DIRECTORY, DIRECTORY)
    };
    mounted
        .with_context(|| format!("cannot mount {DIRECTORY}"))
        .needs(Capability::SysAdmin)
}

fn is_empty() -> Result<bool> {
    match fs::read_dir(DIRECTORY) {
        Err(error) if error.kind() == IoErrorKind::NotFound => Ok(true),
        entries => {
            let mut entries = entries.with_context(|| format!("cannot read {DIRECTORY}"))?;
            Ok(entries.next().is_none())
        }
    }
}

fn is_own_mount() -> Result<bool> {
    let mounts = fs::read_to_string(MOUNTS).with_context(|| format!("cannot read {MOUNTS}"))?;
    Ok(Mount::topmost(&mounts, DIRECTORY)
        .is_some_and(|mount| mount.filesystem == "tmpfs" && mount.source == MOUNT_SOURCE))
}

/// Unmounts the directory unless it is in use: by a program that adds a name at this moment, and
/// removes the directory with that name, or has it open for longer than a read takes.
fn unmount_unused() -> Result<()> {
    let deadline = Instant::now() + READERS;
    loop {
        match unmount(DIRECTORY, UnmountFlags::NOFOLLOW) {
            Err(Errno::BUSY) if Instant::now() < deadline && is_empty()? => {
                thread::sleep(Duration::from_millis(5));
            }
            // NOENT, INVAL: another program has done it since.
            Ok(()) | Err(Errno::BUSY | Errno::NOENT | Errno::INVAL) => return Ok(()),
            Err(errno) => {
                return Err(errno)
                    .with_context(|| format!("cannot unmount {DIRECTORY}"))
                    .needs(Capability::SysAdmin);
            }
        }
    }
}

/// Removes the directory if it was made here, unless others have mounted on it since, or put a
/// file into it.
fn remove_directory() -> Result<()> {
    let is_own = fs::metadata(DIRECTORY).is_ok_and(|directory| directory.mode() & STICKY != 0);
    if !is_own {
        return Ok(());
    }
    match fs::remove_dir(DIRECTORY) {
        Err(error)
            if matches!(
                error.kind(),
                IoErrorKind::NotFound | IoErrorKind::ResourceBusy | IoErrorKind::DirectoryNotEmpty
            ) =>
        {
            Ok(())
        }
        removed => removed.with_context(|| format!("cannot remove {DIRECTORY}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_in_the_directory() {
        assert_eq!(
            path("guest").expect("a path"),
            Path::new("/run/netns/guest")
        );
        for bad in ["", ".", "..", "../x", "a/b", "a\0b"] {
            let error = path(bad).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::InvalidInput, "{bad}");
        }
    }
}
