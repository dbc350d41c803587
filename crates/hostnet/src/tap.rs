//! Taps: devices of which one end is a descriptor, as a virtual machine has them.
//!
//! Unsafe code is needed because TUNSETIFF takes a structure: the type system cannot see what
//! the kernel reads and writes.
#![allow(unsafe_code)]

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use anyhow::{Context as _, Result, ensure};
use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

use crate::device::Device;

const IFNAMSIZ: usize = 16;
const TUNSETIFF: Opcode = opcode::write::<libc::c_int>(b'T', 202);
const REST: usize = size_of::<libc::ifreq>() - IFNAMSIZ - size_of::<libc::c_short>();

/// `struct ifreq` with the one member of its union that this call uses, at its full size,
/// all of which the kernel copies both ways.
#[repr(C)]
struct Ifreq {
    name: [u8; IFNAMSIZ],
    flags: libc::c_short,
    rest: [u8; REST],
}

const _: () = assert!(size_of::<Ifreq>() == size_of::<libc::ifreq>());

/// A tap: what the kernel sends by the device is read from the descriptor, one frame a read, and
/// what is written there the device receives.
#[must_use = "the device is gone when the last descriptor is closed"]
pub struct Tap {
    descriptor: OwnedFd,
    device: Device,
}

impl Tap {
    /// Makes the device `name` in the calling thread's network namespace. It is down.
    pub fn create(name: &str) -> Result<Self> {
        ensure!(
            name.len() < IFNAMSIZ,
            "{name} is too long for a device's name"
        );
        let descriptor = rustix::fs::open(
            "/dev/net/tun",
            OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .context(
            "cannot open /dev/net/tun: load the module tun (`modprobe tun`), \
             or give this container the device",
        )?;
        let mut request = Ifreq {
            name: [0; IFNAMSIZ],
            flags: (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short,
            rest: [0; REST],
        };
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        // SAFETY: needed to say which structure TUNSETIFF takes. Sound because that structure is
        // an ifreq of the kernel's size (asserted above).
        let call = unsafe { Updater::<TUNSETIFF, Ifreq>::new(&mut request) };
        // SAFETY: needed because the kernel writes to the structure. Sound because it writes
        // bytes of an ifreq, for which any value is valid, and keeps no pointer to it.
        unsafe { ioctl(&descriptor, call) }.with_context(|| {
            format!("cannot make the tap {name}: this needs CAP_NET_ADMIN; run it as root")
        })?;
        Ok(Self {
            descriptor,
            device: Device::open(name)?,
        })
    }

    /// What frames are read from and written to, without blocking.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// The device. It has sent a frame when that is read from the descriptor, and has dropped it
    /// when there was no room to wait for that.
    pub fn device(&self) -> &Device {
        &self.device
    }
}
