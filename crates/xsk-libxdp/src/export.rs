//! The functions of `xdp/xsk.h` that C calls.
//!
//! Each checks the pointers that libxdp checks, and those that it trusts for null, and answers with libxdp's
//! error numbers. A pointer that is not null is trusted, as C can do no better.
#![allow(unsafe_code)] // Pointers of the caller's, and the objects behind those that were given out.

use crate::abi::{
    Ring, SOCKET_OPTS_END, SocketConfig, SocketOpts, UMEM_OPTS_END, UmemConfig, UmemOpts,
};
use crate::ring::RingAt;
use crate::socket::{self, Settings, Socket};
use crate::umem::{Memory, Pair, Umem};
use rustix::io::Errno;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;

/// The errno of a call of the C library.
fn set_errno(errno: Errno) {
    // SAFETY: needed to write a variable of the C library's; the address is this thread's.
    let variable = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { variable.write(errno.raw_os_error()) };
}

/// An errno as the negative result of a function.
fn negative(errno: Errno) -> c_int {
    -errno.raw_os_error()
}

fn result(result: Result<(), Errno>) -> c_int {
    result.map_or_else(negative, |()| 0)
}

/// A pointer, or null with errno.
fn pointer<T>(result: Result<*mut T, Errno>) -> *mut T {
    result.unwrap_or_else(|errno| {
        set_errno(errno);
        std::ptr::null_mut()
    })
}

/// Stores what was made where the caller wants it.
///
/// # Safety
///
/// `to` must be writable.
unsafe fn store<T>(to: *mut *mut T, made: Result<*mut T, Errno>) -> c_int {
    // SAFETY: the caller's promise.
    result(made.map(|made| unsafe { to.write(made) }))
}

/// Both rings, if there are both.
///
/// # Safety
///
/// As that of [`RingAt::new`].
unsafe fn pair(fill: *mut Ring, completion: *mut Ring) -> Option<Pair> {
    // SAFETY: the caller's promise.
    let fill = unsafe { RingAt::new(fill) };
    // SAFETY: the caller's promise.
    let completion = unsafe { RingAt::new(completion) };
    Some(Pair {
        fill: fill?,
        completion: completion?,
    })
}

/// Reads options whose first member is the size of what the caller knows: nothing but zeroes may be behind
/// what this version knows.
///
/// # Safety
///
/// `opts` must be null, or as long as its first member says, and all zeroes a value of `T`, which has no
/// other values that are invalid.
unsafe fn options<T>(opts: *const T, end: usize) -> Result<T, Errno> {
    // SAFETY: the caller's promise.
    let mut read: T = unsafe { std::mem::zeroed() };
    if opts.is_null() {
        return Ok(read);
    }
    // SAFETY: needed to read the caller's size, which each such structure begins with.
    let size = unsafe { opts.cast::<usize>().read() };
    if size < size_of::<usize>() {
        return Err(Errno::INVAL);
    }
    let bytes = opts.cast::<u8>();
    // SAFETY: needed to read the caller's structure, which has `size` bytes.
    let is_zero = |at| unsafe { bytes.wrapping_add(at).read() } == 0;
    if !(end..size).all(is_zero) {
        return Err(Errno::INVAL);
    }
    let to = (&raw mut read).cast::<u8>();
    // SAFETY: needed to copy what the caller knows: the source has `size` bytes, and the copy `end`.
    unsafe { to.copy_from_nonoverlapping(bytes, size.min(end)) };
    Ok(read)
}

/// A UMEM that was given out.
///
/// # Safety
///
/// `umem` must be null, or of [`give_out`] and not deleted.
unsafe fn umem_at(umem: *const Umem) -> Option<ManuallyDrop<Arc<Umem>>> {
    // SAFETY: the caller's promise; the count that the pointer stands for is not touched.
    (!umem.is_null()).then(|| ManuallyDrop::new(unsafe { Arc::from_raw(umem) }))
}

fn give_out(umem: Arc<Umem>) -> *mut Umem {
    Arc::into_raw(umem).cast_mut()
}

/// Registers a UMEM.
///
/// # Safety
///
/// `fd`, if positive, must be the caller's to give away; for the rest see [`pair`].
unsafe fn create_umem(
    area: *mut c_void,
    fill: *mut Ring,
    completion: *mut Ring,
    opts: UmemOpts,
) -> Result<*mut Umem, Errno> {
    // SAFETY: the caller's promise.
    let pair = unsafe { pair(fill, completion) };
    let pair = pair.filter(|_| !area.is_null()).ok_or(Errno::FAULT)?;
    // As libxdp, which leaves other addresses to the kernel.
    if opts.size == 0 && !area.addr().is_multiple_of(rustix::param::page_size()) {
        return Err(Errno::INVAL);
    }
    // SAFETY: needed to own the caller's socket: libxdp closes it with the UMEM, and also on failure.
    let socket = (opts.fd > 0).then(|| unsafe { OwnedFd::from_raw_fd(opts.fd) });
    let memory = Memory {
        addr: area.addr() as u64,
        len: opts.size,
        tx_metadata_len: opts.tx_metadata_len,
    };
    Umem::create(socket, memory, opts.config, pair).map(give_out)
}

/// `xsk_umem__create_opts`.
#[unsafe(no_mangle)]
unsafe extern "C" fn xsk_umem__create_opts(
    area: *mut c_void,
    fill: *mut Ring,
    completion: *mut Ring,
    opts: *const UmemOpts,
) -> *mut Umem {
    if area.is_null() || fill.is_null() || completion.is_null() {
        return pointer(Err(Errno::FAULT));
    }
    // SAFETY: the caller's structures are as the header demands, and consist of numbers.
    pointer(unsafe { options(opts, UMEM_OPTS_END) }.and_then(|opts| {
        // SAFETY: as above.
        unsafe { create_umem(area, fill, completion, opts) }
    }))
}

/// `xsk_umem__create_with_fd`.
#[unsafe(no_mangle)]
unsafe extern "C" fn xsk_umem__create_with_fd(
    umem: *mut *mut Umem,
    fd: c_int,
    area: *mut c_void,
    size: u64,
    fill: *mut Ring,
    completion: *mut Ring,
    config: *const UmemConfig,
) -> c_int {
    if umem.is_null() {
        return negative(Errno::FAULT);
    }
    let opts = UmemOpts {
        sz: size_of::<UmemOpts>(),
        fd,
        size,
        // SAFETY: needed to read the caller's structure, which is null or as the header has it.
        config: unsafe { config.as_ref() }.copied().unwrap_or_default(),
        tx_metadata_len: 0,
    };
    // SAFETY: the caller's structures are as the header demands.
    let made = unsafe { create_umem(area, fill, completion, opts) };
    // SAFETY: the caller's pointer is writable.
    unsafe { store(umem, made) }
}

/// `xsk_umem__create`.
#[unsafe(no_mangle)]
unsafe extern "C" fn xsk_umem__create(
    umem: *mut *mut Umem,
    area: *mut c_void,
    size: u64,
    fill: *mut Ring,
    completion: *mut Ring,
    config: *const UmemConfig,
) -> c_int {
    // SAFETY: as that one's.
    unsafe { xsk_umem__create_with_fd(umem, 0, area, size, fill, completion, config) }
}

/// `xsk_umem__fd`.
#[unsafe(no_mangle)]
unsafe extern "C" fn xsk_umem__fd(umem: *const Umem) -> c_int {
    // SAFETY: the caller's UMEM is one of ours, or null.
    unsafe { umem.as_ref() }.map_or(negative(Errno::INVAL), |umem| umem.fd().as_raw_fd())
}

/// `xsk_umem__delete`.
#[unsafe(no_mangle)]
unsafe extern "C" fn xsk_umem__delete(umem: *mut Umem) -> c_int {
    // SAFETY: the caller's UMEM is one of ours, or null.
    let Some(owned) = (unsafe { umem_at(umem) }) else {
        return 0;
    };
    if owned.is_used() {
        return negative(Errno::BUSY);
    }
    drop(ManuallyDrop::into_inner(owned));
    0
}

/// Opens and binds a socket.
///
/// # Safety
///
/// The pointers must be null, or as the header demands.
unsafe fn create_socket(
    device: *const c_char,
    queue: u32,
    umem: *mut Umem,
    opts: &SocketOpts,
) -> Result<*mut Socket, Errno> {
    // SAFETY: the caller's promise.
    let umem = unsafe { umem_at(umem) }.ok_or(Errno::FAULT)?;
    let settings = Settings {
        // SAFETY: the caller's promise.
        rx: unsafe { RingAt::new(opts.rx) },
        // SAFETY: the caller's promise.
        tx: unsafe { RingAt::new(opts.tx) },
        // SAFETY: the caller's promise.
        pair: unsafe { pair(opts.fill, opts.comp) },
        config: opts.config,
    };
    let has_half = opts.fill.is_null() != opts.comp.is_null();
    if settings.rx.is_none() && settings.tx.is_none() || has_half || device.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: needed to read the caller's string, which ends with a zero.
    let device = unsafe { CStr::from_ptr(device) };
    // The kernel's names can be other bytes than UTF-8: weir's library does not know such devices.
    let device = device.to_str().map_err(|_| Errno::NODEV)?;
    let socket = Socket::create(&umem, device, queue, &settings)?;
    Ok(Box::into_raw(Box::new(socket)))
}

/// `xsk_socket__create_opts`.
#[unsafe(no_mangle)]
unsafe extern "C" fn xsk_socket__create_opts(
    device: *const c_char,
    queue: u32,
    umem: *mut Umem,
    opts: *const SocketOpts,
) -> *mut Socket {
    // SAFETY: the caller's structure is as the header demands, of numbers and pointers.
    pointer(unsafe { options(opts, SOCKET_OPTS_END) }.and_then(|opts| {
        // SAFETY: the caller's pointers are as the header demands.
        unsafe { create_socket(device, queue, umem, &opts) }
    }))
}

/// `xsk_socket__create_shared`.
#[unsafe(no_mangle)]
unsafe extern "C" fn xsk_socket__create_shared(
    socket: *mut *mut Socket,
    device: *const c_char,
    queue: u32,
    umem: *mut Umem,
    rx: *mut Ring,
    tx: *mut Ring,
    fill: *mut Ring,
    comp: *mut Ring,
    config: *const SocketConfig,
) -> c_int {
    if socket.is_null() {
        return negative(Errno::FAULT);
    }
    let opts = SocketOpts {
        sz: size_of::<SocketOpts>(),
        rx,
        tx,
        fill,
        comp,
        // SAFETY: needed to read the caller's structure, which is null or as the header has it.
        config: unsafe { config.as_ref() }.copied().unwrap_or_default(),
    };
    // SAFETY: the caller's pointers are as the header demands.
    let made = unsafe { create_socket(device, queue, umem, &opts) };
    // SAFETY: the caller's pointer is writable.
    unsafe { store(socket, made) }
}

/// `xsk_socket__create`.
#[unsafe(no_mangle)]
unsafe extern "C" fn xsk_socket__create(
    socket: *mut *mut Socket,
    device: *const c_char,
    queue: u32,
    umem: *mut Umem,
    rx: *mut Ring,
    tx: *mut Ring,
    config: *const SocketConfig,
) -> c_int {
    let none = std::ptr::null_mut();
    // SAFETY: as that one's.
    unsafe { xsk_socket__create_shared(socket, device, queue, umem, rx, tx, none, none, config) }
}

/// `xsk_socket__fd`.
#[unsafe(no_mangle)]
unsafe extern "C" fn xsk_socket__fd(socket: *const Socket) -> c_int {
    // SAFETY: the caller's socket is one of ours, or null.
    unsafe { socket.as_ref() }.map_or(negative(Errno::INVAL), |socket| socket.fd().as_raw_fd())
}

/// `xsk_socket__update_xskmap`.
#[unsafe(no_mangle)]
unsafe extern "C" fn xsk_socket__update_xskmap(socket: *mut Socket, map: c_int) -> c_int {
    // SAFETY: the caller's socket is one of ours, or null.
    let Some(socket) = (unsafe { socket.as_ref() }) else {
        return negative(Errno::INVAL);
    };
    if map < 0 {
        return negative(Errno::BADF);
    }
    // SAFETY: needed to use the caller's descriptor. A wrong one is an error of the kernel.
    let map = unsafe { BorrowedFd::borrow_raw(map) };
    result(socket.insert_into(map))
}

/// `xsk_socket__delete`.
#[unsafe(no_mangle)]
unsafe extern "C" fn xsk_socket__delete(socket: *mut Socket) {
    if !socket.is_null() {
        // SAFETY: needed to own it again; it is one of ours, and not used any more.
        drop(unsafe { Box::from_raw(socket) });
    }
}

/// `xsk_setup_xdp_prog`.
#[unsafe(no_mangle)]
unsafe extern "C" fn xsk_setup_xdp_prog(ifindex: c_int, map: *mut c_int) -> c_int {
    let program = u32::try_from(ifindex).map_err(|_| Errno::INVAL);
    let program = program.and_then(socket::set_up_program);
    result(program.map(|made| {
        if !map.is_null() {
            // SAFETY: needed to write the caller's variable.
            unsafe { map.write(made.into_raw_fd()) };
        }
    }))
}
