//! `weir run`: a command under the broker's supervision.

use super::{filter, handlers};
use crate::message::{self, LISTENER, SUPERVISE, connect_to};
use crate::seccomp::install;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use rustix::io::Errno;
use rustix::thread::set_no_new_privs;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// Puts this thread, and all that it starts or becomes, under the broker's supervision.
///
/// # Errors
///
/// Without a broker, when its policy refuses, on a kernel before 5.19, and under supervision already.
pub fn supervise(broker: &Path, policy: Option<&str>) -> Result<()> {
    let socket = connect_to(broker)?;
    let names = request(&socket, policy)?;
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let filter = filter::program(handlers::rules(&names));
    set_no_new_privs(true).context("cannot set no_new_privs")?;
    let listener = install(&filter).map_err(cannot_install)?;
    message::send_text(&socket, LISTENER, Some(listener.as_fd()))
        .map_err(anyhow::Error::from)
        .and_then(|()| message::receive_ok(&socket))
        .context("the broker does not take the listener")?;
    Ok(())
}

/// Asks for supervision; returns the handlers' names.
fn request(socket: &OwnedFd, policy: Option<&str>) -> Result<Vec<String>> {
    let line = policy.map_or_else(String::new, |name| format!("policy={name}\n"));
    ensure!(
        line.lines().count() <= 1,
        "a policy's name is one line: {policy:?}"
    );
    let text = format!("{SUPERVISE}\n{line}");
    ensure!(
        text.len() <= message::MOST_BYTES,
        "the policy's name is too long"
    );
    let reply = message::ask(socket, &text).context("the broker refuses")?;
    let names = reply.value("handlers").unwrap_or_default();
    let names: Vec<_> = names.split(',').filter(|name| !name.is_empty()).collect();
    ensure!(
        !names.is_empty(),
        "the policy grants no supervised call: run the command without `weir run`"
    );
    let known = |name: &&&str| handlers::RULES.iter().any(|(known, _)| known == *name);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        bail!(
            "the broker has a handler {unknown:?} that this weir does not know: install the same version of both"
        );
    }
    Ok(names.into_iter().map(ToOwned::to_owned).collect())
}

fn cannot_install(errno: Errno) -> anyhow::Error {
    let cause = match errno {
        Errno::BUSY => {
            "this process is supervised already, and the kernel allows one supervisor: run the command without `weir run`, or outside of the container or the other `weir run`"
        }
        Errno::INVAL => {
            "the kernel has no SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV: use Linux 5.19 or later"
        }
        Errno::NOSYS | Errno::PERM | Errno::ACCESS => {
            "a seccomp filter around this process forbids seccomp(2)"
        }
        _ => "see seccomp(2)",
    };
    anyhow!("cannot install the filter: {errno}; {cause}")
}

/// Becomes a command; returns only when that fails, with the shell's exit code: 127 when there is no
/// such command, 126 when it cannot be executed.
pub fn exec(command: &OsStr, arguments: &[OsString]) -> (u8, anyhow::Error) {
    let error = Command::new(command).args(arguments).exec();
    let words = format!("cannot run {}", command.display());
    // Of a directory of PATH that this user may not search, the system tells that instead.
    let is_forbidden = error.kind() == io::ErrorKind::PermissionDenied;
    if is_forbidden && !is_path(command) && !is_in_path(command) {
        return (127, anyhow!("no such command in PATH").context(words));
    }
    let code = if error.kind() == io::ErrorKind::NotFound {
        127
    } else {
        126
    };
    (code, anyhow::Error::from(error).context(words))
}

fn is_path(command: &OsStr) -> bool {
    command.as_encoded_bytes().contains(&b'/')
}

fn is_in_path(command: &OsStr) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(command).is_file())
}
