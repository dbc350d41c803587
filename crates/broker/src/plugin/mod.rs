//! XSKMAPs for clients of the AF_XDP device plugin: DPDK's driver (`use_cni=1`) and CNDP.
//!
//! A client makes and binds its sockets itself, for which it needs `CAP_NET_RAW`, and puts them into the
//! XSKMAP that it gets here. The map is a right over all queues of its device.

mod busy_poll;
mod protocol;

pub use busy_poll::configure;
pub use protocol::{BusyPoll, Conversation, Host, MOST_BYTES, Reply, Request};

use crate::message::{receive, send};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// A client that is silent for this long is disconnected. CNDP keeps its connection, and its device is its
/// own without it as long as it has a socket there.
pub const SILENCE: Duration = Duration::from_secs(300);

/// And one that has not been admitted.
const STRANGERS_SILENCE: Duration = Duration::from_secs(10);

/// Serves a connection until it ends.
///
/// # Errors
///
/// Those of the socket, `EAGAIN` after a silence; a client that just left is none.
pub fn serve<H>(connection: impl AsFd, host: &mut H) -> Result<(), Errno>
where
    H: Host<OwnedFd>,
    H::Map: AsFd,
{
    let connection = connection.as_fd();
    set_socket_timeout(connection, Timeout::Send, Some(STRANGERS_SILENCE))?;
    let mut patience = STRANGERS_SILENCE;
    let mut conversation = Conversation::default();
    loop {
        set_socket_timeout(connection, Timeout::Recv, Some(patience))?;
        // Other descriptors than the first are closed.
        let (request, socket) = match receive(connection, MOST_BYTES) {
            Ok((request, _)) if request.is_empty() => return Ok(()),
            Ok((request, fds)) => (request, fds.into_iter().next()),
            // Answered like an unknown request.
            Err(Errno::MSGSIZE | Errno::TOOBIG) => (Vec::new(), None),
            Err(errno) => return Err(errno),
        };
        let reply = conversation.answer(host, &request, socket);
        let map = match &reply {
            Reply::FdAck(map) => Some(map.as_fd()),
            _ => None,
        };
        send(connection, reply.text().as_bytes(), map.as_slice())?;
        if reply.is_last() {
            return Ok(());
        }
        patience = SILENCE;
    }
}
