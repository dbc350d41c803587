//! Host names of rules, asked of the resolver.

use std::collections::BTreeSet;
use std::net::{IpAddr, ToSocketAddrs as _};

use pf_filter::host::Host;
use pf_filter::rule::{Address, Anchor, Rule, Ruleset};

/// The most names that are asked for.
const MOST_NAMES: usize = 1000;

/// The names in rules that were read for a host without names, which stand for hosts.
pub fn names(ruleset: &Ruleset, host: &Host) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let loaded = ruleset.loaded.iter().flat_map(|loaded| &loaded.rules);
    for rule in ruleset.rules.iter().chain(loaded) {
        add_names(rule, &mut names);
    }
    for table in &ruleset.tables {
        let text = ruleset.sources.text(table.span);
        names.extend(words_of_list(text).map(str::to_owned));
    }
    names.retain(|name| is_host_name(name, host));
    names
}

fn add_names(rule: &Rule, names: &mut BTreeSet<String>) {
    let pools = rule.nat.iter().chain(&rule.rdr).map(|pool| &pool.address);
    let route = rule.route.iter().map(|route| &route.pool.address);
    let peers = [&rule.source.address, &rule.destination.address];
    for address in pools.chain(route).chain(peers) {
        if let Address::Unresolved(name) = address {
            names.insert(name.to_string());
        }
    }
    if let Some(Anchor::Inline { rules, .. }) = rule.anchor.as_deref() {
        for rule in rules {
            add_names(rule, names);
        }
    }
}

/// The words of a table's list.
fn words_of_list(text: &str) -> impl Iterator<Item = &str> {
    let list = text.split_once('{').map_or("", |(_, list)| list);
    list.split(|c: char| c.is_whitespace() || "{},!".contains(c))
        .filter(|word| !word.is_empty())
}

/// Whether a word is a host's name: neither an address nor an interface, with or without modifiers.
fn is_host_name(word: &str, host: &Host) -> bool {
    let bare = word.split([':', '/', '(']).next().unwrap_or_default();
    let is_name = bare.contains(|c: char| c.is_ascii_alphabetic());
    is_name
        && !word.contains(':')
        && bare != "self"
        && host.interface(bare).is_none()
        && !host.is_group(bare)
}

/// Adds the addresses of names to the host, in the resolver's order. One without any stays unknown.
pub fn add(host: &mut Host, names: BTreeSet<String>) {
    for name in names.into_iter().take(MOST_NAMES) {
        let bare = name.split('/').next().unwrap_or_default().to_owned();
        let addresses = addresses(&bare);
        if !addresses.is_empty() {
            host.names.insert(bare, addresses);
        }
    }
}

fn addresses(name: &str) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for address in (name, 0).to_socket_addrs().into_iter().flatten() {
        if !found.contains(&address.ip()) {
            found.push(address.ip());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hosts_are_asked_for() {
        let host = Host::default();
        let words =
            "table <t> { www.example.org, 10/8 !fe80::1, lo0 localhost/24 self lo0:network }";
        let hosts: Vec<_> = words_of_list(words)
            .filter(|word| is_host_name(word, &host))
            .collect();
        assert_eq!(hosts, ["www.example.org", "localhost/24"]);
    }

    #[test]
    fn the_resolver_knows_this_machine() {
        let mut host = Host::with_interfaces(Vec::new());
        host.names.clear();
        add(
            &mut host,
            BTreeSet::from(["localhost".to_owned(), "no name".to_owned()]),
        );
        assert!(host.names["localhost"].iter().all(IpAddr::is_loopback));
        assert_eq!(host.names.len(), 1);
    }
}
