//! Rules: `pass`, `block` and `match`, and the parts that anchors share with them.

use std::rc::Rc;
use std::sync::Arc;

use super::parser::{Parser, Step};
use super::scope::Section;
use super::syntax::{self, IcmpType, Id, Interface, Node, Options, Peer, Redirect};
use crate::lex::{At, Keyword, Kind};
use crate::names;
use crate::rule::{
    Action, Comparison, Direction, Family, Flags, IcmpError, KeepState, Log, Rate, Return,
    RouteKind, RuleKind, Scrub, Tagged,
};

/// Most of a priority (`IFQ_MAXPRIO`).
const PRIO_MAX: u32 = 7;
/// Most of a routing table's number (`RT_TABLEID_MAX`).
const RTABLE_MAX: u32 = 255;

/// A rule's parts from its action to its addresses.
pub(super) struct Head {
    pub direction: Option<Direction>,
    pub log: Option<Log>,
    pub quick: bool,
    pub interfaces: Vec<Node<Interface>>,
    /// FreeBSD's `route-to` and its kin.
    pub route: Option<(RouteKind, Redirect)>,
    pub family: Option<Family>,
    pub protocols: Vec<Node<u8>>,
    pub source: Peer,
    pub oses: Vec<Node<Arc<str>>>,
    pub destination: Peer,
}

/// `from`, `os` and `to`.
type Peers = (Peer, Vec<Node<Arc<str>>>, Peer);

impl Parser<'_> {
    pub(super) fn rule(&mut self) -> Step<()> {
        let start = self.peek().at.clone();
        self.in_order(Section::Filter, &start)?;
        let action = self.action()?;
        let head = self.head(true)?;
        let mut options = self.options(action)?;
        if let (Some(_), Some((_, route))) = (&head.route, &options.route) {
            let at = route.at.clone();
            return self.fail(
                "given-twice",
                &at,
                "route-to, reply-to or dup-to is given twice",
            );
        }
        options.freebsd.fail_return = self.fail_return && action == Action::Pass;
        let span = start.usage.to(self.last_at().usage);
        let mut rule = assemble(action, head, options, span);
        self.check_options(&rule)?;
        self.fill_state(&mut rule)?;
        self.check_direction(&rule)?;
        self.expand(rule);
        Ok(())
    }

    fn action(&mut self) -> Step<Action> {
        if self.accept(Keyword::Pass) {
            return Ok(Action::Pass);
        }
        if self.accept(Keyword::Match) {
            return Ok(Action::Match);
        }
        self.expect_keyword(Keyword::Block)?;
        let icmp = IcmpError::DEFAULT;
        let answer = match self.peek_keyword() {
            Some(Keyword::Drop) => Return::Drop,
            Some(Keyword::Return) => Return::Return { icmp },
            Some(Keyword::ReturnRst) => {
                self.take();
                return Ok(Action::Block(Return::Rst {
                    ttl: self.return_ttl()?,
                }));
            }
            Some(Keyword::ReturnIcmp) => {
                self.take();
                return Ok(Action::Block(Return::Icmp {
                    icmp: self.return_icmp()?,
                }));
            }
            Some(Keyword::ReturnIcmp6) => {
                self.take();
                return Ok(Action::Block(Return::Icmp {
                    icmp: self.return_icmp6()?,
                }));
            }
            _ => return Ok(Action::Block(self.block_policy)),
        };
        self.take();
        Ok(Action::Block(answer))
    }

    fn return_ttl(&mut self) -> Step<u8> {
        if !self.accept_byte(b'(') {
            return Ok(0);
        }
        self.expect_keyword(Keyword::Ttl)?;
        let ttl = self.number_to(255, "ttl")?;
        self.expect_byte(b')')?;
        Ok(ttl as u8)
    }

    fn return_icmp(&mut self) -> Step<IcmpError> {
        let mut icmp = IcmpError::DEFAULT;
        if !self.accept_byte(b'(') {
            return Ok(icmp);
        }
        icmp.v4 = self.return_code(Family::Inet)?;
        if self.accept_byte(b')') {
            return Ok(icmp);
        }
        self.accept_byte(b',');
        icmp.v6 = self.return_code(Family::Inet6)?;
        self.expect_byte(b')')?;
        Ok(icmp)
    }

    fn return_icmp6(&mut self) -> Step<IcmpError> {
        let mut icmp = IcmpError::DEFAULT;
        if self.accept_byte(b'(') {
            icmp.v6 = self.return_code(Family::Inet6)?;
            self.expect_byte(b')')?;
        }
        Ok(icmp)
    }

    /// A code of "destination unreachable", by name or number.
    fn return_code(&mut self, family: Family) -> Step<(u8, u8)> {
        let kind = match family {
            Family::Inet => IcmpError::DEFAULT.v4.0,
            Family::Inet6 => IcmpError::DEFAULT.v6.0,
        };
        if matches!(self.peek().kind, Kind::Number(_)) {
            return Ok((kind, self.number_to(255, "ICMP code")? as u8));
        }
        let (name, at) = self.text("an ICMP code")?;
        match names::icmp_code_in(kind, &name, family, self.config.dialect) {
            Some(code) => Ok((kind, code)),
            None => self.unknown_name(
                "unknown-icmp-code",
                "ICMP code",
                &name,
                &at,
                codes_of(kind, family),
            ),
        }
    }

    /// Reports a name that is none of those known.
    pub(super) fn unknown_name<'n, T>(
        &mut self,
        code: &'static str,
        what: &str,
        name: &str,
        at: &At,
        known: impl Iterator<Item = &'n str>,
    ) -> Step<T> {
        let mut error = Self::error(code, at, format!("unknown {what} `{name}`"));
        if let Some(other) = crate::lex::nearest(name, known) {
            error = error.help(format!("did you mean `{other}`?"));
        }
        self.report(error);
        Err(super::parser::Failed)
    }

    /// Direction, log, interface, family, protocol and addresses. Anchors have no `log`.
    pub(super) fn head(&mut self, may_log: bool) -> Step<Head> {
        let direction = self.direction();
        let (log, quick) = self.log_quick(may_log)?;
        let interfaces = self.interfaces()?;
        let route = if may_log && self.is_freebsd() {
            self.early_route()?
        } else {
            None
        };
        let family = self.family();
        let protocols = self.protocols()?;
        let (source, oses, destination) = self.peers()?;
        Ok(Head {
            direction,
            log,
            quick,
            interfaces,
            route,
            family,
            protocols,
            source,
            oses,
            destination,
        })
    }

    pub(super) fn direction(&mut self) -> Option<Direction> {
        if self.accept(Keyword::In) {
            Some(Direction::In)
        } else if self.accept(Keyword::Out) {
            Some(Direction::Out)
        } else {
            None
        }
    }

    pub(super) fn family(&mut self) -> Option<Family> {
        if self.accept(Keyword::Inet) {
            Some(Family::Inet)
        } else if self.accept(Keyword::Inet6) {
            Some(Family::Inet6)
        } else {
            None
        }
    }

    /// `log` and `quick`, in either order.
    pub(super) fn log_quick(&mut self, may_log: bool) -> Step<(Option<Log>, bool)> {
        let first = self.accept(Keyword::Quick);
        let log = if may_log && self.accept(Keyword::Log) {
            Some(self.log_options()?)
        } else {
            None
        };
        let quick = first || self.accept(Keyword::Quick);
        Ok((log, quick))
    }

    fn log_options(&mut self) -> Step<Log> {
        let mut log = Log::default();
        if !self.accept_byte(b'(') {
            return Ok(log);
        }
        loop {
            match self.peek_keyword() {
                Some(Keyword::All) => log.all = true,
                Some(Keyword::Matches) => log.matches = true,
                Some(Keyword::User) => log.user = true,
                Some(Keyword::To) => {
                    self.take();
                    let (name, at) = self.words("a pflog interface")?;
                    if let Some(number) = name
                        .strip_prefix("pflog")
                        .and_then(|number| number.parse().ok())
                    {
                        log.to = number;
                    } else {
                        let message =
                            format!("`{name}` is no pflog interface: pflog0 to pflog255 are");
                        return self.fail("log-interface", &at, message);
                    }
                    self.accept_byte(b',');
                    if self.accept_byte(b')') {
                        return Ok(log);
                    }
                    continue;
                }
                _ => return self.unexpected("`all`, `matches`, `user` or `to`"),
            }
            self.take();
            if self.accept_byte(b')') {
                return Ok(log);
            }
            self.accept_byte(b',');
        }
    }

    pub(super) fn interfaces(&mut self) -> Step<Vec<Node<Interface>>> {
        if !self.accept(Keyword::On) {
            return Ok(Vec::new());
        }
        self.list(Self::interface_or_not)
    }

    pub(super) fn interface_or_not(&mut self) -> Step<Node<Interface>> {
        let bang = self.peek().at.clone();
        let negated = self.accept_byte(b'!');
        let mut node = self.interface()?;
        node.value.negated = negated;
        if negated {
            node.at = Rc::new(bang.to(&node.at));
        }
        Ok(node)
    }

    pub(super) fn interface(&mut self) -> Step<Node<Interface>> {
        let plain = |name: Arc<str>| Interface {
            name: Some(name),
            rdomain: None,
            negated: false,
        };
        match self.peek_keyword() {
            Some(Keyword::Any) => {
                let at = self.take().at;
                Ok(Node::new(plain("any".into()), &at))
            }
            Some(Keyword::Rdomain) => {
                let start = self.take().at;
                let id = self.number_to(RTABLE_MAX, "rdomain")?;
                let at = start.to(&self.last_at());
                Ok(Node::new(
                    Interface {
                        name: None,
                        rdomain: Some(id),
                        negated: false,
                    },
                    &at,
                ))
            }
            _ => {
                let (name, at) =
                    self.text("an interface, a group of interfaces, `any` or `rdomain`")?;
                let name = self.interface_name(&name, &at)?;
                Ok(Node::new(plain(name), &at))
            }
        }
    }

    /// The name that the host's interface has, which may be called by an alias.
    pub(super) fn interface_name(&mut self, name: &str, at: &At) -> Step<Arc<str>> {
        let name = self.config.host.first_name(name);
        if name.len() <= names::INTERFACE_NAME_MAX {
            return Ok(name.into());
        }
        let most = names::INTERFACE_NAME_MAX;
        self.fail(
            "too-long",
            at,
            format!("the name of an interface has at most {most} characters"),
        )
    }

    pub(super) fn protocols(&mut self) -> Step<Vec<Node<u8>>> {
        if self.accept(Keyword::Proto) {
            self.list(Self::protocol)
        } else {
            Ok(Vec::new())
        }
    }

    fn protocol(&mut self) -> Step<Node<u8>> {
        let (number, at) = if let Kind::Number(number) = self.peek().kind {
            let at = self.take().at;
            (number, at)
        } else {
            let (name, at) = self.text("a protocol")?;
            match self.config.host.protocol(&name) {
                Some(number) => (i64::from(number), at),
                None => {
                    return self.unknown_name(
                        "unknown-protocol",
                        "protocol",
                        &name,
                        &at,
                        names::protocol_names(),
                    );
                }
            }
        };
        match u8::try_from(number) {
            Ok(0) => self.fail_with(
                "range",
                &at,
                "protocol 0 cannot be used",
                "leave `proto` out for all",
            ),
            Ok(number) => Ok(Node::new(number, &at)),
            Err(_) => self.fail(
                "range",
                &at,
                format!("protocol {number} is outside 1 to 255"),
            ),
        }
    }

    /// `all`, or `from`, `os` and `to`.
    pub(super) fn peers(&mut self) -> Step<Peers> {
        if self.accept(Keyword::All) {
            return Ok((Peer::default(), Vec::new(), Peer::default()));
        }
        let source = if self.accept(Keyword::From) {
            self.peer(true)?
        } else {
            Peer::default()
        };
        let oses = if self.accept(Keyword::Os) {
            self.list(Self::os)?
        } else {
            Vec::new()
        };
        let destination = if self.accept(Keyword::To) {
            self.peer(false)?
        } else {
            Peer::default()
        };
        Ok((source, oses, destination))
    }

    fn os(&mut self) -> Step<Node<Arc<str>>> {
        let (name, at) = self.text("the name of an operating system")?;
        Ok(Node::new(name, &at))
    }

    /// Options until something else comes. FreeBSD's `scrub` statement has a smaller set.
    pub(super) fn options(&mut self, action: Action) -> Step<Options> {
        let mut options = Options::default();
        while self.one_option(&mut options, action)? {}
        // Each list was added with its last element first.
        options.users.reverse();
        options.groups.reverse();
        Ok(options)
    }

    fn one_option(&mut self, options: &mut Options, action: Action) -> Step<bool> {
        let at = self.peek().at.clone();
        if self.accept_byte(b'!') {
            return self.negated_option(options, &at).map(|()| true);
        }
        let Some(keyword) = self.peek_keyword() else {
            return Ok(false);
        };
        match keyword {
            Keyword::User => {
                self.take();
                // pfctl puts those of a repeated option first.
                let users = self.list(Self::user)?;
                options.users.extend(users.into_iter().rev());
            }
            Keyword::Group => {
                self.take();
                let groups = self.list(Self::group)?;
                options.groups.extend(groups.into_iter().rev());
            }
            Keyword::Flags => {
                self.take();
                self.once_only(options.flags.is_some(), "flags", &at)?;
                let flags = self.flags()?;
                options.flags = Some(Node::new(flags, &at.to(&self.last_at())));
            }
            Keyword::IcmpType | Keyword::Icmp6Type => {
                self.take();
                self.once_only(options.icmp.is_some(), "icmp-type", &at)?;
                let family = if keyword == Keyword::IcmpType {
                    Family::Inet
                } else {
                    Family::Inet6
                };
                options.icmp = Some(self.list(|parser| parser.icmp_type(family))?);
            }
            Keyword::Prio => {
                self.take();
                self.once_only(options.prio.is_some(), "prio", &at)?;
                options.prio = Some(self.number_to(PRIO_MAX, "prio")? as u8);
            }
            Keyword::Tos => {
                self.take();
                self.once_only(options.tos.is_some(), "tos", &at)?;
                options.tos = Some(self.tos()?);
            }
            Keyword::No | Keyword::Keep | Keyword::Modulate | Keyword::Synproxy => {
                self.once_only(options.keep.is_some(), "the way of keeping state", &at)?;
                let keep = self.keep()?;
                options.keep = Some(Node::new(keep, &at.to(&self.last_at())));
            }
            Keyword::Fragment => {
                self.take();
                options.fragment = true;
            }
            Keyword::AllowOpts => {
                self.take();
                options.allow_opts = Some(Rc::new(at));
            }
            Keyword::Once => {
                self.take();
                options.once = Some(Rc::new(at));
            }
            Keyword::Queue if self.is_freebsd() => return self.unsupported(&at),
            Keyword::Label if self.is_freebsd() && options.label.is_some() => {
                self.take();
                self.further_label(options, &at)?;
            }
            Keyword::Ridentifier | Keyword::DnPipe | Keyword::DnQueue => {
                self.freebsd_option(options, keyword)?;
            }
            Keyword::Label => {
                self.take();
                self.once_only(options.label.is_some(), "label", &at)?;
                let (label, at) = self.text("a label")?;
                options.label = Some(Node::new(label, &at));
            }
            Keyword::Queue => {
                self.take();
                self.once_only(options.queue.is_some(), "queue", &at)?;
                options.queue = Some(self.queue_names()?);
            }
            Keyword::Tag => {
                self.take();
                let (tag, at) = self.words("a tag")?;
                options.tag = Some(Node::new(tag, &at));
            }
            Keyword::Tagged => self.tagged(options, false)?,
            Keyword::ReceivedOn => self.received_on(options, false, &at)?,
            Keyword::Probability => {
                self.take();
                options.probability = Some(self.probability()?);
            }
            Keyword::Rtable => {
                self.take();
                options.rtable = Some(self.rtable()?);
            }
            Keyword::MaxPktRate => {
                self.take();
                self.once_only(options.max_packet_rate.is_some(), "max-pkt-rate", &at)?;
                options.max_packet_rate = Some(self.rate("max-pkt-rate")?);
            }
            Keyword::Set => {
                self.take();
                self.set(options)?;
            }
            Keyword::Scrub if self.is_freebsd() => {
                self.take();
                self.scrub_in_parentheses(options)?;
                options.scrub_at = Some(Rc::new(at.to(&self.last_at())));
            }
            Keyword::Scrub => {
                self.take();
                let scrub = self.scrub()?;
                let last = self.last_at();
                let before = options.scrub.unwrap_or_default();
                options.scrub = Some(Scrub {
                    reassemble_tcp: scrub.reassemble_tcp || before.reassemble_tcp,
                    ..scrub
                });
                options.scrub_at = Some(Rc::new(at.to(&last)));
            }
            _ => return self.target(options, keyword, &at, action),
        }
        Ok(true)
    }

    /// Reports an option that was given twice.
    pub(super) fn once_only(&mut self, given: bool, what: &str, at: &At) -> Step<()> {
        if given {
            self.fail("given-twice", at, format!("{what} is given twice"))
        } else {
            Ok(())
        }
    }

    fn negated_option(&mut self, options: &mut Options, at: &At) -> Step<()> {
        match self.peek_keyword() {
            Some(Keyword::Tagged) => self.tagged(options, true),
            Some(Keyword::ReceivedOn) => self.received_on(options, true, at),
            _ => self.unexpected("`tagged` or `received-on` after `!`"),
        }
    }

    pub(super) fn tagged(&mut self, options: &mut Options, negated: bool) -> Step<()> {
        self.take();
        let (name, at) = self.words("a tag")?;
        options.tagged = Some(Node::new(Tagged { name, negated }, &at));
        Ok(())
    }

    fn received_on(&mut self, options: &mut Options, negated: bool, at: &At) -> Step<()> {
        self.take();
        self.once_only(options.received_on.is_some(), "received-on", at)?;
        let mut interface = self.interface()?;
        interface.value.negated = negated;
        options.received_on = Some(interface);
        Ok(())
    }

    fn flags(&mut self) -> Step<Option<Flags>> {
        if self.accept(Keyword::Any) {
            return Ok(None);
        }
        let set = if self.accept_byte(b'/') {
            0
        } else {
            let set = self.flag_letters()?;
            if !self.accept_byte(b'/') {
                let at = self.last_at();
                return self.fail_with(
                    "syntax",
                    &at,
                    "flags need a mask",
                    "write `flags S/SA`: of SYN and ACK, only SYN is set",
                );
            }
            set
        };
        Ok(Some(Flags {
            set,
            mask: self.flag_letters()?,
        }))
    }

    fn flag_letters(&mut self) -> Step<u8> {
        let (text, at) = self.text("TCP flags, of the letters FSRPAUEW")?;
        let mut flags = 0;
        for letter in text.chars() {
            if let Some(bit) = names::FLAG_LETTERS.find(letter) {
                flags |= 1u8 << bit;
            } else {
                let message = format!("`{letter}` is no TCP flag: {} are", names::FLAG_LETTERS);
                return self.fail("flags", &at, message);
            }
        }
        // No letter, in quotes, is every flag.
        Ok(if flags == 0 { u8::MAX } else { flags })
    }

    fn icmp_type(&mut self, family: Family) -> Step<Node<IcmpType>> {
        let protocol = if family == Family::Inet {
            names::ICMP
        } else {
            names::ICMP6
        };
        let start = self.peek().at.clone();
        let kind = if matches!(self.peek().kind, Kind::Number(_)) {
            self.number_to(255, "ICMP type")? as u8
        } else {
            let (name, at) = self.text("an ICMP type")?;
            if let Some(kind) = names::icmp_type(&name, family) {
                kind
            } else {
                let known = names::icmp_types(family).iter().map(|&(name, _)| name);
                return self.unknown_name("unknown-icmp-type", "ICMP type", &name, &at, known);
            }
        };
        let code = if self.accept(Keyword::Code) {
            Some(self.icmp_code(kind, family)?)
        } else {
            None
        };
        Ok(Node::new(
            IcmpType {
                protocol,
                kind,
                code,
            },
            &start.to(&self.last_at()),
        ))
    }

    fn icmp_code(&mut self, kind: u8, family: Family) -> Step<u8> {
        if matches!(self.peek().kind, Kind::Number(_)) {
            return Ok(self.number_to(255, "ICMP code")? as u8);
        }
        let (name, at) = self.text("an ICMP code")?;
        match names::icmp_code_in(kind, &name, family, self.config.dialect) {
            Some(code) => Ok(code),
            None => self.unknown_name(
                "unknown-icmp-code",
                "code of this ICMP type",
                &name,
                &at,
                codes_of(kind, family),
            ),
        }
    }

    pub(super) fn tos(&mut self) -> Step<u8> {
        if matches!(self.peek().kind, Kind::Number(_)) {
            return Ok(self.number_to(255, "tos")? as u8);
        }
        let (text, at) = self.text("a TOS value")?;
        if let Some(value) = names::tos(&text) {
            return Ok(value);
        }
        match text
            .strip_prefix("0x")
            .map(|digits| u8::from_str_radix(digits, 16))
        {
            Some(Ok(value)) => Ok(value),
            Some(Err(_)) => self.fail("range", &at, format!("tos {text} is outside 0x00 to 0xff")),
            None => self.unknown_name("unknown-tos", "TOS value", &text, &at, names::tos_names()),
        }
    }

    fn probability(&mut self) -> Step<u32> {
        let at = self.peek().at.clone();
        let value = if let Kind::Number(number) = self.peek().kind {
            self.take();
            Some(number as f64)
        } else {
            let (text, _) = self.text("a probability")?;
            match text.strip_suffix('%') {
                Some(percent) => percent.parse::<f64>().ok().map(|value| value * 0.01),
                None => text.parse().ok(),
            }
        };
        let most = f64::from(u32::MAX);
        match value.map(|value| (value * most + 0.5).floor()) {
            // 0 would be "always".
            Some(scaled) if (0.0..=most).contains(&scaled) => Ok((scaled as u32).max(1)),
            _ => self.fail_with(
                "range",
                &at,
                "this is no probability",
                "write 0 to 1, or 0% to 100%",
            ),
        }
    }

    pub(super) fn rtable(&mut self) -> Step<u32> {
        let at = self.peek().at.clone();
        let id = self.number_to(RTABLE_MAX, "rtable")?;
        if self.config.host.has_rtable(id) {
            return Ok(id);
        }
        self.fail_with(
            "unknown-rtable",
            &at,
            format!("rtable {id} does not exist"),
            "add it to the host's `rtables`",
        )
    }

    /// `limit/seconds`
    pub(super) fn rate(&mut self, what: &str) -> Step<Rate> {
        let limit = self.number_to(u32::MAX, what)?;
        self.expect_byte(b'/')?;
        let seconds = self.number_to(u32::MAX, what)?;
        Ok(Rate { limit, seconds })
    }

    fn set(&mut self, options: &mut Options) -> Step<()> {
        if !self.accept_byte(b'(') {
            return self.set_one(options);
        }
        loop {
            self.set_one(options)?;
            self.accept_byte(b',');
            if self.accept_byte(b')') {
                return Ok(());
            }
        }
    }

    fn set_one(&mut self, options: &mut Options) -> Step<()> {
        let at = self.peek().at.clone();
        match self.peek_keyword() {
            Some(Keyword::Queue) if self.is_freebsd() => return self.unsupported(&at),
            Some(Keyword::Prio) => {
                self.take();
                self.once_only(options.set_prio.is_some(), "prio", &at)?;
                options.set_prio = Some(self.prio_pair()?);
            }
            Some(Keyword::Queue) => {
                self.take();
                self.once_only(options.queue.is_some(), "queue", &at)?;
                options.queue = Some(self.queue_names()?);
            }
            Some(Keyword::Tos) => {
                self.take();
                self.once_only(options.set_tos.is_some(), "tos", &at)?;
                options.set_tos = Some(self.tos()?);
            }
            Some(Keyword::Delay) => {
                self.take();
                self.once_only(options.set_delay.is_some(), "delay", &at)?;
                options.set_delay = Some(self.number_to(0xffff, "delay")? as u16);
            }
            _ => return self.unexpected("`prio`, `queue`, `tos` or `delay`"),
        }
        Ok(())
    }

    fn prio_pair(&mut self) -> Step<(u8, u8)> {
        if !self.accept_byte(b'(') {
            let prio = self.number_to(PRIO_MAX, "prio")? as u8;
            return Ok((prio, prio));
        }
        let bulk = self.number_to(PRIO_MAX, "prio")? as u8;
        self.accept_byte(b',');
        let low_delay = self.number_to(PRIO_MAX, "prio")? as u8;
        self.expect_byte(b')')?;
        Ok((bulk, low_delay))
    }

    fn scrub(&mut self) -> Step<Scrub> {
        self.expect_byte(b'(')?;
        let (mut scrub, mut min_ttl, mut max_mss) = (Scrub::default(), false, false);
        loop {
            let at = self.peek().at.clone();
            match self.peek_keyword() {
                Some(Keyword::NoDf) => {
                    self.take();
                    self.once_only(scrub.no_df, "no-df", &at)?;
                    scrub.no_df = true;
                }
                Some(Keyword::RandomId) => {
                    self.take();
                    self.once_only(scrub.random_id, "random-id", &at)?;
                    scrub.random_id = true;
                }
                Some(Keyword::MinTtl) => {
                    self.take();
                    self.once_only(min_ttl, "min-ttl", &at)?;
                    min_ttl = true;
                    scrub.min_ttl = self.number_to(255, "min-ttl")? as u8;
                }
                Some(Keyword::MaxMss) => {
                    self.take();
                    self.once_only(max_mss, "max-mss", &at)?;
                    max_mss = true;
                    scrub.max_mss = self.number_to(65535, "max-mss")? as u16;
                }
                Some(Keyword::Reassemble) => {
                    self.take();
                    let (what, at) = self.text("`tcp`")?;
                    if !what.eq_ignore_ascii_case("tcp") {
                        return self.fail(
                            "syntax",
                            &at,
                            format!("only `reassemble tcp` is there, not `{what}`"),
                        );
                    }
                    self.once_only(scrub.reassemble_tcp, "reassemble tcp", &at)?;
                    scrub.reassemble_tcp = true;
                }
                _ => {
                    return self
                        .unexpected("`no-df`, `min-ttl`, `max-mss`, `reassemble` or `random-id`");
                }
            }
            self.accept_byte(b',');
            if self.accept_byte(b')') {
                return Ok(scrub);
            }
        }
    }

    fn user(&mut self) -> Step<Node<Id>> {
        self.id("user", |parser, name| {
            parser.config.host.user_of(name, parser.config.dialect)
        })
    }

    fn group(&mut self) -> Step<Node<Id>> {
        self.id("group", |parser, name| {
            parser.config.host.group_of(name, parser.config.dialect)
        })
    }

    fn id(
        &mut self,
        what: &'static str,
        lookup: impl Fn(&Self, &str) -> Option<u32>,
    ) -> Step<Node<Id>> {
        let start = self.peek().at.clone();
        let operator = self.unary_operator();
        let low = self.one_id(what, &lookup)?;
        let binary = if operator.is_none() {
            self.binary_operator()
        } else {
            None
        };
        let (comparison, high) = match (operator, binary) {
            (Some(comparison), _) => (comparison, low),
            (None, Some(comparison)) => (comparison, self.one_id(what, &lookup)?),
            (None, None) => (Comparison::Equal, low),
        };
        let at = start.to(&self.last_at());
        let unknown = low == u32::MAX || high == u32::MAX;
        if unknown && !matches!(comparison, Comparison::Equal | Comparison::NotEqual) {
            return self.fail(
                "range",
                &at,
                format!("{what} `unknown` can only be compared by `=` and `!=`"),
            );
        }
        Ok(Node::new(
            Id {
                comparison,
                low,
                high,
            },
            &at,
        ))
    }

    fn one_id(&mut self, what: &str, lookup: &impl Fn(&Self, &str) -> Option<u32>) -> Step<u32> {
        if matches!(self.peek().kind, Kind::Number(_)) {
            return self.number_to(u32::MAX - 1, what);
        }
        let (name, at) = self.text(&format!("a {what}"))?;
        if &*name == "unknown" {
            return Ok(u32::MAX);
        }
        match lookup(self, &name) {
            Some(id) => Ok(id),
            None => self.fail_with(
                "unknown-id",
                &at,
                format!("unknown {what} `{name}`"),
                format!("write its number, or add it to the host's `{what}s`"),
            ),
        }
    }

    pub(super) fn unary_operator(&mut self) -> Option<Comparison> {
        let comparison = match self.peek().kind {
            Kind::Byte(b'=') => Comparison::Equal,
            Kind::NotEqual => Comparison::NotEqual,
            Kind::Byte(b'<') => Comparison::Less,
            Kind::LessOrEqual => Comparison::LessOrEqual,
            Kind::Byte(b'>') => Comparison::Greater,
            Kind::GreaterOrEqual => Comparison::GreaterOrEqual,
            _ => return None,
        };
        self.take();
        Some(comparison)
    }

    pub(super) fn binary_operator(&mut self) -> Option<Comparison> {
        let comparison = match self.peek().kind {
            Kind::Inside => Comparison::Inside,
            Kind::Outside => Comparison::Outside,
            _ => return None,
        };
        self.take();
        Some(comparison)
    }

    /// The checks of `parse.y` before a rule is expanded.
    pub(super) fn check_options(&mut self, rule: &syntax::Rule) -> Step<()> {
        let options = &rule.options;
        if let Some(at) = &options.once
            && (rule.is_anchor || rule.action == Action::Match)
        {
            return self.fail("once", at, "`once` only applies to pass and block rules");
        }
        for (node, what) in [(&options.label, "label"), (&options.tag, "tag")] {
            if let Some(node) = node {
                self.check_length(&node.value, what, &node.at)?;
            }
        }
        if let Some(node) = &options.tagged {
            self.check_length(&node.value.name, "tag", &node.at)?;
        }
        if let Some(at) = &options.af_to {
            if rule.direction != Some(Direction::In) {
                return self.fail_with(
                    "af-to",
                    at,
                    "`af-to` needs the direction `in`",
                    "write `pass in …`",
                );
            }
            if let Some((_, route)) = &options.route {
                let at = route.at.clone();
                return self.fail(
                    "af-to",
                    &at,
                    "`af-to` cannot stand beside route-to, reply-to or dup-to",
                );
            }
        }
        if let Some(node) = &options.flags
            && node
                .value
                .is_some_and(|flags| flags.set & flags.mask != flags.set)
        {
            return self.fail_with(
                "flags",
                &node.at,
                "these flags never match: some are wanted that the mask hides",
                "name every wanted flag behind the slash, too",
            );
        }
        self.check_tcp(rule)
    }

    fn check_length(&mut self, text: &str, what: &str, at: &At) -> Step<()> {
        if text.len() <= names::LABEL_MAX {
            return Ok(());
        }
        self.fail(
            "too-long",
            at,
            format!("a {what} has at most {} characters", names::LABEL_MAX),
        )
    }

    /// Flags and operating systems need TCP among the protocols.
    fn check_tcp(&mut self, rule: &syntax::Rule) -> Step<()> {
        if rule.protocols.is_empty() || rule.protocols.iter().any(|node| node.value == names::TCP) {
            return Ok(());
        }
        let flags = rule
            .options
            .flags
            .as_ref()
            .filter(|node| node.value.is_some());
        if let Some(node) = flags {
            return self.fail_with(
                "needs-tcp",
                &node.at,
                "flags only apply to TCP",
                "add `proto tcp`",
            );
        }
        if let Some(node) = rule.oses.first() {
            let message = "operating systems are only known by TCP";
            return self.fail_with("needs-tcp", &node.at.clone(), message, "add `proto tcp`");
        }
        Ok(())
    }

    fn check_direction(&mut self, rule: &syntax::Rule) -> Step<()> {
        if let Some((kind, route)) = &rule.options.route
            && *kind != crate::rule::RouteKind::DupTo
            && rule.direction.is_none()
        {
            let at = route.at.clone();
            return self.fail_with(
                "needs-direction",
                &at,
                "rules with route-to or reply-to need a direction",
                "write `in` or `out`",
            );
        }
        Ok(())
    }
}

fn codes_of(kind: u8, family: Family) -> impl Iterator<Item = &'static str> {
    names::icmp_codes(family)
        .iter()
        .filter(move |&&(_, of, _)| of == kind)
        .map(|&(name, _, _)| name)
}

/// A rule of its parts, before the defaults are filled in.
pub(super) fn assemble(
    action: Action,
    head: Head,
    mut options: Options,
    span: crate::source::Span,
) -> syntax::Rule {
    options.route = options.route.or(head.route);
    syntax::Rule {
        kind: RuleKind::Filter,
        action,
        anchor: None,
        is_anchor: false,
        direction: head.direction,
        log: head.log,
        quick: head.quick,
        interfaces: head.interfaces,
        family: head.family,
        protocols: head.protocols,
        source: head.source,
        oses: head.oses,
        destination: head.destination,
        flags: options.flags.as_ref().and_then(|node| node.value),
        options,
        state: KeepState::No,
        state_options: None,
        span,
    }
}
