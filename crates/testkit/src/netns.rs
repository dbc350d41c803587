//! Network namespaces without a name. They live only as descriptors of this process, so nothing is left when a test
//! panics or the process is killed.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::process::{Child, Command};

use hostnet::netns;
use hostnet::rtnetlink::{Link, Rtnetlink, VethEnd};

use crate::error::Failure;
use crate::process::{STEP, not_started, output_of, quiet, text_of};

/// A namespace, and one device of it.
#[derive(Debug)]
pub struct Side {
    namespace: OwnedFd,
    /// The name of the device.
    pub device: &'static str,
}

impl Side {
    /// A new namespace with no device in it but `lo`, and no IPv6, which users have: a device that comes up would send
    /// solicitations and reports of its own, and a test that counts packets would count them.
    pub fn new(device: &'static str) -> hostnet::Result<Self> {
        let side = Self::as_made(device)?;
        netns::disable_ipv6(side.namespace())?;
        Ok(side)
    }

    /// A new namespace as the kernel makes it.
    pub fn as_made(device: &'static str) -> hostnet::Result<Self> {
        Ok(Self::of(netns::create()?, device))
    }

    /// A device of a namespace that is there.
    pub fn of(namespace: OwnedFd, device: &'static str) -> Self {
        Self { namespace, device }
    }

    /// Another device of the same namespace.
    pub fn beside(&self, device: &'static str) -> Result<Self, Failure> {
        Ok(Self::of(self.namespace.try_clone()?, device))
    }

    /// The namespace.
    pub fn namespace(&self) -> BorrowedFd<'_> {
        self.namespace.as_fd()
    }

    /// A path to the namespace, for commands that this process starts.
    pub fn path(&self) -> String {
        let (process, namespace) = (std::process::id(), self.namespace.as_raw_fd());
        format!("/proc/{process}/fd/{namespace}")
    }

    /// Runs `work` on this thread, in the namespace.
    ///
    /// # Panics
    ///
    /// If the namespace cannot be entered, or the one before cannot.
    pub fn inside<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = File::open("/proc/thread-self/ns/net").expect("/proc is mounted");
        let _back = Back(before.into());
        netns::enter(self.namespace()).expect("the namespace of a side");
        work()
    }

    /// The device as it is now.
    pub fn link(&self) -> hostnet::Result<Link> {
        self.inside(Rtnetlink::open)?.link(self.device)
    }

    /// The index of the device.
    pub fn index(&self) -> hostnet::Result<u32> {
        Ok(self.link()?.index)
    }

    /// Brings the device up or down.
    pub fn set_up(&self, up: bool) -> hostnet::Result<()> {
        let mut rtnetlink = self.inside(Rtnetlink::open)?;
        let index = rtnetlink.link(self.device)?.index;
        if up {
            rtnetlink.set_up(index)
        } else {
            rtnetlink.set_down(index)
        }
    }

    /// Sets a sysctl of the namespace, by its path in /proc/sys/net.
    pub fn sysctl(&self, path: &str, value: &str) -> Result<(), Failure> {
        let path = format!("/proc/sys/net/{path}");
        let written = self.inside(|| fs::write(&path, value));
        written.map_err(|error| Failure::new(format!("cannot write {value} to {path}: {error}")))
    }

    /// Starts a command in the namespace. The kernel kills it when the thread that started it ends.
    pub fn spawn(&self, command: &mut Command) -> hostnet::Result<Child> {
        netns::spawn(self.namespace(), command)
    }

    /// Runs a command in the namespace to its end, and returns its standard output; a failure is an error with all that it
    /// said. The arguments are divided by spaces.
    pub fn output(&self, program: &str, arguments: &str) -> Result<String, Failure> {
        let mut command = Command::new(program);
        let command = quiet(command.args(arguments.split_whitespace()));
        let child = self.spawn(command);
        let child = child.map_err(|error| not_started(command, &error))?;
        text_of(command, &output_of(child, command, STEP)?)
    }

    /// The same without its output.
    pub fn run(&self, program: &str, arguments: &str) -> Result<(), Failure> {
        self.output(program, arguments).map(drop)
    }

    /// Runs `ip` in the namespace.
    pub fn ip(&self, arguments: &str) -> Result<(), Failure> {
        self.run("ip", arguments)
    }
}

impl AsFd for Side {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.namespace()
    }
}

/// Returns to a namespace, also on a panic.
struct Back(OwnedFd);

impl Drop for Back {
    fn drop(&mut self) {
        netns::enter(self.0.as_fd()).expect("the namespace before");
    }
}

/// Joins two sides by a veth pair, both ends down. The addresses of the ends are `02:00:00:00:00:NN`, `NN` being
/// `number` and one more.
pub fn join(sides: [&Side; 2], number: u8, queues: u32, mtu: u32) -> hostnet::Result<()> {
    let [near, far] = [(sides[0], number), (sides[1], number + 1)].map(|(side, number)| VethEnd {
        name: side.device,
        mac: [2, 0, 0, 0, 0, number],
        netns: side.namespace(),
    });
    let mut rtnetlink = sides[0].inside(Rtnetlink::open)?;
    rtnetlink.add_veth([&near, &far], queues, mtu)
}
