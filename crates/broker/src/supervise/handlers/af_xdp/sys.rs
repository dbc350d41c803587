//! bpf(2), and the socket options and ioctls that rustix lacks.
#![allow(unsafe_code)] // bpf(2), getsockopt(2), setsockopt(2), ioctl(2) and mmap(2).

use crate::bpf;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

/// A result whose error is the kernel's errno.
pub(super) type SysResult<T> = Result<T, Errno>;

/// Commands of bpf(2) (`enum bpf_cmd`).
pub(super) const MAP_CREATE: i32 = 0;
pub(super) const PROG_LOAD: i32 = 5;
pub(super) const PROG_GET_FD_BY_ID: i32 = 13;
pub(super) const MAP_GET_FD_BY_ID: i32 = 14;
pub(super) const OBJ_GET_INFO_BY_FD: i32 = 15;
pub(super) const BTF_LOAD: i32 = 18;
pub(super) const BTF_GET_FD_BY_ID: i32 = 19;
pub(super) const LINK_CREATE: i32 = 28;
const LINK_UPDATE: i32 = 29;
const MAP_LOOKUP_ELEM: i32 = 1;
const MAP_UPDATE_ELEM: i32 = 2;
const LINK_GET_FD_BY_ID: i32 = 30;
const LINK_DETACH: i32 = 34;

/// `BPF_XDP` of `enum bpf_attach_type`.
pub(super) const ATTACH_XDP: u32 = 37;
/// `BPF_F_REPLACE`.
const REPLACE: u32 = 4;

/// Length of a program's or map's name with its final zero.
pub(super) const NAME_LEN: usize = 16;

/// Type of a program (`enum bpf_prog_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum ProgramType {
    SocketFilter = 1,
    Xdp = 6,
}

/// A map to create.
#[derive(Debug, Clone, Copy)]
pub(super) struct MapAttributes {
    pub(super) map_type: u32,
    pub(super) key_size: u32,
    pub(super) value_size: u32,
    pub(super) max_entries: u32,
    pub(super) flags: u32,
    pub(super) name: [u8; NAME_LEN],
}

/// Leading part of `struct bpf_prog_info`, as the kernel wrote it.
pub(super) type ProgramInfo = [u8; 232];

/// The XDP link that a descriptor or id stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LinkInfo {
    pub(super) id: u32,
    pub(super) program: u32,
}

fn check(result: libc::c_int) -> SysResult<()> {
    if result < 0 {
        let code = std::io::Error::last_os_error().raw_os_error();
        return Err(Errno::from_raw_os_error(code.unwrap_or(libc::EIO)));
    }
    Ok(())
}

pub(super) fn map_create(map: &MapAttributes) -> SysResult<OwnedFd> {
    #[repr(C)]
    struct Attr {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        map_flags: u32,
        inner_map_fd: u32,
        numa_node: u32,
        name: [u8; NAME_LEN],
    }
    let mut attr = Attr {
        map_type: map.map_type,
        key_size: map.key_size,
        value_size: map.value_size,
        max_entries: map.max_entries,
        map_flags: map.flags,
        inner_map_fd: 0,
        numa_node: 0,
        name: map.name,
    };
    // SAFETY: the prefix for BPF_MAP_CREATE; it holds no pointers.
    unsafe { bpf::open(MAP_CREATE, &mut attr) }
}

/// `return 0`.
const RETURN_ZERO: [u64; 2] = [0xb7, 0x95];

/// Loads a socket filter that drops all packets.
pub(super) fn load_nothing(name: [u8; NAME_LEN]) -> SysResult<OwnedFd> {
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
    }
    let license = c"Dual MIT/GPL";
    let mut attr = Attr {
        prog_type: ProgramType::SocketFilter as u32,
        insn_cnt: RETURN_ZERO.len() as u32,
        insns: RETURN_ZERO.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: 0,
        prog_name: name,
    };
    // SAFETY: the prefix for BPF_PROG_LOAD; instructions and licence are static, and the count is
    // that of the instructions.
    unsafe { bpf::open(PROG_LOAD, &mut attr) }
}

/// Attaches an XDP program to a device of this thread's network namespace.
pub(super) fn link_create(program: BorrowedFd<'_>, ifindex: u32, flags: u32) -> SysResult<OwnedFd> {
    #[repr(C)]
    struct Attr {
        prog_fd: u32,
        target_ifindex: u32,
        attach_type: u32,
        flags: u32,
    }
    let mut attr = Attr {
        prog_fd: program.as_raw_fd() as u32,
        target_ifindex: ifindex,
        attach_type: ATTACH_XDP,
        flags,
    };
    // SAFETY: the prefix for BPF_LINK_CREATE; it holds no pointers.
    unsafe { bpf::open(LINK_CREATE, &mut attr) }
}

/// Puts a program in the place of another, `EPERM` if the link has not that one.
pub(super) fn link_update(
    link: BorrowedFd<'_>,
    new: BorrowedFd<'_>,
    old: BorrowedFd<'_>,
) -> SysResult<()> {
    #[repr(C)]
    struct Attr {
        link_fd: u32,
        new_prog_fd: u32,
        flags: u32,
        old_prog_fd: u32,
    }
    let mut attr = Attr {
        link_fd: link.as_raw_fd() as u32,
        new_prog_fd: new.as_raw_fd() as u32,
        flags: REPLACE,
        old_prog_fd: old.as_raw_fd() as u32,
    };
    // SAFETY: the prefix for BPF_LINK_UPDATE; it holds no pointers.
    unsafe { bpf::run(LINK_UPDATE, &mut attr) }.map(drop)
}

/// Detaches a link, whoever else has it.
pub(super) fn link_detach(link: BorrowedFd<'_>) -> SysResult<()> {
    #[repr(C)]
    struct Attr {
        link_fd: u32,
    }
    let mut attr = Attr {
        link_fd: link.as_raw_fd() as u32,
    };
    // SAFETY: the prefix for BPF_LINK_DETACH; it holds no pointers.
    unsafe { bpf::run(LINK_DETACH, &mut attr) }.map(drop)
}

fn by_id(command: i32, id: u32) -> SysResult<OwnedFd> {
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
    // SAFETY: the prefix for the commands that look an id up; it holds no pointers.
    unsafe { bpf::open(command, &mut attr) }
}

pub(super) fn program_by_id(id: u32) -> SysResult<OwnedFd> {
    by_id(PROG_GET_FD_BY_ID, id)
}

pub(super) fn map_by_id(id: u32) -> SysResult<OwnedFd> {
    by_id(MAP_GET_FD_BY_ID, id)
}

pub(super) fn link_by_id(id: u32) -> SysResult<OwnedFd> {
    by_id(LINK_GET_FD_BY_ID, id)
}

/// Reads the leading part of an object's info struct, which must request no arrays.
fn object_info<const N: usize>(object: BorrowedFd<'_>) -> SysResult<[u8; N]> {
    #[repr(C)]
    struct Attr {
        bpf_fd: u32,
        info_len: u32,
        info: u64,
    }
    let mut info = [0_u8; N];
    let mut attr = Attr {
        bpf_fd: object.as_raw_fd() as u32,
        info_len: N as u32,
        info: info.as_mut_ptr() as u64,
    };
    // SAFETY: the prefix for BPF_OBJ_GET_INFO_BY_FD; the kernel writes at most N bytes to the array,
    // and follows no address in it, since all are zero.
    unsafe { bpf::run(OBJ_GET_INFO_BY_FD, &mut attr) }?;
    Ok(info)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
    u32::from_ne_bytes(word.unwrap_or_default())
}

/// A map's id, type and sizes.
pub(super) fn map_info(map: BorrowedFd<'_>) -> SysResult<MapAttributes> {
    let info = object_info::<40>(map)?;
    Ok(MapAttributes {
        map_type: word(&info, 0),
        key_size: word(&info, 8),
        value_size: word(&info, 12),
        max_entries: word(&info, 16),
        flags: word(&info, 20),
        name: info.last_chunk().copied().unwrap_or_default(),
    })
}

/// `BPF_MAP_TYPE_ARRAY`.
pub(super) const ARRAY: u32 = 2;

/// An array of one element, which has these bytes.
pub(super) fn array_of(bytes: &[u8], name: [u8; NAME_LEN]) -> SysResult<OwnedFd> {
    let array = map_create(&MapAttributes {
        map_type: ARRAY,
        key_size: 4,
        value_size: bytes.len() as u32,
        max_entries: 1,
        flags: 0,
        name,
    })?;
    // SAFETY: `bytes` are as long as an element, and the kernel only reads them.
    unsafe { first_element(MAP_UPDATE_ELEM, array.as_fd(), bytes.as_ptr().cast_mut()) }?;
    Ok(array)
}

/// The bytes of an array's first element, whose size must not be beyond `most`.
pub(super) fn first_of(array: BorrowedFd<'_>, most: u32) -> SysResult<Vec<u8>> {
    let map = map_info(array)?;
    // Others give a value for each CPU, or none of this size.
    if map.map_type != ARRAY || map.key_size != 4 || map.value_size > most {
        return Err(Errno::INVAL);
    }
    let mut bytes = vec![0; map.value_size as usize];
    // SAFETY: `bytes` are as long as an element, which never changes.
    unsafe { first_element(MAP_LOOKUP_ELEM, array, bytes.as_mut_ptr()) }?;
    Ok(bytes)
}

/// Reads or writes the first element of an array.
///
/// # Safety
///
/// `value` must have as many bytes as an element, valid for the command's reads or writes.
unsafe fn first_element(command: i32, array: BorrowedFd<'_>, value: *mut u8) -> SysResult<()> {
    #[repr(C)]
    struct Attr {
        map_fd: u32,
        padding: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    let key = 0_u32;
    let mut attr = Attr {
        map_fd: array.as_raw_fd() as u32,
        padding: 0,
        key: (&raw const key).expose_provenance() as u64,
        value: value.expose_provenance() as u64,
        flags: 0,
    };
    // SAFETY: the prefix for the commands of elements. The kernel reads the key, which is as long as it
    // asks; `value` is the caller's promise.
    unsafe { bpf::run(command, &mut attr) }.map(drop)
}

/// The id of a program or map.
pub(super) fn object_id(object: BorrowedFd<'_>) -> SysResult<u32> {
    Ok(word(&object_info::<8>(object)?, 4))
}

pub(super) fn program_info(program: BorrowedFd<'_>) -> SysResult<ProgramInfo> {
    object_info(program)
}

pub(super) fn link_info(link: BorrowedFd<'_>) -> SysResult<LinkInfo> {
    let info = object_info::<16>(link)?;
    Ok(LinkInfo {
        id: word(&info, 4),
        program: word(&info, 8),
    })
}

/// An option of a socket, whose value is an int.
pub(super) fn set_option(socket: BorrowedFd<'_>, option: i32, value: i32) -> SysResult<()> {
    // SAFETY: needed because rustix lacks these options. The kernel reads one int, which outlives the
    // call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    check(result)
}

/// A ring of an AF_XDP socket, by its offset for mmap(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Ring {
    Rx = 0,
    Tx = 0x8000_0000,
}

/// Whether an AF_XDP socket that is not bound has a ring: a bound one shows none before Linux 6.4.
pub(super) fn has_ring(socket: BorrowedFd<'_>, ring: Ring) -> SysResult<bool> {
    // Less than any ring.
    const LEN: usize = 64;
    let null = std::ptr::null_mut();
    // SAFETY: needed because only mmap(2) shows the rings of a socket. The kernel chooses an
    // address that nothing has.
    let mapped = unsafe {
        mmap(
            null,
            LEN,
            ProtFlags::READ,
            MapFlags::SHARED,
            socket,
            ring as u64,
        )
    };
    match mapped {
        Ok(memory) => {
            // SAFETY: needed to give it back. It is as long as it was mapped, and nobody has its address.
            unsafe { munmap(memory, LEN) }?;
            Ok(true)
        }
        Err(Errno::INVAL) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// `SO_NETNS_COOKIE`, which rustix and libc lack (5.14).
const NETNS_COOKIE: i32 = 71;

/// Identifies the network namespace of a socket.
pub(super) fn namespace_cookie(socket: BorrowedFd<'_>) -> SysResult<u64> {
    let mut cookie = 0_u64;
    let mut len = size_of::<u64>() as libc::socklen_t;
    // SAFETY: needed because rustix lacks this option. The kernel writes at most `len` bytes to
    // `cookie`, and `len`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut len,
        )
    };
    check(result)?;
    Ok(cookie)
}

/// Size of `struct ethtool_channels`.
pub(super) const CHANNELS_LEN: usize = 36;
/// Size of `struct ifreq`, and of the name in it.
pub(super) const IFREQ_LEN: usize = 40;
pub(super) const IFNAMSIZ: usize = 16;
pub(super) const SIOCETHTOOL: i32 = 0x8946;
pub(super) const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// The channels of a device in the namespace of `socket`: `struct ethtool_channels`.
pub(super) fn channels(
    socket: BorrowedFd<'_>,
    name: [u8; IFNAMSIZ],
) -> SysResult<[u8; CHANNELS_LEN]> {
    #[repr(C)]
    struct Request {
        name: [u8; IFNAMSIZ],
        data: u64,
        rest: [u8; IFREQ_LEN - IFNAMSIZ - 8],
    }
    let mut channels = [0_u8; CHANNELS_LEN];
    for (to, from) in channels.iter_mut().zip(ETHTOOL_GCHANNELS.to_ne_bytes()) {
        *to = from;
    }
    let mut request = Request {
        name,
        data: channels.as_mut_ptr() as u64,
        rest: [0; IFREQ_LEN - IFNAMSIZ - 8],
    };
    // SAFETY: needed because rustix has no such ioctl. The kernel reads and writes one `ifreq`, and
    // as many bytes behind its address as this command has, those of `channels`.
    let result = unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            SIOCETHTOOL as libc::Ioctl,
            &raw mut request,
        )
    };
    check(result)?;
    Ok(channels)
}
