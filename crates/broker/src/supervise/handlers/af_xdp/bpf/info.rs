//! Information about a stand-in or a caller's BTF. About other objects the kernel answers as it answers
//! anyone who has their descriptor.

use super::super::objects::Program;
use super::super::session::Session;
use super::super::sys;
use super::attr::Attr;
use super::btf;
use crate::seccomp::{Answer, Target};
use crate::supervise::Call;
use rustix::io::Errno;
use std::os::fd::{AsFd as _, OwnedFd};

/// Most bytes of a caller's struct that any kernel knows.
const MOST: usize = 512;
/// Offsets in `struct bpf_prog_info`.
const JITED_LEN: usize = 16;
const JITED: usize = 24;
const MAP_COUNT: usize = 52;
const MAP_IDS: usize = 56;
const NAMESPACE: usize = 88;
const KSYM_COUNT: usize = 104;
const BTF_ID: usize = 128;
const RUN_TIME: usize = 192;

pub(super) fn handle(session: &Session, call: &Call<'_>, attr: &Attr) -> Result<Answer, Errno> {
    let target = call.target()?;
    let fd = target.descriptor(attr.int(0))?;
    let program = session.objects().program(fd.as_fd());
    if program.is_none() && !btf::is_one(fd.as_fd()) {
        return Ok(Answer::Continue);
    }
    attr.check_end(16)?;
    let len = attr.word(4) as usize;
    if len > MOST {
        return Err(Errno::TOOBIG);
    }
    let reply = Reply {
        target,
        address: attr.long(8),
        asked: target.read_bytes(attr.long(8), len)?,
    };
    call.check_alive()?;
    let written = match program {
        Some(program) => reply.program(&program)?,
        None => reply.btf(&fd)?,
    };
    // `info_len` of the caller's attr.
    let written = (written as u32).to_ne_bytes();
    target.write(call.word(1).wrapping_add(4), &written)?;
    Ok(Answer::Value(0))
}

/// A reply, written to a caller's struct.
struct Reply<'a> {
    target: &'a Target,
    address: u64,
    /// The struct before.
    asked: Vec<u8>,
}

impl Reply<'_> {
    /// As the kernel answers an unprivileged process: without instructions, symbols and debugging
    /// information.
    fn program(&self, program: &Program) -> Result<usize, Errno> {
        let mut info = sys::program_info(program.fd.as_fd())?;
        for (at, bytes) in [
            (JITED_LEN, [0; 8]),
            (
                MAP_COUNT,
                with_count(program.maps.len(), self.asked.get(MAP_COUNT + 4..)),
            ),
        ] {
            put(&mut info, at, &bytes);
        }
        put(&mut info, JITED, &[0; 16]);
        put(&mut info, MAP_IDS, &self.word(MAP_IDS).to_ne_bytes());
        put(&mut info, NAMESPACE, &[0; 16]);
        put(&mut info, KSYM_COUNT, &[0; BTF_ID - KSYM_COUNT]);
        put(&mut info, BTF_ID, &[0; RUN_TIME - BTF_ID]);
        let btf = program.btf.as_ref().map_or(0, |(id, _)| *id);
        put(&mut info, BTF_ID, &btf.to_ne_bytes());
        let ids: Vec<u8> = program
            .maps
            .iter()
            .take(self.half(MAP_COUNT) as usize)
            .flat_map(|id| id.to_ne_bytes())
            .collect();
        if !ids.is_empty() {
            self.target.write(self.word(MAP_IDS), &ids)?;
        }
        self.write(&info)
    }

    /// `struct bpf_btf_info`: the address and length of a buffer, an id, the address and length of a
    /// name, and whether it is the kernel's own.
    fn btf(&self, array: &OwnedFd) -> Result<usize, Errno> {
        let bytes = btf::read(array.as_fd())?;
        let room = (self.half(8) as usize).min(bytes.len());
        let buffer = self.word(0);
        if buffer != 0 {
            let part = bytes.get(..room).unwrap_or_default();
            self.target.write(buffer, part)?;
        }
        let mut info = [0; 32];
        put(&mut info, 0, &buffer.to_ne_bytes());
        put(&mut info, 8, &(bytes.len() as u32).to_ne_bytes());
        self.write(&info)
    }

    fn write(&self, info: &[u8]) -> Result<usize, Errno> {
        let len = self.asked.len().min(info.len());
        let info = info.get(..len).unwrap_or_default();
        self.target.write(self.address, info)?;
        Ok(len)
    }

    fn word(&self, at: usize) -> u64 {
        let bytes = self.asked.get(at..).and_then(|bytes| bytes.first_chunk());
        u64::from_ne_bytes(bytes.copied().unwrap_or_default())
    }

    fn half(&self, at: usize) -> u32 {
        let bytes = self.asked.get(at..).and_then(|bytes| bytes.first_chunk());
        u32::from_ne_bytes(bytes.copied().unwrap_or_default())
    }
}

fn with_count(count: usize, _behind: Option<&[u8]>) -> [u8; 8] {
    let mut bytes = [0; 8];
    put(&mut bytes, 0, &(count as u32).to_ne_bytes());
    bytes
}

fn put(to: &mut [u8], at: usize, bytes: &[u8]) {
    for (to, from) in to.iter_mut().skip(at).zip(bytes) {
        *to = *from;
    }
}
