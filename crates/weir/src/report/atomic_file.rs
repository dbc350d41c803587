//! A report file: complete or absent.

use std::fs;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

/// A file to be written later.
#[derive(Debug)]
pub struct ReportFile {
    path: PathBuf,
}

impl ReportFile {
    /// Makes sure that `path` can be written later. `replace` allows it to exist.
    pub fn prepare(path: &Path, replace: bool) -> Result<Self> {
        exists(path, replace)?;
        let file = Self { path: path.into() };
        // Removed again: a file left now would stay after `kill -9`.
        let temporary = file.temporary()?;
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&temporary)
            .with_context(|| cannot_write(path))?;
        fs::remove_file(&temporary).with_context(|| cannot_write(path))?;
        Ok(file)
    }

    /// Writes it under another name first, so that it is never seen half written.
    pub fn write(&self, contents: &str) -> Result<()> {
        let temporary = self.temporary()?;
        let result = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&temporary)
            .and_then(|mut file| file.write_all(contents.as_bytes()))
            .and_then(|()| fs::rename(&temporary, &self.path));
        if result.is_err() {
            // It may not have come into being.
            let _ = fs::remove_file(&temporary);
        }
        result.with_context(|| cannot_write(&self.path))
    }

    /// In the same directory, so that it can be renamed.
    fn temporary(&self) -> Result<PathBuf> {
        let Some(name) = self.path.file_name() else {
            bail!("{} is not the name of a file", self.path.display());
        };
        let name = format!(".{}.{}", name.to_string_lossy(), std::process::id());
        Ok(self.path.with_file_name(name))
    }
}

/// Whether a file is there, which `replace` allows.
///
/// # Errors
///
/// For anything else than a regular file. A link is not followed: the link itself would be replaced, even
/// `/dev/stdout`.
pub fn exists(path: &Path, replace: bool) -> Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(found) => {
            ensure!(
                found.is_file(),
                "{} exists and is not a regular file: choose another path",
                path.display()
            );
            ensure!(
                replace,
                "{} exists: choose another path, or replace it with --force",
                path.display()
            );
            Ok(true)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| cannot_write(path)),
    }
}

/// The message of a file that cannot be written.
pub fn cannot_write(path: &Path) -> String {
    format!(
        "cannot write {}: does its directory exist, and is it writable?",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
        fs::create_dir(&path).expect("a new directory");
        path
    }

    #[test]
    fn a_file_appears_only_when_it_is_whole() {
        let directory = directory("file");
        let path = directory.join("a.html");
        let file = ReportFile::prepare(&path, false).expect("can be written");
        assert_eq!(fs::read_dir(&directory).expect("a directory").count(), 0);
        file.write("whole").expect("is written");
        assert_eq!(fs::read_to_string(&path).expect("is there"), "whole");
        assert_eq!(fs::read_dir(&directory).expect("a directory").count(), 1);

        assert!(ReportFile::prepare(&path, false).is_err());
        let file = ReportFile::prepare(&path, true).expect("may be replaced");
        file.write("again").expect("is written");
        assert_eq!(fs::read_to_string(&path).expect("is there"), "again");
        let link = directory.join("link");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        assert!(
            ReportFile::prepare(&link, true).is_err(),
            "a link would be replaced"
        );
        fs::remove_dir_all(directory).expect("is removed");
    }

    #[test]
    fn what_cannot_be_written_is_refused_before() {
        for path in ["/nonexistent/a.html", "/dev/null", "/", ""] {
            assert!(
                ReportFile::prepare(Path::new(path), true).is_err(),
                "{path}"
            );
        }
    }
}
