//! The BPF objects of a session: programs and their stand-ins, maps, links.

use super::sys;
use crate::budget::{Budget, Close, Object, Place, Share, descriptors};
use rustix::fs::readlinkat_raw;
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// Most objects of a kind in a session; those that nobody has any more do not count. The tenant's budget is of
/// all its sessions.
pub(super) const MOST_PROGRAMS: usize = 64;
pub(super) const MOST_MAPS: usize = 256;
pub(super) const MOST_LINKS: usize = 64;

/// Where ids of BTF begin: nothing but [`super::bpf`] knows them.
const FIRST_BTF: u32 = 1 << 30;

/// A BPF object by the name of its descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Program,
    Map,
    Other,
}

/// The kind of a descriptor of this process.
pub(super) fn kind(fd: BorrowedFd<'_>) -> Kind {
    let mut buffer = [MaybeUninit::uninit(); 64];
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let Ok((name, _)) = readlinkat_raw(rustix::fs::CWD, path, &mut buffer) else {
        return Kind::Other;
    };
    match &*name {
        b"anon_inode:bpf-prog" => Kind::Program,
        b"anon_inode:bpf-map" => Kind::Map,
        _ => Kind::Other,
    }
}

/// A program that the caller has loaded. No caller ever has its descriptor, which is the right to
/// attach it to any device.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) fd: OwnedFd,
    pub(super) id: u32,
    /// Ids of its maps.
    pub(super) maps: Vec<u32>,
    /// The caller's BTF.
    pub(super) btf: Option<(u32, OwnedFd)>,
}

/// A program and the object that callers have in its place.
#[derive(Debug)]
struct Entry {
    program: Arc<Program>,
    stand_in: u32,
    _share: Share,
}

/// A program attached as by netlink. Dropped, it is detached.
#[derive(Debug)]
pub(super) struct Attachment {
    pub(super) _share: Share,
    /// The namespace and the device in it.
    pub(super) place: u64,
    pub(super) ifindex: u32,
    pub(super) link: OwnedFd,
    pub(super) program: Arc<Program>,
}

/// The objects of a session.
#[derive(Debug)]
pub(super) struct Objects {
    budget: Arc<Budget>,
    programs: Vec<Entry>,
    maps: Vec<u32>,
    /// Links whose only descriptors callers have.
    links: Vec<sys::LinkInfo>,
    pub(super) attachments: Vec<Attachment>,
    btfs: u32,
    is_closed: bool,
}

impl Objects {
    /// None, of a tenant with this budget.
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        Self {
            budget,
            programs: Vec::new(),
            maps: Vec::new(),
            links: Vec::new(),
            attachments: Vec::new(),
            btfs: 0,
            is_closed: false,
        }
    }

    /// A place in the tenant's budget for an object that is about to be made.
    pub(super) fn reserve(&self, kind: Object) -> Result<Place, Errno> {
        self.budget.reserve(kind, |id| {
            let found = match kind {
                Object::Map | Object::Btf => sys::map_by_id(id),
                Object::Program => sys::program_by_id(id),
                Object::Link => sys::link_by_id(id),
            };
            found.is_ok()
        })
    }

    /// Descriptors of this process, of the tenant's budget.
    pub(super) fn descriptors(&self, count: u32) -> Result<Share, Errno> {
        self.budget.descriptors(count)
    }

    /// Fails if there are too many maps.
    pub(super) fn check_maps(&mut self) -> Result<(), Errno> {
        if self.maps.len() >= MOST_MAPS {
            self.maps.retain(|&id| sys::map_by_id(id).is_ok());
        }
        room(self.maps.len(), MOST_MAPS)
    }

    /// Adds a map.
    pub(super) fn add_map(&mut self, map: BorrowedFd<'_>) -> Result<(), Errno> {
        self.maps.push(sys::object_id(map)?);
        Ok(())
    }

    /// A map of the session by its id.
    pub(super) fn map(&self, id: u32) -> Option<Result<OwnedFd, Errno>> {
        self.maps.contains(&id).then(|| sys::map_by_id(id))
    }

    /// Whether a map is of the session.
    pub(super) fn has_map(&self, map: BorrowedFd<'_>) -> bool {
        kind(map) == Kind::Map && sys::object_id(map).is_ok_and(|id| self.maps.contains(&id))
    }

    /// Fails if there are too many programs.
    pub(super) fn check_programs(&mut self) -> Result<(), Errno> {
        if self.programs.len() >= MOST_PROGRAMS {
            let used = |entry: &Entry| {
                Arc::strong_count(&entry.program) > 1 || sys::program_by_id(entry.stand_in).is_ok()
            };
            self.links.retain(|link| sys::link_by_id(link.id).is_ok());
            let linked = |id| self.links.iter().any(|link| link.program == id);
            self.programs
                .retain(|entry| used(entry) || linked(entry.program.id));
        }
        room(self.programs.len(), MOST_PROGRAMS)
    }

    /// Adds a program; returns the caller's stand-in.
    pub(super) fn add_program(&mut self, program: Program) -> Result<OwnedFd, Errno> {
        let share = self.descriptors(descriptors::PROGRAM)?;
        let place = self.reserve(Object::Program)?;
        let stand_in = stand_in()?;
        let id = sys::object_id(stand_in.as_fd())?;
        place.fill(id);
        self.programs.push(Entry {
            program: Arc::new(program),
            stand_in: id,
            _share: share,
        });
        Ok(stand_in)
    }

    /// The program for which a descriptor stands.
    pub(super) fn program(&self, stand_in: BorrowedFd<'_>) -> Option<Arc<Program>> {
        if self.is_closed || kind(stand_in) != Kind::Program {
            return None;
        }
        let id = sys::object_id(stand_in).ok()?;
        let mut programs = self.programs.iter();
        let entry = programs.find(|entry| entry.stand_in == id)?;
        Some(Arc::clone(&entry.program))
    }

    /// The stand-in for the id of a program.
    pub(super) fn stand_in(&mut self, program: u32) -> Option<Result<OwnedFd, Errno>> {
        let mut programs = self.programs.iter();
        let entry = programs.find(|entry| entry.program.id == program)?;
        if let Ok(fd) = sys::program_by_id(entry.stand_in) {
            return Some(Ok(fd));
        }
        // The caller has closed it since.
        Some(self.renew_stand_in(program))
    }

    fn renew_stand_in(&mut self, program: u32) -> Result<OwnedFd, Errno> {
        let place = self.reserve(Object::Program)?;
        let fd = stand_in()?;
        let id = sys::object_id(fd.as_fd())?;
        place.fill(id);
        let mut programs = self.programs.iter_mut();
        if let Some(entry) = programs.find(|entry| entry.program.id == program) {
            entry.stand_in = id;
        }
        Ok(fd)
    }

    /// A new id for BTF.
    pub(super) fn new_btf(&mut self) -> u32 {
        self.btfs = self.btfs.wrapping_add(1) % FIRST_BTF;
        FIRST_BTF + self.btfs
    }

    /// The BTF of a program of the session.
    pub(super) fn btf(&self, id: u32) -> Option<Result<OwnedFd, Errno>> {
        let mut btfs = self
            .programs
            .iter()
            .filter_map(|entry| entry.program.btf.as_ref());
        let (_, fd) = btfs.find(|(known, _)| *known == id)?;
        Some(rustix::io::fcntl_dupfd_cloexec(fd, 0))
    }

    /// Fails if there are too many links, with those of programs attached as by netlink.
    pub(super) fn check_links(&mut self) -> Result<(), Errno> {
        if self.links.len() + self.attachments.len() >= MOST_LINKS {
            self.links.retain(|link| sys::link_by_id(link.id).is_ok());
        }
        room(self.links.len() + self.attachments.len(), MOST_LINKS)
    }

    /// Detaches all programs, and attaches no others.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.detach();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    fn detach(&mut self) {
        self.attachments.clear();
        for known in std::mem::take(&mut self.links) {
            if let Ok(link) = sys::link_by_id(known.id)
                && sys::link_info(link.as_fd()) == Ok(known)
            {
                let _ = sys::link_detach(link.as_fd());
            }
        }
    }

    /// Adds a link that a caller gets.
    pub(super) fn add_link(&mut self, link: BorrowedFd<'_>) -> Result<(), Errno> {
        self.links.push(sys::link_info(link)?);
        Ok(())
    }
}

impl Close for Mutex<Objects> {
    fn close(&self) {
        let mut objects = self.lock().unwrap_or_else(PoisonError::into_inner);
        objects.close();
    }
}

/// Copies of the callers' links may be anywhere, in messages too: detaching frees the devices from all.
impl Drop for Objects {
    fn drop(&mut self) {
        self.detach();
    }
}

fn room(len: usize, most: usize) -> Result<(), Errno> {
    if len < most {
        Ok(())
    } else {
        Err(Errno::NOSPC)
    }
}

/// A stand-in for a program: a socket filter, which it can give to a socket of its own
/// only.
fn stand_in() -> Result<OwnedFd, Errno> {
    sys::load_nothing(*b"weir_stand_in\0\0\0")
}
