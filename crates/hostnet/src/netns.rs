//! Network namespaces: made, entered, and given to a child process.
//!
//! Unsafe code is needed for two calls that the compiler cannot check: unshare(2), which
//! may split what the threads of a process share, and a hook that runs between fork and exec.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::{io, panic, thread};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// What statfs(2) says of a file that stands for a namespace (linux/magic.h).
const NSFS_MAGIC: u64 = 0x6e73_6673;

/// Makes a network namespace that has no name: it is gone when the returned descriptor is
/// closed and no process, socket or mount uses it.
///
/// IPv6 is off in it before any device can come, since a device that comes up sends
/// neighbour and router solicitations of its own. Returns whether there was IPv6 to turn off.
pub fn create() -> Result<(OwnedFd, bool)> {
    on_own_thread(|| {
        // SAFETY: needed because the kernel's view of a namespace belongs to a thread. Sound
        // because NEWNET leaves memory and file descriptors shared, and this thread ends here.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.map_err(unshare_error)?;
        let namespace = File::open("/proc/thread-self/ns/net")
            .context("cannot open /proc/thread-self/ns/net: is /proc mounted?")?;
        Ok((namespace.into(), disable_ipv6()?))
    })
}

fn unshare_error(errno: rustix::io::Errno) -> anyhow::Error {
    let cure = match errno {
        rustix::io::Errno::PERM => {
            "this needs CAP_SYS_ADMIN and CAP_NET_ADMIN: run it as root, e.g. with sudo"
        }
        rustix::io::Errno::NOSPC => "raise the sysctl user.max_net_namespaces",
        rustix::io::Errno::INVAL => "this kernel has no network namespaces (CONFIG_NET_NS)",
        _ => "see unshare(2)",
    };
    anyhow::Error::from(errno).context(format!("cannot make a network namespace: {cure}"))
}

fn disable_ipv6() -> Result<bool> {
    for scope in ["all", "default"] {
        let path = format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6");
        match std::fs::write(&path, "1") {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => {
                return Err(error).with_context(|| {
                    format!("cannot write {path}: is /proc/sys mounted read-only?")
                });
            }
        }
    }
    Ok(true)
}

/// Runs `work` inside `namespace`, on a thread that ends with it, so that the caller's own
/// namespace stays what it was.
pub fn run_in<T: Send>(
    namespace: BorrowedFd<'_>,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    on_own_thread(|| {
        enter(namespace)?;
        work()
    })
}

fn on_own_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("weir-netns".into())
            .spawn_scoped(scope, work)
            .context("cannot start a thread")?;
        thread
            .join()
            .unwrap_or_else(|panicked| panic::resume_unwind(panicked))
    })
}

/// Moves the calling thread into `namespace`, for good.
pub fn enter(namespace: BorrowedFd<'_>) -> Result<()> {
    let result = move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network));
    match result {
        Ok(()) => Ok(()),
        Err(errno @ rustix::io::Errno::PERM) => Err(errno).context(
            "cannot enter the network namespace: this needs CAP_SYS_ADMIN; run it as root, e.g. with sudo",
        ),
        Err(errno) => Err(errno).context("cannot enter the network namespace"),
    }
}

/// Starts `command` inside `namespace`, which ends with the calling thread at the latest.
pub fn spawn(namespace: BorrowedFd<'_>, command: &mut Command) -> Result<Child> {
    // The hook outlives this call with the command, so it owns a descriptor of its own.
    let namespace = namespace
        .try_clone_to_owned()
        .context("cannot duplicate a descriptor")?;
    let hook = move || -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(())
    };
    // SAFETY: needed because the child must change its namespace before it runs its program.
    // Sound because the hook makes two system calls and touches neither heap nor locks, all
    // that is allowed in the child of a process with several threads.
    let command = unsafe { command.pre_exec(hook) };
    let program = command.get_program().to_string_lossy().into_owned();
    command
        .spawn()
        .with_context(|| format!("cannot start {program} in the lab's network namespace"))
}

/// The number that identifies a namespace as long as it lives, as in `net:[4026531840]`.
pub fn identity(namespace: BorrowedFd<'_>) -> Result<u64> {
    let stat = rustix::fs::fstat(namespace).context("cannot stat a network namespace")?;
    Ok(stat.st_ino)
}

/// The number of the calling thread's namespace.
pub fn current() -> Result<u64> {
    let namespace = File::open("/proc/thread-self/ns/net")
        .context("cannot open /proc/thread-self/ns/net: is /proc mounted?")?;
    identity(namespace.as_fd())
}

/// The processes that live in `namespace`, which keep it alive whatever its names are.
pub fn processes(namespace: BorrowedFd<'_>) -> Result<Vec<u32>> {
    let wanted = format!("net:[{}]", identity(namespace)?);
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").context("cannot read /proc: is it mounted?")? {
        let name = entry.context("cannot read /proc")?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process that has ended since, or that may not be read, is none of this lab's.
        let lives_here = std::fs::read_link(format!("/proc/{pid}/ns/net"))
            .is_ok_and(|link| link.as_os_str() == wanted.as_str());
        if lives_here {
            found.push(pid);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The path at which the kernel shows this process's descriptor of `namespace`, for mount(2).
pub fn proc_path(namespace: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", namespace.as_raw_fd())
}

/// Refuses a file that is not a network namespace, such as the empty one that stays when its
/// mount is gone.
pub fn open(path: &std::path::Path) -> Result<OwnedFd> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let stat = rustix::fs::fstatfs(&file).context("cannot stat a network namespace")?;
    if stat.f_type as u64 != NSFS_MAGIC {
        bail!("{} is not a network namespace", path.display());
    }
    Ok(file.into())
}
