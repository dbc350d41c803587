//! What `--fix` has changed and how to take it back, on disk before it is done.
//!
//! An entry is written before its step is taken and again after, each time whole: to a new
//! file that replaces the old one. So whenever this process ends, the journal has every step
//! that may have been taken.

use std::fs;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use super::fix::Step;

/// Where weir keeps its state unless `WEIR_STATE_DIR` says otherwise.
const STATE_DIR: &str = "/var/lib/weir";
const VERSION: u32 = 1;
/// More than any host's settings, and little enough to be read at once.
const MAX_BYTES: u64 = 4 << 20;

/// Where and when a step was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The boot: a setting of an earlier one may be gone.
    pub boot: String,
    /// The number of the network namespace.
    pub netns: u64,
    /// Whether that is the one that the host started with.
    pub initial: bool,
}

/// A step that was taken, or that was about to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The check that asked for it.
    pub check: String,
    /// What it was wrong with.
    pub subject: String,
    /// When, in UTC, as in RFC 3339.
    pub time: String,
    /// Where.
    #[serde(flatten)]
    pub place: Place,
    /// The step.
    pub step: Step,
    /// What could be read afterwards; none if it is not known whether the step was taken.
    pub set: Option<String>,
}

/// What is to be done about an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undo {
    /// Nothing: it is as it was.
    AlreadyBack,
    /// Nothing: it went with an earlier boot.
    Gone,
    /// Take the step back.
    Restore,
    /// Nothing from here: it is a setting of another namespace.
    Elsewhere,
    /// Nothing without being forced: somebody has changed it since, to this.
    Changed(String),
}

impl Entry {
    /// What is to be done about it in a place where `read` gives the setting now.
    pub fn judge(&self, here: &Place, read: impl FnOnce() -> Result<String>) -> Result<Undo> {
        if self.step.is_of_a_namespace() && !self.place.is_same_namespace(here) {
            let gone = self.place.boot != here.boot && !self.place.initial;
            return Ok(if gone { Undo::Gone } else { Undo::Elsewhere });
        }
        // What a command has made, such as a mount, is not the same one after a reboot.
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

/// The journal, while no other process may change it.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    entries: Vec<Entry>,
    _lock: Lock,
}

/// A file that is locked by this process.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing it is not enough while a child that was just forked has it open too. That it
        // cannot fail is all there is to be known.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl Journal {
    /// Opens the journal of this host, an empty one if there is none.
    pub fn open() -> Result<Self> {
        let state = std::env::var_os("WEIR_STATE_DIR").filter(|dir| !dir.is_empty());
        let state = state.map_or_else(|| STATE_DIR.into(), PathBuf::from);
        Self::open_in(&state.join("doctor"))
    }

    /// Opens the journal of a directory, which is made if it is not there.
    pub fn open_in(directory: &Path) -> Result<Self> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .with_context(|| {
                format!(
                    "cannot make {}, where what was changed is noted: run as root, or set WEIR_STATE_DIR",
                    directory.display()
                )
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

    /// What is in it, oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Notes a step that is about to be taken.
    pub fn begin(&mut self, entry: Entry) -> Result<()> {
        self.entries.push(entry);
        self.save()
    }

    /// Notes that the last step was taken, and what could be read afterwards.
    pub fn done(&mut self, set: String) -> Result<()> {
        if let Some(entry) = self.entries.last_mut() {
            entry.set = Some(set);
        }
        self.save()
    }

    /// Forgets an entry.
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

/// Its commands are run by whoever undoes: nobody else may have written them.
fn check_owner(directory: &Path) -> Result<()> {
    let about = fs::metadata(directory)
        .with_context(|| format!("cannot look at {}", directory.display()))?;
    ensure!(
        about.uid() == geteuid().as_raw() && about.mode() & 0o022 == 0,
        "{} may be written by others, who could have any command run: make it yours with chown and chmod go-w",
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
            "another `weir doctor` is changing settings: wait until it is done; `fuser {}` tells its process",
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
            "cannot understand {}: restore by hand what it names, then move it away",
            path.display()
        )
    };
    ensure!(size <= MAX_BYTES, "{}: it is too large", cure());
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let text: Text = serde_json::from_slice(&bytes).with_context(cure)?;
    ensure!(
        text.version == VERSION,
        "{}: it is of version {}, and this weir knows {VERSION}",
        cure(),
        text.version
    );
    Ok(text.entries)
}

/// Replaces a file by another at once: whoever reads finds the one or the other.
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
    let directory = path.parent().context("it has no directory")?;
    File::open(directory)?.sync_all()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Read;

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
            step: Step::Write {
                path: path.into(),
                old: "old".into(),
                new: "new".into(),
            },
            set: set.map(String::from),
        }
    }

    const IN_NETNS: &str = "/proc/sys/net/x";
    const OF_HOST: &str = "/proc/sys/vm/x";

    fn judged(entry: &Entry, here: &Place, now: &str) -> Undo {
        entry.judge(here, || Ok(now.into())).expect("it was read")
    }

    #[test]
    fn a_step_is_taken_back_if_its_setting_is_still_ours() {
        let here = place("a", 7);
        let done = entry(IN_NETNS, here.clone(), Some("new"));
        assert_eq!(judged(&done, &here, "new"), Undo::Restore);
        assert_eq!(judged(&done, &here, "old"), Undo::AlreadyBack);
        assert_eq!(judged(&done, &here, "other"), Undo::Changed("other".into()));
    }

    #[test]
    fn a_step_that_may_not_have_been_taken_is_judged_by_its_setting() {
        let here = place("a", 7);
        let begun = entry(IN_NETNS, here.clone(), None);
        assert_eq!(judged(&begun, &here, "old"), Undo::AlreadyBack);
        assert_eq!(judged(&begun, &here, "new"), Undo::Restore);
    }

    #[test]
    fn a_setting_of_another_namespace_is_left() {
        let unread = || -> Result<String> { bail!("the setting of this one was read") };
        let there = entry(IN_NETNS, place("a", 7), Some("new"));
        let judge = |here: Place| there.judge(&here, unread).expect("nothing was read");
        assert_eq!(judge(place("a", 8)), Undo::Elsewhere);
        assert_eq!(judge(place("a", 1)), Undo::Elsewhere);
        assert_eq!(judge(place("b", 7)), Undo::Gone);
        // One of the whole host can be restored from anywhere.
        let host = entry(OF_HOST, place("a", 7), Some("new"));
        assert_eq!(judged(&host, &place("a", 8), "new"), Undo::Restore);
    }

    #[test]
    fn after_a_reboot_what_persisted_is_restored() {
        let set = entry(IN_NETNS, place("a", 1), Some("new"));
        let mut here = place("b", 1);
        here.netns = 2;
        assert_eq!(judged(&set, &here, "new"), Undo::Restore);
        assert_eq!(judged(&set, &here, "old"), Undo::AlreadyBack);
    }

    #[test]
    fn after_a_reboot_a_mount_is_another() {
        let unread = || -> Result<String> { bail!("it was read") };
        let mut mounted = entry(OF_HOST, place("a", 1), Some("bpf"));
        mounted.step = Step::Run {
            apply: vec!["mount".into()],
            undo: vec!["umount".into()],
            read: Read::of_host(&["stat"], ""),
            old: "none".into(),
        };
        let judge = |here: Place| mounted.judge(&here, unread).ok();
        assert_eq!(judge(place("b", 1)), Some(Undo::Gone));
        assert_eq!(judge(place("a", 1)), None);
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
    fn it_is_kept() -> Result<()> {
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
    fn only_one_has_it_at_a_time() -> Result<()> {
        let directory = Directory::new("lock");
        let first = Journal::open_in(&directory.0)?;
        assert!(refusal(&directory).contains("another `weir doctor`"));
        drop(first);
        Journal::open_in(&directory.0)?;
        Ok(())
    }

    #[test]
    fn what_others_may_have_written_is_refused() -> Result<()> {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = Directory::new("owner");
        fs::create_dir(&directory.0)?;
        fs::set_permissions(&directory.0, fs::Permissions::from_mode(0o777))?;
        assert!(refusal(&directory).contains("chmod"));
        Ok(())
    }

    #[test]
    fn what_is_no_journal_is_said() -> Result<()> {
        let directory = Directory::new("broken");
        drop(Journal::open_in(&directory.0)?);
        for text in ["", "{", "[]", r#"{"version":9,"entries":[]}"#] {
            fs::write(directory.0.join("journal.json"), text)?;
            assert!(refusal(&directory).contains("by hand"), "{text}");
        }
        Ok(())
    }
}
