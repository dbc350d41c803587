//! FreeBSD's statements that translate: `nat`, `rdr`, `binat` and their anchors.

use super::parser::{Parser, Step};
use super::rule::{Head, assemble};
use super::scope::Section;
use super::syntax::{self, Host, HostAddress, Node, Options, Peer, Redirect};
use crate::lex::{At, Keyword, Kind};
use crate::rule::{Action, Anchor, Comparison, Family, Log, PoolKind, RuleKind};

impl Parser<'_> {
    /// Interface, family, protocol and addresses.
    pub(super) fn translation_head(&mut self) -> Step<Head> {
        let interfaces = self.interfaces()?;
        let family = self.family();
        let protocols = self.protocols()?;
        let (source, oses, destination) = self.peers()?;
        Ok(Head {
            direction: None,
            log: None,
            quick: false,
            interfaces,
            route: None,
            family,
            protocols,
            source,
            oses,
            destination,
        })
    }

    /// `pass` and `log` behind the action.
    fn pass_log(&mut self, no: bool) -> Step<(bool, Option<Log>)> {
        let at = self.peek().at.clone();
        let pass = self.accept(Keyword::Pass);
        if no && pass {
            return self.fail(
                "translation",
                &at,
                "`pass` cannot go with `no`: nothing is translated",
            );
        }
        Ok((pass, self.log_quick(true)?.0))
    }

    fn tail(&mut self, pass: bool) -> Step<Options> {
        let mut options = Options::default();
        options.freebsd.pass = pass;
        if self.accept(Keyword::Tag) {
            let (tag, at) = self.text("a tag")?;
            options.tag = Some(Node::new(tag, &at));
        }
        if self.accept_byte(b'!') {
            if self.peek_keyword() != Some(Keyword::Tagged) {
                return self.unexpected("`tagged` after `!`");
            }
            self.tagged(&mut options, true)?;
        } else if self.peek_keyword() == Some(Keyword::Tagged) {
            self.tagged(&mut options, false)?;
        }
        if self.accept(Keyword::Rtable) {
            options.rtable = Some(self.rtable()?);
        }
        Ok(options)
    }

    /// `nat` and `rdr`.
    pub(super) fn translation(&mut self, kind: RuleKind, no: bool, start: &At) -> Step<()> {
        self.in_order(Section::Translation, start)?;
        let (pass, log) = self.pass_log(no)?;
        let mut head = self.translation_head()?;
        head.log = log;
        let mut options = self.tail(pass)?;
        let mut target = self.arrow(kind, no, start)?;
        if let Some(target) = &mut target {
            choose_family(&mut head.family, [&head.source, &head.destination], target);
            self.keep_family(
                &mut target.hosts,
                &mut head.family,
                &target.at.clone(),
                "translation",
            )?;
            if target.static_port && kind != RuleKind::Nat {
                return self.fail(
                    "pool",
                    &target.at.clone(),
                    "`static-port` is for `nat` only",
                );
            }
        }
        if kind == RuleKind::Nat {
            options.nat = target;
        } else {
            options.rdr = target;
        }
        let rule = self.assemble_kind(kind, head, options, start);
        self.check_options(&rule)?;
        self.expand(rule);
        Ok(())
    }

    /// `-> addresses port … options`: there unless the rule says `no`.
    fn arrow(&mut self, kind: RuleKind, no: bool, start: &At) -> Step<Option<Redirect>> {
        let at = self.peek().at.clone();
        let arrow = self.peek().kind == Kind::Arrow;
        let word = kind.word();
        if !arrow {
            if no {
                return Ok(None);
            }
            if !matches!(self.peek().kind, Kind::Newline | Kind::End) {
                return self.unexpected("`->` and an address");
            }
            let whole = start.to(&self.last_at());
            return self.fail_with(
                "translation",
                &whole,
                format!("`{word}` needs a target"),
                "write `-> address`",
            );
        }
        self.take();
        if no {
            return self.fail(
                "translation",
                &at,
                format!("`no {word}` translates nothing: it has no `->`"),
            );
        }
        self.redirect(true).map(Some)
    }

    pub(super) fn binat(&mut self, no: bool, start: &At) -> Step<()> {
        self.in_order(Section::Translation, start)?;
        let (pass, log) = self.pass_log(no)?;
        let mut head = self.translation_head()?;
        head.log = log;
        let mut options = self.tail(pass)?;
        let mut target = self.arrow(RuleKind::Binat, no, start)?;
        self.check_binat_lists(&head)?;
        if let Some(target) = &mut target {
            choose_family(&mut head.family, [&head.source, &head.destination], target);
            self.keep_family(
                &mut target.hosts,
                &mut head.family,
                &target.at.clone(),
                "translation",
            )?;
            self.check_binat_target(&head, target)?;
            target.static_port = true;
        }
        if head.family.is_none() {
            let whole = start.to(&self.last_at());
            let message = "the family of this `binat` is not known";
            return self.fail_with("family", &whole, message, "write `inet` or `inet6`");
        }
        options.nat = target;
        let rule = self.assemble_kind(RuleKind::Binat, head, options, start);
        self.check_options(&rule)?;
        self.expand(rule);
        Ok(())
    }

    /// `binat` takes one of everything; pfctl drops the rest of a list of interfaces or protocols.
    fn check_binat_lists(&mut self, head: &Head) -> Step<()> {
        let interface = head.interfaces.get(1).map(|node| node.at.clone());
        let protocol = head.protocols.get(1).map(|node| node.at.clone());
        let hosts = [&head.source, &head.destination]
            .map(|peer| peer.hosts.get(1).map(|node| node.at.clone()));
        let ports = [&head.source, &head.destination]
            .map(|peer| peer.ports.first().map(|node| node.at.clone()));
        let os = head.oses.first().map(|node| node.at.clone());
        if let Some(at) = [interface, protocol]
            .into_iter()
            .chain(hosts)
            .flatten()
            .next()
        {
            let help = "write a rule for each";
            return self.fail_with(
                "binat",
                &at,
                "`binat` takes one interface, protocol and address",
                help,
            );
        }
        match ports.into_iter().chain([os]).flatten().next() {
            Some(at) => self.fail(
                "binat",
                &at,
                "`binat` maps whole addresses: no ports, no operating systems",
            ),
            None => Ok(()),
        }
    }

    fn check_binat_target(&mut self, head: &Head, target: &Redirect) -> Step<()> {
        let at = target.at.clone();
        if target.kind != PoolKind::None
            || target.sticky
            || target.static_port
            || target.ports.low != 0
        {
            return self.fail(
                "binat",
                &at,
                "`binat` takes an address without ports and options",
            );
        }
        let [to] = &target.hosts[..] else {
            return self.fail(
                "binat",
                &at,
                "`binat` needs one target: an address or a network",
            );
        };
        let source = head.source.hosts.first();
        for node in source.into_iter().chain([to]) {
            let single = match &node.value.address {
                HostAddress::Network(..) | HostAddress::Unresolved(_) => true,
                HostAddress::Dynamic(interface) => !interface.has_several_addresses(),
                _ => false,
            };
            if !single || node.value.negated {
                let help = "write one address or network, or `(interface:0)`";
                return self.fail_with(
                    "binat",
                    &node.at.clone(),
                    "`binat` maps one address or network to another",
                    help,
                );
            }
        }
        if let (Some(HostAddress::Network(_, from)), HostAddress::Network(_, bits)) =
            (source.map(|node| &node.value.address), &to.value.address)
            && *from != 0
            && from != bits
        {
            let message =
                format!("source and target of `binat` differ in size: /{from} and /{bits}");
            return self.fail("binat", &at, message);
        }
        Ok(())
    }

    pub(super) fn translation_anchor(&mut self, keyword: Keyword) -> Step<()> {
        let start = self.take().at;
        self.in_order(Section::Translation, &start)?;
        let kind = match keyword {
            Keyword::NatAnchor => RuleKind::Nat,
            Keyword::RdrAnchor => RuleKind::Rdr,
            _ => RuleKind::Binat,
        };
        let Some((name, _)) = self.anchor_name()? else {
            return self.unexpected("the name of an anchor");
        };
        let head = self.translation_head()?;
        let rtable = if self.accept(Keyword::Rtable) {
            Some(self.rtable()?)
        } else {
            None
        };
        if kind == RuleKind::Rdr {
            self.check_rdr_anchor(&head)?;
        }
        if kind == RuleKind::Binat {
            self.check_binat_anchor(&head)?;
        }
        let options = Options {
            rtable,
            ..Options::default()
        };
        let mut rule = self.assemble_kind(kind, head, options, &start);
        rule.is_anchor = true;
        rule.anchor = Some(Anchor::Call(name));
        self.check_options(&rule)?;
        self.expand(rule);
        Ok(())
    }

    fn check_rdr_anchor(&mut self, head: &Head) -> Step<()> {
        if let Some(node) = head.source.ports.first() {
            return self.fail(
                "anchor",
                &node.at.clone(),
                "`rdr-anchor` takes no source port",
            );
        }
        let odd = |node: &Node<syntax::Port>| node.value.comparison != Comparison::Equal;
        let ports = &head.destination.ports;
        match ports.iter().find(|node| odd(node)).or(ports.get(1)) {
            Some(node) => self.fail(
                "anchor",
                &node.at.clone(),
                "`rdr-anchor` takes one port, without an operator",
            ),
            None => Ok(()),
        }
    }

    fn check_binat_anchor(&mut self, head: &Head) -> Step<()> {
        let peers = [&head.source, &head.destination];
        let host = peers
            .iter()
            .find_map(|peer| peer.hosts.first().map(|node| node.at.clone()));
        let port = peers
            .iter()
            .find_map(|peer| peer.ports.first().map(|node| node.at.clone()));
        if let Some(at) = host.or(port) {
            return self.fail("anchor", &at, "`binat-anchor` takes no addresses and ports");
        }
        match head.protocols.get(1) {
            Some(node) => self.fail(
                "anchor",
                &node.at.clone(),
                "`binat-anchor` takes one protocol",
            ),
            None => Ok(()),
        }
    }

    pub(super) fn assemble_kind(
        &mut self,
        kind: RuleKind,
        head: Head,
        options: Options,
        start: &At,
    ) -> syntax::Rule {
        let span = start.usage.to(self.last_at().usage);
        syntax::Rule {
            kind,
            ..assemble(Action::Match, head, options, span)
        }
    }

    /// Drops hosts of another family than the rule's; without one, the first host gives it.
    pub(crate) fn keep_family(
        &mut self,
        hosts: &mut Vec<Node<Host>>,
        family: &mut Option<Family>,
        at: &At,
        what: &str,
    ) -> Step<()> {
        hosts.retain(|node| match (node.value.family, *family) {
            (Some(own), Some(family)) => own == family,
            (Some(own), None) => {
                *family = Some(own);
                true
            }
            (None, _) => true,
        });
        if hosts.is_empty() {
            return self.fail(
                "family",
                at,
                format!("no {what} address is of the rule's family"),
            );
        }
        Ok(())
    }
}

/// The family of a translation: of its first source, destination or target that has one and
/// belongs to no interface.
fn choose_family(family: &mut Option<Family>, peers: [&Peer; 2], target: &Redirect) {
    let lists = peers
        .map(|peer| &peer.hosts)
        .into_iter()
        .chain([&target.hosts]);
    let mut firsts = lists
        .filter_map(|hosts| hosts.first())
        .map(|node| &node.value);
    if family.is_none() {
        *family = firsts.find_map(|host| host.family.filter(|_| host.scope.is_none()));
    }
}
