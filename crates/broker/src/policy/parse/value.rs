//! Single values. Each reader reports a wrong value and returns none then.

use super::super::diagnostic::Diagnostics;
use super::section::{Value, article, nearest, shown};
use rustix::fs::{FileType, OFlags};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Component, Path, PathBuf};
use toml::de::DeValue;

/// Highest number of a queue: a device has at most 4096 (`rtnl_create_link`).
const LAST_QUEUE: u32 = 4095;

/// Most bytes of a path, with its final zero (`PATH_MAX`).
const PATH_MAX: usize = 4096;

fn wrong_type<T>(value: &Value<'_>, expected: &str, out: &mut Diagnostics) -> Option<T> {
    let found = article(value.get_ref().type_str());
    out.error(value.span(), format!("this is {found}: write {expected}"));
    None
}

/// A string; `expected` is an example of it.
pub(super) fn text<'t>(
    value: &'t Value<'t>,
    expected: &str,
    out: &mut Diagnostics,
) -> Option<&'t str> {
    match value.get_ref() {
        DeValue::String(text) => Some(text),
        _ => wrong_type(value, expected, out),
    }
}

/// A string that `read` understands, or says why not.
fn parsed<T>(
    value: &Value<'_>,
    expected: &str,
    out: &mut Diagnostics,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Option<T> {
    let result = read(text(value, expected, out)?);
    result.map_err(|why| out.error(value.span(), why)).ok()
}

/// `true` or `false`.
pub(super) fn flag(value: &Value<'_>, out: &mut Diagnostics) -> Option<bool> {
    match value.get_ref() {
        DeValue::Boolean(flag) => Some(*flag),
        _ => wrong_type(value, "true or false", out),
    }
}

fn integer(value: &Value<'_>) -> Option<i128> {
    let integer = value.get_ref().as_integer()?;
    // More digits than it has are beyond every limit of the file.
    Some(i128::from_str_radix(integer.as_str(), integer.radix()).unwrap_or(i128::MAX))
}

/// An integer in a range; `what` is its name for messages.
pub(super) fn number<T: TryFrom<i128> + Into<u64> + Copy>(
    value: &Value<'_>,
    what: &str,
    range: RangeInclusive<T>,
    out: &mut Diagnostics,
) -> Option<T> {
    let (least, most): (u64, u64) = ((*range.start()).into(), (*range.end()).into());
    let Some(number) = integer(value) else {
        let expected = format!("an integer from {least} to {most}");
        return wrong_type(value, &expected, out);
    };
    if !(i128::from(least)..=i128::from(most)).contains(&number) {
        let message = format!("{what} is from {least} to {most}");
        out.error(value.span(), message);
        return None;
    }
    T::try_from(number).ok()
}

/// A list, or its only element; an empty list is a fault. Elements with faults are left out.
pub(super) fn list<'t, T>(
    value: &'t Value<'t>,
    out: &mut Diagnostics,
    mut read: impl FnMut(&'t Value<'t>, &mut Diagnostics) -> Option<T>,
) -> Vec<T> {
    let DeValue::Array(array) = value.get_ref() else {
        return read(value, out).into_iter().collect();
    };
    if array.is_empty() {
        let message = "an empty list allows nothing: add an element, or leave the key out";
        out.error(value.span(), message);
    }
    let elements = array.iter();
    elements.filter_map(|element| read(element, out)).collect()
}

/// One word of a list.
pub(super) fn word<T: Copy>(
    value: &Value<'_>,
    what: &str,
    words: &[(&str, T)],
    out: &mut Diagnostics,
) -> Option<T> {
    let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
    let all = names.join(", ");
    parsed(value, &format!("one of {all}"), out, |text| {
        let found = words.iter().find(|(name, _)| *name == text);
        found.map(|(_, meaning)| *meaning).ok_or_else(|| {
            let near = nearest(text, &names);
            let near = near.map_or(String::new(), |near| format!("; did you mean \"{near}\"?"));
            format!("\"{}\" is no {what}: one of {all}{near}", shown(text))
        })
    })
}

/// A user or group id, or a name that `id_of` knows.
pub(super) fn id(
    value: &Value<'_>,
    kind: &str,
    file: &str,
    id_of: impl Fn(&str) -> Option<u32>,
    out: &mut Diagnostics,
) -> Option<u32> {
    if integer(value).is_some() {
        // The greatest one means "no id" in the kernel's interface.
        return number(value, &format!("a {kind} id"), 0..=u32::MAX - 1, out);
    }
    let expected = format!("a {kind} id, or a name of {file}");
    parsed(value, &expected, out, |name| {
        id_of(name).ok_or_else(|| {
            format!(
                "there is no {kind} \"{}\" in {file}: names from elsewhere are not looked up, write the id",
                shown(name)
            )
        })
    })
}

/// A number of bytes: an integer, or one with a binary unit.
pub(super) fn size(value: &Value<'_>, out: &mut Diagnostics) -> Option<u64> {
    const MOST: u64 = 1 << 40;
    const EXPECTED: &str = "a size, such as \"16 MiB\" or 16777216";
    let bytes = if let Some(bytes) = integer(value) {
        bytes
    } else {
        parsed(value, EXPECTED, out, |text| {
            let wrong = || format!("\"{}\" is no size: write {EXPECTED}", shown(text));
            let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (number, unit) = text.split_at(digits);
            let shift = match unit.trim_start_matches(' ') {
                "" | "B" => 0,
                "KiB" => 10,
                "MiB" => 20,
                "GiB" => 30,
                unit @ ("k" | "K" | "kB" | "KB" | "M" | "MB" | "G" | "GB") => {
                    let binary = unit.chars().next().unwrap_or('K').to_ascii_uppercase();
                    return Err(format!(
                        "\"{unit}\" means 1000s to some and 1024s to others: write \"{number} {binary}iB\""
                    ));
                }
                _ => return Err(wrong()),
            };
            let number: u64 = number.parse().map_err(|_| wrong())?;
            Ok(i128::from(number) << shift)
        })?
    };
    if !(4096..=i128::from(MOST)).contains(&bytes) {
        let message = "a size is from 4096 bytes to 1024 GiB";
        out.error(value.span(), message);
        return None;
    }
    u64::try_from(bytes).ok()
}

/// Queues: `"0-3,7"`, or the number of the only one. In ascending order, joined where they touch.
pub(super) fn queues(value: &Value<'_>, out: &mut Diagnostics) -> Option<Vec<RangeInclusive<u32>>> {
    if integer(value).is_some() {
        let queue = number(value, "a queue", 0..=LAST_QUEUE, out)?;
        return Some(vec![queue..=queue]);
    }
    let expected = "queues, such as \"0-3,7\"";
    parsed(value, expected, out, |text| {
        let ranges: Result<Vec<_>, _> = text.split(',').map(queue_range).collect();
        joined(ranges?)
    })
}

fn queue_range(text: &str) -> Result<RangeInclusive<u32>, String> {
    let text = text.trim_matches(' ');
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |digits: &str| {
        // Not a sign, which `parse` takes.
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.parse().ok().filter(|_| is_number);
        number.ok_or_else(|| {
            format!(
                "\"{}\" is no queue and no range of queues: write them as in \"0-3,7\"",
                shown(text)
            )
        })
    };
    let (first, last): (u32, u32) = (number(first)?, number(last)?);
    if last < first {
        return Err(format!(
            "the range {first}-{last} ends before it begins: write \"{last}-{first}\""
        ));
    }
    if last > LAST_QUEUE {
        return Err(format!(
            "there is no queue {last}: a device has the queues 0 to {LAST_QUEUE} at most"
        ));
    }
    Ok(first..=last)
}

fn joined(mut ranges: Vec<RangeInclusive<u32>>) -> Result<Vec<RangeInclusive<u32>>, String> {
    ranges.sort_by_key(|range| *range.start());
    let mut joined: Vec<RangeInclusive<u32>> = Vec::new();
    for range in ranges {
        let (first, last) = range.into_inner();
        match joined.pop() {
            Some(before) if first <= *before.end() => {
                return Err(format!("queue {first} is there twice: name it once"));
            }
            Some(before) if first == before.end() + 1 => joined.push(*before.start()..=last),
            before => {
                joined.extend(before);
                joined.push(first..=last);
            }
        }
    }
    Ok(joined)
}

/// An absolute path without `.` and `..`.
pub(super) fn path(value: &Value<'_>, out: &mut Diagnostics) -> Option<PathBuf> {
    parsed(value, "a path, such as \"/usr/sbin/nsd\"", out, |text| {
        let path = Path::new(text);
        let is_plain = |part: &str| part != "." && part != "..";
        if !path.is_absolute() {
            return Err(format!(
                "the path \"{}\" depends on the broker's directory: write it from the root, such as \"/usr/sbin/nsd\"",
                shown(text)
            ));
        }
        if text.contains('\0') || text.len() >= PATH_MAX {
            return Err("no file has such a path: it has a zero byte, or over 4095 bytes".into());
        }
        if !text.split('/').all(is_plain)
            || path.components().next_back() == Some(Component::RootDir)
        {
            return Err("write the path of a file, without `.` and `..`".into());
        }
        Ok(path.components().collect())
    })
}

/// The SHA-256 of a file in hexadecimal.
pub(super) fn sha256(value: &Value<'_>, out: &mut Diagnostics) -> Option<[u8; 32]> {
    parsed(value, "the output of sha256sum", out, |text| {
        let mut bytes = [0; 32];
        let digits: Option<Vec<u8>> = text
            .chars()
            .map(|c| c.to_digit(16).map(|digit| digit as u8))
            .collect();
        let Some(digits) = digits.filter(|digits| digits.len() == 64) else {
            return Err(format!(
                "a SHA-256 has 64 hexadecimal digits, not \"{}\": take it from `sha256sum FILE`",
                shown(text)
            ));
        };
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair.iter().fold(0, |byte, digit| byte << 4 | digit);
        }
        Ok(bytes)
    })
}

/// The path of a control group.
pub(super) fn cgroup(value: &Value<'_>, out: &mut Diagnostics) -> Option<String> {
    let example = "\"/system.slice/nsd.service\"";
    parsed(
        value,
        &format!("a control group, such as {example}"),
        out,
        |text| {
            let path = text.strip_suffix('/').unwrap_or(text);
            if path.is_empty() {
                return Err("every process is in \"/\" or below it: name a control group, or leave the key out".into());
            }
            let is_name = |part: &str| !part.is_empty() && part != "." && part != "..";
            match path.strip_prefix('/') {
                Some(names) if names.split('/').all(is_name) && !names.contains('\n') => {
                    Ok(path.to_owned())
                }
                _ => Err(format!(
                    "\"{}\" is no control group: write its path below /sys/fs/cgroup, such as {example}",
                    shown(text)
                )),
            }
        },
    )
}

/// A string that is not empty.
pub(super) fn filled(value: &Value<'_>, expected: &str, out: &mut Diagnostics) -> Option<String> {
    parsed(value, expected, out, |text| {
        let filled = Some(text.to_owned()).filter(|text| !text.is_empty());
        filled.ok_or_else(|| format!("this is empty: write {expected}"))
    })
}

/// The name of a device, or an alternative one, which the kernel gives more room and we hold to the same rules
/// (`dev_valid_name`): a name becomes part of a path.
pub(super) fn device(value: &Value<'_>, out: &mut Diagnostics) -> Option<String> {
    parsed(value, "a device, such as \"eth0\"", out, |name| {
        let is_refused = |c: char| c == '/' || c == ':' || c == '\0' || c.is_whitespace();
        if name.is_empty()
            || name.len() > 127
            || [".", ".."].contains(&name)
            || name.contains(is_refused)
        {
            return Err(format!(
                "no device can be named \"{}\": a name has 1 to 127 bytes without blanks, `/` and `:`",
                shown(name)
            ));
        }
        if name.contains(['*', '?', '[']) {
            return Err(format!(
                "\"{}\" is no device, and a pattern names none: add one [[tenant.device]] for each",
                shown(name)
            ));
        }
        Ok(name.to_owned())
    })
}

/// Whether a file is a script, as far as it is there and can be read: the executable of its process is the
/// interpreter.
pub(super) fn is_script(path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(path, flags, rustix::fs::Mode::empty()) else {
        return false;
    };
    let is_file = rustix::fs::fstat(&file)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
    let mut first = [0; 2];
    is_file && rustix::io::read(&file, &mut first) == Ok(2) && first == *b"#!"
}

/// An address and the length of its prefix; a bare address is that one alone.
pub(super) fn prefix(value: &Value<'_>, out: &mut Diagnostics) -> Option<(IpAddr, u8)> {
    let expected = "a prefix, such as \"192.0.2.0/24\" or \"2001:db8::/32\"";
    parsed(value, expected, out, |text| {
        let wrong = || format!("\"{}\" is no prefix: write {expected}", shown(text));
        let (address, len) = text
            .split_once('/')
            .map_or((text, None), |(address, len)| (address, Some(len)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let len = match len {
            None => most,
            Some(len) if len.bytes().all(|byte| byte.is_ascii_digit()) => {
                len.parse().map_err(|_| wrong())?
            }
            Some(_) => return Err(wrong()),
        };
        if len > most {
            return Err(format!(
                "{address}/{len} is too long: an address has {most} bits"
            ));
        }
        let network = network(address, len);
        if network != address {
            return Err(format!(
                "{address}/{len} has bits behind its prefix: write {network}/{len}, or {address} for the one address"
            ));
        }
        Ok((address, len))
    })
}

/// The address without the bits behind its prefix.
fn network(address: IpAddr, len: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
            IpAddr::V4((address.to_bits() & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
            IpAddr::V6((address.to_bits() & mask).into())
        }
    }
}

/// An address and a port.
pub(super) fn socket_address(value: &Value<'_>, out: &mut Diagnostics) -> Option<SocketAddr> {
    let expected = "an address and a port, such as \"192.0.2.1:80\" or \"[2001:db8::1]:80\"";
    parsed(value, expected, out, |text| {
        let address = text.parse::<SocketAddr>().ok();
        let address = address.filter(|address| address.port() != 0);
        address.ok_or_else(|| format!("\"{}\" is none: write {expected}", shown(text)))
    })
}
