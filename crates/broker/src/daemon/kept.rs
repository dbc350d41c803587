//! Who the processes of the sessions are, in files of the state directory, for the next broker.
//!
//! The service manager keeps the listener, whose name has the tenant and the number of the session. The file of that
//! number has what the policy asks of a process, so that a policy that has changed holds for it, too.

use crate::identity::Kept;
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The directory of these files.
#[derive(Debug)]
pub(super) struct KeptSessions(PathBuf);

impl KeptSessions {
    pub(super) fn new(state: &Path) -> Self {
        Self(state.join("sessions"))
    }

    /// Notes the process of a session.
    pub(super) fn write(&self, session: u64, process: &Kept) -> Result<()> {
        let path = self.path(session);
        fs::create_dir_all(&self.0)?;
        fs::write(&path, serde_json::to_vec(process)?)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// A session has ended.
    pub(super) fn remove(&self, session: u64) {
        // One that stays belongs to no listener, and the next broker removes it.
        let _ = fs::remove_file(self.path(session));
    }

    /// The processes of the former broker's sessions; none for a file that cannot be read.
    pub(super) fn read(&self) -> BTreeMap<u64, Option<Kept>> {
        let files = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let kept = files.filter_map(|file| {
            let session = file.file_name().to_str()?.parse().ok()?;
            let text = fs::read(file.path()).ok();
            Some((
                session,
                text.and_then(|text| serde_json::from_slice(&text).ok()),
            ))
        });
        kept.collect()
    }

    fn path(&self, session: u64) -> PathBuf {
        self.0.join(session.to_string())
    }
}
