//! Two tenants on two queues of a network card, or of a veth where there is none: `./run guests --broker`
//! runs this on emulated cards.

use crate::ensure;
use crate::lab::{Broker, Lab, tenant_of, wait_until};
use crate::supervised::Result;
use hostnet::rtnetlink::Rtnetlink;
use hostnet::{ethtool, netns};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testkit::{Limit, Process, Side, Test, skip, tests};
use xsk::{Device, Mode, Socket, Umem, Wait};

pub fn tests() -> Vec<Test> {
    tests![
        flows_go_to_the_tenant_of_their_queue_and_filter,
        a_killed_tenants_queue_is_leased_again,
        no_packet_is_lost_without_a_broker,
        the_confinement_is_reported,
    ]
}

/// The environment variable with the paths of two namespaces, in which the devices `rx0` and `tx0` are
/// joined; the broker is in the first.
const CARDS: &str = "WEIR_BROKER_TEST_CARDS";
/// The mode of the tenants' sockets, in the policy's words.
const MODE: &str = "WEIR_BROKER_TEST_MODE";
/// Says that the card keeps no flow to the queue that its RSS table has for it.
const NO_RSS: &str = "WEIR_BROKER_TEST_NO_RSS";

/// In the refusal of a kernel that cannot do it.
const OLD_KERNEL: &str = "Linux 6.4 or later is needed";

/// Longest time until a card has its link again, which some lose when a program is attached.
const LINK: Duration = Duration::from_secs(20);
/// Longest time until a packet is back. An emulated machine may stand still meanwhile.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long packets that nobody should return are waited for.
const SILENCE: Duration = Duration::from_millis(500);

/// Users of the tenants, who have the queue of the same index, and packets to the port of it.
const USERS: [u32; 2] = [20_001, 20_002];
/// The last one is nobody's.
const PORTS: [u16; 3] = [7001, 7002, 7003];
/// Flows to each port, by their source address.
const FLOWS: u8 = 16;
/// Packets of each flow in a test.
const PACKETS: u32 = 64;
/// Times that something is killed.
const ROUNDS: u32 = 5;

/// A flow: an index of [`PORTS`] and the source address.
type Flow = (usize, u8);

/// The broker's device and its peer.
struct Card {
    lab: Lab,
    broker_device: &'static str,
    peer_device: &'static str,
    /// Queues of the broker's device, two at most.
    queues: u32,
}

impl Card {
    fn new() -> Result<Self> {
        let (lab, broker_device, peer_device) = match std::env::var(CARDS) {
            Ok(paths) => {
                let (ours, peer) = paths.split_once(',').ok_or("two namespaces")?;
                let open = |path, device| -> Result<Side> {
                    Ok(Side::of(netns::open(Path::new(path))?, device))
                };
                let lab = Lab::of(open(ours, "rx0")?, open(peer, "tx0")?)?;
                (lab, "rx0", "tx0")
            }
            Err(_) => (Lab::new(2)?, "wan0", "peer0"),
        };
        let mut card = Self {
            lab,
            broker_device,
            peer_device,
            queues: 0,
        };
        card.queues = card.device()?.rx_queues.min(2);
        Ok(card)
    }

    fn device(&self) -> Result<Device> {
        Ok(self.lab.at_broker(|| Device::lookup(self.broker_device))?)
    }

    /// A tenant for each queue.
    fn policy(&self) -> String {
        let mode = std::env::var(MODE).unwrap_or_else(|_| "drv".into());
        let device = self.broker_device;
        let tenants = USERS.iter().zip(PORTS).enumerate();
        let tenants = tenants.map(|(queue, (user, port))| {
            format!(
                r#"
[[tenant]]
name = "tenant-{queue}"
uid = [{user}]
[[tenant.device]]
name = "{device}"
queues = "{queue}"
lease = ["rx", "tx"]
modes = ["{mode}"]
memory = "1 MiB"
filter = [ {{ protocol = "udp", destination-port = {port} }} ]
"#
            )
        });
        tenants.collect()
    }

    /// The tenant of a queue, which returns its packets.
    fn tenant(&self, queue: usize) -> Result<Process> {
        let number = queue.to_string();
        let mut tenant = tenant_of(
            &self.lab,
            USERS[queue],
            "echo",
            &[self.broker_device, &number],
        )?;
        let line = tenant.line()?;
        if line.contains(OLD_KERNEL) {
            return Err(skip(format!("sockets that are lent: {OLD_KERNEL}")));
        }
        ensure!(
            line.starts_with("ready"),
            "tenant {queue}: {line}\n{}",
            self.log()
        );
        println!("tenant {queue}: {line}");
        Ok(tenant)
    }

    fn tenants(&self) -> Result<Vec<Process>> {
        let tenants = (0..self.queues as usize).map(|queue| self.tenant(queue));
        let tenants = tenants.collect::<Result<_>>()?;
        self.wait_for_link()?;
        Ok(tenants)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.lab.path("log")).unwrap_or_default()
    }

    /// Waits until both devices have their link.
    fn wait_for_link(&self) -> Result<()> {
        let (began, mut limit) = (Instant::now(), Limit::new(LINK));
        let ends = [
            (&self.lab.namespace, self.broker_device),
            (&self.lab.peer, self.peer_device),
        ];
        for (namespace, device) in ends {
            use std::os::fd::AsFd as _;
            let is_running = || {
                let link = netns::run_in(namespace.as_fd(), || Rtnetlink::open()?.link(device));
                link.is_ok_and(|link| link.running)
            };
            while !is_running() {
                ensure!(!limit.is_over(), "{device} has no link");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        let waited = began.elapsed().as_millis();
        println!("links: up after {waited} ms");
        Ok(())
    }

    /// Sends all flows to these queues in turn, by the RSS table; returns whether the card does so.
    fn spread(&self, queues: &[u32]) -> Result<bool> {
        let device = self.broker_device;
        let done = self.lab.at_broker(|| -> hostnet::Result<bool> {
            let Some(rss) = ethtool::rss(device)? else {
                return Ok(false);
            };
            ethtool::set_rss_table(device, &rss.spread(queues))?;
            Ok(std::env::var_os(NO_RSS).is_none())
        });
        Ok(done?)
    }

    fn peer(&self) -> Result<Peer> {
        let device = self.peer_device;
        let sockets = self.lab.at_peer(|| -> xsk::Result<_> {
            let mut sockets: Vec<Socket> = Vec::new();
            for queue in 0..Device::lookup(device)?.rx_queues {
                let umem = Umem::builder().chunks(1024).build()?;
                // With a program in the driver the card would have no link for a while.
                let builder = Socket::builder(&umem, device, queue)
                    .mode(Mode::Skb)
                    .wait(Wait::Poll);
                let program = sockets.first().and_then(|socket| socket.program());
                let builder = match program {
                    Some(program) => builder.program(program),
                    None => builder,
                };
                let socket = builder.open()?;
                sockets.push(socket);
            }
            Ok(sockets)
        });
        Ok(Peer { sockets: sockets? })
    }
}

/// The sockets of the other device.
struct Peer {
    sockets: Vec<Socket>,
}

impl Peer {
    /// Sends packet `number` of each flow, and returns the flows whose packet came back, when as many
    /// as expected did or after some time.
    fn exchange(
        &mut self,
        flows: &BTreeSet<Flow>,
        number: u32,
        expected: usize,
        patience: Duration,
    ) -> Result<BTreeSet<Flow>> {
        for &flow in flows {
            self.send(&datagram(flow, number))?;
        }
        let mut back = BTreeSet::new();
        let mut limit = Limit::new(patience);
        loop {
            for socket in &mut self.sockets {
                socket.wait(Duration::ZERO)?;
                let mut batch = socket.recv(64);
                while let Some(packet) = batch.next_packet() {
                    let flow = check(&packet, number)?;
                    ensure!(back.insert(flow), "{flow:?} came back twice");
                }
                drop(batch);
                socket.flush()?;
            }
            if back.len() >= expected || limit.is_over() {
                return Ok(back);
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let socket = self.sockets.first_mut().ok_or("a socket")?;
        socket.reclaim();
        let mut frame = socket.alloc().ok_or("a frame")?;
        frame.fill_with(bytes)?;
        socket
            .send(frame)
            .map_err(|unsent| unsent.kind.to_string())?;
        Ok(socket.flush().map(drop)?)
    }

    /// The flows that some tenant returns now.
    fn find_flows(&mut self) -> Result<BTreeSet<Flow>> {
        let all = all_flows();
        let impossible = all.len() + 1;
        self.exchange(&all, 0, impossible, SILENCE)
    }

    /// Sends packets of flows until told to stop.
    fn stream(&mut self, flows: &BTreeSet<Flow>, stop: &AtomicBool) -> Result<Streamed> {
        let mut streamed = Streamed::default();
        let mut number = 1;
        while !stop.load(Ordering::Relaxed) {
            let back = self.exchange(flows, number, flows.len(), PATIENCE)?;
            ensure!(back.is_subset(flows), "{back:?} of {flows:?}");
            streamed.sent += flows.len();
            streamed.missing += flows.len() - back.len();
            number += 1;
        }
        Ok(streamed)
    }

    /// Does something while packets of flows are sent.
    fn stream_during<T>(
        &mut self,
        flows: &BTreeSet<Flow>,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<(T, Streamed)> {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let stream =
                scope.spawn(|| self.stream(flows, &stop).map_err(|error| error.to_string()));
            let done = work();
            stop.store(true, Ordering::Relaxed);
            let streamed = stream.join().map_err(|_| "the sender panicked")?;
            Ok((done?, streamed?))
        })
    }
}

/// Packets that were sent to tenants.
#[derive(Debug, Default)]
struct Streamed {
    sent: usize,
    missing: usize,
}

fn all_flows() -> BTreeSet<Flow> {
    let ports = 0..PORTS.len();
    ports
        .flat_map(|port| (0..FLOWS).map(move |flow| (port, flow)))
        .collect()
}

/// Flows to a tenant.
fn flows_to(tenant: usize, flows: &BTreeSet<Flow>) -> BTreeSet<Flow> {
    let mut flows = flows.clone();
    flows.retain(|(port, _)| *port == tenant);
    flows
}

/// Length of the packets, and of their Ethernet, IPv4 and UDP headers.
const LENGTH: usize = 96;
const HEADERS: usize = 14 + 20 + 8;

/// Packet `number` of a flow.
fn datagram((port, flow): Flow, number: u32) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0xff, 8, 0]);
    let length = (LENGTH - 14) as u8;
    let source = flow + 1;
    bytes[14..34].copy_from_slice(&[
        0x45, 0, 0, length, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 1, source, 10, 0, 0, 1,
    ]);
    let sum: u32 = bytes[14..34]
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    bytes[24..26].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    bytes[34..36].copy_from_slice(&(1024 + u16::from(flow)).to_be_bytes());
    bytes[36..38].copy_from_slice(&PORTS[port].to_be_bytes());
    bytes[38..40].copy_from_slice(&u16::from(length - 20).to_be_bytes());
    bytes[HEADERS] = port as u8;
    bytes[HEADERS + 1] = flow;
    bytes[HEADERS + 2..HEADERS + 6].copy_from_slice(&number.to_be_bytes());
    for (at, byte) in bytes.iter_mut().enumerate().skip(HEADERS + 6) {
        *byte = (number.wrapping_mul(31) as usize + usize::from(flow) * 7 + port + at) as u8;
    }
    bytes
}

/// The flow of a packet that came back, unless a byte of it is not as it was sent.
fn check(packet: &[u8], number: u32) -> Result<Flow> {
    let fields = packet.get(HEADERS..HEADERS + 2).ok_or("a short packet")?;
    let flow = (usize::from(fields[0]), fields[1]);
    ensure!(
        flow.0 < PORTS.len() && packet[12..] == datagram(flow, number)[12..],
        "not packet {number} of a flow: {packet:x?}"
    );
    Ok(flow)
}

/// Packets that a tenant has counted since it began.
fn count(tenant: &mut Process) -> Result<usize> {
    tenant.say("count")?;
    let line = tenant.line()?;
    let count = line.strip_prefix("count ").ok_or_else(|| line.clone())?;
    Ok(count.parse()?)
}

fn flows_go_to_the_tenant_of_their_queue_and_filter() -> Result<()> {
    let card = Card::new()?;
    let broker = Broker::start(&card.lab, &card.policy())?;
    let mut tenants = card.tenants()?;
    let mut peer = card.peer()?;
    let mut totals = vec![0; tenants.len()];
    let tables: &[&[u32]] = match card.queues {
        2 if card.spread(&[0])? => &[&[0], &[1], &[0, 1]],
        _ => &[&[0]],
    };
    for table in tables {
        let obeys = card.spread(table)?;
        let found = peer.find_flows()?;
        let mut back = found.len();
        for number in 1..PACKETS {
            let now = peer.exchange(&all_flows(), number, found.len(), PATIENCE)?;
            ensure!(
                now == found,
                "packet {number}: {now:?} instead of {found:?}"
            );
            back += now.len();
        }
        let sent = all_flows().len() * PACKETS as usize;
        let spread = if obeys {
            format!("RSS table {table:?}")
        } else {
            "as the device spreads them".into()
        };
        println!("{spread}: {sent} packets sent, {back} returned");
        ensure!(flows_to(2, &found).is_empty(), "nobody's packets came back");
        for (tenant, total) in totals.iter_mut().enumerate() {
            let own = flows_to(tenant, &found).len();
            *total += own * PACKETS as usize;
            let counted = count(&mut tenants[tenant])?;
            println!(
                "  tenant {tenant}: {own} of {FLOWS} flows to port {}, {counted} packets in all",
                PORTS[tenant]
            );
            ensure!(
                counted == *total,
                "tenant {tenant} got {counted}, {total} were its own"
            );
            let queue = tenant as u32;
            let expected = match table {
                _ if !obeys => continue,
                [one] if *one == queue => FLOWS.into(),
                [_] => 0,
                _ => own.clamp(1, usize::from(FLOWS) - 1),
            };
            ensure!(
                own == expected,
                "tenant {tenant} has {own} flows, not {expected}"
            );
        }
    }
    card.spread(&(0..card.queues).collect::<Vec<_>>())?;
    drop(tenants);
    broker.stop()
}

/// Whether the kernel has not let go of a queue yet.
fn is_busy(refusal: &dyn std::error::Error) -> bool {
    refusal.to_string().contains("EBUSY")
}

fn a_killed_tenants_queue_is_leased_again() -> Result<()> {
    let card = Card::new()?;
    let broker = Broker::start(&card.lab, &card.policy())?;
    let mut tenants = card.tenants()?;
    let mut peer = card.peer()?;
    let is_spread = card.spread(&(0..card.queues).collect::<Vec<_>>())?;
    let found = peer.find_flows()?;
    let (own, others) = (flows_to(0, &found), flows_to(1, &found));
    ensure!(!own.is_empty(), "no flow is the first tenant's");
    ensure!(
        !is_spread || card.queues < 2 || !others.is_empty(),
        "none is the second's"
    );
    for round in 1..=ROUNDS {
        let first = &mut tenants[0];
        let (times, streamed) = peer.stream_during(&others, || {
            std::thread::sleep(Duration::from_millis(200));
            let began = Instant::now();
            first.kill()?;
            let left = card.queues as usize - 1;
            ensure!(wait_until(|| broker.leases() == left), "{}", broker.log());
            let free = began.elapsed();
            // The kernel lets go of the queue late where others have the CPUs.
            *first = loop {
                match card.tenant(0) {
                    Err(error) if is_busy(&*error) && began.elapsed() < LINK => {}
                    tenant => break tenant?,
                }
            };
            let again = began.elapsed();
            std::thread::sleep(Duration::from_millis(200));
            Ok((free, again))
        })?;
        println!(
            "kill -9 {round}: free after {} ms, leased again after {} ms; the other tenant missed {} of {}",
            times.0.as_millis(),
            times.1.as_millis(),
            streamed.missing,
            streamed.sent
        );
        ensure!(streamed.missing == 0, "the other tenant lost packets");
        for number in 1..PACKETS {
            let back = peer.exchange(&own, number, own.len(), PATIENCE)?;
            ensure!(
                back == own,
                "packet {number} after the kill: {back:?} instead of {own:?}"
            );
        }
    }
    drop(tenants);
    broker.stop()
}

fn no_packet_is_lost_without_a_broker() -> Result<()> {
    let card = Card::new()?;
    let mut broker = Broker::start(&card.lab, &card.policy())?;
    let tenants = card.tenants()?;
    let mut peer = card.peer()?;
    card.spread(&(0..card.queues).collect::<Vec<_>>())?;
    let found = peer.find_flows()?;
    ensure!(!found.is_empty(), "no flow is a tenant's");
    let ((), streamed) = peer.stream_during(&found, || {
        for signal in [Signal::KILL, Signal::TERM]
            .iter()
            .cycle()
            .take(ROUNDS as usize)
        {
            std::thread::sleep(Duration::from_millis(300));
            broker.process.signal(*signal)?;
            broker.process.wait()?;
            std::thread::sleep(Duration::from_millis(300));
            broker = Broker::again(&card.lab)?;
            ensure!(broker.leases() == tenants.len(), "{}", broker.log());
        }
        std::thread::sleep(Duration::from_millis(300));
        Ok(())
    })?;
    println!(
        "{ROUNDS} ends and starts of the broker: {} packets sent to {} flows, {} missing",
        streamed.sent,
        found.len(),
        streamed.missing
    );
    ensure!(streamed.sent > 0 && streamed.missing == 0, "{streamed:?}");
    drop(tenants);
    broker.stop()
}

fn the_confinement_is_reported() -> Result<()> {
    // In a guest the root is an initramfs.
    let card = Card::new()?;
    let broker = Broker::start(&card.lab, &card.policy())?;
    let report = || {
        let log = broker.log();
        let start = log.lines().find(|line| line.contains("\"confinement\""));
        start.map(str::to_owned)
    };
    ensure!(wait_until(|| report().is_some()), "{}", broker.log());
    println!("{}", report().unwrap_or_default());
    let tenants = card.tenants()?;
    let status = broker.status()?;
    let holder = &status["leases"][0]["holders"][0]["pid"];
    ensure!(
        *holder == tenants[0].id(),
        "the broker sees no holder: {status}"
    );
    drop(tenants);
    broker.stop()
}
