//! Busy polling: a socket's system calls run the receive function of its device's NAPI instance, in place
//! of an interrupt (`Documentation/networking/napi.rst`).
//!
//! Unsafe code is needed for socket options that rustix lacks.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use hostnet::privilege::{self, Capability, Feature};

use super::Failure;

/// The longest that a call which may sleep polls first, in microseconds, and the most packets of one
/// poll: the values of the kernel's example in `Documentation/networking/af_xdp.rst`.
const MICROSECONDS: libc::c_int = 20;
const BUDGET: libc::c_int = 64;

/// Busy polling of one socket.
#[derive(Debug)]
pub struct BusyPoll {
    /// Whether the socket has turned out to know a NAPI instance.
    is_proven: bool,
}

impl BusyPoll {
    /// Asks for busy polling of `socket`.
    pub fn enable(socket: impl AsFd) -> Result<Self, Failure> {
        let socket = socket.as_fd();
        for (option, value) in [
            (libc::SO_PREFER_BUSY_POLL, 1),
            (libc::SO_BUSY_POLL, MICROSECONDS),
            (libc::SO_BUSY_POLL_BUDGET, BUDGET),
        ] {
            set(socket, option, value).map_err(|error| {
                let errno = error.raw_os_error().unwrap_or_default();
                let needed = [Capability::NetAdmin];
                let hint = privilege::refusal(errno, Feature::Base, &needed);
                let hint = hint.unwrap_or_else(|| {
                    "busy polling needs Linux 5.11 and CONFIG_NET_RX_BUSY_POLL".to_owned()
                });
                Failure::new("busy poll", &error, hint)
            })?;
        }
        Ok(Self { is_proven: false })
    }

    /// Takes note of packets that have come. The kernel learns the NAPI instance of a socket from its first
    /// packet; without one it polls nothing, and only an interrupt brings packets, which would pass for busy
    /// polling.
    #[inline]
    pub fn received(&mut self, socket: impl AsFd, packets: u64) -> Result<(), Failure> {
        if self.is_proven || packets == 0 {
            return Ok(());
        }
        self.prove(socket.as_fd())
    }

    #[cold]
    fn prove(&mut self, socket: BorrowedFd<'_>) -> Result<(), Failure> {
        let id = napi_id(socket)
            .map_err(|error| Failure::new("SO_INCOMING_NAPI_ID", &error, "needs Linux 4.12"))?;
        if id == 0 {
            return Err(no_napi());
        }
        self.is_proven = true;
        Ok(())
    }
}

/// The refusal where there is nothing to poll.
pub(super) fn no_napi() -> Failure {
    Failure {
        step: "busy poll",
        errno: libc::EOPNOTSUPP,
        message: "the device has shown no NAPI instance to poll (SO_INCOMING_NAPI_ID is 0 after a packet): \
                  use --wait spin"
            .into(),
    }
}

fn set(socket: BorrowedFd<'_>, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: needed because there is no wrapper. The kernel reads the value, of the length given,
    // during the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    check(result)
}

fn napi_id(socket: BorrowedFd<'_>) -> io::Result<libc::c_uint> {
    let mut id: libc::c_uint = 0;
    let mut length = size_of_val(&id) as libc::socklen_t;
    // SAFETY: needed because there is no wrapper. The kernel writes at most `length` bytes to `id`, its
    // size, and any bytes make a valid value of it.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_INCOMING_NAPI_ID,
            (&raw mut id).cast(),
            &raw mut length,
        )
    };
    check(result)?;
    Ok(id)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn a_socket_without_a_napi_instance_is_refused_at_its_first_packet() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        // Loopback has no NAPI.
        let address = socket.local_addr().expect("an address");
        socket.send_to(b"ping", address).expect("is sent");
        let mut busy = BusyPoll { is_proven: false };
        assert_eq!(busy.received(&socket, 0), Ok(()));
        let failure = busy.received(&socket, 1).expect_err("nothing to poll");
        assert_eq!(failure.errno, libc::EOPNOTSUPP);
    }
}
