//! The processes that have a socket open, by the links in /proc/PID/fd (proc(5)).

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind as IoErrorKind;
use std::{fs, io};

use crate::error::Result;
use crate::process;

/// A process that has a socket open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its id.
    pub pid: u32,
    /// Its name (`/proc/PID/comm`), which it chooses itself: control characters may be in it. Bytes that
    /// are no UTF-8 are replaced.
    pub comm: String,
    /// The number of the descriptor.
    pub descriptor: u32,
}

/// The processes that were found for sockets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owners {
    /// The process of each socket, by its inode: of several that share one, the lowest id and descriptor.
    pub by_inode: BTreeMap<u32, Owner>,
    /// Processes whose descriptors the kernel did not show, such as those of other users without
    /// `CAP_SYS_PTRACE`, up to the last process that was looked at.
    pub unreadable: usize,
}

/// Finds the processes that have these sockets open, and looks no further once all are found. A socket
/// without a process is left out: one of the kernel, one that only a descriptor in flight or an
/// `io_uring` holds, one of a process in a PID namespace that this /proc does not show.
///
/// ```no_run
/// use hostnet::sock_diag::inet::{self, Protocol, State};
/// use hostnet::sock_diag::owners;
///
/// let listeners = inet::sockets(Protocol::Tcp, &[State::Listen])?.unwrap_or_default();
/// let wanted = listeners.iter().map(|socket| socket.inode).collect();
/// let owners = owners(&wanted)?;
/// for socket in &listeners {
///     if let Some(owner) = owners.by_inode.get(&socket.inode) {
///         println!("port {}: {:?}, process {}", socket.local_port, owner.comm, owner.pid);
///     }
/// }
/// # Ok::<(), hostnet::Error>(())
/// ```
pub fn owners(inodes: &BTreeSet<u32>) -> Result<Owners> {
    let mut wanted = inodes.clone();
    // Sockets without a file.
    wanted.remove(&0);
    let mut owners = Owners::default();
    if wanted.is_empty() {
        return Ok(owners);
    }
    for pid in process::ids()? {
        let mut found = Vec::new();
        let read = find(pid, &mut wanted, &mut found);
        owners.add(pid, found);
        // Any other error: it has ended.
        if read.is_err_and(|error| error.kind() == IoErrorKind::PermissionDenied) {
            owners.unreadable += 1;
        }
        if wanted.is_empty() {
            break;
        }
    }
    Ok(owners)
}

impl Owners {
    fn add(&mut self, pid: u32, sockets: Vec<(u32, u32)>) {
        if sockets.is_empty() {
            return;
        }
        let comm = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        let comm = String::from_utf8_lossy(&comm);
        for (inode, descriptor) in sockets {
            let owner = Owner {
                pid,
                comm: comm.strip_suffix('\n').unwrap_or(&comm).into(),
                descriptor,
            };
            self.by_inode.insert(inode, owner);
        }
    }
}

/// Moves the wanted sockets that a process has from `wanted` to `found`, as inode and descriptor.
fn find(pid: u32, wanted: &mut BTreeSet<u32>, found: &mut Vec<(u32, u32)>) -> io::Result<()> {
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        if wanted.is_empty() {
            break;
        }
        let entry = entry?;
        let link = match fs::read_link(entry.path()) {
            // It was closed meanwhile.
            Err(error) if error.kind() == IoErrorKind::NotFound => continue,
            // A list that can be read may have links that cannot.
            link => link?,
        };
        let name = entry.file_name();
        let descriptor = name.to_str().and_then(|name| name.parse().ok());
        let inode = link.to_str().and_then(inode);
        if let (Some(inode), Some(descriptor)) = (inode, descriptor)
            && wanted.remove(&inode)
        {
            found.push((inode, descriptor));
        }
    }
    Ok(())
}

/// The inode of a link such as `socket:[4711]`.
fn inode(link: &str) -> Option<u32> {
    let inode = link.strip_prefix("socket:[")?.strip_suffix(']')?;
    inode.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_a_socket_has_its_inode() {
        assert_eq!(inode("socket:[4711]"), Some(4711));
        for link in [
            "socket:[]",
            "socket:[4711",
            "socket:[-1]",
            "socket:[4294967296]",
            "pipe:[4711]",
            "/tmp/socket:[4711]",
            "",
        ] {
            assert_eq!(inode(link), None, "{link}");
        }
    }

    #[test]
    fn nothing_wanted_is_found_at_once() {
        let nothing = owners(&BTreeSet::from([0])).expect("a map");
        assert_eq!(nothing, Owners::default());
    }
}
