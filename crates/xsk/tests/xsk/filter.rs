//! The filter of the built-in program: its instructions beside a matcher in Rust, on generated
//! packets, and real traffic past a socket.

use crate::filter_model::{Spec, matches, packet, spec};
use crate::netns::{Lab, RX, Side, TX};
use crate::{Outcome, Result};
use proptest::collection::vec;
use proptest::test_runner::{Config, TestRunner};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;
use testkit::limit::longest;
use testkit::{Limit, Test};
use xsk::testing::programs;
use xsk::{Filter, Mode, Rule, Socket, Umem};

const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("filter: program and model agree", agree_with_the_model),
        Test::new("filter: number of instructions", count_instructions),
        Test::new("filter: the longest one loads", load_the_longest),
        Test::new(
            "filter: loads without CAP_PERFMON",
            load_with_few_capabilities,
        ),
        Test::new("filter: beside the network stack, SKB", || {
            beside_the_stack(Mode::Skb)
        }),
        Test::new("filter: beside the network stack, DRV", || {
            beside_the_stack(Mode::Driver)
        }),
    ]
}

/// A socket whose map has it in slot 0, so that a loaded program can redirect to it.
fn open(umem: &Umem, lab: &Lab) -> xsk::Result<Socket> {
    lab.rx.open(umem, Mode::Skb, |builder| builder)
}

fn agree_with_the_model() -> Outcome {
    let (umem, lab) = (Umem::builder().chunks(256).build()?, Lab::new()?);
    let socket = open(&umem, &lab)?;
    let map = socket.program().ok_or("it has a program")?.map();
    let config = Config {
        cases: if std::env::var_os("WEIR_TEST_LONG").is_some() {
            4096
        } else {
            256
        },
        failure_persistence: None,
        ..Config::default()
    };
    let (taken, passed) = (Cell::new(0_u32), Cell::new(0_u32));
    let cases = (vec(spec(), 1..6), vec(packet(), 64));
    TestRunner::new(config).run(&cases, |(specs, packets)| {
        let filter = Filter::any(specs.iter().map(Spec::rule));
        let (program, _) = programs::load_filter(Some(&filter), map).expect("it loads");
        for packet in packets {
            let expected = specs.iter().any(|spec| matches(spec, &packet));
            let action = programs::run(program.as_fd(), &packet).expect("it runs");
            let (right, count) = if expected {
                (XDP_REDIRECT, &taken)
            } else {
                (XDP_PASS, &passed)
            };
            count.set(count.get() + 1);
            proptest::prop_assert_eq!(action, right, "{:02x?}", packet);
        }
        Ok(())
    })?;
    let (taken, passed) = (taken.get(), passed.get());
    assert!(
        taken.min(passed) > (taken + passed) / 10,
        "the packets say little: {taken} taken, {passed} passed"
    );
    Ok(())
}

/// The numbers that the guide names.
fn count_instructions() -> Outcome {
    let map = programs::xskmap(1)?;
    let network = Ipv4Addr::new(192, 0, 2, 0);
    let count = |rules: &[Rule]| -> Result<usize> {
        let filter = Filter::any(rules.iter().copied());
        let filter = (!rules.is_empty()).then_some(&filter);
        Ok(programs::load_filter(filter, map.as_fd())?.1)
    };
    assert_eq!(count(&[])?, 6);
    assert_eq!(count(&[Rule::ether_type(0x88b5)])?, 19);
    let dns = Rule::udp().destination_port(53);
    assert_eq!(count(&[dns.destination(network, 24)])?, 54);
    assert_eq!(count(&[dns])?, 68);
    Ok(())
}

/// Rules of the most instructions, as many as possible.
fn load_the_longest() -> Outcome {
    let map = programs::xskmap(1)?;
    let address = Ipv6Addr::new(0x2001, 0xdb8, 1, 2, 3, 4, 5, 0xfffe);
    let rule = |port| {
        let rule = Rule::ip().source(address, 127).destination(address, 127);
        rule.source_port(port).destination_port(port)
    };
    let filter = Filter::any((1..).map(rule).take(Filter::MAX_RULES));
    let (_, count) = programs::load_filter(Some(&filter), map.as_fd())?;
    assert_eq!(count, 2976);
    let both = |port| Rule::ip().source_port(port).destination_port(port);
    let filter = Filter::any((1..).map(both).take(Filter::MAX_RULES));
    programs::load_filter(Some(&filter), map.as_fd())?;
    Ok(())
}

/// The most verbose filter, without and with ports, by a thread that may not read the kernel's memory.
fn load_with_few_capabilities() -> Outcome {
    let map = programs::xskmap(1)?;
    let both = |port| Rule::ip().source_port(port).destination_port(port);
    let filter = Filter::any((1..).map(both).take(Filter::MAX_RULES));
    std::thread::scope(|scope| {
        let load = || -> Outcome {
            let mut few = capabilities(None)?;
            few.effective = CapabilitySet::BPF | CapabilitySet::NET_ADMIN;
            set_capabilities(None, few)?;
            programs::load_filter(Some(&filter), map.as_fd())?;
            Ok(())
        };
        scope.spawn(load).join().expect("no panic")
    })
}

/// The UDP port of the socket, and the TCP port of the network stack, which must not be confused.
const PORT: u16 = 4242;
const LIMIT: Duration = Duration::from_secs(10);

fn beside_the_stack(mode: Mode) -> Outcome {
    let (umem, lab) = (Umem::builder().chunks(256).build()?, Lab::new()?);
    lab.rx.ip(&format!("addr add {RX}/24 dev rx0"))?;
    lab.tx.ip(&format!("addr add {TX}/24 dev tx0"))?;
    let only_udp = Filter::any([Rule::udp().destination(RX, 32).destination_port(PORT)]);
    let mut socket = lab.rx.open(&umem, mode, |b| b.filter(only_udp))?;

    // ARP precedes each of them.
    ping(&lab.tx)?;
    connect(&lab)?;
    other_port(&lab)?;
    let sender = lab.tx.inside(|| UdpSocket::bind((TX, 0)))?;
    sender.send_to(b"for the socket", (RX, PORT))?;
    let taken = receive_one(&mut socket)?;
    assert_eq!(&taken[42..], b"for the socket");
    assert_eq!(taken[36..38], PORT.to_be_bytes());

    ping(&lab.tx)?;
    let statistics = socket.statistics()?;
    assert_eq!(statistics.received, 1, "the socket got others' packets");
    Ok(())
}

pub fn receive_one(socket: &mut Socket) -> Result<Vec<u8>> {
    let mut limit = Limit::new(LIMIT);
    while !limit.is_over() {
        socket.wait(Duration::from_millis(100))?;
        if let Some(packet) = socket.recv(1).next_packet() {
            return Ok(packet.to_vec());
        }
    }
    Err("the socket got no packet".into())
}

/// The network stack at the other end answers an ICMP echo request.
pub fn ping(from: &Side) -> Outcome {
    // Type 8, code 0, checksum, identifier and sequence number.
    const REQUEST: [u8; 8] = [8, 0, 0xe5, 0xca, 0x12, 0x34, 0, 1];
    let icmp = Some(rustix::net::ipproto::ICMP);
    let socket = from.inside(|| rustix::net::socket(AddressFamily::INET, SocketType::RAW, icmp))?;
    let limit = Some(longest(LIMIT));
    rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Recv, limit)?;
    rustix::net::connect(&socket, &SocketAddrV4::new(RX, 0))?;
    rustix::net::send(&socket, &REQUEST, SendFlags::empty())?;
    let mut answer = [0_u8; 64];
    let (len, _) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty())?;
    // Behind an IPv4 header: type 0 and the same identifier.
    assert_eq!((len, answer[20], &answer[24..28]), (28, 0, &REQUEST[4..]));
    Ok(())
}

/// A TCP connection to the port number that the socket takes for UDP.
pub fn connect(lab: &Lab) -> Outcome {
    let listener = lab.rx.inside(|| TcpListener::bind((RX, PORT)))?;
    let to = (RX, PORT).into();
    let limit = longest(LIMIT);
    let mut client = lab.tx.inside(|| TcpStream::connect_timeout(&to, limit))?;
    let (mut server, _) = listener.accept()?;
    server.set_read_timeout(Some(limit))?;
    client.write_all(b"for the stack")?;
    let mut words = [0; 13];
    server.read_exact(&mut words)?;
    assert_eq!(&words, b"for the stack");
    Ok(())
}

/// UDP to another port.
fn other_port(lab: &Lab) -> Outcome {
    let stack = lab.rx.inside(|| UdpSocket::bind((RX, PORT + 1)))?;
    stack.set_read_timeout(Some(longest(LIMIT)))?;
    let sender = lab.tx.inside(|| UdpSocket::bind((TX, 0)))?;
    sender.send_to(b"for the stack", (RX, PORT + 1))?;
    let mut words = [0; 64];
    let len = stack.recv(&mut words)?;
    assert_eq!(&words[..len], b"for the stack");
    Ok(())
}
