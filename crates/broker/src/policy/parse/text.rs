//! The whole text.

use super::super::Policy;
use super::super::diagnostic::{Diagnostic, Diagnostics};
use super::super::names::Names;
use super::conflicts;
use super::section::{Section, Value};
use super::tenant::{self, Placed};
use toml::de::{DeTable, DeValue};

/// Most bytes of a policy.
pub const MOST_BYTES: usize = 1 << 20;

/// Most tenants of a policy.
const MOST_TENANTS: usize = 4096;

/// A text that was read: a policy, or its faults.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    /// The policy, or every fault, in the order of the text.
    pub policy: Result<Policy, Vec<Diagnostic>>,
    /// Notes on settings that are allowed, and worth a second look.
    pub notes: Vec<Diagnostic>,
}

impl Policy {
    /// Reads the text of a policy; `names` are the users and groups that it may name.
    pub fn check(text: &[u8], names: &Names) -> Checked {
        let mut out = Diagnostics::default();
        let (text, rest) = utf8(text);
        if text.len() + rest > MOST_BYTES {
            out.error(0..0, "a policy has at most 1 MiB: split it among brokers");
            return checked(Policy::default(), out, "");
        }
        if rest > 0 {
            let end = text.len()..text.len();
            out.syntax(
                end,
                "TOML is UTF-8, and this is not: save the file as UTF-8".into(),
            );
        }
        let (table, errors) = DeTable::parse_recoverable(text);
        for error in errors {
            let at = error.span().unwrap_or(text.len()..text.len());
            out.syntax(at, format!("this is no TOML: {}", error.message()));
        }
        let mut file = Section::new("the file", table.get_ref(), 0..0);
        let tenants = tenants(&mut file, names, &mut out);
        file.finish(&mut out);
        conflicts::report(&tenants, &mut out);
        let tenants = tenants.into_iter().map(|placed| placed.tenant);
        let policy = Policy {
            tenants: tenants.collect(),
        };
        checked(policy, out, text)
    }
}

fn checked(policy: Policy, out: Diagnostics, text: &str) -> Checked {
    let is_valid = out.is_valid();
    let (errors, notes) = out.finish(text);
    Checked {
        policy: if is_valid { Ok(policy) } else { Err(errors) },
        notes,
    }
}

/// The bytes that are UTF-8, and the number of those behind.
fn utf8(bytes: &[u8]) -> (&str, usize) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (text, 0),
        Err(error) => {
            let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
            let text = std::str::from_utf8(valid).unwrap_or_default();
            (text, bytes.len() - text.len())
        }
    }
}

fn tenants(file: &mut Section<'_>, names: &Names, out: &mut Diagnostics) -> Vec<Placed> {
    let Some(value) = file.get("tenant") else {
        return Vec::new();
    };
    let DeValue::Array(array) = value.get_ref() else {
        let message = "there can be several tenants: begin each with [[tenant]]";
        out.error(value.span(), message);
        return Vec::new();
    };
    if let Some(first) = array.get(MOST_TENANTS) {
        let message = format!("a policy has at most {MOST_TENANTS} tenants");
        out.error(first.span(), message);
    }
    let read = |value: &Value<'_>| tenant::read(value, names, out);
    array.iter().take(MOST_TENANTS).filter_map(read).collect()
}
