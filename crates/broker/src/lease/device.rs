//! The XDP program of each device, shared by all leases of its queues.

use super::terms::Terms;
use crate::policy::{DeviceGrant, FilterProtocol, FilterRule, Mode};
use anyhow::Context as _;
use rustix::fs::{Uid, chmod, chown};
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use xsk::broker::Refusal;
use xsk::{AttachMode, Device, ErrorKind, Filter, Program, Rule, Socket, Umem};

/// Time after the last lease until the program is detached: a tenant that restarts finds it.
const LINGER: Duration = Duration::from_secs(5);

/// Directories between the root of the BPF filesystem and a pinned map: `weir/broker/DEVICE`.
const BELOW_BPFFS: usize = 3;

/// The devices that have leases, or had some a moment ago, by index.
#[derive(Debug)]
pub(super) struct Devices {
    programs: Mutex<BTreeMap<u32, Arc<Mutex<DeviceProgram>>>>,
    /// Directory on bpffs; none where there is no such filesystem.
    pins: Option<PathBuf>,
}

#[derive(Debug)]
struct DeviceProgram {
    program: Option<Program>,
    filters: BTreeMap<u32, Filter>,
    pin: Option<PathBuf>,
    idle: Option<Instant>,
    /// The tenant that has the program's XSKMAP, which cannot be taken back.
    given_to: Option<String>,
}

impl Devices {
    pub(super) fn new(pins: Option<&Path>) -> Self {
        Self {
            programs: Mutex::default(),
            pins: pins.map(Path::to_owned),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.programs).is_empty()
    }

    /// Opens a socket on a queue in the first mode granted that is possible.
    pub(super) fn open_socket(
        &self,
        device: &Device,
        queue: u32,
        terms: &Terms<'_>,
        umem: &Umem,
    ) -> Result<Socket, Refusal> {
        let entry = self.entry(device);
        let mut held = lock(&entry);
        held.begin_for(&terms.tenant.name);
        first_possible(device, &terms.grant.modes, |mode| {
            held.open(device, queue, mode, terms, umem)
        })
    }

    /// The XSKMAP of a device that a tenant has alone, and the mode of its program.
    pub(super) fn give_map(
        &self,
        device: &Device,
        grant: &DeviceGrant,
        tenant: &str,
    ) -> Result<(OwnedFd, String), Refusal> {
        let entry = self.entry(device);
        let mut held = lock(&entry);
        held.begin_for(tenant);
        let filter = filter(&grant.filter);
        first_possible(device, &grant.modes, |mode| {
            held.prepare_map(device, attach_mode(mode), filter.as_ref(), tenant)
        })?;
        let map = held.program.as_ref().map(|program| {
            let mode = match program.mode() {
                AttachMode::Skb => "skb",
                _ => "drv",
            };
            Ok((program.map().try_clone_to_owned()?, mode.to_owned()))
        });
        let map: std::io::Result<_> =
            map.unwrap_or_else(|| Err(std::io::ErrorKind::NotFound.into()));
        map.map_err(|error| Refusal::new(ErrorKind::Os, error.to_string()))
    }

    /// Gives the file to which a device's map is pinned to a user; returns its path. The directories
    /// above it, which are the broker's, can be searched then, not listed.
    pub(super) fn give_pin(&self, ifindex: u32, uid: u32) -> anyhow::Result<PathBuf> {
        let entry = lock(&self.programs).get(&ifindex).cloned();
        let entry = entry.context("the device has no program")?;
        let pin = lock(&entry).pin.clone();
        let pin = pin.context("programs are not pinned without a BPF filesystem: see --bpffs")?;
        let map = Program::pinned_map(&pin);
        for directory in map.ancestors().skip(1).take(BELOW_BPFFS) {
            chmod(directory, rustix::fs::Mode::from_raw_mode(0o711))
                .with_context(|| format!("cannot set the mode of {}", directory.display()))?;
        }
        chown(&map, Some(Uid::from_raw(uid)), None)
            .with_context(|| format!("cannot give {} to uid {uid}", map.display()))?;
        Ok(map)
    }

    /// Takes the program of an earlier broker over.
    ///
    /// # Errors
    ///
    /// When there is none, with the reason.
    pub(super) fn restore(
        &self,
        device: &Device,
        filters: impl Iterator<Item = (u32, Vec<FilterRule>)>,
        given_to: Option<String>,
    ) -> xsk::Result<bool> {
        let Some(pin) = self.pin_of(device) else {
            return Ok(false);
        };
        let Some(program) = Program::open_pinned(&pin, &device.name)? else {
            return Ok(false);
        };
        let filters = filters.filter_map(|(queue, rules)| Some((queue, filter(&rules)?)));
        let entry = self.entry(device);
        let mut held = lock(&entry);
        held.filters = filters.collect();
        // It may still have those of leases that have ended, or that never began.
        let set = program.set_filters(&held.filters);
        held.program = Some(program);
        held.given_to = given_to;
        set.map(|()| true)
    }

    /// Unpins the programs of devices that have no lease.
    pub(super) fn unpin_others(&self, devices: &[String]) {
        let Some(pins) = &self.pins else { return };
        for directory in fs::read_dir(pins).into_iter().flatten().flatten() {
            let is_used = directory
                .file_name()
                .to_str()
                .is_some_and(|name| devices.iter().any(|device| device == name));
            if !is_used {
                remove_pins(&directory.path());
            }
        }
    }

    /// Detaches the programs of devices that have had no lease for some time.
    pub(super) fn tidy(&self, used: &[u32]) {
        self.detach(used, LINGER);
    }

    /// Detaches the programs of devices without a lease; those of others stay pinned.
    pub(super) fn close(&self, used: &[u32]) {
        self.detach(used, Duration::ZERO);
        if let Some(pins) = &self.pins {
            // Only when nothing is pinned.
            let _ = fs::remove_dir(pins);
            let _ = pins.parent().map(fs::remove_dir);
        }
    }

    fn detach(&self, used: &[u32], linger: Duration) {
        let mut programs = lock(&self.programs);
        programs.retain(|index, entry| {
            if used.contains(index) {
                return true;
            }
            // A lease that is about to begin has the lock.
            let Ok(mut held) = entry.try_lock() else {
                return true;
            };
            let idle = held.idle.get_or_insert_with(Instant::now).elapsed();
            if idle < linger {
                return true;
            }
            if let Some(pin) = &held.pin {
                remove_pins(pin);
            }
            false
        });
    }

    fn entry(&self, device: &Device) -> Arc<Mutex<DeviceProgram>> {
        let mut programs = lock(&self.programs);
        let entry = programs.entry(device.index).or_insert_with(|| {
            Arc::new(Mutex::new(DeviceProgram {
                program: None,
                filters: BTreeMap::new(),
                pin: self.pin_of(device),
                idle: None,
                given_to: None,
            }))
        });
        Arc::clone(entry)
    }

    fn pin_of(&self, device: &Device) -> Option<PathBuf> {
        // A device cannot be named `.`, `..`, or with a slash (`dev_valid_name`).
        Some(self.pins.as_ref()?.join(&device.name))
    }
}

impl DeviceProgram {
    /// Begins a lease. The map of another tenant is not used again, nor is its program.
    fn begin_for(&mut self, tenant: &str) {
        self.idle = None;
        if self.given_to.take_if(|other| other != tenant).is_some() {
            if let Some(pin) = &self.pin {
                remove_pins(pin);
            }
            self.program = None;
            self.filters.clear();
        }
    }

    fn prepare_map(
        &mut self,
        device: &Device,
        mode: AttachMode,
        filter: Option<&Filter>,
        tenant: &str,
    ) -> xsk::Result<()> {
        let queues = 0..device.rx_queues.max(device.tx_queues);
        self.attach(device, mode)?;
        self.set_filters(
            queues
                .filter_map(|queue| Some((queue, filter?.clone())))
                .collect(),
        )?;
        self.given_to = Some(tenant.to_owned());
        Ok(())
    }

    fn open(
        &mut self,
        device: &Device,
        queue: u32,
        mode: Mode,
        terms: &Terms<'_>,
        umem: &Umem,
    ) -> xsk::Result<Socket> {
        let request = terms.request;
        let socket_mode = match mode {
            Mode::ZeroCopy => xsk::Mode::ZeroCopy,
            Mode::Driver => xsk::Mode::Driver,
            Mode::Skb => xsk::Mode::Skb,
        };
        let slots = |wanted: bool| if wanted { request.rings } else { 0 };
        let mut builder = Socket::builder(umem, &device.name, queue)
            .mode(socket_mode)
            .rx_ring(slots(request.rx))
            .tx_ring(slots(request.tx))
            .fill_ring(request.rings)
            .completion_ring(request.rings)
            .wait(request.wait)
            // Others wait for this lock.
            .busy_timeout(Duration::ZERO);
        if request.rx {
            self.attach(device, attach_mode(mode))?;
            self.set_filter(queue, filter(&terms.grant.filter))?;
        }
        if let Some(program) = &self.program {
            builder = builder.program(program);
        }
        builder.open_to_give(device)
    }

    fn attach(&mut self, device: &Device, mode: AttachMode) -> xsk::Result<()> {
        if self.program.is_some() {
            return Ok(());
        }
        let program = Program::attach_to(&device.name, mode)?;
        self.filters.clear();
        if let Some(pin) = &self.pin {
            remove_pins(pin);
            let has_directory = fs::create_dir_all(pin).is_ok();
            // Without the pin the program ends with this broker: the log says so at its start.
            if !has_directory || program.pin(pin).is_err() {
                self.pin = None;
            }
        }
        self.program = Some(program);
        Ok(())
    }

    /// Sets a queue's filter, before a socket is on the queue.
    fn set_filter(&mut self, queue: u32, filter: Option<Filter>) -> xsk::Result<()> {
        let mut filters = self.filters.clone();
        match filter {
            Some(filter) => drop(filters.insert(queue, filter)),
            None => drop(filters.remove(&queue)),
        }
        self.set_filters(filters)
    }

    /// Sets the filters of all queues.
    fn set_filters(&mut self, filters: BTreeMap<u32, Filter>) -> xsk::Result<()> {
        if filters == self.filters {
            return Ok(());
        }
        if let Some(program) = &self.program {
            program.set_filters(&filters)?;
        }
        self.filters = filters;
        Ok(())
    }
}

/// The refusal of a device on which somebody else's program is.
fn occupied(device: &str) -> Refusal {
    let programs = Device::lookup(device)
        .map(|device| device.programs)
        .unwrap_or_default();
    let ids: Vec<_> = programs
        .iter()
        .map(|program| program.id.to_string())
        .collect();
    let ids = ids.join(", ");
    // Only CAP_SYS_ADMIN, which the broker gives up, sees the name.
    let message = format!(
        "{device} has an XDP program of another owner, id {ids}: `bpftool prog show id {ids}` names it, `bpftool link` its holder; end that one first"
    );
    Refusal::new(ErrorKind::ProgramAttached, message)
}

fn remove_pins(directory: &Path) {
    // The next broker finds pins that cannot be removed now.
    let _ = Program::unpin(directory);
    let _ = fs::remove_dir(directory);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The first mode that is possible.
fn first_possible<T>(
    device: &Device,
    modes: &[Mode],
    mut attempt: impl FnMut(Mode) -> xsk::Result<T>,
) -> Result<T, Refusal> {
    let mut refusals = Vec::new();
    for &mode in modes {
        let error = match attempt(mode) {
            Ok(it) => return Ok(it),
            Err(error) if error.kind() == ErrorKind::ProgramAttached => {
                return Err(occupied(&device.name));
            }
            Err(error) => error,
        };
        refusals.push(error.to_string());
        if !is_about_mode(&error) {
            return Err(Refusal::new(error.kind(), refusals.join("; ")));
        }
    }
    if refusals.is_empty() {
        refusals.push("no mode is granted".to_owned());
    }
    Err(Refusal::new(ErrorKind::ModeRefused, refusals.join("; ")))
}

fn attach_mode(mode: Mode) -> AttachMode {
    match mode {
        Mode::ZeroCopy | Mode::Driver => AttachMode::Driver,
        Mode::Skb => AttachMode::Skb,
    }
}

fn is_about_mode(error: &xsk::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ModeRefused | ErrorKind::MtuTooLarge | ErrorKind::Unsupported
    )
}

fn filter(rules: &[FilterRule]) -> Option<Filter> {
    (!rules.is_empty()).then(|| Filter::any(rules.iter().map(rule)))
}

fn rule(spec: &FilterRule) -> Rule {
    let mut rule = match spec.protocol {
        FilterProtocol::Ip => Rule::ip(),
        FilterProtocol::Udp => Rule::udp(),
        FilterProtocol::Tcp => Rule::tcp(),
        FilterProtocol::EtherType(ether_type) => Rule::ether_type(ether_type),
    };
    if let Some((address, len)) = spec.source {
        rule = rule.source(address, len);
    }
    if let Some((address, len)) = spec.destination {
        rule = rule.destination(address, len);
    }
    if let Some(port) = spec.source_port {
        rule = rule.source_port(port);
    }
    if let Some(port) = spec.destination_port {
        rule = rule.destination_port(port);
    }
    rule
}
