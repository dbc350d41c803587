//! Counters of the protocols: `/proc/net/snmp`, `netstat` and `snmp6`; and those of the neighbour
//! tables.
//!
//! Names are the kernel's (`net/ipv4/proc.c`, `net/ipv6/proc.c`), which are those of the MIBs of SNMP
//! (RFC 4293, 4022, 4113) where there is one, as nstat(8) has them with a dot behind the protocol. Some
//! count other things than their names say:
//!
//! - `Udp.InDatagrams` are datagrams that a program has read, not those that arrived.
//! - `Udp.InErrors` contains `RcvbufErrors`, `InCsumErrors` and `MemErrors`.
//! - `Ip.InReceives` and `Tcp.InSegs` count packets of the kernel, which GRO may have merged, but
//!   `Tcp.OutSegs` segments. `IpExt.InNoECTPkts`, `InECT0Pkts`, `InECT1Pkts` and `InCEPkts` together
//!   count merged packets too, segment by segment.
//! - `Ip.OutRequests` and `OutTransmits` contain the drops of queueing disciplines.
//! - `Tcp` and `TcpExt` are of IPv4 and IPv6.
//! - `Ip.Forwarding`, `Ip.DefaultTTL`, `Tcp.RtoAlgorithm`, `Tcp.RtoMin` and `Tcp.RtoMax` are settings, and
//!   `Tcp.CurrEstab` is the number of connections at present.

use std::collections::BTreeMap;
use std::io::ErrorKind as IoErrorKind;
use std::{fs, io};

use crate::error::{Context as _, Result};

/// A thread's own network namespace; `/proc/net` is that of the process's first thread.
const NET: &str = "/proc/thread-self/net";
/// The protocols of `/proc/net/snmp6`, whose names have no dot behind them.
const PROTOCOLS_6: [&str; 4] = ["Ip6", "Icmp6", "UdpLite6", "Udp6"];
/// Where the kernel shows the neighbour tables: those of the first network namespace, in which the
/// first process of a host is.
const NEIGHBOURS: [&str; 2] = ["/proc/thread-self/net/stat", "/proc/1/net/stat"];

/// Counters by name, in the order of their names.
///
/// ```no_run
/// use hostnet::mib;
///
/// let counters = mib::read()?;
/// let full = counters.get("Udp.RcvbufErrors").unwrap_or_default();
/// println!("{full} datagrams found a full buffer");
/// # Ok::<(), hostnet::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mib(BTreeMap<String, u64>);

impl Mib {
    /// The counters in the text of `/proc/net/snmp`, `netstat` or `snmp6`.
    ///
    /// ```
    /// use hostnet::mib::Mib;
    ///
    /// let mib = Mib::parse("Udp: InDatagrams NoPorts\nUdp: 492 7\n");
    /// assert_eq!(mib.get("Udp.NoPorts"), Some(7));
    /// ```
    pub fn parse(text: &str) -> Self {
        let mut mib = Self::default();
        // The lines of one form are none of the other.
        mib.add_tables(text);
        mib.add_list(text);
        mib
    }

    /// The counters in the text of a file of `/proc/net/stat`, such as `arp_cache` or `nf_conntrack`,
    /// whose name goes before theirs.
    ///
    /// ```
    /// use hostnet::mib::Mib;
    ///
    /// let mib = Mib::parse_stat("nf_conntrack", "entries drop\n00000003 00000001\n00000003 00000004\n");
    /// assert_eq!((mib.get("nf_conntrack.entries"), mib.get("nf_conntrack.drop")), (Some(3), Some(5)));
    /// ```
    pub fn parse_stat(table: &str, text: &str) -> Self {
        let mut mib = Self::default();
        mib.add_per_cpu(table, text);
        mib
    }

    /// The counter with this name, such as `Udp.RcvbufErrors`; none where this kernel has no such
    /// counter.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// All counters by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, &count)| (name.as_str(), count))
    }

    /// Adds pairs of lines: `Ip: Forwarding DefaultTTL …` and `Ip: 1 64 …`.
    fn add_tables(&mut self, text: &str) {
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        let mut names = lines.next();
        while let Some((protocol, columns)) = names {
            let values = lines.next();
            match values.filter(|(of, _)| *of == protocol) {
                Some((_, values)) => {
                    self.add_row(protocol, columns, values);
                    names = lines.next();
                }
                // One of the pair is missing, so this may be the first of the next pair.
                None => names = values,
            }
        }
    }

    fn add_row(&mut self, protocol: &str, names: &str, values: &str) {
        let pairs = names.split_whitespace().zip(values.split_whitespace());
        for (name, value) in pairs {
            // `Tcp.MaxConn` is -1: no limit, and no count.
            if let Ok(value) = value.parse() {
                self.0.insert(format!("{protocol}.{name}"), value);
            }
        }
    }

    /// Adds lines such as `Ip6InReceives 3`.
    fn add_list(&mut self, text: &str) {
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(name), Some(value)) = (words.next(), words.next()) else {
                continue;
            };
            let protocol = PROTOCOLS_6.iter().find(|known| name.starts_with(**known));
            if let Some(protocol) = protocol
                && let Ok(value) = value.parse()
            {
                let name = &name[protocol.len()..];
                self.0.insert(format!("{protocol}.{name}"), value);
            }
        }
    }

    /// Adds a table of `/proc/net/stat`: names, and a line of hexadecimal numbers for each CPU.
    fn add_per_cpu(&mut self, table: &str, text: &str) {
        let mut lines = text.lines();
        let names = lines.next().unwrap_or_default();
        for line in lines {
            for (name, value) in names.split_whitespace().zip(line.split_whitespace()) {
                let Ok(value) = u64::from_str_radix(value, 16) else {
                    continue;
                };
                let sum = self.0.entry(format!("{table}.{name}")).or_default();
                // The one number that every CPU's line has of the whole table.
                *sum = match name {
                    "entries" => value,
                    _ => sum.wrapping_add(value),
                };
            }
        }
    }
}

/// The counters of the calling thread's network namespace, by protocol and name: `Ip`, `Icmp`, `IcmpMsg`,
/// `Tcp`, `Udp`, `UdpLite`, `TcpExt`, `IpExt`, `MPTcpExt`, and with IPv6 `Ip6`, `Icmp6`, `Udp6`, `UdpLite6`.
///
/// Lines that cannot be parsed, and values that are negative, are left out. The files are read one after
/// the other, and the kernel adds up CPU by CPU, so under traffic counters differ by what has arrived
/// meanwhile.
///
/// # Errors
///
/// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) where `/proc` is not mounted.
pub fn read() -> Result<Mib> {
    let mut mib = Mib::default();
    for file in ["snmp", "netstat"] {
        let path = format!("{NET}/{file}");
        let text = read_file(&path);
        let text = text.with_context(|| format!("cannot read {path}: is /proc mounted?"))?;
        mib.add_tables(&text);
    }
    let path = format!("{NET}/snmp6");
    match read_file(&path) {
        // A kernel without IPv6.
        Err(error) if error.kind() == IoErrorKind::NotFound => {}
        text => mib.add_list(&text.with_context(|| format!("cannot read {path}"))?),
    }
    Ok(mib)
}

/// The statistics of the neighbour tables of IPv4 and IPv6, as `arp_cache.table_fulls`,
/// `ndisc_cache.unresolved_discards` or `arp_cache.res_failed` (`struct neigh_statistics` in
/// `include/net/neighbour.h`); `entries` is the present number.
///
/// Each table is one for all network namespaces of the host, also its limit (`gc_thresh3`). The kernel
/// shows it in the first namespace only (`neigh_table_init` in `net/core/neighbour.c`). A thread in another
/// one reads it by way of process 1; where that is in another namespace too, as in a container, the
/// result is empty.
///
/// ```no_run
/// let tables = hostnet::mib::neighbour_tables()?;
/// if let Some(full) = tables.get("arp_cache.table_fulls") {
///     println!("{full} neighbours found no place");
/// }
/// # Ok::<(), hostnet::Error>(())
/// ```
pub fn neighbour_tables() -> Result<Mib> {
    let mut mib = Mib::default();
    for table in ["arp_cache", "ndisc_cache"] {
        for directory in NEIGHBOURS {
            let path = format!("{directory}/{table}");
            match read_file(&path) {
                Ok(text) => {
                    mib.add_per_cpu(table, &text);
                    break;
                }
                // Without privilege, the namespace of another's process cannot be seen.
                Err(error) if is_hidden(&error) => {}
                Err(error) => return Err(error).with_context(|| format!("cannot read {path}")),
            }
        }
    }
    Ok(mib)
}

fn is_hidden(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        IoErrorKind::NotFound | IoErrorKind::PermissionDenied
    )
}

/// The text of a file of the kernel, whatever bytes are in it.
fn read_file(path: &str) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SNMP: &str = "\
Ip: Forwarding DefaultTTL InReceives
Ip: 2 64 72451
Tcp: RtoMax MaxConn ActiveOpens
Tcp: 120000 -1 188
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors
Udp: 492 0 4991 495 4991
";
    const NETSTAT: &str = "\
TcpExt: ListenOverflows ListenDrops
TcpExt: 3 4
IpExt: InNoECTPkts InECT1Pkts
IpExt: 18446744073709551615 0
";
    const SNMP6: &str = "\
Ip6InReceives                   \t3
Icmp6OutType135                 \t5
Udp6RcvbufErrors                \t6
UdpLite6InErrors                \t7
";
    const ARP_CACHE: &str = "\
entries  allocs   destroys res_failed unresolved_discards table_fulls
00000004 00000083 00000092 00000002   0000000a            ffffffff
00000004 00000069 00000056 00000001   00000001            00000001
";

    fn tables(text: &str) -> Mib {
        let mut mib = Mib::default();
        mib.add_tables(text);
        mib
    }

    fn list(text: &str) -> Mib {
        let mut mib = Mib::default();
        mib.add_list(text);
        mib
    }

    fn neighbours(text: &str) -> Mib {
        let mut mib = Mib::default();
        mib.add_per_cpu("arp_cache", text);
        mib
    }

    #[test]
    fn names_have_their_protocol() {
        let mut mib = tables(SNMP);
        mib.add_tables(NETSTAT);
        mib.add_list(SNMP6);
        for (name, value) in [
            ("Ip.InReceives", 72451),
            ("Tcp.ActiveOpens", 188),
            ("Udp.RcvbufErrors", 4991),
            ("TcpExt.ListenDrops", 4),
            ("IpExt.InNoECTPkts", u64::MAX),
            ("Ip6.InReceives", 3),
            ("Icmp6.OutType135", 5),
            ("Udp6.RcvbufErrors", 6),
            ("UdpLite6.InErrors", 7),
        ] {
            assert_eq!(mib.get(name), Some(value), "{name}");
        }
        assert_eq!(mib.get("Tcp.MaxConn"), None, "-1 is no count");
        let names: Vec<_> = mib.iter().map(|(name, _)| name).collect();
        assert!(names.is_sorted() && names.len() == 18, "{names:?}");
    }

    #[test]
    fn a_line_that_lacks_its_other_half_is_skipped() {
        let mib = tables("Ip: InReceives\nUdp: NoPorts\nUdp: 3\nTcp: InSegs\n");
        assert_eq!(mib.iter().collect::<Vec<_>>(), [("Udp.NoPorts", 3)]);
        let mib = tables("no colon\nUdp: NoPorts InErrors\nUdp: 3\n");
        assert_eq!(mib.iter().collect::<Vec<_>>(), [("Udp.NoPorts", 3)]);
    }

    #[test]
    fn a_value_that_is_no_count_is_skipped() {
        let mib = tables("Udp: A B C D\nUdp: 18446744073709551616 -3 x 4\n");
        assert_eq!(mib.iter().collect::<Vec<_>>(), [("Udp.D", 4)]);
        let mib = list("Ip6A\nIp6B x\nOther 3\n\nIp6C 9 9\nUdp6é 1\n");
        let read: Vec<_> = mib.iter().collect();
        assert_eq!(read, [("Ip6.C", 9), ("Udp6.é", 1)]);
    }

    #[test]
    fn a_neighbour_table_is_summed_over_cpus() {
        let mib = neighbours(ARP_CACHE);
        assert_eq!(mib.get("arp_cache.entries"), Some(4), "not a sum");
        assert_eq!(mib.get("arp_cache.allocs"), Some(0xec));
        assert_eq!(mib.get("arp_cache.unresolved_discards"), Some(11));
        assert_eq!(mib.get("arp_cache.table_fulls"), Some(1 << 32));
        let mib = neighbours("entries allocs\n4 x 5\nz 2");
        assert_eq!(mib.get("arp_cache.entries"), Some(4));
        assert_eq!(mib.get("arp_cache.allocs"), Some(2));
    }

    #[test]
    fn cut_files_are_read_as_far_as_they_go() {
        for (text, read) in [
            (SNMP, tables as fn(&str) -> Mib),
            (NETSTAT, tables),
            (SNMP6, list),
            (ARP_CACHE, neighbours),
        ] {
            let whole = read(text).iter().count();
            for end in 0..text.len() {
                assert!(read(&text[..end]).iter().count() <= whole);
            }
        }
    }
}
