//! The files that the broker uses.

use super::needs::Needs;
use crate::policy::PROGRAMS;
use landlock::{ABI, Access as _, AccessFs, BitFlags};
use std::path::{Path, PathBuf};

/// Kind of access to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
    Execute,
    Device,
}

impl Access {
    pub(super) fn rights(self, abi: ABI) -> BitFlags<AccessFs> {
        let read = AccessFs::from_read(abi) & !AccessFs::Execute;
        match self {
            Self::Read => read,
            Self::Write => {
                let never = AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock;
                AccessFs::from_all(abi) & !never
            }
            Self::Execute => AccessFs::from_read(abi),
            Self::Device => read | AccessFs::WriteFile | AccessFs::IoctlDev,
        }
    }
}

/// The files that the broker uses while it runs. Those that do not exist are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Paths {
    read: Vec<PathBuf>,
    write: Vec<PathBuf>,
    execute: Vec<PathBuf>,
    devices: Vec<PathBuf>,
}

impl Paths {
    /// The paths of the kernel's file systems, and those that the grants of a policy need.
    pub fn new(needs: &Needs) -> Self {
        let mut paths = Self::default()
            .write("/proc")
            .read("/sys")
            .write("/sys/fs/bpf")
            // Names in a policy that is reloaded. A list that is replaced is seen after a restart.
            .read("/etc/passwd")
            .read("/etc/group");
        paths = match (needs.kill || needs.fuse, needs.supervision) {
            (true, _) => paths.write("/sys/fs/cgroup"),
            (false, true) => paths.read("/sys/fs/cgroup"),
            (false, false) => paths,
        };
        if needs.devices {
            for name in ["null", "zero", "full", "random", "urandom", "tty"] {
                paths.devices.push(Path::new("/dev").join(name));
            }
        }
        if needs.fuse {
            paths.devices.push("/dev/fuse".into());
            // Their input and output.
            if !needs.devices {
                paths.devices.push("/dev/null".into());
            }
            // The programs and their libraries.
            paths.execute.extend(PROGRAMS.map(PathBuf::from));
            paths = paths.read("/etc/ld.so.cache");
        }
        paths
    }

    /// Adds a file or directory that is read, such as the policy's directory.
    #[must_use]
    pub fn read(mut self, path: impl Into<PathBuf>) -> Self {
        self.read.push(path.into());
        self
    }

    /// Adds a file or directory that is written, such as those of the state and of the sockets.
    #[must_use]
    pub fn write(mut self, path: impl Into<PathBuf>) -> Self {
        self.write.push(path.into());
        self
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&Path, Access)> {
        let with = |access| move |path| (PathBuf::as_path(path), access);
        let read = self.read.iter().map(with(Access::Read));
        let write = self.write.iter().map(with(Access::Write));
        let execute = self.execute.iter().map(with(Access::Execute));
        let devices = self.devices.iter().map(with(Access::Device));
        read.chain(write).chain(execute).chain(devices)
    }
}
