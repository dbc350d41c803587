//! Static libraries and examples of the crate under test.

use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{fs, io};

use crate::error::{Failure, Result};

/// The static library of this name that cargo has built for this program of tests, in the same directory: the
/// newest, if there are some with other features.
pub fn static_library(name: &str) -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let directory = program.parent().map(std::fs::read_dir);
    let beside = directory.ok_or_else(|| Failure::new("this program has no directory"))??;
    let begin = format!("lib{name}-");
    let is_it = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        let is_archive = path.extension().is_some_and(|extension| extension == "a");
        is_archive && name.is_some_and(|name| name.starts_with(&begin))
    };
    let paths = beside.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let newest = paths
        .filter(is_it)
        .max_by_key(|path| path.metadata().and_then(|it| it.modified()).ok());
    let missing = || Failure::new(format!("cargo has built no {begin}*.a beside this program"));
    Ok(newest.ok_or_else(missing)?)
}

/// The example of this name that cargo has built for this program of tests: `cargo test` builds all of them, `cargo test --test`
/// none. One that is older than its sources is an error.
pub fn example(name: &str) -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let profile = program.parent().and_then(Path::parent);
    let examples = profile.ok_or_else(|| Failure::new("this program has no directory"))?;
    let path = examples.join("examples").join(name);
    let cure = "build it by `cargo test --no-run` with this program's packages and features";
    let Ok(built) = modified(&path) else {
        let words = format!("cargo has not built {}: {cure}", path.display());
        return Err(Failure::new(words).into());
    };
    // Make's form: `PROGRAM: SOURCE SOURCE`.
    let sources = fs::read_to_string(path.with_extension("d"))?;
    let mut sources = sources.split_whitespace().skip(1);
    let changed = sources.find(|source| modified(Path::new(source)).is_ok_and(|it| it > built));
    match changed {
        Some(source) => {
            let words = format!("{} is older than {source}: {cure}", path.display());
            Err(Failure::new(words).into())
        }
        None => Ok(path),
    }
}

fn modified(path: &Path) -> io::Result<SystemTime> {
    fs::metadata(path)?.modified()
}
