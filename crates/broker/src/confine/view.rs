//! The broker's view of the file tree: a mount namespace whose root holds the paths that it needs, and
//! nothing else. The tree of the host is not in it.
//!
//! Mounts of the host below these paths appear in it; mounts made in it appear nowhere else.
#![allow(unsafe_code)] // unshare(2), which rustix leaves unchecked.

use super::paths::{Access, Paths};
use super::report::State;
use hostnet::privilege::{self, Capability, Feature};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount,
    mount_change, mount_remount, move_mount, open_tree, unmount,
};
use rustix::process::{chdir, fchdir, pivot_root};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Where the new tree is put together, in the new namespace only: it exists wherever a broker runs.
const STAGE: &str = "/proc";

/// A step that failed, and why.
type StepResult<T> = Result<T, (String, Errno)>;

trait Step<T> {
    fn step(self, what: impl Into<String>) -> StepResult<T>;
}

impl<T> Step<T> for Result<T, Errno> {
    fn step(self, what: impl Into<String>) -> StepResult<T> {
        self.map_err(|errno| (what.into(), errno))
    }
}

/// Gives this thread a root with `paths` only, and those that it starts.
pub(super) fn enter(paths: &Paths) -> State {
    match build(paths) {
        Ok(count) => State::InForce(format!("{count} paths")),
        Err((step, errno)) => {
            let needed = [Capability::SysAdmin];
            let why = privilege::refusal(errno.raw_os_error(), Feature::Base, &needed);
            State::Absent(format!(
                "{step}: {errno}{}",
                match (why, errno) {
                    (Some(why), _) => format!(" ({why})"),
                    (_, Errno::INVAL) =>
                        " (is the root an initramfs? give the broker a root of its own)".to_owned(),
                    (_, Errno::NOSYS) => " (this kernel has no open_tree(2): 5.2)".to_owned(),
                    _ => String::new(),
                }
            ))
        }
    }
}

fn build(paths: &Paths) -> StepResult<usize> {
    let mut wanted: Vec<_> = paths.all().collect();
    // Parents before their children.
    wanted.sort_by_key(|(path, _)| path.components().count());
    // SAFETY: needed because the thread's mounts are to be its own. Sound because no descriptor
    // changes, and memory stays shared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.step("unshare(CLONE_NEWNS)")?;
    mount_change(
        "/",
        MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC,
    )
    .step("making mounts private")?;
    let trees = wanted
        .into_iter()
        .filter(|(path, _)| path.exists())
        .map(|(path, access)| Ok((path, access, clone(path)?)))
        .collect::<StepResult<Vec<_>>>()?;
    let before = open_directory(".").step("opening the working directory")?;
    let locked = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("tmpfs", STAGE, "tmpfs", locked, Some(c"mode=0755,size=1m")).step("mounting a tmpfs")?;
    let entered = put_all(&trees).and_then(|()| turn(locked));
    if entered.is_err() {
        // This process goes on with the tree of the host, and needs the directory below the tmpfs.
        unmount(STAGE, UnmountFlags::DETACH).step("giving up the new root")?;
        fchdir(&before).step("giving up the new root")?;
    }
    entered.map(|()| trees.len())
}

fn open_directory(path: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

/// A detached copy of the mount at `path`.
fn clone(path: &Path) -> StepResult<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    // The needed mounts below these two are named; there may be any others.
    if path != Path::new("/sys") && path != Path::new("/proc") {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    open_tree(CWD, path, flags).step(format!("copying the mount of {}", path.display()))
}

fn put_all(trees: &[(&Path, Access, OwnedFd)]) -> StepResult<()> {
    trees
        .iter()
        .try_for_each(|(path, access, tree)| put(path, *access, tree))
}

fn put(path: &Path, access: Access, tree: &OwnedFd) -> StepResult<()> {
    let name = path.display();
    let at = staged(path);
    mount_point(path, &at).step(format!("making a mount point for {name}"))?;
    move_mount(tree, "", CWD, &at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .step(format!("mounting {name}"))?;
    let flags = match access {
        Access::Read => {
            MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC
        }
        Access::Write => MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC,
        Access::Execute => MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV,
        // A device is to work as one, also where a copy of this mount is put.
        Access::Device => MountFlags::NOSUID | MountFlags::NOEXEC,
    };
    mount_remount(&at, flags | MountFlags::BIND, c"").step(format!("limiting {name}"))
}

fn staged(path: &Path) -> PathBuf {
    Path::new(STAGE).join(path.strip_prefix("/").unwrap_or(path))
}

fn mount_point(path: &Path, at: &Path) -> Result<(), Errno> {
    if at.exists() {
        return Ok(());
    }
    let code =
        |error: std::io::Error| Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO));
    if path.is_dir() {
        return fs::create_dir_all(at).map_err(code);
    }
    fs::create_dir_all(at.parent().unwrap_or(Path::new(STAGE))).map_err(code)?;
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    rustix::fs::open(at, flags, Mode::RUSR).map(drop)
}

/// Makes the staged tree the root, and drops the old one.
fn turn(flags: MountFlags) -> StepResult<()> {
    chdir(STAGE).step("entering the new root")?;
    // The old root is mounted above the new one, and unmounted there (pivot_root(2), NOTES).
    pivot_root(".", ".").step("pivot_root(2)")?;
    unmount(".", UnmountFlags::DETACH).step("unmounting the old root")?;
    chdir("/").step("entering the new root")?;
    mount_remount("/", flags | MountFlags::RDONLY | MountFlags::BIND, c"")
        .step("making the new root read-only")
}
