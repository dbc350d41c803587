//! The seccomp profile of a container whose runtime hands the listener to the broker (`linux.seccomp` of
//! the OCI runtime specification).

use super::filter::ARCH_NAME;
use super::rule::{Action, Condition, Rule};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value, json};

/// Where runtimes connect.
pub const OCI_SOCKET: &str = "/run/weir/broker-oci.sock";

const NOTIFY: &str = "SCMP_ACT_NOTIFY";
const ALLOW: &str = "SCMP_ACT_ALLOW";

/// A signal does not interrupt a notified call then, so that no effect happens twice.
const FLAG: &str = "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV";

/// The profile that notifies calls by these rules and allows all others, or does with them as `base`
/// says. The runtime names `tenant` to the broker, at the socket `listener`.
///
/// # Errors
///
/// When the base is no profile, has a listener of its own, or compares arguments of a notified call.
pub fn profile<'a>(
    rules: impl IntoIterator<Item = &'a Rule>,
    base: Option<Value>,
    tenant: &str,
    listener: &str,
) -> Result<Value> {
    let has_base = base.is_some();
    let base = base.unwrap_or_else(|| json!({ "defaultAction": ALLOW }));
    let Value::Object(mut profile) = base else {
        anyhow::bail!("the base is no profile: it is not an object");
    };
    ensure!(
        profile.contains_key("defaultAction"),
        "the base is no profile: it has no defaultAction"
    );
    ensure!(
        !profile.contains_key("listenerPath"),
        "the base has a listenerPath already, and a process can have one supervisor"
    );
    let rules: Vec<_> = rules.into_iter().collect();
    let mut calls = list(&mut profile, "syscalls")?;
    let mut notified = Vec::new();
    for name in names(&rules) {
        let of_call: Vec<_> = rules
            .iter()
            .copied()
            .filter(|rule| rule.name == name)
            .collect();
        let was_allowed = take_out(&mut calls, name)?;
        notified.extend(entries(&of_call, has_base, was_allowed));
    }
    notified.extend(calls);
    profile.insert("syscalls".to_owned(), notified.into());
    // A profile with archMap has the runtime choose.
    if !profile.contains_key("architectures") && !profile.contains_key("archMap") {
        profile.insert("architectures".to_owned(), json!([ARCH_NAME]));
    }
    let mut flags = list(&mut profile, "flags")?;
    if !flags.iter().any(|flag| flag == FLAG) {
        flags.push(FLAG.into());
    }
    profile.insert("flags".to_owned(), flags.into());
    profile.insert("listenerPath".to_owned(), listener.into());
    profile.insert(
        "listenerMetadata".to_owned(),
        format!("policy={tenant}").into(),
    );
    Ok(Value::Object(profile))
}

/// The names of the calls, once each.
fn names<'a>(rules: &[&'a Rule]) -> Vec<&'a str> {
    let mut names: Vec<_> = rules.iter().map(|rule| rule.name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn list(profile: &mut Map<String, Value>, key: &str) -> Result<Vec<Value>> {
    match profile.remove(key) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) => Ok(list),
        Some(_) => anyhow::bail!("the base is no profile: {key} is not an array"),
    }
}

/// Takes a call out of the base's entries, of which the widest would count; whether one allowed it.
fn take_out(calls: &mut Vec<Value>, name: &str) -> Result<bool> {
    let mut allowed = false;
    for call in calls.iter_mut() {
        let action = call
            .get("action")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let compares = call
            .get("args")
            .and_then(Value::as_array)
            .is_some_and(|args| !args.is_empty());
        let names = call.get_mut("names").and_then(Value::as_array_mut);
        let names = names.context("the base is no profile: an entry of syscalls has no names")?;
        let before = names.len();
        names.retain(|found| found != name);
        if names.len() < before {
            ensure!(
                !compares,
                "the base compares arguments of {name}, which is notified, and one filter cannot do both: in a copy of the base put one entry that allows {name} in place of its entries for it"
            );
            allowed |= action == ALLOW;
        }
    }
    calls.retain(|call| {
        call.get("names")
            .and_then(Value::as_array)
            .is_some_and(|names| !names.is_empty())
    });
    Ok(allowed)
}

/// The entries of one call. Over a base that does not allow calls by default, those that a rule leaves
/// to the kernel are allowed by an entry of their own where a condition can say so; else all are
/// notified, and the broker leaves those to the kernel.
fn entries(rules: &[&Rule], has_base: bool, was_allowed: bool) -> Vec<Value> {
    let Some(first) = rules.first() else {
        return Vec::new();
    };
    if let Action::Fail(errno) = first.action {
        let errno = errno.raw_os_error();
        return vec![
            json!({ "names": [first.name], "action": "SCMP_ACT_ERRNO", "errnoRet": errno }),
        ];
    }
    let entry =
        |action, args: Vec<Value>| json!({ "names": [first.name], "action": action, "args": args });
    if rules.iter().any(|rule| rule.conditions.is_empty()) {
        return vec![entry(NOTIFY, Vec::new())];
    }
    let notified = rules.iter().map(|rule| {
        let args = rule.conditions.iter().map(compare).collect();
        entry(NOTIFY, args)
    });
    if !(has_base && was_allowed) {
        return notified.collect();
    }
    let others = match rules {
        [
            Rule {
                conditions: [condition],
                ..
            },
        ] => negate(condition),
        _ => None,
    };
    match others {
        Some(others) => notified.chain([entry(ALLOW, vec![others])]).collect(),
        None => vec![entry(NOTIFY, Vec::new())],
    }
}

fn compare(condition: &Condition) -> Value {
    match condition {
        Condition::Masked {
            argument,
            mask,
            value,
        } => {
            json!({ "index": argument, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ" })
        }
        Condition::AtLeast { argument, value } => {
            json!({ "index": argument, "value": value, "op": "SCMP_CMP_GE" })
        }
    }
}

/// The negation of a condition. Of an int all bits are compared here: a caller who sets upper ones
/// is not supervised, and has the kernel's answer.
fn negate(condition: &Condition) -> Option<Value> {
    match condition {
        Condition::Masked {
            argument,
            mask: u32::MAX,
            value,
        } => Some(json!({ "index": argument, "value": value, "op": "SCMP_CMP_NE" })),
        Condition::Masked { .. } => None,
        Condition::AtLeast { argument, value } => {
            Some(json!({ "index": argument, "value": value, "op": "SCMP_CMP_LT" }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: [Rule; 5] = [
        Rule::when(1, "sendto", &[Condition::at_least(2, 32)]),
        Rule::when(2, "mknod", &[Condition::bits(1, 0o170_000, 0o20_000)]),
        Rule::always(3, "mount"),
        Rule::fails(5, "fsopen", rustix::io::Errno::NOSYS),
        Rule::when(4, "ioctl", &[Condition::int(1, 7)]),
    ];

    fn entry<'a>(profile: &'a Value, name: &str) -> Vec<&'a Value> {
        let calls = profile["syscalls"].as_array().expect("a list");
        let has = |call: &&Value| {
            call["names"]
                .as_array()
                .expect("names")
                .contains(&name.into())
        };
        calls.iter().filter(has).collect()
    }

    #[test]
    fn without_a_base_all_else_is_allowed() {
        let profile = profile(&RULES, None, "web", OCI_SOCKET).expect("a profile");
        assert_eq!(profile["defaultAction"], ALLOW);
        assert_eq!(profile["listenerPath"], OCI_SOCKET);
        assert_eq!(profile["listenerMetadata"], "policy=web");
        assert_eq!(profile["flags"], json!([FLAG]));
        let sendto = json!({ "names": ["sendto"], "action": NOTIFY, "args": [{ "index": 2, "value": 32, "op": "SCMP_CMP_GE" }] });
        assert_eq!(entry(&profile, "sendto"), [&sendto]);
        let args = json!([{ "index": 1, "value": 0o170_000, "valueTwo": 0o20_000, "op": "SCMP_CMP_MASKED_EQ" }]);
        assert_eq!(entry(&profile, "mknod")[0]["args"], args);
        assert_eq!(entry(&profile, "mount")[0]["args"], json!([]));
        let fsopen = json!({ "names": ["fsopen"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38 });
        assert_eq!(entry(&profile, "fsopen"), [&fsopen]);
    }

    #[test]
    fn what_a_base_allows_stays_allowed_or_is_notified() {
        let base = json!({
            "defaultAction": "SCMP_ACT_ERRNO",
            "flags": ["SECCOMP_FILTER_FLAG_LOG"],
            "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X32"],
            "syscalls": [
                { "names": ["read", "sendto", "mknod", "ioctl"], "action": ALLOW },
                { "names": ["mount"], "action": "SCMP_ACT_ERRNO" },
            ],
        });
        let profile = profile(&RULES, Some(base.clone()), "web", "/s").expect("a profile");
        assert_eq!(profile["architectures"], base["architectures"]);
        assert_eq!(profile["flags"], json!(["SECCOMP_FILTER_FLAG_LOG", FLAG]));
        let sendto = entry(&profile, "sendto");
        assert_eq!(
            (&sendto[0]["action"], &sendto[1]["action"]),
            (&NOTIFY.into(), &ALLOW.into())
        );
        assert_eq!(sendto[1]["args"][0]["op"], "SCMP_CMP_LT");
        assert_eq!(entry(&profile, "ioctl")[1]["args"][0]["op"], "SCMP_CMP_NE");
        let (mknod, mount) = (entry(&profile, "mknod"), entry(&profile, "mount"));
        assert_eq!((mknod.len(), &mknod[0]["args"]), (1, &json!([])));
        assert_eq!((mount.len(), &mount[0]["action"]), (1, &NOTIFY.into()));
        assert_eq!(entry(&profile, "read").len(), 1);
    }

    #[test]
    fn a_base_that_cannot_be_kept_is_refused() {
        for (base, expected) in [
            (json!([]), "not an object"),
            (json!({}), "no defaultAction"),
            (
                json!({ "defaultAction": ALLOW, "listenerPath": "/a" }),
                "one supervisor",
            ),
            (
                json!({ "defaultAction": ALLOW, "syscalls": 1 }),
                "not an array",
            ),
            (
                json!({ "defaultAction": ALLOW, "syscalls": [{}] }),
                "no names",
            ),
            (
                json!({ "defaultAction": ALLOW, "syscalls": [{ "names": ["ioctl"], "action": ALLOW, "args": [{}] }] }),
                "arguments of ioctl",
            ),
        ] {
            let error = profile(&RULES, Some(base), "web", "/s").expect_err(expected);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
