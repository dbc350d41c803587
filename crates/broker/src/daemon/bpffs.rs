//! The BPF filesystem, on which programs outlive a restart of their daemon.

use super::log::event;
use anyhow::{Context as _, Result};
use rustix::fs::statfs;
use rustix::mount::{MountFlags, mount};
use serde_json::json;
use std::path::{Path, PathBuf};

/// `BPF_FS_MAGIC` (`include/uapi/linux/magic.h`).
const MAGIC: i64 = 0xcafe_4a11;

/// The BPF filesystem. One that was mounted for this stays: the broker's view of the mounts is its own
/// when it ends, and the switch's programs outlive it.
#[derive(Debug)]
pub struct Bpffs {
    path: PathBuf,
    is_new: bool,
}

impl Bpffs {
    /// Mounts a BPF filesystem where there is none.
    ///
    /// # Errors
    ///
    /// Where nothing can be mounted there.
    pub fn new(path: &Path) -> Result<Self> {
        let shown = path.display();
        let there = statfs(path).with_context(|| {
            format!("{shown} cannot be looked at: mount sysfs, or give a directory with --bpffs")
        })?;
        if there.f_type != MAGIC {
            // A tenant finds its pinned map by the name alone; each file has its own mode.
            let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
            mount("bpf", path, "bpf", flags, Some(c"mode=0711"))
                .with_context(|| format!("cannot mount a BPF filesystem on {shown}"))?;
            event(
                "mount",
                json!({"filesystem": "bpf", "on": shown.to_string()}),
            );
        }
        Ok(Self {
            path: path.into(),
            is_new: there.f_type != MAGIC,
        })
    }

    /// Whether it was mounted for this.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// The directory of a part of weir.
    pub fn directory(&self, part: &str) -> PathBuf {
        self.path.join("weir").join(part)
    }
}
