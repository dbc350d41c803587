//! A caller's directory below /proc, and threads that act in its place.

use super::Call;
use super::sys;
use crate::seccomp::Target;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{chroot, fchdir, umask};
use rustix::thread::{
    CapabilitySet, CapabilitySets, Gid, Uid, capabilities, set_capabilities, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::{Builder, scope};

/// Most bytes of a file below /proc/TID.
const MOST_PROC: u64 = 64 << 10;

/// Reads a file of the caller's directory below /proc.
///
/// # Errors
///
/// `ESRCH` when it is gone.
pub fn read_proc(target: &Target, file: &str) -> Result<String, Errno> {
    let fd = target.open_proc(file, OFlags::RDONLY)?;
    read_all(fd)
}

/// Reads a small file of text.
pub fn read_all(fd: OwnedFd) -> Result<String, Errno> {
    let mut text = String::new();
    let result = File::from(fd).take(MOST_PROC).read_to_string(&mut text);
    result.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(text)
}

/// Soft and hard limit of a line of /proc/TID/limits, such as `Max open files`; none for `unlimited`.
pub fn limit(limits: &str, name: &str) -> Option<[Option<u64>; 2]> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    let mut numbers = line.split_whitespace().map(|word| word.parse().ok());
    Some([numbers.next()?, numbers.next()?])
}

/// Sets soft and hard limit of a caller's process: with `CAP_SYS_RESOURCE` any, else as its own user could.
///
/// # Errors
///
/// `EPERM` without the capability, if the hard limit is lower, or if the caller's user or group ids differ as those
/// of a set-user-id program.
pub fn set_limit(target: &Target, resource: i32, limits: [u64; 2]) -> Result<(), Errno> {
    let set = || sys::set_limit(target.tid(), resource, limits);
    match set() {
        Err(Errno::PERM) => {}
        result => return result,
    }
    let status = Status::of(target)?;
    let same = |field: &str| {
        let first = status.number(field, 0)?;
        for at in [1, 2] {
            if status.number(field, at)? != first {
                return Err(Errno::PERM);
            }
        }
        Ok(first)
    };
    sys::in_child(same("Uid")?, same("Gid")?, set)
}

/// `/proc/TID/status`.
#[derive(Debug)]
pub struct Status(String);

impl Status {
    /// Reads it.
    ///
    /// # Errors
    ///
    /// As those of [`read_proc`].
    pub fn of(target: &Target) -> Result<Self, Errno> {
        read_proc(target, "status").map(Self)
    }

    /// That of another thread of this process's pid namespace.
    ///
    /// # Errors
    ///
    /// `ESRCH` when there is none.
    pub fn of_thread(thread: u32) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(format!("/proc/{thread}/status"), flags, Mode::empty());
        let fd = fd.map_err(|errno| {
            if errno == Errno::NOENT {
                Errno::SRCH
            } else {
                errno
            }
        })?;
        read_all(fd).map(Self)
    }

    fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.0.lines().filter_map(|line| line.split_once(':'));
        lines
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value.trim())
    }

    /// A number of a field with several.
    ///
    /// # Errors
    ///
    /// `EIO` when the kernel shows none.
    pub fn number(&self, name: &str, at: usize) -> Result<u32, Errno> {
        let value = self
            .field(name)
            .and_then(|field| field.split_whitespace().nth(at));
        value.and_then(|value| value.parse().ok()).ok_or(Errno::IO)
    }

    fn groups(&self) -> Vec<Gid> {
        let groups = self.field("Groups").unwrap_or_default().split_whitespace();
        groups
            .filter_map(|group| group.parse().ok())
            .map(Gid::from_raw)
            .collect()
    }

    fn umask(&self) -> Option<Mode> {
        let octal = self.field("Umask")?;
        u32::from_str_radix(octal, 8).ok().map(Mode::from_raw_mode)
    }
}

/// Place of the user id and group id that files are accessed with, in the fields `Uid` and `Gid`.
const FILESYSTEM_ID: usize = 3;

/// Where a caller's path begins, and the rights with which it is followed.
#[derive(Debug)]
pub struct Place {
    root: OwnedFd,
    directory: OwnedFd,
    /// User id for files, in this process's user namespace.
    pub uid: u32,
    gid: u32,
    groups: Vec<Gid>,
    umask: Mode,
}

impl Place {
    /// The place of a call whose argument names a descriptor as the beginning of relative paths, or
    /// `AT_FDCWD`.
    ///
    /// # Errors
    ///
    /// `EBADF` when it is no descriptor; `ESRCH` when the caller is gone.
    pub fn of(call: &Call<'_>, directory: i32) -> Result<Self, Errno> {
        let target = call.target()?;
        let status = Status::of(target)?;
        let directory = if directory == libc::AT_FDCWD {
            target.open_proc("cwd", OFlags::PATH)?
        } else {
            target.descriptor(directory)?
        };
        Ok(Self {
            root: target.open_proc("root", OFlags::PATH)?,
            directory,
            uid: status.number("Uid", FILESYSTEM_ID)?,
            gid: status.number("Gid", FILESYSTEM_ID)?,
            groups: status.groups(),
            umask: status.umask().ok_or(Errno::IO)?,
        })
    }

    /// Group id for files.
    pub fn group(&self) -> Gid {
        Gid::from_raw(self.gid)
    }

    /// User id for files.
    pub fn user(&self) -> Uid {
        Uid::from_raw(self.uid)
    }

    /// Further groups.
    pub fn groups(&self) -> &[Gid] {
        &self.groups
    }

    /// Runs `act` in a thread of its own whose root, working directory, umask, user and groups are the
    /// caller's, and which has these capabilities only: the kernel follows paths and checks access as
    /// it would for the caller.
    ///
    /// # Errors
    ///
    /// Those of `act`; `EAGAIN` without a thread; `ENOTDIR` when the place is no directory.
    pub fn act<T: Send>(
        &self,
        capabilities: CapabilitySet,
        act: impl FnOnce() -> Result<T, Errno> + Send,
    ) -> Result<T, Errno> {
        on_a_thread(|| {
            sys::unshare_filesystem()?;
            fchdir(&self.root)?;
            chroot(".")?;
            fchdir(&self.directory)?;
            umask(self.umask);
            set_thread_groups(&self.groups)?;
            set_thread_res_gid(None, Gid::from_raw(self.gid), None)?;
            // The real and the saved user stay: the caller can neither signal nor trace this thread.
            set_thread_res_uid(None, Uid::from_raw(self.uid), None)?;
            keep(capabilities)?;
            act()
        })
    }
}

/// Runs `act` on a thread, whose changes to itself end with it.
///
/// # Errors
///
/// Those of `act`; `EAGAIN` without a thread.
pub fn on_a_thread<T: Send>(act: impl FnOnce() -> Result<T, Errno> + Send) -> Result<T, Errno> {
    scope(|scope| {
        let thread = Builder::new()
            .name("for a caller".to_owned())
            .stack_size(128 << 10);
        let thread = thread.spawn_scoped(scope, act).map_err(|_| Errno::AGAIN)?;
        thread.join().unwrap_or(Err(Errno::IO))
    })
}

/// Gives up all capabilities but these.
fn keep(wanted: CapabilitySet) -> Result<(), Errno> {
    let wanted = wanted & capabilities(None)?.permitted;
    let sets = CapabilitySets {
        effective: wanted,
        permitted: wanted,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets)
}

/// Whether the caller's namespace, such as `user`, is another than this process's: no right by itself, see
/// [`mounts`](super::mounts).
///
/// # Errors
///
/// `ESRCH` when the caller is gone.
pub fn is_in_another_namespace(target: &Target, name: &str) -> Result<bool, Errno> {
    let theirs = id_of_namespace(&target.open_proc(&format!("ns/{name}"), OFlags::PATH)?)?;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let path = format!("/proc/self/ns/{name}");
    let ours = id_of_namespace(&rustix::fs::open(path, flags, Mode::empty())?)?;
    Ok(theirs != ours)
}

/// Device and inode, which name a namespace while it is open.
///
/// # Errors
///
/// Those of fstat(2).
pub fn id_of_namespace(namespace: &OwnedFd) -> Result<(u64, u64), Errno> {
    let status = rustix::fs::fstat(namespace)?;
    Ok((status.st_dev, status.st_ino))
}

/// The id in this process's pid namespace of a thread by its id in the caller's.
///
/// # Errors
///
/// `ESRCH` when there is none, or the kernel cannot tell (before Linux 6.11) and the namespaces differ.
pub fn translate_pid(target: &Target, id: i32) -> Result<u32, Errno> {
    let namespace = target.open_proc("ns/pid", OFlags::RDONLY)?;
    match sys::translate_pid(namespace.as_fd(), id) {
        Err(Errno::NOTTY | Errno::INVAL) if !is_in_another_namespace(target, "pid")? => {
            u32::try_from(id).map_err(|_| Errno::SRCH)
        }
        Err(Errno::NOTTY | Errno::INVAL) => Err(Errno::SRCH),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_by_their_names() {
        let text = std::fs::read_to_string("/proc/self/limits").expect("it is there");
        let own = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        assert_eq!(
            limit(&text, "Max open files"),
            Some([own.current, own.maximum])
        );
        let text =
            "Max file locks            unlimited            18446744073709551614 locks     \n";
        assert_eq!(
            limit(text, "Max file locks"),
            Some([None, Some(u64::MAX - 1)])
        );
        assert_eq!(limit(text, "Max open files"), None);
    }
}
