//! setxattr(2), lsetxattr(2), fsetxattr(2): the attribute that makes a directory of an overlay opaque.

use super::super::caller::Place;
use super::super::rule::Rule;
use super::super::{Call, Handler};
use crate::seccomp::{Answer, Notification};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, XattrFlags, fstat, openat2};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use std::os::fd::{AsRawFd as _, OwnedFd};

/// The handler's name.
pub const NAME: &str = "setxattr";

/// When its calls are notified.
pub const RULES: &[Rule] = &[
    Rule::always(libc::SYS_setxattr, "setxattr"),
    Rule::always(libc::SYS_lsetxattr, "lsetxattr"),
    Rule::always(libc::SYS_fsetxattr, "fsetxattr"),
];

/// Most bytes of an attribute's name, with its final zero (`XATTR_NAME_MAX`).
const MOST_NAME: usize = 256;

const OPAQUE: &str = "trusted.overlay.opaque";

/// Sets `trusted.overlay.opaque` to `y` on directories of the caller's own. Other attributes are left
/// to the kernel, which lets nobody without `CAP_SYS_ADMIN` set one in `trusted`.
#[derive(Debug)]
pub struct Setxattr;

impl Handler for Setxattr {
    fn name(&self) -> &'static str {
        NAME
    }

    fn calls(&self) -> &'static [i64] {
        &[libc::SYS_setxattr, libc::SYS_lsetxattr, libc::SYS_fsetxattr]
    }

    /// The path may lead to a filesystem that the caller itself serves.
    fn is_slow(&self, _: &Notification) -> bool {
        true
    }

    fn handle(&self, call: &Call<'_>) -> Result<Answer, Errno> {
        let target = call.target()?;
        // An unreadable name has the kernel's error.
        let name = target.read_string(call.word(1), MOST_NAME);
        if !name.is_ok_and(|name| name.as_bytes() == OPAQUE.as_bytes()) {
            return Ok(Answer::Continue);
        }
        if call.word(3) != 1 || target.read_bytes(call.word(2), 1)? != b"y" {
            return Err(Errno::PERM);
        }
        let flags = XattrFlags::from_bits(call.int(4) as u32).ok_or(Errno::INVAL)?;
        let (directory, uid) = open(call)?;
        let stat = fstat(&directory)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory || stat.st_uid != uid {
            return Err(Errno::PERM);
        }
        call.check_alive()?;
        let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
        rustix::fs::setxattr(path, OPAQUE, b"y", flags)?;
        Ok(Answer::Value(0))
    }
}

/// The file of a call, and the user id that the caller accesses files with.
fn open(call: &Call<'_>) -> Result<(OwnedFd, u32), Errno> {
    let target = call.target()?;
    let place = Place::of(call, libc::AT_FDCWD)?;
    let number = i64::from(call.notification.call);
    if number == libc::SYS_fsetxattr {
        call.describe(format!("{OPAQUE} of descriptor {}", call.int(0)));
        let file = target.descriptor(call.int(0))?;
        if rustix::fs::fcntl_getfl(&file)?.contains(OFlags::PATH) {
            return Err(Errno::BADF);
        }
        return Ok((file, place.uid));
    }
    let path = target.read_string(call.word(0), libc::PATH_MAX as usize)?;
    call.describe(format!("{OPAQUE} of {path:?}"));
    let mut flags = OFlags::PATH | OFlags::CLOEXEC;
    if number == libc::SYS_lsetxattr {
        flags |= OFlags::NOFOLLOW;
    }
    let open = || {
        openat2(
            CWD,
            &path,
            flags,
            Mode::empty(),
            ResolveFlags::NO_MAGICLINKS,
        )
    };
    let file = place.act(CapabilitySet::empty(), open)?;
    Ok((file, place.uid))
}
