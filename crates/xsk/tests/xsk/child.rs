//! This program as a child process, to be killed or to lack a capability.

use crate::netns::{Side, umem_builder};
use crate::{MODES, Outcome, Result, handover};
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_thread_res_uid};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::Duration;
use testkit::{skip, wait_until};
use xsk::{Mode, Socket};

/// The environment variable with the role, the device and the mode.
const VARIABLE: &str = "XSK_TEST_CHILD";

/// The steps of a child before it opens a socket.
#[derive(Debug, Clone, Copy)]
pub enum Role {
    /// None; it holds the socket until it is killed.
    Hold,
    /// Becomes an ordinary user.
    Unprivileged,
    /// Keeps `CAP_NET_RAW` only.
    OnlyNetRaw,
    /// Lowers the memory lock limit to 64 KiB and drops `CAP_IPC_LOCK`.
    LittleMemory,
    /// Enters the test's [`Group`].
    Grouped,
    /// None; it hands the socket over when it is asked to.
    Giver,
    /// Becomes an ordinary user that may lock no memory, and takes a socket over instead.
    Taker,
}

const ROLES: [Role; 7] = [
    Role::Hold,
    Role::Unprivileged,
    Role::OnlyNetRaw,
    Role::LittleMemory,
    Role::Grouped,
    Role::Giver,
    Role::Taker,
];

/// A child that has opened its socket, or printed the error. Killed on drop.
pub struct Started {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Started {
    /// Starts a child inside a namespace.
    pub fn new(side: &Side, role: Role, mode: Mode) -> Result<Self> {
        Self::with_input(side, role, mode, Stdio::null())
    }

    /// Starts a child inside a namespace, with this standard input.
    pub fn with_input(side: &Side, role: Role, mode: Mode, input: Stdio) -> Result<Self> {
        let mode = MODES.iter().find(|(_, m)| *m == mode).ok_or("a mode")?.0;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .env(VARIABLE, format!("{role:?} {} {mode}", side.device))
            .stdin(input)
            .stdout(Stdio::piped());
        let mut child = side.inside(|| command.spawn())?;
        let output = child.stdout.take().ok_or("the child's output")?;
        Ok(Self {
            child,
            output: BufReader::new(output),
        })
    }

    /// The next line that it prints.
    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// `kill -9`, and waits for the end.
    pub fn kill(&mut self) -> Outcome {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.kill();
    }
}

/// Runs the child's part, if this process is a child.
pub fn run() -> Option<ExitCode> {
    let order = std::env::var(VARIABLE).ok()?;
    let mut words = order.split(' ');
    let role = words.next()?;
    let role = ROLES.into_iter().find(|r| format!("{r:?}") == role)?;
    let device = words.next()?;
    let mode = words.next()?;
    let mode = MODES.iter().find(|(name, _)| *name == mode)?.1;
    let result = work(role, device, mode);
    Some(result.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS))
}

fn work(role: Role, device: &str, mode: Mode) -> Outcome {
    prepare(role)?;
    // It must not outlive a killed test. Becoming another user would cancel this.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if matches!(role, Role::Taker) {
        return handover::take();
    }
    let umem = umem_builder().build();
    let opened = umem.and_then(|umem| Socket::builder(&umem, device, 0).mode(mode).open());
    let mut output = std::io::stdout();
    let mut socket = match opened {
        Ok(socket) => socket,
        Err(error) => {
            writeln!(output, "{:?}: {error}", error.kind())?;
            return Ok(());
        }
    };
    writeln!(output, "ready")?;
    if matches!(role, Role::Giver) {
        return handover::give(socket);
    }
    loop {
        socket.wait(Duration::from_millis(100))?;
        let mut batch = socket.recv(64);
        while let Some(packet) = batch.next_packet() {
            let _ = packet.send();
        }
        drop(batch);
        socket.flush()?;
    }
}

fn prepare(role: Role) -> Outcome {
    const NOBODY: u32 = 65534;
    match role {
        Role::Hold | Role::Giver => Ok(()),
        Role::Unprivileged => {
            let nobody = rustix::process::Uid::from_raw(NOBODY);
            Ok(set_thread_res_uid(nobody, nobody, nobody)?)
        }
        Role::OnlyNetRaw => keep_capabilities(CapabilitySet::NET_RAW),
        Role::Taker => {
            limit_memory(0)?;
            prepare(Role::Unprivileged)
        }
        Role::Grouped => {
            let test = rustix::process::getppid().ok_or("a parent")?;
            let group = Group::of(test.as_raw_nonzero().get()).ok_or("a group")?;
            Ok(fs::write(
                group.join("cgroup.procs"),
                std::process::id().to_string(),
            )?)
        }
        Role::LittleMemory => {
            limit_memory(64 << 10)?;
            keep_capabilities(CapabilitySet::all() - CapabilitySet::IPC_LOCK)
        }
    }
}

/// A control group with a memory limit, for the children of this test program.
pub struct Group(PathBuf);

impl Group {
    /// Makes the group.
    pub fn new(bytes: u64) -> Result<Self> {
        let pid = std::process::id().cast_signed();
        for (root, file) in HIERARCHIES {
            let group = Path::new(root).join(Self::name(pid));
            if fs::create_dir(&group).is_err() {
                continue;
            }
            let group = Self(group);
            if fs::write(group.0.join(file), bytes.to_string()).is_ok() {
                return Ok(group);
            }
        }
        Err(skip(
            "needs a hierarchy of control groups with memory limits",
        ))
    }

    fn name(test: i32) -> String {
        format!("xsk-test-{test}")
    }

    /// The directory of a test's group.
    fn of(test: i32) -> Option<PathBuf> {
        let groups = HIERARCHIES.map(|(root, _)| Path::new(root).join(Self::name(test)));
        groups.into_iter().find(|group| group.exists())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that has ended leaves its group a moment later.
        wait_until(Duration::from_secs(10), || fs::remove_dir(&self.0).is_ok());
    }
}

/// Where the kernel's memory limits are, of both versions.
const HIERARCHIES: [(&str, &str); 2] = [
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
    ("/sys/fs/cgroup", "memory.max"),
];

fn limit_memory(bytes: u64) -> Outcome {
    let limit = Rlimit {
        current: Some(bytes),
        maximum: Some(bytes),
    };
    Ok(setrlimit(Resource::Memlock, limit)?)
}

fn keep_capabilities(kept: CapabilitySet) -> Outcome {
    let now = rustix::thread::capabilities(None)?;
    let sets = CapabilitySets {
        effective: now.effective & kept,
        permitted: now.permitted & kept,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, sets)?)
}
