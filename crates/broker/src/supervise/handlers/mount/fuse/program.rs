//! The program that serves a mount, confined.

use super::super::super::super::caller::{Place, limit, read_proc};
use super::super::super::super::cgroup::Hierarchies;
use super::sys::{before_exec, unshare_children};
use crate::confine::Refusal;
use crate::seccomp::Target;
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::path::DecInt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, Gid, Uid, set_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The newest rules that are known; of these, the kernel's are used.
const NEWEST: ABI = ABI::V6;

/// Where a program finds its libraries.
const LIBRARIES: [&str; 5] = ["/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache"];

/// Those that the kernel starts a program by.
const LOADERS: [&str; 4] = [
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/ld-linux-aarch64.so.1",
    "/lib/ld-musl-x86_64.so.1",
    "/lib/ld-musl-aarch64.so.1",
];

/// Most address space of a program.
const MAX_ADDRESS_SPACE: u64 = 4 << 30;

/// Limits that a program has of its caller; the broker's own are those of its unit.
const LIMITS: [(&str, Resource); 6] = [
    ("Max address space", Resource::As),
    ("Max core file size", Resource::Core),
    ("Max file size", Resource::Fsize),
    ("Max locked memory", Resource::Memlock),
    ("Max open files", Resource::Nofile),
    ("Max processes", Resource::Nproc),
];

/// The lowest one that a process has who was not given another.
const OOM_SCORE: i32 = 0;

/// A program that serves a mount, the first process of a pid namespace. Dropped, it is killed, and with
/// it all that it has started; it ends by itself when the mount does.
#[derive(Debug)]
pub(in super::super) struct Program(Child);

impl Program {
    /// Starts it as the caller's user, in pid and network namespaces of its own, with the limits and as far as
    /// the kernel lets it in the control groups of the caller.
    pub(super) fn start(
        path: &Path,
        image: &OwnedFd,
        fuse: &OwnedFd,
        (target, place): (&Target, &Place),
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
        let mut confinement = Confinement::new(path, image, target, place)?;
        let inherited = [image.as_fd(), fuse.as_fd()];
        before_exec(&mut command, inherited, move || confinement.apply());
        // The namespaces are this thread's children's: it ends here.
        let child = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().spawn_scoped(scope, || {
                unshare_children()?;
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

/// What a program gives up, in its own process: a thread of the broker's with the caller's user could be
/// killed by the caller, and the broker with it.
struct Confinement {
    control_groups: Vec<OwnedFd>,
    oom_score: DecInt,
    limits: Vec<(Resource, Rlimit)>,
    groups: Vec<Gid>,
    group: Gid,
    user: Uid,
    files: Option<RulesetCreated>,
    sockets: Refusal,
}

impl Confinement {
    fn new(program: &Path, image: &OwnedFd, target: &Target, place: &Place) -> Result<Self, Errno> {
        let score = read_proc(target, "oom_score_adj")?.trim().parse::<i32>();
        Ok(Self {
            control_groups: Hierarchies::find().doors(&read_proc(target, "cgroup")?),
            oom_score: DecInt::new(score.unwrap_or(OOM_SCORE).max(OOM_SCORE)),
            limits: limits(&read_proc(target, "limits")?),
            groups: place.groups().to_vec(),
            group: place.group(),
            user: place.user(),
            files: Some(rules(program, image).map_err(|_| Errno::NOSYS)?),
            // It has all that it needs, and the broker's own sockets are in sight.
            sockets: Refusal::of(&[libc::SYS_socket, libc::SYS_socketpair])
                .map_err(|_| Errno::NOSYS)?,
        })
    }

    /// Allocates no memory.
    fn apply(&mut self) -> io::Result<()> {
        // First of all, so that all its memory and processes are the caller's. A group of threads takes none.
        for group in &self.control_groups {
            let _ = rustix::io::write(group, b"0");
        }
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let score = rustix::fs::open(c"/proc/self/oom_score_adj", flags, Mode::empty())?;
        rustix::io::write(score, self.oom_score.as_c_str().to_bytes())?;
        for (resource, limit) in &self.limits {
            setrlimit(*resource, *limit)?;
        }
        set_no_new_privs(true)?;
        set_thread_groups(&self.groups)?;
        set_thread_res_gid(self.group, self.group, self.group)?;
        set_thread_res_uid(self.user, self.user, self.user)?;
        let none = CapabilitySet::empty();
        let sets = CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        };
        set_capabilities(None, sets)?;
        // Without Landlock (5.13) there is no program.
        match self.files.take().map(RulesetCreated::restrict_self) {
            Some(Ok(status)) if status.ruleset != RulesetStatus::NotEnforced => {}
            _ => return Err(Errno::NOSYS.into()),
        }
        self.sockets.install()?;
        Ok(())
    }
}

/// The caller's limits as far as this process can have them, and no more address space than
/// [`MAX_ADDRESS_SPACE`].
fn limits(of_caller: &str) -> Vec<(Resource, Rlimit)> {
    let limits = LIMITS.into_iter().map(|(name, resource)| {
        let [current, maximum] = limit(of_caller, name).unwrap_or_default();
        let own = getrlimit(resource).maximum;
        let most = (resource == Resource::As).then_some(MAX_ADDRESS_SPACE);
        let maximum = [maximum, own, most].into_iter().flatten().min();
        let current = [current, maximum].into_iter().flatten().min();
        (resource, Rlimit { current, maximum })
    });
    limits.collect()
}

/// Leaves it the image and the libraries, and no program but its own.
fn rules(program: &Path, image: &OwnedFd) -> anyhow::Result<RulesetCreated> {
    let read: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::AbstractUnixSocket)?
        .scope(Scope::Signal)?
        .create()?;
    for path in LIBRARIES.map(Path::new) {
        let Ok(fd) = PathFd::new(path) else { continue };
        let rights = if path.is_dir() {
            read
        } else {
            read & AccessFs::from_file(NEWEST)
        };
        rules = rules.add_rule(PathBeneath::new(fd, rights))?;
    }
    for path in LOADERS.map(Path::new).into_iter().chain([program]) {
        let Ok(fd) = PathFd::new(path) else { continue };
        let rights = AccessFs::ReadFile | AccessFs::Execute;
        rules = rules.add_rule(PathBeneath::new(fd, rights))?;
    }
    let write = AccessFs::ReadFile | AccessFs::WriteFile;
    let rules = rules
        .add_rule(PathBeneath::new(PathFd::new("/dev/null")?, write))?
        .add_rule(PathBeneath::new(image.as_fd(), write))?;
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_its_callers_limits_and_little_address_space() {
        let text = "Max address space         unlimited            unlimited            bytes     \n\
                    Max open files            64                   128                  files     \n";
        let limits = limits(text);
        let of = |wanted: Resource| {
            let found = limits.iter().find(|(resource, _)| *resource == wanted);
            found.map(|(_, limit)| (limit.current, limit.maximum))
        };
        let most = Some(MAX_ADDRESS_SPACE);
        assert_eq!(of(Resource::As), Some((most, most)));
        assert_eq!(of(Resource::Nofile), Some((Some(64), Some(128))));
    }
}
