//! The memory that the process's control groups allow it (cgroups(7)).

use std::fs;
use std::path::{Path, PathBuf};

/// The limit of a control group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Memory of all its processes together.
    pub bytes: u64,
    /// The file that has it.
    pub file: PathBuf,
}

/// Where a hierarchy with memory limits is mounted, the controllers in its line of /proc/self/cgroup, and the file with
/// a group's limit.
const HIERARCHIES: [(&str, &str, &str); 3] = [
    ("/sys/fs/cgroup", "", "memory.max"),
    ("/sys/fs/cgroup/unified", "", "memory.max"),
    ("/sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes"),
];

/// The least limit of the process's control groups, of both versions; none if no group has one. The kernel kills a
/// process that goes beyond it.
///
/// ```
/// if let Some(limit) = hostnet::cgroup::memory_limit() {
///     println!("{} bytes, by {}", limit.bytes, limit.file.display());
/// }
/// ```
pub fn memory_limit() -> Option<MemoryLimit> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let limits = HIERARCHIES.iter().filter_map(|(root, controllers, file)| {
        let group = group_of(&groups, controllers)?;
        least(Path::new(root), Path::new(group), file)
    });
    limits.min_by_key(|limit| limit.bytes)
}

/// The path of the group in the hierarchy of these controllers: a line has a number, they and the path.
fn group_of<'a>(groups: &'a str, controllers: &str) -> Option<&'a str> {
    groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        (parts.next()? == controllers).then(|| parts.next())?
    })
}

/// The least limit of a group and those above it, up to the root of the mount. (In a container the path may be one of the
/// host, of which the root is all that is there.)
fn least(root: &Path, group: &Path, file: &str) -> Option<MemoryLimit> {
    let group = group.strip_prefix("/").ok()?;
    let limits = group.ancestors().filter_map(|group| {
        let file = root.join(group).join(file);
        let bytes = fs::read_to_string(&file).ok()?.trim().parse().ok()?;
        Some(MemoryLimit { bytes, file })
    });
    limits.min_by_key(|limit| limit.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "4:memory:/service/a:b\n1:name=systemd:/\n0::/user\n";

    #[test]
    fn a_group_is_found_by_its_controllers() {
        assert_eq!(group_of(HYBRID, "memory"), Some("/service/a:b"));
        assert_eq!(group_of(HYBRID, ""), Some("/user"));
        assert_eq!(group_of("0::/user\n", "memory"), None);
    }

    #[test]
    fn the_least_limit_above_a_group_counts() {
        let root = std::env::temp_dir().join(format!("hostnet-cgroup-{}", std::process::id()));
        let write = |group: &str, text: &str| {
            let group = root.join(group);
            fs::create_dir_all(&group).unwrap();
            fs::write(group.join("memory.max"), text).unwrap();
        };
        write("a/b", "max\n");
        write("a", "6291456\n");
        write("", "99999999\n");
        let limit = least(&root, Path::new("/a/b/gone"), "memory.max").unwrap();
        assert_eq!(
            (limit.bytes, limit.file),
            (6_291_456, root.join("a/memory.max"))
        );
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(least(&root, Path::new("/a"), "memory.max"), None);
    }
}
