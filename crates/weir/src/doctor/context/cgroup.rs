//! Control groups with a CPU limit (cgroups(7)).

use super::files::Files;

/// The hierarchy of version 2, and where the CPU controller of version 1 is mounted.
const ROOTS: [&str; 3] = [
    "/sys/fs/cgroup",
    "/sys/fs/cgroup/cpu",
    "/sys/fs/cgroup/cpu,cpuacct",
];
/// More groups than any host has; a look must end.
const MOST: usize = 10_000;

/// The directories of all groups with a quota.
pub fn limited(files: &Files) -> Vec<String> {
    let mut limited = below(files, root(files).unwrap_or_default());
    limited.retain(|group| is_limited(files, group));
    limited
}

/// The processes of a group and of those below it.
pub fn processes(files: &Files, group: &str) -> Vec<u32> {
    let lists = below(files, group).into_iter().filter_map(|group| {
        // A group may have been removed meanwhile.
        files.read(&format!("{group}/cgroup.procs")).ok()
    });
    lists
        .flat_map(|list| {
            let pids: Vec<u32> = list.lines().filter_map(|pid| pid.parse().ok()).collect();
            pids
        })
        .collect()
}

/// The hierarchy with the CPU controller.
fn root(files: &Files) -> Option<&'static str> {
    let is_root = |root: &&str| {
        let exists = |name: &str| {
            let text = files.read_if_there(&format!("{root}/{name}"));
            text.ok().flatten()
        };
        let controllers = exists("cgroup.controllers").unwrap_or_default();
        controllers.split_whitespace().any(|it| it == "cpu") || exists("cpu.shares").is_some()
    };
    ROOTS.into_iter().find(is_root)
}

/// A group and all groups below it.
fn below(files: &Files, root: &str) -> Vec<String> {
    if root.is_empty() {
        return Vec::new();
    }
    let mut groups = vec![root.to_owned()];
    let mut next = 0;
    while let Some(group) = groups.get(next).filter(|_| groups.len() < MOST).cloned() {
        let names = files.directories(&group).into_iter();
        groups.extend(names.map(|name| format!("{group}/{name}")));
        next += 1;
    }
    groups
}

fn is_limited(files: &Files, group: &str) -> bool {
    let read = |name: &str| {
        let text = files.read_if_there(&format!("{group}/{name}"));
        text.ok().flatten()
    };
    // `max 100000` and -1 are no limit.
    read("cpu.max").is_some_and(|text| !text.starts_with("max"))
        || read("cpu.cfs_quota_us").is_some_and(|text| !text.starts_with('-'))
}
