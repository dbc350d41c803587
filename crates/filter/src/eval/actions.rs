//! Actions of rules on a packet that passes: `struct pf_rule_actions`.

use std::sync::Arc;

use crate::packet::{Content, ECN, Packet};
use crate::rule::{Family, Rule};

/// Settings of the rules that matched; the last one for a field wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Actions {
    pub queue: Option<Arc<str>>,
    pub urgent_queue: Option<Arc<str>>,
    pub rtable: Option<u32>,
    pub log_all: bool,
    pub log_matches: bool,
    pub tos: Option<u8>,
    pub prio: Option<(u8, u8)>,
    pub delay: Option<u16>,
    pub min_ttl: u8,
    pub max_mss: u16,
    pub no_df: bool,
    pub random_id: bool,
    pub reassemble_tcp: bool,
}

impl Actions {
    /// Takes a rule's settings (`pf_rule_to_actions`).
    pub fn add(&mut self, rule: &Rule) {
        if let Some(log) = rule.log {
            self.log_all |= log.all;
            self.log_matches |= log.matches;
        }
        self.rtable = rule.rtable.or(self.rtable);
        if let Some(set) = rule.set.as_deref() {
            if let Some((queue, urgent)) = &set.queue {
                self.queue = Some(Arc::clone(queue));
                self.urgent_queue = Some(Arc::clone(urgent.as_ref().unwrap_or(queue)));
            }
            self.tos = set.tos.or(self.tos);
            self.prio = set.prio.or(self.prio);
            self.delay = set.delay.or(self.delay);
        }
        if let Some(scrub) = rule.scrub.as_deref() {
            if scrub.min_ttl != 0 {
                self.min_ttl = scrub.min_ttl;
            }
            if scrub.max_mss != 0 {
                self.max_mss = scrub.max_mss;
            }
            self.no_df |= scrub.no_df;
            self.random_id |= scrub.random_id;
            self.reassemble_tcp |= scrub.reassemble_tcp;
        }
    }

    /// Changes the packet's header (`pf_scrub`, `pf_normalize_mss`).
    pub fn scrub(&self, packet: &mut Packet, draw: impl FnOnce() -> u16) {
        if packet.family() == Family::Inet {
            if self.no_df {
                packet.dont_fragment = false;
            }
            if self.random_id && packet.fragment().is_none() {
                packet.id = u32::from(draw());
            }
        }
        packet.ttl = packet.ttl.max(self.min_ttl);
        if let Some(tos) = self.tos {
            packet.tos = tos & !ECN | packet.tos & ECN;
        }
        if let Content::Tcp(tcp) = &mut packet.content
            && self.max_mss != 0
        {
            tcp.mss = tcp.mss.map(|mss| mss.min(self.max_mss));
        }
    }
}
