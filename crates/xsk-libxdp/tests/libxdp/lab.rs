//! Two network namespaces joined by a veth pair: `wan0` is the program's, `peer0` the test's.

use crate::{Result, Skip};
use hostnet::netns;
use hostnet::rtnetlink::{Rtnetlink, VethEnd};
use rustix::thread::CapabilitySet;
use std::error::Error;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use xsk::{Device, Feature};

/// Longest time for a step; `WEIR_TEST_SCALE` multiplies it.
const STEP: Duration = Duration::from_secs(20);

/// A step's time on this machine.
fn scaled(time: Duration) -> Duration {
    let scale = std::env::var("WEIR_TEST_SCALE").ok();
    time * scale.and_then(|scale| scale.parse().ok()).unwrap_or(1)
}

/// The end of a step that begins now.
pub(crate) fn deadline() -> Instant {
    Instant::now() + scaled(STEP)
}

/// Waits until something is so.
pub(crate) fn wait_until(mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = deadline();
    while Instant::now() < deadline {
        if is_so() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    is_so()
}

/// The reason that the tests cannot run here.
pub(crate) fn missing() -> Option<Box<dyn Error + Send + Sync>> {
    let needed = CapabilitySet::NET_RAW
        | CapabilitySet::NET_ADMIN
        | CapabilitySet::BPF
        | CapabilitySet::SYS_ADMIN;
    let have = rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |c| c.effective);
    if !have.contains(needed) {
        return Some(Skip("needs root".into()).into());
    }
    let features = [Feature::Sockets, Feature::XdpLink];
    let missing = features.iter().find_map(|feature| feature.probe().err())?;
    Some(Skip(missing.to_string()).into())
}

/// Runs a command to its end; its standard output, or an error with all that it said.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| {
        Skip(format!(
            "needs {}: {error}",
            command.get_program().display()
        ))
    })?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}: {words}{text}", output.status).into())
}

/// A directory that goes with this value.
pub(crate) struct Temporary(pub(crate) PathBuf);

impl Temporary {
    pub(crate) fn new() -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-libxdp-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory)?;
        Ok(Self(directory))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) struct Lab {
    namespace: OwnedFd,
    peer: OwnedFd,
}

impl Lab {
    /// A pair with so many queues, and beside it `down0`, which is down.
    pub(crate) fn new(queues: u32) -> Result<Self> {
        Self::with_mtu(queues, 1500)
    }

    /// The same, of this MTU.
    pub(crate) fn with_mtu(queues: u32, mtu: u32) -> Result<Self> {
        let (namespace, peer) = (netns::create()?, netns::create()?);
        for namespace in [&namespace, &peer] {
            netns::disable_ipv6(namespace.as_fd())?;
        }
        for (names, number) in [(["wan0", "peer0"], 0xa), (["down0", "down1"], 0xd)] {
            let [near, far] = names;
            let ends = [
                &VethEnd {
                    name: near,
                    mac: [2, 0, 0, 0, 0, number],
                    netns: namespace.as_fd(),
                },
                &VethEnd {
                    name: far,
                    mac: [2, 0, 0, 0, 0, number + 1],
                    netns: peer.as_fd(),
                },
            ];
            Rtnetlink::open()?.add_veth(ends, queues, mtu)?;
        }
        let lab = Self { namespace, peer };
        for (namespace, name) in [
            (&lab.namespace, "lo"),
            (&lab.namespace, "wan0"),
            (&lab.peer, "peer0"),
        ] {
            netns::run_in(namespace.as_fd(), || {
                let mut rtnetlink = Rtnetlink::open()?;
                let index = rtnetlink.link(name)?.index;
                rtnetlink.set_up(index)
            })?;
        }
        Ok(lab)
    }

    /// Runs work in the program's namespace, on a thread of its own.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        netns::run_in(self.namespace.as_fd(), || work().map_err(Told::from))
            .map_err(|Told(error)| error)
    }

    /// Runs work in the peer's namespace, on a thread of its own.
    pub(crate) fn at_peer<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        netns::run_in(self.peer.as_fd(), || work().map_err(Told::from)).map_err(|Told(error)| error)
    }

    /// Starts a program in its namespace.
    pub(crate) fn start(&self, command: &mut Command) -> Result<Process> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = netns::spawn(self.namespace.as_fd(), command)?;
        let lines = BufReader::new(child.stdout.take().ok_or("its output")?);
        Ok(Process { child, lines })
    }

    /// The names of the XDP programs on `wan0`.
    pub(crate) fn programs(&self) -> Result<Vec<String>> {
        self.inside(|| {
            let programs = Device::lookup("wan0")?.programs;
            Ok(programs.into_iter().filter_map(|it| it.name).collect())
        })
    }

    /// Waits until `wan0` has no program: the kernel detaches a killed process's with a delay.
    pub(crate) fn expect_no_program(&self) -> Result {
        if wait_until(|| self.programs().is_ok_and(|programs| programs.is_empty())) {
            return Ok(());
        }
        Err(format!("left behind: {:?}", self.programs()?).into())
    }
}

/// An error on its way out of a namespace.
struct Told(Box<dyn Error + Send + Sync>);

impl From<Box<dyn Error + Send + Sync>> for Told {
    fn from(error: Box<dyn Error + Send + Sync>) -> Self {
        Self(error)
    }
}

impl From<hostnet::Error> for Told {
    fn from(error: hostnet::Error) -> Self {
        Self(error.into())
    }
}

/// A program of a test, which ends with it.
pub(crate) struct Process {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Process {
    /// The next line that it prints; an error at its end.
    pub(crate) fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.lines.read_line(&mut line)? == 0 {
            return Err("the program ended without a word".into());
        }
        Ok(line.trim_end().to_owned())
    }

    /// Waits for the line; an error with the one that came.
    pub(crate) fn expect(&mut self, expected: &str) -> Result {
        let line = self.line()?;
        if line == expected {
            return Ok(());
        }
        Err(format!("{line:?} instead of {expected:?}").into())
    }

    /// Waits for its end, in success.
    pub(crate) fn end(&mut self) -> Result {
        let child = &mut self.child;
        if !wait_until(|| matches!(child.try_wait(), Ok(Some(_)))) {
            return Err("it does not end".into());
        }
        let status = child.wait()?;
        if status.success() {
            return Ok(());
        }
        Err(format!("{status}").into())
    }

    pub(crate) fn kill(&mut self) -> Result {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
