//! BTF: kept for the caller, as a sealed file. The kernel's parser never sees it.

use super::super::objects::{BTF_FILE, Kind, kind};
use super::super::session::Session;
use super::attr::Attr;
use crate::seccomp::Answer;
use crate::supervise::Call;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, memfd_create};
use rustix::io::{Errno, pread};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Most bytes; those of libxdp's programs have 1413.
const MOST: u32 = 64 << 10;
/// `BTF_MAGIC` and the version.
const MAGIC: [u8; 3] = [0x9f, 0xeb, 1];
const MAGIC_BIG_ENDIAN: [u8; 3] = [0xeb, 0x9f, 1];

pub(super) fn load(call: &Call<'_>, attr: &Attr) -> Result<Answer, Errno> {
    attr.check_zero(28..40)?;
    let len = attr.word(16);
    if len > MOST {
        return Err(Errno::TOOBIG);
    }
    let bytes = call.target()?.read_bytes(attr.long(0), len as usize)?;
    let magic = if cfg!(target_endian = "little") {
        MAGIC
    } else {
        MAGIC_BIG_ENDIAN
    };
    if !bytes.starts_with(&magic) {
        return Err(Errno::INVAL);
    }
    call.check_alive()?;
    Ok(Answer::Descriptor {
        fd: seal(&bytes)?,
        close_on_exec: true,
    })
}

fn seal(bytes: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(memfd_create(BTF_FILE, flags)?);
    let written = file.write_all(bytes);
    written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    fcntl_add_seals(&file, seals)?;
    Ok(file.into())
}

/// The bytes of BTF that a caller has loaded. They are its own, so that a file which it made itself does no
/// harm.
pub(super) fn read(file: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    let len = u64::try_from(fstat(file)?.st_size).unwrap_or(0);
    if kind(file) != Kind::Btf || len > MOST.into() {
        return Err(Errno::INVAL);
    }
    let mut bytes = vec![0; len as usize];
    let read = pread(file, bytes.as_mut_slice(), 0)?;
    bytes.truncate(read);
    Ok(bytes)
}

pub(super) fn by_id(session: &Session, call: &Call<'_>, attr: &Attr) -> Result<Answer, Errno> {
    attr.check_end(4)?;
    let fd = session.objects().btf(attr.word(0)).ok_or(Errno::PERM)??;
    call.check_alive()?;
    Ok(Answer::Descriptor {
        fd,
        close_on_exec: true,
    })
}
