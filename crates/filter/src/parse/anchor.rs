//! Anchors, `load anchor` and `antispoof`.

use std::rc::Rc;
use std::sync::Arc;

use super::config::BRACE_DEPTH_MAX;
use super::parser::{Parser, Step};
use super::rule::{Head, assemble};
use super::scope::Section;
use super::scope::{Load, Scope};
use super::syntax::{HostAddress, Interface, Node, Options};
use crate::lex::{At, Keyword, Kind};
use crate::rule::{Action, Anchor, Direction, DynamicInterface, InterfacePart, Return};

/// An anchor's name, and where it stands.
type Name = (Arc<str>, At);

/// Longest path of an anchor.
const PATH_MAX: usize = 1023;

impl Parser<'_> {
    pub(super) fn anchor(&mut self) -> Step<()> {
        let start = self.take().at;
        self.in_order(Section::Filter, &start)?;
        let Ok((name, head, options)) = self.anchor_head() else {
            self.check_body();
            return Err(super::parser::Failed);
        };
        let mut rule = assemble(
            Action::Pass,
            head,
            options,
            start.usage.to(self.last_at().usage),
        );
        rule.is_anchor = true;
        let body = if self.peek().kind == Kind::Byte(b'{') {
            Some(self.body(name.as_ref())?)
        } else {
            None
        };
        rule.anchor = Some(match body {
            Some(anchor) => anchor,
            None => match &name {
                Some((name, _)) => Anchor::Call(name.clone()),
                None => {
                    return self.fail_with(
                        "anchor-name",
                        &start,
                        "an anchor without rules of its own must have a name",
                        "write `anchor \"name\"`, or its rules in braces",
                    );
                }
            },
        });
        self.check_options(&rule)?;
        if let Some(keep) = rule
            .options
            .keep
            .as_ref()
            .filter(|node| node.value.0 != crate::rule::KeepState::No)
        {
            let at = keep.at.clone();
            return self.fail_with(
                "anchor",
                &at,
                "an anchor keeps no state",
                "write it on the rules inside",
            );
        }
        if let Some((_, route)) = &rule.options.route {
            let at = route.at.clone();
            return self.fail_with(
                "anchor",
                &at,
                "an anchor routes no packets",
                "write it on the rules inside",
            );
        }
        self.expand(rule);
        Ok(())
    }

    fn anchor_head(&mut self) -> Step<(Option<Name>, Head, Options)> {
        let name = self.anchor_name()?;
        let head = self.head(false)?;
        let options = self.options(Action::Pass)?;
        Ok((name, head, options))
    }

    /// Reads the rules of an anchor that is given up, for their errors.
    fn check_body(&mut self) {
        loop {
            match self.peek().kind {
                Kind::Newline | Kind::End => return,
                Kind::Byte(b'{') => {
                    self.take();
                    if self.peek().kind == Kind::Newline && self.scopes.len() < BRACE_DEPTH_MAX {
                        self.scopes.push(Scope::default());
                        self.statements(true);
                        self.scopes.pop();
                        self.accept_byte(b'}');
                        return;
                    }
                }
                _ => {
                    self.take();
                }
            }
        }
    }

    pub(super) fn anchor_name(&mut self) -> Step<Option<Name>> {
        let name = match &self.peek().kind {
            Kind::Text { text, .. } => text.clone(),
            Kind::Number(_) => return self.unexpected("the name of an anchor"),
            _ => return Ok(None),
        };
        let at = self.take().at;
        if name.is_empty() {
            return self.fail("anchor-name", &at, "the name of an anchor cannot be empty");
        }
        if name.len() > PATH_MAX {
            return self.fail(
                "too-long",
                &at,
                format!("an anchor's path has at most {PATH_MAX} characters"),
            );
        }
        if name.starts_with('_') || name.contains("/_") {
            let message = "names of anchors that begin with `_` are pf's own";
            return self.fail("anchor-name", &at, message);
        }
        if name.ends_with('/') {
            return self.fail(
                "anchor-name",
                &at,
                "the path of an anchor cannot end in `/`",
            );
        }
        Ok(Some((name, at)))
    }

    /// The rules between an anchor's braces.
    fn body(&mut self, name: Option<&Name>) -> Step<Anchor> {
        let mut wrong_name = None;
        if let Some((name, at)) = name
            && name.contains('/')
        {
            let message = "an anchor with rules in braces cannot have a path with `/` as its name";
            wrong_name = Some(Self::error("anchor-name", at, message));
        }
        self.anonymous_anchors += 1;
        let name_text: Arc<str> = match name {
            Some((name, _)) => name.clone(),
            None => format!("_{}", self.anonymous_anchors).into(),
        };
        let (outer, open) = (self.braces, self.take().at);
        if self.scopes.len() >= BRACE_DEPTH_MAX {
            while self.braces > outer && self.peek().kind != Kind::End {
                self.take();
            }
            let message = format!("anchors nest at most {BRACE_DEPTH_MAX} deep");
            return self.fail("too-deep", &open, message);
        }
        let scope = Scope {
            name: name_text.clone(),
            ..Scope::default()
        };
        self.scopes.push(scope);
        if self.peek().kind != Kind::Newline {
            let (message, help) = (
                "rules of an anchor start on a line of their own",
                "break the line after `{`",
            );
            let error = Self::error("syntax", &open, message).help(help);
            self.report(error);
        }
        self.statements(true);
        let Some(scope) = self.scopes.pop() else {
            return Err(super::parser::Failed);
        };
        if !self.accept_byte(b'}') {
            return self.fail_with(
                "syntax",
                &open,
                "the brace is never closed",
                "close it with `}`",
            );
        }
        if let Some(error) = wrong_name {
            self.report(error);
            return Err(super::parser::Failed);
        }
        let duplicate = self
            .scopes
            .last_mut()
            .is_some_and(|outer| !outer.names.insert(scope.name.clone()));
        if let (true, Some((name, at))) = (duplicate, name) {
            return self.fail(
                "anchor-name",
                at,
                format!("anchor `{name}` already has its rules, above"),
            );
        }
        Ok(Anchor::Inline {
            name: scope.name,
            rules: scope.rules,
        })
    }

    /// Path of the anchor that is being read.
    pub(crate) fn anchor_path(&self) -> Arc<str> {
        let loading = self.loading.iter().cloned();
        let inner = self.scopes.iter().skip(1).map(|scope| scope.name.clone());
        let names: Vec<Arc<str>> = loading.chain(inner).collect();
        names.join("/").into()
    }

    pub(super) fn load(&mut self) -> Step<()> {
        let start = self.take().at;
        self.expect_keyword(Keyword::Anchor)?;
        let Some((name, _)) = self.anchor_name()? else {
            return self.unexpected("the name of an anchor");
        };
        self.expect_keyword(Keyword::From)?;
        let (file, _) = self.words("the path of a file")?;
        let path: Arc<str> = match &self.loading {
            Some(outer) => format!("{outer}/{name}").into(),
            None => name.trim_start_matches('/').into(),
        };
        let at = start.to(&self.last_at());
        if path.len() > PATH_MAX {
            let message = format!("an anchor's path has at most {PATH_MAX} characters");
            return self.fail_with("too-long", &at, message, "does a file load itself?");
        }
        self.loads.push_back(Load { path, file, at });
        Ok(())
    }

    /// `antispoof`: for each interface two block rules.
    pub(super) fn antispoof(&mut self) -> Step<()> {
        let start = self.take().at;
        self.in_order(Section::Filter, &start)?;
        let (log, quick) = self.log_quick(true)?;
        self.expect_keyword(Keyword::For)?;
        let interfaces = self.list(Self::antispoof_interface)?;
        let family = self.family();
        let mut options = Options::default();
        loop {
            let at = self.peek().at.clone();
            if self.is_freebsd() && options.label.is_some() && self.accept(Keyword::Label) {
                self.further_label(&mut options, &at)?;
            } else if self.peek_keyword() == Some(Keyword::Ridentifier) {
                self.freebsd_option(&mut options, Keyword::Ridentifier)?;
            } else if self.accept(Keyword::Label) {
                self.once_only(options.label.is_some(), "label", &at)?;
                let (label, at) = self.text("a label")?;
                options.label = Some(Node::new(label, &at));
            } else if self.accept(Keyword::Rtable) {
                options.rtable = Some(self.rtable()?);
            } else {
                break;
            }
        }
        let span = start.usage.to(self.last_at().usage);
        for (node, dynamic) in interfaces {
            let head = Head {
                direction: Some(Direction::In),
                log,
                quick,
                interfaces: Vec::new(),
                route: None,
                family,
                protocols: Vec::new(),
                source: super::syntax::Peer::default(),
                oses: Vec::new(),
                destination: super::syntax::Peer::default(),
            };
            let rule = assemble(Action::Block(Return::Drop), head, options.clone(), span);
            self.check_options(&rule)?;
            self.antispoof_rules(&rule, &node, dynamic);
        }
        Ok(())
    }

    fn antispoof_interface(&mut self) -> Step<(Node<Interface>, bool)> {
        if !self.accept_byte(b'(') {
            return Ok((self.interface()?, false));
        }
        let node = self.interface()?;
        self.expect_byte(b')')?;
        Ok((node, true))
    }

    fn antispoof_rules(
        &mut self,
        rule: &super::syntax::Rule,
        node: &Node<Interface>,
        dynamic: bool,
    ) {
        let Some(name) = node.value.name.clone() else {
            let at = node.at.clone();
            let error = Self::error(
                "antispoof",
                &at,
                "antispoof needs interfaces, not routing domains",
            );
            self.report(error);
            return;
        };
        let loopback = self
            .config
            .host
            .interface(&name)
            .is_some_and(crate::host::Interface::is_loopback);
        let unknown = !self.config.host.is_known() && self.config.host.interface(&name).is_none();
        let hosts =
            |parser: &Self, part: Option<InterfacePart>| -> Vec<Node<super::syntax::Host>> {
                let address = if dynamic {
                    HostAddress::Dynamic(DynamicInterface {
                        name: name.clone(),
                        part,
                        no_alias: false,
                        bits: 128,
                    })
                } else if unknown {
                    let suffix = if part.is_some() { ":network" } else { "" };
                    HostAddress::Unresolved(format!("{name}{suffix}").into())
                } else {
                    let hosts = parser.interface_hosts(&name, part, false);
                    return hosts
                        .into_iter()
                        .map(|value| Node {
                            value,
                            at: node.at.clone(),
                        })
                        .collect();
                };
                vec![Node {
                    value: super::address::plain(address),
                    at: node.at.clone(),
                }]
            };
        let networks = hosts(self, Some(InterfacePart::Network));
        if !networks.is_empty() {
            let mut outside = rule.clone();
            let value = Interface {
                negated: true,
                ..node.value.clone()
            };
            outside.interfaces = vec![Node {
                value,
                at: Rc::clone(&node.at),
            }];
            outside.source.hosts = networks;
            self.expand(outside);
        }
        let own = hosts(self, None);
        if !loopback && !own.is_empty() {
            let mut inside = rule.clone();
            inside.source.hosts = own;
            self.expand(inside);
        }
    }
}
