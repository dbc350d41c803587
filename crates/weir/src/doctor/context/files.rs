//! The files of the host, or of a test's directory.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use hostnet::mount::DetachedMount;
use hostnet::privilege::{Capability, Feature, FileStep, file_note, missing, refusal};
use hostnet::sysfs::Sysfs;

const SECURITY: &str = "/sys/kernel/security";
const CLASS_NET: &str = "/sys/class/net";

/// The files of the host, or of a test's directory.
pub struct Files {
    /// The directory of a test; none for the host.
    root: Option<PathBuf>,
    sys: Sys,
    /// A detached mount, where the host has none.
    securityfs: Option<DetachedMount>,
}

/// The network namespace that /sys shows: the one of the process that mounted it.
enum Sys {
    /// This namespace, in a detached mount.
    Own(Sysfs),
    /// This namespace, in /sys itself.
    Shared,
    /// Another namespace.
    Foreign,
}

impl Files {
    /// The files of this host.
    pub fn of_host() -> Self {
        let securityfs = DetachedMount::new("securityfs").ok();
        Self {
            root: None,
            sys: sys(),
            securityfs: securityfs.filter(|_| !Path::new(SECURITY).join("lsm").exists()),
        }
    }

    /// The files below a directory.
    pub fn below(root: &Path) -> Self {
        Self {
            root: Some(root.into()),
            sys: Sys::Shared,
            securityfs: None,
        }
    }

    /// The root directory.
    pub fn root(&self) -> &Path {
        self.root.as_deref().unwrap_or_else(|| Path::new("/"))
    }

    /// The actual path of a file such as `/sys/class/net/eth0/mtu`.
    pub fn path(&self, path: &str) -> Result<PathBuf> {
        if let Some((rest, mount)) = path.strip_prefix(SECURITY).zip(self.securityfs.as_ref()) {
            return Ok(mount.path(rest));
        }
        if let Some(rest) = path.strip_prefix(CLASS_NET) {
            match &self.sys {
                Sys::Own(mount) => return Ok(mount.class_net(rest)),
                Sys::Shared => {}
                Sys::Foreign => {
                    let why = missing(&[Capability::SysAdmin]);
                    let why = why.map_or_else(String::new, |why| format!("; to mount one, {why}"));
                    bail!(
                        "/sys shows another network namespace: mount sysfs in this one (`mount -t sysfs sysfs /sys`){why}"
                    )
                }
            }
        }
        // /proc/net is of the process's first thread, which may be in another namespace.
        let of_thread = path.strip_prefix("/proc/net/");
        if let Some(rest) = of_thread.filter(|_| self.root.is_none()) {
            return Ok(format!("/proc/thread-self/net/{rest}").into());
        }
        Ok(self.root().join(path.trim_start_matches('/')))
    }

    /// The text of a file, without white space at its end.
    pub fn read(&self, path: &str) -> Result<String> {
        let text = fs::read_to_string(self.path(path)?);
        let text = text.map_err(|error| self.unreadable(error, path))?;
        Ok(text.trim_end().to_owned())
    }

    /// The text of a file, or `None` if there is no such file.
    pub fn read_if_there(&self, path: &str) -> Result<Option<String>> {
        match fs::read_to_string(self.path(path)?) {
            Ok(text) => Ok(Some(text.trim_end().to_owned())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.unreadable(error, path)),
        }
    }

    /// The names in a directory, sorted; none if there is no such directory.
    pub fn list(&self, path: &str) -> Result<Vec<String>> {
        let entries = match fs::read_dir(self.path(path)?) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.unreadable(error, path)),
        };
        let mut names: Vec<_> = entries
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        Ok(names)
    }

    /// The processes in /proc, by number.
    pub fn pids(&self) -> Vec<u32> {
        let names = self.list("/proc").unwrap_or_default();
        let mut pids: Vec<_> = names.iter().filter_map(|name| name.parse().ok()).collect();
        pids.sort_unstable();
        pids
    }

    /// The names of the directories in a directory, sorted; none if it cannot be read.
    pub fn directories(&self, path: &str) -> Vec<String> {
        let entries = self
            .path(path)
            .ok()
            .and_then(|path| fs::read_dir(path).ok());
        let entries = entries.into_iter().flatten().flatten();
        // A symbolic link is none.
        let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let mut names: Vec<_> = directories
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// The devices in /sys/class/net, without files such as `bonding_masters`.
    pub fn class_net(&self) -> Result<Vec<String>> {
        let mut names = self.list(CLASS_NET)?;
        let directory = self.path(CLASS_NET)?;
        names.retain(|name| directory.join(name).is_dir());
        Ok(names)
    }

    /// The last part of a symbolic link's target; none without such a link.
    pub fn link_target(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.path(path).ok()?).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    /// Writes a file that exists.
    pub fn write(&self, path: &str, value: &str) -> Result<()> {
        let file = self.path(path)?;
        fs::write(&file, value).map_err(|error| {
            let why = match error.raw_os_error() {
                // The kernel's own check of a setting: the mode has let it be opened.
                Some(libc::EPERM) => {
                    let why = refusal(libc::EPERM, Feature::Base, &[Capability::SysAdmin]);
                    format!(": {}", why.unwrap_or_default())
                }
                _ => file_note(&error, &file, FileStep::Write),
            };
            anyhow!(error).context(format!("cannot write {value} to {path}{why}"))
        })
    }

    fn unreadable(&self, error: io::Error, path: &str) -> anyhow::Error {
        let file = self.path(path).unwrap_or_else(|_| path.into());
        let why = file_note(&error, &file, FileStep::Read);
        anyhow!(error).context(format!("cannot read {path}{why}"))
    }
}

fn sys() -> Sys {
    match Sysfs::mount() {
        Ok(mount) => Sys::Own(mount),
        Err(_) if shows_this_namespace() => Sys::Shared,
        Err(_) => Sys::Foreign,
    }
}

/// Whether /sys lists the same devices as /proc, which always shows the thread's namespace.
fn shows_this_namespace() -> bool {
    let Ok(devices) = fs::read_to_string("/proc/thread-self/net/dev") else {
        return false;
    };
    let names = devices.lines().filter_map(|line| line.split_once(':'));
    let mut names: Vec<_> = names.map(|(name, _)| name.trim().to_owned()).collect();
    let entries = fs::read_dir(CLASS_NET).into_iter().flatten();
    let mut shown: Vec<_> = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    shown.retain(|name| name != "bonding_masters");
    shown.sort();
    names == shown
}
