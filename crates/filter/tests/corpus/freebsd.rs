//! FreeBSD's own regression tests of pfctl: `PF_FILTER_CORPUS_FREEBSD` names the directory of
//! `sbin/pfctl/tests/files` in its sources.

use std::fs;
use std::path::{Path, PathBuf};

use libtest_mimic::{Failed, Trial};
use pf_filter::host::Host;
use pf_filter::parse::{Dialect, Parsed};

use crate::{errors, read, same};

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

/// A test for each file, or one that says why there is none.
pub fn trials() -> Vec<Trial> {
    let Some(directory) = std::env::var_os("PF_FILTER_CORPUS_FREEBSD").map(PathBuf::from) else {
        let name = "freebsd_corpus [skipped: PF_FILTER_CORPUS_FREEBSD names no directory]";
        return vec![Trial::test(name, || Ok(())).with_ignored_flag(true)];
    };
    let entries = fs::read_dir(&directory).expect("PF_FILTER_CORPUS_FREEBSD is a directory");
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            entry
                .ok()?
                .file_name()
                .into_string()
                .ok()?
                .strip_suffix(".in")
                .map(str::to_owned)
        })
        .collect();
    names.sort();
    let mut trials = Vec::new();
    for name in names {
        let here = directory.clone();
        let input = directory.join(format!("{name}.in"));
        let (output, fail) = (
            directory.join(format!("{name}.ok")),
            directory.join(format!("{name}.fail")),
        );
        if fail.exists() {
            trials.push(Trial::test(format!("freebsd_fail::{name}"), move || {
                let refused = parsed(&here, &fs::read(&input)?).has_errors();
                as_listed(
                    &name,
                    REFUSALS,
                    if refused {
                        Ok(())
                    } else {
                        Err("no error".into())
                    },
                )
            }));
        } else if output.exists() {
            let (there, wanted, again) = (here.clone(), output.clone(), name.clone());
            trials.push(Trial::test(format!("freebsd_print::{name}"), move || {
                let found = same(
                    &parsed(&here, &fs::read(&input)?),
                    &fs::read_to_string(&output)?,
                );
                as_listed(&name, DEVIATIONS, found)
            }));
            trials.push(Trial::test(
                format!("freebsd_idempotent::{again}"),
                move || {
                    let text = fs::read_to_string(&wanted)?;
                    {
                        let list = if STABLE.contains(&&*again) {
                            &[]
                        } else {
                            DEVIATIONS
                        };
                        as_listed(&again, list, same(&parsed(&there, text.as_bytes()), &text))
                    }
                },
            ));
        } else {
            trials.push(Trial::test(format!("freebsd_accept::{name}"), move || {
                let found = parsed(&here, &fs::read(&input)?);
                if found.has_errors() {
                    Err(errors(&found).into())
                } else {
                    Ok(())
                }
            }));
        }
    }
    trials
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
