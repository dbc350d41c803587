//! Settings of a port, and opening it.

use super::affinity::{self, OnCpu};
use super::{Port, Queue, StopFlag};
use crate::builder::SocketBuilder;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::program::Program;
use crate::socket::{Fault, Socket};
use crate::umem::{Umem, UmemBuilder};
use hostnet::ethtool::{self, FlowRule, Steering};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Settings of a [`Port`]; see [`Port::builder`] and [the guide](crate::guide::queues).
///
/// ```no_run
/// use xsk::{Mode, Port, Umem};
///
/// # fn main() -> xsk::Result<()> {
/// let port = Port::builder("eth0")
///     .queues(0..4)
///     .umem(Umem::builder().chunks(8192))
///     .sockets(|socket| socket.mode(Mode::Driver).rx_ring(4096).fill_ring(4096))
///     .pin(|queue| queue as usize)
///     .open()?;
/// assert_eq!(port.queues().len(), 4);
/// # Ok(())
/// # }
/// ```
#[must_use = "call `open` to get the port"]
pub struct PortBuilder<'a> {
    device: &'a str,
    queues: Option<BTreeSet<u32>>,
    memory: Memory,
    /// The UMEMs of the port that the next one replaces, by queue.
    umems: BTreeMap<u32, Umem>,
    configure: Box<dyn FnMut(SocketBuilder) -> SocketBuilder + 'a>,
    cpu: Option<Box<dyn Fn(u32) -> usize + 'a>>,
    spread: bool,
    rules: Vec<FlowRule>,
}

/// The memory of a port's packets.
#[derive(Debug)]
enum Memory {
    /// A UMEM for each queue.
    Own(UmemBuilder),
    Shared(Umem),
}

impl<'a> PortBuilder<'a> {
    fn new(device: &'a str) -> Self {
        Self {
            device,
            queues: None,
            memory: Memory::Own(Umem::builder()),
            umems: BTreeMap::new(),
            configure: Box::new(|socket| socket),
            cpu: None,
            spread: false,
            rules: Vec::new(),
        }
    }

    /// The queues to open, such as `0..4`, counted from 0; one given twice counts once. Default: all
    /// receive queues that the device uses, while the XDP program is attached. Packets of other queues go to the network stack.
    pub fn queues(mut self, queues: impl IntoIterator<Item = u32>) -> Self {
        self.queues = Some(queues.into_iter().collect());
        self
    }

    /// A UMEM with these settings for each queue. Default: one with [`Umem::builder`]'s settings.
    ///
    /// So queues have no memory in common that their CPUs would contend for. With
    /// [`pin`](Self::pin), each UMEM is in the memory of its CPU's NUMA node. Frames of one queue cannot
    /// be sent through another.
    pub fn umem(mut self, umem: UmemBuilder) -> Self {
        self.memory = Memory::Own(umem);
        self
    }

    /// One UMEM for all queues, so that their sockets, and those of other devices on it, exchange
    /// packets without copying. The chunks that a socket keeps, in its cache and by the default of
    /// [`fill_chunks`](SocketBuilder::fill_chunks), are at most its part of the UMEM: give it as many
    /// chunks as one socket needs, times the number of sockets.
    pub fn shared_umem(mut self, umem: &Umem) -> Self {
        self.memory = Memory::Shared(umem.clone());
        self
    }

    /// Settings of each socket, called with its builder in ascending order of the queues. Default: those
    /// of [`Socket::builder`]. The program that the first socket attaches, with its filter, is for all. A builder of
    /// another device, queue or UMEM is refused.
    ///
    /// ```no_run
    /// # fn main() -> xsk::Result<()> {
    /// // A port that only sends: no program is attached.
    /// let port = xsk::Port::builder("eth0").sockets(|socket| socket.rx_ring(0)).open()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn sockets(mut self, configure: impl FnMut(SocketBuilder) -> SocketBuilder + 'a) -> Self {
        self.configure = Box::new(configure);
        self
    }

    /// The CPU of each queue's worker, counted from 0; several queues may have the same. Default: the
    /// workers run on any CPU.
    ///
    /// The CPU that handles the interrupts of a queue has its packets in the cache, and another one has
    /// more time: measure both.
    pub fn pin(mut self, cpu: impl Fn(u32) -> usize + 'a) -> Self {
        self.cpu = Some(Box::new(cpu));
        self
    }

    /// Spreads received packets by their hash over the port's queues alone (RSS, as `ethtool -X`), for
    /// as long as the port is open. Default: the device's table is left as it is, and may send packets to
    /// queues that the port does not have.
    pub fn spread(mut self) -> Self {
        self.spread = true;
        self
    }

    /// Adds a flow rule for as long as the port is open (as `ethtool -N`): packets that match go to the
    /// rule's queue, which is one of the port's.
    ///
    /// ```no_run
    /// use xsk::Port;
    /// use xsk::steering::{Addresses, FlowRule, Masked, Transport};
    ///
    /// # fn main() -> xsk::Result<()> {
    /// let dns = FlowRule {
    ///     transport: Transport::Udp,
    ///     addresses: Addresses::ANY_V4,
    ///     source_port: Masked::ANY_PORT,
    ///     destination_port: 53.into(),
    ///     ring: 3,
    /// };
    /// let port = Port::builder("eth0").queues([3]).steer(dns).open()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn steer(mut self, rule: FlowRule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Opens all sockets, then steers packets to them.
    ///
    /// # Errors
    ///
    /// Those of [`SocketBuilder::open`], [`Umem`]'s and those of a CPU that the process may not use, with
    /// the queue; [`ErrorKind::Unsupported`] when the driver has no RSS table or flow rules to change.
    /// Nothing is left open or changed.
    pub fn open(mut self) -> Result<Port> {
        self.open_port()
    }

    /// Replaces a port by a new one with these settings, if one of its sockets has a
    /// [fault](Socket::fault) that takes a new one, if the device has another number of queues and the port is
    /// for all, or if there is none. Returns whether there is a new port. As
    /// [`SocketBuilder::rebind`] does for one socket, it closes the old port first, which frees queues,
    /// program and steering, and keeps the UMEMs: frames stay valid, and packets in RX rings are lost, unless
    /// they are received before.
    ///
    /// ```no_run
    /// # fn main() -> xsk::Result<()> {
    /// let mut watch = xsk::DeviceWatch::new("eth0")?;
    /// let mut builder = xsk::Port::builder("eth0");
    /// let mut port = None;
    /// loop {
    ///     // A file descriptor to sleep on, with those of the sockets; here it is only asked.
    ///     if port.is_none() || watch.next()?.is_some() {
    ///         match builder.rebind(&mut port) {
    ///             Err(error) if !error.kind().may_pass() => return Err(error),
    ///             _ => {}
    ///         }
    ///     }
    ///     for socket in port.iter_mut().flat_map(xsk::Port::sockets_mut) {
    ///         socket.receive_each(64, |packet| packet.recycle());
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As those of [`open`](Self::open). There is no port then; [some may pass](ErrorKind::may_pass).
    pub fn rebind(&mut self, port: &mut Option<Port>) -> Result<bool> {
        if port.as_ref().is_some_and(|port| self.is_served_by(port)) {
            return Ok(false);
        }
        if let Some(port) = port.take() {
            let umem = |queue: &Queue| (queue.socket.queue(), queue.socket.umem().clone());
            self.umems.extend(port.queues.iter().map(umem));
        }
        *port = Some(self.open_port()?);
        Ok(true)
    }

    /// Whether an open port has all that a new one would have.
    fn is_served_by(&self, port: &Port) -> bool {
        let fault = |queue: &Queue| queue.socket.fault().is_some_and(Fault::needs_rebind);
        if port.queues.iter().any(fault) {
            return false;
        }
        let has_other_queues = |device: Device| device.rx_queues as usize != port.queues.len();
        self.queues.is_some() || !Device::lookup(self.device).is_ok_and(has_other_queues)
    }

    fn open_port(&mut self) -> Result<Port> {
        let mut chosen = self.choose_queues()?;
        let mut queues = self.open_queues(&chosen)?;
        // A driver may use more queues while it has a program (`virtnet_xdp_set`), and deliver to all.
        let now = self.choose_queues()?;
        if now.len() > chosen.len() {
            drop(queues);
            queues = self.open_queues(&now)?;
            chosen = now;
        }
        let steering = self.install(&chosen)?;
        self.umems.clear();
        Ok(Port {
            steering,
            queues,
            device: self.device.to_owned(),
            stop: StopFlag::default(),
        })
    }

    /// Opens a socket on each queue, all with the program of the first.
    fn open_queues(&mut self, chosen: &[u32]) -> Result<Vec<Queue>> {
        let cpus = self.choose_cpus(chosen)?;
        let mut queues: Vec<Queue> = Vec::with_capacity(chosen.len());
        for (&queue, cpu) in chosen.iter().zip(cpus) {
            let first = queues.first().and_then(|first| first.socket.program());
            let socket = self
                .open_socket(queue, chosen.len(), cpu, first)
                .map_err(|error| error.context(format_args!("queue {queue}")))?;
            queues.push(Queue { socket, cpu });
        }
        Ok(queues)
    }

    fn choose_queues(&self) -> Result<Vec<u32>> {
        let all = || Device::lookup(self.device).map(|device| (0..device.rx_queues).collect());
        let queues = self.queues.clone().map_or_else(all, Ok)?;
        if queues.is_empty() {
            return Err(Error::invalid(format!(
                "a port of {} without queues is not possible: give `queues` one at least",
                self.device
            )));
        }
        let leads_away = |rule: &&FlowRule| !queues.contains(&rule.ring);
        if let Some(rule) = self.rules.iter().find(leads_away) {
            return Err(Error::invalid(format!(
                "a flow rule leads to queue {} of {}, on which this port has no socket: add it to `queues`, or change the rule",
                rule.ring, self.device
            )));
        }
        Ok(queues.into_iter().collect())
    }

    fn choose_cpus(&self, queues: &[u32]) -> Result<Vec<Option<usize>>> {
        let Some(cpu) = &self.cpu else {
            return Ok(vec![None; queues.len()]);
        };
        let cpus: Vec<_> = queues.iter().map(|&queue| (queue, cpu(queue))).collect();
        affinity::check(&cpus)?;
        Ok(cpus.into_iter().map(|(_, cpu)| Some(cpu)).collect())
    }

    /// Opens the socket of one queue on its CPU, near which the kernel then allocates UMEM and rings.
    fn open_socket(
        &mut self,
        queue: u32,
        sockets: usize,
        cpu: Option<usize>,
        program: Option<&Program>,
    ) -> Result<Socket> {
        let _there = cpu.map(OnCpu::enter).transpose()?;
        let (umem, sharers) = match &self.memory {
            Memory::Own(builder) => {
                let kept = self.umems.get(&queue).cloned();
                (kept.map_or_else(|| builder.clone().build(), Ok)?, 1)
            }
            Memory::Shared(umem) => (umem.clone(), sockets as u32),
        };
        let socket = Socket::builder(&umem, self.device, queue).sharers(sharers);
        let socket = (self.configure)(socket);
        socket.check_place(&umem, self.device, queue)?;
        match program {
            Some(program) => socket.share_program(program).open(),
            None => socket.open(),
        }
    }

    /// Changes the RSS table and the flow rules.
    fn install(&self, queues: &[u32]) -> Result<Option<Steering>> {
        if !self.spread && self.rules.is_empty() {
            return Ok(None);
        }
        let host = |error: hostnet::Error| Error::host(&error);
        // Requests of ethtool do not take alternative names.
        let device = Device::lookup(self.device)?.name;
        let mut steering = Steering::open(&device).map_err(host)?;
        if self.spread {
            let rss = ethtool::rss(&device).map_err(host)?;
            let rss = rss.ok_or_else(|| no_rss(self.device))?;
            steering.set_table(&rss.spread(queues)).map_err(host)?;
        }
        for rule in &self.rules {
            steering.insert_rule(rule).map_err(host)?;
        }
        Ok(Some(steering))
    }
}

impl Port {
    /// A builder for sockets on all receive queues that `device` uses.
    pub fn builder(device: &str) -> PortBuilder<'_> {
        PortBuilder::new(device)
    }
}

fn no_rss(device: &str) -> Error {
    let message = format!(
        "the driver of {device} has no RSS table: leave `spread` out, and open all queues or lower their number with `ethtool -L {device}`"
    );
    Error::new(ErrorKind::Unsupported, message)
}

impl fmt::Debug for PortBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortBuilder")
            .field("device", &self.device)
            .field("queues", &self.queues)
            .field("memory", &self.memory)
            .field("spread", &self.spread)
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}
