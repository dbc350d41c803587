//! A process: the peer of a unix socket, or the thread of a supervised call.

use super::executable::{Executable, KeptExecutable, Program};
use super::sys;
use crate::seccomp::Target;
use anyhow::{Context as _, Result, bail, ensure};
use hostnet::privilege::{self, Capability};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Most bytes of a file below /proc/PID; the names in it are the process's own.
const MOST_BYTES: u64 = 1 << 16;

/// Bytes that such a file usually has less than.
const FILE: usize = 4096;

/// How often a process may change its executable while it is looked at.
const TRIES: usize = 3;

/// Opens a file of the process's directory below /proc.
type Open<'o> = dyn Fn(&str, OFlags) -> Result<OwnedFd, Errno> + 'o;

/// Who a process is.
#[derive(Debug)]
pub struct Identity {
    /// Its id in the broker's pid namespace, for logs: it may be another process's later.
    pub pid: u32,
    /// Its effective user id, as the broker's user namespace sees it.
    pub uid: u32,
    /// Its effective group id.
    pub gid: u32,
    /// The program that it runs.
    pub executable: Executable,
    /// Path of its control group, from the root that the broker sees; of cgroup v2, else of systemd's
    /// hierarchy.
    pub cgroup: Option<String>,
    /// Its container, where a runtime described it.
    pub container: Option<Container>,
    pidfd: OwnedFd,
}

/// A process that the policy is asked about, now or when an earlier broker looked at it.
pub struct Person<'p> {
    /// Its id, 0 for one of an earlier broker.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// The program that it runs.
    pub executable: &'p dyn Program,
    /// Path of its control group.
    pub cgroup: Option<&'p str>,
    /// Its container.
    pub container: Option<&'p Container>,
}

impl Person<'_> {
    /// The SHA-256 of its program.
    ///
    /// # Errors
    ///
    /// Those of [`Program::sha256`].
    pub fn sha256(&self) -> std::io::Result<[u8; 32]> {
        self.executable.sha256(self.pid, self.uid)
    }
}

/// Who a process was, for the broker that starts after this one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    uid: u32,
    gid: u32,
    executable: KeptExecutable,
    cgroup: Option<String>,
    container: Option<Container>,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            uid, executable, ..
        } = self;
        write!(f, "a process tree of uid {uid} running {executable}")
    }
}

impl Kept {
    /// As the policy is asked.
    pub fn person(&self) -> Person<'_> {
        Person {
            pid: 0,
            uid: self.uid,
            gid: self.gid,
            executable: &self.executable,
            cgroup: self.cgroup.as_deref(),
            container: self.container.as_ref(),
        }
    }
}

/// A container as its runtime describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// Its id.
    pub id: String,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Who the runtime is that says so: of anyone else than root and a user whom the tenant names, it
    /// counts for nothing.
    pub runtime_uid: u32,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pid,
            uid,
            executable,
            ..
        } = self;
        write!(f, "uid {uid} running {executable} (pid {pid})")
    }
}

impl Identity {
    /// The process that connected a unix socket, or made a pair of them.
    ///
    /// # Errors
    ///
    /// When it has ended, is of another pid namespace, or has changed its user since.
    pub fn of_peer(socket: BorrowedFd<'_>) -> Result<Self> {
        let peer = hostnet::unix::peer(socket)
            .context("the kernel does not tell who is at the other end")?;
        let pid = Pid::from_raw(peer.pid.cast_signed());
        let pid = pid.context("the process at the other end is in another pid namespace, which the broker does not see: run the broker in the host's")?;
        let pidfd = match sys::peer_pidfd(socket) {
            // Linux before 6.5: if the peer has ended, another process of its user can have its id.
            Err(Errno::NOPROTOOPT) => pidfd_open(pid, PidfdFlags::empty()),
            result => result,
        };
        let pidfd = pidfd.context("the process at the other end has ended")?;
        let identity = Self::of_pid(pid, pidfd)?;
        let (uid, gid) = (peer.uid, peer.gid);
        ensure!(
            (identity.uid, identity.gid) == (uid, gid),
            "the process was uid {uid}, gid {gid} when it connected, and is {}, {} now: connect after the change",
            identity.uid,
            identity.gid
        );
        Ok(identity)
    }

    /// The thread whose call waits.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn of_target(target: &Target) -> Result<Self> {
        let pidfd = target.pidfd().try_clone_to_owned()?;
        let open = |name: &str, flags| target.open_proc(name, flags);
        Self::read(target.tid(), pidfd, &open)
    }

    /// A process of the broker's pid namespace.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn of_process(pid: Pid) -> Result<Self> {
        let pidfd = pidfd_open(pid, PidfdFlags::empty());
        Self::of_pid(
            pid,
            pidfd.with_context(|| gone(pid.as_raw_nonzero().get()))?,
        )
    }

    fn of_pid(pid: Pid, pidfd: OwnedFd) -> Result<Self> {
        let number = pid.as_raw_nonzero().get();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(format!("/proc/{number}"), flags, Mode::empty());
        let directory = directory.with_context(|| gone(number))?;
        let open = |name: &str, flags| openat(&directory, name, flags, Mode::empty());
        Self::read(number as u32, pidfd, &open)
    }

    fn read(pid: u32, pidfd: OwnedFd, open: &Open<'_>) -> Result<Self> {
        let mut executable = open_executable(pid, open)?;
        for _ in 0..TRIES {
            let status = text(open, "status").with_context(|| gone(pid))?;
            // Without the line of a hierarchy there is no control group to compare.
            let cgroup = text(open, "cgroup").unwrap_or_default();
            let again = open_executable(pid, open)?;
            // All reads were of this process: its id is its own until it has ended.
            ensure!(is_alive(&pidfd), gone(pid));
            if again.is_same(&executable) {
                return Ok(Self {
                    pid,
                    uid: effective_id(&status, "Uid:").context("/proc/PID/status has no user")?,
                    gid: effective_id(&status, "Gid:").context("/proc/PID/status has no group")?,
                    executable,
                    cgroup: cgroup_path(&cgroup),
                    container: None,
                    pidfd,
                });
            }
            executable = again;
        }
        bail!("process {pid} changes its executable all the time")
    }

    /// As the policy is asked.
    pub fn person(&self) -> Person<'_> {
        Person {
            pid: self.pid,
            uid: self.uid,
            gid: self.gid,
            executable: &self.executable,
            cgroup: self.cgroup.as_deref(),
            container: self.container.as_ref(),
        }
    }

    /// What stays of it in a file, with the SHA-256 of its executable where that is known.
    pub fn to_kept(&self, sha256: Option<[u8; 32]>) -> Kept {
        Kept {
            uid: self.uid,
            gid: self.gid,
            executable: self.executable.to_kept(sha256),
            cgroup: self.cgroup.clone(),
            container: self.container.clone(),
        }
    }

    /// Adds its container, as a runtime describes it.
    #[must_use]
    pub fn with_container(self, container: Container) -> Self {
        let container = Some(container);
        Self { container, ..self }
    }

    /// Whether it has not ended. Threads of a process end with it, and a thread may end before.
    pub fn is_alive(&self) -> bool {
        is_alive(&self.pidfd)
    }

    /// Its pidfd, for as long as somebody must know when it ends.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

fn gone(pid: impl fmt::Display) -> String {
    format!("process {pid} has ended")
}

/// A pidfd can be read when its process has ended, reaped or not.
fn is_alive(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())) == Ok(0)
}

fn open_executable(pid: u32, open: &Open<'_>) -> Result<Executable> {
    let file = open("exe", OFlags::PATH | OFlags::CLOEXEC).map_err(|error| {
        let cause = match error {
            Errno::ACCESS | Errno::PERM => {
                // A daemon's own seccomp filter is no cause: it would have ended the process.
                let why = privilege::missing(&[Capability::SysPtrace]).unwrap_or_else(|| {
                    "a security module (Yama, SELinux, AppArmor) or its user namespace refuses it"
                        .to_owned()
                });
                format!("cannot look at process {pid}: {why}")
            }
            _ => gone(pid),
        };
        anyhow::Error::new(error).context(cause)
    })?;
    Executable::new(file).with_context(|| format!("cannot look at the executable of process {pid}"))
}

/// The text of a small file; names in it need not be UTF-8.
fn text(open: &Open<'_>, name: &str) -> Result<String> {
    let file = File::from(open(name, OFlags::RDONLY | OFlags::CLOEXEC)?);
    // Room for all of it: a vector that grows costs a system call each time.
    let mut bytes = Vec::with_capacity(FILE);
    file.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The second of the four ids of a line of /proc/PID/status: real, effective, saved, filesystem. The
/// process's name, in a line above, cannot break lines: the kernel escapes it.
fn effective_id(status: &str, field: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// The path of /proc/PID/cgroup, lines of `NUMBER:CONTROLLERS:PATH`: that of cgroup v2, or of the
/// hierarchy that systemd has beside those of v1.
fn cgroup_path(text: &str) -> Option<String> {
    let path = |controllers: &str| {
        let mut lines = text.lines().map(|line| line.splitn(3, ':'));
        lines.find_map(|mut fields| {
            let number = fields.next()?;
            let is_it = fields.next()? == controllers && (number == "0" || !controllers.is_empty());
            fields.next().filter(|_| is_it)
        })
    };
    let unified = path("").filter(|path| *path != "/");
    let path = unified
        .or_else(|| path("name=systemd"))
        .or_else(|| path(""))?;
    Some(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_group_is_that_of_the_unified_hierarchy_if_it_is_used() {
        for (text, expected) in [
            (
                "0::/system.slice/nsd.service\n",
                Some("/system.slice/nsd.service"),
            ),
            ("0::/\n", Some("/")),
            ("0::/a:b\n", Some("/a:b")),
            (
                "2:cpu,cpuacct:/x\n1:name=systemd:/user.slice\n0::/\n",
                Some("/user.slice"),
            ),
            ("1:name=systemd:/user.slice\n0::/v2\n", Some("/v2")),
            ("2:cpu:/x\n", None),
            ("7::/forged\n", None),
            ("", None),
            ("nonsense", None),
        ] {
            assert_eq!(cgroup_path(text).as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn the_effective_id_is_the_second() {
        let status = "Name:\ta\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\n";
        assert_eq!(effective_id(status, "Uid:"), Some(2));
        assert_eq!(effective_id(status, "Gid:"), Some(6));
        assert_eq!(effective_id("Uid:\n", "Uid:"), None);
    }

    /// As if the process at the other end had ended, and this one had its id since.
    #[test]
    fn a_later_process_of_the_same_id_is_not_taken_for_it() {
        let mut ended = std::process::Command::new("true").spawn().expect("true(1)");
        let pid = Pid::from_child(&ended);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).expect("it is not reaped");
        ended.wait().expect("it ends");
        let myself = rustix::process::getpid();
        let error = Identity::of_pid(myself, pidfd).expect_err("it has ended");
        assert!(error.to_string().contains("has ended"), "{error}");
        let pidfd = pidfd_open(myself, PidfdFlags::empty()).expect("it runs");
        Identity::of_pid(myself, pidfd).expect("it is this one");
    }
}
