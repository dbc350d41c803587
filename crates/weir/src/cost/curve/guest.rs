//! A virtual machine as the receiver: QEMU on a tap, with a guest that drops all packets.
//!
//! The guest is that of tests/guest/README.md, "The receiver".

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::lab::Side;
use crate::process::child::Child;
use crate::process::stop::StopSignal;
use hostnet::tap::Tap;

/// The prefix of the guest's own lines on its console; the other lines are its kernel's.
const PREFIX: &str = "weir-guest: ";
/// Time limit for a guest to boot; it takes three seconds on an idle machine.
const BOOT: Duration = Duration::from_secs(90);
/// The guest's network card: with any of these offloads its driver refuses native XDP.
const CARD: &str = "virtio-net-pci,netdev=n0,romfile=,csum=off,guest_csum=off,guest_tso4=off,\
    guest_tso6=off,guest_ecn=off,guest_ufo=off";

/// A guest to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestSettings {
    kernel: PathBuf,
    root: PathBuf,
    /// Its lifetime: it powers off by itself.
    pub seconds: u64,
    /// The CPU to run on.
    pub cpu: usize,
}

/// A running guest.
#[must_use = "the guest ends when this is dropped"]
pub struct Guest<'a> {
    /// QEMU.
    pub pid: u32,
    _console: Child<'a>,
}

impl GuestSettings {
    /// The guest in a directory that `./run guest` has made.
    pub fn find(directory: &Path, seconds: u64, cpu: usize) -> Result<Self> {
        let file = |name| -> Result<PathBuf> {
            let path = directory.join(name);
            ensure!(
                path.is_file(),
                "no guest in {}: {name} is missing; build it with `./run guest` in weir's source tree",
                directory.display()
            );
            Ok(path)
        };
        Ok(Self {
            kernel: file("vmlinuz")?,
            root: file("initramfs.gz")?,
            seconds,
            cpu,
        })
    }

    /// The tap is QEMU's standard input, so the console must not read it.
    fn command(&self) -> Command {
        let mut command = Command::new("taskset");
        command
            .args(["-c", &self.cpu.to_string(), "qemu-system-x86_64"])
            .args(["-accel", "tcg,thread=single", "-cpu", "Nehalem"])
            .args(["-nodefaults", "-no-user-config", "-display", "none"])
            .args(["-chardev", "file,id=console,path=/dev/stdout"])
            .args(["-serial", "chardev:console", "-no-reboot"])
            .args(["-smp", "1", "-m", "256"])
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(&self.root)
            .arg("-append")
            .arg(format!(
                "console=ttyS0 loglevel=1 panic=-1 nokaslr weir.receive=1 weir.seconds={}",
                self.seconds
            ))
            .args(["-netdev", "tap,id=n0,fd=0,vhost=off", "-device", CARD]);
        command
    }
}

impl<'a> Guest<'a> {
    /// Starts a guest on a tap and waits until it receives.
    pub fn start(
        settings: &GuestSettings,
        side: &Side,
        tap: &Tap,
        stop: &'a StopSignal,
    ) -> Result<Self> {
        let mut pid = 0;
        let console = Child::start("guest", settings.command(), stop, |command| {
            let tap = tap.descriptor().try_clone_to_owned();
            command.stdin(Stdio::from(tap.context("cannot duplicate a descriptor")?));
            let process = side.spawn(command)?;
            pid = process.id();
            Ok(process)
        });
        let mut console = console.context(
            "cannot start a guest: are taskset and qemu-system-x86_64 installed \
             (Debian's packages util-linux and qemu-system-x86)?",
        )?;
        let end = Instant::now() + BOOT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Some(line) = console.line(left)? else {
                bail!(
                    "the guest has not booted after {} s: is this machine overloaded?",
                    BOOT.as_secs()
                );
            };
            match line.trim().strip_prefix(PREFIX) {
                Some(said) if said.starts_with("ready") => break,
                Some(said) => bail!("the guest cannot receive: {said:?}"),
                None => {}
            }
        }
        Ok(Self {
            pid,
            _console: console,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_without_a_guest_is_refused() {
        let error = GuestSettings::find(Path::new("/nonexistent"), 1, 0).expect_err("nothing");
        let text = error.to_string();
        assert!(
            text.contains("vmlinuz") && text.contains("./run guest"),
            "{text}"
        );
    }
}
