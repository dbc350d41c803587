//! An unmodified AF_XDP program, without privilege, on the devices of its grants: one written against
//! libxdp or libbpf, or one that makes the calls itself.
//!
//! # Calls made in the caller's place
//!
//! | Call | |
//! |---|---|
//! | `socket(AF_XDP)` | opened here, and bound to no device, so that the caller cannot bind it itself |
//! | `bind` | its device, queue and mode are held to the grants, the queue is lent, then it is bound here |
//! | `SO_BUSY_POLL`, `SO_PREFER_BUSY_POLL`, `SO_BUSY_POLL_BUDGET` | clamped to the grants |
//! | `BPF_MAP_CREATE` | XSKMAPs, and arrays of one element for a program's variables |
//! | `BPF_BTF_LOAD` | an array with the bytes is given; the kernel's parser sees nothing |
//! | `BPF_PROG_LOAD` | known programs and those of the policy, by hash; loaded by the worker, kept here |
//! | `BPF_OBJ_GET_INFO_BY_FD`, `BPF_…_GET_FD_BY_ID` | of the session's objects only |
//! | `BPF_LINK_CREATE`, `RTM_SETLINK` with `IFLA_XDP` | a BPF link, on granted devices only |
//! | `SIOCGIFINDEX`, `ETHTOOL_GCHANNELS`, `socket(NETLINK_ROUTE)` | where the device is in the broker's namespace and the caller is not |
//!
//! A call has its effect in the caller's network namespace if that has a granted device, else in the
//! broker's. The UMEM and the rings stay with the caller: registering pins the memory of who makes the call.
//!
//! # No XDP program for callers
//!
//! The descriptor of an XDP program is the right to attach it to any device of the holder's namespace, and
//! can be sent to a process that nobody supervises. So a caller gets a *stand-in*: a socket filter that
//! it can give to a socket of its own at most. The program stays here, and information about the stand-in
//! is the program's. A caller's own objects do no harm elsewhere: an XSKMAP redirects to a socket only
//! the packets of the queue to which that is bound, and a link can only be detached.
//!
//! Programs are attached by links, those of netlink requests too, which the broker then holds: they
//! vanish with the broker. No message of a caller is sent with the broker's rights. The caller reads
//! the acknowledgement of an empty message from its own socket.
//!
//! When the handler is dropped, all its links are detached, whoever has copies of their descriptors.
//!
//! # Limits
//!
//! A grant with a filter allows no program of the caller's, which would pass by it. libxdp's dispatcher is
//! refused, so that libxdp attaches its program alone. A second socket on a device makes libxdp lock
//! `/run/xdp`, which must be a directory that the caller can open. The memory limit of a grant needs
//! `CONFIG_XDP_SOCKETS_DIAG`; without it `RLIMIT_MEMLOCK` counts. A caller in another namespace than its
//! device's sees the links and routes of the broker's.
//!
//! # The instant of a bind
//!
//! A socket is bound to no device but while the broker binds it. In this instant each of its holders, supervised or
//! not, can bind it to another queue of that device, or in another mode. So a socket that another process
//! than the caller's holds is not bound; what a socket is bound to is read back after each bind, also after
//! one that failed, and for a second after that (`bound`, `turn`). If that is anything else, or cannot
//! be read, the session's programs are detached, no further ones attached, and the caller and the tenant's processes
//! that hold the socket are killed. Before Linux 6.6 the kernel does not keep a holder from binding a socket at all.
//!
//! It needs `CAP_NET_RAW` (sockets), `CAP_NET_ADMIN` and `CAP_BPF` (links, stand-ins), `CAP_SYS_PTRACE`
//! (descriptors of callers) and `CAP_SYS_ADMIN` (objects by id, namespaces).

mod bind;
mod bound;
mod bpf;
mod busy_poll;
mod diag;
mod ethtool;
mod known;
mod netlink;
mod objects;
mod place;
mod session;
mod socket;
mod sys;
mod turn;

use crate::budget::Budget;
use crate::confine::worker::Worker;
use crate::policy::DeviceGrant;
use crate::seccomp::{Answer, Notification};
use crate::supervise::rule::{Condition, Rule};
use crate::supervise::{Call, Handler};
pub use known::Hash;
use rustix::io::Errno;
use session::Session;
pub use session::{Queues, Taken};
use std::sync::Arc;

/// The handler's name.
pub const NAME: &str = "af_xdp";

const fn option(option: i32) -> [Condition; 2] {
    [
        Condition::int(1, libc::SOL_SOCKET),
        Condition::int(2, option),
    ]
}

const fn command(command: i32) -> [Condition; 1] {
    [Condition::int(0, command)]
}

/// When its calls are notified. The data path is not in it: AF_XDP's kicks are a sendto(2) of no bytes,
/// and a netlink message has 32 at least. Nor are changes of maps, since the kernel asks for nothing
/// but the map.
pub const RULES: &[Rule] = &[
    Rule::when(
        libc::SYS_socket,
        "socket",
        &[Condition::int(0, libc::AF_XDP)],
    ),
    Rule::when(
        libc::SYS_socket,
        "socket",
        &[
            Condition::int(0, libc::AF_NETLINK),
            Condition::int(2, libc::NETLINK_ROUTE),
        ],
    ),
    // The size of `struct sockaddr_xdp`.
    Rule::when(libc::SYS_bind, "bind", &[Condition::at_least(2, 16)]),
    Rule::when(
        libc::SYS_setsockopt,
        "setsockopt",
        &option(libc::SO_BUSY_POLL),
    ),
    Rule::when(
        libc::SYS_setsockopt,
        "setsockopt",
        &option(libc::SO_PREFER_BUSY_POLL),
    ),
    Rule::when(
        libc::SYS_setsockopt,
        "setsockopt",
        &option(libc::SO_BUSY_POLL_BUDGET),
    ),
    Rule::when(libc::SYS_sendto, "sendto", &[Condition::at_least(2, 32)]),
    Rule::when(
        libc::SYS_ioctl,
        "ioctl",
        &[Condition::int(1, sys::SIOCETHTOOL)],
    ),
    Rule::when(
        libc::SYS_ioctl,
        "ioctl",
        &[Condition::int(1, ethtool::SIOCGIFINDEX)],
    ),
    Rule::when(libc::SYS_bpf, "bpf", &command(sys::MAP_CREATE)),
    Rule::when(libc::SYS_bpf, "bpf", &command(sys::PROG_LOAD)),
    Rule::when(libc::SYS_bpf, "bpf", &command(sys::PROG_GET_FD_BY_ID)),
    Rule::when(libc::SYS_bpf, "bpf", &command(sys::MAP_GET_FD_BY_ID)),
    Rule::when(libc::SYS_bpf, "bpf", &command(sys::OBJ_GET_INFO_BY_FD)),
    Rule::when(libc::SYS_bpf, "bpf", &command(sys::BTF_LOAD)),
    Rule::when(libc::SYS_bpf, "bpf", &command(sys::BTF_GET_FD_BY_ID)),
    Rule::when(libc::SYS_bpf, "bpf", &command(sys::LINK_CREATE)),
    // Its calls are not notified: it could bind a socket at the moment at which the broker does.
    Rule::fails(libc::SYS_io_uring_setup, "io_uring_setup", Errno::PERM),
];

/// The handler. Dropped, it detaches all programs that its callers have attached.
#[derive(Debug)]
pub struct AfXdp(Session);

impl AfXdp {
    /// A handler for the processes of a tenant, with its grants of devices, the programs that its
    /// operator allows besides libxdp's own, the queues that are lent, the loader of programs, and the
    /// tenant's budget.
    ///
    /// # Errors
    ///
    /// When the network namespace of this thread cannot be opened: is /proc mounted?
    pub fn new(
        tenant: &str,
        devices: &[DeviceGrant],
        programs: &[Hash],
        queues: Arc<dyn Queues>,
        worker: Arc<Worker>,
        budget: Arc<Budget>,
    ) -> Result<Self, Errno> {
        let (devices, programs) = (devices.to_vec(), programs.to_vec());
        Session::new(tenant, devices, programs, queues, worker, budget).map(Self)
    }
}

impl Handler for AfXdp {
    fn name(&self) -> &'static str {
        NAME
    }

    fn calls(&self) -> &'static [i64] {
        &[
            libc::SYS_socket,
            libc::SYS_bind,
            libc::SYS_setsockopt,
            libc::SYS_sendto,
            libc::SYS_ioctl,
            libc::SYS_bpf,
        ]
    }

    /// Those that wait for the verifier, or for the routing lock and for all packets on their way.
    fn is_slow(&self, notification: &Notification) -> bool {
        let [first, _, len, ..] = notification.args;
        match i64::from(notification.call) {
            libc::SYS_bind => true,
            libc::SYS_sendto => netlink::is_candidate(len),
            libc::SYS_bpf => matches!(first as i32, sys::PROG_LOAD | sys::LINK_CREATE),
            _ => false,
        }
    }

    fn handle(&self, call: &Call<'_>) -> Result<Answer, Errno> {
        match i64::from(call.notification.call) {
            libc::SYS_socket => socket::handle(&self.0, call),
            libc::SYS_bind => bind::handle(&self.0, call),
            libc::SYS_setsockopt => busy_poll::handle(&self.0, call),
            libc::SYS_sendto => netlink::handle(&self.0, call),
            libc::SYS_ioctl => ethtool::handle(&self.0, call),
            libc::SYS_bpf => bpf::handle(&self.0, call),
            _ => Ok(Answer::Continue),
        }
    }
}
