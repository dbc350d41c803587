//! Sockets of a namespace, with their queues and drops, and the processes that have them.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use hostnet::mib;
use hostnet::netns;
use hostnet::sock_diag::inet::{self, InetSocket, Protocol, State};
use hostnet::sock_diag::packet::{self, PacketSocket};
use hostnet::sock_diag::{Owner, owners};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use testkit::process::STEP;
use testkit::{Error, Need, Result, Test, until};

use crate::protocols::loopback;

const UDP: &[Need] = &[Need::Feature("lists of UDP sockets", || {
    Ok(inet::sockets(Protocol::Udp, &[State::Close])?.is_some())
})];
const TCP: &[Need] = &[Need::Feature("lists of TCP sockets", || {
    Ok(inet::sockets(Protocol::Tcp, &[State::Listen])?.is_some())
})];
const PACKET: &[Need] = &[Need::Feature("lists of AF_PACKET sockets", || {
    Ok(packet::packet_sockets()?.is_some())
})];
const IPV6: &[Need] = &[Need::File("/proc/sys/net/ipv6"), UDP[0]];

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("a_udp_socket_counts_what_it_drops", udp_drops).needing(UDP),
        Test::new("a_udp_socket_of_ipv6_has_its_address", udp6).needing(IPV6),
        Test::new("a_listener_has_its_queue", listener).needing(TCP),
        Test::new("sockets_are_listed_by_state", states).needing(TCP),
        Test::new("a_packet_socket_counts_what_it_drops", packet_drops).needing(PACKET),
        Test::new("a_socket_has_its_process", owner),
        Test::new("a_socket_of_another_process_is_found", owner_elsewhere),
    ]
}

fn list(protocol: Protocol, states: &[State]) -> Result<Vec<InetSocket>> {
    Ok(inet::sockets(protocol, states)?.ok_or("the kernel lists them")?)
}

fn inode(socket: impl AsFd) -> Result<u32> {
    Ok(rustix::fs::fstat(socket)?.st_ino.try_into()?)
}

/// The listed socket that is this one.
fn find(sockets: &[InetSocket], socket: impl AsFd) -> Result<InetSocket> {
    let inode = inode(socket)?;
    let mut found = sockets.iter().filter(|socket| socket.inode == inode);
    let socket = *found.next().ok_or_else(|| format!("{sockets:?}"))?;
    assert_eq!(found.next(), None, "listed twice");
    Ok(socket)
}

fn udp_drops() -> Result<()> {
    let namespace = loopback()?;
    netns::run_in(namespace.as_fd(), || -> Result<()> {
        let receiver = UdpSocket::bind("127.0.0.1:0")?;
        rustix::net::sockopt::set_socket_recv_buffer_size(&receiver, 4096)?;
        let sender = UdpSocket::bind("127.0.0.1:0")?;
        sender.connect(receiver.local_addr()?)?;
        for _ in 0..1000 {
            sender.send(&[0; 100])?;
        }
        let sockets = list(Protocol::Udp, &State::ALL)?;
        assert_eq!(sockets.len(), 2, "{sockets:?}");
        let full = find(&sockets, &receiver)?;
        receiver.set_nonblocking(true)?;
        let mut read = 0;
        while receiver.recv(&mut [0; 100]).is_ok() {
            read += 1;
        }
        let memory = full.memory.ok_or("memory")?;
        assert!(read > 0, "{full:?}");
        assert_eq!(memory.drops, 1000 - read, "{full:?}");
        assert_eq!(
            mib::read()?.get("Udp.RcvbufErrors"),
            Some(memory.drops.into())
        );
        assert_eq!(full.receive_queue, memory.rmem_alloc, "{full:?}");
        // The kernel doubles the size that it is told.
        assert_eq!(memory.rcvbuf, 8192, "{full:?}");
        assert_eq!(full.state, State::Close);
        let local = SocketAddr::new(full.local, full.local_port);
        assert_eq!(local, receiver.local_addr()?);
        assert_eq!((full.remote_port, full.device), (0, 0));

        let connected = find(&sockets, &sender)?;
        assert_eq!(connected.state, State::Established);
        let remote = SocketAddr::new(connected.remote, connected.remote_port);
        assert_eq!(remote, receiver.local_addr()?);
        assert_eq!(connected.memory.ok_or("memory")?.drops, 0);
        assert_ne!(connected.cookie, full.cookie);
        let emptied = find(&list(Protocol::Udp, &State::ALL)?, &receiver)?;
        assert_eq!(emptied.receive_queue, 0, "{emptied:?}");
        assert_eq!(emptied.memory.ok_or("memory")?.drops, memory.drops);
        Ok(())
    })
}

fn udp6() -> Result<()> {
    let namespace = loopback()?;
    netns::run_in(namespace.as_fd(), || -> Result<()> {
        let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?;
        let listed = find(&list(Protocol::Udp, &State::ALL)?, &socket)?;
        assert_eq!(listed.local, Ipv6Addr::UNSPECIFIED);
        assert_eq!(listed.local_port, socket.local_addr()?.port());
        Ok(())
    })
}

fn listener() -> Result<()> {
    let namespace = loopback()?;
    netns::run_in(namespace.as_fd(), || -> Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        rustix::net::listen(&listener, 7)?;
        let address = listener.local_addr()?;
        let _clients = [(); 3].map(|()| TcpStream::connect(address).expect("a connection"));
        let listed = list(Protocol::Tcp, &[State::Listen])?;
        let [waiting] = listed[..] else {
            panic!("{listed:?}");
        };
        assert_eq!(waiting.inode, inode(&listener)?);
        assert_eq!((waiting.receive_queue, waiting.send_queue), (3, 7));
        let drops = waiting.memory.ok_or("memory")?.drops;
        assert_eq!(drops, 0);
        Ok(())
    })
}

fn states() -> Result<()> {
    let namespace = loopback()?;
    netns::run_in(namespace.as_fd(), || -> Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let client = TcpStream::connect(listener.local_addr()?)?;
        let (server, _) = listener.accept()?;
        let established = list(Protocol::Tcp, &[State::Established])?;
        assert_eq!(established.len(), 2, "{established:?}");
        find(&established, &client)?;
        find(&established, &server)?;
        let both = list(Protocol::Tcp, &[State::Established, State::Listen])?;
        assert_eq!(both.len(), 3, "{both:?}");
        assert!(list(Protocol::Tcp, &[])?.is_empty());
        assert!(list(Protocol::Udp, &State::ALL)?.is_empty());
        Ok(())
    })
}

fn packet_sockets() -> Result<Vec<PacketSocket>> {
    Ok(packet::packet_sockets()?.ok_or("the kernel lists them")?)
}

fn packet_drops() -> Result<()> {
    let namespace = loopback()?;
    netns::run_in(namespace.as_fd(), || -> Result<()> {
        assert!(packet_sockets()?.is_empty(), "a new namespace");
        // `ETH_P_IP`: arrivals, not departures.
        let protocol = NonZeroU32::new(0x0800_u16.to_be().into()).ok_or("not 0")?;
        let protocol = rustix::net::Protocol::from_raw(protocol);
        let socket = rustix::net::socket_with(
            AddressFamily::PACKET,
            SocketType::RAW,
            SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
            Some(protocol),
        )?;
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4096)?;
        let target = UdpSocket::bind("127.0.0.1:0")?;
        let sender = UdpSocket::bind("127.0.0.1:0")?;
        for _ in 0..100 {
            sender.send_to(&[0; 100], target.local_addr()?)?;
        }
        let listed = packet_sockets()?;
        let [full] = listed[..] else {
            panic!("{listed:?}");
        };
        let mut read = 0;
        while rustix::io::read(&socket, &mut [0; 200]).is_ok() {
            read += 1;
        }
        assert!(read > 0, "{full:?}");
        assert_eq!(full.memory.ok_or("memory")?.drops, 100 - read, "{full:?}");
        assert_eq!(full.inode, inode(&socket)?);
        assert_eq!((full.kind, full.protocol, full.device), (3, 0x0800, 0));
        assert_eq!((full.uid, full.receive_ring), (Some(0), false));
        Ok(())
    })
}

fn owner() -> Result<()> {
    let (socket, other) = (
        UdpSocket::bind("127.0.0.1:0")?,
        UdpSocket::bind("127.0.0.1:0")?,
    );
    let wanted = BTreeSet::from([inode(&socket)?, u32::MAX]);
    let owners = owners(&wanted)?;
    let owner = &owners.by_inode[&inode(&socket)?];
    assert_eq!(owner.pid, std::process::id());
    assert_eq!(owner.descriptor, socket.as_raw_fd().cast_unsigned());
    let comm = std::fs::read_to_string("/proc/self/comm")?;
    assert_eq!(owner.comm, comm.trim_end());
    assert!(!owners.by_inode.contains_key(&inode(&other)?));
    assert_eq!(owners.by_inode.len(), 1, "{owners:?}");
    Ok(())
}

/// A shell with the socket as its standard input, which it waits on.
fn owner_elsewhere() -> Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let inode = inode(&socket)?;
    let mut command = Command::new("sh");
    command.args([
        "-c",
        r"printf '\377 name' > /proc/self/comm; echo; read line",
    ]);
    command.stdin(Stdio::from(OwnedFd::from(socket)));
    command.stdout(Stdio::piped());
    let namespace = netns::open(Path::new("/proc/thread-self/ns/net"))?;
    let mut shell = netns::spawn(namespace.as_fd(), &mut command)?;
    // This process's copy of the socket.
    drop(command);
    let mut output = shell.stdout.take().ok_or("a pipe")?;
    output.read_exact(&mut [0])?;
    let find = || owners(&BTreeSet::from([inode]));
    // A process that another test starts has all descriptors until it runs its program.
    until(STEP, "the shell alone has it", || {
        let owner = find()?.by_inode.remove(&inode);
        Ok::<_, Error>(owner.is_some_and(|owner| owner.pid == shell.id()))
    })?;
    let found = find()?;
    let owner = Owner {
        pid: shell.id(),
        comm: "\u{fffd} name".into(),
        descriptor: 0,
    };
    assert_eq!(found.by_inode.get(&inode), Some(&owner));
    shell.kill()?;
    shell.wait()?;
    Ok(())
}
