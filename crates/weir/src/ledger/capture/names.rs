//! The names of devices and namespaces.

use std::collections::BTreeMap;

use hostnet::rtnetlink::Rtnetlink;

use crate::ledger::read::Scope;
use crate::ledger::snapshot::Snapshot;
use crate::report::text::plain;

/// The names of the devices and namespaces of a scope, as far as they were seen.
#[derive(Debug)]
pub struct Names {
    scope: Scope,
    namespaces: BTreeMap<u32, String>,
    devices: BTreeMap<(u32, u32), String>,
}

impl Names {
    /// Reads them.
    pub fn read(scope: &Scope) -> Self {
        let mut names = Self {
            scope: Scope {
                devices: Vec::new(),
                ..scope.clone()
            },
            namespaces: BTreeMap::new(),
            devices: BTreeMap::new(),
        };
        names.update();
        names
    }

    /// Adds new ones. A name stays when its device goes: its last packets may be on their way.
    fn update(&mut self) {
        // Where it cannot be read, numbers are the names.
        let Ok(places) = self.scope.places(&mut Snapshot::default()) else {
            return;
        };
        for place in &places {
            let netns = place.inode as u32;
            self.namespaces.insert(netns, plain(&place.name));
            let links = place.run(|| Ok(Rtnetlink::open()?.links()?));
            for link in links.unwrap_or_default() {
                self.devices.insert((netns, link.index), link.name);
            }
        }
    }

    /// The name of a device, as the kernel has it; none where it is not known. Asked for once a device, since one
    /// that is new takes a reading of all namespaces.
    pub fn device(&mut self, netns: u32, index: u32) -> Option<&str> {
        if index != 0 && !self.devices.contains_key(&(netns, index)) {
            self.update();
        }
        self.devices.get(&(netns, index)).map(String::as_str)
    }

    /// The name of a namespace with its number, fit to be shown.
    pub fn namespace(&self, netns: u32) -> String {
        match self.namespaces.get(&netns) {
            _ if netns == 0 => "no network namespace".into(),
            Some(name) => format!("network namespace {name} (net:[{netns}])"),
            None => format!("network namespace net:[{netns}]"),
        }
    }
}
