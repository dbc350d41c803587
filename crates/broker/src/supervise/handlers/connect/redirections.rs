//! Redirections, and their backends with counters.

use super::address::canonical;
use crate::policy::Redirect;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The redirections, by address.
#[derive(Debug)]
pub struct Redirections {
    policy: Vec<Redirect>,
    by_address: BTreeMap<SocketAddr, Redirection>,
}

/// A redirection.
#[derive(Debug)]
pub(super) struct Redirection {
    from: SocketAddr,
    backends: Vec<Backend>,
    next: AtomicUsize,
}

/// A server that gets some of a redirection's connections.
#[derive(Debug)]
pub struct Backend {
    address: SocketAddr,
    connections: AtomicU64,
    failures: AtomicU64,
}

impl Redirections {
    /// Of a policy; the first one of an address counts.
    pub fn new(redirects: &[Redirect]) -> Self {
        let mut by_address = BTreeMap::new();
        for redirect in redirects {
            by_address
                .entry(canonical(redirect.from))
                .or_insert_with(|| Redirection::new(redirect));
        }
        Self {
            policy: redirects.to_vec(),
            by_address,
        }
    }

    /// Whether these are those of a policy.
    pub fn are_of(&self, redirects: &[Redirect]) -> bool {
        self.policy == redirects
    }

    /// Of an address in canonical form.
    pub(super) fn find(&self, peer: SocketAddr) -> Option<&Redirection> {
        self.by_address.get(&peer)
    }

    /// Each backend, with the address that it stands for, in a fixed order.
    pub fn backends(&self) -> impl Iterator<Item = (SocketAddr, &Backend)> {
        let all = self.by_address.values();
        all.flat_map(|one| one.backends.iter().map(|backend| (one.from, backend)))
    }
}

impl Redirection {
    fn new(redirect: &Redirect) -> Self {
        let backends = redirect.to.iter().map(|&address| Backend {
            address,
            connections: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        });
        Self {
            from: redirect.from,
            backends: backends.collect(),
            next: AtomicUsize::new(0),
        }
    }

    /// Each backend once, beginning with the next one.
    pub(super) fn in_turn(&self) -> impl Iterator<Item = &Backend> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let (later, sooner) = self
            .backends
            .split_at(first.checked_rem(self.backends.len()).unwrap_or(0));
        sooner.iter().chain(later)
    }
}

impl Backend {
    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections that it took, and those that were still in progress when connect(2) returned,
    /// on nonblocking sockets.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Connections that it refused or did not answer; those of nonblocking sockets are not seen.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    pub(super) fn count_connection(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(it: &Redirection) -> Vec<u16> {
        it.in_turn().map(|it| it.address().port()).collect()
    }

    fn redirect(from: &str, to: &[&str]) -> Redirect {
        Redirect {
            from: from.parse().unwrap(),
            to: to.iter().map(|it| it.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn backends_are_taken_in_turn() {
        let to = ["10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3"];
        let all = Redirections::new(&[redirect("[::ffff:10.0.0.9]:80", &to)]);
        let one = all.find("10.0.0.9:80".parse().unwrap()).unwrap();
        assert_eq!(ports(one), [1, 2, 3]);
        assert_eq!(ports(one), [2, 3, 1]);
        assert_eq!(ports(one), [3, 1, 2]);
        assert_eq!(ports(one), [1, 2, 3]);
    }

    #[test]
    fn a_redirection_without_backends_has_none() {
        let all = Redirections::new(&[redirect("10.0.0.9:80", &[])]);
        let one = all.find("10.0.0.9:80".parse().unwrap()).unwrap();
        assert!(ports(one).is_empty());
    }
}
