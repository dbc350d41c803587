//! The message of a container runtime to a seccomp agent: `listenerPath` of the OCI runtime
//! specification (`config-linux.md`).
//!
//! Runtimes connect before they know that the container starts, so that an empty connection is
//! normal, and some keep the connection open behind the message, so that its end is that of the JSON.

use super::sys;
use crate::identity::{Container, Identity};
use crate::seccomp::Listener;
use anyhow::{Context as _, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use rustix::process::Pid;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Most bytes of a message.
const MOST_BYTES: usize = 1 << 20;

/// How long a runtime may take for it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Most descriptors of a message.
const MOST_FDS: usize = 8;
const CONTROL: usize = rustix::cmsg_space!(ScmRights(MOST_FDS));

/// `CAP_SYS_ADMIN` in a set of capabilities.
const SYS_ADMIN: u64 = 1 << 21;

/// The status of a container in which a process is started later.
const RUNNING: &str = "running";

/// The name of the listener among the descriptors (`SeccompFdName`).
const SECCOMP_FD: &str = "seccompFd";

/// A container whose calls arrive at the listener, as its runtime describes it.
#[derive(Debug)]
pub struct ContainerState {
    /// Id of the container.
    pub id: String,
    /// The process whose filter it is, in the runtime's pid namespace: the container's first, or one
    /// that a runtime started in it later.
    pub pid: i32,
    /// Annotations of the container.
    pub annotations: BTreeMap<String, String>,
    /// `listenerMetadata` of the seccomp profile.
    pub metadata: String,
    /// `creating`, or `running` for a process started later.
    pub status: String,
    /// Where the calls arrive.
    pub listener: Listener,
}

/// `ContainerProcessState`.
#[derive(Deserialize)]
struct ProcessState {
    #[serde(default)]
    fds: Vec<String>,
    pid: i32,
    #[serde(default)]
    metadata: Option<String>,
    state: State,
}

/// `State`.
#[derive(Deserialize)]
struct State {
    id: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

/// Receives the message of a runtime over a connection; none over an empty one. It waits 5 seconds at
/// most.
///
/// # Errors
///
/// When the message is not as the specification says, too long, or late; when the descriptor is no
/// listener.
pub fn receive(connection: impl AsFd) -> Result<Option<ContainerState>> {
    let Some((state, fds)) = read(connection, PATIENCE)? else {
        return Ok(None);
    };
    ensure!(
        state.fds.len() == fds.len(),
        "the message names {} descriptors, and {} came with it",
        state.fds.len(),
        fds.len()
    );
    let mut named = state.fds.iter().zip(fds);
    let listener = named.find(|(name, _)| *name == SECCOMP_FD);
    let (_, listener) = listener.context("the message has no descriptor named seccompFd")?;
    ensure!(!state.state.id.is_empty(), "the container has no id");
    Ok(Some(ContainerState {
        id: state.state.id,
        pid: state.pid,
        annotations: state.state.annotations.unwrap_or_default(),
        metadata: state.metadata.unwrap_or_default(),
        status: state.state.status,
        listener: Listener::new(listener)?,
    }))
}

impl ContainerState {
    /// The tenant that the profile names, by a line `policy=NAME` of its metadata.
    pub fn tenant(&self) -> Option<String> {
        let mut lines = self.metadata.lines();
        let name = lines.find_map(|line| line.strip_prefix("policy="))?;
        Some(name.trim().to_owned())
    }

    /// Who the container's process is. Its runtime, the peer of the connection, is believed which
    /// process it is where it is root, or where the process is its user's own: of that user, or in a
    /// user namespace that this user made. Of a process started later crun 1.8 passes no id: there it is
    /// the runtime itself, which asks for no more than it could have by `weir run`.
    ///
    /// # Errors
    ///
    /// When the process has ended, or the runtime is not believed.
    pub fn identity(&self, runtime: Identity) -> Result<Identity> {
        let container = Container {
            id: self.id.clone(),
            annotations: self.annotations.clone(),
            runtime_uid: runtime.uid,
        };
        let process = if self.pid == 0 && self.status == RUNNING {
            runtime
        } else {
            self.process(&runtime)?
        };
        Ok(process.with_container(container))
    }

    fn process(&self, runtime: &Identity) -> Result<Identity> {
        let pid = Pid::from_raw(self.pid).context("the container's process has no id")?;
        let process =
            Identity::of_process(pid).context("cannot look at the container's process")?;
        if runtime.uid != 0 && process.uid != runtime.uid {
            let owner = owner_of(pid)?;
            ensure!(
                owner == Some(runtime.uid) && process.is_alive(),
                "uid {} calls process {pid} its container, which is uid {}'s",
                runtime.uid,
                process.uid
            );
        }
        Ok(process)
    }
}

/// Refuses root without the host's privilege, as that of a container to which the socket was given: it would be
/// believed as the host's is.
///
/// # Errors
///
/// When the peer is root and has no `CAP_SYS_ADMIN` in this process's user namespace, or that cannot be read.
pub fn check_runtime(runtime: &Identity) -> Result<()> {
    if runtime.uid != 0 {
        return Ok(());
    }
    let pid = Pid::from_raw(runtime.pid.cast_signed()).context("the runtime has no id")?;
    let status = std::fs::read_to_string(format!("/proc/{}/status", runtime.pid));
    let status = status.context("cannot read the runtime's capabilities")?;
    let capabilities = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    let is_privileged = capabilities.is_some_and(|bits| bits & SYS_ADMIN != 0);
    let owner = owner_of(pid).context("cannot look at the runtime's user namespace")?;
    ensure!(runtime.is_alive(), "the runtime has ended");
    ensure!(
        is_privileged && owner.is_none(),
        "the peer is root without CAP_SYS_ADMIN on the host, as in a container: this socket is for runtimes of the host, mount it into no container"
    );
    Ok(())
}

/// Who made the user namespace of a process, where it is not this process's.
fn owner_of(pid: Pid) -> Result<Option<u32>> {
    let open = |of: &str| {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::open(format!("/proc/{of}/ns/user"), flags, Mode::empty())
    };
    let (theirs, ours) = (open(&pid.as_raw_nonzero().to_string())?, open("self")?);
    let inode = |fd: &OwnedFd| rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
    if inode(&theirs)? == inode(&ours)? {
        return Ok(None);
    }
    Ok(Some(sys::owner_of_namespace(theirs.as_fd())?))
}

/// The JSON, and the descriptors that came with its first bytes.
fn read(connection: impl AsFd, patience: Duration) -> Result<Option<(ProcessState, Vec<OwnedFd>)>> {
    let deadline = Instant::now() + patience;
    let (mut bytes, mut fds) = (Vec::new(), Vec::new());
    loop {
        wait(&connection, deadline)?;
        let (part, came) = receive_part(&connection)?;
        if part.is_empty() {
            ensure!(
                bytes.is_empty(),
                "the connection ended inside of the message"
            );
            return Ok(None);
        }
        ensure!(
            came.is_empty() || bytes.is_empty(),
            "descriptors came behind the first bytes"
        );
        fds.extend(came);
        bytes.extend(part);
        ensure!(
            bytes.len() <= MOST_BYTES,
            "the message is longer than {MOST_BYTES} bytes"
        );
        if let Some(state) = parse(&bytes)? {
            return Ok(Some((state, fds)));
        }
    }
}

/// The first value of the bytes so far, if it is complete.
fn parse(bytes: &[u8]) -> Result<Option<ProcessState>> {
    // Not to parse it again for each byte of one who sends them one by one.
    if !bytes.trim_ascii_end().ends_with(b"}") {
        return Ok(None);
    }
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter();
    match values.next() {
        Some(Ok(state)) => Ok(Some(state)),
        Some(Err(error)) if error.is_eof() => Ok(None),
        Some(Err(error)) => Err(error).context("the message is no container's state"),
        None => Ok(None),
    }
}

/// Waits for bytes or the end.
fn wait(connection: impl AsFd, deadline: Instant) -> Result<()> {
    loop {
        let rest = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(rest)?;
        let mut fds = [PollFd::new(&connection, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => bail!(
                "the message took longer than {} seconds",
                PATIENCE.as_secs()
            ),
            Ok(_) => return Ok(()),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn receive_part(connection: impl AsFd) -> Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; 16 << 10];
    let mut space = [MaybeUninit::uninit(); CONTROL];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut data = [IoSliceMut::new(&mut bytes)];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = match recvmsg(&connection, &mut data, &mut control, flags) {
        // The runtime gave up.
        Err(Errno::CONNRESET) => return Ok((Vec::new(), Vec::new())),
        result => result?,
    };
    // Owned first: refused descriptors are closed.
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    ensure!(
        !received.flags.contains(ReturnFlags::CTRUNC),
        "more than {MOST_FDS} descriptors came"
    );
    bytes.truncate(received.bytes);
    Ok((bytes, fds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message;
    use std::io::Write as _;
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;

    /// As runc 1.1.5 sends it.
    const RUNC: &str = r#"{"ociVersion":"1.0.2-dev","fds":["seccompFd"],"pid":42,"metadata":"policy=web\n","state":{"ociVersion":"1.0.2-dev","id":"box","status":"creating","pid":42,"bundle":"/b","annotations":{"a":"1"}}}"#;

    const SHORT: Duration = Duration::from_millis(200);

    fn send(bytes: &[u8], fds: usize) -> (UnixStream, UnixStream) {
        let (here, there) = UnixStream::pair().expect("a pair");
        let mut text = bytes;
        if fds > 0 {
            let first = str::from_utf8(&bytes[..1]).expect("text");
            message::send_text(&there, first, Some(there.as_fd())).expect("sent");
            text = &bytes[1..];
        }
        (&there).write_all(text).expect("room");
        (here, there)
    }

    #[test]
    fn the_message_ends_where_its_json_does() {
        let (here, _open) = send(RUNC.as_bytes(), 1);
        let (state, fds) = read(&here, SHORT).expect("read").expect("a message");
        assert_eq!(
            (state.pid, fds.len(), state.state.id.as_str()),
            (42, 1, "box")
        );
        // crun's is pretty, and has no metadata or annotations where there are none.
        let pretty = "{\n \"fds\": [\n ],\n \"pid\": 1,\n \"state\": {\n \"id\": \"x\",\n \"annotations\": null }\n}\n";
        let (here, _open) = send(pretty.as_bytes(), 0);
        let (state, fds) = read(&here, SHORT).expect("read").expect("a message");
        assert_eq!((state.pid, fds.len(), state.metadata), (1, 0, None));
    }

    #[test]
    fn a_message_in_pieces_is_one() {
        let (here, mut there) = UnixStream::pair().expect("a pair");
        let writer = std::thread::spawn(move || {
            for byte in RUNC.as_bytes() {
                there.write_all(&[*byte]).expect("room");
            }
            there
        });
        let (state, _) = read(&here, SHORT).expect("read").expect("a message");
        assert_eq!(state.metadata.as_deref(), Some("policy=web\n"));
        drop(writer.join());
    }

    #[test]
    fn an_empty_connection_is_normal() {
        let (here, there) = send(b"", 0);
        there.shutdown(Shutdown::Write).expect("open");
        assert!(read(&here, SHORT).expect("read").is_none());
    }

    #[test]
    fn hostile_bytes_are_errors() {
        let long = vec![b'{'; MOST_BYTES + 2];
        for bytes in [
            b"}".as_slice(),
            b"{}",
            b"\xff\xfe}",
            b"[1,2]}",
            b"{\"pid\":99999999999,\"state\":{\"id\":\"x\"}}",
        ] {
            let (here, _open) = send(bytes, 0);
            assert!(read(&here, SHORT).is_err(), "{bytes:?}");
        }
        let (here, mut there) = UnixStream::pair().expect("a pair");
        let writer = std::thread::spawn(move || there.write_all(&long));
        assert!(read(&here, Duration::from_secs(5)).is_err());
        drop(here);
        drop(writer.join());
    }

    #[test]
    fn who_sends_nothing_or_half_is_not_waited_for() {
        for bytes in [&b""[..], b"{\"pid\":1"] {
            let (here, _open) = send(bytes, 0);
            let started = Instant::now();
            assert!(read(&here, SHORT).is_err());
            assert!(started.elapsed() < PATIENCE);
        }
    }

    #[test]
    fn a_descriptor_that_is_no_listener_is_refused() {
        let (here, _open) = send(RUNC.as_bytes(), 1);
        let error = receive(&here).expect_err("a socket is none");
        assert!(error.to_string().contains("no seccomp listener"), "{error}");
        let (here, _open) = send(RUNC.as_bytes(), 0);
        receive(&here).expect_err("it has none");
    }
}
