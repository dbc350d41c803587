//! What of an accelerated bridge outlives its daemon: pinned programs, and notes of what to put back.
//!
//! | path | content |
//! |---|---|
//! | `BPFFS/weir/switch/NETNS/BRIDGE/IFINDEX-HOOK` | the link of a port's program, by the inode of the network namespace; a dot of the bridge's name is a colon there |
//! | `STATE/bpffs` | the BPF filesystem was mounted for this |
//! | `STATE/BRIDGE/settings.json` | the settings, for a daemon that is started again |
//! | `STATE/BRIDGE/rxvlan-IF` | the features of VLAN offload at receive of the device that were on |
//! | `STATE/BRIDGE/tc-IFINDEX` | a filter of tc on the device; `made-qdisc` where its qdisc is ours |
//! | `STATE/BRIDGE/netns` | the path of the network namespace, where it is not the daemon's |

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::settings::Settings;
use crate::bpf::hook::{NetLink, Place, TcFilter};
use crate::report::atomic_file::ReportFile;

const SETTINGS: &str = "settings.json";
const BPFFS: &str = "bpffs";
const NETNS: &str = "netns";
const VLAN_OFFLOAD: &str = "rxvlan-";
/// The feature of a note without one, as daemons wrote it that knew no other.
const UNNAMED: &str = "rx-vlan-hw-parse";
const FILTER: &str = "tc-";
const MADE_QDISC: &str = "made-qdisc";

/// The BPF filesystem takes no name with a dot (`bpf_lookup` in `kernel/bpf/inode.c`), and a device none with a
/// colon (`dev_valid_name`).
const DOT: &str = ".";
const DOT_IN_PINS: &str = ":";

/// The directories of one bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keep {
    /// In a BPF filesystem; none where there is none, and programs end with the daemon.
    pub pins: Option<PathBuf>,
    /// Notes.
    pub state: PathBuf,
}

impl Keep {
    /// The directories of a bridge below those of the daemon, which are made.
    ///
    /// # Errors
    ///
    /// Where one cannot be made.
    pub fn of_bridge(pins: Option<&Path>, state: &Path, bridge: &str) -> Result<Self> {
        let keep = Self::at(pins, state, bridge);
        for directory in keep.pins.iter().chain([&keep.state]) {
            fs::create_dir_all(directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
        }
        Ok(keep)
    }

    /// The same, whether they are there or not.
    pub fn at(pins: Option<&Path>, state: &Path, bridge: &str) -> Self {
        Self {
            pins: pins.map(|pins| pins.join(bridge.replace(DOT, DOT_IN_PINS))),
            state: state.join(bridge),
        }
    }

    /// The bridges that have pins in the directory of a network namespace.
    pub fn pinned_bridges(pins: &Path) -> Vec<String> {
        let names = directories(pins).into_iter();
        names.map(|name| name.replace(DOT_IN_PINS, DOT)).collect()
    }

    /// Removes the directories, which are empty unless something could not be put back.
    pub fn remove(&self) {
        self.forget_settings();
        let _ = fs::remove_file(self.state.join(NETNS));
        for directory in self.pins.iter().chain([&self.state]) {
            let _ = fs::remove_dir(directory);
        }
    }

    /// The pin of a port's program.
    pub fn pin(&self, ifindex: u32, place: Place) -> Option<PathBuf> {
        let place = match place {
            Place::Xdp => "xdp",
            Place::Tcx => "tcx",
        };
        let pins = self.pins.as_ref()?;
        Some(pins.join(format!("{ifindex}-{place}")))
    }

    /// The id of the program that an earlier daemon has pinned for a port.
    pub fn program(&self, ifindex: u32, place: Place) -> Option<u32> {
        let link = NetLink::open(&self.pin(ifindex, place)?).ok()?;
        let is_on_port = link.ifindex().is_ok_and(|of| of == ifindex);
        link.program_id().ok().filter(|_| is_on_port)
    }

    /// All pins.
    pub fn pinned(&self) -> Vec<PathBuf> {
        self.pins.as_deref().map(files).unwrap_or_default()
    }

    /// Notes the settings.
    pub fn write_settings(&self, settings: &Settings) -> Result<()> {
        let text = serde_json::to_string(settings)?;
        ReportFile::prepare(&self.state.join(SETTINGS), true)?.write(&text)
    }

    /// The settings that were noted, if any were.
    ///
    /// # Errors
    ///
    /// For those of another version that has more of them.
    pub fn settings(&self) -> Result<Option<Settings>> {
        let path = self.state.join(SETTINGS);
        let Ok(text) = fs::read_to_string(&path) else {
            return Ok(None);
        };
        let settings = serde_json::from_str(&text);
        settings.with_context(|| format!("the settings in {} cannot be used", path.display()))
    }

    /// Forgets the settings.
    pub fn forget_settings(&self) {
        let _ = fs::remove_file(self.state.join(SETTINGS));
    }

    /// Notes the network namespace.
    pub fn write_netns(&self, path: &Path) -> Result<()> {
        let text = path.display().to_string();
        ReportFile::prepare(&self.state.join(NETNS), true)?.write(&text)
    }

    /// The network namespace, where it was not the daemon's.
    pub fn netns(&self) -> Option<PathBuf> {
        fs::read_to_string(self.state.join(NETNS))
            .ok()
            .map(PathBuf::from)
    }

    fn vlan_offload(&self, device: &str) -> PathBuf {
        self.state.join(format!("{VLAN_OFFLOAD}{device}"))
    }

    /// Notes the features of VLAN offload of a device that are off for XDP, or are about to be turned off.
    pub fn note_vlan_offload(&self, device: &str, features: &[String]) -> io::Result<()> {
        fs::write(self.vlan_offload(device), features.join("\n"))
    }

    /// The features of VLAN offload of a device that were turned off.
    pub fn vlan_offload_of(&self, device: &str) -> Vec<String> {
        let Ok(text) = fs::read_to_string(self.vlan_offload(device)) else {
            return Vec::new();
        };
        let text = if text.is_empty() { UNNAMED } else { &text };
        text.lines().map(str::to_owned).collect()
    }

    /// Forgets that note.
    pub fn forget_vlan_offload(&self, device: &str) {
        let _ = fs::remove_file(self.vlan_offload(device));
    }

    /// The devices whose VLAN offload was turned off.
    pub fn vlan_offloads(&self) -> Vec<String> {
        names(&self.state, VLAN_OFFLOAD)
    }

    /// Notes a filter of tc.
    pub fn note_filter(&self, filter: TcFilter) -> io::Result<()> {
        let text = if filter.made_qdisc { MADE_QDISC } else { "" };
        fs::write(self.state.join(format!("{FILTER}{}", filter.ifindex)), text)
    }

    /// Forgets a filter of tc.
    pub fn forget_filter(&self, ifindex: u32) {
        let _ = fs::remove_file(self.state.join(format!("{FILTER}{ifindex}")));
    }

    /// The filters that were noted.
    pub fn filters(&self) -> Vec<TcFilter> {
        let filters = names(&self.state, FILTER).into_iter();
        let filter = |ifindex: String| {
            let text = fs::read_to_string(self.state.join(format!("{FILTER}{ifindex}"))).ok()?;
            Some(TcFilter {
                ifindex: ifindex.parse().ok()?,
                made_qdisc: text.trim() == MADE_QDISC,
            })
        };
        filters.filter_map(filter).collect()
    }
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// The rest of the names in a directory that begin with a prefix.
fn names(directory: &Path, prefix: &str) -> Vec<String> {
    let files = files(directory).into_iter();
    let name = |file: PathBuf| {
        let name = file.file_name()?.to_str()?.strip_prefix(prefix)?;
        Some(name.to_owned())
    };
    files.filter_map(name).collect()
}

/// The directories in one, by their names.
pub fn directories(directory: &Path) -> Vec<String> {
    let all = files(directory).into_iter().filter(|path| path.is_dir());
    let mut names: Vec<String> = all
        .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
        .collect();
    names.sort_unstable();
    names
}

/// Locks a directory that one daemon has at a time; none where another process has it.
///
/// # Errors
///
/// Where it cannot be opened.
pub fn lock(directory: &Path) -> Result<Option<File>> {
    let shown = directory.display();
    let file = File::open(directory).with_context(|| format!("cannot open {shown}"))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno).with_context(|| format!("cannot lock {shown}")),
    }
}

/// Notes that a BPF filesystem was mounted.
pub fn note_bpffs(state: &Path) -> Result<()> {
    fs::write(state.join(BPFFS), "").context("cannot note that the BPF filesystem was mounted")
}

/// Removes what no bridge needs any more: empty directories, and a BPF filesystem that was mounted for them.
pub fn tidy(bpffs: &Path, state: &Path) {
    let part = bpffs.join("weir/switch");
    for directory in directories(&part) {
        let _ = fs::remove_dir(part.join(directory));
    }
    // Others may have pins in it.
    let _ = fs::remove_dir(&part);
    let _ = fs::remove_dir(bpffs.join("weir"));
    let note = state.join(BPFFS);
    if note.exists() && directories(bpffs).is_empty() && is_unused(bpffs) {
        let _ = unmount(bpffs, UnmountFlags::empty());
        let _ = fs::remove_file(&note);
    }
    let _ = fs::remove_dir(state);
}

/// Whether a BPF filesystem has no files but the two that the kernel makes.
fn is_unused(bpffs: &Path) -> bool {
    let made = ["maps.debug", "progs.debug"];
    let is_made = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| made.contains(&name))
    };
    files(bpffs).iter().all(is_made)
}

/// Detaches a pinned program and removes the pin.
///
/// # Errors
///
/// Where the program stays attached.
pub fn unpin(pin: &Path) -> io::Result<()> {
    match NetLink::open(pin).and_then(|link| link.detach()) {
        // Its device is gone, or another process has removed the pin.
        Err(error) if error.raw_os_error() == Some(libc::ENOLINK) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        detached => detached?,
    }
    match fs::remove_file(pin) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_again() {
        let directory = std::env::temp_dir().join(format!("weir-keep-{}", std::process::id()));
        let keep = Keep::of_bridge(None, &directory, "br0").expect("a directory");
        let settings = Settings {
            addresses: 7,
            ..Settings::default()
        };
        keep.write_settings(&settings).expect("written");
        assert_eq!(keep.settings().expect("read"), Some(settings));
        let filter = TcFilter {
            ifindex: 9,
            made_qdisc: true,
        };
        keep.note_filter(filter).expect("written");
        let off = ["rx-vlan-hw-parse", "rx-vlan-stag-hw-parse"].map(str::to_owned);
        keep.note_vlan_offload("eth0", &off).expect("written");
        assert_eq!(keep.filters(), [filter]);
        assert_eq!(keep.vlan_offloads(), ["eth0"]);
        assert_eq!(keep.vlan_offload_of("eth0"), off);
        fs::write(directory.join("br0/rxvlan-eth1"), "").expect("written");
        assert_eq!(keep.vlan_offload_of("eth1"), [off[0].as_str()]);
        assert!(keep.vlan_offload_of("eth2").is_empty());
        keep.forget_vlan_offload("eth1");
        assert_eq!(directories(&directory), ["br0"]);
        fs::write(directory.join("br0/settings.json"), r#"{"later": 1}"#).expect("written");
        assert!(keep.settings().is_err());
        keep.forget_filter(9);
        keep.forget_vlan_offload("eth0");
        keep.remove();
        assert!(directories(&directory).is_empty());
        fs::remove_dir(&directory).expect("nothing is left");
    }

    #[test]
    fn a_dot_of_a_bridge_is_none_in_its_pins() {
        let directory = std::env::temp_dir().join(format!("weir-pins-{}", std::process::id()));
        let keep = Keep::at(Some(&directory), Path::new("/notes"), "br0.100");
        let pins = keep.pins.expect("there are pins");
        assert_eq!(pins, directory.join("br0:100"));
        fs::create_dir_all(&pins).expect("made");
        assert_eq!(Keep::pinned_bridges(&directory), ["br0.100"]);
        fs::remove_dir_all(&directory).expect("removed");
    }
}
