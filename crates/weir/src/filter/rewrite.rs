//! A file whose contents are replaced at once.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Replaces the contents of a file that exists: whoever reads it meanwhile has the old ones or the new
/// ones. Mode and owner stay. Through a link, its target is replaced.
///
/// # Errors
///
/// When its directory is not writable, or its owner could not be kept. The file is as before then.
pub fn rewrite(path: &Path, contents: &str) -> Result<()> {
    let cannot = || format!("cannot rewrite {}", path.display());
    let path = fs::canonicalize(path).with_context(cannot)?;
    let temporary = temporary(&path);
    let result = write(&path, &temporary, contents);
    if result.is_err() {
        // It may not have come into being.
        let _ = fs::remove_file(&temporary);
    }
    result.with_context(cannot)
}

/// In the same directory, so that it can be renamed.
fn temporary(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}", std::process::id()))
}

fn write(path: &Path, temporary: &Path, contents: &str) -> io::Result<()> {
    let old = fs::metadata(path)?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(temporary)?;
    file.write_all(contents.as_bytes())?;
    let new = file.metadata()?;
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
        fchown(&file, Some(old.uid()), Some(old.gid()))?;
    }
    file.set_permissions(Permissions::from_mode(old.mode() & 0o7777))?;
    file.sync_all()?;
    fs::rename(temporary, path)?;
    // The name is on disk when its directory is.
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn mode_and_link_stay() {
        let folder = std::env::temp_dir().join(format!("weir-rewrite-{}", std::process::id()));
        fs::create_dir(&folder).expect("a new directory");
        let (file, link) = (folder.join("pf.conf"), folder.join("link"));
        fs::write(&file, "old").expect("is written");
        fs::set_permissions(&file, Permissions::from_mode(0o640)).expect("is ours");
        symlink("pf.conf", &link).expect("a link");
        rewrite(&link, "new").expect("is rewritten");
        assert_eq!(fs::read_to_string(&file).expect("is there"), "new");
        assert_eq!(
            fs::metadata(&file).expect("is there").mode() & 0o7777,
            0o640
        );
        assert!(link.is_symlink());
        assert_eq!(fs::read_dir(&folder).expect("a directory").count(), 2);
        assert!(rewrite(&folder.join("missing"), "new").is_err());
        fs::remove_dir_all(folder).expect("is removed");
    }
}
