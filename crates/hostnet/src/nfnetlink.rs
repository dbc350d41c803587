//! The tables of nftables, over `NETLINK_NETFILTER` (`linux/netfilter/nf_tables.h`).

use std::io;

use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};
use rustix::io::Errno;

/// `linux/netfilter/nfnetlink.h` and `nf_tables.h`.
const SUBSYSTEM_NFTABLES: u16 = 10;
const GET_TABLE: u16 = 1;
const TABLE_NAME: u16 = 1;
/// linux/netlink.h.
const REQUEST_DUMP: u16 = 0x301;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const HEADER: usize = 16;
/// `struct nfgenmsg`.
const GENERIC: usize = 4;
const ATTRIBUTE: usize = 4;

/// The names of all nftables tables in the calling thread's network namespace; none for a kernel
/// without nftables. Needs `CAP_NET_ADMIN`.
pub fn tables() -> io::Result<Vec<String>> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&request(), 0)?;
    let mut names = Vec::new();
    loop {
        let (answer, _) = socket.recv_from_full()?;
        if add_names(&answer, &mut names)? {
            return Ok(names);
        }
    }
}

/// A request for the tables of all families.
fn request() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + GENERIC);
    bytes.extend(((HEADER + GENERIC) as u32).to_ne_bytes());
    bytes.extend((SUBSYSTEM_NFTABLES << 8 | GET_TABLE).to_ne_bytes());
    bytes.extend(REQUEST_DUMP.to_ne_bytes());
    // Sequence and port, then family, version and resource: all zero.
    bytes.resize(HEADER + GENERIC, 0);
    bytes
}

/// Adds the names in an answer. Returns whether it was the last.
fn add_names(mut answer: &[u8], names: &mut Vec<String>) -> io::Result<bool> {
    while let Some((length, kind, payload)) = message(answer) {
        match kind {
            DONE => return Ok(true),
            ERROR => {
                let code = payload
                    .first_chunk()
                    .map_or(0, |bytes| i32::from_ne_bytes(*bytes));
                // A kernel without nftables has no such subsystem.
                if [Errno::OPNOTSUPP, Errno::INVAL]
                    .map(|it| -it.raw_os_error())
                    .contains(&code)
                {
                    return Ok(true);
                }
                return Err(io::Error::from_raw_os_error(-code));
            }
            _ => names.extend(name(payload.get(GENERIC..).unwrap_or_default())),
        }
        answer = answer.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// The length, type and payload of the first message in `bytes`.
fn message(bytes: &[u8]) -> Option<(usize, u16, &[u8])> {
    let length = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    Some((length, kind, bytes.get(HEADER..length)?))
}

/// The name among the attributes of a table.
fn name(mut attributes: &[u8]) -> Option<String> {
    loop {
        let length = u16::from_ne_bytes(*attributes.first_chunk()?) as usize;
        let kind = u16::from_ne_bytes(*attributes.get(2..)?.first_chunk()?);
        let value = attributes.get(ATTRIBUTE..length)?;
        if kind == TABLE_NAME {
            let name = String::from_utf8_lossy(value);
            return Some(name.trim_end_matches('\0').to_owned());
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(kind: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER + payload.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.resize(HEADER, 0);
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn names_are_read_until_the_list_ends() -> io::Result<()> {
        let mut names = Vec::new();
        let mut attributes = vec![2, 0, 0, 0];
        attributes.extend(8u16.to_ne_bytes());
        attributes.extend(9u16.to_ne_bytes());
        attributes.extend([0; 4]);
        attributes.extend(8u16.to_ne_bytes());
        attributes.extend(TABLE_NAME.to_ne_bytes());
        attributes.extend(*b"nat\0");
        let mut bytes = answer(SUBSYSTEM_NFTABLES << 8, &attributes);
        assert!(!add_names(&bytes, &mut names)?);
        bytes.extend(answer(DONE, &[0; 4]));
        assert!(add_names(&bytes, &mut names)?);
        assert_eq!(names, ["nat", "nat"]);
        Ok(())
    }

    #[test]
    fn a_truncated_answer_has_no_table() -> io::Result<()> {
        let mut names = Vec::new();
        let whole = answer(
            SUBSYSTEM_NFTABLES << 8,
            &[2, 0, 0, 0, 8, 0, 1, 0, b'a', 0, 0, 0],
        );
        for length in 0..whole.len() {
            add_names(&whole[..length], &mut names)?;
        }
        assert!(names.is_empty());
        let mut short = whole;
        short[HEADER + GENERIC] = 0;
        add_names(&short, &mut names)?;
        assert!(names.is_empty());
        Ok(())
    }

    #[test]
    fn a_refusal_is_an_error() {
        let refusal = answer(ERROR, &(-1i32).to_ne_bytes());
        assert!(add_names(&refusal, &mut Vec::new()).is_err());
    }
}
