//! The limits of a control group, version 1 or 2.

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

use super::caller::read_all;

/// Limits and usage of a caller's control group, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Most memory.
    pub limit: Option<u64>,
    /// Memory in use, with the page cache.
    pub used: u64,
    /// Page cache.
    pub cache: u64,
    /// Shared memory.
    pub shared: u64,
    /// Most swap.
    pub swap_limit: Option<u64>,
    /// Swap in use.
    pub swap_used: u64,
    /// Threads.
    pub threads: Option<u64>,
}

/// The mounted hierarchies of control groups.
#[derive(Debug, Default)]
pub struct Hierarchies {
    /// Version 2.
    unified: Option<OwnedFd>,
    /// Version 1.
    memory: Option<OwnedFd>,
    pids: Option<OwnedFd>,
}

/// A version-1 limit that is none: the kernel shows `LONG_MAX`, rounded down to whole pages of whatever size.
const UNLIMITED: u64 = 1 << 60;

impl Hierarchies {
    /// Finds them.
    pub fn find() -> Self {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let open = |kind: &str, controller: &str| {
            let path = mounts
                .lines()
                .find_map(|line| mount_point(line, kind, controller))?;
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(path, flags, Mode::empty()).ok()
        };
        Self {
            unified: open("cgroup2", ""),
            memory: open("cgroup", "memory"),
            pids: open("cgroup", "pids"),
        }
    }

    /// The files of the groups that a `/proc/TID/cgroup` names, as far as the kernel opens them: a process that writes
    /// `0` to each joins the groups.
    pub fn doors(&self, groups: &str) -> Vec<OwnedFd> {
        let hierarchies = [
            (&self.unified, ""),
            (&self.memory, "memory"),
            (&self.pids, "pids"),
        ];
        let doors = hierarchies.into_iter().filter_map(|(root, controller)| {
            let path = group(groups, controller)?;
            open(root.as_ref()?, path, "cgroup.procs", OFlags::WRONLY).ok()
        });
        doors.collect()
    }

    /// The usage of the groups that a `/proc/TID/cgroup` names. Without a memory controller there is
    /// no limit.
    pub fn usage(&self, groups: &str) -> Usage {
        let mut usage = Usage::default();
        if let (Some(root), Some(path)) = (&self.memory, group(groups, "memory")) {
            usage = memory_1(root, path);
        } else if let (Some(root), Some(path)) = (&self.unified, group(groups, "")) {
            usage = memory_2(root, path);
        }
        usage.threads = [(&self.pids, "pids"), (&self.unified, "")]
            .into_iter()
            .filter_map(|(root, controller)| Some((root.as_ref()?, group(groups, controller)?)))
            .find_map(|(root, path)| number(root, path, "pids.current"));
        usage
    }
}

/// The mount point of a line of mountinfo, where it has this type, and this controller if any.
fn mount_point<'a>(line: &'a str, kind: &str, controller: &str) -> Option<&'a str> {
    let (mount, filesystem) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3);
    let (root, point) = (mount.next()?, mount.next()?);
    let mut filesystem = filesystem.split(' ');
    let (found, options) = (filesystem.next()?, filesystem.nth(1)?);
    let has = controller.is_empty() || options.split(',').any(|option| option == controller);
    (root == "/" && found == kind && has).then_some(point)
}

/// The path of a controller's group; that of version 2 has no controller.
fn group<'a>(groups: &'a str, controller: &str) -> Option<&'a str> {
    groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let matches = controllers.split(',').any(|found| found == controller);
        matches.then_some(path)
    })
}

fn open(root: &OwnedFd, group: &str, file: &str, access: OFlags) -> Result<OwnedFd, Errno> {
    let path = format!("{}/{file}", group.trim_start_matches('/'));
    let path = path.trim_start_matches('/');
    let flags = access | OFlags::CLOEXEC;
    openat2(root, path, flags, Mode::empty(), ResolveFlags::BENEATH)
}

fn read(root: &OwnedFd, group: &str, file: &str) -> Result<String, Errno> {
    read_all(open(root, group, file, OFlags::RDONLY)?)
}

/// A file's number; `max` is none.
fn number(root: &OwnedFd, group: &str, file: &str) -> Option<u64> {
    read(root, group, file).ok()?.trim().parse().ok()
}

/// A line of `memory.stat`.
fn stat(stat: &str, name: &str) -> Option<u64> {
    let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
    let (_, value) = lines.find(|(key, _)| *key == name)?;
    value.parse().ok()
}

fn memory_1(root: &OwnedFd, path: &str) -> Usage {
    let lines = read(root, path, "memory.stat").unwrap_or_default();
    let limited = |name| stat(&lines, name).filter(|limit| *limit < UNLIMITED);
    let limit = limited("hierarchical_memory_limit");
    let both = limited("hierarchical_memsw_limit");
    let used = number(root, path, "memory.usage_in_bytes").unwrap_or(0);
    let both_used = number(root, path, "memory.memsw.usage_in_bytes");
    Usage {
        limit,
        used,
        cache: stat(&lines, "total_cache").unwrap_or(0),
        shared: stat(&lines, "total_shmem").unwrap_or(0),
        swap_limit: both.map(|both| both.saturating_sub(limit.unwrap_or(0))),
        swap_used: both_used.map_or(0, |both| both.saturating_sub(used)),
        threads: None,
    }
}

/// The limits of version 2 hold for all groups below: the least of them counts, and the usage of that
/// group.
fn memory_2(root: &OwnedFd, path: &str) -> Usage {
    let mut usage = Usage::default();
    let mut group = path;
    let mut tightest = path;
    while !group.is_empty() && group != "/" {
        if let Some(limit) = number(root, group, "memory.max")
            && usage.limit.is_none_or(|least| limit < least)
        {
            usage.limit = Some(limit);
            tightest = group;
        }
        if let Some(limit) = number(root, group, "memory.swap.max") {
            usage.swap_limit = Some(usage.swap_limit.map_or(limit, |least| least.min(limit)));
        }
        group = group.rsplit_once('/').map_or("", |(parent, _)| parent);
    }
    let lines = read(root, tightest, "memory.stat").unwrap_or_default();
    usage.used = number(root, tightest, "memory.current").unwrap_or(0);
    usage.cache = stat(&lines, "file").unwrap_or(0);
    usage.shared = stat(&lines, "shmem").unwrap_or(0);
    usage.swap_used = number(root, tightest, "memory.swap.current").unwrap_or(0);
    usage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_type_and_controller() {
        let unified = "41 32 0:36 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";
        let memory = "38 32 0:33 / /sys/fs/cgroup/memory rw shared:3 - cgroup cgroup rw,memory";
        let below = "38 32 0:33 /a /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory";
        let point = mount_point;
        assert_eq!(
            point(unified, "cgroup2", ""),
            Some("/sys/fs/cgroup/unified")
        );
        assert_eq!(
            point(memory, "cgroup", "memory"),
            Some("/sys/fs/cgroup/memory")
        );
        assert_eq!(point(memory, "cgroup", "pids"), None);
        assert_eq!(point(memory, "cgroup2", ""), None);
        assert_eq!(point(below, "cgroup", "memory"), None);
    }

    #[test]
    fn groups_are_found_by_controller() {
        let groups = "9:name=systemd:/s\n4:cpu,memory:/a:b\n0::/unified\n";
        assert_eq!(group(groups, "memory"), Some("/a:b"));
        assert_eq!(group(groups, ""), Some("/unified"));
        assert_eq!(group(groups, "pids"), None);
    }

    /// A version-2 hierarchy of plain files.
    #[test]
    fn the_least_limit_on_the_way_up_counts_with_its_usage() {
        let root = std::env::temp_dir().join(format!("weir-cgroup-{}", std::process::id()));
        let write = |file: &str, text: &str| {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            std::fs::write(path, text).expect("a file");
        };
        write("pod/memory.max", "1000\n");
        write("pod/memory.current", "400\n");
        write("pod/memory.swap.max", "max\n");
        write("pod/memory.stat", "anon 1\nfile 30\nshmem 20\n");
        write("pod/box/memory.max", "max\n");
        write("pod/box/memory.current", "7\n");
        write("pod/box/memory.swap.max", "50\n");
        write("pod/box/pids.current", "3\n");
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let hierarchies = Hierarchies {
            unified: rustix::fs::open(&root, flags, Mode::empty()).ok(),
            ..Hierarchies::default()
        };
        let usage = hierarchies.usage("0::/pod/box\n");
        let none = hierarchies.usage("0::/../pod\n");
        std::fs::remove_dir_all(&root).expect("removed");
        let expected = Usage {
            limit: Some(1000),
            used: 400,
            cache: 30,
            shared: 20,
            swap_limit: Some(50),
            swap_used: 0,
            threads: Some(3),
        };
        assert_eq!(usage, expected);
        assert_eq!(none, Usage::default());
    }
}
