//! The journal of `--fix`: each change and its undo, on disk before the change is made.
//!
//! The file is replaced before a step is applied and again after, so the journal has every step
//! that may have been applied, whenever this process ends.

use std::fs;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use hostnet::privilege::{self, FileStep};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use super::step::Step;

/// The directory of weir's state, unless `WEIR_STATE_DIR` is set.
const STATE_DIR: &str = "/var/lib/weir";
const VERSION: u32 = 1;
/// The largest journal that is read.
const MAX_BYTES: u64 = 4 << 20;

/// The boot and the network namespace of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The boot id: settings of an earlier boot may be gone.
    pub boot: String,
    /// The number of the network namespace.
    pub netns: u64,
    /// Whether that is the initial namespace.
    pub initial: bool,
}

/// A step that was applied, or about to be applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The id of the check.
    pub check: String,
    /// The subject of the finding.
    pub subject: String,
    /// The time in UTC (RFC 3339).
    pub time: String,
    /// The boot and the network namespace.
    #[serde(flatten)]
    pub place: Place,
    /// The step.
    pub step: Step,
    /// The state after the step; none if it is unknown whether the step was applied.
    pub set: Option<String>,
}

/// The action of `--undo` for an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undo {
    /// None: the old state is there.
    AlreadyBack,
    /// None: the setting ended with its boot.
    Gone,
    /// Undo the step.
    Restore,
    /// None from here: the setting belongs to another namespace.
    Elsewhere,
    /// None without `--force`: the setting was changed since, to this value.
    Changed(String),
}

impl Entry {
    /// The action in the place `here`, where `read` returns the state now.
    pub fn action(&self, here: &Place, read: impl FnOnce() -> Result<String>) -> Result<Undo> {
        if self.step.is_of_a_namespace() && !self.place.is_same_namespace(here) {
            let gone = self.place.boot != here.boot && !self.place.initial;
            return Ok(if gone { Undo::Gone } else { Undo::Elsewhere });
        }
        // A mount or the like does not survive a reboot.
        if !self.step.is_of_a_namespace() && self.place.boot != here.boot && !self.step.is_write() {
            return Ok(Undo::Gone);
        }
        let now = read()?;
        Ok(if now == self.step.old() {
            Undo::AlreadyBack
        } else if self.set.as_ref().is_none_or(|set| *set == now) {
            Undo::Restore
        } else {
            Undo::Changed(now)
        })
    }
}

impl Place {
    fn is_same_namespace(&self, other: &Self) -> bool {
        if self.initial || other.initial {
            return self.initial == other.initial;
        }
        self.boot == other.boot && self.netns == other.netns
    }
}

#[derive(Serialize, Deserialize)]
struct Text {
    version: u32,
    entries: Vec<Entry>,
}

/// The journal, locked against other processes.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    entries: Vec<Entry>,
    _lock: Lock,
}

/// A locked file.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing is not enough while a forked child has the file open. It cannot fail.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl Journal {
    /// Opens the journal of this host; it is empty if there is none.
    pub fn open() -> Result<Self> {
        let state = std::env::var_os("WEIR_STATE_DIR").filter(|dir| !dir.is_empty());
        let state = state.map_or_else(|| STATE_DIR.into(), PathBuf::from);
        Self::open_in(&state.join("doctor"))
    }

    /// Opens the journal of a directory, which is created if missing.
    pub fn open_in(directory: &Path) -> Result<Self> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|error| {
                let why = privilege::file_note(&error, directory, FileStep::Write);
                let shown = directory.display();
                anyhow!(error).context(format!(
                    "cannot create {shown} for the journal{why} (WEIR_STATE_DIR names another)"
                ))
            })?;
        check_owner(directory)?;
        let lock = lock(&directory.join("lock"))?;
        let path = directory.join("journal.json");
        let entries = load(&path)?;
        Ok(Self {
            path,
            entries,
            _lock: lock,
        })
    }

    /// Its entries, oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a step before it is applied.
    pub fn begin(&mut self, entry: Entry) -> Result<()> {
        self.entries.push(entry);
        self.save()
    }

    /// Marks the last step as applied, with the state afterwards.
    pub fn done(&mut self, set: String) -> Result<()> {
        if let Some(entry) = self.entries.last_mut() {
            entry.set = Some(set);
        }
        self.save()
    }

    /// Removes an entry.
    pub fn remove(&mut self, index: usize) -> Result<()> {
        self.entries.remove(index);
        self.save()
    }

    fn save(&self) -> Result<()> {
        let text = Text {
            version: VERSION,
            entries: self.entries.clone(),
        };
        replace(&self.path, &serde_json::to_vec_pretty(&text)?)
            .with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// `--undo` runs the commands of the journal: only its user may have written them.
fn check_owner(directory: &Path) -> Result<()> {
    let about =
        fs::metadata(directory).with_context(|| format!("cannot stat {}", directory.display()))?;
    ensure!(
        about.uid() == geteuid().as_raw() && about.mode() & 0o022 == 0,
        "{} is writable by others, whose commands --undo would run: fix it with chown and chmod go-w",
        directory.display()
    );
    Ok(())
}

fn lock(path: &Path) -> Result<Lock> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Lock(file)),
        Err(Errno::WOULDBLOCK) => bail!(
            "another `weir doctor` is changing settings: wait for its end; `fuser {}` prints its pid",
            path.display()
        ),
        Err(errno) => Err(errno).with_context(|| format!("cannot lock {}", path.display())),
    }
}

fn load(path: &Path) -> Result<Vec<Entry>> {
    let size = match fs::metadata(path) {
        Ok(about) => about.len(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let cure = || {
        format!(
            "cannot parse {}: restore the settings in it by hand, then move it away",
            path.display()
        )
    };
    ensure!(size <= MAX_BYTES, "{}: it is too large", cure());
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let text: Text = serde_json::from_slice(&bytes).with_context(cure)?;
    ensure!(
        text.version == VERSION,
        "{}: its version is {}, and this weir supports {VERSION}",
        cure(),
        text.version
    );
    Ok(text.entries)
}

/// Replaces a file atomically.
fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let new = path.with_extension("new");
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let directory = path.parent().context("the path has no directory")?;
    File::open(directory)?.sync_all()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::step::Read;

    fn place(boot: &str, netns: u64) -> Place {
        Place {
            boot: boot.into(),
            netns,
            initial: netns == 1,
        }
    }

    fn entry(path: &str, place: Place, set: Option<&str>) -> Entry {
        Entry {
            check: "x".into(),
            subject: "host".into(),
            time: "2026-01-01T00:00:00Z".into(),
            place,
            step: Step::write(path, "old", "new"),
            set: set.map(String::from),
        }
    }

    const IN_NETNS: &str = "/proc/sys/net/x";
    const OF_HOST: &str = "/proc/sys/vm/x";

    fn action(entry: &Entry, here: &Place, now: &str) -> Undo {
        entry.action(here, || Ok(now.into())).expect("it was read")
    }

    #[test]
    fn a_setting_that_nobody_else_changed_is_restored() {
        let here = place("a", 7);
        let done = entry(IN_NETNS, here.clone(), Some("new"));
        assert_eq!(action(&done, &here, "new"), Undo::Restore);
        assert_eq!(action(&done, &here, "old"), Undo::AlreadyBack);
        assert_eq!(action(&done, &here, "other"), Undo::Changed("other".into()));
    }

    #[test]
    fn a_step_that_may_not_have_been_applied_is_judged_by_the_setting() {
        let here = place("a", 7);
        let begun = entry(IN_NETNS, here.clone(), None);
        assert_eq!(action(&begun, &here, "old"), Undo::AlreadyBack);
        assert_eq!(action(&begun, &here, "new"), Undo::Restore);
    }

    #[test]
    fn a_setting_of_another_namespace_is_kept() {
        let unread = || -> Result<String> { bail!("the setting was read") };
        let there = entry(IN_NETNS, place("a", 7), Some("new"));
        let action_at = |here: Place| there.action(&here, unread).expect("nothing was read");
        assert_eq!(action_at(place("a", 8)), Undo::Elsewhere);
        assert_eq!(action_at(place("a", 1)), Undo::Elsewhere);
        assert_eq!(action_at(place("b", 7)), Undo::Gone);
        // One of the whole host can be restored from anywhere.
        let host = entry(OF_HOST, place("a", 7), Some("new"));
        assert_eq!(action(&host, &place("a", 8), "new"), Undo::Restore);
    }

    #[test]
    fn a_setting_that_survived_a_reboot_is_restored() {
        let set = entry(IN_NETNS, place("a", 1), Some("new"));
        let mut here = place("b", 1);
        here.netns = 2;
        assert_eq!(action(&set, &here, "new"), Undo::Restore);
        assert_eq!(action(&set, &here, "old"), Undo::AlreadyBack);
    }

    #[test]
    fn a_mount_does_not_survive_a_reboot() {
        let unread = || -> Result<String> { bail!("it was read") };
        let mut mounted = entry(OF_HOST, place("a", 1), Some("bpf"));
        mounted.step = Step::Run {
            apply: vec!["mount".into()],
            undo: vec!["umount".into()],
            read: Read::of_host("stat", ""),
            old: "none".into(),
        };
        let action_at = |here: Place| mounted.action(&here, unread).ok();
        assert_eq!(action_at(place("b", 1)), Some(Undo::Gone));
        assert_eq!(action_at(place("a", 1)), None);
    }

    struct Directory(PathBuf);

    impl Directory {
        fn new(test: &str) -> Self {
            let name = format!("weir-journal-{test}-{}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn it_persists() -> Result<()> {
        let directory = Directory::new("kept");
        let mut journal = Journal::open_in(&directory.0)?;
        assert!(journal.entries().is_empty());
        let begun = entry(OF_HOST, place("a", 7), None);
        journal.begin(begun.clone())?;
        drop(journal);
        let mut journal = Journal::open_in(&directory.0)?;
        assert_eq!(journal.entries(), [begun]);
        journal.done("new".into())?;
        drop(journal);
        let mut journal = Journal::open_in(&directory.0)?;
        assert_eq!(journal.entries()[0].set.as_deref(), Some("new"));
        journal.remove(0)?;
        drop(journal);
        assert!(Journal::open_in(&directory.0)?.entries().is_empty());
        Ok(())
    }

    fn refusal(directory: &Directory) -> String {
        let error = Journal::open_in(&directory.0).expect_err("it was opened");
        format!("{error:#}")
    }

    #[test]
    fn it_is_locked() -> Result<()> {
        let directory = Directory::new("lock");
        let first = Journal::open_in(&directory.0)?;
        assert!(refusal(&directory).contains("another `weir doctor`"));
        drop(first);
        Journal::open_in(&directory.0)?;
        Ok(())
    }

    #[test]
    fn a_directory_writable_by_others_is_refused() -> Result<()> {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = Directory::new("owner");
        fs::create_dir(&directory.0)?;
        fs::set_permissions(&directory.0, fs::Permissions::from_mode(0o777))?;
        assert!(refusal(&directory).contains("chmod"));
        Ok(())
    }

    #[test]
    fn a_file_that_is_no_journal_is_refused() -> Result<()> {
        let directory = Directory::new("broken");
        drop(Journal::open_in(&directory.0)?);
        for text in ["", "{", "[]", r#"{"version":9,"entries":[]}"#] {
            fs::write(directory.0.join("journal.json"), text)?;
            assert!(refusal(&directory).contains("by hand"), "{text}");
        }
        Ok(())
    }
}
