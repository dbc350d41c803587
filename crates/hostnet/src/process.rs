//! The processes of the host, as /proc shows them (proc(5)).

use std::fs;

use crate::error::{Context as _, Result};

/// The ids of all processes, ascending.
pub(crate) fn ids() -> Result<Vec<u32>> {
    let mut ids = Vec::new();
    for entry in fs::read_dir("/proc").context("cannot read /proc: is it mounted?")? {
        let name = entry.context("cannot read /proc")?.file_name();
        ids.extend(name.to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    ids.sort_unstable();
    Ok(ids)
}
