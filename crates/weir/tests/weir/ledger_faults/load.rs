//! Frames as fast as the machine sends them, up to a million a second, to a socket whose program does not keep up:
//! while they flow, the unexplained rest lies within its own bound; when they have stopped, it is 0.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hostnet::ethtool::{self, Offload};
use weir::ledger::balance::{Method, balance_by};
use weir::ledger::sheet::Class;
use weir::traffic::frame::{APP_MAC, LOAD_MAC, Template};
use weir::traffic::programs::{Load, LoadOptions, Spread};

use crate::ledger_faults::LOOK;
use crate::ledger_faults::check::{describe_edge, settle};
use crate::ledger_faults::lab::{Lab, Place};
use crate::ledger_faults::socket::set_receive_buffer;

const PPS: u64 = 1_000_000;
const SIZE: usize = 64;
/// The discard port, to which the load sends.
const PORT: u16 = 9;
/// Runs of the program of the load in one call.
const RUNS: u32 = 1 << 18;
/// Between two sheets.
const INTERVAL: Duration = Duration::from_millis(500);

/// Loads a socket for so long, and prints the result.
pub fn run(duration: Duration) -> Result<()> {
    let lab = Lab::new()?;
    let receiver = receiver(&lab)?;
    let index = lab.left.index("l0")?;
    let mut load = lab.left.run(|| {
        Load::new(&LoadOptions {
            ifindex: index,
            size: SIZE,
            pps: Some(PPS),
            burst: 1,
            sink: None,
            spread: Spread::default(),
        })
    })?;
    let mut reader = lab.reader();
    let quiet = settle(&mut reader, |_| true)?;
    let (is_over, read) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut sheets, mut widest, mut complaints) = (0, 0, Vec::new());
    let begun = Instant::now();
    let outcome = thread::scope(|scope| {
        let sender = scope.spawn(|| send(&lab.left, &mut load, duration));
        scope.spawn(|| drain(&receiver, &read, &is_over));
        let mut watch = || -> Result<()> {
            let mut last = reader.snapshot()?;
            while !sender.is_finished() {
                thread::sleep(INTERVAL);
                let next = reader.snapshot()?;
                let sheet = balance_by(Method::default(), &last, &next)?;
                sheets += 1;
                for edge in &sheet.edges {
                    widest = widest.max(edge.bound);
                    if !edge.closes() {
                        complaints.push(describe_edge(edge));
                    }
                }
                last = next;
            }
            Ok(())
        };
        let watched = watch();
        let sent = sender.join();
        is_over.store(true, Ordering::Relaxed);
        watched.and(sent.map_err(|_| anyhow::anyhow!("the load panicked"))?)
    });
    let seconds = begun.elapsed().as_secs_f64();
    outcome?;
    // Unread datagrams stay in the queue.
    let end = settle(&mut reader, |_| true)?;
    let sheet = balance_by(Method::default(), &quiet, &end)?;
    for edge in sheet.edges.iter().filter(|edge| edge.unexplained != 0) {
        complaints.push(format!("at rest: {}", describe_edge(edge)));
    }
    let lost = sheet.losses.iter().filter(|it| it.class == Class::Lost);
    let lost: u64 = lost.map(|loss| loss.count).sum();
    let (sent, read) = (
        load.finish(0)?,
        read.load(Ordering::Relaxed) + rest(&receiver),
    );
    if sent != read + lost {
        complaints.push(format!("{sent} were sent, {read} read, rows have {lost}"));
    }
    println!(
        "load: {sent} frames in {seconds:.1} s ({:.0} a second), {read} read, {lost} lost in {} rows; \
         {sheets} sheets, bound at most {widest}",
        sent as f64 / seconds,
        sheet.losses.len(),
    );
    ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    Ok(())
}

/// A socket of `right` that the load's frames come to, with a device that takes redirected frames.
fn receiver(lab: &Lab) -> Result<UdpSocket> {
    let template = Template::new(SIZE, LOAD_MAC, APP_MAC)?;
    let octets: [u8; 4] = template.bytes()[30..34].try_into().context("an address")?;
    let address = Ipv4Addr::from(octets);
    let mac = APP_MAC.map(|byte| format!("{byte:02x}")).join(":");
    for words in [
        format!("ip link set r0 address {mac}"),
        format!("ip address add {address}/32 dev r0"),
    ] {
        lab.right.command(&words)?;
    }
    // The source of the frames has no route.
    lab.right.sysctl("ipv4/conf/all/rp_filter", "0")?;
    lab.right.sysctl("ipv4/conf/r0/rp_filter", "0")?;
    let source: [u8; 4] = template.bytes()[26..30].try_into().context("an address")?;
    let source = Ipv4Addr::from(source);
    lab.right
        .command(&format!("ip route replace {source}/32 dev r0"))?;
    lab.right
        .run(|| Ok(ethtool::set("r0", Offload::Gro, true)?))?;
    lab.right.run(|| {
        let socket = UdpSocket::bind((address, PORT))?;
        set_receive_buffer(&socket, 1 << 18)?;
        socket.set_read_timeout(Some(LOOK))?;
        Ok(socket)
    })
}

fn send(place: &Place, load: &mut Load, duration: Duration) -> Result<()> {
    place.run(|| {
        let begun = Instant::now();
        while begun.elapsed() < duration {
            load.send(RUNS)?;
        }
        Ok(())
    })
}

fn drain(socket: &UdpSocket, read: &AtomicU64, is_over: &AtomicBool) {
    let mut bytes = [0; SIZE];
    while !is_over.load(Ordering::Relaxed) {
        if socket.recv(&mut bytes).is_ok() {
            read.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Packets that wait in the queue.
fn rest(socket: &UdpSocket) -> u64 {
    let mut bytes = [0; SIZE];
    let mut count = 0;
    while socket.recv(&mut bytes).is_ok() {
        count += 1;
    }
    count
}
