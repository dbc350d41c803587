//! SHA-256 of executables.

use super::filesystem;
use crate::turns::{Turn, Turns};
use rustix::fs::{Mode, OFlags, Stat, fstat, open};
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Most bytes of an executable: about a second of one CPU without SHA instructions.
const MOST_BYTES: u64 = 512 << 20;

/// Most hashes that are kept.
const MOST_KEPT: usize = 1024;

/// A file whose last change is younger could change again within the same tick of its timestamps.
const SETTLED: Duration = Duration::from_secs(2);

/// Bytes after which another user's file has its turn.
const SLICE: u64 = 8 << 20;

/// One file is read at a time, so that users whom the policy may not even know get a part of one CPU.
static READERS: Turns<u32> = Turns::new(1, 1);

/// A file and its last change: device, inode, size, mtime and ctime. Nobody can set the ctime, and a
/// program that runs cannot be written to.
#[derive(PartialEq, Eq, Hash)]
struct Key([i128; 7]);

static KEPT: LazyLock<Mutex<HashMap<Key, [u8; 32]>>> = LazyLock::new(Mutex::default);

/// The hash of a file opened with `O_PATH`, the executable of a user's process.
pub(super) fn sha256(file: BorrowedFd<'_>, pid: u32, uid: u32) -> io::Result<[u8; 32]> {
    // Before the file is asked for anything: who serves it may never answer.
    if filesystem::is_fuse(file, pid)? {
        return Err(io::Error::other(
            "it is on a FUSE filesystem, whose owner can show everyone other bytes",
        ));
    }
    let before = fstat(file)?;
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(hash) = kept.get(&key(&before)) {
        return Ok(*hash);
    }
    // Others need not wait for this file.
    drop(kept);
    let now = SystemTime::now();
    let hash = read(file, before.st_size as u64, uid)?;
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

fn read(file: BorrowedFd<'_>, size: u64, uid: u32) -> io::Result<[u8; 32]> {
    if size > MOST_BYTES {
        return Err(io::Error::other("it has more than 512 MiB"));
    }
    // The same file, whatever is at its path now.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut file = File::from(file).take(size + 1);
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 17];
    while add_slice(&READERS.take(uid, 0), &mut file, &mut buffer, &mut hasher)? {}
    Ok(hasher.finalize().into())
}

/// Reads a slice, in a turn; false at the end of the file.
fn add_slice(
    _turn: &Turn<'_, u32>,
    file: &mut impl Read,
    buffer: &mut [u8],
    hasher: &mut Sha256,
) -> io::Result<bool> {
    let mut slice = file.take(SLICE);
    while slice.limit() > 0 {
        let count = slice.read(buffer)?;
        if count == 0 {
            return Ok(false);
        }
        hasher.update(buffer.get(..count).unwrap_or_default());
    }
    Ok(true)
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
