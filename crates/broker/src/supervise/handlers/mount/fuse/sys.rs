//! A process in another user namespace, and descriptors for a program.
#![allow(unsafe_code)] // fork(2), _exit(2), waitpid(2), unshare(2), and a child's calls before its program.

use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::{
    DumpableBehavior, Signal, set_dumpable_behavior, set_parent_process_death_signal,
};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

/// Time for the process that joins a user namespace. Whoever is privileged there may send it signals, and so
/// can stop it.
const JOIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs `build` in a process of its own, which joins a user namespace: only a process with one thread
/// can. `build` allocates no memory: other threads' locks are never released there.
///
/// # Errors
///
/// Those of `build`; `EINTR` when the process was stopped or killed.
pub(in super::super) fn in_user_namespace(
    namespace: BorrowedFd<'_>,
    build: impl FnOnce() -> Result<[OwnedFd; 2], Errno>,
) -> Result<[OwnedFd; 2], Errno> {
    let flags = SocketFlags::CLOEXEC;
    let (here, there) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    set_socket_timeout(&here, Timeout::Recv, Some(JOIN_TIMEOUT))?;
    // SAFETY: needed because setns(2) refuses a process with threads. The child makes system calls
    // only, without the C library's memory or locks, and ends by _exit.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(Errno::AGAIN);
    }
    if child == 0 {
        let made = join(namespace).and_then(|()| build());
        let _ = send(&there, &made);
        // SAFETY: needed to end without the parent's exit handlers.
        unsafe { libc::_exit(0) }
    }
    drop(there);
    let made = receive(&here);
    // Stopped, it would never end. SAFETY: needed because rustix's takes a pid of its own type, and std kills
    // children of its own. The child is not reaped yet, so that its id is no other's.
    unsafe { libc::kill(child, libc::SIGKILL) };
    // SAFETY: needed because std waits for children of its own. This one is nobody else's.
    while unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) } < 0 {
        if std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            break;
        }
    }
    made
}

fn join(namespace: BorrowedFd<'_>) -> Result<(), Errno> {
    // Who is privileged there must not look into this copy of the broker.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    move_into_link_name_space(namespace, Some(LinkNameSpaceType::User))?;
    // Stopped, it must not outlive a broker that ends meanwhile. A change of credentials resets this.
    set_parent_process_death_signal(Some(Signal::KILL))
}

/// Sends two descriptors, or an errno.
fn send(socket: &OwnedFd, made: &Result<[OwnedFd; 2], Errno>) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let code = made
        .as_ref()
        .map_or_else(|errno| errno.raw_os_error(), |_| 0);
    if let Ok([first, second]) = made {
        let both = [first.as_fd(), second.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&both));
        let bytes = code.to_ne_bytes();
        return sendmsg(
            socket,
            &[IoSlice::new(&bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        )
        .map(drop);
    }
    let bytes = code.to_ne_bytes();
    sendmsg(
        socket,
        &[IoSlice::new(&bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )
    .map(drop)
}

fn receive(socket: &OwnedFd) -> Result<[OwnedFd; 2], Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 4];
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = rustix::io::retry_on_intr(|| recvmsg(socket, &mut parts, &mut control, flags));
    let received = received.map_err(|errno| match errno {
        Errno::AGAIN => Errno::INTR,
        other => other,
    })?;
    if received.bytes == 0 {
        return Err(Errno::INTR);
    }
    let code = i32::from_ne_bytes(bytes);
    if received.bytes != 4 || code != 0 {
        return Err(Errno::from_raw_os_error(if code == 0 {
            libc::EIO
        } else {
            code
        }));
    }
    let mut fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let mut fds = fds.next().ok_or(Errno::IO)?;
    match (fds.next(), fds.next()) {
        (Some(first), Some(second)) => Ok([first, second]),
        _ => Err(Errno::IO),
    }
}

/// The children of this thread are in pid and network namespaces of their own.
pub(super) fn unshare_children() -> Result<(), Errno> {
    // SAFETY: needed because the general call can part threads that share descriptors. These flags
    // leave those alone.
    unsafe { unshare_unsafe(UnshareFlags::NEWPID | UnshareFlags::NEWNET) }
}

/// Lets a program inherit descriptors, by the numbers that they have here, and calls `confine` in its process
/// before it is executed, which allocates no memory.
pub(super) fn before_exec(
    command: &mut Command,
    fds: [BorrowedFd<'_>; 2],
    mut confine: impl FnMut() -> std::io::Result<()> + Send + Sync + 'static,
) {
    let numbers = fds.map(|fd| fd.as_raw_fd());
    let prepare = move || {
        for number in numbers {
            // SAFETY: needed to name it in the child, where it is open: the caller's borrows last
            // until the program is started.
            let fd = unsafe { BorrowedFd::borrow_raw(number) };
            fcntl_setfd(fd, FdFlags::empty())?;
        }
        confine()
    };
    // SAFETY: needed because std closes all descriptors but three, and knows no confinement. It makes system
    // calls only.
    unsafe { command.pre_exec(prepare) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags, open};
    use rustix::process::{getpid, kill_process};

    /// As by a process that is root there; the child stops itself.
    #[test]
    fn a_stopped_process_is_killed() {
        let mut holder = Command::new("unshare")
            .args(["--user", "sleep", "60"])
            .spawn()
            .expect("unshare(1)");
        let path = format!("/proc/{}/ns/user", holder.id());
        let own = std::fs::read_link("/proc/self/ns/user").expect("/proc");
        let limit = Duration::from_secs(10);
        let is_another = || std::fs::read_link(&path).is_ok_and(|other| other != own);
        assert!(
            testkit::wait_until(limit, is_another),
            "needs user namespaces"
        );
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let namespace = open(path.as_str(), flags, Mode::empty()).expect("it is there");
        let made = in_user_namespace(namespace.as_fd(), || {
            kill_process(getpid(), Signal::STOP)?;
            Err(Errno::IO)
        });
        assert_eq!(made.err(), Some(Errno::INTR));
        holder.kill().expect("it runs");
        holder.wait().expect("it ends");
    }
}
