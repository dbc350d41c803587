//! Drops of sockets within the look.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use hostnet::sock_diag::SocketMemory;

use crate::doctor::context::InetSocket;

/// The most sockets that a finding names.
pub const MOST_NAMED: usize = 4;

/// A socket at the end of the look.
pub struct Counted {
    /// The socket.
    pub socket: InetSocket,
    /// Datagrams or connections that it dropped within the look.
    pub lost: u32,
}

impl Counted {
    /// Its own address and port.
    pub fn local(&self) -> SocketAddr {
        SocketAddr::new(self.socket.local, self.socket.local_port)
    }

    /// Its memory; zero where the kernel reports none.
    pub fn memory(&self) -> SocketMemory {
        self.socket.memory.unwrap_or_default()
    }
}

/// The sockets of the second list, those that lost most first.
pub fn counted(before: &[InetSocket], after: &[InetSocket]) -> Vec<Counted> {
    let drops = |socket: &InetSocket| socket.memory.unwrap_or_default().drops;
    let before: BTreeMap<_, _> = before.iter().map(|it| (it.cookie, drops(it))).collect();
    let counted = after.iter().map(|&socket| {
        // One opened meanwhile has dropped nothing before.
        let before = before.get(&socket.cookie).copied().unwrap_or_default();
        let lost = drops(&socket).wrapping_sub(before);
        Counted { socket, lost }
    });
    let mut counted: Vec<_> = counted.collect();
    counted.sort_by_key(|it| Reverse(it.lost));
    counted
}

#[cfg(test)]
mod tests {
    use hostnet::sock_diag::inet::{Protocol, State};

    use super::*;

    #[test]
    fn drops_are_told_apart_by_cookie() {
        let socket = |cookie, drops| InetSocket {
            protocol: Protocol::Udp,
            state: State::Close,
            local: [127, 0, 0, 1].into(),
            local_port: 53,
            remote: [0; 4].into(),
            remote_port: 0,
            device: 0,
            inode: 0,
            cookie,
            uid: 0,
            receive_queue: 0,
            send_queue: 0,
            memory: Some(SocketMemory {
                drops,
                ..SocketMemory::default()
            }),
        };
        let before = [socket(1, 9), socket(2, u32::MAX), socket(3, 4)];
        let after = [socket(1, 9), socket(2, 1), socket(4, 5)];
        let counted = counted(&before, &after);
        let lost: Vec<_> = counted
            .iter()
            .map(|it| (it.socket.cookie, it.lost))
            .collect();
        assert_eq!(lost, [(4, 5), (2, 2), (1, 0)], "opened, wrapped, quiet");
        assert_eq!(counted[0].local().to_string(), "127.0.0.1:53");
    }
}
