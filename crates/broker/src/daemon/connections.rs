//! The connections that are open, whoever has them: none may keep others out.

use rustix::net::{Shutdown, shutdown};
use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections behind which a new one ends another.
const MOST: usize = 256;

/// Most connections, with those that end but still await their answer.
const LIMIT: usize = 2 * MOST;

/// All connections, by their order.
#[derive(Debug, Default)]
pub(super) struct Connections(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    next: u64,
    peers: BTreeMap<u64, Peer>,
}

#[derive(Debug)]
struct Peer {
    user: u32,
    /// When it was opened, or last asked something: the order of that.
    turn: u64,
    socket: Arc<OwnedFd>,
    /// Its requests end: reading is shut down.
    is_ending: bool,
}

/// A connection, counted until it is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    all: Arc<Connections>,
    number: u64,
    socket: Arc<OwnedFd>,
}

impl Connections {
    /// Whether no other one may be accepted for now.
    pub(super) fn is_full(&self) -> bool {
        self.open().peers.len() >= LIMIT
    }

    /// Counts a connection. Where there are many, the oldest of the user who has most ends once its
    /// request is answered: a user can open thousands and be silent, and also have thousands of ids,
    /// as those of a user namespace.
    pub(super) fn add(self: &Arc<Self>, socket: OwnedFd) -> Connection {
        let user = hostnet::unix::peer(socket.as_fd()).map_or(u32::MAX, |peer| peer.uid);
        let socket = Arc::new(socket);
        let mut open = self.open();
        if open.staying().count() >= MOST {
            open.end_one();
        }
        let number = open.next;
        open.next += 1;
        let peer = Peer {
            user,
            turn: number,
            socket: Arc::clone(&socket),
            is_ending: false,
        };
        open.peers.insert(number, peer);
        Connection {
            all: Arc::clone(self),
            number,
            socket,
        }
    }

    /// A connection whose process is asked for its answer, which comes at once if it is honest: others end before.
    pub(super) fn ask(&self, socket: &OwnedFd) {
        let mut open = self.open();
        let turn = open.next;
        open.next += 1;
        let mut peers = open.peers.values_mut();
        let asked = peers.find(|peer| peer.socket.as_raw_fd() == socket.as_raw_fd());
        if let Some(peer) = asked {
            peer.turn = turn;
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        // Each change is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn staying(&self) -> impl Iterator<Item = (&u64, &Peer)> {
        self.peers.iter().filter(|(_, peer)| !peer.is_ending)
    }

    fn end_one(&mut self) {
        let mut users: BTreeMap<u32, (usize, (u64, u64))> = BTreeMap::new();
        for (&number, peer) in self.staying() {
            let turn = (peer.turn, number);
            let (count, oldest) = users.entry(peer.user).or_insert((0, turn));
            *count += 1;
            *oldest = turn.min(*oldest);
        }
        let most = users
            .into_values()
            .max_by_key(|&(count, oldest)| (count, std::cmp::Reverse(oldest)));
        if let Some(peer) = most.and_then(|(_, (_, oldest))| self.peers.get_mut(&oldest)) {
            peer.is_ending = true;
            // A request that has come is read and answered; then there is the end.
            let _ = shutdown(&peer.socket, Shutdown::Read);
        }
    }
}

impl Connection {
    /// The socket.
    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.all.open().peers.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{receive, send};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a pair")
    }

    #[test]
    fn the_oldest_ends_once_it_is_answered() {
        let connections = Arc::new(Connections::default());
        let mut there = Vec::new();
        let mut open = Vec::new();
        for _ in 0..=MOST {
            let (here, its) = pair();
            send(its.as_fd(), b"asked", &[]).expect("room");
            there.push(its);
            open.push(connections.add(here));
        }
        let read = |at: usize| receive(open[at].socket().as_fd(), 16).expect("a message").0;
        assert_eq!(
            (read(0).as_slice(), read(0).as_slice()),
            (&b"asked"[..], &b""[..])
        );
        assert_eq!(read(1), b"asked");
        send(there[1].as_fd(), b"again", &[]).expect("it stays");
        send(there[0].as_fd(), b"again", &[]).expect_err("it has ended");
        assert!(!connections.is_full());
        drop(open);
        assert!(connections.open().peers.is_empty());
    }

    #[test]
    fn the_user_with_most_is_the_one() {
        let connections = Arc::new(Connections::default());
        let mut open: Vec<_> = (0..MOST).map(|_| connections.add(pair().0)).collect();
        for (user, peer) in connections.open().peers.values_mut().enumerate() {
            peer.user = u32::try_from(user.min(2)).expect("small");
        }
        open.push(connections.add(pair().0));
        let ending = |number| connections.open().peers[&number].is_ending;
        assert!(!ending(0) && !ending(1), "they have one each");
        assert!(ending(2), "the oldest of the others");
        while !connections.is_full() {
            open.push(connections.add(pair().0));
        }
    }
}
