//! The programs of one bridge and their maps, as loaded into the kernel.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{ClockId, clock_gettime};
use zerocopy::IntoBytes as _;

use super::abi::{
    BUCKET_SLOTS, Bucket, Config, FdbKey, Features, Meter, PROBES, Port, PortCounters, PortVlans,
    Slot, VLANS, VlanCounters,
};
use super::fdb::Known;
use super::settings::MOST_ADDRESSES;
use super::table::{Full, Table};
use crate::bpf::hook::{NetLink, Place, TcFilter};
use crate::bpf::{Map, Object, Programs, clear_array_of};

/// The name of the program of a place.
const XDP: &str = "switch_xdp";
const TCX: &str = "switch_tcx";
/// The name of the map with the deadline.
const CONFIG: &str = "config";

/// The sizes of the maps, and what the programs have as constants: a change of either needs new programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Ports at most.
    pub ports: u32,
    /// Addresses at most.
    pub addresses: u32,
    /// The Ethernet type of the bridge's tags; none for a bridge that is not VLAN-aware.
    pub vlan_protocol: Option<u16>,
    /// Whether a port has a limit of addresses.
    pub mac_limits: bool,
}

impl Shape {
    /// Slots for each port, so that few devices compete for one.
    const SLOTS_A_PORT: u32 = 4;
    /// Addresses that can be let through before user space has counted them.
    const NEWCOMERS: u32 = 1 << 16;

    fn slots(&self) -> u32 {
        self.ports * Self::SLOTS_A_PORT
    }

    /// Buckets that are half full with so many addresses.
    fn buckets(&self) -> u32 {
        (self.addresses / BUCKET_SLOTS as u32 * 2).max(2)
    }

    fn sizes(&self) -> [(&'static str, u32); 9] {
        let by_vlan = |entries| {
            if self.vlan_protocol.is_some() {
                entries
            } else {
                1
            }
        };
        [
            ("slots", self.slots()),
            ("ports", self.ports),
            ("port_vlans", by_vlan(self.ports)),
            ("devices", self.ports),
            ("fdb", self.buckets()),
            ("meters", self.ports),
            (
                "newcomers",
                if self.mac_limits { Self::NEWCOMERS } else { 1 },
            ),
            ("counters", self.ports),
            ("vlan_counters", by_vlan(VLANS)),
        ]
    }
}

/// The programs of one bridge and their maps.
pub struct Datapath {
    programs: Programs,
    /// The sizes.
    pub shape: Shape,
    config: Map<u32, Config>,
    slots: Map<u32, Slot>,
    ports: Map<u32, Port>,
    port_vlans: Map<u32, PortVlans>,
    devices: Map<u32, u32>,
    table: Table,
    meters: Map<u32, Meter>,
    counters: Map<u32, PortCounters>,
    vlan_counters: Map<u32, VlanCounters>,
    now: Config,
    /// The slots in use, by device.
    used_slots: BTreeMap<u32, u32>,
}

/// Now, as the programs read the clock.
pub fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(
        now.tv_sec.try_into().unwrap_or_default(),
        now.tv_nsec.try_into().unwrap_or_default(),
    )
}

fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos().try_into().unwrap_or(u64::MAX)
}

impl Datapath {
    /// Loads the programs. They pass every frame to the kernel until [`Datapath::beat`].
    ///
    /// # Errors
    ///
    /// Without `CAP_BPF` and `CAP_NET_ADMIN`, and on a kernel that lacks what the object needs.
    pub fn load(object: &'static Object, shape: Shape) -> Result<Self> {
        let mut factor = [0; 8];
        getrandom(&mut factor, GetRandomFlags::empty()).context("cannot get random bytes")?;
        let features = Features {
            hash_factor: u64::from_ne_bytes(factor) | 1,
            bucket_mask: shape.buckets() - 1,
            hash_shift: u64::BITS - shape.buckets().ilog2(),
            slot_mask: shape.slots() - 1,
            vlan_protocol: shape.vlan_protocol.unwrap_or(0).to_be().into(),
        };
        let constants = features.as_bytes();
        let programs = Programs::load_sized(object, Some(constants), &shape.sizes(), |_| true)?;
        Ok(Self {
            config: programs.map(CONFIG)?,
            slots: programs.map("slots")?,
            ports: programs.map("ports")?,
            port_vlans: programs.map("port_vlans")?,
            devices: programs.map("devices")?,
            table: Table::new(
                programs.map::<u32, Bucket>("fdb")?.mapped_for_writing()?,
                features,
            ),
            meters: programs.map("meters")?,
            counters: programs.map("counters")?,
            vlan_counters: programs.map("vlan_counters")?,
            programs,
            shape,
            now: Config {
                epoch: 1,
                ..Config::default()
            },
            used_slots: BTreeMap::new(),
        })
    }

    /// Attaches the program of a place to a device.
    ///
    /// # Errors
    ///
    /// Those of [`NetLink::attach`].
    pub fn attach(&self, ifindex: u32, place: Place) -> io::Result<NetLink> {
        NetLink::attach(&self.programs, Self::program(place), ifindex, place)
    }

    /// Puts the program of a place into a link in the stead of another one.
    pub fn replace(&self, link: &NetLink, place: Place) -> Result<()> {
        link.replace(&self.programs, Self::program(place))
    }

    /// Attaches the program to ingress of `tc` where the kernel has no tcx, or replaces it there.
    pub fn attach_filter(&self, ifindex: u32) -> Result<TcFilter> {
        TcFilter::attach(&self.programs, TCX, ifindex)
    }

    fn program(place: Place) -> &'static str {
        match place {
            Place::Xdp => XDP,
            Place::Tcx => TCX,
        }
    }

    /// Runs the program of a place once on a frame that came from a device; returns its action and the
    /// frame as the program left it.
    pub fn run(&self, place: Place, ifindex: u32, frame: &[u8]) -> Result<(u32, Vec<u8>)> {
        match place {
            Place::Xdp => self.programs.run_xdp(XDP, ifindex, frame),
            Place::Tcx => self.programs.run_tc(TCX, ifindex, frame),
        }
    }

    fn write_config(&self) -> Result<()> {
        self.config.set(&0, &self.now)
    }

    /// Has a program of an earlier daemon pass every frame to the kernel from now on.
    pub fn pause_earlier(program: u32) -> Result<()> {
        // Without a deadline.
        clear_array_of(program, CONFIG)
    }

    /// Lets the programs forward for so long from now on.
    pub fn beat(&mut self, life: Duration) -> Result<()> {
        self.now.deadline = nanoseconds(now() + life);
        self.write_config()
    }

    /// Has the programs pass every frame to the kernel until the next beat.
    pub fn pause(&mut self) -> Result<()> {
        self.now.deadline = 0;
        self.write_config()
    }

    /// Has the kernel get the next frame from each address.
    pub fn begin_epoch(&mut self) -> Result<()> {
        self.now.epoch = self.now.epoch.wrapping_add(1);
        self.write_config()
    }

    /// Has one in so many forwarded frames sampled for so long from now on; 0 for none.
    pub fn sample(&mut self, one_in: u64, life: Duration) -> Result<()> {
        self.now.sample_one_in = one_in;
        self.now.sample_until = nanoseconds(now() + life);
        self.write_config()
    }

    /// The id of the map of samples.
    pub fn samples(&self) -> Result<u32> {
        self.programs.map::<(), ()>("samples")?.id()
    }

    /// Sets a port, which has the devices of `ifindexes`: its own, or those of a bond's legs too.
    ///
    /// # Errors
    ///
    /// Where a device finds no slot, which is rare.
    pub fn set_port(&mut self, number: u32, port: &Port) -> Result<()> {
        self.devices.set(&number, &port.ifindex).with_context(|| {
            format!(
                "cannot make device {} a target of redirection",
                port.ifindex
            )
        })?;
        self.ports.set(&number, port)?;
        self.add_slot(port.ifindex, number)
    }

    /// Changes the settings of a port that is there.
    pub fn change_port(&self, number: u32, port: &Port) -> Result<()> {
        self.ports.set(&number, port)
    }

    /// Has frames of a device count as the port's.
    pub fn add_slot(&mut self, ifindex: u32, number: u32) -> Result<()> {
        let mask = self.shape.slots() - 1;
        let slot = Slot {
            ifindex,
            port: number,
        };
        let old = self.used_slots.get(&ifindex).copied();
        let free = || {
            let tries = (0..PROBES).map(|probe| ifindex.wrapping_add(probe) & mask);
            let mut tries = tries.filter(|at| !self.used_slots.values().any(|used| used == at));
            tries.next()
        };
        let at = old.or_else(free).with_context(|| {
            format!("the map of devices has no room for the one with the index {ifindex}")
        })?;
        self.slots.set(&at, &slot)?;
        self.used_slots.insert(ifindex, at);
        Ok(())
    }

    /// Forgets a device.
    pub fn remove_slot(&mut self, ifindex: u32) -> Result<()> {
        match self.used_slots.remove(&ifindex) {
            Some(at) => self.slots.set(&at, &Slot::default()),
            None => Ok(()),
        }
    }

    /// Forgets a port and its devices.
    pub fn remove_port(&mut self, number: u32) -> Result<()> {
        self.ports.set(&number, &Port::default())?;
        let slots: Vec<u32> = self.used_slots.keys().copied().collect();
        for ifindex in slots {
            let at = self.used_slots[&ifindex];
            if self.slots.get(&at)?.is_some_and(|slot| slot.port == number) {
                self.remove_slot(ifindex)?;
            }
        }
        self.devices.remove(&number)
    }

    /// Sets the VLANs of a port.
    pub fn set_vlans(&self, number: u32, vlans: &PortVlans) -> Result<()> {
        if self.shape.vlan_protocol.is_none() {
            return Ok(());
        }
        self.port_vlans.set(&number, vlans)
    }

    /// Writes an address, which the programs do not use until [`Datapath::activate`].
    ///
    /// # Errors
    ///
    /// Where it finds no room.
    pub fn set_address(&self, key: FdbKey, place: Known) -> Result<(), Full> {
        // Ports have numbers below 1024.
        self.table
            .write(key, place.port as u16, place.ages, self.now.epoch)
    }

    /// Has the programs use an address.
    pub fn activate(&self, key: FdbKey) {
        self.table.activate(key);
    }

    /// Removes an address.
    pub fn remove_address(&self, key: FdbKey) {
        self.table.remove(key);
    }

    /// Whether the programs saw an address at another port than its own.
    pub fn has_moved(&self, key: FdbKey) -> bool {
        self.table.has_moved(key)
    }

    /// The addresses that were let through to a port's limit, see [`Meter`].
    pub fn newcomers(&self, number: u32) -> Result<u64> {
        Ok(self.meters.get(&number)?.unwrap_or_default().newcomers)
    }

    /// The counters of a port since the programs were loaded.
    pub fn counters(&self, number: u32) -> Result<PortCounters> {
        let values = self.counters.get_per_cpu(&number)?.unwrap_or_default();
        let mut sum = PortCounters::default();
        for value in values {
            sum.add(&value);
        }
        Ok(sum)
    }

    /// The counters of each VLAN that has any.
    pub fn vlan_counters(&self) -> Result<BTreeMap<u16, VlanCounters>> {
        if self.shape.vlan_protocol.is_none() {
            return Ok(BTreeMap::new());
        }
        let mut all = BTreeMap::new();
        for vid in 0..VLANS {
            let values = self.vlan_counters.get_per_cpu(&vid)?.unwrap_or_default();
            let packets = values.iter().map(|value| value.packets).sum();
            let bytes = values.iter().map(|value| value.bytes).sum();
            if packets > 0 {
                all.insert(vid as u16, VlanCounters { packets, bytes });
            }
        }
        Ok(all)
    }

    /// The id of the program of a place.
    pub fn program_id(&self, place: Place) -> Result<u32> {
        self.programs.id(Self::program(place))
    }
}

impl PortCounters {
    /// Adds other counters.
    pub fn add(&mut self, other: &Self) {
        self.rx_packets += other.rx_packets;
        self.rx_bytes += other.rx_bytes;
        self.tx_packets += other.tx_packets;
        self.tx_bytes += other.tx_bytes;
        for (sum, reason) in self.reasons.iter_mut().zip(other.reasons) {
            *sum += reason;
        }
    }
}

/// The shape for so many ports and addresses, with room to grow.
///
/// # Errors
///
/// For more ports than a bridge can have.
pub fn shape(
    ports: usize,
    addresses: usize,
    least_addresses: u32,
    vlan_protocol: Option<u16>,
    mac_limits: bool,
) -> Result<Shape> {
    /// `BR_MAX_PORTS` of `net/bridge/br_private.h`.
    const MOST_PORTS: u32 = 1024;
    const LEAST_PORTS: u32 = 64;
    let ports = u32::try_from(ports).unwrap_or(u32::MAX);
    ensure!(
        ports <= MOST_PORTS,
        "a bridge has at most {MOST_PORTS} ports, not {ports}"
    );
    let addresses = u32::try_from(addresses)
        .unwrap_or(u32::MAX)
        .max(least_addresses);
    Ok(Shape {
        ports: (ports + 1)
            .next_power_of_two()
            .clamp(LEAST_PORTS, MOST_PORTS),
        addresses: addresses.min(MOST_ADDRESSES).next_power_of_two(),
        vlan_protocol,
        mac_limits,
    })
}
