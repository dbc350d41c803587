//! FreeBSD's own regression tests of pfctl: `PF_FILTER_CORPUS_FREEBSD` names the directory of
//! `sbin/pfctl/tests/files` in its sources.

use std::fs;
use std::path::Path;

use pf_filter::host::Host;
use pf_filter::parse::{Dialect, Parsed};

use super::{Failed, Outcomes, input, read, same, wanted, without_errors};

const ALTQ: &str = "ALTQ is refused by name";

/// Files whose print differs from ours, and why. A file that is exact must not be here.
///
/// FreeBSD 12's prints are taken as those of FreeBSD 14, where the two differ.
const DEVIATIONS: &[(&str, &str)] = &[
    (
        "pf0087",
        "port 81 has no name any more (FreeBSD 14), but had one in FreeBSD 12",
    ),
    (
        "pf0089",
        "port 8080 has a name (FreeBSD 14), but had none in FreeBSD 12",
    ),
    (
        "pf0096",
        "port 5555 has a name (FreeBSD 14), but had none in FreeBSD 12",
    ),
    (
        "pf0100",
        "FreeBSD 12 cuts the paths of anchors that it calls; FreeBSD 14 prints them whole",
    ),
    (
        "pf0102",
        "FreeBSD 12 keeps a prefix length that it cut for IPv4; FreeBSD 14 does not",
    ),
    ("pf1003", ALTQ),
    ("pf1004", ALTQ),
];

/// Of those, the ones whose print is exact when it is read again.
const STABLE: &[&str] = &["pf0100", "pf0102"];

/// Files that pfctl refuses and we do not, and why.
const REFUSALS: &[(&str, &str)] = &[];

fn host() -> Host {
    Host::parse(include_str!("host-freebsd.toml")).expect("the host model is right")
}

fn parsed(directory: &Path, text: &[u8]) -> Parsed {
    read(directory, &host(), Dialect::FreeBsd, text, &[])
}

/// Checks each file.
pub fn check(directory: &Path, outcomes: &mut Outcomes) {
    let entries = fs::read_dir(directory).expect("PF_FILTER_CORPUS_FREEBSD is a directory");
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names
        .filter_map(|name| name.strip_suffix(".in").map(str::to_owned))
        .collect();
    names.sort();
    for name in names {
        let exists = |ending: &str| directory.join(format!("{name}.{ending}")).exists();
        if exists("fail") {
            outcomes.add(format!("fail {name}"), is_refused(directory, &name));
        } else if exists("ok") {
            outcomes.add(format!("print {name}"), prints(directory, &name));
            outcomes.add(format!("idempotent {name}"), prints_again(directory, &name));
        } else {
            outcomes.add(format!("accept {name}"), is_accepted(directory, &name));
        }
    }
}

fn is_refused(directory: &Path, name: &str) -> Result<(), Failed> {
    let refused = parsed(directory, &input(directory, name)?).has_errors();
    let found = if refused {
        Ok(())
    } else {
        Err("no error".into())
    };
    as_listed(name, REFUSALS, found)
}

fn prints(directory: &Path, name: &str) -> Result<(), Failed> {
    let parsed = parsed(directory, &input(directory, name)?);
    as_listed(name, DEVIATIONS, same(&parsed, &wanted(directory, name)?))
}

fn prints_again(directory: &Path, name: &str) -> Result<(), Failed> {
    let text = wanted(directory, name)?;
    let list = if STABLE.contains(&name) {
        &[]
    } else {
        DEVIATIONS
    };
    let parsed = parsed(directory, text.as_bytes());
    as_listed(name, list, same(&parsed, &text))
}

fn is_accepted(directory: &Path, name: &str) -> Result<(), Failed> {
    without_errors(&parsed(directory, &input(directory, name)?))
}

/// A file that is listed must deviate, another must not.
fn as_listed(name: &str, list: &[(&str, &str)], found: Result<(), Failed>) -> Result<(), Failed> {
    match (list.iter().find(|(listed, _)| *listed == name), found) {
        (None, found) => found,
        (Some(_), Err(_)) => Ok(()),
        (Some((_, reason)), Ok(())) => {
            Err(format!("{name} is exact: take it off the list (\"{reason}\")").into())
        }
    }
}
