//! The namespaces and devices of a snapshot.

use std::os::fd::{AsFd as _, OwnedFd};

use anyhow::{Context as _, Result, bail, ensure};
use hostnet::netns;
use hostnet::netns::Namespace;
use hostnet::privilege::{self, Capability, Feature};

use crate::ledger::snapshot::Snapshot;
use crate::ledger::stage::Stage;

/// The process that starts the kernel's threads, which are in the initial namespace.
const KTHREADD: u32 = 2;
/// Characters of a container's id that its tools show.
const SHORT_ID: usize = 12;

/// The namespaces and devices of a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    /// The namespaces: by a name of `ip netns`, a path, the id of a process, or `net:[INODE]`. None: the one of
    /// this process.
    pub namespaces: Vec<String>,
    /// Whether all namespaces of the host are meant.
    pub all: bool,
    /// Only these devices; none for all, and everything behind them.
    pub devices: Vec<String>,
}

/// A namespace to be read.
#[derive(Debug)]
pub struct Place {
    /// Its inode.
    pub inode: u64,
    /// Its name.
    pub name: String,
    /// Its container.
    pub container: Option<String>,
    /// None for the one that this thread is in.
    descriptor: Option<OwnedFd>,
}

impl Place {
    /// Runs something in the namespace.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        match &self.descriptor {
            None => work(),
            Some(descriptor) => netns::run_in(descriptor.as_fd(), work),
        }
    }
}

/// The namespace of this process.
#[derive(Debug, Clone)]
pub struct Own {
    /// Its inode.
    pub inode: u64,
    name: String,
    container: Option<String>,
}

impl From<Own> for Place {
    fn from(own: Own) -> Self {
        Self {
            inode: own.inode,
            name: own.name,
            container: own.container,
            descriptor: None,
        }
    }
}

/// The namespace of this process, with its name.
pub fn own() -> Result<Own> {
    let inode = current()?;
    let all = netns::all().ok();
    let mut known = all.iter().flat_map(|all| &all.list);
    let named = known.find(|it| it.inode == inode);
    Ok(Own {
        inode,
        name: named
            .and_then(known_name)
            .unwrap_or_else(|| "this namespace".into()),
        container: named.and_then(|it| it.container.clone()),
    })
}

fn current() -> Result<u64> {
    netns::current().context("cannot read the number of the network namespace")
}

/// The cure of a namespace of another process that cannot be opened.
fn refused(error: &hostnet::Error) -> String {
    let needed = [Capability::SysPtrace];
    let errno = error.errno();
    let why = errno.and_then(|errno| privilege::refusal(errno, Feature::Base, &needed));
    why.unwrap_or_else(|| "name the namespaces to be read with --netns".to_owned())
}

impl Scope {
    /// Whether the namespace of this process alone is meant.
    pub fn is_own(&self) -> bool {
        !self.all && self.namespaces.is_empty()
    }

    /// The namespaces, each once. One that vanishes meanwhile, or that may not be entered, is a gap.
    pub fn places(&self, snapshot: &mut Snapshot) -> Result<Vec<Place>> {
        if self.is_own() {
            return Ok(vec![own()?.into()]);
        }
        let own = current()?;
        let all = netns::all().context("cannot list the network namespaces")?;
        if self.all && all.unreadable > 0 {
            snapshot.gap(
                Stage::Stack,
                format!(
                    "the network namespaces of {} processes are not known",
                    all.unreadable
                ),
                privilege::missing(&[Capability::SysPtrace])
                    .unwrap_or_else(|| "run in the initial PID namespace".to_owned()),
            );
        }
        let wanted = self.wanted(&all.list)?;
        let mut places = Vec::new();
        for namespace in wanted {
            let descriptor = if namespace.inode == own {
                None
            } else {
                match namespace.open() {
                    Ok(descriptor) => Some(descriptor),
                    // It ended meanwhile.
                    Err(error) if error.kind() == hostnet::ErrorKind::NotFound => continue,
                    Err(error) => {
                        snapshot.gap(
                            Stage::Stack,
                            format!(
                                "the network namespace {} cannot be opened: {error}",
                                name_of(namespace)
                            ),
                            refused(&error),
                        );
                        continue;
                    }
                }
            };
            places.push(Place {
                inode: namespace.inode,
                name: name_of(namespace),
                container: namespace.container.clone(),
                descriptor,
            });
        }
        ensure!(!places.is_empty(), "no network namespace can be read");
        Ok(places)
    }

    fn wanted<'n>(&self, all: &'n [Namespace]) -> Result<Vec<&'n Namespace>> {
        if self.all {
            return Ok(all.iter().collect());
        }
        let mut wanted: Vec<&Namespace> = Vec::new();
        for text in &self.namespaces {
            let found = all.iter().find(|namespace| is_meant(namespace, text));
            let Some(namespace) = found else {
                bail!(
                    "there is no network namespace '{text}': name one of `ip netns`, a file of one, the id of \
                     a process in it, a container, or net:[INODE] of `lsns -t net`"
                );
            };
            if !wanted.iter().any(|known| known.inode == namespace.inode) {
                wanted.push(namespace);
            }
        }
        Ok(wanted)
    }
}

/// The name that a person knows it by.
fn name_of(namespace: &Namespace) -> String {
    known_name(namespace).unwrap_or_else(|| match namespace.processes.first() {
        Some(process) => format!("process {process}"),
        None => format!("net:[{}]", namespace.inode),
    })
}

/// The name of its mount or container; `host` for the one of the first process and of the kernel's threads.
fn known_name(namespace: &Namespace) -> Option<String> {
    if let Some(name) = namespace.names.first() {
        return Some(name.clone());
    }
    if namespace
        .processes
        .first()
        .is_some_and(|process| *process <= KTHREADD)
    {
        return Some("host".into());
    }
    let id = namespace.container.as_deref()?;
    Some(id.get(..SHORT_ID).unwrap_or(id).into())
}

fn is_meant(namespace: &Namespace, text: &str) -> bool {
    let path = || {
        let file = std::fs::File::open(text).ok()?;
        netns::identity(file.as_fd()).ok()
    };
    namespace.names.iter().any(|name| name == text)
        || text.parse().is_ok_and(|process| namespace.processes.contains(&process))
        || text == format!("net:[{}]", namespace.inode)
        || text == name_of(namespace)
        // Ids of containers are long: as with the tools of containers, the first 12 characters do.
        || namespace.container.as_ref().is_some_and(|id| id == text || (text.len() >= SHORT_ID && id.starts_with(text)))
        || (text.contains('/') && path() == Some(namespace.inode))
}
