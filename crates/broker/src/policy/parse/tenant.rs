//! `[[tenant]]`: its conditions, limits and grants.

use super::super::diagnostic::Diagnostics;
use super::super::names::Names;
use super::super::{Calls, DeviceGrant, Limits, Tenant, Who};
use super::section::{Section, Value, shown};
use super::{calls, device, value};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use toml::de::DeValue;

/// Most queues that a tenant can hold.
const MOST_LEASES: u32 = 4096;

/// The highest limit of a resource.
const MOST_OF_LIMIT: u32 = 1 << 20;

/// Most characters of a name.
const MOST_NAME: usize = 64;

/// A tenant and its places in the file.
pub(super) struct Placed {
    pub(super) tenant: Tenant,
    /// Its name, or its header.
    pub(super) at: Range<usize>,
    /// Its device grants, one for each of the tenant.
    pub(super) devices: Vec<Range<usize>>,
}

/// Reads a tenant, as far as it can be understood.
pub(super) fn read(value: &Value<'_>, names: &Names, out: &mut Diagnostics) -> Option<Placed> {
    let mut section = Section::of("a tenant", value, "begin it with [[tenant]]", out)?;
    let default = Tenant::default();
    let given = section.need("name", "name = \"dns\"", out);
    let who = who(&mut section, names, out);
    let trusted = section.get("trusted").and_then(|it| value::flag(it, out));
    let leases = section
        .get("leases")
        .and_then(|it| value::number(it, "the number of leases", 1..=MOST_LEASES, out));
    let memory_total = section
        .get("memory-total")
        .and_then(|it| value::size(it, out));
    let limits = section
        .get("limits")
        .map_or_else(Limits::default, |it| limits(it, out));
    let kill = section.get("kill").and_then(|it| value::flag(it, out));
    let mut tenant = Tenant {
        name: given.and_then(|it| name(it, out)).unwrap_or_default(),
        who,
        trusted: trusted.unwrap_or(default.trusted),
        leases: leases.unwrap_or(default.leases),
        memory_total: memory_total.unwrap_or(default.memory_total),
        limits,
        kill: kill.unwrap_or(default.kill),
        ..default
    };
    let devices = device::read(&mut section, &mut tenant, out);
    tenant.calls = match section.get("calls") {
        Some(value) => calls::read(value, &tenant, out),
        None => Calls::default(),
    };
    let at = given.map_or(section.at(), toml::Spanned::span);
    check_container(&mut section, &tenant, &devices, out);
    check_filters(&tenant, &devices, out);
    if section.get("device").is_none() && section.get("calls").is_none() {
        let message = "this tenant may have nothing: add [[tenant.device]] or [tenant.calls]";
        out.note(at.clone(), message);
    }
    section.finish(out);
    Some(Placed {
        tenant,
        at,
        devices,
    })
}

/// A container is known of supervised calls only: not of the process that asks for a socket, and not of one that
/// holds it.
fn check_container(
    section: &mut Section<'_>,
    tenant: &Tenant,
    devices: &[Range<usize>],
    out: &mut Diagnostics,
) {
    let key = ["container", "annotations"]
        .into_iter()
        .find(|key| section.get(key).is_some());
    let Some(key) = key else { return };
    if let Some(device) = devices.first()
        && !tenant.calls.af_xdp
    {
        let message = format!(
            "no process that asks for a socket has a `{key}`, which a runtime tells of supervised calls: add `af-xdp = true` to [tenant.calls], or know the tenant by `uid`, `gid` or `cgroup`"
        );
        out.error(device.clone(), message);
    }
    if let Some(kill) = section.get("kill")
        && tenant.kill
    {
        let message = format!(
            "no process that holds a socket has a `{key}`, so none is killed: remove `kill`, or know the tenant by `uid`, `gid` or `cgroup`"
        );
        out.error(kill.span(), message);
    }
}

/// The program of an AF_XDP program would pass by the filter, so it is refused.
fn check_filters(tenant: &Tenant, places: &[Range<usize>], out: &mut Diagnostics) {
    let is_filtered = |grant: &DeviceGrant| !grant.filter.is_empty();
    if tenant.calls.af_xdp && tenant.devices.iter().all(is_filtered) {
        for place in places {
            let message = "no AF_XDP program works on a device with a `filter`, which its own program would pass by: remove the filter, or `af-xdp`";
            out.error(place.clone(), message);
        }
    }
}

/// `limits`: the tenant's share of the broker.
fn limits(value: &Value<'_>, out: &mut Diagnostics) -> Limits {
    let default = Limits::default();
    let example = "limits = { sessions = 16, descriptors = 1024 }";
    let Some(mut section) = Section::of("limits", value, example, out) else {
        return default;
    };
    let mut read = |key, what, default| {
        let value = section.get(key);
        let number = value.and_then(|it| value::number(it, what, 1..=MOST_OF_LIMIT, out));
        number.unwrap_or(default)
    };
    let limits = Limits {
        sessions: read("sessions", "the number of sessions", default.sessions),
        descriptors: read(
            "descriptors",
            "the number of descriptors",
            default.descriptors,
        ),
        threads: read("threads", "the number of threads", default.threads),
        maps: read("maps", "the number of maps", default.maps),
        programs: read("programs", "the number of programs", default.programs),
        links: read("links", "the number of links", default.links),
        btfs: read("btfs", "the number of loads of BTF", default.btfs),
    };
    section.finish(out);
    limits
}

/// A name for logs, the command line and metrics.
fn name(value: &Value<'_>, out: &mut Diagnostics) -> Option<String> {
    let name = value::filled(value, "a name, such as \"dns\"", out)?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.len() > MOST_NAME || !name.chars().all(is_plain) {
        let message = format!(
            "\"{}\" is no name: it has up to {MOST_NAME} letters, digits, `-`, `_` and `.`",
            shown(&name)
        );
        out.error(value.span(), message);
        return None;
    }
    Some(name)
}

const CONDITIONS: [&str; 7] = [
    "uid",
    "gid",
    "executable",
    "sha256",
    "cgroup",
    "container",
    "annotations",
];

fn who(section: &mut Section<'_>, names: &Names, out: &mut Diagnostics) -> Who {
    let mut who = Who::default();
    if let Some(uids) = section.get("uid") {
        who.uids = value::list(uids, out, |it, out| {
            value::id(it, "user", "/etc/passwd", |name| names.user(name), out)
        });
    }
    if let Some(gids) = section.get("gid") {
        who.gids = value::list(gids, out, |it, out| {
            value::id(it, "group", "/etc/group", |name| names.group(name), out)
        });
    }
    let mut read = |key| section.get(key);
    who.executable = read("executable").and_then(|it| executable(it, out));
    who.sha256 = read("sha256").and_then(|it| value::sha256(it, out));
    who.cgroup = read("cgroup").and_then(|it| value::cgroup(it, out));
    who.container = read("container").and_then(|it| value::filled(it, "a container's id", out));
    who.annotations = read("annotations").map_or_else(BTreeMap::new, |it| annotations(it, out));
    check_everyone(section, out);
    note_weak(section, &who, out);
    who
}

fn executable(value: &Value<'_>, out: &mut Diagnostics) -> Option<PathBuf> {
    let path = value::path(value, out)?;
    if value::is_script(&path) {
        let message = "this is a script, and the executable of its process is the interpreter: name that, together with `uid`, `gid` or `cgroup`";
        out.error(value.span(), message);
    }
    Some(path)
}

fn annotations(value: &Value<'_>, out: &mut Diagnostics) -> BTreeMap<String, String> {
    let example = "annotations = { \"weir.dns\" = \"yes\" }";
    let DeValue::Table(table) = value.get_ref() else {
        out.error(value.span(), format!("annotations are a table: {example}"));
        return BTreeMap::new();
    };
    if table.is_empty() {
        let message = format!("every container has these: name one, as in {example}");
        out.error(value.span(), message);
    }
    let pairs = table.iter().filter_map(|(key, value)| {
        let text = value::text(value, "a string, as annotations are", out)?;
        Some((key.get_ref().to_string(), text.to_owned()))
    });
    pairs.collect()
}

/// A tenant without a condition must be meant.
fn check_everyone(section: &mut Section<'_>, out: &mut Diagnostics) {
    let everyone = section.get("everyone");
    let condition = CONDITIONS.iter().find(|key| section.get(key).is_some());
    let all = CONDITIONS.join(", ");
    let is_everyone = everyone.map(|it| value::flag(it, out));
    match (everyone, is_everyone, condition) {
        (None, _, None) => {
            let message = format!(
                "this tenant has no condition: add one of {all}; or, for every process of this host, `everyone = true`"
            );
            out.absent(section.at(), message);
        }
        (Some(value), Some(Some(true)), Some(condition)) => {
            let message = format!("not everyone: `{condition}` is a condition; remove one of both");
            out.error(value.span(), message);
        }
        (Some(value), Some(Some(false)), None) => {
            let message = format!("who, then? Add one of {all}");
            out.error(value.span(), message);
        }
        _ => {}
    }
}

/// Conditions that prove less than they seem to.
fn note_weak(section: &mut Section<'_>, who: &Who, out: &mut Diagnostics) {
    let about_files = who.executable.is_some() || who.sha256.is_some();
    let about_users = !who.uids.is_empty() || !who.gids.is_empty();
    let about_place =
        who.cgroup.is_some() || who.container.is_some() || !who.annotations.is_empty();
    if about_files && !about_users && !about_place {
        let message = "an executable alone is no proof: whoever may run it can make it do something else (ptrace, LD_PRELOAD); add `uid`, `gid` or `cgroup`";
        out.note(section.at(), message);
    }
}
