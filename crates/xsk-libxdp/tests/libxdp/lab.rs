//! Two network namespaces joined by a veth pair: `wan0` is the program's, `peer0` the test's.

use crate::Result;
use std::process::{Command, Stdio};
use std::time::Duration;
use testkit::process::is_program;
use testkit::{Process, Side, join, skip, success, wait_until};
use xsk::Device;

/// Longest time for a step.
pub(crate) const STEP: Duration = Duration::from_secs(20);
/// Longest time of a command, which may compile, or count instructions.
const COMMAND: Duration = Duration::from_secs(120);
/// Longest time of a test.
pub(crate) const TEST: Duration = Duration::from_secs(300);

/// Runs a command to its end; its standard output, or an error with all that it said.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    if !program.contains('/') && !is_program(&program) {
        return Err(skip(format!("needs {program}")));
    }
    Ok(success(command, COMMAND)?)
}

pub(crate) struct Lab {
    pub(crate) wan: Side,
    peer: Side,
}

impl Lab {
    /// A pair with so many queues, and beside it `down0`, which is down.
    pub(crate) fn new(queues: u32) -> Result<Self> {
        Self::with_mtu(queues, 1500)
    }

    /// The same, of this MTU.
    pub(crate) fn with_mtu(queues: u32, mtu: u32) -> Result<Self> {
        let (wan, peer) = (Side::new("wan0")?, Side::new("peer0")?);
        join([&wan, &peer], 0xa, queues, mtu)?;
        join(
            [&wan.beside("down0")?, &peer.beside("down1")?],
            0xd,
            queues,
            mtu,
        )?;
        for side in [&wan.beside("lo")?, &wan, &peer] {
            side.set_up(true)?;
        }
        Ok(Self { wan, peer })
    }

    /// Runs work in the program's namespace.
    pub(crate) fn inside<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.wan.inside(work)
    }

    /// Runs work in the peer's namespace.
    pub(crate) fn at_peer<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.peer.inside(work)
    }

    /// Starts a program in its namespace.
    pub(crate) fn start(&self, command: &mut Command) -> Result<Process> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        Ok(Process::of(self.wan.spawn(command)?)?)
    }

    /// The names of the XDP programs on `wan0`.
    pub(crate) fn programs(&self) -> Result<Vec<String>> {
        let programs = self.wan.inside(|| Device::lookup("wan0"))?.programs;
        Ok(programs.into_iter().filter_map(|it| it.name).collect())
    }

    /// Waits until `wan0` has no program: the kernel detaches a killed process's with a delay.
    pub(crate) fn expect_no_program(&self) -> Result {
        let is_free = || self.programs().is_ok_and(|programs| programs.is_empty());
        if wait_until(STEP, is_free) {
            return Ok(());
        }
        Err(format!("left behind: {:?}", self.programs()?).into())
    }
}
