//! XDP programs that rtnetlink attaches: nobody holds them, and they stay.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use super::socket::{Rtnetlink, SET_LINK, link_message};
use crate::error::Result;
use crate::netlink::{RawMessage, push_attribute, push_nested};

/// The descriptor that removes a program.
const NONE: i32 = -1;

/// `IFLA_XDP`, and the attributes in it (`linux/if_link.h`).
const XDP: u16 = 43;
const XDP_FD: u16 = 1;
const XDP_FLAGS: u16 = 3;
const XDP_EXPECTED_FD: u16 = 8;
/// `XDP_FLAGS_UPDATE_IF_NOEXIST`: a program that is there already is not replaced.
const IF_NONE: u32 = 1 << 0;
/// `XDP_FLAGS_REPLACE`: only the program of `XDP_EXPECTED_FD` is replaced (Linux 5.7).
const REPLACE: u32 = 1 << 4;

impl Rtnetlink {
    /// Attaches an XDP program to a device that has none. It stays, whatever becomes of the process, until
    /// somebody removes it: `ip link set dev NAME xdp off`. `mode` is one of the `XDP_FLAGS_*_MODE`.
    ///
    /// # Errors
    ///
    /// Those of every change, and with `EBUSY` or `EEXIST` when a program is there.
    pub fn attach_xdp(&mut self, index: u32, program: BorrowedFd<'_>, mode: u32) -> Result<()> {
        self.change_raw(&attachment(index, program, mode), 0, || {
            format!("cannot attach an XDP program to device {index}")
        })
    }

    /// The words of the kernel or the driver that refuses to attach an XDP program (`NLMSGERR_ATTR_MSG`), which
    /// bpf(2) does not pass on; none if it has none. The program is not attached afterwards: if the device takes it now, it is
    /// removed again.
    pub fn xdp_refusal(
        &mut self,
        index: u32,
        program: BorrowedFd<'_>,
        mode: u32,
    ) -> Option<String> {
        match self.get(&attachment(index, program, mode), &mut |_, _| {}) {
            Ok(()) => {
                let mut xdp = Vec::new();
                push_attribute(&mut xdp, XDP_FD, &NONE.to_ne_bytes());
                push_attribute(&mut xdp, XDP_FLAGS, &(mode | REPLACE).to_ne_bytes());
                push_attribute(
                    &mut xdp,
                    XDP_EXPECTED_FD,
                    &program.as_raw_fd().to_ne_bytes(),
                );
                // The device may be gone.
                let _ = self.change_raw(&change(index, &xdp), 0, String::new);
                None
            }
            // Without a step, the message is the kernel's.
            Err(error) => Some(error.message().to_owned()).filter(|words| !words.is_empty()),
        }
    }
}

/// The request to attach a program to a device without one.
fn attachment(index: u32, program: BorrowedFd<'_>, mode: u32) -> RawMessage {
    let mut xdp = Vec::new();
    push_attribute(&mut xdp, XDP_FD, &program.as_raw_fd().to_ne_bytes());
    push_attribute(&mut xdp, XDP_FLAGS, &(mode | IF_NONE).to_ne_bytes());
    change(index, &xdp)
}

fn change(index: u32, xdp: &[u8]) -> RawMessage {
    let mut message = link_message(SET_LINK, libc::AF_UNSPEC, index);
    push_nested(&mut message.payload, XDP, xdp);
    message
}
