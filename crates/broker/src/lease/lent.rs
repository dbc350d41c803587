//! The memory of leases until nobody keeps a part of it: it is charged to the broker, and counts as its
//! tenant's for that long.
//!
//! A tenant gets an open file description of its own, which it cannot open a second time: the file has no
//! permission. The close of that one, which inotify(7) reports, ends all of its descriptors and mappings.
//! Pages can be kept without either, in pipes for instance (vmsplice(2)) or pinned for devices. Sealing the
//! file against writes fails while any page is (`memfd_wait_for_pins`, `mm/memfd.c`): so a seal is the proof
//! that nothing is left. A tenant that has set this seal itself, or the one against seals, has made the proof
//! impossible, and its memory counts for good. So does a page that has left the file (a hole punched, or a page
//! moved elsewhere) while it may be in use: the kernel reports the change of a file, also if it is filled again.

use super::record::LeaseId;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{Mode, OFlags, SealFlags, fchmod, fcntl_add_seals, fcntl_get_seals, fstat, open};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Time until memory that is still in use is looked at again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Time for the kernel to release the pages of a closed socket, and for the broker's own mapping to go.
const RELEASE: Duration = Duration::from_millis(20);

/// The memory of all leases.
#[derive(Debug)]
pub(super) struct Lent {
    all: Arc<All>,
    /// Wakes the thread that looks: the kernel waits some time for pages in use.
    looker: OnceLock<Sender<()>>,
}

#[derive(Debug)]
struct All {
    memories: Mutex<BTreeMap<LeaseId, Memory>>,
    /// Reports the first change of each file by other means than a mapping.
    changes: OwnedFd,
}

/// The memory of a lease.
#[derive(Debug)]
struct Memory {
    tenant: String,
    bytes: u64,
    /// Its watch for changes.
    watch: i32,
    /// Blocks of the file when it was lent.
    blocks: i64,
    /// The broker's own descriptor: with it, the memory is there until it is looked at.
    file: Arc<OwnedFd>,
    /// Whether the tenant has no descriptor and mapping of it any more.
    is_closed: bool,
    /// Whether the lease has ended: before, the socket has pinned all pages.
    has_ended: bool,
    /// Looks at which it was in use; none once a proof is impossible.
    looks: Option<u32>,
}

/// The result of a look.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    Free,
    InUse,
    Unprovable,
}

/// A tenant's descriptor of memory: the only one that is ever opened.
///
/// # Errors
///
/// Those of open(2).
pub(super) fn open_for_tenant(memory: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

/// Lets nobody open the memory again.
///
/// # Errors
///
/// Those of fchmod(2).
pub(super) fn close_to_others(memory: BorrowedFd<'_>) -> Result<(), Errno> {
    fchmod(memory, Mode::empty())
}

impl Lent {
    /// None yet.
    ///
    /// # Errors
    ///
    /// Those of inotify(7).
    pub(super) fn new() -> Result<Self, Errno> {
        let changes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let memories = Mutex::default();
        Ok(Self {
            all: Arc::new(All { memories, changes }),
            looker: OnceLock::new(),
        })
    }

    /// Counts the memory of a lease, which the tenant does not have yet.
    ///
    /// # Errors
    ///
    /// Those of inotify(7) and fstat(2).
    pub(super) fn begin(
        &self,
        id: LeaseId,
        tenant: &str,
        bytes: u64,
        file: OwnedFd,
    ) -> Result<(), Errno> {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        // One event of a file: no tenant fills the queue.
        let change = WatchFlags::MODIFY | WatchFlags::ONESHOT;
        let memory = Memory {
            tenant: tenant.to_owned(),
            bytes,
            watch: inotify::add_watch(&self.all.changes, path, change)?,
            blocks: fstat(&file)?.st_blocks,
            file: Arc::new(file),
            is_closed: false,
            has_ended: false,
            looks: Some(0),
        };
        self.all.lock().insert(id, memory);
        Ok(())
    }

    /// Notes that a tenant's descriptors and mappings are closed.
    pub(super) fn closed(&self, id: LeaseId) {
        self.change(id, |memory| memory.is_closed = true);
    }

    /// Notes the end of a lease.
    pub(super) fn ended(&self, id: LeaseId) {
        self.change(id, |memory| memory.has_ended = true);
    }

    /// Number and bytes of the memories of a tenant whose leases have ended.
    pub(super) fn kept(&self, tenant: &str) -> (usize, u64) {
        let all = self.all.lock();
        let kept = all
            .values()
            .filter(|it| it.has_ended && it.tenant == tenant);
        kept.fold((0, 0), |(count, bytes), it| (count + 1, bytes + it.bytes))
    }

    /// Looks at a tenant's memory now, at most until some is found in use.
    pub(super) fn look(&self, tenant: &str) {
        self.all.look(|memory| memory.tenant == tenant);
    }

    fn change(&self, id: LeaseId, change: impl FnOnce(&mut Memory)) {
        let mut all = self.all.lock();
        let Some(memory) = all.get_mut(&id) else {
            return;
        };
        change(memory);
        if memory.is_due() {
            drop(all);
            // Without the thread, it is looked at when the tenant asks for more.
            let _ = self.looker.get_or_init(|| start(&self.all)).send(());
        }
    }
}

impl All {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<LeaseId, Memory>> {
        // Each change is one step.
        self.memories.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at what is due, of each tenant at most until some is in use: that takes the kernel a while.
    fn look(&self, wanted: impl Fn(&Memory) -> bool) {
        self.read_changes();
        let all = self.lock();
        let due = all.iter().filter(|(_, it)| it.is_due() && wanted(it));
        let mut due: Vec<_> = due
            .map(|(&id, it)| {
                (
                    it.looks,
                    id,
                    it.tenant.clone(),
                    Arc::clone(&it.file),
                    it.blocks,
                )
            })
            .collect();
        drop(all);
        due.sort_by_key(|&(looks, id, ..)| (looks, id));
        let mut busy = BTreeSet::new();
        for (_, id, tenant, file, blocks) in due {
            if busy.contains(&tenant) {
                continue;
            }
            let look = look(file.as_fd(), blocks);
            let mut all = self.lock();
            let Some(memory) = all.get_mut(&id) else {
                continue;
            };
            match look {
                Look::Free => drop(all.remove(&id)),
                Look::Unprovable => memory.looks = None,
                Look::InUse => {
                    memory.looks = memory.looks.map(|looks| looks.saturating_add(1));
                    busy.insert(tenant);
                }
            }
        }
    }

    /// What was changed counts for good.
    fn read_changes(&self) {
        let mut all = self.lock();
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.changes, &mut buffer);
        // The descriptor does not block: the end is an error.
        while let Ok(event) = reader.next() {
            if !event.events().contains(inotify::ReadFlags::MODIFY) {
                continue;
            }
            for memory in all.values_mut().filter(|it| it.watch == event.wd()) {
                memory.looks = None;
            }
        }
    }

    fn is_due(&self) -> bool {
        self.lock().values().any(Memory::is_due)
    }
}

impl Memory {
    fn is_due(&self) -> bool {
        self.is_closed && self.has_ended && self.looks.is_some()
    }
}

/// Whether a page of a file, of which no one else has a descriptor, is in use.
fn look(file: BorrowedFd<'_>, blocks: i64) -> Look {
    if fstat(file).map_or(true, |stat| stat.st_blocks < blocks) {
        return Look::Unprovable;
    }
    match fcntl_get_seals(file) {
        Ok(seals) if !seals.intersects(SealFlags::WRITE | SealFlags::SEAL) => {}
        _ => return Look::Unprovable,
    }
    match fcntl_add_seals(file, SealFlags::WRITE) {
        Ok(()) => Look::Free,
        Err(Errno::BUSY | Errno::INTR) => Look::InUse,
        Err(_) => Look::Unprovable,
    }
}

/// Starts the thread that looks.
fn start(all: &Arc<All>) -> Sender<()> {
    let (sender, woken) = channel();
    let all = Arc::clone(all);
    let _ = std::thread::Builder::new()
        .name("memory".into())
        .stack_size(128 << 10)
        .spawn(move || {
            while wait(&woken, all.is_due()) {
                std::thread::sleep(RELEASE);
                all.look(|_| true);
            }
        });
    sender
}

/// Waits until there is something to look at; false at the end.
fn wait(woken: &Receiver<()>, is_due: bool) -> bool {
    let result = if is_due {
        woken.recv_timeout(RETRY_INTERVAL)
    } else {
        woken.recv().map_err(RecvTimeoutError::from)
    };
    woken.try_iter().for_each(drop);
    result != Err(RecvTimeoutError::Disconnected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use rustix::pipe::pipe;
    use std::fs::File;
    use std::io::Read as _;

    const BYTES: u64 = 8192;

    /// Memory as a lease's, and its tenant's descriptor.
    fn memory() -> (OwnedFd, OwnedFd) {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let ours = memfd_create("test", flags).expect("a memfd");
        ftruncate(&ours, BYTES).expect("a size");
        rustix::io::write(&ours, &[1; BYTES as usize]).expect("room");
        let theirs = open_for_tenant(ours.as_fd()).expect("a description");
        (ours, theirs)
    }

    fn begun(ours: OwnedFd) -> Lent {
        let lent = Lent::new().expect("inotify");
        lent.begin(LeaseId(1), "t", BYTES, ours).expect("a watch");
        assert_eq!(lent.kept("t"), (0, 0), "the lease counts");
        lent
    }

    /// The memory of an ended lease, whose tenant has closed what it had.
    fn lent(ours: OwnedFd) -> Lent {
        end(begun(ours))
    }

    fn end(lent: Lent) -> Lent {
        // Not by `closed`, whose thread would look at the same time.
        let mut all = lent.all.lock();
        let memory = all.get_mut(&LeaseId(1)).expect("it was added");
        (memory.is_closed, memory.has_ended) = (true, true);
        drop(all);
        assert_eq!(lent.kept("t"), (1, BYTES));
        assert_eq!(lent.kept("other"), (0, 0));
        lent
    }

    #[test]
    fn memory_that_nobody_uses_is_free() {
        let (ours, theirs) = memory();
        drop(theirs);
        let lent = lent(ours);
        lent.look("other");
        assert_eq!(lent.kept("t"), (1, BYTES));
        lent.look("t");
        assert_eq!(lent.kept("t"), (0, 0));
    }

    #[test]
    fn a_page_in_a_pipe_counts() {
        let (ours, theirs) = memory();
        let (read, write) = pipe().expect("a pipe");
        let moved = rustix::pipe::splice(
            &theirs,
            Some(&mut 0),
            &write,
            None,
            4096,
            rustix::pipe::SpliceFlags::empty(),
        );
        assert_eq!(moved, Ok(4096));
        drop(theirs);
        let lent = lent(ours);
        lent.look("t");
        assert_eq!(lent.kept("t"), (1, BYTES), "the pipe has a page");
        let mut page = [0; 4096];
        File::from(read).read_exact(&mut page).expect("the page");
        lent.look("t");
        assert_eq!(lent.kept("t"), (0, 0));
    }

    #[test]
    fn seals_of_the_tenant_prove_nothing() {
        for seal in [SealFlags::SEAL, SealFlags::WRITE] {
            let (ours, theirs) = memory();
            fcntl_add_seals(&theirs, seal).expect("it may");
            drop(theirs);
            let lent = lent(ours);
            lent.look("t");
            assert_eq!(lent.kept("t"), (1, BYTES), "{seal:?}");
            assert!(!lent.all.is_due(), "it is not looked at for ever");
        }
    }

    #[test]
    fn pages_that_have_left_the_file_count() {
        use rustix::fs::{FallocateFlags, fallocate};
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        for refill in [false, true] {
            let (ours, theirs) = memory();
            let lent = begun(ours);
            fallocate(&theirs, punch, 0, 4096).expect("it may");
            if refill {
                fallocate(&theirs, FallocateFlags::empty(), 0, 4096).expect("room");
            }
            drop(theirs);
            let lent = end(lent);
            lent.look("t");
            assert_eq!(lent.kept("t"), (1, BYTES), "refilled: {refill}");
            assert!(!lent.all.is_due(), "it is not looked at for ever");
        }
    }

    #[test]
    fn the_thread_looks_again_until_it_is_free() {
        let (ours, theirs) = memory();
        let (read, write) = pipe().expect("a pipe");
        let flags = rustix::pipe::SpliceFlags::empty();
        let moved = rustix::pipe::splice(&theirs, Some(&mut 0), &write, None, 4096, flags);
        assert_eq!(moved, Ok(4096));
        drop(theirs);
        let lent = begun(ours);
        lent.ended(LeaseId(1));
        lent.closed(LeaseId(1));
        drop((read, write));
        let is_free = || lent.kept("t") == (0, 0);
        assert!(testkit::wait_until(Duration::from_secs(20), is_free));
    }
}
