//! Device programs: judged, loaded, and named by a handle.

use super::attr::{ATTACH_TYPE, Attr, PROGRAM_TYPE};
use crate::confine::worker::{self, Kind, Worker};
use crate::seccomp::Target;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::CString;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// `BPF_MAXINSNS`.
const MOST_INSTRUCTIONS: u32 = 4096;
/// `sizeof(struct bpf_insn)`.
const INSTRUCTION: usize = 8;
/// The kernel reads as much of a license.
const MOST_LICENSE: usize = 128;
/// More of the verifier's log is not passed on.
const MOST_LOG: u32 = 1 << 20;

/// A program to load: its copy.
#[derive(Debug)]
pub(super) struct Request {
    instructions: Vec<u8>,
    license: CString,
    name: [u8; 16],
    log_at: u64,
    log_size: usize,
}

impl Request {
    /// Copies a program; `None` if it is of another type.
    pub(super) fn copy(target: &Target, attr: &Attr) -> Result<Option<Self>, Errno> {
        if attr.u32(0) != PROGRAM_TYPE {
            return Ok(None);
        }
        // Behind them: BTF, descriptors of other objects, fields of later kernels.
        attr.check_zero_from(72, Errno::INVAL)?;
        let (flags, device, attach_type) = (attr.u32(44), attr.u32(64), attr.u32(68));
        if flags != 0 || device != 0 || !matches!(attach_type, 0 | ATTACH_TYPE) {
            return Err(Errno::INVAL);
        }
        let count = attr.u32(4);
        if count == 0 || count > MOST_INSTRUCTIONS {
            return Err(Errno::TOOBIG);
        }
        let instructions = target.read_bytes(attr.u64(8), count as usize * INSTRUCTION)?;
        check(&instructions)?;
        let log_level = attr.u32(24);
        let log = if log_level == 0 { 0 } else { attr.u32(28) };
        Ok(Some(Self {
            instructions,
            license: target.read_string(attr.u64(16), MOST_LICENSE)?,
            name: attr.bytes(48),
            log_at: attr.u64(32),
            log_size: log.min(MOST_LOG) as usize,
        }))
    }

    /// Has the worker load it, whose verifier runs with as little privilege as it can; gives the caller
    /// the verifier's log where it refuses.
    pub(super) fn load(
        &self,
        target: &Target,
        worker: &Worker,
        tenant: &str,
    ) -> Result<OwnedFd, Errno> {
        let program = worker::Program {
            kind: Kind::CgroupDevice,
            instructions: &self.instructions,
            maps: &[],
            license: self.license.to_bytes(),
            name: self.name,
            fragments: false,
            log: self.log_size > 0,
        };
        let loaded = worker.load(tenant, &program);
        loaded.map_err(|refusal| match self.write_log(target, &refusal.log) {
            Ok(()) => refusal.errno,
            Err(errno) => errno,
        })
    }

    /// Writes the end of the log, and a zero.
    fn write_log(&self, target: &Target, log: &[u8]) -> Result<(), Errno> {
        let Some(room) = self.log_size.checked_sub(1) else {
            return Ok(());
        };
        let rest = log.get(log.len().saturating_sub(room)..);
        let text = [rest.unwrap_or_default(), &[0]].concat();
        target.write(self.log_at, &text)
    }
}

/// Refuses instructions that reach beyond the program's arguments and stack: helpers, maps and
/// other objects. Device programs need none, and the verifier has the less to get wrong.
fn check(instructions: &[u8]) -> Result<(), Errno> {
    const LOAD_IMMEDIATE: u8 = 0x18;
    const CALL: u8 = 0x85;
    let mut is_second_half = false;
    for instruction in instructions.chunks_exact(INSTRUCTION) {
        let &[code, registers, ..] = instruction else {
            return Err(Errno::INVAL);
        };
        if is_second_half {
            is_second_half = false;
            continue;
        }
        let source = registers >> 4;
        // Also calls by register, and atomic operations stay the verifier's.
        if code & !0x08 == CALL || code == LOAD_IMMEDIATE && source != 0 {
            return Err(Errno::PERM);
        }
        is_second_half = code == LOAD_IMMEDIATE;
    }
    Ok(())
}

/// A loaded program. The caller holds the writing end of a pipe that stands for it.
#[derive(Debug)]
pub(super) struct Program {
    fd: OwnedFd,
    pipe: OwnedFd,
}

impl Program {
    /// With its handle.
    pub(super) fn new(fd: OwnedFd) -> Result<(Self, OwnedFd), Errno> {
        let (pipe, handle) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok((Self { fd, pipe }, handle))
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Whether a descriptor is its handle.
    pub(super) fn is_handle(&self, descriptor: &OwnedFd) -> bool {
        let (Ok(pipe), Ok(other)) = (fstat(&self.pipe), fstat(descriptor)) else {
            return false;
        };
        (pipe.st_dev, pipe.st_ino) == (other.st_dev, other.st_ino)
    }

    /// Whether a process still holds its handle.
    pub(super) fn is_held(&self) -> bool {
        let mut fds = [PollFd::new(&self.pipe, PollFlags::empty())];
        let polled = poll(&mut fds, Some(&Timespec::default()));
        polled.is_err() || fds.iter().all(|it| !it.revents().contains(PollFlags::HUP))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETURN: [u8; 8] = [0x95, 0, 0, 0, 0, 0, 0, 0];

    fn judge(instructions: &[[u8; 8]]) -> Result<(), Errno> {
        check(&instructions.concat())
    }

    #[test]
    fn calls_and_objects_are_refused() {
        let call = [0x85, 0, 0, 0, 1, 0, 0, 0];
        let by_register = [0x8d, 0, 0, 0, 1, 0, 0, 0];
        let map = [0x18, 0x11, 0, 0, 3, 0, 0, 0];
        let second_half = [0; 8];
        assert_eq!(judge(&[RETURN]), Ok(()));
        assert_eq!(judge(&[call, RETURN]), Err(Errno::PERM));
        assert_eq!(judge(&[by_register, RETURN]), Err(Errno::PERM));
        assert_eq!(judge(&[map, second_half, RETURN]), Err(Errno::PERM));
    }

    #[test]
    fn constants_are_no_instructions() {
        let constant = [0x18, 0x01, 0, 0, 3, 0, 0, 0];
        let second_half = [0x85, 0, 0, 0, 3, 0, 0, 0];
        assert_eq!(judge(&[constant, second_half, RETURN]), Ok(()));
        let call = [0x85, 0, 0, 0, 1, 0, 0, 0];
        assert_eq!(judge(&[constant, second_half, call]), Err(Errno::PERM));
    }

    #[test]
    fn a_handle_stands_for_its_program_until_it_is_closed() {
        let fd = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let (program, handle) = Program::new(fd()).unwrap();
        let (other, _held) = Program::new(fd()).unwrap();
        assert!(program.is_handle(&handle) && !other.is_handle(&handle));
        assert!(!program.is_handle(&fd()));
        assert!(program.is_held());
        drop(handle);
        assert!(!program.is_held() && other.is_held());
    }
}
