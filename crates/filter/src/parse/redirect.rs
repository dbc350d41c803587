//! Targets of translations, routes and diversions.

use std::rc::Rc;

use md5::{Digest, Md5};

use super::parser::{Parser, Step};
use super::syntax::{Divert, Host, HostAddress, Node, Options, PortRange, Redirect};
use crate::lex::{At, Keyword, Kind};
use crate::rule::{Action, PoolKind, RouteKind};

impl Parser<'_> {
    /// The options that name a target. `false` if the keyword is none.
    pub(super) fn target(
        &mut self,
        options: &mut Options,
        keyword: Keyword,
        at: &At,
        action: Action,
    ) -> Step<bool> {
        let _ = action;
        match keyword {
            Keyword::NatTo | Keyword::BinatTo => {
                self.take();
                self.once_only(options.nat.is_some(), "nat-to, binat-to or af-to", at)?;
                let mut redirect = self.redirect(true)?;
                if keyword == Keyword::BinatTo {
                    redirect.binat = true;
                    redirect.static_port = true;
                }
                options.nat = Some(redirect);
            }
            Keyword::RdrTo => {
                self.take();
                self.once_only(options.rdr.is_some(), "rdr-to", at)?;
                options.rdr = Some(self.redirect(true)?);
            }
            Keyword::AfTo => self.af_to(options, at)?,
            Keyword::DivertTo | Keyword::DivertReply if self.is_freebsd() => {
                self.freebsd_divert(options, keyword, at)?;
            }
            Keyword::RouteTo | Keyword::ReplyTo | Keyword::DupTo if self.is_freebsd() => {
                self.once_only(options.route.is_some(), "route-to, reply-to or dup-to", at)?;
                options.route = self.early_route()?;
            }
            Keyword::RouteTo => self.route(options, RouteKind::RouteTo, at)?,
            Keyword::ReplyTo => self.route(options, RouteKind::ReplyTo, at)?,
            Keyword::DupTo => self.route(options, RouteKind::DupTo, at)?,
            Keyword::DivertTo | Keyword::DivertReply | Keyword::DivertPacket => {
                self.take();
                if options.divert.is_some() {
                    return self.fail("given-twice", at, "a rule has one divert option");
                }
                let divert = self.divert(keyword, options)?;
                options.divert = Some(Node::new(divert, &at.to(&self.last_at())));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn af_to(&mut self, options: &mut Options, at: &At) -> Step<()> {
        self.take();
        self.once_only(options.nat.is_some(), "nat-to, binat-to or af-to", at)?;
        let Some(family) = self.family() else {
            return self.unexpected("the family that packets get: `inet` or `inet6`");
        };
        self.expect_keyword(Keyword::From)?;
        let mut from = self.redirect(true)?;
        from.family = Some(family);
        if self.accept(Keyword::To) {
            let mut to = self.redirect(true)?;
            to.family = Some(family);
            for node in from
                .hosts
                .iter()
                .chain(&to.hosts)
                .take(1)
                .chain(to.hosts.iter().take(1))
            {
                if node.value.family.is_some_and(|other| other != family) {
                    let at = node.at.clone();
                    let message = format!(
                        "addresses of `af-to {}` must be of that family",
                        family.name()
                    );
                    return self.fail("family", &at, message);
                }
            }
            // As parse.y: the options behind the last address are those of both.
            (from.kind, from.sticky, from.static_port) = (to.kind, to.sticky, to.static_port);
            (to.kind, to.sticky, to.static_port) = (PoolKind::None, false, false);
            options.rdr = Some(to);
        }
        options.nat = Some(from);
        options.af_to = Some(Rc::new(at.clone()));
        Ok(())
    }

    fn route(&mut self, options: &mut Options, kind: RouteKind, at: &At) -> Step<()> {
        self.take();
        let redirect = self.redirect(false)?;
        self.once_only(options.route.is_some(), "route-to, reply-to or dup-to", at)?;
        options.route = Some((kind, redirect));
        Ok(())
    }

    fn divert(&mut self, keyword: Keyword, options: &mut Options) -> Step<Divert> {
        if keyword == Keyword::DivertReply {
            return Ok(Divert::Reply);
        }
        if keyword == Keyword::DivertPacket {
            self.expect_keyword(Keyword::Port)?;
            // Packets that a program sees are reassembled, TCP included.
            if self.ruleset.options.reassemble {
                options.scrub.get_or_insert_default().reassemble_tcp = true;
            }
            return Ok(Divert::Packet(self.divert_port()?));
        }
        let (text, at) = self.text("the address of a socket")?;
        let hosts = self.resolve_text(&text, None, &at)?;
        self.expect_keyword(Keyword::Port)?;
        Ok(Divert::To(hosts, self.divert_port()?))
    }

    pub(super) fn divert_port(&mut self) -> Step<u16> {
        let at = self.peek().at.clone();
        match self.port_range(false)?.low {
            0 => self.fail("range", &at, "the port of a divert socket cannot be 0"),
            port => Ok(port),
        }
    }

    /// Addresses, ports and options of a pool.
    pub(super) fn redirect(&mut self, ports: bool) -> Step<Redirect> {
        let start = self.peek().at.clone();
        let hosts = self.redirect_hosts()?;
        let ports = if ports && self.accept(Keyword::Port) {
            self.port_star()?
        } else {
            PortRange::default()
        };
        self.redirect_of(hosts, ports, &start)
    }

    /// The rest of a pool that began at `start`: its options.
    pub(super) fn redirect_of(
        &mut self,
        hosts: Vec<Node<Host>>,
        ports: PortRange,
        start: &At,
    ) -> Step<Redirect> {
        let mut redirect = Redirect {
            hosts,
            ports,
            kind: PoolKind::None,
            sticky: false,
            static_port: false,
            binat: false,
            family: None,
            at: Rc::new(start.clone()),
        };
        while self.pool_option(&mut redirect)? {}
        redirect.at = Rc::new(start.to(&self.last_at()));
        Ok(redirect)
    }

    fn redirect_hosts(&mut self) -> Step<Vec<Node<Host>>> {
        let braces = self.accept_byte(b'{');
        let lists = if braces {
            self.list_rest(Self::redirect_host)?
        } else {
            vec![self.redirect_host()?]
        };
        let hosts: Vec<_> = lists.into_iter().flatten().collect();
        let odd = hosts.iter().find(|node| {
            !matches!(
                node.value.address,
                HostAddress::Network(..) | HostAddress::Unresolved(_)
            )
        });
        match odd {
            Some(node) if braces && !self.is_freebsd() => {
                let at = node.at.clone();
                self.fail("pool", &at, "a pool's list holds addresses only: no tables, ranges or interfaces in parentheses")
            }
            _ => Ok(hosts),
        }
    }

    fn redirect_host(&mut self) -> Step<Vec<Node<Host>>> {
        let mut nodes = self.host()?;
        self.weight(&mut nodes)?;
        Ok(nodes)
    }

    pub(super) fn pool_option(&mut self, redirect: &mut Redirect) -> Step<bool> {
        let at = self.peek().at.clone();
        let kind = match self.peek_keyword() {
            Some(Keyword::Bitmask) => PoolKind::Bitmask,
            Some(Keyword::Random) => PoolKind::Random,
            Some(Keyword::RoundRobin) => PoolKind::RoundRobin,
            Some(Keyword::LeastStates) => PoolKind::LeastStates,
            Some(Keyword::SourceHash) => {
                self.take();
                self.once_only(redirect.kind != PoolKind::None, "the pool's type", &at)?;
                redirect.kind = PoolKind::SourceHash(self.hash_key()?);
                return Ok(true);
            }
            Some(Keyword::MapEPortset | Keyword::EndpointIndependent) => {
                return self.unsupported(&at);
            }
            Some(Keyword::StaticPort) => {
                self.take();
                self.once_only(redirect.static_port, "static-port", &at)?;
                redirect.static_port = true;
                return Ok(true);
            }
            Some(Keyword::StickyAddress) => {
                self.take();
                self.once_only(redirect.sticky, "sticky-address", &at)?;
                redirect.sticky = true;
                return Ok(true);
            }
            _ => return Ok(false),
        };
        self.take();
        self.once_only(redirect.kind != PoolKind::None, "the pool's type", &at)?;
        redirect.kind = kind;
        Ok(true)
    }

    /// The key of `source-hash`: 128 bits in hexadecimal, or any text.
    fn hash_key(&mut self) -> Step<Option<[u32; 4]>> {
        if !matches!(self.peek().kind, Kind::Text { .. }) {
            return Ok(None);
        }
        let (text, at) = self.words("a key")?;
        let Some(digits) = text.strip_prefix("0x") else {
            let digest: [u8; 16] = Md5::digest(text.as_bytes()).into();
            return Ok(Some(words_of(u128::from_be_bytes(digest))));
        };
        match u128::from_str_radix(digits, 16) {
            Ok(key) if digits.len() == 32 => Ok(Some(words_of(key))),
            _ => self.fail(
                "hash-key",
                &at,
                "a key in hexadecimal has 128 bits: 0x and 32 digits",
            ),
        }
    }
}

fn words_of(key: u128) -> [u32; 4] {
    [
        (key >> 96) as u32,
        (key >> 64) as u32,
        (key >> 32) as u32,
        key as u32,
    ]
}
