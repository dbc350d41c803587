//! Programs. The broker keeps them; a caller has stand-ins.

use super::super::known::{self, INSTRUCTION};
use super::super::objects::Program;
use super::super::session::Session;
use super::super::sys::{self, ProgramType};
use super::attr::Attr;
use super::btf;
use crate::budget::Object;
use crate::confine::worker::{self, Kind, name_map};
use crate::seccomp::{Answer, Target};
use crate::supervise::Call;
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::{AsFd as _, OwnedFd};

/// Most instructions; libxdp's default programs have 23 at most.
const MOST_INSTRUCTIONS: u32 = 4096;
/// `BPF_F_XDP_HAS_FRAGS`.
const HAS_FRAGS: u32 = 1 << 5;
const MOST_LICENSE: usize = 128;

/// A program as its caller wrote it, copied.
struct Asked {
    program_type: ProgramType,
    instructions: Vec<u8>,
    /// The maps, and where the instructions that load them begin.
    maps: Vec<(usize, OwnedFd)>,
    license: CString,
    flags: u32,
    name: [u8; sys::NAME_LEN],
    btf: Option<OwnedFd>,
}

pub(super) fn load(session: &Session, call: &Call<'_>, attr: &Attr) -> Result<Answer, Errno> {
    let target = call.target()?;
    let asked = Asked::copy(target, attr)?;
    let hash = known::hash(&asked.instructions);
    call.check_alive()?;
    if let Some(known) = known::find(&hash, asked.program_type) {
        call.describe(format!("program: {}", known.source));
    } else {
        let kind = asked.program_type;
        let text = format!("{kind:?} program with SHA-256 {}", known::hex(&hash));
        if kind != ProgramType::Xdp || !session.allows(&hash) {
            explain(target, attr, &text);
            call.describe(text);
            return Err(Errno::PERM);
        }
        call.describe(text);
    }
    let mut objects = session.objects();
    if !asked
        .maps
        .iter()
        .all(|(_, map)| objects.has_map(map.as_fd()))
    {
        return Err(Errno::PERM);
    }
    objects.check_programs()?;
    let place = objects.reserve(Object::Program)?;
    let program = load_program(session, &asked)?;
    place.fill(sys::object_id(program.as_fd())?);
    let fd = if asked.program_type == ProgramType::Xdp {
        let mut maps: Vec<u32> = Vec::new();
        for (_, map) in &asked.maps {
            let id = sys::object_id(map.as_fd())?;
            if !maps.contains(&id) {
                maps.push(id);
            }
        }
        let btf = asked.btf.map(|fd| (objects.new_btf(), fd));
        objects.add_program(Program {
            id: sys::object_id(program.as_fd())?,
            fd: program,
            maps,
            btf,
        })?
    } else {
        program
    };
    Ok(Answer::Descriptor {
        fd,
        close_on_exec: true,
    })
}

impl Asked {
    fn copy(target: &Target, attr: &Attr) -> Result<Self, Errno> {
        let program_type = match attr.word(0) {
            1 => ProgramType::SocketFilter,
            6 => ProgramType::Xdp,
            _ => return Err(Errno::PERM),
        };
        // A program for hardware, of other programs, with tables of descriptors.
        attr.check_zero(64..68)?;
        attr.check_zero(108..140)?;
        attr.check_end(144)?;
        let flags = attr.word(44);
        let expected_attach_type = attr.word(68);
        let xdp = program_type == ProgramType::Xdp;
        let known_type =
            expected_attach_type == 0 || xdp && expected_attach_type == sys::ATTACH_XDP;
        if flags & !HAS_FRAGS != 0 || flags != 0 && !xdp || !known_type {
            return Err(Errno::INVAL);
        }
        let count = attr.word(4);
        if count == 0 || count > MOST_INSTRUCTIONS {
            return Err(Errno::TOOBIG);
        }
        let len = count as usize * INSTRUCTION;
        let mut instructions = target.read_bytes(attr.long(8), len)?;
        let maps = take_maps(target, &mut instructions)?;
        Ok(Self {
            program_type,
            instructions,
            maps,
            license: target.read_string(attr.long(16), MOST_LICENSE)?,
            flags,
            name: attr.bytes(48),
            btf: btf_of(target, attr.int(72))?,
        })
    }
}

/// Takes the descriptors of maps out of the instructions.
fn take_maps(target: &Target, instructions: &mut [u8]) -> Result<Vec<(usize, OwnedFd)>, Errno> {
    let places = known::map_descriptors(instructions).ok_or(Errno::INVAL)?;
    let mut maps = Vec::new();
    for at in places {
        if maps.len() == MOST_REFERENCES {
            return Err(Errno::TOOBIG);
        }
        let value = instructions.get_mut(at + VALUE..);
        let value: &mut [u8; 4] = value
            .and_then(|it| it.first_chunk_mut())
            .ok_or(Errno::INVAL)?;
        maps.push((at, target.descriptor(i32::from_ne_bytes(*value))?));
        *value = [0; 4];
    }
    Ok(maps)
}

/// Where the value is in an instruction.
const VALUE: usize = 4;
/// Most references to maps in a program: each is a descriptor of this process for a while.
const MOST_REFERENCES: usize = 64;

fn btf_of(target: &Target, fd: i32) -> Result<Option<OwnedFd>, Errno> {
    if fd == 0 {
        return Ok(None);
    }
    let fd = target.descriptor(fd)?;
    if btf::is_one(fd.as_fd()) {
        Ok(Some(fd))
    } else {
        Err(Errno::INVAL)
    }
}

/// The one way by which a caller's instructions reach the verifier: by the worker, which has little else
/// than the right to load. Their hash has been found among those allowed, and they have none of the
/// caller's descriptors.
fn load_program(session: &Session, asked: &Asked) -> Result<OwnedFd, Errno> {
    let mut instructions = asked.instructions.clone();
    for (number, (at, _)) in asked.maps.iter().enumerate() {
        let instruction = instructions
            .get_mut(*at..)
            .and_then(|it| it.first_chunk_mut());
        name_map(instruction.ok_or(Errno::INVAL)?, number as u32)?;
    }
    let maps: Vec<_> = asked.maps.iter().map(|(_, map)| map.as_fd()).collect();
    session.load(&worker::Program {
        kind: match asked.program_type {
            ProgramType::Xdp => Kind::Xdp,
            ProgramType::SocketFilter => Kind::SocketFilter,
        },
        instructions: &instructions,
        maps: &maps,
        license: asked.license.to_bytes(),
        name: asked.name,
        fragments: asked.flags & HAS_FRAGS != 0,
        log: false,
    })
}

/// Says why in the log of the verifier, which libbpf prints.
fn explain(target: &Target, attr: &Attr, program: &str) {
    let log = format!("weir-broker: the policy does not allow this {program}\n\0");
    if attr.word(24) != 0 && attr.word(28) as usize >= log.len() {
        let _ = target.write(attr.long(32), log.as_bytes());
    }
}

/// A program of the session; else `EPERM`, the kernel's answer to callers without privilege.
pub(super) fn by_id(session: &Session, call: &Call<'_>, attr: &Attr) -> Result<Answer, Errno> {
    attr.check_end(4)?;
    call.check_alive()?;
    let fd = session.objects().stand_in(attr.word(0));
    Ok(Answer::Descriptor {
        fd: fd.ok_or(Errno::PERM)??,
        close_on_exec: true,
    })
}
