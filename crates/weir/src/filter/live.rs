//! The machine that runs this as the host that rules are for.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use hostnet::rtnetlink::{Address, Link, Rtnetlink};
use pf_filter::host::{Host, Interface, InterfaceAddress};

/// `IFF_BROADCAST` (`linux/if.h`).
const BROADCAST: u32 = 2;

/// This machine: the devices of the network namespace with their addresses, users, groups, services
/// and protocols. It knows no host names: see [`resolve`](super::resolve).
///
/// A device is in the groups of its kind (`vlan`, `bridge`), of its driver, and in `egress` if it has
/// a default route. Rules and packets may call it by an alternative name.
///
/// # Errors
///
/// When the kernel does not list its devices; when an alternative name is a group of other devices, too.
pub fn host() -> Result<Host> {
    let (links, interfaces) = interfaces().context("cannot read the live host")?;
    let mut host = Host::with_interfaces(interfaces);
    add_alternative_names(&mut host, &links)?;
    host.users = numbers(&etc("passwd"), ':', 2);
    host.groups = numbers(&etc("group"), ':', 2);
    host.services = services(&etc("services"));
    host.protocols = protocols(&etc("protocols"));
    Ok(host)
}

/// Refuses one that is a group, too: rules with it would have two meanings.
fn add_alternative_names(host: &mut Host, links: &[Link]) -> Result<()> {
    for link in links {
        for name in &link.alternative_names {
            let mut groups = host.interfaces.iter().filter(|it| it.in_group(name));
            if let Some(member) = groups.find(|it| it.name != link.name) {
                bail!(
                    "{name} is an alternative name of {}, and in rules a group that {} is in: take the name away with \
                     `ip link property del dev {} altname {name}`, or give a model with --host FILE",
                    link.name,
                    member.name,
                    link.name
                );
            }
            host.aliases.insert(name.clone(), link.name.clone());
        }
    }
    Ok(())
}

/// The devices, and the same as interfaces.
fn interfaces() -> Result<(Vec<Link>, Vec<Interface>)> {
    let mut rtnetlink = Rtnetlink::open()?;
    let mut links = rtnetlink.links()?;
    links.sort_by_key(|link| link.index);
    let addresses = rtnetlink.addresses()?;
    let egress = rtnetlink.default_route_devices()?;
    let interface = |link: &Link| interface(link, &addresses, egress.contains(&link.index));
    let interfaces = links.iter().map(interface).collect();
    Ok((links, interfaces))
}

fn interface(link: &Link, addresses: &[Address], is_egress: bool) -> Interface {
    let sysfs = Path::new("/sys/class/net").join(&link.name);
    let driver = fs::read_link(sysfs.join("device/driver")).ok();
    let driver = driver.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let egress = is_egress.then(|| "egress".to_owned());
    let own = addresses.iter().filter(|it| it.device == link.index);
    Interface {
        name: link.name.clone(),
        groups: link
            .kind
            .iter()
            .cloned()
            .chain(driver)
            .chain(egress)
            .collect(),
        addresses: own.map(address).collect(),
        broadcast: broadcast(&sysfs),
    }
}

fn address(address: &Address) -> InterfaceAddress {
    InterfaceAddress {
        address: address.address,
        bits: address.prefix,
        peer: address.peer,
    }
}

/// Whether a device has broadcast addresses; none where no sysfs tells.
fn broadcast(sysfs: &Path) -> Option<bool> {
    let flags = fs::read_to_string(sysfs.join("flags")).ok()?;
    let flags = u32::from_str_radix(flags.trim().strip_prefix("0x")?, 16).ok()?;
    Some(flags & BROADCAST != 0)
}

/// A file of /etc; a host may lack it.
fn etc(name: &str) -> String {
    let bytes = fs::read(Path::new("/etc").join(name)).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Names in the first column of lines, and numbers in another one.
fn numbers(text: &str, separator: char, column: usize) -> BTreeMap<String, u32> {
    let entry = |line: &str| {
        let mut columns = line.split(separator);
        let name = columns.next().filter(|name| !name.is_empty())?;
        Some((name.to_owned(), columns.nth(column - 1)?.parse().ok()?))
    };
    text.lines().filter_map(entry).collect()
}

/// services(5): the first port of a name, whichever protocol it is for.
fn services(text: &str) -> BTreeMap<String, u16> {
    let number = |word: &str| word.split('/').next()?.parse().ok();
    names_of_lines(text, number)
}

/// protocols(5). Number 0 is every protocol in pf.
fn protocols(text: &str) -> BTreeMap<String, u8> {
    let number = |word: &str| word.parse().ok().filter(|&number| number != 0);
    names_of_lines(text, number)
}

/// `NAME NUMBER ALIAS…`, with comments.
fn names_of_lines<N: Copy>(text: &str, number: impl Fn(&str) -> Option<N>) -> BTreeMap<String, N> {
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let (Some(name), Some(value)) = (words.next(), words.next().and_then(&number)) else {
            continue;
        };
        for name in std::iter::once(name).chain(words) {
            found.entry(name.to_owned()).or_insert(value);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_etc_are_read() {
        let users = numbers("root:x:0:0::/root:\n:x:1\nwww:x:33\nbad:x:no\n", ':', 2);
        assert_eq!(
            users,
            BTreeMap::from([("root".into(), 0), ("www".into(), 33)])
        );
        let text = "ssh 22/tcp # shell\ndomain 53/tcp nameserver\ndomain 53/udp\n# ftp 21/tcp\nbad x/tcp\n";
        let expected = [("ssh", 22), ("domain", 53), ("nameserver", 53)];
        let expected = expected.map(|(name, port)| (name.to_owned(), port));
        assert_eq!(services(text), BTreeMap::from(expected));
        let protocols = protocols("ip 0 IP\ntcp 6 TCP\n");
        assert_eq!(
            protocols,
            BTreeMap::from([("tcp".into(), 6), ("TCP".into(), 6)])
        );
    }

    #[test]
    fn this_machine_has_a_loopback() {
        let host = host().expect("rtnetlink answers everybody");
        let lo = host.interface("lo").expect("the loopback");
        assert!(lo.is_loopback() && !lo.has_broadcast());
        assert_eq!(host.user("root"), Some(0));
        assert!(host.is_known());
    }
}
