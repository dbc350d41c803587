//! /dev/fuse, and a mount that is served there.

use super::super::request::Request;
use super::sys::in_user_namespace;
use crate::seccomp::Target;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};
use rustix::path::DecInt;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::os::fd::{AsFd as _, OwnedFd};

/// A mount attached nowhere, and the descriptor that it is served on.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) fuse: OwnedFd,
    pub(super) mount: OwnedFd,
}

/// Parameters of a mount, for the kernel.
#[derive(Debug)]
struct Parameters {
    uid: DecInt,
    gid: DecInt,
    is_read_only: bool,
    /// Whether all users of the namespace see it; else the caller's only.
    is_for_all: bool,
    attributes: MountAttrFlags,
}

impl Device {
    /// Makes it in the caller's user namespace: the users that the program reports are numbered there,
    /// and none of them is one of the host's.
    pub(super) fn make(
        target: &Target,
        request: &Request,
        is_read_only: bool,
    ) -> Result<Self, Errno> {
        let users = &request.users;
        let parameters = Parameters {
            uid: DecInt::new(users.uid()),
            gid: DecInt::new(users.gid()),
            is_read_only,
            is_for_all: users.namespace().is_some(),
            attributes: request.flags.attributes(true),
        };
        let Some(namespace) = users.namespace() else {
            let fuse = open()?;
            let mount = parameters.mount(&fuse)?;
            return Ok(Self { fuse, mount });
        };
        let mounts = target.open_proc("ns/mnt", OFlags::RDONLY)?;
        let [fuse, mount] = in_user_namespace(namespace, || {
            // The host's, before the caller's are in sight.
            let fuse = open()?;
            let kind = Some(LinkNameSpaceType::Mount);
            move_into_link_name_space(mounts.as_fd(), kind)?;
            let mount = parameters.mount(&fuse)?;
            Ok([fuse, mount])
        })?;
        Ok(Self { fuse, mount })
    }
}

/// Its user namespace must be the mount's: that of the thread that opens it.
fn open() -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::open(c"/dev/fuse", flags, Mode::empty())
}

impl Parameters {
    /// Allocates no memory.
    fn mount(&self, fuse: &OwnedFd) -> Result<OwnedFd, Errno> {
        let filesystem = fsopen(c"fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
        let number = DecInt::from_fd(fuse);
        let set = |key, value| fsconfig_set_string(&filesystem, key, value);
        set(c"source", c"fuse")?;
        set(c"fd", number.as_c_str())?;
        set(c"rootmode", c"40000")?;
        set(c"user_id", self.uid.as_c_str())?;
        set(c"group_id", self.gid.as_c_str())?;
        // The kernel compares users and modes, as for any filesystem.
        fsconfig_set_flag(&filesystem, c"default_permissions")?;
        if self.is_for_all {
            fsconfig_set_flag(&filesystem, c"allow_other")?;
        }
        if self.is_read_only {
            fsconfig_set_flag(&filesystem, c"ro")?;
        }
        fsconfig_create(&filesystem)?;
        fsmount(&filesystem, FsMountFlags::FSMOUNT_CLOEXEC, self.attributes)
    }
}
