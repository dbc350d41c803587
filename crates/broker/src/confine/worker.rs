//! A process for loading BPF programs that others wrote: it has `CAP_BPF` and `CAP_NET_ADMIN` only, no file
//! and few system calls, so that the verifier treats the program as one of a process without
//! `CAP_PERFMON` (no pointer is leaked, no speculation past a check), and a bug that the program finds in the
//! verifier finds no more than that around it.
//!
//! The worker never reads a program itself: each request comes on a socket of its own, and a child
//! that lives for this request reads it, loads it and answers. A program that takes its loader down
//! takes one request down.
#![allow(unsafe_code)] // fork(2), bpf(2), alarm(2), signal(2) and close_range(2) have no safe wrapper.

use super::calls::{DESCRIPTORS, PROG_LOAD, RUNTIME, WORKER};
use super::{capabilities, filter, landlock, process};
use crate::bpf;
use crate::turns::Turns;
use anyhow::{Context as _, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType, recvmsg, sendmsg, shutdown,
    socketpair,
};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::CapabilitySet;
use seccompiler::SeccompAction;
use std::ffi::CString;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

/// First argument of the program when it is the worker.
const ARGUMENT: &str = "--bpf-worker";
/// A load that takes longer is given up, and its process killed.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most loads at a time, and of one tenant; more wait.
const MOST_AT_ONCE: usize = 8;
const MOST_OF_ONE: usize = 2;
/// Most bytes of instructions: those that are ever copied of a caller's memory for one argument.
const MOST_INSTRUCTIONS: usize = 1 << 20;
/// Most bytes of the verifier's log that are kept.
pub const MOST_LOG: usize = 1 << 16;
/// Most maps of a program (the kernel's `MAX_USED_MAPS`).
const MOST_MAPS: usize = 64;
/// Most bytes of a licence (the kernel's limit).
const MOST_LICENSE: usize = 127;
/// `BPF_OBJ_NAME_LEN`.
const NAME_LEN: usize = 16;
/// Kind, fragments, log; name.
const HEADER: usize = 3 + NAME_LEN;

/// Type of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `BPF_PROG_TYPE_XDP`, attached to a device.
    Xdp,
    /// `BPF_PROG_TYPE_CGROUP_DEVICE`, attached to a control group.
    CgroupDevice,
    /// `BPF_PROG_TYPE_SOCKET_FILTER`, which libraries load to probe the kernel's features.
    SocketFilter,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Xdp, Self::CgroupDevice, Self::SocketFilter]
            .into_iter()
            .find(|&kind| kind as u8 == byte)
    }

    /// `BPF_PROG_TYPE_…`, and the `BPF_…` of where it is attached.
    fn numbers(self) -> (u32, u32) {
        match self {
            Self::Xdp => (6, 37),
            Self::CgroupDevice => (15, 6),
            Self::SocketFilter => (1, 0),
        }
    }
}

/// A program to load.
#[derive(Debug, Clone)]
pub struct Program<'a> {
    /// Its type.
    pub kind: Kind,
    /// Its instructions, 8 bytes each. An instruction that loads a map's address names the map by its
    /// place in `maps`: `BPF_PSEUDO_MAP_IDX` or `BPF_PSEUDO_MAP_IDX_VALUE`.
    pub instructions: &'a [u8],
    /// Its maps.
    pub maps: &'a [BorrowedFd<'a>],
    /// Its licence, without a final zero.
    pub license: &'a [u8],
    /// Its name, padded with zeros.
    pub name: [u8; NAME_LEN],
    /// Whether it takes packets in fragments (`BPF_F_XDP_HAS_FRAGS`).
    pub fragments: bool,
    /// Whether the verifier's log is wanted when it refuses the program.
    pub log: bool,
}

/// Has an instruction, which loads the address of a map or of a map's value by descriptor, name the map
/// by its place in [`Program::maps`].
///
/// # Errors
///
/// `EINVAL` for another instruction.
pub fn name_map(instruction: &mut [u8; 8], place: u32) -> Result<(), Errno> {
    /// `BPF_LD | BPF_IMM | BPF_DW`.
    const LOAD_IMMEDIATE: u8 = 0x18;
    let &mut [code, registers, ..] = instruction;
    // BPF_PSEUDO_MAP_FD and BPF_PSEUDO_MAP_VALUE become BPF_PSEUDO_MAP_IDX and its value.
    let source = match (code, registers >> 4) {
        (LOAD_IMMEDIATE, source @ (1 | 2)) => source + 4,
        _ => return Err(Errno::INVAL),
    };
    let [place0, place1, place2, place3] = place.to_ne_bytes();
    let &mut [_, _, offset0, offset1, ..] = instruction;
    let registers = (source << 4) | (registers & 0xf);
    *instruction = [
        code, registers, offset0, offset1, place0, place1, place2, place3,
    ];
    Ok(())
}

/// Why a program was not loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The kernel's; `EIO` when the worker died, `ETIMEDOUT` when it took too long.
    pub errno: Errno,
    /// The end of the verifier's log, where it was wanted.
    pub log: Vec<u8>,
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self {
            errno,
            log: Vec::new(),
        }
    }
}

/// The worker's process, which ends with this.
#[derive(Debug)]
pub struct Worker {
    socket: OwnedFd,
    child: Child,
    turns: Turns<String>,
}

impl Worker {
    /// Starts this program again as the worker; its `main` begins with [`run_if_asked`].
    ///
    /// It is called before [`apply`](super::apply), after which the broker executes nothing, and by
    /// the main thread: the worker dies with the thread that started it.
    ///
    /// # Errors
    ///
    /// When no process can be started.
    pub fn start() -> Result<Self> {
        let (ours, its) = pair().context("cannot make the worker's socket")?;
        let child = Command::new("/proc/self/exe")
            .arg(ARGUMENT)
            .env_clear()
            .stdin(Stdio::from(its))
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start the worker: is /proc mounted?")?;
        Ok(Self {
            socket: ours,
            child,
            turns: Turns::new(MOST_AT_ONCE, MOST_OF_ONE),
        })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Loads a program of a tenant.
    ///
    /// # Errors
    ///
    /// The kernel's; `EINVAL` for a program that no kernel takes.
    pub fn load(&self, tenant: &str, program: &Program<'_>) -> Result<OwnedFd, Refusal> {
        let request = program.encode()?;
        let instructions = memory("instructions", program.instructions)?;
        let log = memory("log", &[])?;
        let (ours, its) = pair()?;
        let mut fds = vec![instructions.as_fd(), log.as_fd()];
        fds.extend(program.maps);
        send(ours.as_fd(), &request, &fds)?;
        let _turn = self.turns.take(tenant.to_owned(), 0);
        send(self.socket.as_fd(), &[0], &[its.as_fd()]).map_err(|_| Errno::IO)?;
        drop(its);
        let (code, mut fds) = answer(ours.as_fd())?;
        match (code, fds.pop()) {
            (0, Some(program)) => Ok(program),
            (0, None) => Err(Errno::IO.into()),
            (code, _) => Err(Refusal {
                errno: Errno::from_raw_os_error(code),
                log: read_log(&log),
            }),
        }
    }
}

impl AsFd for Worker {
    /// Hangs up (`POLLHUP`) when the worker has died: programs are refused with EIO then, until the
    /// broker is started again.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The end of its stream: the broker may have given up the right to kill. It may have died
        // before.
        let _ = shutdown(&self.socket, Shutdown::Both);
        let _ = self.child.wait();
    }
}

impl Program<'_> {
    fn encode(&self) -> Result<Vec<u8>, Errno> {
        let length = self.instructions.len();
        if length == 0 || !length.is_multiple_of(8) || self.license.contains(&0) {
            return Err(Errno::INVAL);
        }
        if length > MOST_INSTRUCTIONS
            || self.maps.len() > MOST_MAPS
            || self.license.len() > MOST_LICENSE
        {
            return Err(Errno::TOOBIG);
        }
        let mut request = vec![self.kind as u8, self.fragments.into(), self.log.into()];
        request.extend(self.name);
        request.extend(self.license);
        Ok(request)
    }
}

fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let flags = SocketFlags::CLOEXEC;
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

fn memory(name: &str, bytes: &[u8]) -> Result<File, Errno> {
    let mut file = File::from(memfd_create(name, MemfdFlags::CLOEXEC)?);
    file.write_all(bytes).map_err(|_| Errno::NOMEM)?;
    Ok(file)
}

fn read_log(log: &File) -> Vec<u8> {
    let mut text = vec![0; MOST_LOG];
    let length = log.read_at(&mut text, 0).unwrap_or(0);
    text.truncate(length);
    text
}

/// The child's answer, a code and with 0 a descriptor.
fn answer(socket: BorrowedFd<'_>) -> Result<(i32, Vec<OwnedFd>), Errno> {
    let patience = Timespec::try_from(PATIENCE).map_err(|_| Errno::INVAL)?;
    let mut wait = [PollFd::new(&socket, PollFlags::IN)];
    if rustix::io::retry_on_intr(|| poll(&mut wait, Some(&patience)))? == 0 {
        return Err(Errno::TIMEDOUT);
    }
    let (bytes, fds) = receive(socket, 4)?;
    // Nothing arrives of a child that died.
    let code = <[u8; 4]>::try_from(bytes.as_slice()).map_err(|_| Errno::IO)?;
    Ok((i32::from_le_bytes(code), fds))
}

fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space =
        vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1)) + 4 * (MOST_MAPS + 2)];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::TOOBIG);
    }
    let flags = SendFlags::NOSIGNAL;
    rustix::io::retry_on_intr(|| sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags))
        .map(drop)
}

/// A message of at most `most` bytes with its descriptors; empty at the end of the stream.
fn receive(socket: BorrowedFd<'_>, most: usize) -> Result<(Vec<u8>, Vec<OwnedFd>), Errno> {
    let mut bytes = vec![0; most];
    let mut space =
        vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1)) + 4 * (MOST_MAPS + 2)];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let message = rustix::io::retry_on_intr(|| {
        let into = &mut [IoSliceMut::new(&mut bytes)];
        recvmsg(socket, into, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    let fds = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let fds = fds.flatten().collect();
    bytes.truncate(message.bytes);
    Ok((bytes, fds))
}

/// Runs the worker if this process was started as one: the first thing that `main` does.
pub fn run_if_asked() -> Option<ExitCode> {
    let asked = std::env::args_os().nth(1).is_some_and(|it| it == ARGUMENT);
    asked.then(|| match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir-broker: the worker that loads programs: {error:#}");
            ExitCode::FAILURE
        }
    })
}

fn run() -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("PR_SET_PDEATHSIG")?;
    close_others();
    ignore_children();
    confine()?;
    let stdin = std::io::stdin();
    let socket = stdin.as_fd();
    loop {
        let (bytes, fds) = receive(socket, 1).context("its socket")?;
        if bytes.is_empty() {
            return Ok(());
        }
        let Some(request) = fds.into_iter().next() else {
            continue;
        };
        // SAFETY: needed because there is no wrapper. Sound because this process has one thread: the
        // child may do all that it could.
        match unsafe { libc::fork() } {
            0 => {
                serve(&request);
                return Ok(());
            }
            // The broker sees the end of its stream, as from a child that died.
            _ => drop(request),
        }
    }
}

/// Closes all descriptors but the standard ones: of a process that has just begun, those of its parent.
pub(super) fn close_others() {
    // SAFETY: needed because there is no wrapper, nor one of musl's. Sound because nothing in this process owns a
    // descriptor above the standard ones yet.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
}

/// Has the kernel reap the children.
fn ignore_children() {
    // SAFETY: needed because there is no wrapper. No handler is installed: the kernel reaps the
    // children.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

fn confine() -> Result<()> {
    process::harden()?;
    // Only a change of ids or a gain of capabilities resets dumpability and the death signal.
    capabilities::keep(CapabilitySet::BPF | CapabilitySet::NET_ADMIN)?;
    set_parent_process_death_signal(Some(Signal::KILL)).context("PR_SET_PDEATHSIG")?;
    landlock::restrict_all()?;
    // It has no reason to call anything else, and nothing is lost with it.
    filter::load_table(
        &[&RUNTIME, &DESCRIPTORS, &WORKER],
        SeccompAction::KillProcess,
    )?;
    Ok(())
}

/// Answers one request.
fn serve(socket: &OwnedFd) {
    // SAFETY: needed because there is no wrapper. No handler is installed: the signal ends the
    // process, also in the verifier.
    unsafe { libc::alarm(PATIENCE.as_secs() as libc::c_uint) };
    let (errno, fds) = match load(socket.as_fd()) {
        Ok(program) => (0, vec![program]),
        Err(errno) => (errno.raw_os_error(), Vec::new()),
    };
    let fds: Vec<_> = fds.iter().map(OwnedFd::as_fd).collect();
    // The broker may have given up.
    let _ = send(socket.as_fd(), &errno.to_le_bytes(), &fds);
}

fn load(socket: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let (request, fds) = receive(socket, HEADER + MOST_LICENSE)?;
    let request = Request::decode(&request, fds)?;
    let refused = match request.load(&mut []) {
        Ok(program) => return Ok(program),
        Err(errno) => errno,
    };
    if request.wants_log {
        let mut log = vec![0; MOST_LOG];
        // The same answer again; the log alone counts.
        let _ = request.load(&mut log);
        let end = log.iter().position(|&byte| byte == 0);
        let text = log.get(..end.unwrap_or(MOST_LOG)).unwrap_or_default();
        // Without its log the refusal is still one.
        let _ = request.log.write_all_at(text, 0);
    }
    Err(refused)
}

/// A request as the child received it.
struct Request {
    kind: Kind,
    fragments: bool,
    wants_log: bool,
    name: [u8; NAME_LEN],
    license: CString,
    instructions: Vec<u8>,
    log: File,
    maps: Vec<OwnedFd>,
}

impl Request {
    fn decode(bytes: &[u8], fds: Vec<OwnedFd>) -> Result<Self, Errno> {
        let (&[kind, fragments, wants_log], rest) =
            bytes.split_first_chunk::<3>().ok_or(Errno::INVAL)?;
        let (&name, license) = rest.split_first_chunk::<NAME_LEN>().ok_or(Errno::INVAL)?;
        let mut fds = fds.into_iter();
        let program = File::from(fds.next().ok_or(Errno::INVAL)?);
        let log = File::from(fds.next().ok_or(Errno::INVAL)?);
        Ok(Self {
            kind: Kind::from_byte(kind).ok_or(Errno::INVAL)?,
            fragments: fragments != 0,
            wants_log: wants_log != 0,
            name,
            license: CString::new(license).map_err(|_| Errno::INVAL)?,
            instructions: read_program(&program)?,
            log,
            maps: fds.collect(),
        })
    }

    /// Loads it, with the verifier's log if that has room.
    fn load(&self, log: &mut [u8]) -> Result<OwnedFd, Errno> {
        /// `union bpf_attr` for `BPF_PROG_LOAD`, as far as it is used.
        #[repr(C)]
        struct Attr {
            prog_type: u32,
            insn_cnt: u32,
            insns: u64,
            license: u64,
            log_level: u32,
            log_size: u32,
            log_buf: u64,
            kern_version: u32,
            prog_flags: u32,
            prog_name: [u8; NAME_LEN],
            prog_ifindex: u32,
            expected_attach_type: u32,
            btf: [u64; 6],
            fd_array: u64,
        }
        const _: () = assert!(size_of::<Attr>() == 128);
        /// `BPF_F_XDP_HAS_FRAGS`.
        const HAS_FRAGS: u32 = 1 << 5;
        let maps: Vec<i32> = self.maps.iter().map(AsRawFd::as_raw_fd).collect();
        let (prog_type, expected_attach_type) = self.kind.numbers();
        let logged = !log.is_empty();
        let mut attr = Attr {
            prog_type,
            insn_cnt: (self.instructions.len() / 8) as u32,
            insns: self.instructions.as_ptr() as u64,
            license: self.license.as_ptr() as u64,
            log_level: logged.into(),
            log_size: log.len() as u32,
            // The kernel wants either all of a log or none.
            log_buf: if logged { log.as_mut_ptr() as u64 } else { 0 },
            kern_version: 0,
            prog_flags: if self.fragments { HAS_FRAGS } else { 0 },
            prog_name: self.name,
            prog_ifindex: 0,
            expected_attach_type,
            btf: [0; 6],
            fd_array: maps.as_ptr() as u64,
        };
        // SAFETY: the attributes of BPF_PROG_LOAD, which makes a descriptor; instructions, licence, log
        // and map descriptors outlive the call and have the lengths given; only the log is written.
        unsafe { bpf::open(PROG_LOAD as i32, &mut attr) }
    }
}

fn read_program(file: &File) -> Result<Vec<u8>, Errno> {
    let mut instructions = vec![0; MOST_INSTRUCTIONS];
    let length = file.read_at(&mut instructions, 0).map_err(|_| Errno::IO)?;
    instructions.truncate(length);
    Ok(instructions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_maps_by_their_place() {
        let mut instruction = [0x18, 0x11, 0, 0, 9, 0, 0, 0];
        name_map(&mut instruction, 2).unwrap();
        assert_eq!(instruction[..4], [0x18, 0x51, 0, 0]);
        assert_eq!(instruction[4..], 2_u32.to_ne_bytes());
        // Named already; a constant; another instruction.
        for mut other in [instruction, [0x18, 1, 0, 0, 0, 0, 0, 0], [0xb7; 8]] {
            assert_eq!(name_map(&mut other, 0), Err(Errno::INVAL));
        }
    }

    #[test]
    fn knows_its_kinds() {
        for kind in [Kind::Xdp, Kind::CgroupDevice, Kind::SocketFilter] {
            assert_eq!(Kind::from_byte(kind as u8), Some(kind));
        }
        assert_eq!(Kind::from_byte(3), None);
    }
}
