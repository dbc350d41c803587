//! Socket addresses, copied from the caller once.

use crate::seccomp::Target;
use rustix::io::Errno;
use rustix::net::AddressFamily;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsFd;

/// `struct sockaddr_storage`.
const MOST_BYTES: usize = 128;
/// `struct sockaddr_in`.
const V4_BYTES: usize = 16;
/// `struct sockaddr_in6` with its scope id, which older programs leave away.
const V6_BYTES: usize = 28;
const V6_BYTES_WITHOUT_SCOPE: usize = 24;

/// An address to connect a socket of the families INET and INET6 to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Address {
    V4(SocketAddrV4),
    V6(SocketAddrV6),
    /// `AF_UNSPEC`: ends a connection.
    Unspecified,
}

impl Address {
    /// Copies an address of the caller's memory.
    pub(super) fn copy(target: &Target, pointer: u64, len: i32) -> Result<Self, Errno> {
        let len = usize::try_from(len).map_err(|_| Errno::INVAL)?;
        if len > MOST_BYTES {
            return Err(Errno::INVAL);
        }
        Self::parse(&target.read_bytes(pointer, len)?)
    }

    /// Of `struct sockaddr`, with the errors that the kernel has for others.
    fn parse(bytes: &[u8]) -> Result<Self, Errno> {
        let family = i32::from(u16::from_ne_bytes(field(bytes, 0)?));
        match family {
            libc::AF_UNSPEC => Ok(Self::Unspecified),
            libc::AF_INET if bytes.len() >= V4_BYTES => {
                let port = u16::from_be_bytes(field(bytes, 2)?);
                let ip = Ipv4Addr::from(field::<4>(bytes, 4)?);
                Ok(Self::V4(SocketAddrV4::new(ip, port)))
            }
            libc::AF_INET6 if bytes.len() >= V6_BYTES_WITHOUT_SCOPE => {
                let port = u16::from_be_bytes(field(bytes, 2)?);
                let flow = u32::from_ne_bytes(field(bytes, 4)?);
                let ip = Ipv6Addr::from(field::<16>(bytes, 8)?);
                let scope = if bytes.len() < V6_BYTES {
                    0
                } else {
                    u32::from_ne_bytes(field(bytes, 24)?)
                };
                Ok(Self::V6(SocketAddrV6::new(ip, port, flow, scope)))
            }
            libc::AF_INET | libc::AF_INET6 => Err(Errno::INVAL),
            _ => Err(Errno::AFNOSUPPORT),
        }
    }

    /// The address of a backend, for a socket of a family; `None` where that socket cannot reach it.
    pub(super) fn of_backend(backend: SocketAddr, family: AddressFamily) -> Option<Self> {
        match (backend, family) {
            (SocketAddr::V4(v4), AddressFamily::INET) => Some(Self::V4(v4)),
            (SocketAddr::V4(v4), _) => {
                let mapped = v4.ip().to_ipv6_mapped();
                Some(Self::V6(SocketAddrV6::new(mapped, v4.port(), 0, 0)))
            }
            (SocketAddr::V6(v6), AddressFamily::INET6) => Some(Self::V6(v6)),
            (SocketAddr::V6(_), _) => None,
        }
    }

    /// The address and port that it means, in one form each: an IPv4 address within IPv6 is one of
    /// IPv4, and the unspecified address is this host.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        match self {
            Self::V4(v4) => Some(canonical(SocketAddr::V4(*v4))),
            Self::V6(v6) => Some(canonical(SocketAddr::V6(*v6))),
            Self::Unspecified => None,
        }
    }

    pub(super) fn connect(&self, socket: impl AsFd) -> Result<(), Errno> {
        match self {
            Self::V4(v4) => rustix::net::connect(socket, v4),
            Self::V6(v6) => rustix::net::connect(socket, v6),
            Self::Unspecified => rustix::net::connect_unspec(socket),
        }
    }
}

/// One form of the addresses that mean the same.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip().to_canonical() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Errno> {
    let part = bytes.get(at..at + N).ok_or(Errno::INVAL)?;
    part.try_into().map_err(|_| Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(port: u16, ip: [u8; 4], len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len.max(8)];
        bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        bytes[2..4].copy_from_slice(&port.to_be_bytes());
        bytes[4..8].copy_from_slice(&ip);
        bytes.truncate(len);
        bytes
    }

    fn v6(ip: Ipv6Addr, len: usize) -> Vec<u8> {
        let mut bytes = vec![0xff; 32];
        bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
        bytes[2..4].copy_from_slice(&80_u16.to_be_bytes());
        bytes[8..24].copy_from_slice(&ip.octets());
        bytes.truncate(len);
        bytes
    }

    fn peer(bytes: &[u8]) -> Option<SocketAddr> {
        Address::parse(bytes).unwrap().peer()
    }

    #[test]
    fn short_addresses_and_other_families_are_refused_as_by_the_kernel() {
        assert_eq!(Address::parse(&[]), Err(Errno::INVAL));
        assert_eq!(Address::parse(&[2]), Err(Errno::INVAL));
        assert_eq!(Address::parse(&v4(80, [1, 2, 3, 4], 15)), Err(Errno::INVAL));
        assert_eq!(
            Address::parse(&v6(Ipv6Addr::LOCALHOST, 23)),
            Err(Errno::INVAL)
        );
        assert_eq!(Address::parse(&[1, 0, 0]), Err(Errno::AFNOSUPPORT));
        assert_eq!(Address::parse(&[0, 0]), Ok(Address::Unspecified));
    }

    #[test]
    fn addresses_of_the_same_meaning_are_one() {
        let expected = Some("127.0.0.1:80".parse().unwrap());
        let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
        let mapped_any = Ipv4Addr::UNSPECIFIED.to_ipv6_mapped();
        assert_eq!(peer(&v4(80, [127, 0, 0, 1], 16)), expected);
        assert_eq!(peer(&v4(80, [0, 0, 0, 0], 128)), expected);
        assert_eq!(peer(&v6(mapped, 28)), expected);
        assert_eq!(peer(&v6(mapped_any, 28)), expected);
        let v6_expected = Some("[::1]:80".parse().unwrap());
        assert_eq!(peer(&v6(Ipv6Addr::UNSPECIFIED, 24)), v6_expected);
        assert_eq!(peer(&v6(Ipv6Addr::LOCALHOST, 28)), v6_expected);
    }

    #[test]
    fn a_backend_is_written_for_the_family_of_the_socket() {
        let backend: SocketAddr = "10.0.0.1:80".parse().unwrap();
        let mapped = "[::ffff:10.0.0.1]:80".parse().unwrap();
        assert_eq!(
            Address::of_backend(backend, AddressFamily::INET6),
            Some(Address::V6(mapped))
        );
        let v6_backend = "[::1]:80".parse().unwrap();
        assert_eq!(Address::of_backend(v6_backend, AddressFamily::INET), None);
    }
}
