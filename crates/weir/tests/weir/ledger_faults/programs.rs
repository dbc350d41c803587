//! `testbpf`'s `faults.bpf.c` on devices.
//!
//! Unsafe code is needed to attach a program behind the driver, which the program never does.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use anyhow::{Context as _, Result};
use weir::bpf::{Map, Object, Programs};

static FAULTS: Object = Object {
    name: "faults",
    bytes: testbpf::FAULTS,
    needs: "Linux 5.10",
    layouts: &[],
    constants: &[],
    arrays_by_cpu: &[],
};

/// `XDP_FLAGS_SKB_MODE` of `linux/if_link.h`.
const GENERIC: u32 = 1 << 1;
/// `XDP_FLAGS_DRV_MODE`.
const NATIVE: u32 = 1 << 2;

/// What `fault_hold` does next, as `enum hold` of bpf/faults.bpf.c has it.
pub mod hold {
    /// It passes each frame.
    pub const NOTHING: u32 = 0;
    /// It keeps its CPU at the next frame.
    pub const NEXT: u32 = 1;
    /// It does so now, until this is set to another one.
    pub const HOLDING: u32 = 2;
    /// It went on before it was told to.
    pub const OVER: u32 = 3;
}

/// The place of an XDP program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Xdp {
    Native,
    Generic,
}

/// A program, loaded and maybe attached.
pub struct Program {
    name: &'static str,
    pub programs: Programs,
    _link: Option<OwnedFd>,
}

impl Program {
    /// Loads it: with the index of a device to redirect to, and how many frames are dropped by `fault_sample`.
    pub fn load(name: &'static str, target: u32, every: u32) -> Result<Self> {
        let config = [target.to_ne_bytes(), every.to_ne_bytes()].concat();
        Ok(Self {
            name,
            programs: Programs::load(&FAULTS, Some(&config), |it| it == name)?,
            _link: None,
        })
    }

    /// Attaches it to a device of the calling thread's namespace.
    pub fn attach(self, index: u32, place: Xdp) -> Result<Self> {
        let flags = match place {
            Xdp::Native => NATIVE,
            Xdp::Generic => GENERIC,
        };
        let id = self.programs.id(self.name)?;
        // SAFETY: needed as the library's programs have no descriptor of their own. The call takes a number, and
        // returns a new descriptor or an error.
        let program = owned(unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) })?;
        let options = libbpf_sys::bpf_link_create_opts {
            sz: size_of::<libbpf_sys::bpf_link_create_opts>() as u64,
            flags,
            ..libbpf_sys::bpf_link_create_opts::default()
        };
        let device = index.cast_signed();
        // SAFETY: needed as the library has no wrapper with these flags. The call takes numbers and options that
        // live as long as it does and have no pointers.
        let link = unsafe {
            libbpf_sys::bpf_link_create(
                program.as_raw_fd(),
                device,
                libbpf_sys::BPF_XDP,
                &raw const options,
            )
        };
        let link = owned(link).context("cannot attach an XDP program")?;
        Ok(Self {
            _link: Some(link),
            ..self
        })
    }

    /// Sends frames by redirects of this program, `fault_redirect`.
    pub fn send(&self, frame: &[u8], count: u32) -> Result<()> {
        self.programs.run_on_live_frames(self.name, frame, count)
    }

    /// The map of sockets of `fault_socket`.
    pub fn sockets(&self) -> Result<Map<u32, u32>> {
        self.programs.map("sockets")
    }

    /// What `fault_hold` does next: one of the constants of [`hold`].
    pub fn hold(&self) -> Result<Map<u32, u32>> {
        self.programs.map("hold")
    }

    /// Frames that `fault_sample` or `fault_hold` has seen.
    pub fn sampled(&self) -> Result<u64> {
        self.programs.variable(".bss")
    }
}

fn owned(result: i32) -> Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result).into());
    }
    // SAFETY: needed to own the descriptor, which is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}
