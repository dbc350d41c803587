//! FreeBSD's own beside scrub rules and translations: the order of statements, `set`
//! options, routes before the addresses, and further options of rules. The rest of FreeBSD 12 to 15 is [`UNSUPPORTED`].

use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::Arc;

use super::parser::{Parser, Step};
use super::scope::Section;
use super::syntax::{self, Host, HostAddress, Node, Options, PortRange, Redirect};
use crate::diagnostic::Severity;
use crate::lex::{At, Keyword, Kind};
use crate::names;
use crate::rule::Dialect;
use crate::rule::{Dummynet, RouteKind, Rule, RuleKind};

/// Words of FreeBSD's language that are refused, and their meaning. Each is an error with the
/// code `unsupported`.
pub const UNSUPPORTED: &[(&str, &str)] = &[
    ("altq", "a scheduler of ALTQ on an interface"),
    (
        "endpoint-independent",
        "an option of `nat`: one mapping for all destinations",
    ),
    ("ether", "a rule about Ethernet frames"),
    (
        "map-e-portset",
        "an option of `nat`: the set of ports of a MAP-E customer",
    ),
    (
        "queue",
        "a queue of ALTQ, and the queue that a rule puts packets into",
    ),
];

/// Most labels of a rule (`PF_RULE_MAX_LABEL_COUNT`).
const LABELS_MAX: usize = 5;

/// Levels of `set debug`.
const DEBUG_LEVELS: &[&str] = &["none", "urgent", "misc", "loud"];

/// Whether a statement that starts with this word translates, or calls an anchor that does.
pub(super) fn is_translation(keyword: Keyword) -> bool {
    matches!(
        keyword,
        Keyword::Nat
            | Keyword::Rdr
            | Keyword::Binat
            | Keyword::NatAnchor
            | Keyword::RdrAnchor
            | Keyword::BinatAnchor
    )
}

/// Translations of one kind after those of the other, as pfctl loads them.
pub(super) fn by_kind(mut rules: Vec<Rule>) -> Vec<Rule> {
    rules.sort_by_key(|rule| rule.kind);
    rules
}

impl Parser<'_> {
    pub(super) fn is_freebsd(&self) -> bool {
        self.config.dialect == Dialect::FreeBsd
    }

    /// Refuses the word that comes next, by name.
    pub(super) fn unsupported<T>(&mut self, at: &At) -> Step<T> {
        let word = match self.peek_keyword() {
            Some(keyword) => keyword.text(),
            None => "",
        };
        let what = UNSUPPORTED
            .iter()
            .find(|(name, _)| *name == word)
            .map_or("", |(_, what)| what);
        let message = format!("`{word}` of FreeBSD is not supported: {what}");
        self.fail_with("unsupported", at, message, "remove it to check the rest")
    }

    /// Checks that a statement stands where FreeBSD wants it.
    pub(super) fn in_order(&mut self, section: Section, at: &At) -> Step<()> {
        if !self.is_freebsd() {
            return Ok(());
        }
        if self.require_order && self.section > section {
            let message = format!(
                "{} must stand above {}",
                section.name(),
                self.section.name()
            );
            let help = "move them, or write `set require-order no` at the top";
            return self.fail_with("order", at, message, help);
        }
        self.section = section;
        Ok(())
    }

    /// The options whose place in the file FreeBSD looks at.
    pub(super) fn option_in_order(&mut self, keyword: Keyword, at: &At) -> Step<()> {
        match keyword {
            Keyword::Optimization
            | Keyword::Timeout
            | Keyword::Limit
            | Keyword::LogInterface
            | Keyword::BlockPolicy
            | Keyword::FailPolicy
            | Keyword::Fingerprints
            | Keyword::Debug => self.in_order(Section::Option, at),
            _ => Ok(()),
        }
    }

    pub(super) fn freebsd_set(&mut self, keyword: Keyword) -> Step<()> {
        match keyword {
            Keyword::FailPolicy => {
                self.fail_return = match self.peek_keyword() {
                    Some(Keyword::Drop) => false,
                    Some(Keyword::Return) => true,
                    _ => return self.unexpected("`drop` or `return`"),
                };
                self.take();
                let word = if self.fail_return { "return" } else { "drop" };
                self.print_option(format!("set fail-policy {word}"));
            }
            Keyword::RequireOrder => {
                self.require_order = self.yes_or_no()?;
                let word = if self.require_order { "yes" } else { "no" };
                self.print_option(format!("set require-order {word}"));
            }
            // Counters of rules that stay the same are kept at the next load; pfctl prints nothing.
            _ => {}
        }
        Ok(())
    }

    pub(super) fn freebsd_debug(&mut self) -> Step<()> {
        let (name, at) = self.text("`none`, `urgent`, `misc` or `loud`")?;
        if !DEBUG_LEVELS.contains(&&*name) {
            return self.unknown_name(
                "unknown-option",
                "debug level",
                &name,
                &at,
                DEBUG_LEVELS.iter().copied(),
            );
        }
        self.print_option(format!("set debug {name}"));
        Ok(())
    }

    /// A timeout's name: FreeBSD reserves `interval`.
    pub(super) fn timeout_name(&mut self, expected: &str) -> Step<(Arc<str>, At)> {
        if self.peek_keyword() == Some(Keyword::Interval) {
            return Ok(("interval".into(), self.take().at));
        }
        self.text(expected)
    }

    /// `scrub`, `nat`, `rdr`, `binat`, `no …` and `…-anchor`.
    pub(super) fn freebsd_statement(&mut self, keyword: Keyword) -> Step<()> {
        let start = self.peek().at.clone();
        let no = keyword == Keyword::No;
        if no {
            self.take();
        }
        let kind = match self.peek_keyword() {
            Some(Keyword::Scrub) => RuleKind::Scrub,
            Some(Keyword::Nat) => RuleKind::Nat,
            Some(Keyword::Rdr) => RuleKind::Rdr,
            Some(Keyword::Binat) => RuleKind::Binat,
            Some(anchor) if is_translation(anchor) && !no => {
                return self.translation_anchor(anchor);
            }
            _ => return self.unexpected("`nat`, `rdr`, `binat` or `scrub`"),
        };
        self.take();
        match kind {
            RuleKind::Scrub => self.scrub_statement(no, &start),
            RuleKind::Binat => self.binat(no, &start),
            _ => self.translation(kind, no, &start),
        }
    }

    /// `route-to`, `reply-to`, `dup-to` and `fastroute`, before the addresses.
    pub(super) fn early_route(&mut self) -> Step<Option<(RouteKind, Redirect)>> {
        let kind = match self.peek_keyword() {
            Some(Keyword::RouteTo) => RouteKind::RouteTo,
            Some(Keyword::ReplyTo) => RouteKind::ReplyTo,
            Some(Keyword::DupTo) => RouteKind::DupTo,
            Some(Keyword::Fastroute) => {
                let at = self.take().at;
                let mut notice = Self::error("no-effect", &at, "`fastroute` does nothing");
                notice.severity = Severity::Notice;
                self.report(notice);
                return Ok(None);
            }
            _ => return Ok(None),
        };
        let start = self.take().at;
        let hosts: Vec<_> = self.list(Self::route_host)?.into_iter().flatten().collect();
        let redirect = self.redirect_of(hosts, PortRange::default(), &start)?;
        Ok(Some((kind, redirect)))
    }

    /// `em0` or `(em0 192.0.2.1)`
    fn route_host(&mut self) -> Step<Vec<Node<Host>>> {
        if !self.accept_byte(b'(') {
            let (name, at) =
                self.text("an interface, or an interface and an address in parentheses")?;
            let name = self.interface_name(&name, &at)?;
            let mut host =
                super::address::plain(HostAddress::Network(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0));
            host.via = Some(name);
            return Ok(vec![Node::new(host, &at)]);
        }
        let open = self.last_at();
        let (name, at) = self.text("an interface")?;
        let name = self.interface_name(&name, &at)?;
        let mut nodes = self.host()?;
        self.expect_byte(b')')?;
        let at = Rc::new(open.to(&self.last_at()));
        for node in &mut nodes {
            node.value.via = Some(name.clone());
            node.at = at.clone();
        }
        Ok(nodes)
    }

    /// A label after the first.
    pub(super) fn further_label(&mut self, options: &mut Options, at: &At) -> Step<()> {
        if options.freebsd.more_labels.len() + 1 >= LABELS_MAX {
            return self.fail(
                "given-twice",
                at,
                format!("a rule has at most {LABELS_MAX} labels"),
            );
        }
        let (label, at) = self.text("a label")?;
        if label.len() > names::LABEL_MAX {
            let most = names::LABEL_MAX;
            return self.fail(
                "too-long",
                &at,
                format!("a label has at most {most} characters"),
            );
        }
        options.freebsd.more_labels.push(label);
        Ok(())
    }

    /// `ridentifier`, `dnpipe` and `dnqueue`.
    pub(super) fn freebsd_option(&mut self, options: &mut Options, keyword: Keyword) -> Step<()> {
        self.take();
        if keyword == Keyword::Ridentifier {
            options.freebsd.ridentifier = self.number_to(u32::MAX, "ridentifier")?;
            return Ok(());
        }
        let (forward, reverse) = if self.accept_byte(b'(') {
            let forward = self.number_to(u32::from(u16::MAX), keyword.text())? as u16;
            let mut reverse = 0;
            if !self.accept_byte(b')') {
                self.accept_byte(b',');
                reverse = self.number_to(u32::from(u16::MAX), keyword.text())? as u16;
                self.expect_byte(b')')?;
            }
            (forward, reverse)
        } else {
            (
                self.number_to(u32::from(u16::MAX), keyword.text())? as u16,
                0,
            )
        };
        let queue = keyword == Keyword::DnQueue;
        let some = forward != 0 || reverse != 0;
        options.freebsd.dummynet = some.then_some(Dummynet {
            queue,
            forward,
            reverse,
        });
        Ok(())
    }

    /// `divert-to port` and `divert-to address port port`: to divert(4), which has no address.
    pub(super) fn freebsd_divert(
        &mut self,
        options: &mut Options,
        keyword: Keyword,
        at: &At,
    ) -> Step<()> {
        self.take();
        self.once_only(options.divert.is_some(), "divert-to", at)?;
        if keyword == Keyword::DivertReply {
            let help = "FreeBSD's `divert-to` hands packets to divert(4), and replies come back by themselves";
            return self.fail_with(
                "divert",
                at,
                "`divert-reply` has no meaning in FreeBSD",
                help,
            );
        }
        let number = matches!(self.peek().kind, Kind::Number(_));
        if !number {
            let (text, text_at) = self.text("a port, or an address and a port")?;
            if !self.accept(Keyword::Port) {
                let port = self.divert_service(&text, &text_at)?;
                options.divert = Some(Node::new(syntax::Divert::Packet(port), &at.to(&text_at)));
                return Ok(());
            }
        }
        let port = self.divert_port()?;
        options.divert = Some(Node::new(
            syntax::Divert::Packet(port),
            &at.to(&self.last_at()),
        ));
        Ok(())
    }

    fn divert_service(&mut self, name: &str, at: &At) -> Step<u16> {
        match self.service(name, at)? {
            0 => self.fail("range", at, "the port of a divert socket cannot be 0"),
            port => Ok(port),
        }
    }
}
