//! What differs between two versions of a stack, resource by resource and field by field.
//!
//! Compared is the normal form, so layout, comments and the order of documents are no difference. Shown is the
//! redacted form: that a value of a Secret changed can be seen, what it was and is cannot.

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

/// One field that differs; none where it is not there.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldChange {
    /// As people write it: `spec.template.spec.containers[web].image`.
    pub path: String,
    pub before: Option<Value>,
    pub after: Option<Value>,
}

/// Every difference, in the order of keys. Equal contents have none.
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

/// A value as it is, beside what may be shown of it.
#[derive(Clone, Copy)]
struct Seen<'a> {
    real: &'a Value,
    shown: &'a Value,
}

impl<'a> Seen<'a> {
    fn field(self, name: &str) -> Option<Self> {
        Some(Self { real: self.real.get(name)?, shown: self.shown.get(name).unwrap_or(&Value::Null) })
    }

    fn items(self) -> Option<Vec<Self>> {
        let (real, shown) = (self.real.as_array()?, self.shown.as_array()?);
        Some(real.iter().zip(shown).map(|(real, shown)| Self { real, shown }).collect())
    }

    /// Below a hidden value nothing is looked at: how it is built is part of the secret.
    fn is_hidden(self) -> bool {
        self.shown == HIDDEN && self.real != HIDDEN
    }
}

fn fields(before: &Value, after: &Value) -> Vec<FieldChange> {
    let (shown_before, shown_after) = (redacted(before), redacted(after));
    let mut changes = Vec::new();
    walk(
        &mut String::new(),
        Some(Seen { real: before, shown: &shown_before }),
        Some(Seen { real: after, shown: &shown_after }),
        &mut changes,
    );
    changes
}

fn walk(path: &mut String, before: Option<Seen<'_>>, after: Option<Seen<'_>>, into: &mut Vec<FieldChange>) {
    if before.map(|seen| seen.real) == after.map(|seen| seen.real) {
        return;
    }
    if let (Some(one), Some(other)) = (before, after)
        && !one.is_hidden()
        && !other.is_hidden()
    {
        if let (Some(fields), Some(others)) = (one.real.as_object(), other.real.as_object()) {
            let names: BTreeSet<&String> = fields.keys().chain(others.keys()).collect();
            for name in names {
                below(path, &step(name), |path| walk(path, one.field(name), other.field(name), into));
            }
            return;
        }
        if let (Some(items), Some(others)) = (one.items(), other.items()) {
            return lists(path, &items, &others, into);
        }
    }
    into.push(FieldChange {
        path: path.clone(),
        before: before.map(|seen| seen.shown.clone()),
        after: after.map(|seen| seen.shown.clone()),
    });
}

/// Items with names are compared by name, so that one more at the front does not make all of them differ.
fn lists(path: &mut String, before: &[Seen<'_>], after: &[Seen<'_>], into: &mut Vec<FieldChange>) {
    if let (Some(named), Some(others)) = (by_name(before), by_name(after)) {
        let names: BTreeSet<&str> = named.keys().chain(others.keys()).copied().collect();
        let many = into.len();
        for name in names {
            below(path, &format!("[{name}]"), |path| {
                walk(path, named.get(name).copied(), others.get(name).copied(), into);
            });
        }
        if into.len() > many {
            return;
        }
        // The same items in another order.
    }
    for at in 0..before.len().max(after.len()) {
        below(path, &format!("[{at}]"), |path| {
            walk(path, before.get(at).copied(), after.get(at).copied(), into);
        });
    }
}

/// None unless every item has a name of its own.
fn by_name<'a>(items: &[Seen<'a>]) -> Option<BTreeMap<&'a str, Seen<'a>>> {
    let named: BTreeMap<&str, Seen<'_>> =
        items.iter().map(|item| Some((item.real.get("name")?.as_str()?, *item))).collect::<Option<_>>()?;
    (named.len() == items.len()).then_some(named)
}

fn below(path: &mut String, step: &str, then: impl FnOnce(&mut String)) {
    let length = path.len();
    if !path.is_empty() && !step.starts_with('[') {
        path.push('.');
    }
    path.push_str(step);
    then(path);
    path.truncate(length);
}

/// Names with dots or slashes in them are put in brackets.
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
    fn resources_come_and_go_and_order_is_no_difference() {
        let (one, two, three) = (map("one", &json!({})), map("two", &json!({})), map("three", &json!({})));
        assert_eq!(paths(&[one.clone(), two.clone()], &[two.clone(), one.clone()]), Vec::<String>::new());
        assert_eq!(paths(&[one, two.clone()], &[two, three]), ["-one", "+three"]);
    }

    #[test]
    fn fields_are_named_as_people_write_them() {
        let before = map("m", &json!({ "a": "1", "b.c/d": "1", "gone": "1" }));
        let after = map("m", &json!({ "a": "2", "b.c/d": "2", "new": "1" }));
        assert_eq!(paths(&[before], &[after]), ["data.a", "data[\"b.c/d\"]", "data.gone", "data.new"]);
    }

    #[test]
    fn a_container_in_front_of_another_is_one_difference() {
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
        let turned = paths(&[pod(json!([proxy, web]))], &[pod(json!([web, proxy]))]);
        assert!(!turned.is_empty(), "another order is a difference");
    }

    #[test]
    fn that_a_secret_changed_is_told_and_nothing_of_what_it_was_or_is() {
        let secret = |value: &str| {
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s", "namespace": "n" },
                    "stringData": { "password": value, "same": "x" } })
        };
        let told = diff(&objects(&[secret("hunter2")]), &objects(&[secret("hunter3")]));
        let Change::Changed(fields) = &told[0].change else { panic!("{told:?}") };
        assert_eq!(fields.len(), 1, "{fields:?}");
        assert_eq!((fields[0].path.as_str(), &fields[0].after), ("data.password", &Some(json!(HIDDEN))));
        let text = format!("{told:?}");
        assert!(!text.contains("hunter") && !text.contains("aHVudGVy"), "{text}");
    }
}
