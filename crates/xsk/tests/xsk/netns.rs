//! Two network namespaces joined by a veth pair. They have no names and live only as file
//! descriptors of this process, so nothing is left when a test panics or the process is killed.
//!
//! Unsafe code is needed for unshare(2), which can end the sharing between a process's threads.
#![allow(unsafe_code)]

use crate::budget::{SET_UP, scaled, wait_until};
use crate::{Outcome, Result};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use xsk::{Device, Mode, Socket, SocketBuilder, Umem};

/// One end of the veth pair, and its namespace.
pub struct Side {
    namespace: OwnedFd,
    /// Name of the device.
    pub device: &'static str,
}

/// A veth pair between two namespaces, with the receiver's side first in names: packets of a
/// test go from `tx` to `rx`.
pub struct Lab {
    pub rx: Side,
    pub tx: Side,
}

impl Lab {
    /// One queue on each side.
    pub fn new() -> Result<Self> {
        Self::with_queues(1)
    }

    /// MTU 1500, no checksum offload on the way out, no IPv6 and so no packets but the test's.
    pub fn with_queues(queues: u32) -> Result<Self> {
        let lab = Self {
            rx: Side::new("rx0")?,
            tx: Side::new("tx0")?,
        };
        let (process, peer) = (std::process::id(), lab.tx.namespace.as_raw_fd());
        lab.rx.ip(&format!(
            "link add rx0 address 02:00:00:00:00:0a numrxqueues {queues} numtxqueues {queues} type veth \
             peer name tx0 address 02:00:00:00:00:0b numrxqueues {queues} numtxqueues {queues} netns /proc/{process}/fd/{peer}"
        ))?;
        for side in [&lab.rx, &lab.tx] {
            side.run("ethtool", &format!("-K {} tx off", side.device))?;
            side.ip(&format!("link set dev {} mtu 1500 up", side.device))?;
        }
        Ok(lab)
    }
}

impl Side {
    /// A new namespace, with no device in it but `lo`.
    pub fn new(device: &'static str) -> Result<Self> {
        let made = std::thread::spawn(|| -> Result<OwnedFd> {
            // SAFETY: needed because the kernel's view of a namespace belongs to a thread. Sound
            // because NEWNET leaves memory and file descriptors shared, and this thread ends
            // here.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
            let namespace = File::open("/proc/thread-self/ns/net")?;
            // Before any device exists: one that comes up sends solicitations. A
            // kernel without IPv6 has no such file.
            for scope in ["all", "default"] {
                let path = format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6");
                if std::fs::exists(&path)? {
                    std::fs::write(path, "1")?;
                }
            }
            Ok(namespace.into())
        });
        let namespace = made.join().map_err(|_| "making a namespace panicked")??;
        Ok(Self { namespace, device })
    }

    /// Runs `work` on this thread, inside the namespace.
    pub fn inside<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = File::open("/proc/thread-self/ns/net").expect("/proc is mounted");
        let _back = Back(before.into());
        enter(self.namespace.as_fd());
        work()
    }

    /// Runs `ip` inside the namespace.
    pub fn ip(&self, arguments: &str) -> Outcome {
        self.run("ip", arguments)
    }

    /// Runs a command inside the namespace; a failure is an error with its output.
    pub fn run(&self, program: &str, arguments: &str) -> Outcome {
        let mut command = Command::new(program);
        command
            .args(arguments.split_whitespace())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = self
            .inside(|| command.spawn())
            .map_err(|error| format!("{program}: {error}"))?;
        let deadline = Instant::now() + scaled(SET_UP);
        while child.try_wait()?.is_none() {
            if Instant::now() >= deadline {
                child.kill()?;
                return Err(format!("`{program} {arguments}` does not end").into());
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        let output = child.wait_with_output()?;
        if output.status.success() {
            return Ok(());
        }
        let words = String::from_utf8_lossy(&output.stderr);
        Err(format!("`{program} {arguments}` failed: {}", words.trim()).into())
    }

    /// Opens a socket on queue 0, with further settings by `configure`.
    pub fn open<'u>(
        &self,
        umem: &'u Umem,
        mode: Mode,
        configure: impl FnOnce(SocketBuilder<'u>) -> SocketBuilder<'u>,
    ) -> xsk::Result<Socket<'u>> {
        self.open_queue(umem, mode, 0, configure)
    }

    /// The same on another queue.
    pub fn open_queue<'u>(
        &self,
        umem: &'u Umem,
        mode: Mode,
        queue: u32,
        configure: impl FnOnce(SocketBuilder<'u>) -> SocketBuilder<'u>,
    ) -> xsk::Result<Socket<'u>> {
        let builder = Socket::builder(umem, self.device, queue).mode(mode);
        self.inside(|| configure(builder).open())
    }

    /// Looks up the device.
    pub fn lookup(&self) -> xsk::Result<Device> {
        self.inside(|| Device::lookup(self.device))
    }

    /// Whether the device is without an XDP program, soon at least: a command that another test
    /// has just forked holds copies of our descriptors until it executes.
    pub fn has_no_program(&self, limit: Duration) -> bool {
        let none = || self.lookup().is_ok_and(|now| now.programs.is_empty());
        wait_until(limit, none)
    }
}

/// Returns to a namespace, also on a panic.
struct Back(OwnedFd);

impl Drop for Back {
    fn drop(&mut self) {
        enter(self.0.as_fd());
    }
}

fn enter(namespace: BorrowedFd<'_>) {
    move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))
        .expect("entering a network namespace");
}
