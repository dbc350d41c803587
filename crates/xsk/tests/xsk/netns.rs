//! Two network namespaces joined by a veth pair. They have no names and live only as file
//! descriptors of this process, so nothing is left when a test panics or the process is killed.
//! In a guest of `./run guests` they are those that its script made of two network cards.

use crate::{Outcome, Result};
use hostnet::netns;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Deref;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;
use testkit::limit::longest;
use testkit::{join, skip, wait_until};
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
    kit: testkit::Side,
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

    /// MTU 1500, no IPv6 and so no packets but the test's.
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
        join([&self.rx, &self.tx], 0xa, queues, 1500)?;
        for side in [&self.rx, &self.tx] {
            side.set_up(true)?;
        }
        Ok(())
    }

    /// A veth pair with these addresses and no other setting: offloads, IPv6 and its solicitations are as the kernel makes
    /// them. For programs that take the best mode, in [`Mode::Skb`] the other end has an MTU with which the kernel refuses
    /// native XDP.
    pub fn as_made(queues: u32, mode: Mode) -> Result<Self> {
        let lab = Self {
            rx: Side::of(testkit::Side::as_made("rx0")?),
            tx: Side::of(testkit::Side::as_made("tx0")?),
        };
        lab.add_veths(queues)?;
        if mode == Mode::Skb {
            lab.tx.ip("link set dev tx0 mtu 3700")?;
        }
        lab.rx.add_addresses(RX, RX6)?;
        lab.tx.add_addresses(TX, TX6)?;
        for side in [&lab.rx, &lab.tx] {
            side.wait_for_addresses();
        }
        Ok(lab)
    }
}

/// The addresses of the ends, where they have any.
pub const RX: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
pub const TX: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
pub const RX6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
pub const TX6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

impl Deref for Side {
    type Target = testkit::Side;

    fn deref(&self) -> &testkit::Side {
        &self.kit
    }
}

impl Side {
    /// A new namespace, with no device in it but `lo`.
    pub fn new(device: &'static str) -> Result<Self> {
        Ok(Self::of(testkit::Side::new(device)?))
    }

    /// A card in a namespace that exists.
    fn of_card(namespace: &str, device: &'static str) -> Result<Self> {
        let namespace = netns::open(Path::new(namespace))?;
        Ok(Self::of(testkit::Side::of(namespace, device)))
    }

    /// Another device of the same namespace.
    pub fn beside(&self, device: &'static str) -> Result<Self> {
        Ok(Self::of(self.kit.beside(device)?))
    }

    fn of(kit: testkit::Side) -> Self {
        Self {
            kit,
            redirect: Mutex::default(),
            deferred: Mutex::default(),
        }
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
            builder = builder.busy_timeout(longest(LINK));
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

    /// Gives the device addresses in the networks of [`RX`] and [`RX6`].
    pub fn add_addresses(&self, v4: Ipv4Addr, v6: Ipv6Addr) -> Outcome {
        self.ip(&format!("addr add {v4}/24 dev {}", self.device))?;
        Ok(self.ip(&format!("addr add {v6}/64 dev {}", self.device))?)
    }

    /// An IPv6 address can be used when the kernel has asked whether another host has it, some seconds after it was added.
    pub fn wait_for_addresses(&self) {
        let usable = wait_until(LINK, || {
            let tentative = self.output("ip", "-6 addr show tentative");
            tentative.is_ok_and(|lines| lines.is_empty())
        });
        assert!(usable, "{} has tentative addresses", self.device);
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
        Err(skip(format!("the device has {now} queues, not {queues}")))
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
