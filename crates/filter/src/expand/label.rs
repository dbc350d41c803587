//! `$if`, `$srcaddr` and their kin in labels and tags. `$nr` waits until the rule has a number.

use std::sync::Arc;

use super::combination::Combination;
use crate::parse::syntax::{self, HostAddress, Port};
use crate::parse::{Failed, Parser};
use crate::rule::{Comparison, Family, On, Rule, Tagged};
use crate::{names, print};

impl Parser<'_> {
    pub(super) fn label(
        &mut self,
        made: &mut Rule,
        combination: &Combination<'_>,
        rule: &syntax::Rule,
    ) -> Result<(), Failed> {
        let fields = |text: &Arc<str>| {
            text.contains('$')
                .then(|| self.substitute(text, made, combination))
        };
        let label = made.label.as_ref().and_then(fields);
        let tag = made.tag.as_ref().and_then(fields);
        let tagged = made.tagged.as_ref().and_then(|tagged| fields(&tagged.name));
        for (text, what) in [(&label, "label"), (&tag, "tag"), (&tagged, "tag")] {
            if text
                .as_ref()
                .is_some_and(|text| text.len() > names::LABEL_MAX)
            {
                let at = crate::lex::At::plain(rule.span);
                let message = format!(
                    "the {what} has more than {} characters once it is filled in",
                    names::LABEL_MAX
                );
                return self.fail("too-long", &at, message);
            }
        }
        let further: Vec<Arc<str>> = match &made.freebsd {
            Some(freebsd) if freebsd.more_labels.iter().any(|label| label.contains('$')) => freebsd
                .more_labels
                .iter()
                .map(|label| self.substitute(label, made, combination).into())
                .collect(),
            _ => Vec::new(),
        };
        if further.iter().any(|label| label.len() > names::LABEL_MAX) {
            let at = crate::lex::At::plain(rule.span);
            let message = format!(
                "a label has more than {} characters once it is filled in",
                names::LABEL_MAX
            );
            return self.fail("too-long", &at, message);
        }
        if let Some(freebsd) = made.freebsd.as_deref_mut().filter(|_| !further.is_empty()) {
            freebsd.more_labels = further;
        }
        if let Some(label) = label {
            made.label = Some(label.into()).filter(|label: &Arc<str>| !label.is_empty());
        }
        if let Some(tag) = tag {
            made.tag = Some(tag.into());
        }
        if let (Some(name), Some(tagged)) = (tagged, &made.tagged) {
            made.tagged = Some(Tagged {
                name: name.into(),
                negated: tagged.negated,
            });
        }
        Ok(())
    }

    fn substitute(&self, text: &str, made: &Rule, combination: &Combination<'_>) -> String {
        let interface = match &made.on {
            Some(On::Interface(interface)) => &*interface.name,
            _ => "any",
        };
        let protocol = made.protocol.unwrap_or(0);
        let protocol = match self.config.host.protocol_name(protocol) {
            Some(name) => name.to_owned(),
            None => protocol.to_string(),
        };
        let source = address(combination.source.value(), made.family);
        let destination = address(combination.destination.value(), made.family);
        text.replace("$if", interface)
            .replace("$srcaddr", &source)
            .replace("$dstaddr", &destination)
            .replace("$srcport", &port(combination.source_port.value()))
            .replace("$dstport", &port(combination.destination_port.value()))
            .replace("$proto", &protocol)
    }
}

fn address(host: Option<&syntax::Host>, family: Option<Family>) -> String {
    let Some(host) = host else {
        return "any".into();
    };
    let text = match &host.address {
        HostAddress::Dynamic(interface) => format!("({})", interface.name),
        HostAddress::Table(name) => format!("<{name}>"),
        HostAddress::NoRoute => "no-route".into(),
        HostAddress::UrpfFailed => "urpf-failed".into(),
        HostAddress::Network(address, bits) => match family {
            Some(_) if !(address.is_unspecified() && *bits == 0) => print::network(*address, *bits),
            _ => "any".into(),
        },
        HostAddress::Unresolved(name) => name.to_string(),
        HostAddress::Range(..) | HostAddress::RouteLabel(_) => "?".into(),
    };
    if host.negated {
        format!("! {text}")
    } else {
        text
    }
}

fn port(port: Option<&Port>) -> String {
    let Some(&Port {
        comparison,
        low,
        high,
    }) = port
    else {
        return String::new();
    };
    match comparison {
        Comparison::Inside => format!("{low}><{high}"),
        Comparison::Outside => format!("{low}<>{high}"),
        Comparison::Equal => low.to_string(),
        Comparison::NotEqual => format!("!={low}"),
        Comparison::Less => format!("<{low}"),
        Comparison::LessOrEqual => format!("<={low}"),
        Comparison::Greater => format!(">{low}"),
        Comparison::GreaterOrEqual => format!(">={low}"),
        // pfctl leaves it empty.
        Comparison::Range => String::new(),
    }
}
