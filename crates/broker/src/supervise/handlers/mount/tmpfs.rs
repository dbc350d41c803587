//! tmpfs.

use super::fuse::in_user_namespace;
use super::options::Options;
use super::request::Request;
use crate::seccomp::Target;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::ffi::CString;
use std::os::fd::{AsFd as _, OwnedFd};

/// Parameters for the kernel.
struct Parameters {
    strings: Vec<(&'static str, CString)>,
    is_read_only: bool,
    attributes: MountAttrFlags,
}

/// Builds a tmpfs, attached nowhere. That of a caller in a user namespace belongs to that namespace, so
/// that it opens no device and its set-user-id bits count nowhere else, however it is mounted again; any
/// other one has a mount that forbids both, which only the host's root can change.
pub(super) fn build(target: &Target, request: &Request) -> Result<OwnedFd, Errno> {
    let system = rustix::system::sysinfo();
    let memory = u64::from(system.mem_unit).saturating_mul(system.totalram);
    let options = Options::parse(&request.options, memory)?;
    let users = &request.users;
    let parameters = Parameters::new(&options, request)?;
    let Some(namespace) = users.namespace() else {
        let [_, mount] = parameters.mount()?;
        return Ok(mount);
    };
    let mounts = target.open_proc("ns/mnt", OFlags::RDONLY)?;
    let [_, mount] = in_user_namespace(namespace, || {
        move_into_link_name_space(mounts.as_fd(), Some(LinkNameSpaceType::Mount))?;
        parameters.mount()
    })?;
    Ok(mount)
}

impl Parameters {
    fn new(options: &Options, request: &Request) -> Result<Self, Errno> {
        let users = &request.users;
        let strings = [
            // For /proc/mounts. The kernel takes any string.
            ("source", "tmpfs".to_owned()),
            ("size", options.size.to_string()),
            ("nr_inodes", options.inodes.to_string()),
            ("mode", format!("{:o}", options.mode)),
            // Numbers of the caller's user namespace.
            ("uid", options.uid.unwrap_or(users.uid()).to_string()),
            ("gid", options.gid.unwrap_or(users.gid()).to_string()),
        ];
        let strings = strings.into_iter().map(|(key, value)| {
            let value = CString::new(value).map_err(|_| Errno::INVAL)?;
            Ok((key, value))
        });
        Ok(Self {
            strings: strings.collect::<Result<_, Errno>>()?,
            is_read_only: options.read_only || request.flags.is_read_only(),
            attributes: request
                .flags
                .attributes(request.users.namespace().is_none()),
        })
    }

    /// The filesystem and its mount. Allocates no memory.
    fn mount(&self) -> Result<[OwnedFd; 2], Errno> {
        let filesystem = fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        for (key, value) in &self.strings {
            fsconfig_set_string(&filesystem, *key, value.as_c_str())?;
        }
        if self.is_read_only {
            fsconfig_set_flag(&filesystem, c"ro")?;
        }
        fsconfig_create(&filesystem)?;
        let mount = fsmount(&filesystem, FsMountFlags::FSMOUNT_CLOEXEC, self.attributes)?;
        Ok([filesystem, mount])
    }
}
