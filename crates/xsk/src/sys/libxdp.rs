//! libxdp (libxdp.so.1, 1.2 or later), loaded at run time, for its dispatcher: an XDP program that
//! calls several others (`lib/libxdp` in the sources of xdp-tools).
#![allow(unsafe_code)] // loading the library, and calling its functions.

use super::SysResult;
use libloading::Library;
use rustix::io::Errno;
use std::ffi::{c_char, c_int, c_long, c_uint, c_void};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// A `struct xdp_program` or `struct xdp_multiprog`.
type Object = *mut c_void;
/// A function that prints messages.
type Print = Option<unsafe extern "C" fn(c_uint, *const c_char, *mut c_void) -> c_int>;

/// `enum xdp_attach_mode`: whichever mode the program is in.
const XDP_MODE_UNSPEC: c_uint = 0;

/// The functions of libxdp. It has global state without locks, so that its calls exclude each other.
pub(crate) struct Libxdp {
    turn: Mutex<()>,
    set_print: unsafe extern "C" fn(Print) -> Print,
    /// Of libbpf, which libxdp loads.
    libbpf_set_print: unsafe extern "C" fn(Print) -> Print,
    get_error: unsafe extern "C" fn(Object) -> c_long,
    setup_xdp_prog: unsafe extern "C" fn(c_int, *mut c_int) -> c_int,
    get_from_ifindex: unsafe extern "C" fn(c_int) -> Object,
    close: unsafe extern "C" fn(Object),
    is_legacy: unsafe extern "C" fn(Object) -> bool,
    main_prog: unsafe extern "C" fn(Object) -> Object,
    next_prog: unsafe extern "C" fn(Object, Object) -> Object,
    program_fd: unsafe extern "C" fn(Object) -> c_int,
    detach: unsafe extern "C" fn(Object, c_int, c_uint, c_uint) -> c_int,
}

impl std::fmt::Debug for Libxdp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Libxdp")
    }
}

impl Libxdp {
    /// The library, which is loaded once and stays.
    pub(crate) fn get() -> Result<&'static Self, &'static str> {
        static LIBXDP: OnceLock<Result<Libxdp, String>> = OnceLock::new();
        let loaded = LIBXDP.get_or_init(|| Self::load().map_err(|error| error.to_string()));
        loaded.as_ref().map_err(String::as_str)
    }

    fn load() -> Result<Self, libloading::Error> {
        // SAFETY: needed because loading runs the library's constructors; those of libxdp and of the
        // libraries below it only set up their own state.
        let library = unsafe { Library::new("libxdp.so.1") }?;
        // It stays loaded, so that its functions stay where they are.
        let library: &'static Library = Box::leak(Box::new(library));
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: needed because the linker checks no types. The type of the field is that of
                // the function in xdp/libxdp.h or xdp/xsk.h, the same in all versions of libxdp.so.1.
                *unsafe { library.get($name) }?
            };
        }
        Ok(Self {
            turn: Mutex::new(()),
            set_print: function!("libxdp_set_print"),
            libbpf_set_print: function!("libbpf_set_print"),
            get_error: function!("libxdp_get_error"),
            setup_xdp_prog: function!("xsk_setup_xdp_prog"),
            get_from_ifindex: function!("xdp_multiprog__get_from_ifindex"),
            close: function!("xdp_multiprog__close"),
            is_legacy: function!("xdp_multiprog__is_legacy"),
            main_prog: function!("xdp_multiprog__main_prog"),
            next_prog: function!("xdp_multiprog__next_prog"),
            program_fd: function!("xdp_program__fd"),
            detach: function!("xdp_program__detach"),
        })
    }

    /// Attaches libxdp's own redirect program to a device, or takes part in the one attached, which
    /// counts its users. Returns the program's XSKMAP.
    pub(crate) fn setup_xdp_prog(&self, ifindex: u32) -> SysResult<OwnedFd> {
        let _turn = self.turn();
        let mut map = -1;
        // SAFETY: needed to call the library; it writes the descriptor to a local.
        let result = unsafe { (self.setup_xdp_prog)(ifindex.cast_signed(), &raw mut map) };
        check(result)?;
        // SAFETY: needed to own the descriptor, which the library has opened for the caller.
        Ok(unsafe { OwnedFd::from_raw_fd(map) })
    }

    /// The programs attached to a device.
    pub(crate) fn attachments(&self, ifindex: u32) -> SysResult<Attachments<'_>> {
        let turn = self.turn();
        // SAFETY: needed to call the library.
        let multiprog = unsafe { (self.get_from_ifindex)(ifindex.cast_signed()) };
        // SAFETY: needed to call the library; it only looks at the pointer's value.
        let error = unsafe { (self.get_error)(multiprog) };
        check(error as c_int)?;
        let multiprog = NonNull::new(multiprog).ok_or(Errno::NOENT)?;
        Ok(Attachments {
            libxdp: self,
            multiprog,
            ifindex,
            _turn: turn,
        })
    }

    /// Waits for other threads, and silences both libraries.
    fn turn(&self) -> Turn<'_> {
        // A panic elsewhere leaves nothing of the library half done.
        let guard = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: needed to call the library; without a function it prints nothing.
        let print = unsafe { (self.set_print)(None) };
        // SAFETY: as above.
        let libbpf_print = unsafe { (self.libbpf_set_print)(None) };
        Turn {
            libxdp: self,
            print,
            libbpf_print,
            _guard: guard,
        }
    }
}

/// The right to call the library.
struct Turn<'l> {
    libxdp: &'l Libxdp,
    /// The functions that printed before.
    print: Print,
    libbpf_print: Print,
    _guard: MutexGuard<'l, ()>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // SAFETY: needed to call the library; the function is the one that it had before.
        unsafe { (self.libxdp.set_print)(self.print) };
        // SAFETY: as above.
        unsafe { (self.libxdp.libbpf_set_print)(self.libbpf_print) };
    }
}

/// The programs attached to a device, at the time of the look-up.
pub(crate) struct Attachments<'l> {
    libxdp: &'l Libxdp,
    multiprog: NonNull<c_void>,
    ifindex: u32,
    _turn: Turn<'l>,
}

impl Attachments<'_> {
    /// Whether a dispatcher calls them.
    pub(crate) fn have_dispatcher(&self) -> bool {
        // SAFETY: needed to call the library; the object is alive.
        !unsafe { (self.libxdp.is_legacy)(self.multiprog.as_ptr()) }
    }

    /// The first value that `find` has for the program's descriptor.
    pub(crate) fn find_map<T>(&self, find: impl Fn(BorrowedFd<'_>) -> Option<T>) -> Option<T> {
        self.find(find).map(|(_, found)| found)
    }

    /// Detaches the first program for which `which` holds, if there is one.
    pub(crate) fn detach(&self, which: impl Fn(BorrowedFd<'_>) -> bool) -> SysResult<()> {
        let Some((program, ())) = self.find(|fd| which(fd).then_some(())) else {
            return Ok(());
        };
        let ifindex = self.ifindex.cast_signed();
        // SAFETY: needed to call the library; the program lives as long as the object it is from.
        check(unsafe { (self.libxdp.detach)(program, ifindex, XDP_MODE_UNSPEC, 0) })
    }

    fn find<T>(&self, find: impl Fn(BorrowedFd<'_>) -> Option<T>) -> Option<(Object, T)> {
        let mut program = self.next(ptr::null_mut());
        while !program.is_null() {
            // SAFETY: needed to call the library; the program is one of this object.
            let fd = unsafe { (self.libxdp.program_fd)(program) };
            if fd >= 0 {
                // SAFETY: needed to use the library's descriptor, which stays open until the object
                // is closed, after this.
                let fd = unsafe { BorrowedFd::borrow_raw(fd) };
                if let Some(found) = find(fd) {
                    return Some((program, found));
                }
            }
            program = self.next(program);
        }
        None
    }

    /// The program behind another, null behind the last; null is before the first.
    fn next(&self, program: Object) -> Object {
        let multiprog = self.multiprog.as_ptr();
        if self.have_dispatcher() {
            // SAFETY: needed to call the library; the program is one of this object, or null.
            return unsafe { (self.libxdp.next_prog)(program, multiprog) };
        }
        if program.is_null() {
            // SAFETY: needed to call the library; the object is alive.
            return unsafe { (self.libxdp.main_prog)(multiprog) };
        }
        ptr::null_mut()
    }
}

impl Drop for Attachments<'_> {
    fn drop(&mut self) {
        // SAFETY: needed to free the object; no program of it is used afterwards.
        unsafe { (self.libxdp.close)(self.multiprog.as_ptr()) };
    }
}

/// The library returns negative errnos.
fn check(result: c_int) -> SysResult<()> {
    if result < 0 {
        return Err(Errno::from_raw_os_error(-result));
    }
    Ok(())
}
