//! Taps: network devices whose other end is a file descriptor, as of a virtual machine
//! (Documentation/networking/tuntap.rst).
//!
//! Unsafe code is needed because TUNSETIFF takes a structure: the type system cannot see which
//! bytes the kernel reads and writes.
#![allow(unsafe_code)]

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

use crate::device::Device;
use crate::error::{Context as _, Result};
use crate::ifreq::{self, IFNAMSIZ};
use crate::privilege::Capability;

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

/// The form of a tap's packets, for [`Tap::create_with`]. Default: a frame from its Ethernet header on.
///
/// ```
/// use hostnet::tap::TapOptions;
///
/// let of_a_vpn = TapOptions { layer3: true, ..TapOptions::default() };
/// assert!(!of_a_vpn.vnet_header);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TapOptions {
    /// A packet begins with its IP header (`IFF_TUN`).
    pub layer3: bool,
    /// A `struct virtio_net_hdr` is in front of each packet, with a checksum or segments that are pending
    /// (`IFF_VNET_HDR`).
    pub vnet_header: bool,
}

impl TapOptions {
    fn flags(self) -> libc::c_int {
        let layer = if self.layer3 {
            libc::IFF_TUN
        } else {
            libc::IFF_TAP
        };
        let header = if self.vnet_header {
            libc::IFF_VNET_HDR
        } else {
            0
        };
        layer | header | libc::IFF_NO_PI
    }
}

/// A tap. A frame that the kernel sends by the device is read from the descriptor; a frame that is
/// written to the descriptor, the device receives. One frame a call, from the Ethernet header on.
///
/// ```no_run
/// use hostnet::tap::Tap;
///
/// let tap = Tap::create("tap0")?;
/// tap.device().set_up()?;
/// let broadcast = [0xff; 60];
/// rustix::io::write(tap.descriptor(), &broadcast)?;
/// assert_eq!(tap.device().counters()?.rx_packets, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "the device is removed when the last descriptor is closed"]
pub struct Tap {
    descriptor: OwnedFd,
    device: Device,
}

impl Tap {
    /// Makes the device `name` in the calling thread's network namespace. It is down. Needs
    /// `CAP_NET_ADMIN` and `/dev/net/tun`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] for an empty name, one of more than 15 bytes or with `%`.
    ///
    /// [`ErrorKind::InvalidInput`]: crate::ErrorKind::InvalidInput
    pub fn create(name: &str) -> Result<Self> {
        Self::create_with(name, TapOptions::default())
    }

    /// The same with packets of another form.
    ///
    /// # Errors
    ///
    /// As those of [`create`](Self::create).
    pub fn create_with(name: &str, options: TapOptions) -> Result<Self> {
        let mut request = Ifreq {
            name: ifreq::name(name)?,
            flags: options.flags() as libc::c_short,
            rest: [0; REST],
        };
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open("/dev/net/tun", flags, Mode::empty()).context(
            "cannot open /dev/net/tun: load the module tun (`modprobe tun`), \
             or give this container the device",
        )?;
        // SAFETY: needed to name the structure that TUNSETIFF takes. Sound because that structure
        // is an ifreq of the kernel's size (asserted above).
        let call = unsafe { Updater::<TUNSETIFF, Ifreq>::new(&mut request) };
        // SAFETY: needed because the kernel writes to the structure. Sound because it writes
        // bytes of an ifreq, for which any value is valid, and keeps no pointer to it.
        let made = unsafe { ioctl(&descriptor, call) };
        made.with_context(|| format!("cannot make the tap {name}"))
            .needs(Capability::NetAdmin)?;
        Ok(Self {
            descriptor,
            device: Device::open(name)?,
        })
    }

    /// The descriptor that frames are read from and written to, without blocking. A duplicate
    /// keeps the device.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// The device. It counts a frame as sent when the frame is read from the descriptor, and as
    /// dropped when its queue was full.
    pub fn device(&self) -> &Device {
        &self.device
    }
}
