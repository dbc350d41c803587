//! Support of rules by programs in XDP and tcx, and Linux's means for the rest.
//!
//! Nothing is ever skipped: a rule that a hook cannot honour has an [`Obstacle`] that names the
//! feature, the reason and, where Linux can do it elsewhere, the command.

mod nft;
mod queue;

use crate::rule::{
    Address, Direction, Divert, Family, KeepState, On, Options, Return, RouteKind, Rule, Ruleset,
    Set, Syncookies,
};
use nft::{Chain, Line};

/// A hook of the kernel where a BPF program sees packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hook {
    /// XDP: packets that arrive, before the kernel has made one of its own of them.
    XdpIn,
    /// tcx ingress: packets that arrive.
    TcxIn,
    /// tcx egress: packets that leave.
    TcxOut,
}

impl Hook {
    /// All hooks, in the order of [`Support::hooks`].
    pub const ALL: [Self; 3] = [Self::XdpIn, Self::TcxIn, Self::TcxOut];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::XdpIn => "XDP in",
            Self::TcxIn => "tcx in",
            Self::TcxOut => "tcx out",
        }
    }

    /// The direction of its packets.
    pub fn direction(self) -> Direction {
        match self {
            Self::XdpIn | Self::TcxIn => Direction::In,
            Self::TcxOut => Direction::Out,
        }
    }
}

/// Whether a hook honours a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Honour {
    /// As pf does.
    Yes,
    /// It cannot: an [`Obstacle`] has the reason.
    No,
    /// The rule is for the other direction.
    Never,
}

/// Support of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Support {
    /// For each hook, in the order of [`Hook::ALL`].
    pub hooks: [Honour; 3],
    /// Why not.
    pub obstacles: Vec<Obstacle>,
    /// Notes on a rule that is honoured.
    pub notes: Vec<&'static str>,
}

/// A feature that some hook cannot honour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The feature, in words of the language.
    pub feature: &'static str,
    /// The reason.
    pub reason: &'static str,
    /// Commands of nft, tc, ip or others that do the same, in order; empty where Linux has nothing.
    pub instead: Vec<String>,
    hooks: [bool; 3],
}

impl Obstacle {
    /// Whether it stands in the way at this hook.
    pub fn is_at(&self, hook: Hook) -> bool {
        self.hooks[hook as usize]
    }

    fn everywhere(feature: &'static str, reason: &'static str, instead: Vec<String>) -> Self {
        Self {
            feature,
            reason,
            instead,
            hooks: [true; 3],
        }
    }

    fn at(
        hooks: [bool; 3],
        feature: &'static str,
        reason: &'static str,
        instead: Vec<String>,
    ) -> Self {
        Self {
            feature,
            reason,
            instead,
            hooks,
        }
    }
}

/// Support of a rule of `ruleset`, whose queues `set queue` refers to. Rules of its
/// anchor are not looked at.
pub fn support(rule: &Rule, ruleset: &Ruleset) -> Support {
    let mut obstacles = Vec::new();
    matching(rule, &mut obstacles);
    effects(rule, &mut obstacles);
    translation(rule, &mut obstacles);
    routing(rule, &mut obstacles);
    if let Some(set) = rule.set.as_deref() {
        settings(rule, set, ruleset, &mut obstacles);
    }
    let sees = |hook: Hook| {
        rule.direction
            .is_none_or(|direction| direction == hook.direction())
    };
    let is_met = |obstacle: &Obstacle| {
        Hook::ALL
            .iter()
            .any(|&hook| sees(hook) && obstacle.is_at(hook))
    };
    obstacles.retain(is_met);
    let hooks = Hook::ALL.map(|hook| {
        if !sees(hook) {
            Honour::Never
        } else if obstacles.iter().any(|obstacle| obstacle.is_at(hook)) {
            Honour::No
        } else {
            Honour::Yes
        }
    });
    Support {
        hooks,
        obstacles,
        notes: notes(rule),
    }
}

/// Options and queues that could not be honoured.
pub fn globals(ruleset: &Ruleset) -> Vec<Obstacle> {
    let mut obstacles = options(&ruleset.options);
    if !ruleset.queues.is_empty() {
        obstacles.push(Obstacle::everywhere(
            "queue",
            "queues belong to the scheduler of a device",
            queue::commands(&ruleset.queues),
        ));
    }
    obstacles
}

fn options(options: &Options) -> Vec<Obstacle> {
    let value = match options.syncookies {
        Syncookies::Never => return Vec::new(),
        Syncookies::Always => 2,
        Syncookies::Adaptive => 1,
    };
    vec![Obstacle::everywhere(
        "set syncookies",
        "cookies need the TCP of the receiving host",
        vec![format!("sysctl -w net.ipv4.tcp_syncookies={value}")],
    )]
}

/// Conditions that some hook cannot test.
fn matching(rule: &Rule, obstacles: &mut Vec<Obstacle>) {
    let verdict = || Line::new(rule, Chain::Filter).verdict(rule);
    if rule.received_on.is_some() {
        obstacles.push(Obstacle::at(
            [true, true, false],
            "received-on",
            "only a packet that leaves remembers where it arrived",
            verdict(),
        ));
    }
    if rule.user.is_some() || rule.group.is_some() {
        obstacles.push(Obstacle::everywhere(
            if rule.user.is_some() { "user" } else { "group" },
            "the socket of a packet is known for local senders only",
            Line::output(rule).verdict(rule),
        ));
    }
    if let Some(os) = &rule.os {
        obstacles.push(Obstacle::everywhere(
            "os",
            "fingerprints are in nftables",
            Line::new(rule, Chain::Filter)
                .and(&format!("osf name \"{os}\""))
                .verdict(rule),
        ));
    }
    if rule.prio.is_some() {
        obstacles.push(Obstacle::everywhere(
            "prio",
            "the priority of a packet is the kernel's, not the network's",
            verdict(),
        ));
    }
    if matches!(rule.on, Some(On::Rdomain { .. })) {
        obstacles.push(Obstacle::everywhere(
            "on rdomain",
            "Linux has VRFs: name the VRF's device after `on`",
            Vec::new(),
        ));
    }
    let peers = [&rule.source, &rule.destination];
    if peers
        .iter()
        .any(|peer| matches!(peer.address, Address::RouteLabel(_)))
    {
        obstacles.push(Obstacle::everywhere(
            "route",
            "routes of Linux have no labels: use a table of addresses",
            Vec::new(),
        ));
    }
    if rule.log.is_some_and(|log| log.user) {
        obstacles.push(Obstacle::everywhere(
            "log (user)",
            "the owner of a socket is not known where packets are seen",
            Vec::new(),
        ));
    }
}

/// Effects on the packet and its state.
fn effects(rule: &Rule, obstacles: &mut Vec<Obstacle>) {
    match rule.state {
        KeepState::Modulate => obstacles.push(Obstacle::everywhere(
            "modulate state",
            "sequence numbers are not rewritten; those of today's hosts are random: write `keep state`",
            Vec::new(),
        )),
        KeepState::Synproxy => obstacles.push(Obstacle::everywhere(
            "synproxy state",
            "handshakes are not answered for another host",
            nft::synproxy(rule),
        )),
        KeepState::No | KeepState::Keep => {}
    }
    if rule
        .state_options
        .as_ref()
        .is_some_and(|options| options.pflow)
    {
        obstacles.push(Obstacle::everywhere(
            "pflow",
            "flows are not exported",
            Vec::new(),
        ));
    }
    let Some(scrub) = rule.scrub.as_deref() else {
        return;
    };
    let change = |feature, change: Option<String>| {
        let line = |change: String| Line::new(rule, Chain::Forward).and(&change).command();
        let instead = change.map_or(Vec::new(), line);
        Obstacle::everywhere(feature, "packets are not rewritten", instead)
    };
    let header = nft::header(rule.family.unwrap_or(Family::Inet));
    let ttl = if header == "ip" { "ttl" } else { "hoplimit" };
    let min_ttl = scrub.min_ttl;
    if min_ttl > 0 {
        let text = format!("{header} {ttl} < {min_ttl} {header} {ttl} set {min_ttl}");
        obstacles.push(change("scrub (min-ttl)", Some(text)));
    }
    if scrub.max_mss > 0 {
        let mss = scrub.max_mss;
        let text = format!("tcp flags syn tcp option maxseg size set {mss}");
        obstacles.push(change("scrub (max-mss)", Some(text)));
    }
    // pfctl adds it to `divert-packet`.
    let is_diverted = matches!(rule.divert.as_deref(), Some(Divert::Packet { .. }));
    for (wanted, feature) in [
        (scrub.no_df, "scrub (no-df)"),
        (scrub.random_id, "scrub (random-id)"),
        (
            scrub.reassemble_tcp && !is_diverted,
            "scrub (reassemble tcp)",
        ),
    ] {
        if wanted {
            obstacles.push(change(feature, None));
        }
    }
}

/// Addresses that become others.
fn translation(rule: &Rule, obstacles: &mut Vec<Obstacle>) {
    const REASON: &str = "addresses are not translated: nftables does";
    if let Some(family) = rule.af_to {
        let command = match family {
            Family::Inet => "jool instance add nat64 --netfilter --pool6 64:ff9b::/96",
            Family::Inet6 => "jool_siit instance add siit --netfilter --pool6 64:ff9b::/96",
        };
        let reason = "addresses are not translated: Jool does";
        obstacles.push(Obstacle::everywhere(
            "af-to",
            reason,
            vec![command.to_owned()],
        ));
        return;
    }
    if let Some(pool) = rule.nat.as_deref() {
        let instead = nft::snat(rule, pool);
        obstacles.push(Obstacle::everywhere("nat-to", REASON, instead));
    }
    if let Some(pool) = rule.rdr.as_deref() {
        let instead = nft::dnat(rule, pool);
        obstacles.push(Obstacle::everywhere("rdr-to", REASON, instead));
    }
}

/// Ways that packets take.
fn routing(rule: &Rule, obstacles: &mut Vec<Obstacle>) {
    if let Some(route) = rule.route.as_deref() {
        let (feature, instead) = match route.kind {
            RouteKind::RouteTo => ("route-to", nft::route_to(rule, &route.pool)),
            RouteKind::ReplyTo => ("reply-to", nft::reply_to(rule, &route.pool)),
            RouteKind::DupTo => ("dup-to", nft::dup_to(rule, &route.pool)),
        };
        let reason = "packets are not sent another way: policy routing does";
        obstacles.push(Obstacle::everywhere(feature, reason, instead));
    }
    if let Some(table) = rule.rtable {
        let reason = "the routing table is not chosen by BPF: policy routing does";
        obstacles.push(Obstacle::everywhere(
            "rtable",
            reason,
            nft::rtable(rule, table),
        ));
    }
    if let Some(divert) = rule.divert.as_deref() {
        let (feature, instead) = match *divert {
            Divert::To { address, port } => ("divert-to", nft::tproxy(rule, address, port)),
            Divert::Reply => (
                "divert-reply",
                Line::new(rule, Chain::Prerouting)
                    .and("socket transparent 1 meta mark set 1")
                    .command(),
            ),
            Divert::Packet { port } => (
                "divert-packet",
                Line::new(rule, Chain::Filter)
                    .and(&format!("queue num {port}"))
                    .command(),
            ),
        };
        let reason = "packets are not given to sockets: nftables does";
        obstacles.push(Obstacle::everywhere(feature, reason, instead));
    }
}

/// `set (…)`
fn settings(rule: &Rule, set: &Set, ruleset: &Ruleset, obstacles: &mut Vec<Obstacle>) {
    let line = |text: String| Line::new(rule, Chain::Postrouting).and(&text).command();
    if let Some((prio, _)) = set.prio {
        let reason = "priorities are not set yet: nftables does";
        let instead = line(format!("meta priority set 0:{prio:x}"));
        obstacles.push(Obstacle::everywhere("set prio", reason, instead));
    }
    if let Some((name, _)) = &set.queue {
        let reason = "queues belong to the scheduler of a device";
        let instead = queue::class(&ruleset.queues, name).map_or(Vec::new(), |class| {
            line(format!("meta priority set 1:{class:x}"))
        });
        obstacles.push(Obstacle::everywhere("set queue", reason, instead));
    }
    if let Some(tos) = set.tos {
        let header = nft::header(rule.family.unwrap_or(Family::Inet));
        let instead = line(format!("{header} dscp set {}", tos >> 2));
        obstacles.push(Obstacle::everywhere(
            "set tos",
            "packets are not rewritten yet: nftables does",
            instead,
        ));
    }
    if let Some(delay) = set.delay {
        let device = nft::device(rule).unwrap_or("DEVICE");
        let command = format!("tc qdisc add dev {device} root netem delay {delay}ms");
        obstacles.push(Obstacle::everywhere(
            "set delay",
            "packets are not held back",
            vec![command],
        ));
    }
}

fn notes(rule: &Rule) -> Vec<&'static str> {
    let mut notes = Vec::new();
    let peers = [&rule.source.address, &rule.destination.address];
    if peers
        .iter()
        .any(|it| matches!(it, Address::NoRoute | Address::UrpfFailed))
    {
        notes.push("needs forwarding on the interface: bpf_fib_lookup fails where it is off");
    }
    if rule.tagged.is_some() {
        notes.push("sees tags of the same hook, unless tags are carried by marks");
    }
    if matches!(rule.action, crate::rule::Action::Block(answer) if answer != Return::Drop) {
        notes.push("answers at a limited rate; in XDP the driver must be able to send");
    }
    if rule
        .state_options
        .as_ref()
        .is_some_and(|options| options.no_sync)
    {
        notes.push("no-sync has no effect: states are not sent to other hosts");
    }
    notes
}

#[cfg(test)]
mod tests;
