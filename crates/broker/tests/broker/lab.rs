//! Two network namespaces joined by a veth pair, a broker in the first, and tenants.

use crate::supervised::Result;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use testkit::{Process, Side, join};

/// Longest time for a step.
pub const STEP: Duration = Duration::from_secs(10);

/// Longest time of a test.
pub const TEST: Duration = Duration::from_secs(300);

/// The user of the tenants.
pub const NOBODY: u32 = 65534;

/// Waits until something is so.
pub fn wait_until(is_so: impl FnMut() -> bool) -> bool {
    testkit::wait_until(STEP, is_so)
}

/// The program under test, where it is not where it was built.
const PROGRAM: &str = "WEIR_BROKER_TEST_PROGRAM";

/// A veth pair: `wan0` is the broker's, `peer0` the test's. The directory has the broker's files.
pub struct Lab {
    pub namespace: Side,
    pub peer: Side,
    pub directory: PathBuf,
}

impl Lab {
    pub fn new(queues: u32) -> Result<Self> {
        let (namespace, peer) = (Side::new("wan0")?, Side::new("peer0")?);
        join([&namespace, &peer], 0xa, queues, 1500)?;
        for side in [&namespace, &peer] {
            side.set_up(true)?;
        }
        Self::of(namespace, peer)
    }

    /// Two namespaces whose devices are there already.
    pub fn of(namespace: Side, peer: Side) -> Result<Self> {
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
    pub fn at_peer<T>(&self, work: impl FnOnce() -> T) -> T {
        self.peer.inside(work)
    }

    /// Runs work in the broker's namespace.
    pub fn at_broker<T>(&self, work: impl FnOnce() -> T) -> T {
        self.namespace.inside(work)
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

/// Starts a process in a network namespace, which ends with its test.
pub fn start_in(side: &Side, command: &mut Command) -> Result<Process> {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    Ok(Process::of(side.spawn(command)?)?)
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
        let process = Process::of(lab.namespace.spawn(command)?)?;
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
            ("--admin", "admin.sock"),
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
        let status = broker::client::status(&self.lab.path("admin.sock"))?;
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
    Ok(Process::start(&mut tenant_command(
        lab, user, role, arguments,
    ))?)
}

/// The same as nobody in the broker's network namespace.
pub fn neighbour(lab: &Lab, role: &str, arguments: &[&str]) -> Result<Process> {
    let mut command = tenant_command(lab, NOBODY, role, arguments);
    // A child is in the namespace of the thread that starts it.
    Ok(lab.at_broker(|| Process::start(&mut command))?)
}

/// The command of a tenant.
pub fn tenant_command(lab: &Lab, user: u32, role: &str, arguments: &[&str]) -> Command {
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
