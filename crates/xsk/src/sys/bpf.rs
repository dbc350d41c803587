//! bpf(2): maps, programs and links (`include/uapi/linux/bpf.h`).
#![allow(unsafe_code)] // bpf(2), and owning the file descriptors that it returns.

use super::{SysResult, last_errno};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Commands of bpf(2) that this library uses (`enum bpf_cmd`).
#[derive(Debug, Clone, Copy)]
#[repr(u32)]
enum BpfCommand {
    MapCreate = 0,
    #[cfg(feature = "libxdp")]
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    ProgLoad = 5,
    ObjectPin = 6,
    ObjectGet = 7,
    #[cfg(any(test, xsk_internals))]
    ProgTestRun = 10,
    ProgFdById = 13,
    #[cfg(any(feature = "libxdp", xsk_internals))]
    MapFdById = 14,
    ObjectInfo = 15,
    #[cfg(any(test, xsk_internals))]
    MapFreeze = 22,
    LinkCreate = 28,
    LinkUpdate = 29,
    LinkFdById = 30,
    LinkNextId = 31,
    #[cfg(any(test, xsk_internals))]
    LinkDetach = 34,
}

#[cfg(feature = "libxdp")]
const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_XDP: u32 = 37;
/// The program takes packets of several buffers (5.18).
const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;
/// The program runs on one device, and may ask its driver (6.3).
const BPF_F_XDP_DEV_BOUND_ONLY: u32 = 1 << 6;
const BPF_LINK_TYPE_XDP: u32 = 6;
/// `enum bpf_prog_type`.
#[derive(Debug, Clone, Copy)]
#[repr(u32)]
enum ProgramType {
    #[cfg(any(test, xsk_internals))]
    SocketFilter = 1,
    #[cfg(any(test, xsk_internals))]
    Classifier = 3,
    Xdp = 6,
}

/// Length of a program's or map's name with its final zero.
pub(crate) const BPF_NAME_LEN: usize = 16;

/// Runs one bpf(2) command with the leading fields of `union bpf_attr`; the kernel assumes zeroes
/// behind them.
///
/// # Safety
///
/// `attr` must be the `repr(C)` prefix of `union bpf_attr` for `command`, and every pointer in it
/// must be valid for the command's reads and writes.
unsafe fn bpf<T>(command: BpfCommand, attr: &mut T) -> SysResult<libc::c_long> {
    // SAFETY: needed because there is no wrapper. The size is that of the struct behind the
    // pointer; the rest is the caller's promise.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command as u32,
            std::ptr::from_mut(attr),
            size_of::<T>(),
        )
    };
    if result < 0 {
        Err(last_errno())
    } else {
        Ok(result)
    }
}

/// Owns the file descriptor that a bpf(2) command returned.
fn owned(result: libc::c_long) -> OwnedFd {
    // SAFETY: needed to own it. The kernel has just created it for this call, and no other
    // code has its number.
    unsafe { OwnedFd::from_raw_fd(result as i32) }
}

/// Creates an XSKMAP of `entries` slots.
pub(crate) fn xskmap_create(name: [u8; BPF_NAME_LEN], entries: u32) -> SysResult<OwnedFd> {
    #[repr(C)]
    struct Attr {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        map_flags: u32,
        inner_map_fd: u32,
        numa_node: u32,
        name: [u8; BPF_NAME_LEN],
    }
    let mut attr = Attr {
        map_type: BPF_MAP_TYPE_XSKMAP,
        key_size: 4,
        value_size: 4,
        max_entries: entries,
        map_flags: 0,
        inner_map_fd: 0,
        numa_node: 0,
        name,
    };
    // SAFETY: the prefix for BPF_MAP_CREATE; it holds no pointers.
    unsafe { bpf(BpfCommand::MapCreate, &mut attr) }.map(owned)
}

/// Prefix of `union bpf_attr` for the commands that look an element up, update or delete it.
#[repr(C)]
struct ElementAttr {
    map_fd: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Inserts `socket` into a slot of an XSKMAP, replacing the former entry.
pub(crate) fn xskmap_insert(
    map: BorrowedFd<'_>,
    slot: u32,
    socket: BorrowedFd<'_>,
) -> SysResult<()> {
    let value = socket.as_raw_fd() as u32;
    let mut attr = ElementAttr {
        map_fd: map.as_raw_fd() as u32,
        pad: 0,
        key: (&raw const slot) as u64,
        value: (&raw const value) as u64,
        flags: 0,
    };
    // SAFETY: the prefix for BPF_MAP_UPDATE_ELEM; both pointers are to locals of the sizes that
    // an XSKMAP has, 4 bytes each. A map with larger ones is refused before (see `map_info`).
    unsafe { bpf(BpfCommand::MapUpdate, &mut attr) }.map(drop)
}

/// Deletes the entry in a slot of an XSKMAP.
pub(crate) fn xskmap_remove(map: BorrowedFd<'_>, slot: u32) -> SysResult<()> {
    let mut attr = ElementAttr {
        map_fd: map.as_raw_fd() as u32,
        pad: 0,
        key: (&raw const slot) as u64,
        value: 0,
        flags: 0,
    };
    // SAFETY: the prefix for BPF_MAP_DELETE_ELEM; the key points to a local of 4 bytes.
    unsafe { bpf(BpfCommand::MapDelete, &mut attr) }.map(drop)
}

/// Forbids changes of a map by bpf(2), for good.
#[cfg(any(test, xsk_internals))]
pub(crate) fn map_freeze(map: BorrowedFd<'_>) -> SysResult<()> {
    let mut fd = map.as_raw_fd() as u32;
    // SAFETY: the prefix for BPF_MAP_FREEZE; it holds no pointers.
    unsafe { bpf(BpfCommand::MapFreeze, &mut fd) }.map(drop)
}

/// Looks a map up by its id. Needs `CAP_SYS_ADMIN`.
#[cfg(any(feature = "libxdp", xsk_internals))]
pub(crate) fn map_by_id(id: u32) -> SysResult<OwnedFd> {
    object_by_id(BpfCommand::MapFdById, id)
}

/// Opens a program, map or link by its id.
fn object_by_id(command: BpfCommand, id: u32) -> SysResult<OwnedFd> {
    #[repr(C)]
    struct Attr {
        id: u32,
        next_id: u32,
        open_flags: u32,
    }
    let mut attr = Attr {
        id,
        next_id: 0,
        open_flags: 0,
    };
    // SAFETY: the prefix for the commands `…FdById`, the only ones given; it holds no pointers.
    unsafe { bpf(command, &mut attr) }.map(owned)
}

/// Prefix of `union bpf_attr` for `BPF_OBJ_PIN` and `BPF_OBJ_GET`.
#[repr(C)]
struct PinAttr {
    path: u64,
    fd: u32,
    flags: u32,
}

/// Pins a program, map or link to a path on bpffs.
pub(crate) fn pin(object: BorrowedFd<'_>, path: &CStr) -> SysResult<()> {
    let mut attr = PinAttr {
        path: path.as_ptr() as u64,
        fd: object.as_raw_fd() as u32,
        flags: 0,
    };
    // SAFETY: the prefix for BPF_OBJ_PIN; the path ends with a zero and outlives the call.
    unsafe { bpf(BpfCommand::ObjectPin, &mut attr) }.map(drop)
}

/// Opens a pinned program, map or link.
pub(crate) fn open_pinned(path: &CStr) -> SysResult<OwnedFd> {
    let mut attr = PinAttr {
        path: path.as_ptr() as u64,
        fd: 0,
        flags: 0,
    };
    // SAFETY: the prefix for BPF_OBJ_GET; the path ends with a zero and outlives the call.
    unsafe { bpf(BpfCommand::ObjectGet, &mut attr) }.map(owned)
}

/// Changes the variables of a BPF program: the one value of the array that has them.
#[cfg(feature = "libxdp")]
pub(crate) fn change_variables<T>(
    map: BorrowedFd<'_>,
    change: impl FnOnce(&mut [u8]) -> T,
) -> SysResult<T> {
    let info = map_info(map)?;
    if info.map_type != BPF_MAP_TYPE_ARRAY || info.key_size != 4 {
        return Err(Errno::INVAL);
    }
    let mut value = vec![0_u8; info.value_size as usize];
    let key = 0_u32;
    let mut attr = ElementAttr {
        map_fd: map.as_raw_fd() as u32,
        pad: 0,
        key: (&raw const key) as u64,
        value: value.as_mut_ptr() as u64,
        flags: 0,
    };
    // SAFETY: the prefix for BPF_MAP_LOOKUP_ELEM; key and value have the sizes of this map, which is
    // of a type with one value an element.
    unsafe { bpf(BpfCommand::MapLookup, &mut attr) }?;
    let result = change(&mut value);
    // SAFETY: the prefix for BPF_MAP_UPDATE_ELEM, with the same key and value.
    unsafe { bpf(BpfCommand::MapUpdate, &mut attr) }?;
    Ok(result)
}

/// One BPF instruction (`struct bpf_insn`).
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Instruction {
    pub(crate) code: u8,
    /// Destination register in the low, source register in the high four bits.
    pub(crate) registers: u8,
    pub(crate) offset: i16,
    pub(crate) immediate: i32,
}

const _: () = assert!(size_of::<Instruction>() == 8);

/// Length of the buffer for the verifier's log.
const LOG_LEN: usize = 64 << 10;

/// Loads an XDP program, for packets of several buffers as well or not, for any device or for one alone. A
/// failure has the verifier's log, which can be empty.
pub(crate) fn xdp_program_load(
    name: [u8; BPF_NAME_LEN],
    instructions: &[Instruction],
    fragments: bool,
    device: Option<u32>,
    license: &CStr,
) -> Result<OwnedFd, (Errno, String)> {
    let fragments = if fragments { BPF_F_XDP_HAS_FRAGS } else { 0 };
    let bound = device.map_or(0, |_| BPF_F_XDP_DEV_BOUND_ONLY);
    let device = device.unwrap_or(0);
    let program = (fragments | bound, device);
    // With a log, Linux before 6.4 refuses a program whose log does not fit.
    let load =
        |log: &mut [u8]| program_load(ProgramType::Xdp, name, instructions, program, license, log);
    load(&mut []).or_else(|errno| {
        let mut log = vec![0_u8; LOG_LEN];
        load(&mut log).map_err(|_| {
            let end = log.iter().position(|&byte| byte == 0).unwrap_or(LOG_LEN);
            let log = String::from_utf8_lossy(&log[..end]);
            (errno, log.trim().to_owned())
        })
    })
}

/// Loads a program that cannot be attached as XDP.
#[cfg(any(test, xsk_internals))]
pub(crate) fn socket_filter_load(
    name: [u8; BPF_NAME_LEN],
    instructions: &[Instruction],
    license: &CStr,
) -> SysResult<OwnedFd> {
    program_load(
        ProgramType::SocketFilter,
        name,
        instructions,
        (0, 0),
        license,
        &mut [],
    )
}

/// Loads a program with its flags and device, and with the verifier's log if that has room.
fn program_load(
    program_type: ProgramType,
    name: [u8; BPF_NAME_LEN],
    instructions: &[Instruction],
    (flags, prog_ifindex): (u32, u32),
    license: &CStr,
    log: &mut [u8],
) -> SysResult<OwnedFd> {
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
        prog_name: [u8; BPF_NAME_LEN],
        prog_ifindex: u32,
        expected_attach_type: u32,
    }
    let logged = !log.is_empty();
    let mut attr = Attr {
        prog_type: program_type as u32,
        insn_cnt: instructions.len() as u32,
        insns: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: logged.into(),
        log_size: log.len() as u32,
        // The kernel wants either all of a log or none.
        log_buf: if logged { log.as_mut_ptr() as u64 } else { 0 },
        kern_version: 0,
        prog_flags: flags,
        prog_name: name,
        prog_ifindex,
        expected_attach_type: match program_type {
            #[cfg(any(test, xsk_internals))]
            ProgramType::SocketFilter | ProgramType::Classifier => 0,
            ProgramType::Xdp => BPF_XDP,
        },
    };
    // SAFETY: the prefix for BPF_PROG_LOAD; instructions, licence and log outlive the call and
    // have the lengths given.
    unsafe { bpf(BpfCommand::ProgLoad, &mut attr) }.map(owned)
}

/// Runs an XDP program once on a packet of at least 14 bytes, as if `lo` had received it on queue 0; returns
/// its action. A redirected packet goes nowhere.
#[cfg(any(test, xsk_internals))]
pub(crate) fn xdp_program_run(program: BorrowedFd<'_>, packet: &[u8]) -> SysResult<u32> {
    #[repr(C)]
    struct Attr {
        prog_fd: u32,
        retval: u32,
        data_size_in: u32,
        data_size_out: u32,
        data_in: u64,
        data_out: u64,
        repeat: u32,
        duration: u32,
    }
    let mut attr = Attr {
        prog_fd: program.as_raw_fd() as u32,
        retval: 0,
        data_size_in: packet.len() as u32,
        data_size_out: 0,
        data_in: packet.as_ptr() as u64,
        data_out: 0,
        repeat: 1,
        duration: 0,
    };
    // SAFETY: the prefix for BPF_PROG_TEST_RUN; the kernel reads the packet, which has the length
    // given, and writes no packet.
    unsafe { bpf(BpfCommand::ProgTestRun, &mut attr) }?;
    Ok(attr.retval)
}

/// Attaches an XDP program to a device with a link. `flags` are the `XDP_FLAGS_*` modes.
pub(crate) fn xdp_link_create(
    program: BorrowedFd<'_>,
    ifindex: u32,
    flags: u32,
) -> SysResult<OwnedFd> {
    link_create(program.as_raw_fd() as u32, ifindex, BPF_XDP, flags)
}

/// Loads a program of tc, and attaches it with a link to what a device sends (tcx, 6.6).
#[cfg(any(test, xsk_internals))]
pub(crate) fn tcx_egress(
    name: [u8; BPF_NAME_LEN],
    instructions: &[Instruction],
    ifindex: u32,
) -> SysResult<OwnedFd> {
    const BPF_TCX_EGRESS: u32 = 47;
    let kind = ProgramType::Classifier;
    let program = program_load(kind, name, instructions, (0, 0), c"GPL", &mut [])?;
    link_create(program.as_raw_fd() as u32, ifindex, BPF_TCX_EGRESS, 0)
}

/// Whether the kernel has XDP links (5.9): for an invalid program it then returns EBADF, and an older
/// kernel EINVAL. An error when this process has no permission.
pub(crate) fn xdp_link_known() -> SysResult<bool> {
    match link_create(u32::MAX, 1, BPF_XDP, 0) {
        Ok(_) | Err(Errno::BADF) => Ok(true),
        Err(Errno::INVAL) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn link_create(
    prog_fd: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
) -> SysResult<OwnedFd> {
    #[repr(C)]
    struct Attr {
        prog_fd: u32,
        target_ifindex: u32,
        attach_type: u32,
        flags: u32,
    }
    let mut attr = Attr {
        prog_fd,
        target_ifindex,
        attach_type,
        flags,
    };
    // SAFETY: the prefix for BPF_LINK_CREATE; it holds no pointers.
    unsafe { bpf(BpfCommand::LinkCreate, &mut attr) }.map(owned)
}

/// Replaces the program of a link. Packets meet the former or the new one, and never none.
pub(crate) fn xdp_link_update(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> SysResult<()> {
    #[repr(C)]
    struct Attr {
        link_fd: u32,
        new_prog_fd: u32,
        flags: u32,
        old_prog_fd: u32,
    }
    let mut attr = Attr {
        link_fd: link.as_raw_fd() as u32,
        new_prog_fd: program.as_raw_fd() as u32,
        flags: 0,
        old_prog_fd: 0,
    };
    // SAFETY: the prefix for BPF_LINK_UPDATE; it holds no pointers.
    unsafe { bpf(BpfCommand::LinkUpdate, &mut attr) }.map(drop)
}

/// Detaches the program of a link, which stays.
#[cfg(any(test, xsk_internals))]
pub(crate) fn xdp_link_detach(link: BorrowedFd<'_>) -> SysResult<()> {
    #[repr(C)]
    struct Attr {
        link_fd: u32,
    }
    let mut attr = Attr {
        link_fd: link.as_raw_fd() as u32,
    };
    // SAFETY: the prefix for BPF_LINK_DETACH; it holds no pointers.
    unsafe { bpf(BpfCommand::LinkDetach, &mut attr) }.map(drop)
}

/// A loaded program.
#[derive(Debug, Clone)]
pub(crate) struct ProgramInfo {
    pub(crate) is_xdp: bool,
    pub(crate) id: u32,
    tag: [u8; 8],
    name: [u8; BPF_NAME_LEN],
    /// The maps that it uses.
    pub(crate) map_ids: Vec<u32>,
}

impl ProgramInfo {
    /// Its name; empty if it has none.
    pub(crate) fn name(&self) -> String {
        text(&self.name)
    }

    /// A hash of its instructions, in hexadecimal.
    pub(crate) fn tag(&self) -> String {
        format!("{:016x}", u64::from_be_bytes(self.tag))
    }
}

/// Looks a program up by its id. Needs `CAP_SYS_ADMIN` (or `CAP_BPF` on newer kernels).
pub(crate) fn program_by_id(id: u32) -> SysResult<OwnedFd> {
    object_by_id(BpfCommand::ProgFdById, id)
}

/// Reads the properties of a program.
pub(crate) fn program_info(program: BorrowedFd<'_>) -> SysResult<ProgramInfo> {
    /// Leading part of `struct bpf_prog_info`, up to the name.
    #[repr(C)]
    #[derive(Default)]
    struct Info {
        prog_type: u32,
        id: u32,
        tag: [u8; 8],
        jited_prog_len: u32,
        xlated_prog_len: u32,
        jited_prog_insns: u64,
        xlated_prog_insns: u64,
        load_time: u64,
        created_by_uid: u32,
        nr_map_ids: u32,
        map_ids: u64,
        name: [u8; BPF_NAME_LEN],
    }
    const _: () = assert!(size_of::<Info>() == 80);
    let mut count = Info::default();
    // SAFETY: it requests no arrays.
    unsafe { object_info(program, &mut count) }?;
    let mut map_ids = vec![0; count.nr_map_ids as usize];
    let mut info = Info {
        nr_map_ids: count.nr_map_ids,
        map_ids: map_ids.as_mut_ptr() as u64,
        ..Info::default()
    };
    // SAFETY: the array requested has room for as many ids as its length says.
    unsafe { object_info(program, &mut info) }?;
    map_ids.truncate(info.nr_map_ids as usize);
    Ok(ProgramInfo {
        is_xdp: info.prog_type == ProgramType::Xdp as u32,
        id: info.id,
        tag: info.tag,
        name: info.name,
        map_ids,
    })
}

/// Leading part of `struct bpf_map_info`, up to the name.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MapInfo {
    map_type: u32,
    pub(crate) id: u32,
    key_size: u32,
    value_size: u32,
    pub(crate) max_entries: u32,
    map_flags: u32,
    name: [u8; BPF_NAME_LEN],
}

const _: () = assert!(size_of::<MapInfo>() == 40);

impl MapInfo {
    pub(crate) fn is_xskmap(&self) -> bool {
        self.map_type == BPF_MAP_TYPE_XSKMAP && self.key_size == 4 && self.value_size == 4
    }

    #[cfg(feature = "libxdp")]
    pub(crate) fn name(&self) -> String {
        text(&self.name)
    }
}

/// Reads the properties of a map.
pub(crate) fn map_info(map: BorrowedFd<'_>) -> SysResult<MapInfo> {
    let mut info = MapInfo::default();
    // SAFETY: no field of it is an address.
    unsafe { object_info(map, &mut info) }?;
    Ok(info)
}

/// A name as text.
fn text(name: &[u8; BPF_NAME_LEN]) -> String {
    let end = name.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&name[..end.unwrap_or(BPF_NAME_LEN)]).into_owned()
}

/// Reads the leading part of a BPF object's info struct.
///
/// # Safety
///
/// `T` must be a C struct of integers, in which every address of an array is zero or of one with room
/// for the number of elements given.
unsafe fn object_info<T>(object: BorrowedFd<'_>, info: &mut T) -> SysResult<()> {
    #[repr(C)]
    struct Attr {
        bpf_fd: u32,
        info_len: u32,
        info: u64,
    }
    let mut attr = Attr {
        bpf_fd: object.as_raw_fd() as u32,
        info_len: size_of::<T>() as u32,
        info: std::ptr::from_mut(info) as u64,
    };
    // SAFETY: the prefix for BPF_OBJ_GET_INFO_BY_FD; the kernel writes at most `info_len` bytes
    // to the struct, and the arrays are the caller's promise.
    unsafe { bpf(BpfCommand::ObjectInfo, &mut attr) }.map(drop)
}

/// The links that attach an XDP program, each with the index of its device. Empty without
/// `CAP_SYS_ADMIN`.
pub(crate) fn xdp_links(program_id: u32) -> impl Iterator<Item = (u32, OwnedFd)> {
    let next = |&id: &u32| next_link(id).ok();
    std::iter::successors(next(&0), next).filter_map(move |id| {
        let link = object_by_id(BpfCommand::LinkFdById, id).ok()?;
        let info = link_info(link.as_fd()).ok()?;
        let is_it = info.prog_id == program_id && info.link_type == BPF_LINK_TYPE_XDP;
        is_it.then_some((info.ifindex, link))
    })
}

/// Leading part of `struct bpf_link_info`, for an XDP link.
#[repr(C)]
#[derive(Default)]
struct LinkInfo {
    link_type: u32,
    id: u32,
    prog_id: u32,
    pad: u32,
    ifindex: u32,
}

/// `struct bpf_link_info` aligns what depends on the type to 8 bytes.
const _: () = assert!(std::mem::offset_of!(LinkInfo, ifindex) == 16);

/// Prefix of `union bpf_attr` for `BPF_LINK_GET_NEXT_ID`.
#[repr(C)]
struct LinkAttr {
    id: u32,
    next_id: u32,
}

/// The id of the link behind another.
fn next_link(id: u32) -> SysResult<u32> {
    let mut attr = LinkAttr { id, next_id: 0 };
    // SAFETY: the prefix for BPF_LINK_GET_NEXT_ID; it holds no pointers.
    unsafe { bpf(BpfCommand::LinkNextId, &mut attr) }?;
    Ok(attr.next_id)
}

/// An XDP link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct XdpLink {
    /// The index of the device that it attaches to, in the namespace of the device; 0 when that is gone,
    /// or the link detached.
    pub(crate) ifindex: u32,
    /// The id of its program.
    pub(crate) program: u32,
    /// Its own id.
    pub(crate) id: u32,
}

/// Reads an XDP link; `None` for another kind of link.
pub(crate) fn xdp_link(link: BorrowedFd<'_>) -> SysResult<Option<XdpLink>> {
    let info = link_info(link)?;
    Ok((info.link_type == BPF_LINK_TYPE_XDP).then_some(XdpLink {
        ifindex: info.ifindex,
        program: info.prog_id,
        id: info.id,
    }))
}

fn link_info(link: BorrowedFd<'_>) -> SysResult<LinkInfo> {
    let mut info = LinkInfo::default();
    // SAFETY: an XDP link has no arrays, and the addresses that other types have there are zero.
    unsafe { object_info(link, &mut info) }?;
    Ok(info)
}
