//! Verdicts of rule sets with anchors, `quick` and `once` (`pf_policy`): a ping each, and for
//! `once` two.

use std::fs;
use std::path::Path;

use pf_filter::eval::Engine;
use pf_filter::host::Host;
use pf_filter::packet::Packet;

use super::{Failed, list, read_openbsd, without_errors};

/// The rule sets and the verdicts of their pings.
pub fn cases(makefile: &str) -> Vec<(String, Vec<bool>)> {
    let makefile = makefile.replace("\\\n", " ").replace('\t', " ");
    let names = |list_name: &str| list(&makefile.replace(" =", "="), list_name);
    let of = |list_name: &str, verdicts: &[bool]| {
        names(list_name)
            .into_iter()
            .map(|name| (name, verdicts.to_vec()))
            .collect::<Vec<_>>()
    };
    [
        of("TESTS_PASS", &[true]),
        of("TESTS_BLOCK", &[false]),
        of("TESTS_ONCE", &[true, false]),
    ]
    .concat()
}

pub fn verdicts(directory: &Path, name: &str, wanted: &[bool]) -> Result<(), Failed> {
    let parsed = read_openbsd(
        directory,
        &fs::read(directory.join(format!("{name}.conf")))?,
        &[],
    );
    without_errors(&parsed)?;
    let host = Host::default();
    let mut engine = Engine::new(&parsed.ruleset, &host);
    for (number, &wanted) in wanted.iter().enumerate() {
        let words = format!(
            "out on em0 proto icmp from 192.0.2.1 to 192.0.2.9 icmp-type echoreq id {}",
            number + 1
        );
        let packet = Packet::parse(&words, &host).map_err(|error| error.to_string())?;
        let decision = engine.run(&packet);
        if decision.verdict.is_pass() != wanted {
            return Err(format!(
                "ping {}: {:?}, {:?}",
                number + 1,
                decision.verdict,
                decision.cause
            )
            .into());
        }
    }
    Ok(())
}
