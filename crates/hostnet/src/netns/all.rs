//! Every network namespace of the host that can be found, with its names, processes and container.

mod container;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::ErrorKind as IoErrorKind;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::{fs, io};

use super::{identity, open};
use crate::error::{Context as _, Error, ErrorKind, Result};
use crate::process;

/// The mounts of the calling thread's mount namespace, with their roots (proc(5)).
const MOUNTINFO: &str = "/proc/thread-self/mountinfo";
/// The most processes that are kept of one namespace.
const MAX_PROCESSES: usize = 64;

/// The network namespaces that were found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Namespaces {
    /// The namespaces, in the order of their inodes.
    pub list: Vec<Namespace>,
    /// Processes whose namespace the kernel did not show, such as those of other users without
    /// `CAP_SYS_PTRACE`: with any, there may be more namespaces.
    pub unreadable: usize,
}

/// A network namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Namespace {
    /// The inode number, which identifies it while it lives.
    pub inode: u64,
    /// The file names of its mounts, sorted, such as those of ip-netns(8) in `/run/netns` and of Docker in
    /// `/run/docker/netns`. Bytes that are no UTF-8 are replaced.
    pub names: Vec<String>,
    /// A file to open it by: a mount, or the `/proc/PID/ns/net` of its lowest process.
    pub path: PathBuf,
    /// Its processes with the lowest ids, ascending, at most 64.
    pub processes: Vec<u32>,
    /// The container of its lowest process, as far as its control group tells: an id of Docker, podman,
    /// containerd or CRI-O, or a name of LXC or systemd-machined.
    pub container: Option<String>,
}

impl Namespace {
    /// Opens the namespace by its path.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if it is gone, also where another has taken its place at the path;
    /// [`ErrorKind::PermissionDenied`] for a process of another user without `CAP_SYS_PTRACE`.
    pub fn open(&self) -> Result<OwnedFd> {
        let gone = || {
            let (inode, path) = (self.inode, self.path.display());
            let text =
                format!("the network namespace {inode} is gone: {path} is no longer its file");
            Error::new(ErrorKind::NotFound, text)
        };
        match open(&self.path) {
            // The file that a name's mount leaves.
            Err(error) if error.kind() == ErrorKind::InvalidInput => Err(gone()),
            Err(error) => Err(error),
            Ok(namespace) if identity(namespace.as_fd())? == self.inode => Ok(namespace),
            Ok(_) => Err(gone()),
        }
    }
}

/// Finds the network namespaces that a process is in, or that are mounted where the calling thread
/// sees it.
///
/// One that only a thread, a descriptor, a socket or a mount of another mount namespace keeps alive is not
/// found. In a container, `/proc` has the container's processes only. A process that ends meanwhile
/// is skipped.
///
/// ```no_run
/// let found = hostnet::netns::all()?;
/// for namespace in &found.list {
///     let container = namespace.container.as_deref().unwrap_or("none");
///     println!("{} {:?} container {container}", namespace.inode, namespace.names);
/// }
/// if found.unreadable > 0 {
///     println!("{} processes could not be read", found.unreadable);
/// }
/// # Ok::<(), hostnet::Error>(())
/// ```
pub fn all() -> Result<Namespaces> {
    let mut found = BTreeMap::new();
    let mounts = fs::read(MOUNTINFO);
    let mounts = mounts.with_context(|| format!("cannot read {MOUNTINFO}: is /proc mounted?"))?;
    add_mounts(&mut found, &mounts);
    let unreadable = add_processes(&mut found)?;
    let mut list: Vec<_> = found.into_values().collect();
    // A mount below another one, of a namespace without a process, cannot be opened.
    list.retain(|namespace| !namespace.path.as_os_str().is_empty());
    Ok(Namespaces { list, unreadable })
}

fn entry(found: &mut BTreeMap<u64, Namespace>, inode: u64) -> &mut Namespace {
    found.entry(inode).or_insert_with(|| Namespace {
        inode,
        ..Namespace::default()
    })
}

fn add_mounts(found: &mut BTreeMap<u64, Namespace>, mountinfo: &[u8]) {
    for line in mountinfo.split(|&byte| byte == b'\n') {
        let Some((inode, path)) = mounted(line) else {
            continue;
        };
        let namespace = entry(found, inode);
        // The last mount at a path hides the others there.
        let is_visible = fs::metadata(&path).is_ok_and(|file| file.ino() == inode);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let place = namespace
            .names
            .binary_search_by(|known| (**known).cmp(&name));
        if let Err(place) = place {
            namespace.names.insert(place, name.into_owned());
        }
        if is_visible {
            namespace.path = path;
        }
    }
}

/// Adds the processes' namespaces and returns how many processes could not be read.
fn add_processes(found: &mut BTreeMap<u64, Namespace>) -> Result<usize> {
    let mut unreadable = 0;
    for pid in process::ids()? {
        let path = PathBuf::from(format!("/proc/{pid}/ns/net"));
        match fs::read_link(&path) {
            Ok(link) => {
                let Some(inode) = inode(link.as_os_str().as_bytes()) else {
                    continue;
                };
                entry(found, inode).add_process(pid, path);
            }
            Err(error) if error.kind() == IoErrorKind::PermissionDenied => unreadable += 1,
            // It has ended.
            Err(_) => {}
        }
    }
    Ok(unreadable)
}

impl Namespace {
    fn add_process(&mut self, pid: u32, path: PathBuf) {
        if self.processes.is_empty() {
            self.container = container_of(pid).unwrap_or_default();
            if self.path.as_os_str().is_empty() {
                self.path = path;
            }
        }
        if self.processes.len() < MAX_PROCESSES {
            self.processes.push(pid);
        }
    }
}

fn container_of(pid: u32) -> io::Result<Option<String>> {
    let groups = fs::read(format!("/proc/{pid}/cgroup"))?;
    Ok(container::read(&String::from_utf8_lossy(&groups)))
}

/// The inode of a link or a root such as `net:[4026531840]`.
fn inode(text: &[u8]) -> Option<u64> {
    let inode = text.strip_prefix(b"net:[")?.strip_suffix(b"]")?;
    std::str::from_utf8(inode).ok()?.parse().ok()
}

/// The namespace and the path of a line of mountinfo: id, parent, device, root, path, options, tags
/// up to a hyphen, and the type of the file system. None for a mount that is no network namespace.
fn mounted(line: &[u8]) -> Option<(u64, PathBuf)> {
    let mut words = line.split(|&byte| byte == b' ');
    let inode = inode(words.nth(3)?)?;
    let path = unescape(words.next()?);
    words.find(|word| *word == b"-")?;
    (words.next()? == b"nsfs").then_some((inode, path))
}

/// A path as it was before the kernel wrote a space as `\040` (`mangle` in `fs/proc_namespace.c`).
fn unescape(path: &[u8]) -> PathBuf {
    let mut plain = Vec::new();
    let mut rest = path;
    while let Some((&first, behind)) = rest.split_first() {
        let escaped = behind.first_chunk().copied().and_then(octal);
        let escaped = escaped.filter(|_| first == b'\\');
        plain.push(escaped.unwrap_or(first));
        rest = if escaped.is_some() {
            &behind[3..]
        } else {
            behind
        };
    }
    OsString::from_vec(plain).into()
}

fn octal(digits: [u8; 3]) -> Option<u8> {
    let mut value: u8 = 0;
    for digit in digits {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 8)?;
        value = value.checked_mul(8)?.checked_add(digit)?;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const MOUNTS: &[u8] = b"\
22 1 0:21 / /proc rw,relatime shared:5 - proc proc rw
30 22 0:4 net:[4026532285] /run/netns/hostnet-none rw shared:9 - nsfs nsfs rw
31 22 0:4 net:[4026532285] /run/docker/netns/3\\040\\134\\303\\244 rw - nsfs nsfs rw
32 22 0:4 mnt:[4026532999] /run/snapd/ns/lxd.mnt rw - nsfs nsfs rw
33 22 0:5 net:[4026532777] /a/file/of/that/name rw - ext4 /dev/sda1 rw
34 22 0:5 net:[4026532777] /cut/off rw
35 22 0:5 net:[x] /run/netns/b rw - nsfs nsfs rw
36";

    #[test]
    fn mounts_of_network_namespaces_are_read() {
        let lines = MOUNTS.split(|&byte| byte == b'\n');
        let mounts: Vec<_> = lines.filter_map(mounted).collect();
        let expected = [
            (4_026_532_285, "/run/netns/hostnet-none".into()),
            (4_026_532_285, "/run/docker/netns/3 \\ä".into()),
        ];
        assert_eq!(mounts, expected);
    }

    #[test]
    fn a_namespace_has_the_names_of_its_mounts() {
        let mut found = BTreeMap::new();
        add_mounts(&mut found, MOUNTS);
        add_mounts(&mut found, MOUNTS);
        let namespace = &found[&4_026_532_285];
        assert_eq!(namespace.names, ["3 \\ä", "hostnet-none"]);
        assert_eq!(namespace.path, Path::new(""), "nothing is mounted there");
        for end in 0..MOUNTS.len() {
            add_mounts(&mut BTreeMap::new(), &MOUNTS[..end]);
        }
    }

    #[test]
    fn escapes_that_are_none_stay() {
        for path in ["\\", "\\04", "\\08x", "\\400", "\\x40", "a\\"] {
            assert_eq!(unescape(path.as_bytes()), Path::new(path));
        }
        assert_eq!(unescape(b"\\012\\011"), Path::new("\n\t"));
    }

    #[test]
    fn a_namespace_keeps_its_lowest_processes() {
        let mut namespace = Namespace::default();
        for pid in 4_000_000_000..4_000_000_100 {
            namespace.add_process(pid, format!("/proc/{pid}/ns/net").into());
        }
        assert_eq!(namespace.processes.len(), MAX_PROCESSES);
        assert_eq!(namespace.path, Path::new("/proc/4000000000/ns/net"));
    }
}
