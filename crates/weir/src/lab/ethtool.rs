//! Offloads, through the ioctl that `ethtool -K` uses for them too.
//!
//! Unsafe code is needed because SIOCETHTOOL takes a pointer inside a structure: the type
//! system cannot see what the kernel reads and writes behind it.
#![allow(unsafe_code)]

use std::ptr;

use anyhow::{Context as _, Result, ensure};
use rustix::{
    ioctl::{Opcode, Setter, ioctl},
    net::{AddressFamily, SocketType},
};

/// A switch of a device that the lab sets, by its command in linux/ethtool.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Offload {
    /// Leave checksums to the device when sending.
    TxChecksum = 0x17,
    /// Leave cutting TCP streams to the device.
    Tso = 0x1f,
    /// Leave cutting any packet that is too large to the last moment.
    Gso = 0x24,
    /// Put packets of one flow together when receiving.
    Gro = 0x2c,
}

const SIOCETHTOOL: Opcode = 0x8946;
const IFNAMSIZ: usize = 16;

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

const REST: usize = size_of::<libc::ifreq>() - IFNAMSIZ - size_of::<usize>();

/// `struct ifreq` with the one member of its union that this call uses, at its full size,
/// all of which the kernel copies.
#[repr(C)]
struct Ifreq {
    name: [u8; IFNAMSIZ],
    data: *mut EthtoolValue,
    rest: [u8; REST],
}

const _: () = assert!(size_of::<Ifreq>() == size_of::<libc::ifreq>());

/// Switches `offload` of `device` on or off, in the calling thread's network namespace.
pub fn set(device: &str, offload: Offload, on: bool) -> Result<()> {
    ensure!(
        device.len() < IFNAMSIZ,
        "{device} is too long for a device's name"
    );
    let mut name = [0; IFNAMSIZ];
    name[..device.len()].copy_from_slice(device.as_bytes());
    let mut value = EthtoolValue {
        command: offload as u32,
        data: u32::from(on),
    };
    let request = Ifreq {
        name,
        data: ptr::from_mut(&mut value),
        rest: [0; REST],
    };
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)
        .context("cannot open a socket to set offloads with")?;
    // SAFETY: needed to say which structure SIOCETHTOOL takes. Sound because that structure is
    // an ifreq of the kernel's size (asserted above), which it only reads.
    let call = unsafe { Setter::<SIOCETHTOOL, Ifreq>::new(request) };
    // SAFETY: needed because the request holds a pointer. Sound because `value` is what these
    // commands take, is writable, and outlives the call; the kernel keeps no pointer to it.
    unsafe { ioctl(socket, call) }.with_context(|| {
        format!(
            "cannot switch {offload:?} of {device} {}",
            if on { "on" } else { "off" }
        )
    })
}
