//! Namespaces: made, entered, given to a process.

use std::fs;
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};

use hostnet::rtnetlink::Rtnetlink;
use hostnet::sysfs::Sysfs;
use hostnet::{netns, nfnetlink};

use crate::{Need, Result, Test};

const NFT: &[Need] = &[Need::Program("nft")];
const IPV6: &[Need] = &[Need::File("/proc/sys/net/ipv6")];

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("a_new_namespace_has_the_loopback", new_namespace),
        Test::new("a_process_starts_inside", process),
        Test::needing("ipv6_is_off_for_new_devices", IPV6, ipv6),
        Test::new("a_sysfs_shows_its_namespace", sysfs),
        Test::needing("tables_of_nftables_have_names", NFT, nftables),
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
