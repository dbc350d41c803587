//! Directories of tests.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// An empty directory, which goes with this value.
#[derive(Debug)]
pub struct Temporary(PathBuf);

impl Temporary {
    /// Makes a directory that no other test uses, with `name` in its name.
    pub fn new(name: &str) -> io::Result<Self> {
        Self::below(&std::env::temp_dir(), name)
    }

    /// The same below another directory than that of temporary files.
    pub fn below(parent: &Path, name: &str) -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-{name}-{}-{number}", std::process::id());
        let path = parent.join(name);
        fs::create_dir(&path)?;
        Ok(Self(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A file in it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
