//! The program that serves a mount, confined.

use super::super::super::super::caller::Place;
use super::sys::let_inherit;
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The newest rules that are known; of these, the kernel's are used.
const NEWEST: ABI = ABI::V6;

/// Where a program finds its libraries.
const LIBRARIES: [&str; 5] = ["/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache"];

/// A program that serves a mount. Dropped, it is killed; it ends by itself when the mount does.
#[derive(Debug)]
pub(in super::super) struct Program(Child);

impl Program {
    /// Starts it as the caller's user.
    pub(super) fn start(
        path: &Path,
        image: &OwnedFd,
        fuse: &OwnedFd,
        place: &Place,
        is_read_only: bool,
    ) -> Result<Self, Errno> {
        let mut command = Command::new(path);
        command
            .arg(format!("/proc/self/fd/{}", image.as_raw_fd()))
            .arg(format!("/dev/fd/{}", fuse.as_raw_fd()))
            .arg("-f")
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if is_read_only {
            command.args(["-o", "ro"]);
        }
        let_inherit(&mut command, [image.as_fd(), fuse.as_fd()]);
        // This thread gives up privileges for the program only: it ends here.
        let child = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().spawn_scoped(scope, || {
                give_up(place)?;
                restrict(path, image)?;
                let spawned = command.spawn();
                spawned.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
            });
            let thread = thread.map_err(|_| Errno::AGAIN)?;
            thread.join().unwrap_or(Err(Errno::IO))
        })?;
        Ok(Self(child))
    }

    pub(super) fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Becomes the caller's user, for good.
fn give_up(place: &Place) -> Result<(), Errno> {
    set_no_new_privs(true)?;
    set_thread_groups(place.groups())?;
    let (user, group) = (place.user(), place.group());
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets {
        effective: none,
        permitted: none,
        inheritable: none,
    };
    set_capabilities(None, sets)
}

/// Leaves it the image and the libraries. Without Landlock (5.13) there is no program.
fn restrict(program: &Path, image: &OwnedFd) -> Result<(), Errno> {
    match rules(program, image).and_then(|rules| Ok(rules.restrict_self()?)) {
        Ok(status) if status.ruleset != RulesetStatus::NotEnforced => Ok(()),
        _ => Err(Errno::NOSYS),
    }
}

fn rules(program: &Path, image: &OwnedFd) -> anyhow::Result<RulesetCreated> {
    let read: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::Execute;
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::AbstractUnixSocket)?
        .scope(Scope::Signal)?
        .create()?;
    for path in LIBRARIES.map(Path::new).into_iter().chain([program]) {
        let Ok(fd) = PathFd::new(path) else { continue };
        let rights = if path.is_dir() {
            read
        } else {
            read & AccessFs::from_file(NEWEST)
        };
        rules = rules.add_rule(PathBeneath::new(fd, rights))?;
    }
    let write = AccessFs::ReadFile | AccessFs::WriteFile;
    let rules = rules
        .add_rule(PathBeneath::new(PathFd::new("/dev/null")?, write))?
        .add_rule(PathBeneath::new(image.as_fd(), write))?;
    Ok(rules)
}
