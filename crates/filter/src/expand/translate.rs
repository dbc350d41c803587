//! Pools of translations and routes (`collapse_redirspec`, `apply_redirspec` of pfctl).

use std::sync::Arc;

use super::combination::{Combination, decide_family};
use crate::lex::At;
use crate::parse::syntax::{self, HostAddress, RangeKind, Redirect};
use crate::parse::{Dialect, Failed, Parser, RULES_MAX};
use crate::rule::{
    Address, Direction, Family, Hop, NAT_PORTS, Network, Peer, Pool, PoolKind, Route, Rule, Table,
    TableEntry, TablePart,
};

impl Parser<'_> {
    /// Makes the pools of a rule, and gives it their family where it has none.
    pub(super) fn pools(&mut self, rule: &syntax::Rule, made: &mut Rule) -> Result<(), Failed> {
        let options = &rule.options;
        let af_to = options.af_to.is_some();
        let mut naf = None;
        if self.config.dialect == Dialect::FreeBsd && !af_to {
            return self.freebsd_pools(rule, made);
        }
        if let Some(rdr) = &options.rdr {
            made.rdr = Some(Box::new(self.pool(
                rdr,
                made,
                af_to,
                &mut naf,
                "translation",
            )?));
        }
        if let Some(nat) = &options.nat {
            made.nat = Some(Box::new(self.pool(
                nat,
                made,
                af_to,
                &mut naf,
                "translation",
            )?));
        }
        if let Some((kind, route)) = &options.route {
            let pool = self.pool(route, made, false, &mut naf, "routing")?;
            made.route = Some(Box::new(Route { kind: *kind, pool }));
        }
        made.af_to = naf.filter(|_| af_to);
        Ok(())
    }

    fn pool(
        &mut self,
        redirect: &Redirect,
        made: &mut Rule,
        af_to: bool,
        naf: &mut Option<Family>,
        what: &str,
    ) -> Result<Pool, Failed> {
        if af_to {
            *naf = redirect.family;
        }
        let mut family = None;
        // The rule's own family is the one that packets have before `af-to`.
        if made.family.is_none() {
            family = redirect.family.map(|_| match naf {
                Some(Family::Inet6) => Family::Inet,
                _ => Family::Inet6,
            });
        }
        let mut hosts: Vec<&syntax::Node<syntax::Host>> = Vec::new();
        for node in &redirect.hosts {
            if let HostAddress::Dynamic(interface) = &node.value.address
                && what == "routing"
                && interface.part != Some(crate::rule::InterfacePart::Peer)
            {
                return self.fail_with(
                    "pool",
                    &node.at,
                    "a route by an interface in parentheses needs its peer",
                    "write `(interface:peer)`",
                );
            }
            let of_host = node.value.family;
            if of_host.is_some() && naf.is_none() {
                if made.family.is_some() && made.family != of_host {
                    continue;
                }
                if made.family.is_none() && family.is_some() && family != of_host {
                    let message = format!("{what} addresses are of different families");
                    return self.fail_with(
                        "family",
                        &node.at,
                        message,
                        "write `inet` or `inet6` on the rule",
                    );
                }
            } else if of_host.is_some() && redirect.family.is_some() && redirect.family != of_host {
                let message = format!("{what} addresses are not of the family that `af-to` names");
                return self.fail("family", &node.at, message);
            }
            if made.family.is_none() && family.is_none() {
                family = of_host;
            }
            hosts.push(node);
        }
        if made.family.is_none() {
            made.family = family;
        }
        let address = match hosts[..] {
            [] => {
                let message = format!("no {what} address is of the rule's family");
                return self.fail("family", &redirect.at, message);
            }
            [node] => self.pool_address(&node.value, &node.at)?,
            _ => self.pool_table(redirect, &hosts)?,
        };
        Ok(Pool {
            address,
            interface: None,
            more: Vec::new(),
            ports: (0, 0),
            port_range: false,
            kind: redirect.kind,
            sticky: redirect.sticky,
        })
    }

    /// Gives targets of FreeBSD's rules the rule's family, before the rule is expanded.
    pub(super) fn keep_families(&mut self, rule: &mut syntax::Rule) -> Result<(), Failed> {
        let syntax::Rule {
            options,
            family,
            source,
            destination,
            ..
        } = rule;
        if options.af_to.is_some() {
            return Ok(());
        }
        let route = options.route.as_mut().map(|(_, route)| route);
        for redirect in [options.nat.as_mut(), options.rdr.as_mut(), route]
            .into_iter()
            .flatten()
        {
            for hosts in [&source.hosts, &destination.hosts, &redirect.hosts] {
                decide_family(hosts, family);
            }
            let (at, what) = (redirect.at.clone(), "target");
            self.keep_family(&mut redirect.hosts, family, &at, what)?;
        }
        Ok(())
    }

    /// Pools with FreeBSD's lists.
    fn freebsd_pools(&mut self, rule: &syntax::Rule, made: &mut Rule) -> Result<(), Failed> {
        let options = &rule.options;
        if let Some(nat) = &options.nat {
            made.nat = Some(Box::new(self.freebsd_pool(nat, made.family)?));
        }
        if let Some(rdr) = &options.rdr {
            made.rdr = Some(Box::new(self.freebsd_pool(rdr, made.family)?));
        }
        if let Some((kind, route)) = &options.route {
            let pool = self.freebsd_pool(route, made.family)?;
            made.route = Some(Box::new(Route { kind: *kind, pool }));
        }
        Ok(())
    }

    fn freebsd_pool(
        &mut self,
        redirect: &Redirect,
        family: Option<Family>,
    ) -> Result<Pool, Failed> {
        let mut hops = Vec::with_capacity(redirect.hosts.len());
        for node in &redirect.hosts {
            let interface = node.value.via.clone();
            let whole = matches!(node.value.address, HostAddress::Network(address, _) if address.is_unspecified());
            let address = if interface.is_some() && whole {
                Address::Any
            } else {
                self.address(&node.value, &node.at, family)?
            };
            hops.push(Hop { address, interface });
        }
        let mut hops = hops.into_iter();
        let Some(Hop { address, interface }) = hops.next() else {
            return self.fail("family", &redirect.at, "no address is of the rule's family");
        };
        Ok(Pool {
            address,
            interface,
            more: hops.collect(),
            ports: (0, 0),
            port_range: false,
            kind: redirect.kind,
            sticky: redirect.sticky,
        })
    }

    fn pool_address(&mut self, host: &syntax::Host, at: &At) -> Result<Address, Failed> {
        self.address(host, at, None)
    }

    /// Several addresses become a hidden table.
    fn pool_table(
        &mut self,
        redirect: &Redirect,
        hosts: &[&syntax::Node<syntax::Host>],
    ) -> Result<Address, Failed> {
        if matches!(redirect.kind, PoolKind::Bitmask) {
            return self.fail(
                "pool",
                &redirect.at,
                "`bitmask` needs one network, not several addresses",
            );
        }
        // Each rule of an expansion has a table of its own.
        self.expanded += hosts.len();
        if self.expanded > RULES_MAX {
            let message = format!("pools have more than {RULES_MAX} addresses in all rules");
            return self.fail_with(
                "too-many-rules",
                &redirect.at,
                message,
                "write a table for the pool",
            );
        }
        let mut entries = Vec::with_capacity(hosts.len());
        for node in hosts {
            match &node.value.address {
                HostAddress::Network(address, bits) if *bits <= Family::of(*address).bits() => {
                    let network = Network::new(*address, *bits);
                    entries.push(TableEntry {
                        network,
                        negated: false,
                        weight: node.value.weight,
                    });
                }
                HostAddress::Unresolved(_) => {}
                _ => return self.fail("pool", &node.at, "a pool's list holds addresses only"),
            }
        }
        let name: Arc<str> = format!("__automatic_{}", self.automatic_tables).into();
        self.automatic_tables += 1;
        let parts = vec![TablePart::List(entries.len())];
        self.add_table(Table {
            name: name.clone(),
            anchor: self.anchor_path(),
            constant: true,
            persist: false,
            counters: false,
            entries,
            parts,
            span: redirect.at.usage,
        });
        Ok(Address::Table(name))
    }

    /// Ports and ways of choosing, once the rule's addresses are known.
    pub(super) fn pool_options(
        &mut self,
        rule: &syntax::Rule,
        made: &mut Rule,
        combination: &Combination<'_>,
    ) -> Result<(), Failed> {
        let port = combination
            .destination_port
            .value()
            .map(|port| (port.low, port.high));
        let options = &rule.options;
        if let (Some(redirect), Some(pool)) = (&options.nat, made.nat.as_deref_mut()) {
            pool.ports = nat_ports(redirect);
            self.pool_kind(redirect, pool)?;
            self.static_port(redirect, pool)?;
        }
        if let (Some(redirect), Some(pool)) = (&options.rdr, made.rdr.as_deref_mut()) {
            self.rdr_ports(redirect, pool, port)?;
            self.pool_kind(redirect, pool)?;
            if redirect.static_port {
                return self.fail("pool", &redirect.at, "`static-port` is for `nat-to` only");
            }
        }
        if let (Some((_, redirect)), Some(route)) = (&options.route, made.route.as_deref_mut()) {
            self.pool_kind(redirect, &mut route.pool)?;
            if redirect.static_port {
                return self.fail("pool", &redirect.at, "`static-port` is for `nat-to` only");
            }
        }
        Ok(())
    }

    fn rdr_ports(
        &mut self,
        redirect: &Redirect,
        pool: &mut Pool,
        port: Option<(u16, u16)>,
    ) -> Result<(), Failed> {
        let ports = redirect.ports;
        pool.ports = match ports.kind {
            RangeKind::Same => {
                let (low, high) = port.unwrap_or((0, 0));
                (ports.low, ports.low.wrapping_add(high.wrapping_sub(low)))
            }
            _ => (ports.low, ports.high),
        };
        pool.port_range = ports.kind == RangeKind::Range;
        if pool.port_range && ports.low > ports.high {
            let (message, help) = (
                "this range of ports holds none",
                "write the smaller port first",
            );
            return self.fail_with("port-range", &redirect.at, message, help);
        }
        Ok(())
    }

    fn pool_kind(&mut self, redirect: &Redirect, pool: &mut Pool) -> Result<(), Failed> {
        let addresses = [&pool.address]
            .into_iter()
            .chain(pool.more.iter().map(|hop| &hop.address));
        let mut open = addresses.map(|address| match address {
            Address::Table(_) => true,
            Address::Interface(interface) => interface.has_several_addresses(),
            _ => false,
        });
        let several = open.any(|open| open) || !pool.more.is_empty();
        let known = matches!(pool.kind, PoolKind::None | PoolKind::RoundRobin);
        if several && !known && self.config.dialect == Dialect::FreeBsd {
            let help = "leave the type out, or name one network";
            let message = "several addresses, a table or an interface in parentheses are used round-robin only";
            return self.fail_with("pool", &redirect.at, message, help);
        }
        if pool.kind == PoolKind::None && several {
            pool.kind = PoolKind::RoundRobin;
        }
        if several && pool.kind == PoolKind::Bitmask {
            return self.fail(
                "pool",
                &redirect.at,
                "`bitmask` needs one network, not a table or an interface",
            );
        }
        Ok(())
    }

    fn static_port(&mut self, redirect: &Redirect, pool: &mut Pool) -> Result<(), Failed> {
        if !redirect.static_port {
            return Ok(());
        }
        if pool.ports.0 != NAT_PORTS.0 && pool.ports.1 != NAT_PORTS.1 {
            return self.fail(
                "pool",
                &redirect.at,
                "`static-port` cannot stand beside a range of ports",
            );
        }
        pool.ports = (0, 0);
        Ok(())
    }

    /// Checks the addresses of `binat-to`.
    pub(super) fn check_binat(
        &mut self,
        rule: &syntax::Rule,
        made: &Rule,
        combination: &Combination<'_>,
    ) -> Result<(), Failed> {
        let whole = At::plain(rule.span);
        let source_at = combination.source.at().map_or(&whole, |at| at).clone();
        let Some(nat) = rule.options.nat.as_ref() else {
            return Ok(());
        };
        let nat_at = nat.at.clone();
        let fits = |address: &Address| match address {
            Address::Network(network) => network.bits > 0,
            Address::Interface(interface) => !interface.has_several_addresses(),
            Address::Unresolved(_) => true,
            _ => false,
        };
        let help = "write one address or network, or `(interface:0)`";
        if !fits(&made.source.address) {
            return self.fail_with(
                "binat",
                &source_at,
                "`binat-to` needs one address or network as its source",
                help,
            );
        }
        let target = made.nat.as_deref().map(|pool| &pool.address);
        if !target.is_some_and(fits) {
            return self.fail_with(
                "binat",
                &nat_at,
                "`binat-to` needs one address or network as its target",
                help,
            );
        }
        if rule.direction.is_some() {
            let message = "`binat-to` makes a rule for each direction, and takes none";
            return self.fail_with("binat", &whole, message, "remove `in` or `out`");
        }
        Ok(())
    }
}

/// The rule of `binat-to` for packets that come in.
pub(super) fn inbound_of_binat(rule: &syntax::Rule, outbound: &Rule) -> Rule {
    let mut inbound = outbound.clone();
    inbound.direction = Some(Direction::In);
    let target = inbound.nat.take().map_or(Address::Any, |pool| pool.address);
    inbound.source = outbound.destination.clone();
    inbound.destination = Peer {
        address: target,
        negated: false,
        port: outbound.source.port,
    };
    let address = outbound.source.address.clone();
    let kind = rule
        .options
        .nat
        .as_ref()
        .map_or(PoolKind::None, |nat| nat.kind);
    let sticky = rule.options.nat.as_ref().is_some_and(|nat| nat.sticky);
    let ports = rule
        .options
        .nat
        .as_ref()
        .map_or((0, 0), |nat| (nat.ports.low, nat.ports.high));
    inbound.rdr = Some(Box::new(Pool {
        address,
        interface: None,
        more: Vec::new(),
        ports,
        port_range: false,
        kind,
        sticky,
    }));
    inbound
}

fn nat_ports(redirect: &Redirect) -> (u16, u16) {
    match redirect.ports {
        syntax::PortRange {
            low: 0, high: 0, ..
        } => NAT_PORTS,
        syntax::PortRange { low, high: 0, .. } => (low, low),
        syntax::PortRange { low, high, .. } => (low, high),
    }
}
