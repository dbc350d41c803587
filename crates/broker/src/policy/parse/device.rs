//! `[[tenant.device]]`: its queues, and their permitted uses.

use super::super::diagnostic::Diagnostics;
use super::super::{BusyPoll, DeviceGrant, FilterProtocol, FilterRule, Mode, Tenant, Who};
use super::section::{Section, Value};
use super::value;
use std::ops::Range;
use toml::de::DeValue;

/// Bytes of a socket's UMEM by default.
const MEMORY: u64 = 16 << 20;

/// The smallest EtherType: smaller values of the field are lengths (IEEE 802.3).
const ETHER_TYPE_LEAST: u16 = 0x600;

/// Reads the grants into `tenant`, whose limits are known, and returns their places.
pub(super) fn read(
    section: &mut Section<'_>,
    tenant: &mut Tenant,
    out: &mut Diagnostics,
) -> Vec<Range<usize>> {
    let Some(value) = section.get("device") else {
        return Vec::new();
    };
    let DeValue::Array(array) = value.get_ref() else {
        let message = "there can be several devices: begin each with [[tenant.device]]";
        out.error(value.span(), message);
        return Vec::new();
    };
    let mut places = Vec::new();
    for value in array {
        if let Some(grant) = grant(value, tenant, out) {
            tenant.devices.push(grant);
            places.push(value.span());
        }
    }
    places
}

fn grant(value: &Value<'_>, tenant: &Tenant, out: &mut Diagnostics) -> Option<DeviceGrant> {
    let mut section = Section::of("a device", value, "begin it with [[tenant.device]]", out)?;
    let name = section.need("name", "name = \"eth0\"", out);
    let queues = section.need("queues", "queues = \"0-3\"", out);
    let lease = section.need("lease", "lease = [\"rx\"], [\"tx\"] or both", out);
    let (rx, tx) = lease.map_or((true, true), |it| directions(it, out));
    let modes = section.get("modes");
    let memory = section.get("memory");
    let plugin = section.get("plugin");
    let pinned_map = section.get("pinned-map");
    let filter = section.get("filter");
    let grant = DeviceGrant {
        device: name
            .and_then(|it| value::device(it, out))
            .unwrap_or_default(),
        queues: queues
            .and_then(|it| value::queues(it, out))
            .unwrap_or_default(),
        rx,
        tx,
        modes: modes.map_or_else(|| vec![Mode::Driver, Mode::Skb], |it| mode_list(it, out)),
        memory: memory.and_then(|it| value::size(it, out)).unwrap_or(MEMORY),
        filter: filter.map_or_else(Vec::new, |it| rules(it, out)),
        busy_poll: section.get("busy-poll").and_then(|it| busy_poll(it, out)),
        plugin: plugin.and_then(|it| value::flag(it, out)).unwrap_or(false),
        pinned_map: pinned_map
            .and_then(|it| value::flag(it, out))
            .unwrap_or(false),
    };
    check_reception(&grant, [filter, plugin], out);
    check_zero_copy(&grant, tenant, modes, out);
    if let Some(queues) = queues {
        check_plugin(&grant, queues, out);
    }
    if let Some(pinned_map) = pinned_map {
        check_pinned_map(&grant, tenant, pinned_map, out);
    }
    if grant.memory > tenant.memory_total {
        let message = format!(
            "all UMEMs of this tenant have {} bytes at most, so that one never has {}: lower this, or raise the tenant's memory-total",
            tenant.memory_total, grant.memory
        );
        out.error(memory.map_or(section.at(), toml::Spanned::span), message);
    }
    section.finish(out);
    Some(grant)
}

fn directions(value: &Value<'_>, out: &mut Diagnostics) -> (bool, bool) {
    let words = [("rx", false), ("tx", true)];
    let lease = value::list(value, out, |it, out| {
        value::word(it, "direction", &words, out)
    });
    (lease.contains(&false), lease.contains(&true))
}

fn mode_list(value: &Value<'_>, out: &mut Diagnostics) -> Vec<Mode> {
    let words = [
        ("zc", Mode::ZeroCopy),
        ("drv", Mode::Driver),
        ("skb", Mode::Skb),
    ];
    value::list(value, out, |it, out| value::word(it, "mode", &words, out))
}

/// Refuses keys about received packets without `rx`.
fn check_reception(
    grant: &DeviceGrant,
    [filter, plugin]: [Option<&Value<'_>>; 2],
    out: &mut Diagnostics,
) {
    if !grant.rx && grant.tx {
        for (key, value) in [("filter", filter), ("plugin", plugin)] {
            let is_set = |it: &&Value<'_>| it.get_ref().as_bool() != Some(false);
            if let Some(value) = value.filter(is_set) {
                let message = format!(
                    "`{key}` is about packets received, and this lease only sends: add \"rx\" to `lease`, or remove it"
                );
                out.error(value.span(), message);
            }
        }
    }
}

/// The XSKMAP that is given out is a right over all queues; their number is known only to the device.
fn check_plugin(grant: &DeviceGrant, queues: &Value<'_>, out: &mut Diagnostics) {
    // Ranges are in order and do not touch.
    let missing = match grant.queues.as_slice() {
        [all] if *all.start() == 0 => return,
        [first, ..] if *first.start() == 0 => first.end().saturating_add(1),
        _ => 0,
    };
    if !grant.plugin || grant.queues.is_empty() {
        return;
    }
    let message = format!(
        "`plugin` gives out the device's XSKMAP, a right over all queues, and queue {missing} is not among these: name all, from 0"
    );
    out.error(queues.span(), message);
}

/// A file has an owner, and no other conditions.
fn check_pinned_map(
    grant: &DeviceGrant,
    tenant: &Tenant,
    pinned_map: &Value<'_>,
    out: &mut Diagnostics,
) {
    if !grant.pinned_map {
        return;
    }
    if !grant.plugin {
        let message = "the map that is pinned is the device plugin's: add `plugin = true`";
        out.error(pinned_map.span(), message);
    }
    let uids = tenant.who.uids.clone();
    let only_user = Who {
        uids,
        ..Who::default()
    };
    if tenant.who.uids.len() != 1 || tenant.who != only_user {
        let message = "a pinned map is a file, and whoever is its user opens it: give the tenant one `uid`, and no other condition";
        out.error(pinned_map.span(), message);
    }
}

/// In zero-copy every frame of the queue reaches the tenant's memory before a program judges it, also
/// of a tenant that only sends: a queue pair goes into zero-copy as a whole, and the tenant's FILL ring
/// feeds its receiving side.
fn check_zero_copy(
    grant: &DeviceGrant,
    tenant: &Tenant,
    modes: Option<&Value<'_>>,
    out: &mut Diagnostics,
) {
    if let Some(modes) = modes
        && grant.modes.contains(&Mode::ZeroCopy)
        && !tenant.trusted
    {
        let message = if grant.rx {
            "in zero-copy the tenant sees every frame of the queue before the filter does: add `trusted = true` to the tenant, or remove \"zc\""
        } else {
            "in zero-copy the frames that the queue receives are in the tenant's memory, though it only sends: add `trusted = true` to the tenant, or remove \"zc\""
        };
        out.error(modes.span(), message);
    }
}

fn busy_poll(value: &Value<'_>, out: &mut Diagnostics) -> Option<BusyPoll> {
    let example = "busy-poll = { most-usecs = 50, most-budget = 64 }";
    let mut section = Section::of("busy-poll", value, example, out)?;
    let usecs = section.need("most-usecs", example, out);
    let budget = section.need("most-budget", example, out);
    section.finish(out);
    // A second of one CPU, and the range of the kernel's own budget field.
    let usecs = value::number(usecs?, "most-usecs", 1..=1_000_000_u32, out);
    let budget = value::number(budget?, "most-budget", 1..=u16::MAX, out);
    Some(BusyPoll {
        most_usecs: usecs?,
        most_budget: budget?,
    })
}

fn rules(value: &Value<'_>, out: &mut Diagnostics) -> Vec<FilterRule> {
    let example = "filter = [ { protocol = \"udp\", destination-port = 53 } ]";
    let rules = value::list(value, out, |it, out| rule(it, example, out));
    let most = xsk::Filter::MAX_RULES;
    if rules.len() > most {
        let message = format!("a filter has at most {most} rules: combine them");
        out.error(value.span(), message);
    }
    rules
}

fn rule(value: &Value<'_>, example: &str, out: &mut Diagnostics) -> Option<FilterRule> {
    let mut section = Section::of("a rule", value, example, out)?;
    let protocol = section.need("protocol", example, out);
    let parsed = protocol.and_then(|it| filter_protocol(it, out));
    let mut prefix = |key, out: &mut Diagnostics| {
        let value = section.get(key)?;
        value::prefix(value, out)
    };
    let (source, destination) = (prefix("source", out), prefix("destination", out));
    let mut port = |key, out: &mut Diagnostics| {
        let value = section.get(key)?;
        value::number(value, "a port", 1..=u16::MAX, out)
    };
    let rule = FilterRule {
        protocol: parsed.unwrap_or_default(),
        source,
        destination,
        source_port: port("source-port", out),
        destination_port: port("destination-port", out),
    };
    check_rule(&rule, value.span(), out);
    section.finish(out);
    Some(rule)
}

fn filter_protocol(value: &Value<'_>, out: &mut Diagnostics) -> Option<FilterProtocol> {
    if value.get_ref().is_integer() {
        let least = ETHER_TYPE_LEAST;
        let ether_type = value::number(value, "an EtherType", least..=u16::MAX, out)?;
        return Some(FilterProtocol::EtherType(ether_type));
    }
    let words = [
        ("ip", FilterProtocol::Ip),
        ("udp", FilterProtocol::Udp),
        ("tcp", FilterProtocol::Tcp),
    ];
    let what = "protocol (an EtherType is a number, such as 0x88f7)";
    value::word(value, what, &words, out)
}

/// A rule that no packet can match.
fn check_rule(rule: &FilterRule, at: Range<usize>, out: &mut Diagnostics) {
    let prefixes = [rule.source, rule.destination];
    let has_ports = rule.source_port.is_some() || rule.destination_port.is_some();
    let is_ether_type = matches!(rule.protocol, FilterProtocol::EtherType(_));
    if is_ether_type && (has_ports || prefixes.iter().any(Option::is_some)) {
        let message = "an EtherType has no addresses and ports: write \"ip\", \"udp\" or \"tcp\"";
        out.error(at.clone(), message);
    }
    if let [Some((source, _)), Some((destination, _))] = prefixes
        && source.is_ipv4() != destination.is_ipv4()
    {
        let message =
            format!("no packet goes from {source} to {destination}: give both in one IP version");
        out.error(at, message);
    }
}
