//! The ethtool ioctl (`include/uapi/linux/ethtool.h`).
#![allow(unsafe_code)] // ioctl(2).

use super::{SysResult, last_errno};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `struct ethtool_channels` (`include/uapi/linux/ethtool.h`).
#[repr(C)]
#[derive(Debug, Default)]
struct EthtoolChannels {
    cmd: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// The number of RX and of TX queues that a device uses now (`ETHTOOL_GCHANNELS`).
pub(crate) fn channels(socket: BorrowedFd<'_>, device: &str) -> SysResult<(u32, u32)> {
    const ETHTOOL_GCHANNELS: u32 = 0x3c;
    let mut channels = EthtoolChannels {
        cmd: ETHTOOL_GCHANNELS,
        ..Default::default()
    };
    // SAFETY: needed for a plain C struct; all zeroes is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if device.len() >= request.ifr_name.len() {
        return Err(Errno::NODEV);
    }
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    request.ifr_ifru.ifru_data = (&raw mut channels).cast();
    // SAFETY: needed because rustix has no wrapper. `request` and the struct it points to are
    // locals of the layout that SIOCETHTOOL with this command reads and writes.
    let result = unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCETHTOOL as libc::Ioctl,
            &raw mut request,
        )
    };
    if result != 0 {
        return Err(last_errno());
    }
    Ok((
        channels.rx + channels.combined,
        channels.tx + channels.combined,
    ))
}
