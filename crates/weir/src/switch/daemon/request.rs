//! The requests to the daemon, and its answers: one message each way over a Unix socket that keeps
//! messages apart, a JSON object. A long answer is in a file whose descriptor comes with it.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail};
use broker::message;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::switch::settings::Settings;

/// The daemon's socket.
pub const DEFAULT_SOCKET: &str = "/run/weir/switch.sock";
/// Most bytes of a request.
pub const MOST_BYTES: usize = 64 << 10;
/// Most bytes of an answer.
const MOST_ANSWER: u64 = 64 << 20;

/// A request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Accelerate a bridge, or change its settings.
    Attach {
        /// The bridge.
        bridge: String,
        /// Its settings.
        settings: Box<Settings>,
    },
    /// Leave a bridge to the kernel, or all.
    Detach {
        /// The bridge; none for all.
        bridge: Option<String>,
    },
    /// The state of all bridges.
    Status,
    /// Sample forwarded frames for three seconds. The answer has the id of the map of samples.
    Sample {
        /// The bridge.
        bridge: String,
        /// One in so many frames.
        one_in: u64,
    },
}

/// An answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Head {
    /// The rest is in the file that comes with it.
    Ok,
    /// The refusal.
    Error(String),
}

/// Asks the daemon, and returns its answer.
///
/// # Errors
///
/// Where there is no daemon, and its refusal.
pub fn ask<T: DeserializeOwned>(socket: &Path, request: &Request) -> Result<T> {
    let connection = connect_to(socket)?;
    let text = serde_json::to_vec(request)?;
    message::send(connection.as_fd(), &text, &[]).context("cannot ask the daemon")?;
    let (head, mut fds) =
        message::receive(connection.as_fd(), MOST_BYTES).context("the daemon does not answer")?;
    if head.is_empty() {
        bail!("the daemon has ended: its log has the reason");
    }
    match serde_json::from_slice(&head).context("the daemon's answer is of another version")? {
        Head::Error(refusal) => bail!("{refusal}"),
        Head::Ok => {}
    }
    let file = fds.pop().context("the daemon's answer has no file")?;
    let mut file = File::from(file);
    file.rewind()?;
    let mut text = String::new();
    file.take(MOST_ANSWER).read_to_string(&mut text)?;
    serde_json::from_str(&text).context("the daemon's answer is of another version")
}

/// No daemon listens at the socket.
#[derive(Debug)]
pub struct NoDaemon(String);

impl std::fmt::Display for NoDaemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoDaemon {}

fn connect_to(path: &Path) -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let shown = path.display();
    let address =
        SocketAddrUnix::new(path).with_context(|| format!("{shown} is too long for a socket"))?;
    connect(&socket, &address).map_err(|errno| match errno {
        Errno::NOENT | Errno::CONNREFUSED => anyhow!(NoDaemon(format!(
            "no daemon listens at {shown}: start one (`systemctl start weir-switch`, or `weir switch run`), \
             or name its socket with --socket"
        ))),
        Errno::ACCESS | Errno::PERM => anyhow!("{shown} is for root: use sudo"),
        errno => anyhow!("cannot connect to {shown}: {errno}"),
    })?;
    Ok(socket)
}

/// Answers a request.
pub(super) fn answer(connection: BorrowedFd<'_>, answer: &impl Serialize) -> Result<()> {
    let mut file = File::from(memfd_create("weir-switch-answer", MemfdFlags::CLOEXEC)?);
    file.write_all(&serde_json::to_vec(answer)?)?;
    message::send(connection, &serde_json::to_vec(&Head::Ok)?, &[file.as_fd()])?;
    Ok(())
}

/// Refuses a request.
pub(super) fn refuse(connection: BorrowedFd<'_>, why: &str) -> Result<()> {
    // The limit of a message.
    let why = why.chars().take(MOST_BYTES / 16).collect();
    message::send(connection, &serde_json::to_vec(&Head::Error(why))?, &[])?;
    Ok(())
}
