//! The sockets of a namespace.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use anyhow::Result;
use hostnet::sock_diag::inet::{self, InetSocket, Protocol, State};
use hostnet::sock_diag::packet::{self, PacketSocket};

use super::scope::Place;
use crate::ledger::events::OwnedSocket;
use crate::ledger::snapshot::{Namespace, Snapshot, Socket};
use crate::ledger::stage::Stage;

/// The sockets that the kernel lists of a namespace; none of a kind that it cannot list.
struct Listed {
    udp: Option<Vec<InetSocket>>,
    tcp: Option<Vec<InetSocket>>,
    packet: Option<Vec<PacketSocket>>,
}

/// Reads the sockets, with the process of each where that is known.
pub fn read(
    place: &Place,
    owned: Option<&HashMap<u64, OwnedSocket>>,
    namespace: &mut Namespace,
    snapshot: &mut Snapshot,
) {
    let listed = place.run(|| -> Result<Listed> {
        Ok(Listed {
            udp: inet::sockets(Protocol::Udp, &State::ALL)?,
            tcp: inet::sockets(Protocol::Tcp, &[State::Listen, State::Established])?,
            packet: packet::packet_sockets()?,
        })
    });
    let listed = match listed {
        Ok(listed) => listed,
        Err(error) => {
            let hidden = format!("the sockets of {} cannot be listed: {error:#}", place.name);
            snapshot.gap(Stage::Socket, hidden, "cure what the error names");
            return;
        }
    };
    let mut gap = |missing: bool, hidden: &str, cure: &str| {
        if missing {
            snapshot.gap(Stage::Socket, hidden, cure);
        }
    };
    gap(
        listed.udp.is_none(),
        "this kernel lists no UDP sockets",
        "CONFIG_INET_UDP_DIAG: `modprobe udp_diag`",
    );
    gap(
        listed.tcp.is_none(),
        "this kernel lists no TCP sockets",
        "CONFIG_INET_TCP_DIAG: `modprobe tcp_diag`",
    );
    gap(
        listed.packet.is_none() && owned.is_none(),
        "this kernel lists no packet sockets",
        "CONFIG_PACKET_DIAG: `modprobe af_packet_diag`, or root",
    );
    let of = |cookie: u64| owned.and_then(|owned| owned.get(&cookie));
    for socket in listed.udp.iter().chain(&listed.tcp).flatten() {
        let entry = inet_socket(socket, of(socket.cookie));
        namespace.sockets.insert(socket.cookie, entry);
    }
    for socket in listed.packet.iter().flatten() {
        let entry = packet_socket(socket, of(socket.cookie), namespace);
        namespace.sockets.insert(socket.cookie, entry);
    }
    // Without CONFIG_PACKET_DIAG the iterator alone knows them.
    let unlisted = owned
        .iter()
        .flat_map(|owned| owned.iter())
        .filter(|(cookie, socket)| {
            socket.netns == place.inode
                && socket.packet.is_some()
                && !namespace.sockets.contains_key(cookie)
        });
    let unlisted: Vec<(u64, Socket)> = unlisted
        .map(|(cookie, socket)| {
            let entry = Socket {
                protocol: "packet".into(),
                local: "*".into(),
                ..with_owner(Socket::default(), Some(socket))
            };
            (*cookie, entry)
        })
        .collect();
    namespace.sockets.extend(unlisted);
}

fn inet_socket(socket: &InetSocket, owner: Option<&OwnedSocket>) -> Socket {
    let listening = socket.state == State::Listen;
    let memory = socket.memory.unwrap_or_default();
    let name = match socket.protocol {
        Protocol::Udp => "udp",
        Protocol::Tcp => "tcp",
    };
    let version = if socket.local.is_ipv6() { "6" } else { "" };
    let (queued, limit) = if listening {
        (socket.receive_queue, socket.send_queue)
    } else {
        (memory.rmem_alloc, memory.rcvbuf)
    };
    let entry = Socket {
        protocol: format!("{name}{version}"),
        local: address(socket.local, socket.local_port),
        remote: (socket.remote_port != 0).then(|| address(socket.remote, socket.remote_port)),
        listening,
        drops: memory.drops.into(),
        queued: queued.into(),
        limit: limit.into(),
        ..Socket::default()
    };
    with_owner(entry, owner)
}

fn packet_socket(
    socket: &PacketSocket,
    owner: Option<&OwnedSocket>,
    namespace: &Namespace,
) -> Socket {
    let memory = socket.memory.unwrap_or_default();
    let device = match namespace.devices.get(&socket.device) {
        Some(device) => device.name.clone(),
        None if socket.device == 0 => "*".into(),
        None => format!("device {}", socket.device),
    };
    let entry = Socket {
        protocol: "packet".into(),
        local: format!("{device} protocol {:#06x}", socket.protocol),
        drops: memory.drops.into(),
        queued: memory.rmem_alloc.into(),
        limit: memory.rcvbuf.into(),
        ..Socket::default()
    };
    with_owner(entry, owner)
}

/// Adds the process and counters of the iterator. The drops of a packet ring are in no other place; those of a queue are in both,
/// but its owner can reset the iterator's.
fn with_owner(mut socket: Socket, owner: Option<&OwnedSocket>) -> Socket {
    if let Some(owner) = owner {
        socket.process = Some(owner.process.clone());
        socket.packets = Some(owner.queued.into());
        if let Some((lost, ring)) = owner.packet {
            socket.ring_frames = (ring != 0).then_some(ring.into());
            if ring != 0 || socket.drops == 0 {
                socket.drops = lost.into();
            }
        }
    }
    socket
}

fn address(address: IpAddr, port: u16) -> String {
    if address.is_unspecified() {
        return format!("*:{port}");
    }
    SocketAddr::new(address.to_canonical(), port).to_string()
}
