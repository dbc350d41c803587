//! The filesystem of a file, without asking that filesystem.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Most bytes of a list of mounts.
const MOST_BYTES: u64 = 4 << 20;

/// Whether a file, the executable of a process, is on a FUSE filesystem: the user who mounted it chooses the
/// bytes of each read, and whether a call returns.
///
/// # Errors
///
/// When neither the process nor process 1 has the mount, as after a lazy unmount.
pub(super) fn is_fuse(file: BorrowedFd<'_>, pid: u32) -> io::Result<bool> {
    let info = read(&format!("/proc/self/fdinfo/{}", file.as_raw_fd()))?;
    let id = info
        .lines()
        .find_map(|line| line.strip_prefix("mnt_id:"))
        .ok_or_else(|| io::Error::other("the kernel does not show the mounts of files"))?;
    // The id is of this very mount in any list, for as long as the file is open.
    let lists = [format!("/proc/{pid}/mountinfo"), "/proc/1/mountinfo".into()];
    let kind = lists.iter().find_map(|list| {
        let mounts = read(list).ok()?;
        kind(&mounts, id.trim()).map(str::to_owned)
    });
    let kind = kind.ok_or_else(|| {
        io::Error::other("its mount is in no list of mounts: start it where it is mounted")
    })?;
    Ok(kind == "fuseblk" || kind.split('.').next() == Some("fuse"))
}

/// The type of a mount: the word after the hyphen that ends its optional fields (`proc_pid_mountinfo(5)`).
fn kind<'m>(mounts: &'m str, id: &str) -> Option<&'m str> {
    let line = mounts
        .lines()
        .find(|line| line.split(' ').next() == Some(id))?;
    line.split_once(" - ")?.1.split(' ').next()
}

fn read(path: &str) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;

    #[test]
    fn the_type_is_that_of_the_mount() {
        let mounts = "36 35 98:0 / /a\\040-\\040b rw,noatime master:1 - ext3 /dev/root rw\n\
                      6 35 0:5 / /b rw - fuse.sshfs - rw\n";
        assert_eq!(kind(mounts, "36"), Some("ext3"));
        assert_eq!(kind(mounts, "6"), Some("fuse.sshfs"));
        assert_eq!(kind(mounts, "3"), None);
    }

    #[test]
    fn this_programs_file_is_found() {
        let file = File::open("/proc/self/exe").expect("it is there");
        assert!(!is_fuse(file.as_fd(), std::process::id()).expect("its mount is listed"));
        let pipe = rustix::pipe::pipe().expect("a pipe").0;
        is_fuse(pipe.as_fd(), std::process::id()).expect_err("no list has it");
    }
}
