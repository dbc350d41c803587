//! XDP programs that rtnetlink attaches: nobody holds them, and they stay.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use super::socket::{Rtnetlink, SET_LINK, link_message};
use crate::error::Result;
use crate::netlink::{push_attribute, push_nested};

/// `IFLA_XDP`, and the attributes in it (`linux/if_link.h`).
const XDP: u16 = 43;
const XDP_FD: u16 = 1;
const XDP_FLAGS: u16 = 3;
/// `XDP_FLAGS_UPDATE_IF_NOEXIST`: a program that is there already is not replaced.
const IF_NONE: u32 = 1 << 0;

impl Rtnetlink {
    /// Attaches an XDP program to a device that has none. It stays, whatever becomes of the process, until
    /// somebody removes it: `ip link set dev NAME xdp off`. `mode` is one of the `XDP_FLAGS_*_MODE`.
    ///
    /// # Errors
    ///
    /// Those of every change, and with `EBUSY` or `EEXIST` when a program is there.
    pub fn attach_xdp(&mut self, index: u32, program: BorrowedFd<'_>, mode: u32) -> Result<()> {
        let mut xdp = Vec::new();
        push_attribute(&mut xdp, XDP_FD, &program.as_raw_fd().to_ne_bytes());
        push_attribute(&mut xdp, XDP_FLAGS, &(mode | IF_NONE).to_ne_bytes());
        let mut message = link_message(SET_LINK, libc::AF_UNSPEC, index);
        push_nested(&mut message.payload, XDP, &xdp);
        self.change_raw(&message, 0, || {
            format!("cannot attach an XDP program to device {index}")
        })
    }
}
