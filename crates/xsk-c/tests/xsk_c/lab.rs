//! A veth pair, and programs in C on it, which end with the test.
#![allow(unsafe_code)] // A part runs between fork and exec.

use crate::{Outcome, Result};
use rustix::io::{FdFlags, fcntl_setfd};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use testkit::{Failure, Process, Side, join, until, wait_until};
use xsk::{Device, Mode, Socket, Umem};

/// Longest time without any progress.
pub const STALL: Duration = Duration::from_secs(10);

/// A veth pair between two namespaces: `rx0` is the program's, `tx0` the test's.
pub struct Lab {
    pub rx: Side,
    pub tx: Side,
}

impl Lab {
    pub fn new() -> Result<Self> {
        let lab = Self {
            rx: Side::new("rx0")?,
            tx: Side::new("tx0")?,
        };
        join_up([&lab.rx, &lab.tx], 0xa, 1)?;
        Ok(lab)
    }

    /// As the kernel makes it, with IPv6 and its solicitations, and with addresses: 192.0.2.1 and `2001:db8::1` are the
    /// program's. For programs that take the best mode, in [`Mode::Skb`] the other end has an MTU with which the kernel refuses
    /// native XDP.
    pub fn as_made(mode: Mode) -> Result<Self> {
        let lab = Self {
            rx: Side::as_made("rx0")?,
            tx: Side::as_made("tx0")?,
        };
        join_up([&lab.rx, &lab.tx], 0xa, 1)?;
        if mode == Mode::Skb {
            lab.tx.ip("link set dev tx0 mtu 3700")?;
        }
        for (side, host) in [(&lab.rx, 1), (&lab.tx, 2)] {
            let device = side.device;
            side.ip(&format!("address add 192.0.2.{host}/24 dev {device}"))?;
            side.ip(&format!("address add 2001:db8::{host}/64 dev {device}"))?;
        }
        // An IPv6 address can be used when the kernel has asked whether another host has it.
        let is_usable =
            |side: &Side| Ok::<_, Failure>(side.output("ip", "-6 addr show tentative")?.is_empty());
        for side in [&lab.rx, &lab.tx] {
            until(STALL, "an IPv6 address is tentative", || is_usable(side))?;
        }
        Ok(lab)
    }
}

/// Joins two sides by a pair that is up.
pub fn join_up(sides: [&Side; 2], number: u8, queues: u32) -> Outcome {
    join(sides, number, queues, 1500)?;
    for side in sides {
        side.set_up(true)?;
    }
    Ok(())
}

/// A socket on queue 0, with native XDP.
pub fn open(side: &Side, umem: &Umem) -> xsk::Result<Socket> {
    let builder = Socket::builder(umem, side.device, 0).mode(Mode::Driver);
    side.inside(|| builder.open())
}

/// Whether the device is without an XDP program, soon at least.
pub fn has_no_program(side: &Side) -> bool {
    let device = || side.inside(|| Device::lookup(side.device));
    wait_until(STALL, || device().is_ok_and(|now| now.programs.is_empty()))
}

/// Starts a program inside a namespace.
pub fn start(side: &Side, program: &Path, arguments: &[&str]) -> Result<Process> {
    start_with(side, program, arguments, Vec::new())
}

/// The same with descriptors, which have the same numbers there.
pub fn start_with(
    side: &Side,
    program: &Path,
    arguments: &[&str],
    descriptors: Vec<OwnedFd>,
) -> Result<Process> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(directory) = program.parent() {
        command.env("LD_LIBRARY_PATH", directory);
    }
    inherit(&mut command, descriptors);
    Ok(Process::of(side.spawn(&mut command)?)?)
}

/// Lets a program have descriptors, and no other program that starts at the same time.
fn inherit(command: &mut Command, descriptors: Vec<OwnedFd>) {
    let keep_open = move || {
        for descriptor in &descriptors {
            fcntl_setfd(descriptor, FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: needed because a child of a program with threads may only make system calls until it executes
    // another. Sound because these are system calls alone.
    unsafe { command.pre_exec(keep_open) };
}
