//! nftables, over `NETLINK_NETFILTER` (`linux/netfilter/nf_tables.h`).

use netlink_packet_core::NLM_F_DUMP;
use netlink_sys::protocols::NETLINK_NETFILTER;
use rustix::io::Errno;

use crate::error::{Context as _, ErrorKind, Result};
use crate::netlink::{RawMessage, Socket, attribute};

/// `NFNL_SUBSYS_NFTABLES`, `NFT_MSG_GETTABLE` and `NFTA_TABLE_NAME`.
const SUBSYSTEM: u16 = 10;
const GET_TABLE: u16 = 1;
const TABLE_NAME: u16 = 1;
/// `struct nfgenmsg`: family, version, resource. All zero stands for all families.
const HEADER: usize = 4;

/// The names of all tables of nftables in the calling thread's network namespace, one for each
/// family that has a table of that name; none for a kernel without nftables. Needs
/// `CAP_NET_ADMIN`.
///
/// # Errors
///
/// [`ErrorKind::PermissionDenied`] without the capability.
///
/// ```no_run
/// let tables = hostnet::nfnetlink::tables()?;
/// println!("{} tables: {}", tables.len(), tables.join(" "));
/// # Ok::<(), hostnet::Error>(())
/// ```
pub fn tables() -> Result<Vec<String>> {
    let message = RawMessage {
        kind: SUBSYSTEM << 8 | GET_TABLE,
        payload: vec![0; HEADER],
    };
    let answers =
        Socket::open(NETLINK_NETFILTER).and_then(|mut socket| socket.request(message, NLM_F_DUMP));
    match answers {
        // A kernel without the subsystem does not know the request's type.
        Err(error)
            if error.kind() == ErrorKind::Unsupported
                || error.errno() == Some(Errno::INVAL.raw_os_error()) =>
        {
            Ok(Vec::new())
        }
        answers => {
            let answers = answers
                .context("cannot list the tables of nftables")
                .needs("CAP_NET_ADMIN")?;
            Ok(answers.iter().filter_map(name).collect())
        }
    }
}

fn name(table: &RawMessage) -> Option<String> {
    let name = attribute(table.payload.get(HEADER..)?, TABLE_NAME)?;
    let name = String::from_utf8_lossy(&name);
    Some(name.trim_end_matches('\0').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::push_attribute;

    #[test]
    fn a_table_has_a_name() {
        let mut payload = vec![0; HEADER];
        push_attribute(&mut payload, 9, &[0; 4]);
        push_attribute(&mut payload, TABLE_NAME, b"nat\0");
        for length in 0..payload.len() - 3 {
            let table = RawMessage {
                kind: SUBSYSTEM << 8,
                payload: payload[..length].to_vec(),
            };
            assert_eq!(name(&table), None, "cut after {length} bytes");
        }
        let table = RawMessage {
            kind: SUBSYSTEM << 8,
            payload,
        };
        assert_eq!(name(&table).as_deref(), Some("nat"));
    }
}
