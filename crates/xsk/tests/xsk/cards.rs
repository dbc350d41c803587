//! Tests of a whole card, or a veth: its mode, traffic with a peer outside of this machine, resets, and
//! queues. `./run guests` runs them on emulated cards.

use crate::budget::STALL;
use crate::netns::{Lab, Side, umem_builder};
use crate::outside::{Outside, Questions};
use crate::traffic::{all_home, deliver, deliver_within, drain};
use crate::{Outcome, modes, packet, rings};
use rustix::io::Errno;
use std::time::Duration;
use testkit::{Test, wait_until};
use xsk::{Mode, Refusal, Socket, Umem};

/// Packets of a test with a peer outside.
const PACKETS: u64 = 20_480;
/// Packets in flight in such a test: fewer than any ring has slots.
const BURST: u64 = 128;
/// Chunks in a UMEM.
const CHUNKS: u32 = 1024;

pub fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    if let Ok(expected) = std::env::var("XSK_TEST_OBTAINS") {
        tests.push(Test::new("auto obtains the best mode", move || {
            auto_obtains(&expected)
        }));
    }
    let rates = std::env::var_os("XSK_TEST_RATES").is_some();
    for (prefix, mode) in modes() {
        let mut add = |name, body: fn(Mode) -> Outcome| {
            tests.push(Test::new(format!("{prefix} {name}"), move || body(mode)));
        };
        add("receive from outside", receive);
        add("forward from outside and back", forward);
        add("send to outside", send);
        add("resets lose no chunk", resets);
        add("all chunks are received into", all_chunks);
        add("few chunks to receive into", few_chunks);
        add("flows keep to a queue", flows);
        if rates {
            add("rates", crate::rates::measure);
        }
    }
    tests
}

fn umem() -> xsk::Result<Umem> {
    umem_builder().chunks(CHUNKS).build()
}

/// The mode by default, with every better one refused as not supported.
fn auto_obtains(expected: &str) -> Outcome {
    let (umem, lab) = (umem()?, Lab::new()?);
    let socket = lab.rx.open(&umem, Mode::Auto, |builder| builder)?;
    assert_eq!(socket.mode().to_string(), expected);
    let refused: Vec<(Mode, Option<i32>)> = socket
        .refusals()
        .iter()
        .filter_map(|refusal| match refusal {
            Refusal::Mode(mode, error) => Some((*mode, error.errno())),
            _ => None,
        })
        .collect();
    let not_supported = Some(Errno::OPNOTSUPP.raw_os_error());
    // Without native XDP there is no zero-copy to ask for.
    let better = match expected {
        "zc" => vec![],
        "drv" => vec![(Mode::ZeroCopy, not_supported)],
        _ => vec![(Mode::Driver, not_supported)],
    };
    assert_eq!(refused, better);
    Ok(())
}

fn receive(mode: Mode) -> Outcome {
    let (umem, outside) = (umem()?, Outside::new()?);
    let mut socket = outside.near.open(&umem, mode, |builder| builder)?;
    let mut questions = Questions::default();
    let mut next = 0;
    for first in (0..PACKETS).step_by(BURST as usize) {
        questions.send(&mut socket, first, BURST, |received| {
            assert_eq!(received.len(), packet::MIN);
            packet::check(&received, next);
            next += 1;
        });
        assert_eq!(next, first + BURST, "packets are missing");
    }
    drain(&mut socket);
    drop(socket);
    all_home(&umem);
    outside.end()
}

fn forward(mode: Mode) -> Outcome {
    let (umem, outside) = (umem()?, Outside::new()?);
    let mut socket = outside.near.open(&umem, mode, |builder| builder)?;
    let mut questions = Questions::default();
    questions.expect(&mut socket);
    for first in (0..PACKETS).step_by(BURST as usize) {
        questions.send(&mut socket, first, BURST, |received| {
            assert!(
                received.send().is_ok(),
                "room in the ring for all in flight"
            );
        });
        assert_eq!(questions.count(&mut socket), (first + BURST, 0));
    }
    drain(&mut socket);
    drop(socket);
    all_home(&umem);
    outside.end()
}

fn send(mode: Mode) -> Outcome {
    let (umem, outside) = (umem()?, Outside::new()?);
    let mut socket = outside.near.open(&umem, mode, |builder| builder)?;
    let mut questions = Questions::default();
    questions.expect(&mut socket);
    for first in (0..PACKETS).step_by(BURST as usize) {
        send_range(&mut socket, first, BURST)?;
        assert_eq!(questions.count(&mut socket), (first + BURST, 0));
    }
    drain(&mut socket);
    drop(socket);
    all_home(&umem);
    outside.end()
}

/// Sends packets without waiting for them.
fn send_range(socket: &mut Socket, first: u64, count: u64) -> Outcome {
    socket.reclaim();
    for sequence in first..first + count {
        let mut frame = socket.alloc().ok_or("a frame")?;
        packet::fill(&mut frame, 0, sequence, packet::MIN);
        let sent = socket.send(frame);
        sent.map_err(|unsent| unsent.kind.to_string())?;
    }
    Ok(socket.flush()?)
}

/// The device is set down and up, and its rings are resized, in the middle of traffic. Afterwards
/// packets flow, all sent chunks come back, and none is missing from those for receiving.
fn resets(mode: Mode) -> Outcome {
    let rounds = if std::env::var_os("WEIR_TEST_LONG").is_some() {
        100
    } else {
        4
    };
    let (from, to, lab) = (umem()?, umem()?, Lab::new()?);
    let mut rx = lab.rx.open(&to, mode, |builder| builder.tx_ring(0))?;
    let mut tx = lab.tx.open(&from, mode, |builder| builder.rx_ring(0))?;
    for round in 0..rounds {
        let side = if round % 2 == 0 { &lab.rx } else { &lab.tx };
        send_range(&mut tx, MARK << 1, 64)?;
        reset(side, round)?;
        for side in [&lab.rx, &lab.tx] {
            side.wait_for_link();
        }
        skip_to_mark(&mut tx, &mut rx, round)?;
        drain(&mut tx);
        assert_eq!(tx.outstanding(), 0);
        deliver(&mut tx, &mut rx, 256, packet::MIN)?;
        for count in [from.accounting(), to.accounting()] {
            let lost = (count.sending, count.retired);
            assert_eq!(lost, (0, 0), "round {round}: {count:?}");
        }
    }
    drop((tx, rx));
    all_home(&from);
    all_home(&to);
    Ok(())
}

/// A sequence number above those of other packets.
const MARK: u64 = 1 << 32;

/// Two rounds set the device down, two resize its rings.
fn reset(side: &Side, round: u64) -> Outcome {
    let device = side.device;
    match rings::rings(side) {
        Ok(rings) if round % 4 >= 2 => {
            let (rx, tx) = rings.now;
            let other = if rx < rings.most.0 { rx * 2 } else { rx / 2 };
            rings::set(side, (other, tx))?;
            rings::set(side, (rx, tx))
        }
        _ => {
            side.ip(&format!("link set dev {device} down"))?;
            Ok(side.ip(&format!("link set dev {device} up"))?)
        }
    }
}

/// Receives until a packet that was sent after a reset arrives.
fn skip_to_mark(tx: &mut Socket, rx: &mut Socket, round: u64) -> Outcome {
    let mark = MARK + round;
    send_range(tx, mark, 1)?;
    let arrived = wait_until(STALL, || {
        tx.flush().expect("flush");
        let mut found = false;
        let mut batch = rx.recv(64);
        while let Some(received) = batch.next_packet() {
            found |= packet::intact(&received) == Some(mark);
        }
        drop(batch);
        rx.flush().expect("flush");
        found
    });
    assert!(arrived, "round {round}: nothing arrives after the reset");
    Ok(())
}

/// After a reset the kernel still has all chunks for receiving: each gets a packet while none is freed.
fn all_chunks(mode: Mode) -> Outcome {
    const STEP: u64 = 32;
    let (from, to, lab) = (umem()?, umem()?, Lab::new()?);
    let mut rx = lab.rx.open(&to, mode, |builder| builder.tx_ring(0))?;
    let mut tx = lab.tx.open(&from, mode, |builder| builder.rx_ring(0))?;
    reset(&lab.rx, 0)?;
    lab.rx.wait_for_link();
    skip_to_mark(&mut tx, &mut rx, 0)?;
    let mut kept = Vec::new();
    for first in (0..u64::from(CHUNKS)).step_by(STEP as usize) {
        send_range(&mut tx, first, STEP)?;
        let arrived = wait_until(STALL, || {
            tx.flush().expect("flush");
            rx.wait(Duration::ZERO).expect("wait");
            let mut batch = rx.recv(64);
            while let Some(received) = batch.next_packet() {
                packet::check(&received, kept.len() as u64);
                kept.push(received.keep());
            }
            kept.len() as u64 == first + STEP
        });
        assert!(arrived, "the kernel had {} chunks", kept.len());
    }
    drop(kept);
    drop((tx, rx));
    all_home(&from);
    all_home(&to);
    Ok(())
}

/// Fewer chunks than a card's ring has slots, as a rule 256, and many more than packets in flight.
fn few_chunks(mode: Mode) -> Outcome {
    const FEW: u32 = 224;
    const WINDOW: u64 = 32;
    let (from, to, lab) = (umem()?, umem()?, Lab::new()?);
    let mut rx = lab
        .rx
        .open(&to, mode, |builder| builder.tx_ring(0).fill_chunks(FEW))?;
    let mut tx = lab.tx.open(&from, mode, |builder| builder.rx_ring(0))?;
    deliver_within(WINDOW, &mut tx, &mut rx, 8192, packet::MIN)?;
    drop((tx, rx));
    all_home(&from);
    all_home(&to);
    Ok(())
}

/// Flows of the test of queues, and packets of each.
const FLOWS: u16 = 16;
const FLOW_PACKETS: u16 = 256;
/// Bytes of Ethernet, IPv4 and UDP.
const HEADERS: usize = 14 + 20 + 8;

/// Packets of several UDP flows: each flow arrives on one queue, complete and in order.
fn flows(mode: Mode) -> Outcome {
    let lab = Lab::with_queues(2)?;
    let (from, left, right) = (umem()?, umem()?, umem()?);
    let mut first = lab.rx.open_queue(&left, mode, 0, |builder| builder)?;
    let program = first.program().ok_or("the program")?.clone();
    let mut second = lab
        .rx
        .open_queue(&right, mode, 1, |builder| builder.program(&program))?;
    let mut tx = lab.tx.open(&from, mode, |builder| builder.rx_ring(0))?;
    let mut seen = [[0; 2]; FLOWS as usize];
    for number in 0..FLOW_PACKETS {
        for flow in 0..FLOWS {
            let mut frame = tx.alloc().ok_or("a frame")?;
            frame.fill_with(&datagram(flow, number))?;
            tx.send(frame).map_err(|unsent| unsent.kind.to_string())?;
        }
        let all = (usize::from(number) + 1) * usize::from(FLOWS);
        let arrived = wait_until(STALL, || {
            tx.flush().expect("flush");
            tx.reclaim();
            take_flows(&mut first, 0, &mut seen);
            take_flows(&mut second, 1, &mut seen);
            seen.iter().flatten().sum::<usize>() == all
        });
        assert!(arrived, "packets are missing: {seen:?}");
    }
    for (flow, queues) in seen.iter().enumerate() {
        assert!(
            queues.contains(&0),
            "flow {flow} is on two queues: {queues:?}"
        );
    }
    let on_second = seen.iter().filter(|queues| queues[1] > 0).count();
    println!("\nqueues: {on_second} of {FLOWS} flows on queue 1, the others on queue 0");
    Ok(())
}

fn take_flows(socket: &mut Socket, queue: usize, seen: &mut [[usize; 2]]) {
    socket.wait(Duration::ZERO).expect("wait");
    let mut batch = socket.recv(64);
    while let Some(received) = batch.next_packet() {
        let flow = u16::from_be_bytes([received[HEADERS], received[HEADERS + 1]]);
        let count = &mut seen[usize::from(flow)][queue];
        let number = u16::try_from(*count).expect("the number of a packet");
        assert_eq!(received[..], datagram(flow, number), "flow {flow}");
        *count += 1;
    }
}

/// Packet `number` of a flow, which has an address and ports of its own: not every card looks at ports.
fn datagram(flow: u16, number: u16) -> [u8; packet::MIN] {
    let mut bytes = [0; packet::MIN];
    bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0xff, 8, 0]);
    let length = (packet::MIN - 14) as u8;
    let address = flow as u8 + 1;
    bytes[14..34].copy_from_slice(&[
        0x45, 0, 0, length, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 1, address, 10, 0, 0, 1,
    ]);
    let sum: u32 = bytes[14..34]
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    bytes[24..26].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    bytes[34..36].copy_from_slice(&(1024 + 7 * flow).to_be_bytes());
    bytes[36..38].copy_from_slice(&(2048 + 11 * flow).to_be_bytes());
    bytes[38..40].copy_from_slice(&u16::from(length - 20).to_be_bytes());
    bytes[HEADERS..HEADERS + 2].copy_from_slice(&flow.to_be_bytes());
    bytes[HEADERS + 2..HEADERS + 4].copy_from_slice(&number.to_be_bytes());
    for (at, byte) in bytes.iter_mut().enumerate().skip(HEADERS + 4) {
        *byte = (usize::from(number) * 31 + usize::from(flow) + at) as u8;
    }
    bytes
}
