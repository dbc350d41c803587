//! The baseline: a C loop on libxdp, a separate program embedded in this binary.
//!
//! It is not linked in, because libxdp depends on the distribution's libbpf, which would clash
//! with the pinned one that `weir` is linked with.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use rustix::fs::{MemfdFlags, SealFlags};

#[cfg(libxdp)]
const PROGRAM: Option<&[u8]> = Some(include_bytes!(env!("WEIR_LIBXDP_LOOP")));
#[cfg(not(libxdp))]
const PROGRAM: Option<&[u8]> = None;

/// Whether `weir` was built with libxdp.
pub fn available() -> bool {
    PROGRAM.is_some()
}

/// The program in memory, ready to be executed for as long as this lives.
#[derive(Debug)]
pub struct Program {
    memory: OwnedFd,
}

impl Program {
    /// Puts the program into a sealed memfd.
    pub fn new() -> io::Result<Self> {
        let bytes = PROGRAM.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::Unsupported,
                "weir was built without libxdp: install libxdp-dev (libxdp-devel) and build again",
            )
        })?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = rustix::fs::memfd_create("weir-libxdp-loop", flags)?;
        let mut file = File::from(memory);
        file.write_all(bytes)?;
        let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        Ok(Self {
            memory: file.into(),
        })
    }

    /// A path for [`Command::new`]; needs /proc. It is valid in a child between fork and exec, too.
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.memory.as_raw_fd()).into()
    }

    /// Replaces this process by the program. Returns only if that fails.
    pub fn exec(
        &self,
        arguments: impl IntoIterator<Item = impl AsRef<std::ffi::OsStr>>,
    ) -> io::Result<Infallible> {
        Err(Command::new(self.path())
            .arg0("weir-libxdp-loop")
            .args(arguments)
            .exec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_runs_from_memory() {
        if !available() {
            assert!(Program::new().is_err());
            return;
        }
        let program = Program::new().expect("a memfd");
        let output = Command::new(program.path()).output().expect("executes");
        assert_eq!(output.status.code(), Some(1));
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(stdout.contains(r#""event":"failed""#), "{stdout}");
    }
}
