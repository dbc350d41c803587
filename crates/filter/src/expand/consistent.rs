//! Checks of a rule in itself (`rule_consistent` of pfctl).

use super::combination::Combination;
use crate::lex::At;
use crate::names;
use crate::parse::syntax;
use crate::parse::{Failed, Parser};
use crate::rule::{Action, Comparison, Family, KeepState, PortMatch, Return, Rule, RuleKind};

impl Parser<'_> {
    pub(super) fn check_consistent(
        &mut self,
        rule: &syntax::Rule,
        made: &Rule,
        combination: &Combination<'_>,
    ) -> Result<(), Failed> {
        let before = self.errors;
        match made.kind {
            RuleKind::Filter => {}
            RuleKind::Nat | RuleKind::Binat => return Ok(()),
            RuleKind::Rdr => {
                self.check_rdr(rule, made, combination);
                return if self.errors == before {
                    Ok(())
                } else {
                    Err(Failed)
                };
            }
            RuleKind::Scrub => {
                self.check_protocol(rule, made, combination);
                self.check_icmp(rule, made, combination);
                return if self.errors == before {
                    Ok(())
                } else {
                    Err(Failed)
                };
            }
        }
        self.check_protocol(rule, made, combination);
        self.check_icmp(rule, made, combination);
        self.check_action(rule, made);
        self.check_state(rule, made);
        self.check_translation(rule, made);
        if self.errors == before {
            Ok(())
        } else {
            Err(Failed)
        }
    }

    /// FreeBSD's `rdr` needs TCP or UDP for ports, and ports that it can map.
    fn check_rdr(&mut self, rule: &syntax::Rule, made: &Rule, combination: &Combination<'_>) {
        self.check_protocol(rule, made, combination);
        let ports = matches!(made.protocol, Some(names::TCP | names::UDP));
        if let Some(target) = rule
            .options
            .rdr
            .as_ref()
            .filter(|target| target.ports.low != 0 && !ports)
        {
            let at = target.at.clone();
            self.complain(
                "needs-port-protocol",
                &at,
                "ports only apply to TCP and UDP",
                "add `proto tcp`",
            );
        }
        let plain =
            |port: PortMatch| matches!(port.comparison, Comparison::Equal | Comparison::Range);
        if let Some(at) = combination
            .destination_port
            .at()
            .filter(|_| !made.destination.port.is_none_or(plain))
        {
            let message = "the port of `rdr` is one port or a range `first:last`";
            self.complain("port-range", at, message, "");
        }
    }

    fn complain(&mut self, code: &'static str, at: &At, message: impl Into<String>, help: &str) {
        let mut error = Self::error(code, at, message);
        if !help.is_empty() {
            error = error.help(help);
        }
        self.report(error);
    }

    fn check_protocol(&mut self, rule: &syntax::Rule, made: &Rule, combination: &Combination<'_>) {
        let tcp = made.protocol == Some(names::TCP);
        let ports = tcp || made.protocol == Some(names::UDP);
        if let Some(at) = combination.os.at().filter(|_| !tcp) {
            self.complain(
                "needs-tcp",
                at,
                "operating systems are only known by TCP",
                "add `proto tcp`",
            );
        }
        if let Action::Block(Return::Rst { .. }) = made.action
            && !tcp
        {
            let at = At::plain(rule.span);
            let help = "add `proto tcp`, or write `block return`";
            self.complain("needs-tcp", &at, "`return-rst` only applies to TCP", help);
        }
        if ports {
            return;
        }
        let help = match made.protocol {
            None => "add `proto { tcp, udp }`",
            Some(_) => "remove it, or write `proto tcp` or `proto udp`",
        };
        for at in [
            combination.source_port.at(),
            combination.destination_port.at(),
        ]
        .into_iter()
        .flatten()
        {
            self.complain(
                "needs-port-protocol",
                at,
                "ports only apply to TCP and UDP",
                help,
            );
        }
        for (at, what) in [
            (combination.user.at(), "user"),
            (combination.group.at(), "group"),
        ] {
            if let Some(at) = at {
                let message = format!("`{what}` only applies to TCP and UDP");
                self.complain("needs-port-protocol", at, message, help);
            }
        }
    }

    fn check_icmp(&mut self, rule: &syntax::Rule, made: &Rule, combination: &Combination<'_>) {
        if let Some(at) = combination.icmp.at().filter(|_| made.family.is_none()) {
            let help = "write `inet proto icmp` or `inet6 proto icmp6`";
            self.complain("icmp-family", at, "an ICMP type needs a family", help);
        }
        let (name, other) = match (made.protocol, made.family) {
            (Some(names::ICMP), Some(Family::Inet6)) => ("icmp", "icmp6"),
            (Some(names::ICMP6), Some(Family::Inet)) => ("icmp6", "icmp"),
            _ => return,
        };
        let whole = At::plain(rule.span);
        let at = combination.protocol.at().map_or(&whole, |at| at).clone();
        let family = made.family.map_or("", Family::name);
        let message = format!("protocol `{name}` does not go with family `{family}`");
        self.complain("icmp-family", &at, message, &format!("write `{other}`"));
    }

    fn check_action(&mut self, rule: &syntax::Rule, made: &Rule) {
        let whole = At::plain(rule.span);
        let options = &rule.options;
        if let Some(at) = options
            .allow_opts
            .as_ref()
            .filter(|_| made.action != Action::Pass)
        {
            self.complain(
                "needs-pass",
                at,
                "`allow-opts` only applies to pass rules",
                "",
            );
        }
        let fields = made.source.port.is_some()
            || made.destination.port.is_some()
            || made.flags.is_some_and(|flags| flags.mask != 0)
            || made.icmp.is_some();
        if made.fragment && fields {
            let help = "later fragments have no ports, flags or ICMP types";
            self.complain(
                "fragment",
                &whole,
                "`fragment` goes with fields of the IP header only",
                help,
            );
        }
        if let Some(divert) = options
            .divert
            .as_ref()
            .filter(|_| made.action == Action::Match)
        {
            self.complain(
                "needs-pass",
                &divert.at.clone(),
                "match rules cannot divert",
                "",
            );
        }
        if let Some(at) = options
            .af_to
            .as_ref()
            .filter(|_| made.action == Action::Match)
        {
            self.complain(
                "needs-pass",
                &at.clone(),
                "match rules cannot have `af-to`",
                "",
            );
        }
        if let Some((_, route)) = &options.route {
            let what = match made.action {
                Action::Match => "match",
                Action::Block(_) => "block",
                Action::Pass => return,
            };
            let message = format!("{what} rules cannot have route-to, reply-to or dup-to");
            self.complain(
                "needs-pass",
                &route.at.clone(),
                message,
                "write it on a pass rule",
            );
        }
    }

    fn check_state(&mut self, rule: &syntax::Rule, made: &Rule) {
        let whole = At::plain(rule.span);
        let options = &rule.options;
        let keep_at = options
            .keep
            .as_ref()
            .map_or(&whole, |node| &node.at)
            .clone();
        if made.action != Action::Pass && made.state != KeepState::No {
            self.complain("needs-pass", &keep_at, "only pass rules keep state", "");
        }
        if let Some((_, route)) = &options.route
            && made.state == KeepState::No
            && made.action == Action::Pass
        {
            let message = "route-to, reply-to and dup-to need state";
            self.complain(
                "needs-state",
                &route.at.clone(),
                message,
                "remove `no state`",
            );
        }
        let Some(state) = made.state_options.as_deref() else {
            return;
        };
        if state.overload.is_some()
            && state.max_source_connections == 0
            && state.max_source_rate.is_none()
        {
            let help = "add `max-src-conn` or `max-src-conn-rate`";
            self.complain(
                "overload",
                &keep_at,
                "`overload` needs a limit of connections",
                help,
            );
        }
        let proxied = matches!(made.state, KeepState::Modulate | KeepState::Synproxy);
        if state.sloppy && proxied {
            let message = "`sloppy` cannot go with `modulate state` or `synproxy state`";
            self.complain("state", &keep_at, message, "");
        }
    }

    fn check_translation(&mut self, rule: &syntax::Rule, made: &Rule) {
        let options = &rule.options;
        if let Some(at) = options.af_to.as_ref().filter(|_| made.af_to == made.family) {
            let message = "`af-to` must name the other family than the rule's";
            self.complain("af-to", &at.clone(), message, "");
        }
        let target = options.nat.as_ref().or(options.rdr.as_ref());
        if let Some(target) = target {
            let at = target.at.clone();
            if !(made.action == Action::Match) && made.state == KeepState::No {
                self.complain(
                    "needs-state",
                    &at,
                    "`nat-to` and `rdr-to` need state",
                    "write them on pass or match rules",
                );
            }
            if made.direction.is_none() {
                let help = "write `in` or `out`";
                self.complain(
                    "needs-direction",
                    &at,
                    "`nat-to` and `rdr-to` need a direction",
                    help,
                );
            }
        }
        let scrub = options
            .scrub
            .is_some_and(|scrub| scrub.no_df || scrub.random_id);
        if let Some(at) = options
            .scrub_at
            .as_ref()
            .filter(|_| scrub && made.family == Some(Family::Inet6))
        {
            self.complain(
                "scrub",
                &at.clone(),
                "`no-df` and `random-id` are for IPv4 only",
                "",
            );
        }
    }
}
