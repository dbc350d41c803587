//! BTF: kept for the caller, as the value of an array. The kernel's parser never sees it. An array has an id by
//! which the tenant's are counted, and no page of it can be kept without its descriptor.

use super::super::objects::{Kind, kind};
use super::super::session::Session;
use super::super::sys;
use super::attr::Attr;
use crate::budget::Object;
use crate::seccomp::Answer;
use crate::supervise::Call;
use rustix::io::Errno;
use std::os::fd::{AsFd as _, BorrowedFd};

/// Most bytes; those of libxdp's programs have 1413.
const MOST: u32 = 64 << 10;
/// Name of the arrays.
const NAME: [u8; sys::NAME_LEN] = *b"weir_btf\0\0\0\0\0\0\0\0";
/// `BTF_MAGIC` and the version.
const MAGIC: [u8; 3] = [0x9f, 0xeb, 1];
const MAGIC_BIG_ENDIAN: [u8; 3] = [0xeb, 0x9f, 1];

pub(super) fn load(session: &Session, call: &Call<'_>, attr: &Attr) -> Result<Answer, Errno> {
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
    let place = session.objects().reserve(Object::Btf)?;
    let fd = sys::array_of(&bytes, NAME)?;
    place.fill(sys::object_id(fd.as_fd())?);
    Ok(Answer::Descriptor {
        fd,
        close_on_exec: true,
    })
}

/// Whether a descriptor is a caller's BTF.
pub(super) fn is_one(fd: BorrowedFd<'_>) -> bool {
    kind(fd) == Kind::Map && sys::map_info(fd).is_ok_and(|map| map.name == NAME)
}

/// The bytes of BTF that a caller has loaded. They are its own, so that an array which it made or changed itself
/// does no harm.
pub(super) fn read(btf: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    sys::first_of(btf, MOST)
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
