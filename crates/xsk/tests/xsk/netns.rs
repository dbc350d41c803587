//! Two network namespaces joined by a veth pair. They have no names and live only as file
//! descriptors of this process, so nothing is left when a test panics or the process is killed.
//! In a guest of `./run guests` they are those that its script made of two network cards.
//!
//! Unsafe code is needed for unshare(2), which can end the sharing between a process's threads.
#![allow(unsafe_code)]

use crate::budget::{SET_UP, scaled, wait_until};
use crate::{Outcome, Result, Skipped};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use xsk::testing::programs::{self, Kind};
use xsk::{
    AttachMode, DeferredInterrupts, Device, Mode, Program, Socket, SocketBuilder, Umem,
    UmemBuilder, Wait,
};

/// The environment variable with the paths of the receiver's and the sender's namespace, in which
/// the cards are named as the ends of a veth pair are, and of that of a third card, `out0`, whose peer
/// is outside of the machine.
const CARDS: &str = "XSK_TEST_CARDS";

/// Longest time until a card has its link again, which some lose when a program is attached.
pub const LINK: Duration = Duration::from_secs(20);

/// The environment variable that makes sockets wait by busy polling.
const BUSY_POLL: &str = "XSK_TEST_BUSY_POLL";

/// How long interrupts are put off then.
const DEFERRAL: Duration = Duration::from_micros(200);

/// Whether the tests have two network cards instead of a veth pair.
pub fn are_cards() -> bool {
    std::env::var_os(CARDS).is_some()
}

/// A UMEM for the device of a test: igb takes packets of a whole MTU only into chunks of 4096 bytes.
pub fn umem_builder() -> UmemBuilder {
    Umem::builder().chunk_size(if are_cards() { 4096 } else { 2048 })
}

/// The card whose peer is outside, if the tests have cards.
pub fn third_card() -> Result<Option<Side>> {
    let Ok(paths) = std::env::var(CARDS) else {
        return Ok(None);
    };
    let path = paths.split(',').nth(2).ok_or("three namespaces")?;
    let side = Side::of_card(path, "out0")?;
    side.use_queues(1)?;
    Ok(Some(side))
}

/// One end of the veth pair, and its namespace.
pub struct Side {
    namespace: OwnedFd,
    /// Name of the device.
    pub device: &'static str,
    /// A program that only has to be there; see [`Side::hold_redirect`].
    redirect: Mutex<Option<Program>>,
    /// Where sockets poll busily.
    deferred: Mutex<Option<DeferredInterrupts>>,
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
        match std::env::var(CARDS) {
            Ok(paths) => Self::of_cards(&paths, queues),
            Err(_) => Self::of_veths(queues),
        }
    }

    /// The cards as they were before the tests. A card without enough queues is skipped.
    fn of_cards(paths: &str, queues: u32) -> Result<Self> {
        let mut paths = paths.split(',');
        let mut side = |device| Side::of_card(paths.next().ok_or("three namespaces")?, device);
        let lab = Self {
            rx: side("rx0")?,
            tx: side("tx0")?,
        };
        for side in [&lab.rx, &lab.tx] {
            side.use_queues(queues)?;
            side.ip(&format!("link set dev {} mtu 1500 up", side.device))?;
        }
        Ok(lab)
    }

    fn of_veths(queues: u32) -> Result<Self> {
        let lab = Self {
            rx: Side::new("rx0")?,
            tx: Side::new("tx0")?,
        };
        lab.add_veths(queues)?;
        Ok(lab)
    }

    /// Makes the pair, in namespaces without one.
    pub fn add_veths(&self, queues: u32) -> Outcome {
        let peer = self.tx.path();
        self.rx.ip(&format!(
            "link add rx0 address 02:00:00:00:00:0a numrxqueues {queues} numtxqueues {queues} type veth \
             peer name tx0 address 02:00:00:00:00:0b numrxqueues {queues} numtxqueues {queues} netns {peer}"
        ))?;
        for side in [&self.rx, &self.tx] {
            side.run("ethtool", &format!("-K {} tx off", side.device))?;
            side.ip(&format!("link set dev {} mtu 1500 up", side.device))?;
        }
        Ok(())
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
        Ok(Self::of(namespace, device))
    }

    /// A card in a namespace that exists.
    fn of_card(namespace: &str, device: &'static str) -> Result<Self> {
        Ok(Self::of(File::open(namespace)?.into(), device))
    }

    fn of(namespace: OwnedFd, device: &'static str) -> Self {
        Self {
            namespace,
            device,
            redirect: Mutex::default(),
            deferred: Mutex::default(),
        }
    }

    /// A path to the namespace, for commands that this process starts.
    pub fn path(&self) -> String {
        let (process, namespace) = (std::process::id(), self.namespace.as_raw_fd());
        format!("/proc/{process}/fd/{namespace}")
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
        self.output(program, arguments).map(drop)
    }

    /// The same, and returns its output.
    pub fn output(&self, program: &str, arguments: &str) -> Result<String> {
        let mut command = Command::new(program);
        command
            .args(arguments.split_whitespace())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
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
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let words = String::from_utf8_lossy(&output.stderr);
        Err(format!("`{program} {arguments}` failed: {}", words.trim()).into())
    }

    /// Opens a socket on queue 0, with further settings by `configure`.
    pub fn open(
        &self,
        umem: &Umem,
        mode: Mode,
        configure: impl FnOnce(SocketBuilder) -> SocketBuilder,
    ) -> xsk::Result<Socket> {
        self.open_queue(umem, mode, 0, configure)
    }

    /// The same on another queue.
    pub fn open_queue(
        &self,
        umem: &Umem,
        mode: Mode,
        queue: u32,
        configure: impl FnOnce(SocketBuilder) -> SocketBuilder,
    ) -> xsk::Result<Socket> {
        let mut builder = Socket::builder(umem, self.device, queue).mode(mode);
        if std::env::var_os(BUSY_POLL).is_some() {
            self.defer_interrupts()?;
            builder = builder.wait(Wait::BusyPoll);
        }
        if are_cards() {
            // A driver that resets its card lets go of a queue late.
            builder = builder.busy_timeout(scaled(LINK));
        }
        if are_cards() && mode == Mode::ZeroCopy && self.device == "tx0" {
            builder = builder.program(&self.hold_redirect()?);
        }
        let socket = self.inside(|| configure(builder).open())?;
        if are_cards() {
            self.wait_for_link();
        }
        Ok(socket)
    }

    /// Puts the interrupts of the device off until the side is dropped.
    pub fn defer_interrupts(&self) -> xsk::Result<()> {
        let mut deferred = self.deferred.lock().expect("no test panics here");
        if deferred.is_none() {
            let defer = || Device::lookup(self.device)?.defer_interrupts(2, DEFERRAL);
            *deferred = Some(self.inside(defer)?);
        }
        Ok(())
    }

    /// A program for a socket that may only send, which neither attaches nor keeps one: Intel's drivers
    /// send without a copy only while there is one. It stays until the next socket is opened.
    fn hold_redirect(&self) -> xsk::Result<Program> {
        let mut held = self.redirect.lock().expect("no test panics here");
        *held = None;
        let device = self.lookup()?;
        let kind = Kind::ByDestination;
        let program = self.inside(|| programs::attach(&device, AttachMode::Driver, kind, 4))?;
        *held = Some(program.clone());
        Ok(program)
    }

    /// A card that has no link drops all packets.
    pub fn wait_for_link(&self) {
        let flags = format!("-o link show dev {} up", self.device);
        let there = wait_until(LINK, || {
            let shown = self.output("ip", &flags);
            shown.is_ok_and(|line| line.contains("LOWER_UP"))
        });
        assert!(there, "{} has no link", self.device);
    }

    /// Changes the number of queues in use. Where it cannot be changed, one of several will do: packets
    /// that are not of IP arrive on the first.
    fn use_queues(&self, queues: u32) -> Outcome {
        let now = self.lookup()?.rx_queues;
        let change = format!("-L {} combined {queues}", self.device);
        if now == queues || self.run("ethtool", &change).is_ok() || queues == 1 {
            return Ok(());
        }
        Err(Skipped(format!("the device has {now} queues, not {queues}")).into())
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
