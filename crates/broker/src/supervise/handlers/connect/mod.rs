//! connect(2): connections to some addresses go to others instead, in turn.
//!
//! The broker connects the caller's own socket, through a duplicate, to an address that it has
//! copied: no memory is read a second time, so nothing can be exchanged between the judgement and
//! the effect. The socket keeps its network namespace, mark, device and options. getpeername(2)
//! returns the backend.
//!
//! A redirection is a service, not a fence: a process reaches an address also by sendto(2) with
//! `MSG_FASTOPEN` or without connecting, and by exchanging a socket of another family under its
//! descriptor. A fence is a network namespace or a firewall.

mod abandoned;
mod address;
mod redirections;

use crate::seccomp::{Answer, Notification};
use crate::supervise::rule::Rule;
use crate::supervise::{Call, Handler};
use abandoned::Abandoned;
use address::Address;
use redirections::Redirection;
pub use redirections::{Backend, Redirections};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Name in the policy, in logs and metrics.
pub const NAME: &str = "connect";

/// The call it answers.
pub const RULES: &[Rule] = &[Rule::always(libc::SYS_connect, "connect")];

/// Redirects connections.
#[derive(Debug)]
pub struct Connect {
    redirections: Arc<Redirections>,
    abandoned: Abandoned,
}

impl Connect {
    /// With redirections, which other sessions may share: their turns and counters.
    pub fn new(redirections: Arc<Redirections>) -> Self {
        Self {
            redirections,
            abandoned: Abandoned::default(),
        }
    }

    /// Connects to the first backend that takes the connection, beginning with the one whose turn it
    /// is.
    fn balance(
        &self,
        call: &Call<'_>,
        socket: &Arc<OwnedFd>,
        redirection: &Redirection,
        family: AddressFamily,
    ) -> Result<(), Errno> {
        let mut result = Err(Errno::NETUNREACH);
        for backend in redirection.in_turn() {
            let Some(address) = Address::of_backend(backend.address(), family) else {
                continue;
            };
            call.check_alive()?;
            result = self.connect(call, socket, &address);
            match result {
                Ok(()) | Err(Errno::INPROGRESS) => {
                    backend.count_connection();
                    return result;
                }
                Err(error) if is_backends(error) => backend.count_failure(),
                // Of the socket: it would be the same with another backend.
                Err(_) => return result,
            }
        }
        result
    }

    /// Connects the caller's socket as its own call would: it may wait as long.
    fn connect(
        &self,
        call: &Call<'_>,
        socket: &Arc<OwnedFd>,
        address: &Address,
    ) -> Result<(), Errno> {
        let _watched = self.abandoned.watch(call.target()?, socket)?;
        // A signal that the broker gets is not the caller's: the kernel goes on with the attempt.
        let result = rustix::io::retry_on_intr(|| address.connect(socket));
        if result.is_err() && self.abandoned.has_stopped() {
            // The socket was shut down in the middle of its attempt, and can connect again.
            return Err(Errno::INTR);
        }
        result
    }
}

impl Handler for Connect {
    fn name(&self) -> &'static str {
        NAME
    }

    fn calls(&self) -> &'static [i64] {
        &[libc::SYS_connect]
    }

    /// A blocking socket waits for the other side's answer, and whether it blocks is not in the
    /// arguments.
    fn is_slow(&self, _: &Notification) -> bool {
        true
    }

    fn stop(&self) {
        self.abandoned.stop();
    }

    fn handle(&self, call: &Call<'_>) -> Result<Answer, Errno> {
        let target = call.target()?;
        let socket = Arc::new(target.descriptor(call.int(0))?);
        let family = sockopt::socket_domain(&socket)?;
        if !matches!(family, AddressFamily::INET | AddressFamily::INET6) {
            // The kernel checks these by the caller's directory, root and credentials, and passes
            // them to the peer: the broker's would be wrong. The family is the socket's, not one of the
            // caller's memory, which could change after this look. Another thread can still put
            // another socket under the descriptor, and then connects as if there were no redirection.
            return Ok(Answer::Continue);
        }
        let address = Address::copy(target, call.word(1), call.int(2))?;
        let redirection = address.peer().and_then(|peer| self.redirections.find(peer));
        call.check_alive()?;
        match redirection {
            Some(redirection) if !is_connected_stream(&socket) => {
                self.balance(call, &socket, redirection, family)?;
            }
            _ => self.connect(call, &socket, &address)?,
        }
        Ok(Answer::Value(0))
    }
}

/// Whether a second connect only asks for the outcome of the first one: it takes no turn.
fn is_connected_stream(socket: &OwnedFd) -> bool {
    sockopt::socket_type(socket) == Ok(SocketType::STREAM)
        && rustix::net::getpeername(socket).is_ok()
}

/// Whether another backend may take the connection.
fn is_backends(error: Errno) -> bool {
    matches!(
        error,
        Errno::CONNREFUSED
            | Errno::CONNRESET
            | Errno::CONNABORTED
            | Errno::TIMEDOUT
            | Errno::HOSTUNREACH
            | Errno::HOSTDOWN
            | Errno::NETUNREACH
            | Errno::NETDOWN
    )
}
