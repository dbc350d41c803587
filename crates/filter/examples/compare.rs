//! Compares two configurations: `compare BEFORE AFTER [regions]`, or looks which rules of one
//! decide anything: `compare FILE`. Prints times.

use std::time::Instant;

use pf_filter::analysis::{Coverage, Limits, cover_within, diff_within};
use pf_filter::host::Host;
use pf_filter::parse::{Config, Dialect, parse};
use pf_filter::rule::Ruleset;
use pf_filter::source::Memory;

fn read(path: &str, host: &Host) -> Ruleset {
    let mut files = Memory::default();
    files.add(
        path,
        std::fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}")),
    );
    let parsed = parse(
        path,
        &Config {
            dialect: Dialect::OpenBsd,
            host,
            loader: &files,
            macros: &[],
        },
    );
    for diagnostic in parsed.diagnostics.iter().take(3) {
        eprintln!("{diagnostic:?}");
    }
    parsed.ruleset
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let host = Host::default();
    let limits = Limits::default();
    let start = Instant::now();
    match &arguments[..] {
        [file] => {
            let rules = read(file, &host);
            eprintln!("parsed in {:?}", start.elapsed());
            let start = Instant::now();
            match cover_within(&rules, &host, limits) {
                Ok(cover) => {
                    let mut counts = [0; 4];
                    for rule in &cover.rules {
                        let kind = match &rule.coverage {
                            Coverage::Decides(_) => 0,
                            Coverage::EffectOnly(_) => 1,
                            Coverage::Shadowed { .. } => 2,
                            Coverage::NeverMatches(_) => 3,
                        };
                        counts[kind] += 1;
                        if cover.rules.len() < 50 {
                            println!("{} {:?}", rule.path, rule.coverage);
                        }
                    }
                    eprintln!("decide, effect, shadowed, never: {counts:?}");
                }
                Err(error) => eprintln!("{error}"),
            }
            eprintln!("cover in {:?}", start.elapsed());
        }
        [before, after, rest @ ..] => {
            let most = rest
                .first()
                .and_then(|count| count.parse().ok())
                .unwrap_or(20);
            let (before, after) = (read(before, &host), read(after, &host));
            eprintln!("parsed in {:?}", start.elapsed());
            let start = Instant::now();
            match diff_within(&before, &after, &host, limits) {
                Ok(diff) => {
                    for region in diff.regions.iter().take(most) {
                        println!(
                            "{:?} {:?}: {} -> {}",
                            region.change,
                            region.certainty,
                            region.before.outcome,
                            region.after.outcome
                        );
                        for packets in &region.packets {
                            println!("    {}", packets.text);
                        }
                        println!(
                            "    more {} size {:.3e}, as {}",
                            region.more, region.size, region.witness
                        );
                    }
                    eprintln!(
                        "{} regions, {} omitted, complete {}, attributed {}, {} nodes",
                        diff.regions.len(),
                        diff.omitted,
                        diff.complete,
                        diff.attributed,
                        diff.nodes
                    );
                }
                Err(error) => eprintln!("{error}"),
            }
            eprintln!("diff in {:?}", start.elapsed());
        }
        [] => eprintln!("usage: compare BEFORE AFTER [REGIONS] | compare FILE"),
    }
}
