//! The file of a policy.

use super::Policy;
use super::diagnostic::Diagnostic;
use super::names::Names;
use super::parse::MOST_BYTES;
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, lstat, open};
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

/// Where the broker looks for its policy.
pub const DEFAULT_PATH: &str = "/etc/weir/broker.toml";

/// The permission of all to write, and that of the group.
const WRITE_BY_OTHERS: u32 = 0o022;
/// Only the owner of a file may rename it or remove it from such a directory.
const STICKY: u32 = 0o1000;

/// Why a policy was not loaded.
#[derive(Debug)]
pub enum LoadError {
    /// It cannot be read.
    Unreadable(PathBuf, std::io::Error),
    /// Somebody else could write it: who, and the cure.
    Insecure(PathBuf, String),
    /// It has faults.
    Invalid(PathBuf, Vec<Diagnostic>),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path, error) => {
                write!(f, "cannot read the policy {}: {error}", path.display())
            }
            Self::Insecure(path, why) => {
                write!(f, "the policy {} is not used: {why}", path.display())
            }
            Self::Invalid(path, errors) => {
                let file = path.display().to_string();
                let all = errors.iter().map(|error| error.render(&file, ""));
                f.write_str(all.collect::<String>().trim_end())
            }
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreadable(_, error) => Some(error),
            _ => None,
        }
    }
}

impl Policy {
    /// Reads the policy of a file that nobody can write but root and this process's user.
    ///
    /// # Errors
    ///
    /// When it cannot be read, when somebody else could change it, and when it has faults: all of them.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let unreadable = |error| LoadError::Unreadable(path.into(), error);
        // Not to wait for the other end of a pipe.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = open(path, flags, Mode::empty()).map_err(|error| unreadable(error.into()))?;
        let file = File::from(file);
        if let Some(why) = insecure(&file).map_err(unreadable)? {
            return Err(LoadError::Insecure(path.into(), why));
        }
        let mut text = Vec::new();
        // One byte more shows that it is too long.
        let most = MOST_BYTES as u64 + 1;
        file.take(most).read_to_end(&mut text).map_err(unreadable)?;
        let checked = Self::check(&text, &Names::of_host());
        let invalid = |errors| LoadError::Invalid(path.into(), errors);
        checked.policy.map_err(invalid)
    }
}

/// Who else could change an open file, or put another one in its place; none if nobody can.
///
/// # Errors
///
/// When its attributes or those of the directories above it cannot be read.
pub fn insecure(file: &File) -> std::io::Result<Option<String>> {
    let stat = fstat(file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(Some("it is no regular file".into()));
    }
    // The path without symbolic links; the kernel knows it, and no one can change it on the way.
    let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    if let Some(who) = others(&stat) {
        let path = path.display();
        return Ok(Some(format!(
            "{who}; run `chown root {path}` and `chmod go-w {path}`"
        )));
    }
    for directory in path.ancestors().skip(1) {
        let stat = lstat(directory)?;
        if stat.st_mode & STICKY != 0 && is_trusted(stat.st_uid) {
            continue;
        }
        if let Some(who) = others(&stat) {
            let directory = directory.display();
            return Ok(Some(format!(
                "of its directory {directory}: {who}; run `chown root {directory}` and `chmod go-w {directory}`"
            )));
        }
    }
    Ok(None)
}

fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// Who may write it, besides root and this process's user.
fn others(stat: &Stat) -> Option<String> {
    let (uid, gid) = (stat.st_uid, stat.st_gid);
    if !is_trusted(uid) {
        return Some(format!("uid {uid} owns it and may write it"));
    }
    match stat.st_mode & WRITE_BY_OTHERS {
        0 => None,
        0o020 => Some(format!("group {gid} may write it")),
        _ => Some("everyone may write it".into()),
    }
}
