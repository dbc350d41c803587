//! A bridge in a network namespace of its own, with a veth pair for each port, and a daemon of its own.

use std::fs::{self, File};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Output};
use std::rc::Rc;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hostnet::mount::DetachedMount;
use hostnet::rtnetlink::{BridgeOptions, Rtnetlink, VethEnd};
use hostnet::{ethtool, netns};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::{Batch, Limit, PacketSocket, Temporary};

use crate::{SOON, output, packets_of, until, weir};

/// The time between two looks at a condition.
const PAUSE: Duration = Duration::from_millis(5);
/// A type of frames for experiments (RFC 5342).
const TYPE: [u8; 2] = [0x88, 0xb5];
pub const BROADCAST: [u8; 6] = [0xff; 6];

/// The address behind a port.
pub fn mac(port: usize) -> [u8; 6] {
    [2, 0, 0, 0, 1, port as u8]
}

/// The bridge `br0` with the ports `port0`, `port1`…, whose other ends are `end0`, `end1`… The BPF
/// filesystem is mounted nowhere, and goes with this.
pub struct Rig {
    pub directory: Temporary,
    name: &'static str,
    bpf: Rc<DetachedMount>,
    pub namespace: OwnedFd,
    pub rtnetlink: Rtnetlink,
    ends: Vec<PacketSocket>,
    pub daemon: Option<Child>,
    sent: u32,
}

impl Rig {
    /// A bridge with so many ports, and no daemon yet.
    pub fn new(name: &'static str, ports: usize) -> Result<Self> {
        let namespace = netns::create()?;
        netns::disable_ipv6(namespace.as_fd())?;
        let rtnetlink = netns::run_in(namespace.as_fd(), Rtnetlink::open)?;
        let mut rig = Self {
            directory: Temporary::new(&format!("switch-{name}"))?,
            name,
            bpf: Rc::new(DetachedMount::new("bpf")?),
            namespace,
            rtnetlink,
            ends: Vec::new(),
            daemon: None,
            sent: 0,
        };
        rig.add_bridge()?;
        for _ in 0..ports {
            rig.add_veth()?;
        }
        rig.add_ports()?;
        Ok(rig)
    }

    /// Uses the BPF filesystem of another rig.
    pub fn share(&mut self, other: &Self) {
        self.bpf = Rc::clone(&other.bpf);
    }

    pub fn add_bridge(&mut self) -> Result<()> {
        self.rtnetlink
            .add_bridge_with("br0", &BridgeOptions::default())?;
        let bridge = self.index("br0")?;
        Ok(self.rtnetlink.set_up(bridge)?)
    }

    /// Makes a veth pair, one end of which is to be a port.
    fn add_veth(&mut self) -> Result<()> {
        let number = self.ends.len();
        let (port, end) = (format!("port{number}"), format!("end{number}"));
        let side = |name, last| VethEnd {
            name,
            mac: [2, 0, 0, 0, last, number as u8],
            netns: self.namespace.as_fd(),
        };
        let ends = [&side(port.as_str(), 2), &side(end.as_str(), 3)];
        self.rtnetlink.add_veth(ends, 1, 1500)?;
        // With it the peer takes frames that XDP redirects to the port.
        self.inside(|| Ok(ethtool::set_feature(&end, "rx-gro", true)?))?;
        for name in [&port, &end] {
            let index = self.index(name)?;
            self.rtnetlink.set_up(index)?;
        }
        let index = self.index(&end)?;
        let socket = packets_of(self.namespace.as_fd(), index)?;
        self.ends.push(socket);
        Ok(())
    }

    /// Adds all ports to the bridge.
    pub fn add_ports(&mut self) -> Result<()> {
        let bridge = self.index("br0")?;
        for number in 0..self.ends.len() {
            let port = self.index(&format!("port{number}"))?;
            self.rtnetlink.add_port(bridge, port)?;
        }
        Ok(())
    }

    /// Makes one more port.
    pub fn add_port(&mut self) -> Result<()> {
        self.add_veth()?;
        self.add_ports()
    }

    pub fn index(&mut self, name: &str) -> Result<u32> {
        Ok(self.rtnetlink.link(name)?.index)
    }

    /// Does something in the namespace.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        netns::run_in(self.namespace.as_fd(), work)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The BPF filesystem, as other processes find it.
    pub fn bpffs(&self) -> PathBuf {
        let here = self.bpf.path("").display().to_string();
        here.replace("self", &std::process::id().to_string()).into()
    }

    /// The directory of the daemon's notes.
    pub fn state(&self) -> PathBuf {
        self.path(self.name)
    }

    /// The directory of the daemon's pins.
    pub fn pins_of_bridges(&self) -> Result<PathBuf> {
        let namespace = netns::identity(self.namespace.as_fd())?.to_string();
        Ok(self.bpffs().join("weir/switch").join(namespace))
    }

    /// The pins of the bridge's programs.
    pub fn pins(&self) -> Result<Vec<PathBuf>> {
        let pins = fs::read_dir(self.pins_of_bridges()?.join("br0"));
        let pins = pins.into_iter().flatten().flatten();
        Ok(pins.map(|pin| pin.path()).collect())
    }

    /// `weir switch` and these words, which ask this rig's daemon.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = weir();
        command.arg("switch").args(words);
        if words.first() != Some(&"check") {
            command.arg("--socket").arg(self.path("sock"));
        }
        if words.first() == Some(&"run") || words.contains(&"--all") {
            command.arg("--state").arg(self.state());
            command.arg("--bpffs").arg(self.bpffs());
        }
        command
    }

    /// Runs it in the namespace.
    pub fn run(&self, words: &[&str]) -> Result<Output> {
        let mut command = self.command(words);
        self.inside(|| output(&mut command))
    }

    /// Its standard output; it succeeds.
    pub fn ask(&self, words: &[&str]) -> Result<String> {
        let output = self.run(words)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{words:?} failed: {stderr}");
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Its standard error; it exits with 1.
    pub fn refused(&self, words: &[&str]) -> Result<String> {
        let output = self.run(words)?;
        let stderr = String::from_utf8(output.stderr)?;
        let code = output.status.code();
        ensure!(code == Some(1), "{words:?} ended with {code:?}: {stderr}");
        Ok(stderr)
    }

    /// Starts the daemon, with these flags, and waits until it answers.
    pub fn start(&mut self, flags: &[&str]) -> Result<()> {
        let mut command = self.command(&[&["run"], flags].concat());
        let log = self.path("log");
        command.stderr(File::options().create(true).append(true).open(log)?);
        self.daemon = Some(netns::spawn(self.namespace.as_fd(), &mut command)?);
        let begun = until("the daemon answers", || {
            Ok(self.run(&["status"])?.status.success())
        });
        begun.with_context(|| fs::read_to_string(self.path("log")).unwrap_or_default())
    }

    /// A rig with a daemon that has attached the bridge, whose addresses are known.
    pub fn attached(name: &'static str, ports: usize, flags: &[&str]) -> Result<Self> {
        let mut rig = Self::new(name, ports)?;
        rig.start(&[])?;
        rig.ask(&[&["attach", "br0"], flags].concat())?;
        rig.learn()?;
        Ok(rig)
    }

    /// Ends the daemon.
    pub fn end(&mut self, signal: Signal) -> Result<()> {
        let mut daemon = self.daemon.take().context("no daemon")?;
        kill_process(Pid::from_child(&daemon), signal)?;
        let status = daemon.wait()?;
        ensure!(signal == Signal::KILL || status.success(), "{status}");
        Ok(())
    }

    /// The report about the bridge.
    pub fn bridge(&self) -> Result<Value> {
        let text = self.ask(&["status", "br0", "--format", "json"])?;
        let status: Value = serde_json::from_str(&text)?;
        Ok(status["bridges"][0].clone())
    }

    /// The report about a port; null where there is none.
    pub fn port(&self, name: &str) -> Result<Value> {
        let bridge = self.bridge()?;
        let ports = bridge["ports"].as_array().context("no ports")?;
        let port = ports.iter().find(|port| port["port"] == name);
        Ok(port.cloned().unwrap_or_default())
    }

    /// The hook of a port.
    pub fn hook(&self, name: &str) -> Result<String> {
        let port = self.port(name)?;
        Ok(port["hook"].as_str().unwrap_or("none").to_owned())
    }

    /// Frames from a port that the fast path has forwarded.
    pub fn forwarded(&self, port: usize) -> Result<u64> {
        let port = self.port(&format!("port{port}"))?;
        Ok(port["received"]["packets"].as_u64().unwrap_or(0))
    }

    /// Frames from a port that it has not, for this reason.
    pub fn not_forwarded(&self, port: usize, reason: &str) -> Result<u64> {
        let port = self.port(&format!("port{port}"))?;
        Ok(port["reasons"][reason].as_u64().unwrap_or(0))
    }

    /// Sends a frame from the end of a port; returns its number.
    pub fn send(&mut self, port: usize, to: [u8; 6], from: [u8; 6]) -> Result<u32> {
        self.sent += 1;
        self.ends[port].send(&frame(to, from, self.sent))?;
        Ok(self.sent)
    }

    /// Puts a bridge before the end of a port, and returns a socket at its other side: what is sent there reaches the
    /// end with its outer tag beside the frame.
    pub fn relay(&mut self, end: &str) -> Result<PacketSocket> {
        let side = |name, last| VethEnd {
            name,
            mac: [2, 0, 0, 0, 4, last],
            netns: self.namespace.as_fd(),
        };
        let ends = [&side("relay0", 0), &side("relay1", 1)];
        self.rtnetlink.add_veth(ends, 1, 1500)?;
        self.rtnetlink
            .add_bridge_with("relay", &BridgeOptions::default())?;
        let bridge = self.index("relay")?;
        for port in ["relay1", end] {
            let port = self.index(port)?;
            self.rtnetlink.add_port(bridge, port)?;
        }
        for name in ["relay0", "relay1", "relay"] {
            let index = self.index(name)?;
            self.rtnetlink.set_up(index)?;
        }
        let index = self.index("relay0")?;
        packets_of(self.namespace.as_fd(), index)
    }

    /// Sends a frame with these tags, and returns those with which it leaves by port 1.
    pub fn tagged(&mut self, sender: &PacketSocket, tags: &[u8]) -> Result<Vec<u8>> {
        let index = self.index("end1")?;
        let receiver = self.inside(|| Ok(PacketSocket::on(index).with_tags().open()?))?;
        self.sent += 1;
        let frame = frame(mac(1), mac(0), self.sent);
        let (addresses, rest) = frame.split_at(12);
        sender.send(&[addresses, tags, rest].concat())?;
        let mut arrived = None;
        until("the frame arrives", || {
            Batch::new().drain(&receiver, |frame| {
                let tags = frame.get(12..).and_then(|after| after.strip_suffix(rest));
                arrived = arrived.take().or(tags.map(<[u8]>::to_vec));
            })?;
            Ok(arrived.is_some())
        })?;
        arrived.context("no frame")
    }

    /// Waits for a frame, and returns the port that it left by.
    pub fn arrival(&mut self, number: u32) -> Result<usize> {
        let mut limit = Limit::new(SOON);
        loop {
            for port in 0..self.ends.len() {
                while let Some(found) = next(&self.ends[port], PAUSE)? {
                    if found == number {
                        return Ok(port);
                    }
                }
            }
            ensure!(!limit.is_over(), "frame {number} arrives nowhere");
        }
    }

    /// The numbers of the frames that have left by a port, until none comes any more.
    pub fn arrived(&mut self, port: usize) -> Result<Vec<u32>> {
        let mut all = Vec::new();
        while let Some(number) = next(&self.ends[port], Duration::from_millis(200))? {
            all.push(number);
        }
        Ok(all)
    }

    /// Has each port's address learned by the kernel and the daemon.
    pub fn learn(&mut self) -> Result<()> {
        let ports = self.ends.len();
        for port in 0..ports {
            let number = self.send(port, BROADCAST, mac(port))?;
            self.arrival(number)?;
        }
        until("all addresses are in the mirror", || {
            Ok(self.bridge()?["addresses"].as_u64() >= Some(ports as u64))
        })
    }

    /// Sends frames from port to port until the fast path has forwarded one.
    pub fn until_fast(&mut self, from: usize, to: usize) -> Result<()> {
        let before = self.forwarded(from)?;
        until("the fast path forwards", || {
            let number = self.send(from, mac(to), mac(from))?;
            let port = self.arrival(number)?;
            ensure!(port == to, "frame {number} went to port{port}, not {to}");
            Ok(self.forwarded(from)? > before)
        })
    }

    /// Sends frames from port to port, none of which may be lost, while something is done. Returns their
    /// number.
    pub fn under_load<T>(
        &mut self,
        from: usize,
        to: usize,
        work: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        use std::sync::atomic::{AtomicBool, Ordering};
        let index = self.index(&format!("end{from}"))?;
        let socket = packets_of(self.namespace.as_fd(), index)?;
        self.arrived(to)?;
        let is_over = AtomicBool::new(false);
        let first = self.sent + 1;
        let (sent, done) = std::thread::scope(|scope| {
            let sender = scope.spawn(|| -> Result<u32> {
                let mut number = first;
                while !is_over.load(Ordering::Relaxed) {
                    socket.send(&frame(mac(to), mac(from), number))?;
                    number += 1;
                    sleep(Duration::from_millis(1));
                }
                Ok(number)
            });
            let done = work(self);
            is_over.store(true, Ordering::Relaxed);
            (sender.join(), done)
        });
        let end = sent.map_err(|_| anyhow::anyhow!("the sender panicked"))??;
        let done = done?;
        self.sent = end;
        let mut arrived = self.arrived(to)?;
        arrived.retain(|number| (first..end).contains(number));
        let lost = (first..end).filter(|number| !arrived.contains(number));
        let lost: Vec<u32> = lost.take(20).collect();
        ensure!(lost.is_empty(), "lost of {first}..{end}: {lost:?}");
        let twice = arrived.len() - (end - first) as usize;
        ensure!(twice == 0, "{twice} frames arrived twice");
        Ok(done)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

fn frame(to: [u8; 6], from: [u8; 6], number: u32) -> Vec<u8> {
    let mut frame = [&to[..], &from, &TYPE, &number.to_be_bytes()].concat();
    frame.resize(60, 0);
    frame
}

/// The number of the next frame that is one of these tests.
fn next(socket: &PacketSocket, wait: Duration) -> Result<Option<u32>> {
    let mut buffer = [0; 2048];
    while let Some(frame) = socket.receive(&mut buffer, wait)? {
        if frame.get(12..14) == Some(&TYPE)
            && let Some(number) = frame.get(14..18)
        {
            return Ok(Some(u32::from_be_bytes(number.try_into()?)));
        }
    }
    Ok(None)
}
