//! AF_XDP sockets (`linux/xdp_diag.h`; `CONFIG_XDP_SOCKETS_DIAG`, Linux 5.1).

use super::request;
use crate::error::{Context as _, Result};
use crate::netlink::attribute;

/// `XDP_SHOW_INFO | XDP_SHOW_UMEM`.
const SHOW_INFO_AND_UMEM: u32 = 1 | 1 << 2;
/// The size of `struct xdp_diag_msg`, before the attributes.
const HEADER: usize = 16;
/// `XDP_DIAG_INFO` and `XDP_DIAG_UMEM`.
const INFO: u16 = 1;
const UMEM: u16 = 5;
/// Where `flags` is in `struct xdp_diag_umem`, and its `XDP_DU_F_ZEROCOPY`.
const UMEM_FLAGS: usize = 32;
const UMEM_ZERO_COPY: u32 = 1;

/// A bound AF_XDP socket.
///
/// ```
/// use hostnet::sock_diag::xdp_diag::XdpSocket;
///
/// let socket = XdpSocket { device: 2, queue: 0, zero_copy: true };
/// assert_eq!((socket.device, socket.queue), (2, 0));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XdpSocket {
    /// The index of the device.
    pub device: u32,
    /// The queue of the device.
    pub queue: u32,
    /// Whether the socket is in zero-copy mode.
    pub zero_copy: bool,
}

/// The bound AF_XDP sockets of the calling thread's network namespace; `None` for a kernel that
/// cannot list them (without `CONFIG_XDP_SOCKETS_DIAG`, or its module `xsk_diag`).
///
/// ```no_run
/// use hostnet::sock_diag::xdp_diag;
///
/// for socket in xdp_diag::xdp_sockets()?.unwrap_or_default() {
///     let mode = if socket.zero_copy { "zero-copy" } else { "copy" };
///     println!("device {} queue {}: {mode}", socket.device, socket.queue);
/// }
/// # Ok::<(), hostnet::Error>(())
/// ```
pub fn xdp_sockets() -> Result<Option<Vec<XdpSocket>>> {
    let mut sockets = Vec::new();
    let listed = request::list(request(), &mut |answer| sockets.extend(socket(answer)));
    let listed = listed.context("cannot list the AF_XDP sockets")?;
    Ok(listed.map(|()| sockets))
}

/// `struct xdp_diag_req`: family, protocol, padding; inode; attributes to show; cookie of two words.
fn request() -> Vec<u8> {
    let mut request = vec![libc::AF_XDP as u8, 0, 0, 0, 0, 0, 0, 0];
    request.extend(SHOW_INFO_AND_UMEM.to_ne_bytes());
    request.extend([0; 8]);
    request
}

/// A socket that is not bound has neither a device nor a UMEM.
fn socket(message: &[u8]) -> Option<XdpSocket> {
    let attributes = message.get(HEADER..)?;
    let info = attribute(attributes, INFO)?;
    let umem = attribute(attributes, UMEM)?;
    Some(XdpSocket {
        device: word(&info, 0)?,
        queue: word(&info, 4)?,
        zero_copy: word(&umem, UMEM_FLAGS)? & UMEM_ZERO_COPY != 0,
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::push_attribute;

    #[test]
    fn a_socket_is_read_from_its_attributes() {
        let mut message = vec![0; HEADER];
        assert_eq!(socket(&message), None, "not bound");
        let mut info = 7_u32.to_ne_bytes().to_vec();
        info.extend(3_u32.to_ne_bytes());
        push_attribute(&mut message, INFO, &info);
        let mut umem = vec![0; UMEM_FLAGS + 8];
        umem[UMEM_FLAGS..UMEM_FLAGS + 4].copy_from_slice(&1_u32.to_ne_bytes());
        push_attribute(&mut message, UMEM, &umem);
        let expected = XdpSocket {
            device: 7,
            queue: 3,
            zero_copy: true,
        };
        assert_eq!(socket(&message), Some(expected));
        message.truncate(message.len() - 20);
        assert_eq!(socket(&message), None, "cut short");
    }

    #[test]
    fn the_request_has_the_kernels_size() {
        assert_eq!(request().len(), 20);
    }
}
