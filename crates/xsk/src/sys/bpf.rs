//! bpf(2): maps, programs and links (`include/uapi/linux/bpf.h`).
#![allow(unsafe_code)] // bpf(2), and owning the file descriptors that it returns.

use super::{SysResult, last_errno};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Commands of bpf(2) that this library uses (`enum bpf_cmd`).
#[derive(Debug, Clone, Copy)]
#[repr(u32)]
enum BpfCommand {
    MapCreate = 0,
    MapUpdate = 2,
    MapDelete = 3,
    ProgLoad = 5,
    ProgFdById = 13,
    ObjectInfo = 15,
    LinkCreate = 28,
}

const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
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

/// Prefix of `union bpf_attr` for `BPF_MAP_UPDATE_ELEM` and `BPF_MAP_DELETE_ELEM`.
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

/// Loads an XDP program. A failure has the verifier's log, which can be empty.
pub(crate) fn xdp_program_load(
    name: [u8; BPF_NAME_LEN],
    instructions: &[Instruction],
    license: &std::ffi::CStr,
) -> Result<OwnedFd, (Errno, String)> {
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
    let mut log = vec![0_u8; 4096];
    let mut attr = Attr {
        prog_type: BPF_PROG_TYPE_XDP,
        insn_cnt: instructions.len() as u32,
        insns: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 1,
        log_size: log.len() as u32,
        log_buf: log.as_mut_ptr() as u64,
        kern_version: 0,
        prog_flags: 0,
        prog_name: name,
        prog_ifindex: 0,
        expected_attach_type: BPF_XDP,
    };
    // SAFETY: the prefix for BPF_PROG_LOAD; instructions, licence and log outlive the call and
    // have the lengths given.
    let result = unsafe { bpf(BpfCommand::ProgLoad, &mut attr) };
    result.map(owned).map_err(|errno| {
        let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
        (
            errno,
            String::from_utf8_lossy(&log[..end]).trim().to_owned(),
        )
    })
}

/// Attaches an XDP program to a device with a link. `flags` are the `XDP_FLAGS_*` modes.
pub(crate) fn xdp_link_create(
    program: BorrowedFd<'_>,
    ifindex: u32,
    flags: u32,
) -> SysResult<OwnedFd> {
    link_create(program.as_raw_fd() as u32, ifindex, flags)
}

/// Whether the kernel has XDP links (5.9): for an invalid program it then returns EBADF, and an older
/// kernel EINVAL. An error when this process has no permission.
pub(crate) fn xdp_link_known() -> SysResult<bool> {
    match link_create(u32::MAX, 1, 0) {
        Ok(_) | Err(Errno::BADF) => Ok(true),
        Err(Errno::INVAL) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn link_create(prog_fd: u32, target_ifindex: u32, flags: u32) -> SysResult<OwnedFd> {
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
        attach_type: BPF_XDP,
        flags,
    };
    // SAFETY: the prefix for BPF_LINK_CREATE; it holds no pointers.
    unsafe { bpf(BpfCommand::LinkCreate, &mut attr) }.map(owned)
}

/// The tag and name of a loaded program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProgramInfo {
    pub(crate) tag: [u8; 8],
    pub(crate) name: [u8; BPF_NAME_LEN],
}

/// Looks a program up by its id. Needs `CAP_SYS_ADMIN` (or `CAP_BPF` on newer kernels).
pub(crate) fn program_info(id: u32) -> SysResult<ProgramInfo> {
    /// Leading part of `struct bpf_prog_info`, up to the name.
    #[repr(C)]
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
    #[repr(C)]
    struct FdById {
        id: u32,
        next_id: u32,
        open_flags: u32,
    }
    let mut attr = FdById {
        id,
        next_id: 0,
        open_flags: 0,
    };
    // SAFETY: the prefix for BPF_PROG_GET_FD_BY_ID; it holds no pointers.
    let program = unsafe { bpf(BpfCommand::ProgFdById, &mut attr) }.map(owned)?;
    // SAFETY: needed for a plain C struct; all zeroes is a valid value of it, and requests no
    // arrays.
    let mut info: Info = unsafe { std::mem::zeroed() };
    object_info(program.as_fd(), &mut info)?;
    Ok(ProgramInfo {
        tag: info.tag,
        name: info.name,
    })
}

/// The type and size of a map.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MapInfo {
    pub(crate) is_xskmap: bool,
    pub(crate) max_entries: u32,
}

/// Reads the type and size of a map.
pub(crate) fn map_info(map: BorrowedFd<'_>) -> SysResult<MapInfo> {
    /// Leading part of `struct bpf_map_info`.
    #[repr(C)]
    #[derive(Default)]
    struct Info {
        map_type: u32,
        id: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        map_flags: u32,
    }
    let mut info = Info::default();
    object_info(map, &mut info)?;
    let is_xskmap =
        info.map_type == BPF_MAP_TYPE_XSKMAP && info.key_size == 4 && info.value_size == 4;
    Ok(MapInfo {
        is_xskmap,
        max_entries: info.max_entries,
    })
}

/// Reads the leading part of a BPF object's info struct. `T` is a plain C struct.
fn object_info<T>(object: BorrowedFd<'_>, info: &mut T) -> SysResult<()> {
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
    // to the struct, whose fields are plain integers.
    unsafe { bpf(BpfCommand::ObjectInfo, &mut attr) }.map(drop)
}
