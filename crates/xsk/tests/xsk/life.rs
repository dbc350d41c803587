//! The life of a socket under load: its device changes, leaves and returns, and its program goes, while
//! packets flow. Both sides keep their sockets as the guide's loop does. Afterwards packets flow again,
//! and no frame is missing.

use crate::budget::{STALL, rounds};
use crate::child::{Role, Started};
use crate::known::{disordered_by_full_ring, overtakes};
use crate::netns::{Lab, Side, are_cards, umem_builder};
use crate::traffic::all_home;
use crate::{Outcome, Result, modes, packet, rings};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};
use testkit::{Skip, Test, skip, wait_until};
use xsk::testing::programs;
use xsk::{DeviceEvent, DeviceWatch, Mode, Program, Socket, SocketBuilder};

/// Times that an event happens, at most, without `WEIR_TEST_LONG`.
const ROUNDS: u32 = 4;
/// Packets after which they flow.
const FLOWING: u64 = 256;
/// Packets that are sent at once.
const BURST: u32 = 32;
/// Packets that the receiver remembers.
const RECENT: usize = 1024;
/// Chunks of each side.
const CHUNKS: u32 = 2048;

/// An event, with packets under way.
type Disturb = fn(&Scene<'_>) -> Outcome;

pub fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for (prefix, mode) in modes() {
        let mut add = |event: &'static str, queues, disturb: Disturb| {
            tests.push(Test::new(format!("{prefix} life: {event}"), move || {
                live(prefix, event, mode, queues, disturb)
            }));
        };
        add("device down and up", 1, down_and_up);
        add("peer down and up", 1, peer_down_and_up);
        add("another MTU and back", 1, mtu);
        add("another name and back", 1, renamed);
        add("other rings and back", 1, card_rings);
        add("fewer queues and back", 2, queues);
        add("moved to another namespace and back", 1, moved);
        add("device deleted and made again", 1, deleted);
        add("program detached", 1, detached);
        add("program replaced", 1, replaced);
        add("process killed", 1, |_| Ok(()));
    }
    tests
}

/// The results, in the order of their ends.
static ROWS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Prints the results of all tests that ran, if any.
pub fn print_table() {
    let rows = ROWS.lock().expect("no test panics here");
    if rows.is_empty() {
        return;
    }
    println!(
        "{:<40} {:>7} {:>9} {:>8} {:>8} {:>22}",
        "event", "rounds", "packets", "missing", "sockets", "ms without traffic"
    );
    println!("{}\n", rows.join("\n"));
}

/// The results of one event's rounds.
#[derive(Default)]
struct Row {
    rounds: u32,
    packets: u64,
    missing: u32,
    sockets: u64,
    gaps: Vec<Duration>,
}

impl Row {
    fn add(&mut self, event: &str) {
        self.gaps.sort();
        let ms = |gap: Option<&Duration>| gap.map_or(0.0, |gap| gap.as_secs_f64() * 1e3);
        let gaps = format!(
            "{:.1} (most {:.1})",
            ms(self.gaps.get(self.gaps.len() / 2)),
            ms(self.gaps.last())
        );
        let row = format!(
            "{event:<40} {:>7} {:>9} {:>8} {:>8} {gaps:>22}",
            self.rounds, self.packets, self.missing, self.sockets
        );
        ROWS.lock().expect("no test panics here").push(row);
    }
}

/// The network of a test, and what its threads tell each other.
struct Scene<'l> {
    lab: &'l Lab,
    queues: u32,
    stop: AtomicBool,
    /// Packets received.
    packets: AtomicU64,
    /// The longest time without one since it was last reset, in nanoseconds.
    gap: AtomicU64,
    /// Sockets opened.
    sockets: AtomicU64,
    /// The receiver's program; not held for longer than it takes to disturb it.
    program: Mutex<Option<Program>>,
}

impl Scene<'_> {
    fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    /// Waits for packets from now on.
    fn flows(&self) -> bool {
        let until = self.packets() + FLOWING;
        // A card may take seconds for its link.
        wait_until(STALL * 2, || {
            self.stop.load(Ordering::Relaxed) || self.packets() >= until
        })
    }

    fn take_program(&self) -> Result<Program> {
        let mut program = None;
        wait_until(STALL, || {
            program = self.program.lock().expect("no panic").take();
            program.is_some()
        });
        Ok(program.ok_or("the receiver has no program")?)
    }
}

/// A socket that is kept, with the settings and the watch that keep it.
struct Kept<'s> {
    scene: &'s Scene<'s>,
    builder: SocketBuilder,
    watch: DeviceWatch,
    socket: Option<Socket>,
    /// Whether it has to be looked at.
    stale: bool,
}

impl<'s> Kept<'s> {
    fn new(scene: &'s Scene<'s>, device: &str, builder: SocketBuilder) -> xsk::Result<Self> {
        Ok(Self {
            scene,
            builder,
            watch: DeviceWatch::new(device)?,
            socket: None,
            stale: true,
        })
    }

    /// Rebinds if there were events or silence; returns whether there is a socket.
    fn keep(&mut self) -> xsk::Result<bool> {
        while let Some(event) = self.watch.next()? {
            assert_ne!(event, DeviceEvent::Overflow, "so few events");
            self.stale = true;
        }
        if !self.stale && self.socket.is_some() {
            return Ok(true);
        }
        match self.builder.rebind(&mut self.socket) {
            Ok(is_new) => {
                self.stale = false;
                self.scene
                    .sockets
                    .fetch_add(is_new.into(), Ordering::Relaxed);
                Ok(true)
            }
            Err(error) if error.kind().may_pass() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Sends bursts until the end; returns the error that ends it before.
fn send(scene: &Scene<'_>, device: &str, builder: SocketBuilder) -> xsk::Result<()> {
    let mut kept = Kept::new(scene, device, builder)?;
    let mut sequence = 0;
    while !scene.stop.load(Ordering::Relaxed) {
        let there = kept.keep()?;
        let Some(socket) = kept.socket.as_mut().filter(|_| there) else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        for _ in 0..BURST {
            let Some(mut frame) = socket.alloc() else {
                break;
            };
            packet::fill(&mut frame, 0, sequence, packet::MIN);
            sequence += 1;
            if socket.send(frame).is_err() {
                break;
            }
        }
        match socket.flush() {
            Err(error) if error.kind().may_pass() => std::thread::sleep(Duration::from_millis(1)),
            flushed => flushed?,
        }
        socket.reclaim();
        std::thread::sleep(Duration::from_micros(50));
    }
    Ok(())
}

/// Receives until the end, and checks each packet.
fn receive(scene: &Scene<'_>, device: &str, builder: SocketBuilder) -> xsk::Result<()> {
    let mut kept = Kept::new(scene, device, builder)?;
    let (mut next, mut last) = (0, Instant::now());
    let (mut recent, mut disorder) = (VecDeque::new(), None);
    // Asked once, since a slow receiver has its ring full.
    let overtakes = overtakes();
    while !scene.stop.load(Ordering::Relaxed) {
        let there = kept.keep()?;
        let Some(socket) = kept.socket.as_mut().filter(|_| there) else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        *scene.program.lock().expect("no panic") = socket.program().cloned();
        let waited = socket.wait(Duration::from_millis(5));
        // Nobody else may keep the program when the socket is closed.
        *scene.program.lock().expect("no panic") = None;
        // A program that is detached before the watch has seen it is no event, but silence.
        kept.stale |= !waited?;
        let mut batch = socket.recv(64);
        let count = batch.len() as u64;
        while let Some(received) = batch.next_packet() {
            let sequence = packet::intact(&received).expect("a packet as it was sent");
            if sequence < next {
                let is_again = recent.contains(&sequence);
                if !(overtakes && !is_again && sequence + 2 == next) {
                    disorder = Some((sequence, is_again));
                }
            }
            next = next.max(sequence + 1);
            recent.truncate(RECENT - 1);
            recent.push_front(sequence);
        }
        drop(batch);
        if let Some((sequence, is_again)) = disorder.take() {
            let full = socket.statistics()?.rx_ring_full;
            assert!(
                disordered_by_full_ring() && full > 0,
                "packet {sequence}, {}, behind {:?}; {full} were dropped as RX was full",
                if is_again { "again" } else { "late" },
                recent.iter().take(8).collect::<Vec<_>>()
            );
        }
        if count > 0 {
            let gap = last.elapsed().as_nanos() as u64;
            scene.gap.fetch_max(gap, Ordering::Relaxed);
            last = Instant::now();
            scene.packets.fetch_add(count, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Runs one side on a thread in its namespace. Its failure ends the test.
fn start<'scope, 's: 'scope>(
    scope: &'scope Scope<'scope, '_>,
    scene: &'s Scene<'s>,
    side: &'s Side,
    builder: SocketBuilder,
    run: fn(&Scene<'_>, &str, SocketBuilder) -> xsk::Result<()>,
) -> ScopedJoinHandle<'scope, xsk::Result<()>> {
    scope.spawn(move || {
        let _stop = StopAtEnd(&scene.stop);
        side.inside(|| run(scene, side.device, builder))
    })
}

struct StopAtEnd<'s>(&'s AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn most_rounds() -> u32 {
    let long = std::env::var_os("WEIR_TEST_LONG").is_some();
    if long { ROUNDS * 25 } else { ROUNDS }
}

/// Disturbs packets under way, some times.
fn live(prefix: &str, event: &str, mode: Mode, queues: u32, disturb: Disturb) -> Outcome {
    if are_cards() && matches!(event, "device deleted and made again") {
        return Err(skip("a card cannot be deleted"));
    }
    let umem = || umem_builder().chunks(CHUNKS).build();
    let (lab, from, to) = (Lab::with_queues(queues)?, umem()?, umem()?);
    let mut child = None;
    if event == "process killed" {
        let mut holder = Started::new(&lab.rx, Role::Hold, mode)?;
        assert_eq!(holder.line()?, "ready");
        child = Some(holder);
    }
    let scene = Scene {
        lab: &lab,
        queues,
        stop: AtomicBool::new(false),
        packets: AtomicU64::new(0),
        gap: AtomicU64::new(0),
        sockets: AtomicU64::new(0),
        program: Mutex::new(None),
    };
    let mut row = Row::default();
    std::thread::scope(|scope| -> Outcome {
        let builder = |umem, device| Socket::builder(umem, device, 0).mode(mode);
        let tx = builder(&from, "tx0");
        // Without a program some cards do not send in zero-copy mode.
        let tx = if are_cards() { tx } else { tx.rx_ring(0) };
        let sending = start(scope, &scene, &lab.tx, tx, send);
        let rx = builder(&to, "rx0").tx_ring(0);
        let mut receiving = None;
        let outcome = (|| -> Outcome {
            if let Some(holder) = &mut child {
                std::thread::sleep(Duration::from_millis(50));
                holder.kill()?;
            }
            receiving = Some(start(scope, &scene, &lab.rx, rx, receive));
            let most = if child.is_some() { 1 } else { most_rounds() };
            for _ in rounds(most) {
                if child.is_none() && !scene.flows() {
                    return Err("nothing flows before the event".into());
                }
                scene.gap.store(0, Ordering::Relaxed);
                disturb(&scene)?;
                if !scene.flows() {
                    return Err("nothing flows after the event".into());
                }
                let gap = scene.gap.load(Ordering::Relaxed);
                row.gaps.push(Duration::from_nanos(gap));
                row.rounds += 1;
                row.missing += from.accounting().retired + to.accounting().retired;
            }
            Ok(())
        })();
        scene.stop.store(true, Ordering::Relaxed);
        // The error of a side is the cause of a test's.
        sending.join().map_err(|_| "the sender panicked")??;
        if let Some(receiving) = receiving {
            receiving.join().map_err(|_| "the receiver panicked")??;
        }
        outcome
    })?;
    row.packets = scene.packets();
    row.sockets = scene.sockets.load(Ordering::Relaxed);
    row.add(&format!("{prefix} {event}"));
    if mode != Mode::ZeroCopy {
        assert_eq!(row.missing, 0, "frames are missing");
    }
    all_home(&from);
    all_home(&to);
    Ok(())
}

fn down_and_up(scene: &Scene<'_>) -> Outcome {
    set(&scene.lab.rx, "down")?;
    std::thread::sleep(Duration::from_millis(20));
    set(&scene.lab.rx, "up")
}

fn peer_down_and_up(scene: &Scene<'_>) -> Outcome {
    set(&scene.lab.tx, "down")?;
    std::thread::sleep(Duration::from_millis(20));
    set(&scene.lab.tx, "up")
}

fn set(side: &Side, setting: &str) -> Outcome {
    Ok(side.ip(&format!("link set dev {} {setting}", side.device))?)
}

/// Of the card, which resets.
fn card_rings(scene: &Scene<'_>) -> Outcome {
    let side = &scene.lab.rx;
    drop(rings::resize(side, |found| {
        let (rx, tx) = found.now;
        (if rx < found.most.0 { rx * 2 } else { rx / 2 }, tx)
    })?);
    Ok(())
}

fn mtu(scene: &Scene<'_>) -> Outcome {
    set(&scene.lab.rx, "mtu 1400")?;
    set(&scene.lab.rx, "mtu 1500")
}

/// A device that is up is renamed since Linux 6.2 only.
fn renamed(scene: &Scene<'_>) -> Outcome {
    let side = &scene.lab.rx;
    let (name, other) = (side.device, "xsk-other");
    let ip = |change: String| side.ip(&format!("link set dev {change}"));
    ip(format!("{name} down"))?;
    ip(format!("{name} name {other} up"))?;
    ip(format!("{other} down"))?;
    Ok(ip(format!("{other} name {name} up"))?)
}

/// The sockets have queue 0, which stays; the kernel does not remove the queue of a socket.
fn queues(scene: &Scene<'_>) -> Outcome {
    let Scene { lab, queues, .. } = scene;
    let fewer = queues - 1;
    if are_cards() {
        let set = |combined| {
            let change = format!("-L {} combined {combined}", lab.rx.device);
            lab.rx.run("ethtool", &change)
        };
        set(fewer).map_err(|error| Skip::new(error.to_string()))?;
        return Ok(set(*queues)?);
    }
    let set = |side: &Side, rx, tx| {
        let device = side.device;
        side.run("ethtool", &format!("-L {device} rx {rx} tx {tx}"))
    };
    // A side with a native program has a queue for each that its peer sends on.
    set(&lab.tx, *queues, fewer)?;
    set(&lab.rx, fewer, fewer)?;
    set(&lab.tx, fewer, fewer)?;
    set(&lab.rx, *queues, fewer)?;
    set(&lab.tx, *queues, *queues)?;
    Ok(set(&lab.rx, *queues, *queues)?)
}

fn moved(scene: &Scene<'_>) -> Outcome {
    let (here, there) = (&scene.lab.rx, Side::new("rx0")?);
    set(here, &format!("netns {}", there.path()))?;
    set(&there, &format!("netns {}", here.path()))?;
    set(here, "up")
}

fn deleted(scene: &Scene<'_>) -> Outcome {
    scene.lab.rx.ip("link delete dev rx0")?;
    scene.lab.add_veths(scene.queues)
}

fn detached(scene: &Scene<'_>) -> Outcome {
    Ok(programs::detach(&scene.take_program()?)?)
}

fn replaced(scene: &Scene<'_>) -> Outcome {
    Ok(programs::replace(&scene.take_program()?)?)
}
