//! The UMEM of an AF_XDP socket: `sock_diag` (`linux/xdp_diag.h`; `CONFIG_XDP_SOCKETS_DIAG`).

use rustix::io::Errno;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const FLAGS: u16 = 0x301;
/// `XDP_SHOW_UMEM`.
const SHOW: u32 = 4;
const HEADER: usize = 16;
/// `struct xdp_diag_msg`, and where its inode is.
const MESSAGE: usize = 16;
const INODE: usize = 4;
/// `XDP_DIAG_UMEM`.
const UMEM: u16 = 5;

/// Bytes of the UMEM of the AF_XDP socket with an inode, in this thread's network namespace; 0 without.
///
/// # Errors
///
/// `ENOENT` when the kernel cannot tell of any.
pub(super) fn umem(inode: u32) -> Result<u64, Errno> {
    let flags = SocketFlags::CLOEXEC;
    let family = AddressFamily::NETLINK;
    let socket = socket_with(family, SocketType::RAW, flags, Some(SOCK_DIAG))?;
    let kernel = SocketAddrNetlink::new(0, 0);
    sendto(&socket, &request(), SendFlags::empty(), &kernel)?;
    let mut buffer = vec![0; 64 << 10];
    let mut found = None;
    loop {
        let (len, _) = recv(&socket, buffer.as_mut_slice(), RecvFlags::empty())?;
        let mut rest = buffer.get(..len).ok_or(Errno::IO)?;
        while let Some(length) = word(rest, 0) {
            let length = length as usize;
            let message = rest.get(..length).ok_or(Errno::IO)?;
            match half(message, 4).ok_or(Errno::IO)? {
                NLMSG_DONE => return found.ok_or(Errno::BADF),
                NLMSG_ERROR => return Err(error(message)),
                _ => {}
            }
            let payload = message.get(HEADER..).ok_or(Errno::IO)?;
            if word(payload, INODE) == Some(inode) {
                found = Some(parse(payload.get(MESSAGE..).ok_or(Errno::IO)?));
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

fn error(message: &[u8]) -> Errno {
    let code = word(message, HEADER).map_or(libc::EIO, u32::cast_signed);
    Errno::from_raw_os_error(code.saturating_abs())
}

fn request() -> Vec<u8> {
    let mut request = Vec::new();
    request.extend(36_u32.to_ne_bytes());
    request.extend(BY_FAMILY.to_ne_bytes());
    request.extend(FLAGS.to_ne_bytes());
    request.extend([0; 8]);
    // `struct xdp_diag_req`.
    request.extend([libc::AF_XDP as u8, 0, 0, 0, 0, 0, 0, 0]);
    request.extend(SHOW.to_ne_bytes());
    request.extend([0; 8]);
    request
}

fn parse(mut attributes: &[u8]) -> u64 {
    while let (Some(length), Some(kind)) = (half(attributes, 0), half(attributes, 2)) {
        let length = usize::from(length).max(4);
        if kind == UMEM {
            let size = attributes.get(4..12).and_then(|size| size.try_into().ok());
            return u64::from_ne_bytes(size.unwrap_or_default());
        }
        attributes = attributes
            .get(length.next_multiple_of(4)..)
            .unwrap_or_default();
    }
    0
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(word))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let half = bytes.get(at..at + 2)?.try_into().ok()?;
    Some(u16::from_ne_bytes(half))
}
