//! The faults of the checks in `stack/`, nearly all of them real losses in a network namespace.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use anyhow::{Context as _, Result, bail, ensure};
use hostnet::netns;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, bind, connect, ipproto};
use rustix::net::{listen, sendto, socket_with, sockopt};
use weir::doctor::{Check, Finding, Fix, Verdict};
use weir::lab::{Lab, LabConfig};

use crate::doctor::run_in;
use crate::doctor_faults::{Fault, Fixture, Outcome, Way, fixture, guest, host, turning, with};

/// The faults of the checks in `stack/`.
pub const FAULTS: &[Fault] = &[
    namespace("udp-receive-buffer", receive_buffer),
    namespace("reuseport-imbalance", reuseport),
    namespace("udp-no-listener", no_listener),
    namespace("tcp-listen-queue", listen_queue),
    namespace("local-ports", local_ports),
    namespace("rp-filter", rp_filter),
    namespace("checksum-errors", checksum_errors),
    guest("neighbour-table", |check| {
        turning(check, ARP_CACHE, &arp_cache(1023, 7))
    }),
    fixture("cgroup-throttled", throttled),
    fixture("conntrack-full", |check| {
        turning(check, CONNTRACK, &conntrack(9, 0))
    }),
    fixture("conntrack-full", |check| {
        turning(check, CONNTRACK, &conntrack(0, 9))
    }),
    fixture("conntrack-full", |check| {
        with(
            check,
            "/proc/sys/net/netfilter/nf_conntrack_count",
            "260000",
        )
    }),
];

const ARP_CACHE: &str = "/proc/net/stat/arp_cache";
const CPU_STAT: &str = "/sys/fs/cgroup/pods/one/cpu.stat";
const CONNTRACK: &str = "/proc/net/stat/nf_conntrack";

/// The files of a host without a fault.
pub fn healthy() -> Vec<(&'static str, String)> {
    [
        (
            "/proc/net/snmp",
            "Icmp: InMsgs InCsumErrors\nIcmp: 3 0\nTcp: InSegs InCsumErrors\nTcp: 9 1\n\
             Udp: InDatagrams NoPorts RcvbufErrors InCsumErrors\nUdp: 5 1 2 0\n",
        ),
        (
            "/proc/net/netstat",
            "TcpExt: ListenOverflows ListenDrops IPReversePathFilter\nTcpExt: 1 1 2\n\
             IpExt: InCsumErrors\nIpExt: 0\n",
        ),
        (
            "/proc/net/sockstat",
            "sockets: used 3\nTCP: inuse 2 orphan 0 tw 1 alloc 2 mem 0\n",
        ),
        ("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu memory"),
        ("/sys/fs/cgroup/pods/cpu.max", "max 100000"),
        ("/sys/fs/cgroup/pods/one/cpu.max", "50000 100000"),
        ("/sys/fs/cgroup/pods/one/cgroup.procs", "4710\n4711"),
        (CPU_STAT, "nr_throttled 9\nthrottled_usec 9000\n"),
        ("/proc/sys/net/core/rmem_max", "212992"),
        ("/proc/sys/net/ipv4/ip_local_port_range", "32768\t60999"),
        ("/proc/sys/net/ipv4/ip_local_reserved_ports", ""),
        ("/proc/sys/net/ipv4/conf/all/rp_filter", "0"),
        ("/proc/sys/net/ipv4/conf/eth0/rp_filter", "1"),
        ("/proc/sys/net/ipv4/neigh/default/gc_thresh1", "128"),
        ("/proc/sys/net/ipv4/neigh/default/gc_thresh2", "512"),
        ("/proc/sys/net/ipv4/neigh/default/gc_thresh3", "1024"),
        ("/proc/sys/net/netfilter/nf_conntrack_count", "100"),
        ("/proc/sys/net/netfilter/nf_conntrack_max", "262144"),
    ]
    .into_iter()
    .map(|(path, text)| (path, text.to_owned()))
    .chain([(ARP_CACHE, arp_cache(7, 0)), (CONNTRACK, conntrack(0, 0))])
    .collect()
}

/// A table with so many entries, which has refused so many.
fn arp_cache(entries: u32, refused: u32) -> String {
    format!(
        "entries allocs res_failed unresolved_discards forced_gc_runs table_fulls\n\
         {entries:08x} 00000000 00000000 00000000 00000000 {refused:08x}\n"
    )
}

/// A table that has refused so many connections, and thrown out so many.
fn conntrack(refused: u32, thrown_out: u32) -> String {
    format!("entries drop early_drop\n00000064 {refused:08x} {thrown_out:08x}\n")
}

/// A group is throttled whose processes receive; then one that has other processes.
fn throttled(check: &Check) -> Result<Outcome> {
    const MORE: &str = "nr_throttled 30\nthrottled_usec 59000\n";
    let root = Fixture::healthy()?;
    root.set("/sys/fs/cgroup/pods/one/cgroup.procs", "4710\n4712")?;
    let context = root.context(&[]);
    root.set(CPU_STAT, MORE)?;
    is_fine(&check.verdicts(&context))?;
    turning(check, CPU_STAT, MORE)
}

const fn namespace(check: &'static str, inject: fn(&Check) -> Result<Outcome>) -> Fault {
    Fault {
        check,
        way: Way::Namespace,
        inject,
    }
}

/// A network namespace with its loopback up.
fn loopback() -> Result<OwnedFd> {
    let namespace = netns::create()?;
    run_in(namespace.as_fd(), "ip", &["link", "set", "lo", "up"])?;
    Ok(namespace)
}

/// Runs a check inside a namespace, `inject` between its two readings. The value of that stays until the
/// check has ended.
fn within<T>(
    namespace: BorrowedFd<'_>,
    check: &Check,
    inject: impl FnOnce() -> Result<T> + Send,
) -> Result<Vec<Verdict>> {
    netns::run_in(namespace, || {
        let context = host(&[]);
        let _kept = inject()?;
        Ok(check.verdicts(&context))
    })
}

/// The one finding, whose evidence and message have these words.
fn found(verdicts: Vec<Verdict>, words: &[&str]) -> Result<Outcome> {
    ensure_says(&verdicts, words)?;
    Ok(Outcome::Verdicts(verdicts))
}

fn ensure_says(verdicts: &[Verdict], words: &[&str]) -> Result<()> {
    let [Verdict::Finding(finding)] = verdicts else {
        bail!("not one finding: {verdicts:?}");
    };
    let Finding {
        message, evidence, ..
    } = finding;
    let text = format!("{message} {evidence:?}");
    for word in words {
        ensure!(text.contains(word), "no '{word}' in {text}");
    }
    Ok(())
}

/// No finding.
fn is_fine(verdicts: &[Verdict]) -> Result<()> {
    let fine = |it: &Verdict| matches!(it, Verdict::Fine { .. });
    ensure!(verdicts.iter().all(fine), "a false alarm: {verdicts:?}");
    Ok(())
}

/// This process as a finding names it.
fn this_process() -> String {
    format!("pid {} (", std::process::id())
}

const DATAGRAMS: usize = 1000;

fn send(to: SocketAddr, count: usize) -> Result<()> {
    let sender = UdpSocket::bind(SocketAddr::new(to.ip(), 0))?;
    // The answer to an earlier datagram, that there is no listener, is an error of a later one.
    sender.set_nonblocking(true)?;
    for _ in 0..count {
        let _ = sender.send_to(&[0; 100], to);
    }
    Ok(())
}

/// A socket that nobody reads.
fn deaf(address: SocketAddr) -> Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    sockopt::set_socket_recv_buffer_size(&socket, 2048)?;
    bind(&socket, &address)?;
    Ok(socket)
}

fn receive_buffer(check: &Check) -> Result<Outcome> {
    let namespace = loopback()?;
    let address: SocketAddr = "127.0.0.1:7001".parse()?;
    let fine = within(namespace.as_fd(), check, || deaf(address))?;
    is_fine(&fine)?;
    let overflow = |address: SocketAddr| {
        within(namespace.as_fd(), check, || {
            let socket = deaf(address)?;
            send(address, DATAGRAMS)?;
            Ok(socket)
        })
    };
    if std::fs::exists("/proc/net/if_inet6")? {
        let verdicts = overflow("[::1]:7001".parse()?)?;
        ensure_says(&verdicts, &["Udp6.RcvbufErrors", "[::1]:7001"])?;
    }
    let verdicts = overflow(address)?;
    // Its buffer is far below the limit.
    ensure!(
        matches!(
            verdicts.as_slice(),
            [Verdict::Finding(Finding {
                fix: Fix::Manual(_),
                ..
            })]
        ),
        "{verdicts:?}"
    );
    found(verdicts, &["127.0.0.1:7001", &this_process()])
}

fn reuseport(check: &Check) -> Result<Outcome> {
    let namespace = loopback()?;
    let address: SocketAddr = "127.0.0.1:7002".parse()?;
    // One socket has no neighbour to be compared with.
    let alone = within(namespace.as_fd(), check, || {
        let socket = deaf(address)?;
        send(address, DATAGRAMS)?;
        Ok(socket)
    })?;
    is_fine(&alone)?;
    let verdicts = within(namespace.as_fd(), check, || {
        let sockets = [deaf(address)?, deaf(address)?, deaf(address)?];
        // One flow, so one socket.
        send(address, DATAGRAMS)?;
        Ok(sockets)
    })?;
    found(
        verdicts,
        &["1 of the 3 sockets of 127.0.0.1:7002", &this_process()],
    )
}

fn no_listener(check: &Check) -> Result<Outcome> {
    let namespace = loopback()?;
    let port: SocketAddr = "127.0.0.1:7003".parse()?;
    is_fine(&within(namespace.as_fd(), check, || send(port, 5))?)?;
    let verdicts = within(namespace.as_fd(), check, || send(port, 100 * DATAGRAMS))?;
    found(verdicts, &["Udp.NoPorts"])
}

/// A server that does not accept, with a queue for two connections.
fn listen_queue(check: &Check) -> Result<Outcome> {
    let namespace = loopback()?;
    let address: SocketAddr = "127.0.0.1:7006".parse()?;
    let clients = |count| {
        within(namespace.as_fd(), check, || {
            let stream = |flags| {
                let stream = SocketType::STREAM;
                socket_with(
                    AddressFamily::INET,
                    stream,
                    flags | SocketFlags::CLOEXEC,
                    None,
                )
            };
            let server = stream(SocketFlags::empty())?;
            sockopt::set_socket_reuseaddr(&server, true)?;
            bind(&server, &address)?;
            listen(&server, 1)?;
            let mut clients = Vec::new();
            for _ in 0..count {
                let client = stream(SocketFlags::NONBLOCK)?;
                let begun = connect(&client, &address);
                ensure!(
                    matches!(begun, Ok(()) | Err(Errno::INPROGRESS)),
                    "{begun:?}"
                );
                clients.push(client);
            }
            Ok((server, clients))
        })
    };
    is_fine(&clients(2)?)?;
    found(
        clients(20)?,
        &[
            "127.0.0.1:7006",
            &this_process(),
            "2 connections wait, backlog 1",
        ],
    )
}

fn local_ports(check: &Check) -> Result<Outcome> {
    let namespace = loopback()?;
    let range = "sysctl -q -w net.ipv4.ip_local_port_range='40000 40009'";
    run_in(namespace.as_fd(), "sh", &["-c", range])?;
    let connected = |count: usize| {
        let server = TcpListener::bind("127.0.0.1:7004")?;
        let clients = (0..count).map(|_| TcpStream::connect("127.0.0.1:7004"));
        let clients = clients.collect::<Result<Vec<_>, _>>()?;
        Ok((server, clients))
    };
    is_fine(&within(namespace.as_fd(), check, || connected(8))?)?;
    // Eight are all, if two ports are reserved.
    let namespace = loopback()?;
    let reserved = format!("{range} net.ipv4.ip_local_reserved_ports=40000,40009");
    run_in(namespace.as_fd(), "sh", &["-c", &reserved])?;
    let verdicts = within(namespace.as_fd(), check, || connected(8))?;
    ensure_says(&verdicts, &["8 of 8"])?;
    // Those may still be in TIME_WAIT.
    let namespace = loopback()?;
    run_in(namespace.as_fd(), "sh", &["-c", range])?;
    let verdicts = within(namespace.as_fd(), check, || {
        let kept = connected(10)?;
        ensure!(TcpStream::connect("127.0.0.1:7004").is_err());
        Ok(kept)
    })?;
    found(verdicts, &["10 of 10", "from 127.0.0.1 to 127.0.0.1:7004"])
}

fn rp_filter(check: &Check) -> Result<Outcome> {
    let lab = Lab::anonymous(&LabConfig::default())?;
    let (ours, theirs) = (lab.app(), lab.load());
    ours.add_address(Ipv4Addr::new(10, 9, 0, 1), 24)?;
    theirs.add_address(Ipv4Addr::new(10, 9, 0, 2), 24)?;
    // The filter also ignores ARP requests of such a source.
    let mac = ours.mac.map(|byte| format!("{byte:02x}")).join(":");
    let from = &theirs.device;
    for script in [
        format!("ip address add 192.0.2.7/32 dev {from}"),
        format!("ip neigh replace 10.9.0.1 lladdr {mac} dev {from}"),
    ] {
        run_in(theirs.netns(), "sh", &["-c", &script])?;
    }
    let device = &ours.device;
    // The route back to the source leaves by another device.
    for script in [
        "ip link set lo up; ip route add 192.0.2.0/24 dev lo".to_owned(),
        format!("sysctl -q -w net.ipv4.conf.{device}.rp_filter=1"),
    ] {
        run_in(ours.netns(), "sh", &["-c", &script])?;
    }
    let send_from = |source: &str| {
        let source: SocketAddr = source.parse()?;
        within(ours.netns(), check, || {
            netns::run_in(theirs.netns(), || -> Result<()> {
                let sender = UdpSocket::bind(source)?;
                for _ in 0..20 {
                    sender.send_to(b"x", "10.9.0.1:7005")?;
                    // The answers are errors of this socket.
                    let _ = sender.take_error();
                }
                Ok(())
            })
        })
    };
    is_fine(&send_from("10.9.0.2:0")?)?;
    let strict = format!("Strict: {device}.");
    ensure_says(&send_from("192.0.2.7:0")?, &[&strict, "1, strict"])?;
    // The larger of both settings counts.
    let all =
        format!("sysctl -q -w net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.{device}.rp_filter=0");
    run_in(ours.netns(), "sh", &["-c", &all])?;
    found(send_from("192.0.2.7:0")?, &[&strict, "0, strict"])
}

/// Datagrams with a wrong checksum, from a raw socket.
fn checksum_errors(check: &Check) -> Result<Outcome> {
    const UDP: [u8; 8] = [0x1b, 0x58, 0x1b, 0x5e, 0, 8, 0xba, 0xad];
    let namespace = loopback()?;
    let send = |count| {
        within(namespace.as_fd(), check, || {
            let udp = Some(ipproto::UDP);
            let socket = socket_with(
                AddressFamily::INET,
                SocketType::RAW,
                SocketFlags::CLOEXEC,
                udp,
            )?;
            let to = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
            for _ in 0..count {
                sendto(&socket, &UDP, SendFlags::empty(), &to).context("cannot send")?;
            }
            Ok(())
        })
    };
    is_fine(&send(0)?)?;
    found(send(20)?, &["Udp.InCsumErrors"])
}
