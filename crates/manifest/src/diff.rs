//! The differences between two versions of a stack, by resource and field.
//!
//! Normal forms are compared, so layout, comments and the order of documents make no difference. Redacted forms are
//! shown: a reader sees that a value of a Secret has changed, but not the values.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;

use crate::redact::{HIDDEN, redacted};
use crate::{Key, Object};

/// One resource that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    pub key: Key,
    pub change: Change,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    Added,
    Removed,
    Changed(Vec<FieldChange>),
}

/// One field that differs. A value is `None` where the field is absent.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldChange {
    /// For example `spec.template.spec.containers[web].image`.
    pub path: String,
    pub before: Option<Value>,
    pub after: Option<Value>,
}

/// Returns all differences, ordered by key.
#[must_use]
pub fn diff(before: &[Object], after: &[Object]) -> Vec<Difference> {
    let by_key = |objects: &[Object]| -> BTreeMap<Key, Value> {
        objects.iter().map(|object| (object.identity.key(), object.body.clone())).collect()
    };
    let (before, after) = (by_key(before), by_key(after));
    let keys: BTreeSet<&Key> = before.keys().chain(after.keys()).collect();
    let mut differences = Vec::new();
    for key in keys {
        let change = match (before.get(key), after.get(key)) {
            (Some(_), None) => Change::Removed,
            (None, _) => Change::Added,
            (Some(one), Some(other)) if one == other => continue,
            (Some(one), Some(other)) => Change::Changed(fields(one, other)),
        };
        differences.push(Difference { key: key.clone(), change });
    }
    differences
}

/// A value with its redacted form.
#[derive(Clone, Copy)]
struct RedactableValue<'a> {
    real: &'a Value,
    shown: &'a Value,
}

impl<'a> RedactableValue<'a> {
    fn field(self, name: &str) -> Option<Self> {
        Some(Self { real: self.real.get(name)?, shown: self.shown.get(name).unwrap_or(&Value::Null) })
    }

    fn items(self) -> Option<Vec<Self>> {
        let (real, shown) = (self.real.as_array()?, self.shown.as_array()?);
        Some(real.iter().zip(shown).map(|(real, shown)| Self { real, shown }).collect())
    }

    /// Hidden values are compared as a whole, because their structure is secret too.
    fn is_hidden(self) -> bool {
        self.shown == HIDDEN && self.real != HIDDEN
    }
}

fn fields(before: &Value, after: &Value) -> Vec<FieldChange> {
    let (shown_before, shown_after) = (redacted(before), redacted(after));
    let mut changes = Vec::new();
    walk(
        &mut String::new(),
        Some(RedactableValue { real: before, shown: &shown_before }),
        Some(RedactableValue { real: after, shown: &shown_after }),
        &mut changes,
    );
    changes
}

fn walk(
    path: &mut String,
    before: Option<RedactableValue<'_>>,
    after: Option<RedactableValue<'_>>,
    into: &mut Vec<FieldChange>,
) {
    if before.map(|value| value.real) == after.map(|value| value.real) {
        return;
    }
    if let (Some(one), Some(other)) = (before, after)
        && !one.is_hidden()
        && !other.is_hidden()
    {
        if let (Some(fields), Some(others)) = (one.real.as_object(), other.real.as_object()) {
            let names: BTreeSet<&String> = fields.keys().chain(others.keys()).collect();
            for name in names {
                with_step(path, &step(name), |path| walk(path, one.field(name), other.field(name), into));
            }
            return;
        }
        if let (Some(items), Some(others)) = (one.items(), other.items()) {
            return lists(path, &items, &others, into);
        }
    }
    into.push(FieldChange {
        path: path.clone(),
        before: before.map(|value| value.shown.clone()),
        after: after.map(|value| value.shown.clone()),
    });
}

/// Compares named items by name, so that inserting one at the front does not make all of them differ.
fn lists(
    path: &mut String,
    before: &[RedactableValue<'_>],
    after: &[RedactableValue<'_>],
    into: &mut Vec<FieldChange>,
) {
    if let (Some(named), Some(others)) = (by_name(before), by_name(after)) {
        let names: BTreeSet<&str> = named.keys().chain(others.keys()).copied().collect();
        let count = into.len();
        for name in names {
            with_step(path, &format!("[{name}]"), |path| {
                walk(path, named.get(name).copied(), others.get(name).copied(), into);
            });
        }
        if into.len() > count {
            return;
        }
        // The same items in another order.
    }
    for at in 0..before.len().max(after.len()) {
        with_step(path, &format!("[{at}]"), |path| {
            walk(path, before.get(at).copied(), after.get(at).copied(), into);
        });
    }
}

/// Returns none unless every item has a unique name.
fn by_name<'a>(items: &[RedactableValue<'a>]) -> Option<BTreeMap<&'a str, RedactableValue<'a>>> {
    let named: BTreeMap<&str, RedactableValue<'_>> =
        items.iter().map(|item| Some((item.real.get("name")?.as_str()?, *item))).collect::<Option<_>>()?;
    (named.len() == items.len()).then_some(named)
}

fn with_step(path: &mut String, step: &str, then: impl FnOnce(&mut String)) {
    let length = path.len();
    if !path.is_empty() && !step.starts_with('[') {
        path.push('.');
    }
    path.push_str(step);
    then(path);
    path.truncate(length);
}

/// Returns the name of a field as part of a path; names with dots or slashes are put in brackets.
fn step(name: &str) -> String {
    let plain = !name.is_empty()
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_$".contains(letter));
    if plain {
        return name.to_owned();
    }
    let mut text = String::new();
    let _ = write!(text, "[{name:?}]");
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Budget, parse};

    fn objects(values: &[Value]) -> Vec<Object> {
        let text: String = values.iter().map(|value| format!("---\n{value}\n")).collect();
        parse(text.as_bytes(), &Budget::default()).unwrap().objects
    }

    fn map(name: &str, data: &Value) -> Value {
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": "n" }, "data": data })
    }

    fn paths(before: &[Value], after: &[Value]) -> Vec<String> {
        diff(&objects(before), &objects(after))
            .into_iter()
            .flat_map(|difference| match difference.change {
                Change::Added => vec![format!("+{}", difference.key.name)],
                Change::Removed => vec![format!("-{}", difference.key.name)],
                Change::Changed(fields) => fields.into_iter().map(|field| field.path).collect(),
            })
            .collect()
    }

    #[test]
    fn added_and_removed_resources_differ_and_order_does_not_matter() {
        let (one, two, three) = (map("one", &json!({})), map("two", &json!({})), map("three", &json!({})));
        assert_eq!(paths(&[one.clone(), two.clone()], &[two.clone(), one.clone()]), Vec::<String>::new());
        assert_eq!(paths(&[one, two.clone()], &[two, three]), ["-one", "+three"]);
    }

    #[test]
    fn fields_are_named_by_path() {
        let before = map("m", &json!({ "a": "1", "b.c/d": "1", "gone": "1" }));
        let after = map("m", &json!({ "a": "2", "b.c/d": "2", "new": "1" }));
        assert_eq!(paths(&[before], &[after]), ["data.a", "data[\"b.c/d\"]", "data.gone", "data.new"]);
    }

    #[test]
    fn inserting_a_container_is_one_difference() {
        let pod = |containers: Value| {
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "namespace": "n" },
                    "spec": { "containers": containers } })
        };
        let web = json!({ "name": "web", "image": "web:1" });
        let newer = json!({ "name": "web", "image": "web:2" });
        let proxy = json!({ "name": "proxy", "image": "proxy:1" });
        let before = pod(json!([web]));
        assert_eq!(
            paths(std::slice::from_ref(&before), &[pod(json!([proxy, web]))]),
            ["spec.containers[proxy]"]
        );
        assert_eq!(paths(&[before], &[pod(json!([newer]))]), ["spec.containers[web].image"]);
        let reordered = paths(&[pod(json!([proxy, web]))], &[pod(json!([web, proxy]))]);
        assert!(!reordered.is_empty(), "another order is a difference");
    }

    #[test]
    fn a_changed_secret_is_listed_without_its_values() {
        let secret = |value: &str| {
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s", "namespace": "n" },
                    "stringData": { "password": value, "same": "x" } })
        };
        let differences = diff(&objects(&[secret("hunter2")]), &objects(&[secret("hunter3")]));
        let Change::Changed(fields) = &differences[0].change else { panic!("{differences:?}") };
        assert_eq!(fields.len(), 1, "{fields:?}");
        assert_eq!((fields[0].path.as_str(), &fields[0].after), ("data.password", &Some(json!(HIDDEN))));
        let text = format!("{differences:?}");
        assert!(!text.contains("hunter") && !text.contains("aHVudGVy"), "{text}");
    }
}
