//! All checks.

use anyhow::{Context as _, Result};

use super::check::Check;
use super::{device, host, stack};

/// All checks, in the order of `--list`.
pub fn checks() -> impl Iterator<Item = &'static Check> {
    let subjects = host::CHECKS
        .iter()
        .chain(stack::CHECKS)
        .chain(device::CHECKS);
    subjects.copied().flatten()
}

/// The counter files of all checks.
pub fn counters() -> Vec<&'static str> {
    let mut counters: Vec<_> = checks().flat_map(|check| check.counters).copied().collect();
    counters.sort_unstable();
    counters.dedup();
    counters
}

/// The check with this id.
pub fn check(id: &str) -> Result<&'static Check> {
    checks().find(|check| check.id == id).with_context(|| {
        let near = near(id);
        let ids = if near.is_empty() {
            checks().map(|check| check.id).collect()
        } else {
            near
        };
        let ids = ids.join(", ");
        format!("there is no check '{id}': choose from {ids}")
    })
}

/// The ids that share a word, or the first three letters, with `id`.
fn near(id: &str) -> Vec<&'static str> {
    let is_near = |check: &str| {
        id.split(['-', '_', '.', ' '])
            .filter(|word| word.len() > 2)
            .any(|word| check.contains(word) || word.contains(check))
            || id.get(..3).is_some_and(|start| check.starts_with(start))
    };
    checks()
        .map(|check| check.id)
        .filter(|check| is_near(check))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_every_text_is_there() {
        let mut seen = Vec::new();
        for check in checks() {
            let allowed =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            assert!(check.id.bytes().all(allowed), "{}", check.id);
            assert!(!seen.contains(&check.id), "{} twice", check.id);
            for text in [check.title, check.why, check.source, check.more] {
                assert!(!text.is_empty(), "{} lacks a text", check.id);
            }
            seen.push(check.id);
        }
    }

    #[test]
    fn an_unknown_id_is_answered_with_similar_ones() {
        let found = |id| check(id).map(|it| it.id).map_err(|error| error.to_string());
        assert_eq!(found("bpf-jit"), Ok("bpf-jit"));
        let near = found("jit").expect_err("an unknown id");
        assert!(
            near.contains("bpf-jit") && !near.contains("governor"),
            "{near}"
        );
        let all = found("zz").expect_err("an unknown id");
        assert!(all.contains("governor"), "{all}");
        assert!(found("\u{e9}\u{e9}").is_err());
    }
}
