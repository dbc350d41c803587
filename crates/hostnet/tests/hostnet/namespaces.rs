//! Namespaces: made, entered, given to a process.

use std::fs;
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};

use hostnet::ErrorKind;
use hostnet::netns::{self, Namespace};
use hostnet::nfnetlink::{self, Table};
use hostnet::rtnetlink::Rtnetlink;
use hostnet::sysfs::Sysfs;

use testkit::{Need, Result, Test};

use crate::refusal;

const NFT: &[Need] = &[Need::Program("nft")];
const TABLES: &[Need] = &[Need::Feature("nftables for bridges", || {
    let namespace = netns::create()?;
    let tables = netns::run_in(namespace.as_fd(), || {
        send_batch(&[table(nfnetlink::BRIDGE)]);
        nfnetlink::tables_with_family()
    })?;
    Ok(!tables.is_empty())
})];
const IPV6: &[Need] = &[Need::File("/proc/sys/net/ipv6")];

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("a_new_namespace_has_the_loopback", new_namespace),
        Test::new("a_process_starts_inside", process),
        Test::new("all_namespaces_of_processes_are_found", all),
        Test::new("a_namespace_that_was_replaced_is_not_opened", replaced),
        Test::new("ipv6_is_off_for_new_devices", ipv6).needing(IPV6),
        Test::new("a_sysfs_shows_its_namespace", sysfs),
        Test::new("tables_of_nftables_have_names", nftables).needing(NFT),
        Test::new("a_base_chain_hooks_its_family", chains).needing(TABLES),
    ]
}

fn new_namespace() -> Result<()> {
    let namespace = netns::create()?;
    let identity = netns::identity(namespace.as_fd())?;
    assert_ne!(identity, netns::current()?);
    let inside = netns::run_in(namespace.as_fd(), netns::current)?;
    assert_eq!(inside, identity);
    let links = netns::run_in(namespace.as_fd(), || Rtnetlink::open()?.links())?;
    assert_eq!(links.len(), 1, "{links:?}");
    assert!(links[0].loopback && !links[0].up, "{links:?}");
    Ok(())
}

fn process() -> Result<()> {
    let namespace = netns::create()?;
    assert!(netns::processes(namespace.as_fd())?.is_empty());
    let mut command = Command::new("cat");
    command.stdin(Stdio::piped());
    let mut cat = netns::spawn(namespace.as_fd(), &mut command)?;
    assert_eq!(netns::processes(namespace.as_fd())?, [cat.id()]);
    drop(cat.stdin.take());
    assert!(cat.wait()?.success());
    Ok(())
}

fn all() -> Result<()> {
    let namespace = netns::create()?;
    let identity = netns::identity(namespace.as_fd())?;
    let find = |inode| -> Result<_> {
        let mut found = netns::all()?.list.into_iter();
        Ok(found.find(|found| found.inode == inode))
    };
    assert_eq!(find(identity)?, None, "only a descriptor keeps it");
    let mut children = Vec::new();
    for _ in 0..2 {
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped());
        children.push(netns::spawn(namespace.as_fd(), &mut command)?);
    }
    let mut ids: Vec<_> = children.iter().map(Child::id).collect();
    ids.sort_unstable();
    let found = find(identity)?.ok_or("two processes are in it")?;
    assert_eq!(found.processes, ids);
    assert_eq!(found.names, [""; 0]);
    let opened = found.open()?;
    assert_eq!(netns::identity(opened.as_fd())?, identity);
    for child in &mut children {
        drop(child.stdin.take());
        assert!(child.wait()?.success());
    }
    let error = refusal(found.open());
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");

    let own = find(netns::current()?)?.ok_or("this process is in it")?;
    assert_eq!(netns::identity(own.open()?.as_fd())?, own.inode);
    Ok(())
}

fn replaced() -> Result<()> {
    let mut namespace = Namespace {
        inode: netns::current()?,
        path: "/proc/thread-self/ns/net".into(),
        ..Namespace::default()
    };
    namespace.open()?;
    let other = netns::create()?;
    let inside = netns::run_in(other.as_fd(), || Ok::<_, hostnet::Error>(namespace.open()));
    let error = refusal(inside?);
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    namespace.path = "/proc/self/status".into();
    let error = refusal(namespace.open());
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    Ok(())
}

fn ipv6() -> Result<()> {
    let namespace = netns::create()?;
    assert!(netns::disable_ipv6(namespace.as_fd())?);
    let value = netns::run_in(namespace.as_fd(), || -> Result<_> {
        let path = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
        Ok(fs::read_to_string(path)?)
    })?;
    assert_eq!(value.trim(), "1");
    Ok(())
}

fn sysfs() -> Result<()> {
    let namespace = netns::create()?;
    let sysfs = netns::run_in(namespace.as_fd(), Sysfs::mount)?;
    // From another namespace.
    let mut devices = Vec::new();
    for entry in fs::read_dir(sysfs.class_net(""))? {
        devices.extend(entry?.file_name().into_string());
    }
    devices.retain(|name| name != "bonding_masters");
    assert_eq!(devices, ["lo"]);
    Ok(())
}

fn nftables() -> Result<()> {
    let namespace = netns::create()?;
    let tables = || netns::run_in(namespace.as_fd(), nfnetlink::tables);
    assert!(tables()?.is_empty());
    for name in ["one", "two"] {
        let mut command = Command::new("nft");
        command.args(["add", "table", "inet", name]);
        let added = netns::spawn(namespace.as_fd(), &mut command)?.wait()?;
        assert!(added.success());
    }
    assert_eq!(tables()?, ["one", "two"]);
    Ok(())
}

fn chains() -> Result<()> {
    let namespace = netns::create()?;
    netns::run_in(namespace.as_fd(), || -> Result<()> {
        assert!(nfnetlink::hooked_families()?.is_empty());
        send_batch(&[
            table(nfnetlink::BRIDGE),
            table(nfnetlink::INET),
            chain(nfnetlink::INET, None),
        ]);
        let expected = [nfnetlink::INET, nfnetlink::BRIDGE].map(|family| Table {
            family,
            name: "t".into(),
        });
        let mut tables = nfnetlink::tables_with_family()?;
        tables.sort();
        assert_eq!(tables, expected);
        assert!(nfnetlink::hooked_families()?.is_empty(), "no base chain");
        // `NF_BR_FORWARD`.
        send_batch(&[chain(nfnetlink::BRIDGE, Some(2))]);
        assert_eq!(nfnetlink::hooked_families()?, [nfnetlink::BRIDGE].into());
        Ok(())
    })
}

/// A request to nftables: its type, its family, its attributes.
struct Request(u16, u8, Vec<u8>);

/// The table t (`NFT_MSG_NEWTABLE`).
fn table(family: u8) -> Request {
    Request(10 << 8, family, attribute(1, b"t\0"))
}

/// The chain c of the table t (`NFT_MSG_NEWCHAIN`), with a hook or without.
fn chain(family: u8, hook: Option<u32>) -> Request {
    let mut attributes = [attribute(1, b"t\0"), attribute(3, b"c\0")].concat();
    if let Some(hook) = hook {
        let number = attribute(1, &hook.to_be_bytes());
        let priority = attribute(2, &0_u32.to_be_bytes());
        attributes.extend(attribute(4 | 0x8000, &[number, priority].concat()));
        attributes.extend(attribute(7, b"filter\0"));
    }
    Request(10 << 8 | 3, family, attributes)
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = 4 + value.len() as u16;
    let mut bytes = [length, kind].map(u16::to_ne_bytes).concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Sends requests as one transaction, as nft(8) does. The kernel has made it when this returns; its
/// answers are not read: what it made is what counts.
fn send_batch(requests: &[Request]) {
    const NETFILTER: isize = 12;
    // `NFNL_MSG_BATCH_BEGIN` and `NFNL_MSG_BATCH_END`, with the subsystem in the header.
    let mut bytes = message(16, 0, 10, &[]);
    for Request(kind, family, attributes) in requests {
        bytes.extend(message(*kind, *family, 0, attributes));
    }
    bytes.extend(message(17, 0, 10, &[]));
    let send = || -> std::io::Result<()> {
        let mut socket = netlink_sys::Socket::new(NETFILTER)?;
        socket.bind_auto()?;
        socket.connect(&netlink_sys::SocketAddr::new(0, 0))?;
        socket.send(&bytes, 0)?;
        Ok(())
    };
    // A kernel without netfilter has no such sockets; the caller sees that nothing was made.
    send().ok();
}

fn message(kind: u16, family: u8, resource: u16, attributes: &[u8]) -> Vec<u8> {
    let length = 20 + attributes.len() as u32;
    let mut bytes = length.to_ne_bytes().to_vec();
    // `NLM_F_REQUEST | NLM_F_CREATE`.
    bytes.extend([kind, 0x401].map(u16::to_ne_bytes).concat());
    bytes.extend([0; 8]);
    bytes.extend([family, 0]);
    bytes.extend(resource.to_be_bytes());
    bytes.extend(attributes);
    bytes
}
