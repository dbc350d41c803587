//! The processes that hold a socket.

use rustix::io::Errno;
use rustix::net::{AddressFamily, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

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
