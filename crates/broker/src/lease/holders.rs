//! The processes that hold a socket.

use crate::identity::Identity;
use rustix::io::Errno;
use rustix::net::{AddressFamily, sockopt};
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Signal, pidfd_getfd, pidfd_open, pidfd_send_signal,
};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A process, and its descriptor of a socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// Its name (`/proc/PID/comm`).
    pub name: String,
    #[serde(skip)]
    fd: i32,
}

impl Holder {
    /// A duplicate of its descriptor, if that still is the AF_XDP socket `inode`.
    pub(super) fn socket(&self, inode: u64) -> Result<OwnedFd, Errno> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let process = pidfd_open(pid.ok_or(Errno::SRCH)?, PidfdFlags::empty())?;
        let socket = pidfd_getfd(&process, self.fd, PidfdGetfdFlags::empty())?;
        let is_same = rustix::fs::fstat(&socket)?.st_ino == inode
            && sockopt::socket_domain(&socket) == Ok(AddressFamily::XDP);
        if is_same {
            Ok(socket)
        } else {
            Err(Errno::BADF)
        }
    }
}

impl Holder {
    /// Kills the process if it has the socket still, and `is_ours` says so.
    fn end(&self, inode: u64, is_ours: impl Fn(&Identity) -> bool) -> anyhow::Result<bool> {
        let pid = Pid::from_raw(self.pid.cast_signed()).ok_or(Errno::SRCH)?;
        let process = Identity::of_process(pid)?;
        self.socket(inode)?;
        if !is_ours(&process) {
            return Ok(false);
        }
        pidfd_send_signal(process.pidfd(), Signal::KILL)?;
        Ok(true)
    }

    /// The file that kills all processes of its control group (`cgroup.kill`, 5.14).
    ///
    /// # Errors
    ///
    /// When it is in the root group, or in none of cgroup v2.
    pub fn kill_file(&self) -> io::Result<PathBuf> {
        let groups = fs::read_to_string(format!("/proc/{}/cgroup", self.pid))?;
        let path = groups.lines().find_map(|line| line.strip_prefix("0::/"));
        let Some(path) = path.filter(|path| !path.is_empty() && !path.contains("..")) else {
            return Err(io::Error::other(
                "the process is in no control group of its own",
            ));
        };
        let mut roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].into_iter();
        let kill = |root: &str| Path::new(root).join(path).join("cgroup.kill");
        let file = roots.find_map(|root| Some(kill(root)).filter(|file| file.exists()));
        file.ok_or_else(|| io::Error::other("no cgroup v2 is mounted"))
    }
}

/// The holders of sockets by their inodes, in one pass over /proc. Those that hold a mapping alone, and
/// descriptors on their way in messages, are not shown there. This process is left out: it has a
/// descriptor for as long as it hands it over.
pub(super) fn of(inodes: impl IntoIterator<Item = u64>) -> BTreeMap<u64, Vec<Holder>> {
    let wanted: BTreeSet<u64> = inodes.into_iter().collect();
    let mut found: BTreeMap<u64, Vec<Holder>> = BTreeMap::new();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let Some(pid) = process
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
            .filter(|&pid| pid != std::process::id())
        else {
            continue;
        };
        for (fd, inode) in sockets(&process.path()) {
            let holders = found.entry(inode).or_default();
            if wanted.contains(&inode) && holders.iter().all(|holder| holder.pid != pid) {
                let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
                let name = name.trim_end().to_owned();
                holders.push(Holder { pid, name, fd });
            }
        }
    }
    found.retain(|_, holders| !holders.is_empty());
    found
}

/// Most looks for processes that hold a socket still, or that got it from one that was ended.
const MAX_LOOKS: usize = 20;
/// Between two of them.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Ends the processes that hold a socket, if `is_ours` says so; returns those, and those that are not.
pub fn end_holders(inode: u64, is_ours: impl Fn(&Identity) -> bool) -> (Vec<Holder>, Vec<Holder>) {
    let (mut ended, mut spared): (Vec<Holder>, Vec<Holder>) = Default::default();
    for _ in 0..MAX_LOOKS {
        let holders = of([inode]).remove(&inode).unwrap_or_default();
        let is_of = |list: &[Holder], pid| list.iter().any(|known| known.pid == pid);
        let mut is_over = true;
        for holder in holders {
            if is_of(&spared, holder.pid) {
                continue;
            }
            is_over = false;
            if is_of(&ended, holder.pid) {
                continue;
            }
            match holder.end(inode, &is_ours) {
                Ok(true) => ended.push(holder),
                Ok(false) => spared.push(holder),
                // It has ended, or closed the socket.
                Err(_) => {}
            }
        }
        if is_over {
            break;
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    (ended, spared)
}

/// The sockets of a process: descriptors and inodes.
fn sockets(process: &Path) -> impl Iterator<Item = (i32, u64)> {
    let files = fs::read_dir(process.join("fd"))
        .into_iter()
        .flatten()
        .flatten();
    files.filter_map(|file| {
        let target = fs::read_link(file.path()).ok()?;
        let inode = target
            .to_str()?
            .strip_prefix("socket:[")?
            .strip_suffix(']')?
            .parse()
            .ok()?;
        Some((file.file_name().to_str()?.parse().ok()?, inode))
    })
}
