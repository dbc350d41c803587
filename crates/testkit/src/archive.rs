//! Static libraries of the crate under test.

use std::path::PathBuf;

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
