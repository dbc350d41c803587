//! Labs with names, which outlive the program that made them: their namespaces are mounted in
//! `/run/netns` as `weir-NAME-app` and `weir-NAME-load`, where `ip netns` sees them. Those of containers
//! are `weir-NAME-c1` and so on.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use serde::Serialize;

use super::bridge::{BRIDGE, CONTAINER_DEVICE};
use super::{APP_DEVICE, LOAD_DEVICE, Lab, LabConfig, Side};
use hostnet::device::{Counters, Device};
use hostnet::netns::named::{self, DIRECTORY, Directory};
use hostnet::{ErrorKind, netns};

/// Between the name of a lab and the number of a container.
const CONTAINER: &str = "-c";
/// A namespace's file is called weir-NAME-load at most; names stay short enough to be read.
const MAX_NAME: usize = 32;

/// The name of a lab: letters, digits, `-` and `_`, beginning with a letter or digit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LabName(String);

impl FromStr for LabName {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        ensure!(
            name.starts_with(|c: char| c.is_ascii_alphanumeric())
                && name.chars().all(allowed)
                && name.len() <= MAX_NAME,
            "a lab's name has 1 to {MAX_NAME} letters, digits, '-' or '_' and begins with a letter or digit"
        );
        Ok(Self(name.into()))
    }
}

impl std::fmt::Display for LabName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which side of a lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The application's.
    App,
    /// The load's.
    Load,
}

impl Which {
    const ALL: [Self; 2] = [Self::App, Self::Load];

    const fn suffix(self) -> &'static str {
        match self {
            Self::App => "-app",
            Self::Load => "-load",
        }
    }

    const fn device(self) -> &'static str {
        match self {
            Self::App => APP_DEVICE,
            Self::Load => LOAD_DEVICE,
        }
    }
}

impl LabName {
    /// The namespace's name, as `ip netns` shows it.
    pub fn netns_name(&self, which: Which) -> String {
        format!("weir-{self}{}", which.suffix())
    }

    /// The name of a container's namespace; the first has number 1.
    pub fn container(&self, number: u8) -> String {
        format!("{}{number}", self.container_prefix())
    }

    /// The numbers of the containers that have a namespace.
    fn containers(&self) -> Result<Vec<u8>> {
        let files = named::names()?;
        let prefix = self.container_prefix();
        let numbers = files
            .iter()
            .filter_map(|file| file.strip_prefix(&prefix)?.parse().ok());
        Ok(numbers.collect())
    }

    fn container_prefix(&self) -> String {
        format!("weir-{self}{CONTAINER}")
    }

    fn path(&self, which: Which) -> PathBuf {
        Path::new(DIRECTORY).join(self.netns_name(which))
    }
}

/// Makes the lab `name`, with so many containers on a bridge of its application's side. It stays when this
/// process ends, until [`down`].
///
/// The lab is complete before it gets its names, and a failure to name it removes the names
/// again; only a kill in between can leave a part, which [`down`] removes.
pub fn up(name: &LabName, config: &LabConfig, containers: u8) -> Result<Lab> {
    let mut lab = Lab::anonymous(config)?;
    let containers = match containers {
        0 => Vec::new(),
        count => lab.add_containers(count)?,
    };
    let directory = Directory::create()?;
    let added = add_all(&directory, name, &lab, &containers);
    directory.release()?;
    added.map(|()| lab)
}

fn add_all(directory: &Directory, name: &LabName, lab: &Lab, containers: &[OwnedFd]) -> Result<()> {
    let sides = Which::ALL.into_iter().map(|which| {
        let side = match which {
            Which::App => lab.app(),
            Which::Load => lab.load(),
        };
        (name.netns_name(which), side.netns())
    });
    let containers = (1..).zip(containers);
    let containers = containers.map(|(number, it)| (name.container(number), it.as_fd()));
    let mut added: Vec<String> = Vec::new();
    for (file, namespace) in sides.chain(containers) {
        if let Err(error) = directory.add(&file, namespace) {
            for added in added {
                directory.remove(&added)?;
            }
            return Err(refused(name, &file, error));
        }
        added.push(file);
    }
    Ok(())
}

fn refused(name: &LabName, file: &str, error: hostnet::Error) -> anyhow::Error {
    if error.kind() != ErrorKind::AlreadyExists {
        return error.into();
    }
    anyhow!(
        "there is a lab {name} already ({DIRECTORY}/{file}): choose another name, or remove it with `weir lab \
         down {name}`"
    )
}

/// The result of [`down`].
#[derive(Debug)]
pub struct Removed {
    /// Processes that still run in the lab's namespaces. These are empty now, and go when the
    /// last such process ends.
    pub processes: Vec<u32>,
}

/// Removes the lab `name`, also one that a killed [`up`] left half made; with the last name goes
/// the `/run/netns` that [`up`] made.
pub fn down(name: &LabName) -> Result<Removed> {
    // Before the state is read, so that it stays so.
    let Some(directory) = Directory::lock()? else {
        bail!(no_lab(name));
    };
    let removed = remove_lab(&directory, name);
    let released = directory.release();
    let removed = removed?;
    released?;
    Ok(removed)
}

fn no_lab(name: &LabName) -> String {
    format!("there is no lab {name}: `weir lab status` lists those there are")
}

fn remove_lab(directory: &Directory, name: &LabName) -> Result<Removed> {
    let existing: Vec<_> = Which::ALL
        .into_iter()
        .filter(|which| name.path(*which).exists())
        .collect();
    let containers = name.containers()?;
    ensure!(!existing.is_empty() || !containers.is_empty(), no_lab(name));
    let mut processes = Vec::new();
    for number in containers {
        let file = name.container(number);
        if let Ok(namespace) = netns::open(&Path::new(DIRECTORY).join(&file)) {
            processes.extend(netns::processes(namespace.as_fd())?);
            delete_device(namespace.as_fd(), CONTAINER_DEVICE)?;
        }
        directory.remove(&file)?;
    }
    for which in existing {
        // Without its mount the file is an empty leftover that holds nothing.
        if let Ok(namespace) = netns::open(&name.path(which)) {
            processes.extend(netns::processes(namespace.as_fd())?);
            // A process in the namespace would keep it and its device alive.
            delete_device(namespace.as_fd(), which.device())?;
            if which == Which::App {
                delete_device(namespace.as_fd(), BRIDGE)?;
            }
        }
        directory.remove(&name.netns_name(which))?;
    }
    Ok(Removed { processes })
}

fn delete_device(namespace: BorrowedFd<'_>, name: &str) -> Result<()> {
    match netns::run_in(namespace, || Device::open(name)?.delete()) {
        // It went with its peer, or another program removed it.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        deleted => Ok(deleted?),
    }
}

/// Removes all labs, and the `/run/netns` of an [`up`] that was killed early. Returns the result
/// of [`down`] for each.
pub fn down_all() -> Result<Vec<(LabName, Removed)>> {
    let removed = names()?
        .into_iter()
        .map(|name| down(&name).map(|removed| (name, removed)))
        .collect();
    if let Some(directory) = Directory::lock()? {
        directory.release()?;
    }
    removed
}

/// The names of all labs, complete or not, sorted.
pub fn names() -> Result<Vec<LabName>> {
    let files = named::names()?;
    let mut names: Vec<_> = files.iter().filter_map(|file| lab_of_file(file)).collect();
    names.sort();
    names.dedup();
    Ok(names)
}

fn lab_of_file(file: &str) -> Option<LabName> {
    let rest = file.strip_prefix("weir-")?;
    let of_side = Which::ALL
        .iter()
        .find_map(|which| rest.strip_suffix(which.suffix()));
    let of_container = || {
        let (name, number) = rest.rsplit_once(CONTAINER)?;
        number.parse::<u8>().ok().map(|_| name)
    };
    of_side.or_else(of_container)?.parse().ok()
}

/// The state of a lab.
#[derive(Debug, Serialize)]
pub struct LabStatus {
    /// The lab's name.
    pub name: String,
    /// The application's side; `None` if it is not there.
    pub app: Option<SideStatus>,
    /// The load's side; `None` if it is not there.
    pub load: Option<SideStatus>,
    /// The namespaces of containers.
    pub containers: Vec<String>,
}

/// The state of one side of a lab.
#[derive(Debug, Serialize)]
pub struct SideStatus {
    /// The namespace's name.
    pub netns: String,
    /// The device's name.
    pub device: String,
    /// The device's MAC address.
    pub mac: String,
    /// The largest packet without its Ethernet header.
    pub mtu: u32,
    /// Queues each way.
    pub queues: u32,
    /// Whether the device can carry packets.
    pub running: bool,
    /// The id of the device's XDP program.
    pub xdp_program: Option<u32>,
    /// The device's counters.
    pub counters: Counters,
    /// The processes in the namespace.
    pub processes: Vec<u32>,
}

/// The state of the lab `name`.
pub fn status(name: &LabName) -> Result<LabStatus> {
    Ok(LabStatus {
        name: name.to_string(),
        app: side_status(name, Which::App)?,
        load: side_status(name, Which::Load)?,
        containers: name
            .containers()?
            .into_iter()
            .map(|it| name.container(it))
            .collect(),
    })
}

fn is_no_device(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<hostnet::Error>()
        .is_some_and(|error| error.kind() == ErrorKind::NotFound)
}

fn side_status(name: &LabName, which: Which) -> Result<Option<SideStatus>> {
    // A killed `up`, or a `down` that runs at this moment, leaves no namespace, or one without
    // its device.
    let Ok(namespace) = netns::open(&name.path(which)) else {
        return Ok(None);
    };
    let side = match Side::open(namespace, which.device()) {
        Ok(side) => side,
        Err(error) if is_no_device(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let link = side.link.state()?;
    Ok(Some(SideStatus {
        netns: name.netns_name(which),
        mac: side.mac.map(|byte| format!("{byte:02x}")).join(":"),
        mtu: link.mtu,
        queues: link.queues,
        running: link.running,
        xdp_program: link.xdp_program,
        counters: side.counters()?,
        processes: netns::processes(side.netns())?,
        device: side.device,
    }))
}

/// One side of the lab `name`.
pub fn side(name: &LabName, which: Which) -> Result<Side> {
    let path = name.path(which);
    ensure!(
        path.exists(),
        "there is no lab {name}: make it with `weir lab up {name}`, or see `weir lab status`"
    );
    let namespace = netns::open(&path).with_context(|| {
        format!("the lab {name} is half made: remove it with `weir lab down {name}`")
    })?;
    Side::open(namespace, which.device())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for good in ["lab", "a", "A-1_b", "0"] {
            assert!(good.parse::<LabName>().is_ok(), "{good}");
        }
        let long = "x".repeat(MAX_NAME + 1);
        for bad in [
            "",
            "-a",
            "_a",
            "a/b",
            "..",
            "a b",
            "a.b",
            "ä",
            long.as_str(),
        ] {
            assert!(bad.parse::<LabName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn files_lead_to_names() {
        let name = |file| lab_of_file(file).map(|name| name.to_string());
        assert_eq!(name("weir-lab-app").as_deref(), Some("lab"));
        assert_eq!(name("weir-a-app-load").as_deref(), Some("a-app"));
        assert_eq!(name("weir--app"), None);
        assert_eq!(name("weir-lab"), None);
        assert_eq!(name("weir-lab-c1").as_deref(), Some("lab"));
        assert_eq!(name("weir-a-c1-app").as_deref(), Some("a-c1"));
        assert_eq!(name("weir-lab-cx"), None);
        assert_eq!(name("other-lab-app"), None);
    }
}
