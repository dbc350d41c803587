//! The mounts of this process, as /proc shows them.

/// The mounts of this process's mount namespace, one a line: `device directory type options 0 0`.
pub const MOUNTS: &str = "/proc/self/mounts";

/// The type of the last mount, and so the topmost, at a path; and the line of [`MOUNTS`] that
/// says so.
pub fn top_mount<'a>(mounts: &'a str, path: &str) -> Option<(&'a str, &'a str)> {
    mounts.lines().rev().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let at = words.next()?;
        let kind = words.next()?;
        (at == path).then_some((kind, line))
    })
}

#[cfg(test)]
mod tests {
    use super::top_mount;

    #[test]
    fn what_is_on_top_counts() {
        let mounts =
            "none /a bpf rw,mode=700 0 0\ntmpfs /a tmpfs rw 0 0\nbpf /run/bpf bpf rw 0 0\n";
        let kind = |path| top_mount(mounts, path).map(|(kind, _)| kind);
        assert_eq!(kind("/a"), Some("tmpfs"));
        assert_eq!(kind("/run/bpf"), Some("bpf"));
        assert_eq!(kind("/run"), None);
        assert_eq!(top_mount("x", "/a"), None);
    }
}
