//! The leases in a file, for the broker that starts after this one.
//!
//! One JSON object a line: `{"lease":{…}}` for each that began, `{"end":ID}` for each that ended. A line that was
//! cut off, by a crash or a full disk, does not count. Not synchronised to the disk: no lease outlives
//! a crash of the machine.

use super::record::{LeaseId, Record};
use anyhow::{Context as _, Result, anyhow};
use hostnet::privilege::{FileStep, file_note};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Lines behind which a journal is written anew.
const MOST_LINES: usize = 10_000;

/// The journal of a state directory, locked: one broker at a time has it.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    lines: usize,
    /// Whether the last line may have been cut off.
    is_cut: bool,
    live: BTreeMap<LeaseId, Record>,
    _lock: File,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    Boot(String),
    Lease(Box<Record>),
    End(LeaseId),
}

impl Journal {
    /// Opens the journal of a state directory; returns also the leases that it has.
    pub(super) fn open(directory: &Path) -> Result<(Self, BTreeMap<LeaseId, Record>)> {
        let shown = directory.display();
        let make = |path: &Path, mode| {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(mode)
                .create(path)
        };
        // Users find the sockets in one above.
        let above = directory
            .parent()
            .map_or(Ok(()), |above| make(above, 0o755));
        above
            .and_then(|()| make(directory, 0o700))
            .map_err(|error| {
                let why = file_note(&error, directory, FileStep::Write);
                anyhow!(error).context(format!(
                    "cannot make the state directory {shown}{why} (--state gives another)"
                ))
            })?;
        let lock = private(
            &directory.join("lock"),
            OpenOptions::new().create(true).write(true).truncate(false),
        )
        .with_context(|| format!("cannot open {shown}/lock"))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).with_context(|| {
            format!("another weir-broker has the state directory {shown}: end it, or give another with --state")
        })?;
        let path = directory.join("journal");
        let live = match fs::read_to_string(&path) {
            Ok(text) => read(&text, &boot()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        let file = write_anew(&path, &live)?;
        let journal = Self {
            path,
            file,
            lines: live.len(),
            is_cut: false,
            live: live.clone(),
            _lock: lock,
        };
        Ok((journal, live))
    }

    /// Notes a lease that has begun.
    pub(super) fn begin(&mut self, lease: &Record) -> Result<()> {
        self.live.insert(lease.id, lease.clone());
        self.append(&Line::Lease(Box::new(lease.clone())))
    }

    /// Notes the end of a lease.
    pub(super) fn end(&mut self, id: LeaseId) -> Result<()> {
        self.live.remove(&id);
        self.append(&Line::End(id))
    }

    fn append(&mut self, line: &Line) -> Result<()> {
        if self.lines > MOST_LINES + 2 * self.live.len() {
            self.file = write_anew(&self.path, &self.live)?;
            self.lines = self.live.len();
            self.is_cut = false;
            return Ok(());
        }
        self.lines += 1;
        let failed = || format!("cannot write to {}", self.path.display());
        let mut text = encode(line)?;
        if self.is_cut {
            // The next one would be a part of it.
            text.insert(0, b'\n');
        }
        let written = self.file.write_all(&text);
        self.is_cut = written.is_err();
        written.with_context(failed)
    }
}

fn private(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    options
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}

fn encode(line: &Line) -> Result<Vec<u8>> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    Ok(text)
}

/// Writes the leases to a new file, which takes the place of the former one at once.
fn write_anew(path: &Path, live: &BTreeMap<LeaseId, Record>) -> Result<File> {
    let temporary = path.with_extension("new");
    let failed = || format!("cannot write {}", temporary.display());
    let mut file = private(
        &temporary,
        OpenOptions::new().create(true).write(true).truncate(true),
    )
    .with_context(failed)?;
    let mut text = encode(&Line::Boot(boot()))?;
    for lease in live.values() {
        text.extend(encode(&Line::Lease(Box::new(lease.clone())))?);
    }
    file.write_all(&text).with_context(failed)?;
    fs::rename(&temporary, path).with_context(failed)?;
    Ok(file)
}

/// The leases of a journal; none of one from before the last boot, whose inodes mean nothing.
fn read(text: &str, boot: &str) -> BTreeMap<LeaseId, Record> {
    let mut live = BTreeMap::new();
    let mut lines = text.lines().map(serde_json::from_str::<Line>);
    if !matches!(lines.next(), Some(Ok(Line::Boot(then))) if then == boot) {
        return live;
    }
    for line in lines.flatten() {
        match line {
            Line::Lease(lease) => drop(live.insert(lease.id, *lease)),
            Line::End(id) => drop(live.remove(&id)),
            Line::Boot(_) => {}
        }
    }
    live
}

fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::SystemTime;

    fn lease(id: u64) -> Record {
        Record {
            id: LeaseId(id),
            tenant: "t".into(),
            device: "d".into(),
            ifindex: 1,
            queue: id as u32,
            whole_device: false,
            rx: true,
            tx: false,
            mode: String::new(),
            memory: 1,
            filter: Vec::new(),
            kill: false,
            inode: 5,
            pid: 1,
            uid: 1,
            since: SystemTime::UNIX_EPOCH,
        }
    }

    /// As /run/weir is for /run/weir/broker, on a machine on which no broker ran yet.
    #[test]
    fn its_directory_is_private_and_those_above_are_not() {
        let above = directory("above");
        drop(Journal::open(&above.join("weir/broker")).expect("directories"));
        let modes = ["", "weir", "weir/broker"].map(|path| {
            let found = fs::metadata(above.join(path)).expect("it is there");
            found.permissions().mode() & 0o777
        });
        assert_eq!(modes, [0o755, 0o755, 0o700]);
        fs::remove_dir_all(above).expect("they go");
    }

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("weir-journal-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn what_did_not_end_is_there_again() {
        let path = directory("again");
        let (mut journal, live) = Journal::open(&path).expect("a directory");
        assert!(live.is_empty());
        for id in 1..=3 {
            journal.begin(&lease(id)).expect("a line");
        }
        journal.end(LeaseId(2)).expect("a line");
        let error = Journal::open(&path).expect_err("it is locked");
        assert!(
            error.to_string().contains("another weir-broker"),
            "{error:#}"
        );
        drop(journal);
        let mut text = fs::read_to_string(path.join("journal")).expect("the file");
        text.push_str("{\"end\":1");
        fs::write(path.join("journal"), text).expect("a cut line");
        let (_journal, live) = Journal::open(&path).expect("a directory");
        assert_eq!(
            live.keys().copied().collect::<Vec<_>>(),
            [LeaseId(1), LeaseId(3)]
        );
        fs::remove_dir_all(path).expect("removed");
    }

    /// The file is one that can take no byte; then one that takes them again.
    #[test]
    fn a_line_after_one_that_was_cut_off_counts() {
        let path = directory("cut");
        let (mut journal, _) = Journal::open(&path).expect("a directory");
        journal.begin(&lease(1)).expect("a line");
        let full = OpenOptions::new().write(true).open("/dev/full");
        let good = std::mem::replace(&mut journal.file, full.expect("it is there"));
        journal.begin(&lease(2)).expect_err("it is full");
        journal.file = good;
        // As much of the line as there was room for.
        journal
            .file
            .write_all(b"{\"lease\":{\"id\":2")
            .expect("room");
        journal.begin(&lease(3)).expect("a line");
        journal.end(LeaseId(1)).expect("a line");
        drop(journal);
        let (_journal, live) = Journal::open(&path).expect("a directory");
        assert_eq!(live.keys().copied().collect::<Vec<_>>(), [LeaseId(3)]);
        fs::remove_dir_all(path).expect("removed");
    }

    #[test]
    fn another_boot_has_no_leases() {
        let text = format!(
            "{}{}",
            "{\"boot\":\"a\"}\n",
            String::from_utf8(encode(&Line::Lease(Box::new(lease(1)))).expect("a line"))
                .expect("text")
        );
        assert_eq!(read(&text, "a").len(), 1);
        assert_eq!(read(&text, "b").len(), 0);
        assert_eq!(read("nonsense\n", "b").len(), 0);
    }
}
