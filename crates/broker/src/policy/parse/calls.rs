//! `[tenant.calls]`: supervised system calls.

use super::super::diagnostic::Diagnostics;
use super::super::{Calls, CharacterDevice, FILESYSTEMS, Mounts, PROGRAMS, Redirect, Tenant};
use super::section::{Section, Value, shown};
use super::value;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use toml::de::DeValue;

/// Most backends of a redirection.
const MOST_BACKENDS: usize = 1024;

/// Programs that do whatever an image tells them.
const INTERPRETERS: [&str; 14] = [
    "ash", "awk", "bash", "busybox", "dash", "env", "gawk", "lua", "mawk", "node", "perl", "php",
    "ruby", "sh",
];

/// Reads the grants of a tenant whose devices are known.
pub(super) fn read(value: &Value<'_>, tenant: &Tenant, out: &mut Diagnostics) -> Calls {
    let Some(mut section) = Section::of("calls", value, "begin it with [tenant.calls]", out) else {
        return Calls::default();
    };
    let af_xdp = section.get("af-xdp");
    let calls = Calls {
        af_xdp: af_xdp.and_then(|it| value::flag(it, out)).unwrap_or(false),
        connect: section
            .get("connect")
            .map_or_else(Vec::new, |it| redirects(it, out)),
        mknod: section
            .get("mknod")
            .map_or_else(Vec::new, |it| character_devices(it, out)),
        mount: section.get("mount").and_then(|it| mounts(it, out)),
        bpf_cgroup_device: flag(&mut section, "bpf-cgroup-device", out),
        setxattr: flag(&mut section, "setxattr", out),
        sysinfo: flag(&mut section, "sysinfo", out),
        sched_setscheduler: section.get("sched-setscheduler").and_then(|it| {
            value::number(
                it,
                "a real-time priority (0: normal policies only)",
                0..=99_u8,
                out,
            )
        }),
    };
    if let Some(af_xdp) = af_xdp
        && calls.af_xdp
        && tenant.devices.is_empty()
    {
        let message =
            "an AF_XDP program needs a device: add [[tenant.device]] before [tenant.calls]";
        out.error(af_xdp.span(), message);
    }
    section.finish(out);
    calls
}

fn flag(section: &mut Section<'_>, key: &'static str, out: &mut Diagnostics) -> bool {
    let value = section.get(key);
    value.and_then(|it| value::flag(it, out)).unwrap_or(false)
}

fn character_devices(value: &Value<'_>, out: &mut Diagnostics) -> Vec<CharacterDevice> {
    let words = [
        ("null", CharacterDevice::Null),
        ("zero", CharacterDevice::Zero),
        ("full", CharacterDevice::Full),
        ("random", CharacterDevice::Random),
        ("urandom", CharacterDevice::Urandom),
        ("tty", CharacterDevice::Tty),
    ];
    value::list(value, out, |it, out| {
        if it.get_ref().as_str() == Some("console") {
            let message = "a node of the console is the host's, which everyone with the node could write to: remove \"console\"; the runtime of a container mounts a terminal on its /dev/console";
            out.error(it.span(), message);
            return None;
        }
        value::word(it, "device that does no harm", &words, out)
    })
}

fn redirects(value: &Value<'_>, out: &mut Diagnostics) -> Vec<Redirect> {
    let mut seen = HashSet::new();
    value::list(value, out, |it, out| {
        let redirect = redirect(it, out)?;
        if !seen.insert(redirect.from) {
            let message = format!(
                "{} is redirected twice, and only the first would count: join their `to`",
                redirect.from
            );
            out.error(it.span(), message);
        }
        Some(redirect)
    })
}

fn redirect(value: &Value<'_>, out: &mut Diagnostics) -> Option<Redirect> {
    let example = "connect = [ { from = \"192.0.2.1:80\", to = [\"127.0.0.1:8001\"] } ]";
    let mut section = Section::of("a redirection", value, example, out)?;
    let from = section.need("from", example, out);
    let to = section.need("to", example, out);
    section.finish(out);
    let from = value::socket_address(from?, out);
    let place = to?.span();
    let to = value::list(to?, out, value::socket_address);
    let from = from?;
    if to.len() > MOST_BACKENDS {
        let message = format!("a redirection has at most {MOST_BACKENDS} backends");
        out.error(place.clone(), message);
    }
    if let Some(other) = to.iter().find(|to| to.is_ipv4() != from.is_ipv4()) {
        let message = format!(
            "the process's own socket connects, of the IP version of {from}: it cannot reach {other}"
        );
        out.error(place, message);
    }
    Some(Redirect { from, to })
}

fn mounts(value: &Value<'_>, out: &mut Diagnostics) -> Option<Mounts> {
    let example = "mount = { filesystems = [\"tmpfs\"], fuse = { ext4 = \"/usr/bin/fuse2fs\" } }";
    let mut section = Section::of("mount", value, example, out)?;
    let filesystems = section.get("filesystems");
    let fuse = section.get("fuse");
    let at = section.at();
    section.finish(out);
    if filesystems.is_none() && fuse.is_none() {
        out.absent(at, format!("mount allows nothing: {example}"));
    }
    let mounts = Mounts {
        filesystems: filesystems.map_or_else(Vec::new, |it| {
            value::list(it, out, |it, out| {
                let name = value::text(it, "a filesystem, such as \"tmpfs\"", out)?;
                let name = filesystem(name, it, out)?;
                if !FILESYSTEMS.contains(&&*name) {
                    let message = format!(
                        "the broker has the kernel mount {} alone: an image is for a program to serve, fuse = {{ {name} = \"/usr/bin/…\" }}",
                        FILESYSTEMS.join(", ")
                    );
                    out.error(it.span(), message);
                }
                Some(name)
            })
        }),
        fuse: fuse.map_or_else(BTreeMap::new, |it| fuse_programs(it, example, out)),
    };
    let both = mounts.filesystems.iter();
    if let (Some(both), Some(fuse)) = (both.clone().find(|it| mounts.fuse.contains_key(*it)), fuse)
    {
        let message =
            format!("{both} is mounted by the kernel, says `filesystems`: remove it here or there");
        out.error(fuse.span(), message);
    }
    Some(mounts)
}

/// The name of a type of filesystem.
fn filesystem(name: &str, value: &Value<'_>, out: &mut Diagnostics) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
        let message = format!(
            "\"{}\" is no type of filesystem: see /proc/filesystems",
            shown(name)
        );
        out.error(value.span(), message);
        return None;
    }
    Some(name.to_owned())
}

/// By the name, with or without a version: `python3.11`.
fn is_interpreter(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    INTERPRETERS.contains(&name) || name == "python"
}

fn fuse_programs(
    value: &Value<'_>,
    example: &str,
    out: &mut Diagnostics,
) -> BTreeMap<String, PathBuf> {
    let DeValue::Table(table) = value.get_ref() else {
        let message = format!("fuse is a table of programs by filesystem: {example}");
        out.error(value.span(), message);
        return BTreeMap::new();
    };
    let programs = table.iter().filter_map(|(name, value)| {
        let path = value::path(value, out);
        let name = filesystem(name.get_ref(), value, out)?;
        let path = path?;
        if !PROGRAMS.iter().any(|directory| path.starts_with(directory)) {
            let message = format!(
                "the confined broker runs programs of {} alone: install it in /usr/local/bin",
                PROGRAMS.join(", ")
            );
            out.error(value.span(), message);
        }
        if is_interpreter(&path) || value::is_script(&path) {
            let message = "an interpreter does whatever the tenant's image says: name a program that serves this filesystem alone";
            out.error(value.span(), message);
        }
        Some((name, path))
    });
    programs.collect()
}
