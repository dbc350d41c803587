//! SHA-256 of executables.

use rustix::fs::{FsWord, Mode, OFlags, Stat, fstat, fstatfs, open};
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Most bytes of an executable: about a second of one CPU without SHA instructions.
const MOST_BYTES: u64 = 512 << 20;

/// Most hashes that are kept.
const MOST_KEPT: usize = 1024;

/// A file whose last change is younger could change again within the same tick of its timestamps.
const SETTLED: Duration = Duration::from_secs(2);

/// `FUSE_SUPER_MAGIC`: the user who mounted it chooses the bytes of each read anew.
const FUSE: FsWord = 0x6573_5546;

/// A file and its last change: device, inode, size, mtime and ctime. Nobody can set the ctime, and a
/// program that runs cannot be written to.
#[derive(PartialEq, Eq, Hash)]
struct Key([i128; 7]);

static KEPT: LazyLock<Mutex<HashMap<Key, [u8; 32]>>> = LazyLock::new(Mutex::default);

/// The hash of a file opened with `O_PATH`.
pub(super) fn sha256(file: BorrowedFd<'_>) -> io::Result<[u8; 32]> {
    let before = fstat(file)?;
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(hash) = kept.get(&key(&before)) {
        return Ok(*hash);
    }
    // Others need not wait for this file.
    drop(kept);
    let now = SystemTime::now();
    let hash = read(file, before.st_size as u64)?;
    if key(&fstat(file)?) != key(&before) {
        return Err(io::Error::other("it is being written"));
    }
    if is_settled(&before, now) {
        kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        kept.insert(key(&before), hash);
    }
    Ok(hash)
}

fn read(file: BorrowedFd<'_>, size: u64) -> io::Result<[u8; 32]> {
    if size > MOST_BYTES {
        return Err(io::Error::other("it has more than 512 MiB"));
    }
    // The same file, whatever is at its path now.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    if fstatfs(&file)?.f_type == FUSE {
        return Err(io::Error::other(
            "it is on a FUSE filesystem, whose owner can show everyone other bytes",
        ));
    }
    let mut file = File::from(file).take(size + 1);
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 17];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(hasher.finalize().into());
        }
        hasher.update(buffer.get(..count).unwrap_or_default());
    }
}

fn key(stat: &Stat) -> Key {
    Key([
        stat.st_dev.into(),
        stat.st_ino.into(),
        stat.st_size.into(),
        stat.st_mtime.into(),
        stat.st_mtime_nsec.into(),
        stat.st_ctime.into(),
        stat.st_ctime_nsec.into(),
    ])
}

fn is_settled(stat: &Stat, now: SystemTime) -> bool {
    let seconds = u64::try_from(stat.st_ctime).ok();
    let changed = seconds.and_then(|it| UNIX_EPOCH.checked_add(Duration::from_secs(it)));
    let age = changed.and_then(|changed| now.duration_since(changed).ok());
    age.is_some_and(|age| age > SETTLED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_that_has_not_changed_for_a_while_is_kept() {
        let file = File::open("/proc/self/exe").expect("it is there");
        let stat = fstat(&file).expect("it is open");
        let changed = UNIX_EPOCH + Duration::from_secs(stat.st_ctime as u64);
        for (millis, expected) in [(0, false), (2000, false), (2001, true), (1 << 30, true)] {
            let now = changed + Duration::from_millis(millis);
            assert_eq!(is_settled(&stat, now), expected, "{millis}");
        }
        let before = changed - Duration::from_secs(10);
        assert!(!is_settled(&stat, before), "the clock was put back");
    }
}
