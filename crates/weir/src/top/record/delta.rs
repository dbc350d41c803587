//! The difference of two JSON values, in the manner of JSON Merge Patch (RFC 7386).
//!
//! In an object only the members that changed are listed, and `null` removes one; so values with `null` in them
//! have none before ([`without_nulls`]). An array of values that changed is an object too: its new length as the
//! member `#`, and the elements that changed by their number.

use serde_json::{Map, Value};

/// The member of an array's difference that has its length.
const LENGTH: &str = "#";

/// Removes the members of objects that are `null`: those of an `Option` are read as none without it.
pub fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(without_nulls);
        }
        Value::Array(elements) => elements.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

/// The patch from `old` to `new`; none if they are equal. `old` and `new` are of one type of ours: an array in one is
/// an array in the other, or the whole array is listed as an object of elements.
pub fn between(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    Some(match (old, new) {
        (Value::Object(old), Value::Object(new)) => of_objects(old, new),
        (Value::Array(old), Value::Array(new)) => of_arrays(old, new),
        _ => new.clone(),
    })
}

fn of_objects(old: &Map<String, Value>, new: &Map<String, Value>) -> Value {
    let gone = old.keys().filter(|name| !new.contains_key(*name));
    let mut patch: Map<_, _> = gone.map(|name| (name.clone(), Value::Null)).collect();
    for (name, value) in new {
        let changed = match old.get(name) {
            Some(old) => between(old, value),
            None => Some(value.clone()),
        };
        patch.extend(changed.map(|value| (name.clone(), value)));
    }
    Value::Object(patch)
}

fn of_arrays(old: &[Value], new: &[Value]) -> Value {
    let mut patch = Map::new();
    patch.insert(LENGTH.into(), new.len().into());
    for (at, value) in new.iter().enumerate() {
        let changed = match old.get(at) {
            Some(old) => between(old, value),
            None => Some(value.clone()),
        };
        patch.extend(changed.map(|value| (at.to_string(), value)));
    }
    Value::Object(patch)
}

/// Applies a difference; false if it does not fit to the value.
#[must_use]
pub fn apply(value: &mut Value, patch: Value) -> bool {
    match (value, patch) {
        (Value::Object(members), Value::Object(patch)) => patch.into_iter().all(|(name, patch)| {
            if patch.is_null() {
                return members.remove(&name).is_some();
            }
            match members.get_mut(&name) {
                Some(member) => apply(member, patch),
                None => members.insert(name, patch).is_none(),
            }
        }),
        (Value::Array(elements), Value::Object(patch)) => apply_to_array(elements, patch),
        (value, patch) => {
            *value = patch;
            true
        }
    }
}

fn apply_to_array(elements: &mut Vec<Value>, mut patch: Map<String, Value>) -> bool {
    let length = patch.remove(LENGTH).and_then(|length| length.as_u64());
    let Some(length) = length.and_then(|length| usize::try_from(length).ok()) else {
        return false;
    };
    // Every new element is listed, so that a wrong length makes no huge array.
    if length > elements.len() + patch.len() {
        return false;
    }
    elements.resize(length, Value::Null);
    patch.into_iter().all(|(at, patch)| {
        let element = at.parse::<usize>().ok().and_then(|at| elements.get_mut(at));
        element.is_some_and(|element| apply(element, patch))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(old: &Value, new: &Value) {
        let Some(patch) = between(old, new) else {
            assert_eq!(old, new);
            return;
        };
        let mut value = old.clone();
        assert!(apply(&mut value, patch.clone()), "{patch}");
        assert_eq!(&value, new, "{patch}");
    }

    #[test]
    fn a_difference_leads_from_the_old_value_to_the_new_one() {
        let values = [
            json!({}),
            json!({"a": 1, "b": {"c": [1, 2, {"d": "e"}]}}),
            json!({"a": 2, "b": {"c": [1, 2, {"d": "f", "g": []}]}}),
            json!({"b": {"c": []}, "#": 5, "1": "x"}),
            json!({"b": {"c": [[1], [2, 3]]}, "#": {"#": 1}}),
            json!({"a": [0.5, -1, 18_446_744_073_709_551_615_u64], "b": true}),
        ];
        for old in &values {
            for new in &values {
                check(old, new);
            }
        }
    }

    #[test]
    fn only_what_changed_is_listed() {
        let old = json!({"a": 1, "b": [{"c": 1, "d": 2}, 7], "e": 3});
        let new = json!({"a": 1, "b": [{"c": 1, "d": 3}, 7]});
        let patch = between(&old, &new);
        assert_eq!(
            patch,
            Some(json!({"b": {"#": 2, "0": {"d": 3}}, "e": null}))
        );
    }

    #[test]
    fn a_difference_that_does_not_fit_is_refused() {
        for (value, patch) in [
            (json!([1]), json!({"#": 1_000_000_000})),
            (json!([1]), json!({"0": 2})),
            (json!([1]), json!({"#": 1, "5": 2})),
            (json!([1]), json!({"#": 1, "x": 2})),
            (json!({}), json!({"a": null})),
        ] {
            let mut value = value;
            assert!(!apply(&mut value, patch.clone()), "{patch}");
        }
    }

    #[test]
    fn nulls_of_options_are_left_out() {
        let mut value = json!({"a": null, "b": [{"c": null, "d": 1}]});
        without_nulls(&mut value);
        assert_eq!(value, json!({"b": [{"d": 1}]}));
    }
}
