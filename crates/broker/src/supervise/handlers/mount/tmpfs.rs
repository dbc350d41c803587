//! tmpfs.

use super::options::Options;
use super::request::Request;
use super::sys;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount,
    fsopen,
};
use std::os::fd::{AsFd as _, OwnedFd};

/// Builds a tmpfs whose users are those of the caller's user namespace, attached nowhere.
pub(super) fn build(request: &Request) -> Result<OwnedFd, Errno> {
    let system = rustix::system::sysinfo();
    let memory = u64::from(system.mem_unit).saturating_mul(system.totalram);
    let options = Options::parse(&request.options, memory)?;
    let users = &request.users;
    let filesystem = fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let set = |key: &str, value: &str| fsconfig_set_string(&filesystem, key, value);
    // For /proc/mounts. The kernel takes any string.
    set("source", "tmpfs")?;
    set("size", &options.size.to_string())?;
    set("nr_inodes", &options.inodes.to_string())?;
    set("mode", &format!("{:o}", options.mode))?;
    // Numbers of the caller's user namespace: the mount maps them.
    set("uid", &options.uid.unwrap_or(users.uid()).to_string())?;
    set("gid", &options.gid.unwrap_or(users.gid()).to_string())?;
    if options.read_only || request.flags.is_read_only() {
        fsconfig_set_flag(&filesystem, "ro")?;
    }
    fsconfig_create(&filesystem)?;
    let attributes = request.flags.attributes();
    let mount = fsmount(&filesystem, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    if let Some(namespace) = users.namespace() {
        sys::map_users(mount.as_fd(), namespace)?;
    }
    Ok(mount)
}
