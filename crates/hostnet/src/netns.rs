//! Network namespaces: made, entered and given to a child process (`network_namespaces(7)`).
//!
//! Unsafe code is needed for two calls that the compiler cannot check: unshare(2), which
//! may split the resources that the threads of a process share, and a hook that runs between fork
//! and exec.
#![allow(unsafe_code)]

mod all;
pub mod named;

use std::fs::{self, File};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::{io, panic, thread};

use rustix::io::Errno;
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::error::{Context as _, Error, Result};
use crate::privilege::{Capability, FileStep, file_note};
use crate::process;

pub use all::{Namespace, Namespaces, all};

/// The file system type that statfs(2) reports for a file of a namespace (linux/magic.h).
const NSFS_MAGIC: u64 = 0x6e73_6673;
/// The calling thread's network namespace.
const OWN: &str = "/proc/thread-self/ns/net";

/// Makes a network namespace without a name. It is gone when the returned descriptor is closed
/// and no process, socket or mount uses it. Needs `CAP_SYS_ADMIN`.
///
/// ```no_run
/// use std::os::fd::AsFd as _;
///
/// use hostnet::netns;
/// use hostnet::rtnetlink::Rtnetlink;
///
/// let namespace = netns::create()?;
/// netns::disable_ipv6(namespace.as_fd())?;
/// let links = netns::run_in(namespace.as_fd(), || Rtnetlink::open()?.links())?;
/// assert_eq!(links[0].name, "lo");
/// # Ok::<(), hostnet::Error>(())
/// ```
pub fn create() -> Result<OwnedFd> {
    on_own_thread(|| {
        // SAFETY: needed because the kernel's view of a namespace belongs to a thread. Sound
        // because NEWNET leaves memory and file descriptors shared, and this thread ends here.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.map_err(unshare_error)?;
        Ok(own()?.into())
    })
}

fn unshare_error(errno: Errno) -> Error {
    let cure = match errno {
        Errno::PERM | Errno::ACCESS | Errno::NOSYS => {
            return Error::os(errno, "cannot make a network namespace")
                .of_call(&[Capability::SysAdmin]);
        }
        Errno::NOSPC => "raise the sysctl user.max_net_namespaces",
        Errno::INVAL => "this kernel has no network namespaces (CONFIG_NET_NS)",
        _ => "see unshare(2)",
    };
    Error::os(errno, format!("cannot make a network namespace: {cure}"))
}

fn own() -> Result<File> {
    File::open(OWN).with_context(|| format!("cannot open {OWN}: is /proc mounted?"))
}

/// Switches IPv6 off in `namespace`, for the devices that it has and those to come, and returns
/// whether the kernel has IPv6. With IPv6 a device that comes up sends neighbour and router
/// solicitations, so this is best called before there is any. Needs `CAP_NET_ADMIN`.
pub fn disable_ipv6(namespace: BorrowedFd<'_>) -> Result<bool> {
    run_in(namespace, || {
        for scope in ["all", "default"] {
            let path = format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6");
            match fs::write(&path, "1") {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                Err(error) => {
                    let note = file_note(&error, Path::new(&path), FileStep::Write);
                    return Err(error).with_context(|| format!("cannot write {path}{note}"));
                }
                Ok(()) => {}
            }
        }
        Ok(true)
    })
}

/// Runs `work` in `namespace`, on a thread of its own, so that the caller stays in its namespace.
/// A panic in `work` goes on in the caller. Needs `CAP_SYS_ADMIN`.
///
/// # Errors
///
/// Those of [`enter`], and those of `work`, which may have a type of its own.
///
/// ```no_run
/// use std::os::fd::AsFd as _;
///
/// use hostnet::device::Device;
/// use hostnet::netns;
///
/// let namespace = netns::create()?;
/// let loopback = netns::run_in(namespace.as_fd(), || Device::open("lo"))?;
/// // The device can be used from here on.
/// loopback.set_up()?;
/// # Ok::<(), hostnet::Error>(())
/// ```
pub fn run_in<T, E>(
    namespace: BorrowedFd<'_>,
    work: impl FnOnce() -> Result<T, E> + Send,
) -> Result<T, E>
where
    T: Send,
    E: From<Error> + Send,
{
    on_own_thread(|| {
        enter(namespace)?;
        work()
    })
}

fn on_own_thread<T, E>(work: impl FnOnce() -> Result<T, E> + Send) -> Result<T, E>
where
    T: Send,
    E: From<Error> + Send,
{
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("hostnet-netns".into())
            .spawn_scoped(scope, work)
            .context("cannot start a thread")?;
        thread
            .join()
            .unwrap_or_else(|panicked| panic::resume_unwind(panicked))
    })
}

/// Moves the calling thread into `namespace` for good (setns(2)). Needs `CAP_SYS_ADMIN`.
pub fn enter(namespace: BorrowedFd<'_>) -> Result<()> {
    let moved = move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network));
    moved
        .context("cannot enter the network namespace")
        .needs(Capability::SysAdmin)
}

/// Starts `command` in `namespace`. The kernel kills the process when the thread that started it
/// ends (`PR_SET_PDEATHSIG`). Needs `CAP_SYS_ADMIN`.
///
/// ```no_run
/// use std::os::fd::AsFd as _;
/// use std::process::Command;
///
/// use hostnet::netns;
///
/// let namespace = netns::create()?;
/// let mut ip = netns::spawn(namespace.as_fd(), Command::new("ip").arg("link"))?;
/// assert!(ip.wait()?.success());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn spawn(namespace: BorrowedFd<'_>, command: &mut Command) -> Result<Child> {
    // The hook outlives this call with the command, so it owns a descriptor of its own.
    let namespace = namespace
        .try_clone_to_owned()
        .context("cannot duplicate a descriptor")?;
    let hook = move || -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        let entered =
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network));
        // EACCES, which only a seccomp filter gives here, is left to execve(2).
        entered.map_err(|errno| match errno {
            Errno::ACCESS => Errno::PERM.into(),
            errno => errno.into(),
        })
    };
    // SAFETY: needed because the child must change its namespace before it runs its program.
    // Sound because the hook makes two system calls and touches neither heap nor locks, all
    // that is allowed in the child of a process with several threads.
    let command = unsafe { command.pre_exec(hook) };
    let program = command.get_program().to_string_lossy().into_owned();
    let started = command.spawn();
    let is_file = matches!(&started, Err(error) if error.raw_os_error() == Some(libc::EACCES));
    let started =
        started.with_context(|| format!("cannot start {program} in the network namespace"));
    // Of execve(2): the file may not be executed.
    if is_file {
        return started;
    }
    started.needs(Capability::SysAdmin)
}

/// The inode number of a namespace, which identifies it while it lives, as in
/// `net:[4026531840]`.
pub fn identity(namespace: BorrowedFd<'_>) -> Result<u64> {
    let stat = rustix::fs::fstat(namespace).context("cannot stat a network namespace")?;
    Ok(stat.st_ino)
}

/// The [`identity`] of the calling thread's namespace.
///
/// ```
/// let link = std::fs::read_link("/proc/thread-self/ns/net")?;
/// let current = hostnet::netns::current()?;
/// assert_eq!(link.to_str(), Some(format!("net:[{current}]").as_str()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn current() -> Result<u64> {
    identity(own()?.as_fd())
}

/// The ids of the processes in `namespace`, ascending; they keep it alive. Without
/// `CAP_SYS_PTRACE` processes of other users are left out.
pub fn processes(namespace: BorrowedFd<'_>) -> Result<Vec<u32>> {
    let wanted = format!("net:[{}]", identity(namespace)?);
    let mut ids = process::ids()?;
    // A process that has ended since cannot be read either.
    ids.retain(|pid| {
        fs::read_link(format!("/proc/{pid}/ns/net"))
            .is_ok_and(|link| link.as_os_str() == wanted.as_str())
    });
    Ok(ids)
}

/// Opens the network namespace at `path`, such as `/run/netns/NAME` or `/proc/PID/ns/net`.
///
/// # Errors
///
/// [`ErrorKind::NotFound`] if there is no such file, [`ErrorKind::InvalidInput`] for a file of
/// another kind, such as the empty one that a name's mount leaves.
///
/// [`ErrorKind::NotFound`]: crate::ErrorKind::NotFound
/// [`ErrorKind::InvalidInput`]: crate::ErrorKind::InvalidInput
pub fn open(path: &Path) -> Result<OwnedFd> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let stat = rustix::fs::fstatfs(&file).context("cannot stat a network namespace")?;
    if stat.f_type as u64 != NSFS_MAGIC {
        return Err(Error::invalid(format!(
            "{} is not a network namespace",
            path.display()
        )));
    }
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn this_process_is_in_its_namespace() {
        let own = open(Path::new(OWN)).expect("a namespace");
        assert_eq!(
            identity(own.as_fd()).expect("an inode"),
            current().expect("an inode")
        );
        let processes = processes(own.as_fd()).expect("a list");
        assert!(processes.contains(&std::process::id()), "{processes:?}");
    }

    #[test]
    fn a_file_of_another_kind_is_no_namespace() {
        let error = open(Path::new("/proc/self/status")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let error = open(Path::new("/run/netns/hostnet-none")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}
