//! The requests to the daemon, and its answers: one message each way over a Unix socket that keeps
//! messages apart, a JSON object. A long answer is in a file whose descriptor comes with it.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use broker::message;
use hostnet::privilege::{self, FileStep};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::process::Pid;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};

use crate::switch::settings::Settings;

/// The daemon's socket.
pub const DEFAULT_SOCKET: &str = "/run/weir/switch.sock";
/// Most bytes of a request.
pub const MOST_BYTES: usize = 64 << 10;
/// Most bytes of an answer.
const MOST_ANSWER: u64 = 64 << 20;
/// The daemon answers in milliseconds, but for a bridge of many cards: attaching XDP resets each of them, which
/// takes up to some seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// A request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Accelerate a bridge, or change its settings.
    Attach {
        /// The bridge.
        bridge: String,
        /// Its settings.
        #[serde(deserialize_with = "checked")]
        settings: Box<Settings>,
    },
    /// Leave a bridge to the kernel, or all.
    Detach {
        /// The bridge; none for all.
        bridge: Option<String>,
    },
    /// The state of all bridges.
    Status,
    /// The name that a bridge is under in the answers, which may be asked for by an alternative one.
    Name {
        /// The bridge.
        bridge: String,
    },
    /// Sample forwarded frames for three seconds. The answer has the id of the map of samples, and the names of
    /// the ports by index.
    Sample {
        /// The bridge.
        bridge: String,
        /// One in so many frames.
        one_in: u64,
    },
}

fn checked<'de, D: Deserializer<'de>>(settings: D) -> Result<Box<Settings>, D::Error> {
    let settings = Box::<Settings>::deserialize(settings)?;
    settings.check().map_err(D::Error::custom)?;
    Ok(settings)
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
/// Where there is no daemon, where it has not answered after 30 seconds, and its refusal.
pub fn ask<T: DeserializeOwned>(socket: &Path, request: &Request) -> Result<T> {
    ask_within(PATIENCE, socket, request)
}

fn ask_within<T: DeserializeOwned>(
    patience: Duration,
    socket: &Path,
    request: &Request,
) -> Result<T> {
    let connection = connect_to(socket, patience)?;
    let failed = |errno| match errno {
        Errno::AGAIN => no_answer(patience, listener(&connection)),
        errno => anyhow!(errno),
    };
    let text = serde_json::to_vec(request)?;
    message::send(connection.as_fd(), &text, &[])
        .map_err(failed)
        .context("cannot ask the daemon")?;
    let (head, mut fds) = message::receive(connection.as_fd(), MOST_BYTES).map_err(failed)?;
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

fn connect_to(path: &Path, patience: Duration) -> Result<OwnedFd> {
    let shown = path.display();
    message::connect(path, Some(patience)).map_err(|errno| match errno {
        Errno::NOENT | Errno::CONNREFUSED => anyhow!(NoDaemon(format!(
            "no daemon listens at {shown}: start one (`systemctl start weir-switch`, or `weir switch run`), \
             or name its socket with --socket"
        ))),
        Errno::ACCESS | Errno::PERM => {
            let why = privilege::file_note(&errno.into(), path, FileStep::Write);
            anyhow!("cannot connect to {shown}{why}")
        }
        Errno::NAMETOOLONG => anyhow!("{shown} is too long for a socket: it has at most 107 bytes"),
        Errno::AGAIN => no_answer(patience, None),
        errno => anyhow!("cannot connect to {shown}: {errno}"),
    })
}

/// The process that listens at the other end, if this one can name it.
fn listener(connection: &OwnedFd) -> Option<i32> {
    let pid = Pid::as_raw(Some(socket_peercred(connection).ok()?.pid));
    (pid > 0).then_some(pid)
}

fn no_answer(patience: Duration, pid: Option<i32>) -> anyhow::Error {
    let (mut process, mut kill) = (String::new(), String::new());
    if let Some(pid) = pid {
        process = format!(" (process {pid})");
        kill = format!(", or `kill -KILL {pid}`");
    }
    anyhow!(
        "the daemon{process} has not answered for {} s: see its log (`journalctl -u weir-switch`); if it hangs, end \
         it (`systemctl kill --signal=KILL weir-switch`{kill}) and start it again",
        patience.as_secs_f64()
    )
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    use rustix::net::{bind, listen, socket_with};
    use std::time::Instant;

    /// As much as a hung daemon does: the kernel connects, and nobody reads.
    fn hung(path: &Path) -> OwnedFd {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let socket = socket.expect("a socket");
        bind(&socket, &SocketAddrUnix::new(path).expect("a short path")).expect("bound");
        // Room for one connection.
        listen(&socket, 0).expect("it listens");
        socket
    }

    #[test]
    fn a_request_has_valid_settings() {
        let request = |addresses| Request::Attach {
            bridge: "br0".into(),
            settings: Box::new(Settings {
                addresses,
                ..Settings::default()
            }),
        };
        let read = |request| {
            let text = serde_json::to_string(&request).expect("JSON");
            serde_json::from_str::<Request>(&text)
        };
        read(request(1)).expect("it is valid");
        let error = read(request(0)).expect_err("refused").to_string();
        assert!(error.starts_with("addresses = 0: choose 1 to "), "{error}");
    }

    #[test]
    fn a_daemon_that_hangs_is_not_waited_for() {
        let path = std::env::temp_dir().join(format!("weir-hung-{}", std::process::id()));
        let daemon = hung(&path);
        let patience = Duration::from_millis(100);
        let ask = || ask_within::<()>(patience, &path, &Request::Status).expect_err("no answer");
        let begun = Instant::now();
        let own = std::process::id();
        let error = format!("{:#}", ask());
        for part in [
            &format!("the daemon (process {own}) has not answered for 0.1 s: "),
            "journalctl -u weir-switch",
            &format!("`kill -KILL {own}`"),
        ] {
            assert!(error.contains(part), "no {part}: {error}");
        }
        // The earlier connection is in its queue.
        let error = format!("{:#}", ask());
        assert!(
            error.starts_with("the daemon has not answered for 0.1 s: "),
            "{error}"
        );
        assert!(begun.elapsed() >= 2 * patience, "it did not wait");
        drop(daemon);
        let error = ask();
        assert!(error.downcast_ref::<NoDaemon>().is_some(), "{error}");
        std::fs::remove_file(&path).expect("it was there");
    }
}
