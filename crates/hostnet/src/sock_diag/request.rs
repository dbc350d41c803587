//! Lists of sockets, one request a family.

use netlink_packet_core::NLM_F_DUMP;
use netlink_sys::protocols::NETLINK_SOCK_DIAG;

use crate::error::{ErrorKind, Result};
use crate::netlink::{RawMessage, Socket};

/// The type of all requests (`SOCK_DIAG_BY_FAMILY` in `linux/sock_diag.h`).
const BY_FAMILY: u16 = 20;

/// Gives each answer to a request of the calling thread's network namespace to `answer`. `None` for a
/// kernel that cannot list these sockets: `sock_diag` or its part for the family is not there.
pub(super) fn list(request: Vec<u8>, answer: &mut dyn FnMut(&[u8])) -> Result<Option<()>> {
    let message = RawMessage {
        kind: BY_FAMILY,
        payload: request,
    };
    let listed = Socket::open(NETLINK_SOCK_DIAG)
        .and_then(|mut socket| socket.ask(&message, NLM_F_DUMP, &mut |_, bytes| answer(bytes)));
    match listed {
        Ok(()) => Ok(Some(())),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Unsupported) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
