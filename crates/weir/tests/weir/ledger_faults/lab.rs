//! Namespaces joined by veths, in which nothing is sent but by the faults.
//!
//! ```text
//! left            right            far
//!   l0 ---------- r0  r1 ---------- f0        other: nothing happens there
//! ```

use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use hostnet::netns;
use hostnet::rtnetlink::{Rtnetlink, VethEnd};
use testkit::PacketSocket;
use weir::ledger::read::{Reader, Scope};

use crate::ledger_faults::frame::Odd;
use crate::ledger_faults::socket::set_receive_buffer;
use crate::until;

pub const LEFT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub const RIGHT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// Behind `right`, if it forwards.
pub const FAR: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
pub const LEFT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const RIGHT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const RIGHT1_MAC: [u8; 6] = [2, 0, 0, 0, 0, 3];
const FAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 4];
/// Room for every datagram that is meant to be received.
const ENOUGH: i32 = 16 << 20;

/// One of the namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    Left,
    Right,
    Far,
}

/// A namespace, which a process is in so that it is found.
pub struct Place {
    namespace: OwnedFd,
    pub inode: u64,
    holder: Child,
}

impl Place {
    fn new() -> Result<Self> {
        let namespace = netns::create()?;
        netns::disable_ipv6(namespace.as_fd())?;
        // It ends with this process, whose end of the pipe it reads.
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        Ok(Self {
            inode: netns::identity(namespace.as_fd())?,
            holder: netns::spawn(namespace.as_fd(), &mut command)?,
            namespace,
        })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.namespace.as_fd()
    }

    /// Runs something in it.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        netns::run_in(self.fd(), work)
    }

    /// Runs a command in it, and returns its output; the words are divided by spaces.
    pub fn command(&self, words: &str) -> Result<String> {
        let mut parts = words.split_whitespace();
        let mut command = Command::new(parts.next().context("a program")?);
        command.args(parts);
        let output = self.run(|| {
            let command = command.stdin(Stdio::null()).output();
            command.with_context(|| format!("cannot run {words}"))
        })?;
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{words}: {}", text.trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Sets a sysctl of the namespace, by its path in /proc/sys/net.
    pub fn sysctl(&self, path: &str, value: &str) -> Result<()> {
        self.run(|| {
            let path = format!("/proc/sys/net/{path}");
            fs::write(&path, value).with_context(|| format!("cannot write {value} to {path}"))
        })
    }

    /// The index of a device.
    pub fn index(&self, name: &str) -> Result<u32> {
        self.run(|| Ok(Rtnetlink::open()?.link(name)?.index))
    }

    /// A UDP socket that takes everything that is sent to it.
    pub fn udp(&self, address: Ipv4Addr, port: u16) -> Result<UdpSocket> {
        self.run(|| {
            let socket = UdpSocket::bind((address, port))?;
            socket.set_nonblocking(true)?;
            set_receive_buffer(&socket, ENOUGH)?;
            Ok(socket)
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// The namespaces.
pub struct Lab {
    pub left: Place,
    pub right: Place,
    pub far: Place,
    pub other: Place,
    sender: PacketSocket,
    /// Frames that a packet socket of `left` has sent, which IP knows nothing of.
    pub raw: u64,
    next_port: u16,
}

impl Lab {
    pub fn new() -> Result<Self> {
        let [left, right, far, other] =
            [Place::new()?, Place::new()?, Place::new()?, Place::new()?];
        join([("l0", LEFT_MAC, &left), ("r0", RIGHT_MAC, &right)])?;
        join([("r1", RIGHT1_MAC, &right), ("f0", FAR_MAC, &far)])?;
        address(&left, "l0", LEFT, 24)?;
        address(&right, "r0", RIGHT, 24)?;
        address(&right, "r1", Ipv4Addr::new(198, 51, 100, 1), 24)?;
        address(&far, "f0", FAR, 24)?;
        neighbour(&left, RIGHT, RIGHT_MAC, "l0")?;
        neighbour(&right, LEFT, LEFT_MAC, "r0")?;
        neighbour(&right, FAR, FAR_MAC, "r1")?;
        neighbour(&far, Ipv4Addr::new(198, 51, 100, 1), RIGHT1_MAC, "f0")?;
        other.command("ip link set lo up")?;
        let index = left.index("l0")?;
        let sender = left.run(|| Ok(PacketSocket::on(index).sending_only().open()?))?;
        let mut lab = Self {
            left,
            right,
            far,
            other,
            sender,
            raw: 0,
            next_port: 4000,
        };
        lab.await_carriers()?;
        Ok(lab)
    }

    /// The kernel starts the queues of a device a moment after its carrier came.
    fn await_carriers(&mut self) -> Result<()> {
        for (at, name) in [
            (At::Left, "l0"),
            (At::Right, "r0"),
            (At::Right, "r1"),
            (At::Far, "f0"),
        ] {
            until(&format!("{name} has a carrier"), || {
                self.place(at)
                    .run(|| Ok(Rtnetlink::open()?.link(name)?.running))
            })?;
        }
        Ok(())
    }

    pub fn place(&self, at: At) -> &Place {
        match at {
            At::Left => &self.left,
            At::Right => &self.right,
            At::Far => &self.far,
        }
    }

    /// A reader of the namespaces in which something happens.
    pub fn reader(&self) -> Reader {
        Reader::open(scope(&[&self.left, &self.right, &self.far]), false)
    }

    /// A reader of the namespace in which nothing does.
    pub fn other_reader(&self) -> Reader {
        Reader::open(scope(&[&self.other]), false)
    }

    /// A port that no other fault uses.
    pub fn port(&mut self) -> u16 {
        self.next_port += 1;
        self.next_port
    }

    /// Sends a frame from `left`, past its IP.
    pub fn send(&mut self, frame: &[u8]) -> Result<()> {
        self.sender.send(frame).context("cannot send a frame")?;
        self.raw += 1;
        Ok(())
    }

    /// Sends a frame so many times.
    pub fn send_all(&mut self, frame: &[u8], count: u64) -> Result<()> {
        (0..count).try_for_each(|_| self.send(frame))
    }
}

/// A datagram as `left` sends it to `right`.
pub fn plain() -> Odd {
    Odd {
        source: LEFT,
        destination: RIGHT,
        ttl: 64,
        id: 1,
        fragment: 0,
        ip_error: 0,
        udp_error: 0,
        payload: 32,
    }
}

/// The addresses of a frame from `left` to `right`.
pub const MACS: [[u8; 6]; 2] = [RIGHT_MAC, LEFT_MAC];

fn scope(places: &[&Place]) -> Scope {
    let names = places.iter().map(|place| format!("net:[{}]", place.inode));
    Scope {
        namespaces: names.collect(),
        ..Scope::default()
    }
}

fn join(ends: [(&str, [u8; 6], &Place); 2]) -> Result<()> {
    let ends = ends.map(|(name, mac, place)| VethEnd {
        name,
        mac,
        netns: place.fd(),
    });
    Rtnetlink::open()?.add_veth([&ends[0], &ends[1]], 1, 1500)?;
    Ok(())
}

fn address(place: &Place, name: &str, address: Ipv4Addr, prefix: u8) -> Result<()> {
    place.run(|| {
        let mut rtnetlink = Rtnetlink::open()?;
        let index = rtnetlink.link(name)?.index;
        rtnetlink.add_address(index, address, prefix)?;
        rtnetlink.set_up(index)?;
        Ok(())
    })
}

fn neighbour(place: &Place, address: Ipv4Addr, mac: [u8; 6], device: &str) -> Result<()> {
    let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
    place
        .command(&format!(
            "ip neigh replace {address} lladdr {mac} dev {device} nud permanent"
        ))
        .map(drop)
}
