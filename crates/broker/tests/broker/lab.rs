//! Two network namespaces joined by a veth pair, a broker in the first, and tenants.

use crate::supervised::Result;
use hostnet::netns;
use hostnet::rtnetlink::{Rtnetlink, VethEnd};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Longest time for a step; `WEIR_TEST_SCALE` multiplies it.
const STEP: Duration = Duration::from_secs(10);

/// The user of the tenants.
pub const NOBODY: u32 = 65534;

/// A step's time on this machine.
pub fn scaled(time: Duration) -> Duration {
    let scale = std::env::var("WEIR_TEST_SCALE").ok();
    time * scale.and_then(|scale| scale.parse().ok()).unwrap_or(1)
}

/// Waits until something is so.
pub fn wait_until(mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + scaled(STEP);
    while Instant::now() < deadline {
        if is_so() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    is_so()
}

/// The program under test, where it is not where it was built.
const PROGRAM: &str = "WEIR_BROKER_TEST_PROGRAM";

/// A veth pair: `wan0` is the broker's, `peer0` the test's. The directory has the broker's files.
pub struct Lab {
    pub namespace: OwnedFd,
    pub peer: OwnedFd,
    pub directory: PathBuf,
}

impl Lab {
    pub fn new(queues: u32) -> Result<Self> {
        let (namespace, peer) = (netns::create()?, netns::create()?);
        for namespace in [&namespace, &peer] {
            netns::disable_ipv6(namespace.as_fd())?;
        }
        let ends = [
            &VethEnd {
                name: "wan0",
                mac: [2, 0, 0, 0, 0, 0xa],
                netns: namespace.as_fd(),
            },
            &VethEnd {
                name: "peer0",
                mac: [2, 0, 0, 0, 0, 0xb],
                netns: peer.as_fd(),
            },
        ];
        Rtnetlink::open()?.add_veth(ends, queues, 1500)?;
        for (namespace, name) in [(&namespace, "wan0"), (&peer, "peer0")] {
            netns::run_in(namespace.as_fd(), || {
                let mut rtnetlink = Rtnetlink::open()?;
                let index = rtnetlink.link(name)?.index;
                rtnetlink.set_up(index)
            })?;
        }
        Self::of(namespace, peer)
    }

    /// Two namespaces whose devices are there already.
    pub fn of(namespace: OwnedFd, peer: OwnedFd) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("weir-broker-{}-{number}", std::process::id()));
        fs::create_dir_all(directory.join("bpffs"))?;
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755))?;
        Ok(Self {
            namespace,
            peer,
            directory,
        })
    }

    /// A file of the broker's.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Runs work in the peer's namespace.
    pub fn at_peer<T>(&self, work: impl FnOnce() -> T + Send) -> T
    where
        T: Send,
    {
        in_namespace(&self.peer, work)
    }

    /// Runs work in the broker's namespace.
    pub fn at_broker<T>(&self, work: impl FnOnce() -> T + Send) -> T
    where
        T: Send,
    {
        in_namespace(&self.namespace, work)
    }

    /// XDP programs on the broker's device.
    pub fn programs(&self) -> Vec<String> {
        let device = self.at_broker(|| xsk::Device::lookup("wan0"));
        let programs = device.map(|device| device.programs).unwrap_or_default();
        programs.iter().map(ToString::to_string).collect()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // A broker that was killed leaves it mounted for its successor.
        let _ = rustix::mount::unmount(self.path("bpffs"), rustix::mount::UnmountFlags::DETACH);
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn in_namespace<T: Send>(namespace: &OwnedFd, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let inside = move || {
            netns::enter(namespace.as_fd()).expect("a namespace");
            work()
        };
        scope.spawn(inside).join().expect("no panic")
    })
}

/// A process of a test, which ends with it.
pub struct Process {
    pub child: Child,
    lines: BufReader<ChildStdout>,
    stdin: Option<ChildStdin>,
}

impl Process {
    pub fn start(command: &mut Command) -> Result<Self> {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Self::of(command.spawn()?)
    }

    /// Starts it in a network namespace.
    pub fn start_in(namespace: &OwnedFd, command: &mut Command) -> Result<Self> {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Self::of(netns::spawn(namespace.as_fd(), command)?)
    }

    fn of(mut child: Child) -> Result<Self> {
        let lines = BufReader::new(child.stdout.take().ok_or("its output")?);
        let stdin = child.stdin.take();
        Ok(Self {
            child,
            lines,
            stdin,
        })
    }

    /// The next line that it prints; an error at its end.
    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.lines.read_line(&mut line)? == 0 {
            return Err("the process ended without a word".into());
        }
        Ok(line.trim_end().to_owned())
    }

    /// Tells it something.
    pub fn say(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().ok_or("it was told to end")?;
        Ok(writeln!(stdin, "{line}")?)
    }

    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    pub fn signal(&self, signal: rustix::process::Signal) -> Result<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        Ok(rustix::process::kill_process(pid, signal)?)
    }

    /// Closes its input.
    pub fn close(&mut self) {
        self.stdin = None;
    }

    /// Closes its input and waits for its end.
    pub fn end(&mut self) -> Result<ExitStatus> {
        self.close();
        self.wait()
    }

    pub fn wait(&mut self) -> Result<ExitStatus> {
        let child = &mut self.child;
        if wait_until(|| child.try_wait().is_ok_and(|status| status.is_some())) {
            return Ok(child.wait()?);
        }
        Err("it does not end".into())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A broker in a lab; its log is a file.
pub struct Broker<'l> {
    pub lab: &'l Lab,
    pub process: Process,
}

impl<'l> Broker<'l> {
    /// Starts a broker with a policy and waits until it answers.
    pub fn start(lab: &'l Lab, policy: &str) -> Result<Self> {
        fs::write(lab.path("policy.toml"), policy)?;
        Self::again(lab)
    }

    /// Starts one with the policy that is there.
    pub fn again(lab: &'l Lab) -> Result<Self> {
        Self::by(lab, &mut Self::command(lab))
    }

    /// Starts one by this command.
    pub fn by(lab: &'l Lab, command: &mut Command) -> Result<Self> {
        Self::with_input(lab, command, Stdio::piped())
    }

    pub fn with_input(
        lab: &'l Lab,
        command: &mut Command,
        input: impl Into<Stdio>,
    ) -> Result<Self> {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(lab.path("log"))?;
        command.stderr(log);
        let command = command.stdin(input).stdout(Stdio::piped());
        let process = Process::of(netns::spawn(lab.namespace.as_fd(), command)?)?;
        let broker = Self { lab, process };
        let is_ready = || std::os::unix::net::UnixStream::connect(lab.path("metrics.sock")).is_ok();
        if !wait_until(is_ready) {
            return Err(format!("the broker does not answer: {}", broker.log()).into());
        }
        Ok(broker)
    }

    /// The command line; the BPF filesystem is mounted in the lab's directory.
    pub fn command(lab: &Lab) -> Command {
        let built = || env!("CARGO_BIN_EXE_weir-broker").into();
        let mut command = Command::new(std::env::var_os(PROGRAM).unwrap_or_else(built));
        for (flag, file) in [
            ("--policy", "policy.toml"),
            ("--socket", "broker.sock"),
            ("--oci-socket", "oci.sock"),
            ("--metrics", "metrics.sock"),
            ("--plugin-dir", "plugin"),
            ("--state", "state"),
            ("--bpffs", "bpffs"),
        ] {
            command.arg(flag).arg(lab.path(file));
        }
        command.arg("--everyone");
        // A call that the broker's filter lacks ends it, and the test.
        command.env("WEIR_BROKER_KILLS", "1");
        command
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.lab.path("log")).unwrap_or_default()
    }

    /// Whether it logs this soon: a thread of its own writes the log.
    pub fn logs(&self, text: &str) -> bool {
        wait_until(|| self.log().contains(text))
    }

    /// Its state.
    pub fn status(&self) -> Result<serde_json::Value> {
        let status = broker::client::status(&self.lab.path("broker.sock"))?;
        Ok(status)
    }

    /// Number of leases.
    pub fn leases(&self) -> usize {
        let status = self.status().ok();
        let leases = status
            .as_ref()
            .and_then(|status| status["leases"].as_array());
        leases.map_or(usize::MAX, Vec::len)
    }

    /// Ends it as a service manager does.
    pub fn stop(mut self) -> Result<()> {
        self.process.signal(rustix::process::Signal::TERM)?;
        let status = self.process.wait()?;
        if !status.success() {
            return Err(format!("{status}: {}", self.log()).into());
        }
        Ok(())
    }
}

/// A tenant: this program in another role, as nobody and without capabilities.
pub fn tenant(lab: &Lab, role: &str, arguments: &[&str]) -> Result<Process> {
    tenant_of(lab, NOBODY, role, arguments)
}

/// The same as another user.
pub fn tenant_of(lab: &Lab, user: u32, role: &str, arguments: &[&str]) -> Result<Process> {
    Process::start(&mut tenant_command(lab, user, role, arguments))
}

/// The same as nobody in the broker's network namespace.
pub fn neighbour(lab: &Lab, role: &str, arguments: &[&str]) -> Result<Process> {
    let mut command = tenant_command(lab, NOBODY, role, arguments);
    // A child is in the namespace of the thread that starts it.
    let started = lab.at_broker(|| Process::start(&mut command).map_err(|error| error.to_string()));
    Ok(started?)
}

fn tenant_command(lab: &Lab, user: u32, role: &str, arguments: &[&str]) -> Command {
    // Wherever the project lies: this link needs no path that nobody can search.
    let mut command = Command::new("/proc/self/exe");
    command
        .uid(user)
        .gid(user)
        .env("WEIR_BROKER", lab.path("broker.sock"))
        .env("WEIR_BROKER_OCI", lab.path("oci.sock"))
        .env(crate::roles::ROLE, role)
        .args(arguments);
    command
}

/// Whether a file exists.
pub fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
