//! The guest from outside: QEMU, its console, and the thread that is its CPU.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context as _, Result, bail, ensure};
use hostnet::tap::Tap;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use testkit::Limit;
use weir::lab::Side;
use weir::process::clock::now_ns;

use super::Clocks;
use super::inside::{Answer, Question, SAYS};
use crate::truth::{MEASURED, ROLE, SENDER};

/// The longest that the guest takes for an answer, over the time that it was asked to take: it boots in five
/// seconds where nothing else runs.
const ANSWER: Duration = Duration::from_secs(90);
/// When it ends by itself, whatever happens, in seconds.
const LIMIT: u64 = 1200;
/// How often the clocks are compared: the shortest answer counts.
const COMPARISONS: usize = 10;

/// The first program of the guest's job.
const SCRIPT: &str = "truth.sh";
/// The address is `APP_MAC`, or the card drops the frames. With any of these offloads the driver
/// refuses native XDP.
const CARD: &str = "virtio-net-pci,netdev=n0,mac=02:00:00:00:00:0a,romfile=,csum=off,guest_csum=off,guest_tso4=off,\
    guest_tso6=off,guest_ecn=off,guest_ufo=off";
/// The counter of the CPU as the clock: it goes on while the guest is stopped, and no watchdog may
/// take that for a fault.
const KERNEL: &str = "console=ttyS0 loglevel=1 panic=-1 nokaslr clocksource=tsc tsc=reliable \
    nowatchdog mitigations=off rcupdate.rcu_cpu_stall_suppress=1";

/// The kernel and root of a guest.
pub struct Image {
    kernel: PathBuf,
    root: PathBuf,
}

/// A running guest.
#[must_use = "the guest ends when this is dropped"]
pub struct Machine {
    process: Child,
    console: ChildStdin,
    lines: Receiver<String>,
    /// The thread that is its CPU.
    cpu: i32,
}

impl Image {
    /// Adds this program to the guest in the directory.
    pub fn make(guest: &Path) -> Result<Self> {
        let payload = guest.join("truth");
        fs::create_dir_all(&payload)?;
        fs::copy(std::env::current_exe()?, payload.join("truth"))?;
        fs::write(payload.join(SCRIPT), script())?;
        let root = guest.join("guest-truth.initramfs");
        let made = Command::new("bash")
            .args([
                "-c",
                "set -eu; . scripts/guest.sh; guest_dir=$1; guest_image \"$2\"",
                "bash",
            ])
            .args([guest, &payload])
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
            .stdout(File::create(&root)?)
            .status()
            .context("cannot run bash")?;
        fs::remove_dir_all(&payload)?;
        ensure!(made.success(), "the guest's image could not be made");
        Ok(Self {
            kernel: guest.join("vmlinuz"),
            root,
        })
    }

    fn command(&self, tap: &Tap) -> Command {
        let mut command = Command::new("taskset");
        command
            .args(["-c", &SENDER.to_string(), "qemu-system-x86_64"])
            .args(["-name", "guest,debug-threads=on"])
            .args(["-accel", "tcg,thread=single", "-cpu", "Nehalem"])
            .args(["-nodefaults", "-no-user-config", "-display", "none"])
            .args(["-serial", "stdio", "-no-reboot", "-smp", "1", "-m", "512"])
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(&self.root)
            .arg("-append")
            .arg(format!("{KERNEL} weir.run={SCRIPT} weir.seconds={LIMIT}"))
            .arg("-netdev")
            .arg(format!(
                "tap,id=n0,fd={},vhost=off",
                tap.descriptor().as_raw_fd()
            ))
            .args(["-device", CARD])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command
    }
}

/// Nothing may be sent from there but answers.
fn script() -> String {
    format!(
        "modprobe virtio_pci && modprobe virtio_net || exit 1\n\
         sysctl -q -w net.ipv6.conf.eth0.disable_ipv6=1 || exit 1\n\
         ip link set dev eth0 arp off up || exit 1\n\
         stty -F /dev/console -echo\n\
         {ROLE}={} exec ./truth </dev/console\n",
        super::INSIDE
    )
}

impl Machine {
    /// Starts it on a tap of this side, and waits until it asks for work.
    pub fn start(image: &Image, side: &Side, tap: &Tap) -> Result<Self> {
        // QEMU takes over the descriptor.
        fcntl_setfd(tap.descriptor(), FdFlags::empty())?;
        let mut process = side.spawn(&mut image.command(tap))?;
        fcntl_setfd(tap.descriptor(), FdFlags::CLOEXEC)?;
        let console = process.stdin.take().context("no console")?;
        let output = process.stdout.take().context("no console")?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut machine = Self {
            process,
            console,
            lines,
            cpu: 0,
        };
        match machine.answer(ANSWER)? {
            Answer::Ready { clocksource } if clocksource == "tsc" => {}
            other => bail!("the guest began with {other:?}"),
        }
        machine.cpu = machine.cpu_thread()?;
        let mut cpus = CpuSet::new();
        cpus.set(MEASURED);
        sched_setaffinity(Pid::from_raw(machine.cpu), &cpus)
            .context("cannot pin the guest's CPU")?;
        // Its timers are to be on time, whatever else the host does.
        prefer(machine.process.id())?;
        Ok(machine)
    }

    /// QEMU's number.
    pub fn pid(&self) -> Result<Pid> {
        Pid::from_raw(self.process.id().cast_signed()).context("no process")
    }

    /// The scheduler's counters of the guest's CPU.
    pub fn schedstat(&self) -> Result<File> {
        let path = format!("/proc/{}/task/{}/schedstat", self.process.id(), self.cpu);
        File::open(&path).with_context(|| format!("cannot open {path}"))
    }

    /// How long the emulator's timers and devices have waited for the host's CPU.
    pub fn waited_ns(&self) -> Result<u64> {
        let path = format!("/proc/{0}/task/{0}/schedstat", self.process.id());
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let waited = text
            .split_whitespace()
            .nth(1)
            .context("a short schedstat")?;
        Ok(waited.parse()?)
    }

    fn cpu_thread(&self) -> Result<i32> {
        for entry in fs::read_dir(format!("/proc/{}/task", self.process.id()))? {
            let entry = entry?;
            let name = fs::read_to_string(entry.path().join("comm"))?;
            if name.trim().ends_with("/TCG") {
                return Ok(entry.file_name().to_string_lossy().parse()?);
            }
        }
        bail!("QEMU has no thread that is called .../TCG");
    }

    /// Asks, and waits for the answer.
    pub fn ask(&mut self, question: &Question, takes: Duration) -> Result<Answer> {
        writeln!(self.console, "{}", serde_json::to_string(question)?)?;
        match self.answer(takes + ANSWER)? {
            Answer::Error(error) => bail!("the guest failed: {error}"),
            answer => Ok(answer),
        }
    }

    fn answer(&mut self, timeout: Duration) -> Result<Answer> {
        let mut heard = String::new();
        let mut limit = Limit::new(timeout);
        loop {
            let line = match limit.receive(&self.lines) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => {
                    bail!("the guest does not answer: is this machine overloaded? {heard}")
                }
                Err(RecvTimeoutError::Disconnected) => bail!("the guest has ended: {heard}"),
            };
            match line.trim().strip_prefix(SAYS) {
                Some(said) => return Ok(serde_json::from_str(said)?),
                None => heard = heard + line.trim() + "\n",
            }
        }
    }

    /// Reads both clocks at once.
    pub fn clocks(&mut self) -> Result<Clocks> {
        let mut best: Option<(u64, Clocks)> = None;
        for _ in 0..COMPARISONS {
            let asked = now_ns();
            let Answer::Clock(guest) = self.ask(&Question::Clock, Duration::ZERO)? else {
                bail!("another answer");
            };
            let took = now_ns() - asked;
            if best.is_none_or(|(shortest, _)| took < shortest) {
                let host = asked + took / 2;
                best = Some((took, Clocks { host, guest, took }));
            }
        }
        best.map(|(_, clocks)| clocks).context("no comparison")
    }
}

/// Has a thread, which sleeps most of the time, run before all others of its CPU.
pub fn prefer(thread: u32) -> Result<()> {
    let words = ["--fifo", "--reset-on-fork", "--pid", "1"];
    let status = Command::new("chrt")
        .args(words)
        .arg(thread.to_string())
        .status()
        .context("cannot run chrt(1)")?;
    ensure!(status.success(), "chrt: {status}");
    Ok(())
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
