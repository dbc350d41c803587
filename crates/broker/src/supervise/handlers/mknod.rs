//! mknod(2), mknodat(2): character devices that do no harm.

use super::super::caller::{Place, is_in_another_namespace};
use super::super::mounts::{Made, Mounts};
use super::super::rule::{Condition, Rule};
use super::super::{Call, Handler};
use crate::policy::CharacterDevice;
use crate::seccomp::{Answer, Notification, Target};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatVfsMountFlags, fstat, fstatvfs,
    makedev, mknodat, openat, openat2, unlinkat,
};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::thread::CapabilitySet;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The handler's name.
pub const NAME: &str = "mknod";

/// The type bits of a mode, and a character device.
const TYPE: u32 = 0o170_000;
const CHARACTER: u32 = 0o020_000;

/// When its calls are notified. aarch64 has no mknod(2).
pub const RULES: &[Rule] = &[
    #[cfg(target_arch = "x86_64")]
    Rule::when(
        libc::SYS_mknod,
        "mknod",
        &[Condition::bits(1, TYPE, CHARACTER)],
    ),
    Rule::when(
        libc::SYS_mknodat,
        "mknodat",
        &[Condition::bits(2, TYPE, CHARACTER)],
    ),
];

/// Makes the nodes of the devices granted, with the caller's user, umask and access to the directory.
///
/// On a filesystem that was mounted in a user namespace the kernel opens no device. There a bind mount
/// of this host's device over an empty file does the same, in a mount namespace that the caller owns; not
/// on a mount with the flag `nodev`, whoever has set it.
#[derive(Debug)]
pub struct Mknod {
    granted: Vec<Device>,
    made: Arc<Made>,
}

/// A device and its file on this host.
#[derive(Debug, Clone, Copy)]
struct Device {
    number: u64,
    path: &'static CStr,
}

impl Mknod {
    /// Grants these devices; `made` are the mounts of the session.
    pub fn new(granted: &[CharacterDevice], made: Arc<Made>) -> Self {
        Self {
            granted: granted.iter().copied().map(device).collect(),
            made,
        }
    }
}

/// `Documentation/admin-guide/devices.txt`.
fn device(device: CharacterDevice) -> Device {
    let (major, minor, path) = match device {
        CharacterDevice::Null => (1, 3, c"/dev/null"),
        CharacterDevice::Zero => (1, 5, c"/dev/zero"),
        CharacterDevice::Full => (1, 7, c"/dev/full"),
        CharacterDevice::Random => (1, 8, c"/dev/random"),
        CharacterDevice::Urandom => (1, 9, c"/dev/urandom"),
        CharacterDevice::Tty => (5, 0, c"/dev/tty"),
    };
    Device {
        number: makedev(major, minor),
        path,
    }
}

impl Handler for Mknod {
    fn name(&self) -> &'static str {
        NAME
    }

    fn calls(&self) -> &'static [i64] {
        &[
            #[cfg(target_arch = "x86_64")]
            libc::SYS_mknod,
            libc::SYS_mknodat,
        ]
    }

    /// The path may lead to a filesystem that the caller itself serves.
    fn is_slow(&self, _: &Notification) -> bool {
        true
    }

    fn handle(&self, call: &Call<'_>) -> Result<Answer, Errno> {
        let is_at = i64::from(call.notification.call) == libc::SYS_mknodat;
        let (directory, first) = if is_at {
            (call.int(0), 1)
        } else {
            (libc::AT_FDCWD, 0)
        };
        // The kernel takes 16 bits of the mode and 32 of the device, in which 12 are the major's.
        let mode = u32::from(call.int(first + 1) as u16);
        let (major, minor) = split(call.int(first + 2) as u32);
        if mode & TYPE != CHARACTER {
            return Ok(Answer::Continue);
        }
        let number = makedev(major, minor);
        let Some(device) = self.granted.iter().find(|device| device.number == number) else {
            call.describe(format!(
                "character device {major}:{minor}, which is not granted"
            ));
            return Ok(Answer::Continue);
        };
        let target = call.target()?;
        let path = target.read_string(call.word(first), libc::PATH_MAX as usize)?;
        call.describe(format!("character device {major}:{minor} at {path:?}"));
        let (parent, name) = split_path(&path)?;
        let node = Node {
            place: Place::of(call, directory)?,
            parent,
            name,
            mode: Mode::from_raw_mode(mode & !TYPE),
            device: *device,
        };
        call.check_alive()?;
        node.make(target, &self.made)?;
        Ok(Answer::Value(0))
    }
}

/// Major and minor number (`new_decode_dev` in `include/linux/kdev_t.h`).
fn split(device: u32) -> (u32, u32) {
    let major = (device & 0xf_ff00) >> 8;
    let minor = (device & 0xff) | ((device >> 12) & 0xf_ff00);
    (major, minor)
}

/// The directory of a path, and its last component.
fn split_path(path: &CStr) -> Result<(CString, CString), Errno> {
    let path = path.to_bytes();
    let start = path
        .iter()
        .rposition(|byte| *byte == b'/')
        .map_or(0, |slash| slash + 1);
    let (parent, name) = path.split_at_checked(start).ok_or(Errno::INVAL)?;
    match name {
        // With a slash at its end it can only be a directory.
        b"" => return Err(Errno::NOENT),
        b"." | b".." => return Err(Errno::EXIST),
        _ => {}
    }
    let parent = if parent.is_empty() { b"." } else { parent };
    let string = |bytes: &[u8]| CString::new(bytes).map_err(|_| Errno::INVAL);
    Ok((string(parent)?, string(name)?))
}

/// A node to make.
struct Node {
    place: Place,
    parent: CString,
    name: CString,
    mode: Mode,
    device: Device,
}

impl Node {
    fn make(&self, target: &Target, made: &Made) -> Result<(), Errno> {
        let (parent, node) = self.place.act(CapabilitySet::MKNOD, || {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let no_links = ResolveFlags::NO_MAGICLINKS;
            let parent = openat2(CWD, &self.parent, flags, Mode::empty(), no_links)?;
            let character = FileType::CharacterDevice;
            mknodat(
                &parent,
                &self.name,
                character,
                self.mode,
                self.device.number,
            )?;
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let node = openat(&parent, &self.name, flags, Mode::empty())?;
            Ok((parent, node))
        })?;
        // A filesystem of the caller's user namespace; all others are as the host has them.
        if !is_in_another_namespace(target, "user")?
            || fstatvfs(&parent)?.f_flag.contains(StatVfsMountFlags::NODEV)
            || self.can_be_opened(&node)?
        {
            return Ok(());
        }
        match Mounts::of(target) {
            Ok(mounts) => self.mount(&mounts, made, parent.as_fd()),
            // The node stays, and cannot be opened.
            Err(Errno::PERM) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Whether the kernel opens a device there. Only the node just made is tried: the caller may have
    /// put another file at its name.
    fn can_be_opened(&self, node: &OwnedFd) -> Result<bool, Errno> {
        if !self.is_device(node.as_fd())? {
            return Ok(true);
        }
        let path = format!("/proc/self/fd/{}", node.as_raw_fd());
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(path, flags, Mode::empty());
        Ok(opened.err() != Some(Errno::ACCESS))
    }

    fn is_device(&self, file: BorrowedFd<'_>) -> Result<bool, Errno> {
        let stat = fstat(file)?;
        let is_character = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
        Ok(is_character && stat.st_rdev == self.device.number)
    }

    /// Replaces the node by an empty file, and mounts this host's device over it.
    fn mount(&self, mounts: &Mounts, made: &Made, parent: BorrowedFd<'_>) -> Result<(), Errno> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = open_tree(CWD, self.device.path, flags)?;
        if !self.is_device(tree.as_fd())? {
            return Err(Errno::NXIO);
        }
        let file = self.place.act(CapabilitySet::empty(), || {
            unlinkat(parent, &self.name, AtFlags::empty())?;
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            openat(parent, &self.name, flags, self.mode)
        })?;
        let mounted = mounts.put(made, &tree, &file);
        if mounted.is_err() {
            let _ = self.place.act(CapabilitySet::empty(), || {
                unlinkat(parent, &self.name, AtFlags::empty())
            });
        }
        mounted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_split_at_its_last_slash() {
        let split = |path: &CStr| {
            split_path(path).map(|(parent, name)| {
                let text = |string: CString| string.into_string().expect("UTF-8");
                (text(parent), text(name))
            })
        };
        let pair = |parent: &str, name: &str| Ok((parent.to_owned(), name.to_owned()));
        assert_eq!(split(c"null"), pair(".", "null"));
        assert_eq!(split(c"/null"), pair("/", "null"));
        assert_eq!(split(c"a/../b//null"), pair("a/../b//", "null"));
        assert_eq!(split(c""), Err(Errno::NOENT));
        assert_eq!(split(c"dev/"), Err(Errno::NOENT));
        assert_eq!(split(c"dev/.."), Err(Errno::EXIST));
    }

    #[test]
    fn devices_are_numbered_as_the_kernel_does() {
        assert_eq!(split(0x103), (1, 3));
        assert_eq!(split(0xfff0_00ff), (0, 0xf_ffff));
        assert_eq!(split(0x0010_0501), (5, 0x101));
    }
}
