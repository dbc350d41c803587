//! The engine on a socket of `weir-broker`, which runs for this bench alone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ::xsk::broker::Request;
use ::xsk::{ErrorKind, Socket};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use super::xsk::{CHUNKS, Options, Xsk, library_wait};
use super::{Failure, Mode};
use crate::process::child::CHILD_TIMEOUT;

/// A broker, and its files in a directory that is removed with it.
#[derive(Debug)]
pub struct Broker {
    child: Child,
    directory: PathBuf,
}

impl Broker {
    /// Starts a broker that grants the device to this user.
    pub fn start(options: &Options<'_>) -> Result<Self, Failure> {
        let name = format!("weir-bench-broker-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let failed = |error: io::Error| failure(&error.to_string());
        fs::create_dir(&directory).map_err(failed)?;
        let child = fs::write(directory.join("policy.toml"), policy(options))
            .and_then(|()| command(&directory).spawn());
        match child {
            Ok(child) => Ok(Self { child, directory }),
            Err(error) => {
                let _ = fs::remove_dir_all(&directory);
                Err(failed(error))
            }
        }
    }

    /// Asks for the socket, without any capability.
    pub fn open(&mut self, options: &Options<'_>) -> Result<Xsk, Failure> {
        let none = CapabilitySet::empty();
        let sets = CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        };
        set_capabilities(None, sets).map_err(|errno| failure(&errno.to_string()))?;
        let mut request = Request::new(options.device)
            .queue(options.queue)
            .chunks(CHUNKS)
            .wait(library_wait(options.wait))
            .path(self.directory.join("socket"));
        if !options.bench.receives() {
            request = request.send_only();
        }
        self.ask(&request).map(|socket| Xsk::of(socket, options))
    }

    /// Asks until the broker listens.
    fn ask(&mut self, request: &Request) -> Result<Socket, Failure> {
        let deadline = Instant::now() + CHILD_TIMEOUT;
        loop {
            match request.open() {
                Ok(socket) => return Ok(socket),
                Err(error) if error.kind() == ErrorKind::Os && Instant::now() < deadline => {
                    if let Ok(Some(status)) = self.child.try_wait() {
                        return Err(failure(&format!("the broker ended early ({status})")));
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(failure(&error.to_string())),
            }
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn failure(message: &str) -> Failure {
    Failure {
        step: "broker",
        errno: 0,
        message: message.to_owned(),
    }
}

fn policy(options: &Options<'_>) -> String {
    let modes = match options.mode {
        Mode::Auto => "\"zc\", \"drv\", \"skb\"",
        Mode::Skb => "\"skb\"",
        Mode::Drv => "\"drv\"",
        Mode::Zc => "\"zc\"",
    };
    format!(
        "[[tenant]]\nname = \"bench\"\nuid = [{}]\ntrusted = true\n[[tenant.device]]\nname = \"{}\"\n\
         queues = \"{}\"\nlease = [\"rx\", \"tx\"]\nmodes = [{modes}]\nmemory = \"8 MiB\"\n",
        rustix::process::geteuid().as_raw(),
        options.device,
        options.queue
    )
}

/// The broker that was built or installed with this program; it ends with this process.
fn command(directory: &Path) -> Command {
    let beside = std::env::current_exe().ok();
    let beside = beside.map(|exe| exe.with_file_name("weir-broker"));
    let program = beside.filter(|path| path.exists());
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "--"])
        .arg(program.unwrap_or_else(|| "weir-broker".into()));
    for (flag, file) in [
        ("--policy", "policy.toml"),
        ("--socket", "socket"),
        ("--oci-socket", "oci"),
        ("--admin", "admin"),
        ("--metrics", "metrics"),
        ("--state", "state"),
        // There is none: the program ends with this broker.
        ("--bpffs", "bpffs"),
    ] {
        command.arg(flag).arg(directory.join(file));
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}
