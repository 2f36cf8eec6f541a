//! The values that a path leads to.

use std::borrow::Cow;

use brokkr_api::health_rules::{FieldPath, Step};
use serde_json::Value;

use super::verdict::ObjectView;

/// Returns the value at this path; with `[*]` one for each element, so none for an empty list. An absent value and
/// null are `None`.
pub(super) fn values<'a>(object: &ObjectView<'a>, path: &FieldPath) -> Vec<Option<Cow<'a, Value>>> {
    let root = match path.root() {
        "spec" => object.spec,
        "status" => object.status,
        _ => return vec![metadata(object, path.below_root()).map(Cow::Owned)],
    };
    below(root, path.below_root()).into_iter().map(|value| value.map(Cow::Borrowed)).collect()
}

/// Returns the value at a path without `[*]`.
pub(super) fn value<'a>(object: &ObjectView<'a>, path: &FieldPath) -> Option<Cow<'a, Value>> {
    values(object, path).into_iter().next().flatten()
}

/// Returns the values below `root`, as [`values`] does.
pub(super) fn below<'a>(root: &'a Value, steps: &[Step]) -> Vec<Option<&'a Value>> {
    let mut found = vec![Some(root)];
    for step in steps {
        found = match step {
            Step::Field(name) => found.into_iter().map(|value| value?.get(name)).collect(),
            Step::Each => {
                let lists = found.into_iter().flatten().filter_map(Value::as_array);
                lists.flatten().map(Some).collect()
            }
        };
    }
    found.into_iter().map(|value| value.filter(|value| !value.is_null())).collect()
}

fn metadata(object: &ObjectView<'_>, steps: &[Step]) -> Option<Value> {
    match steps {
        [Step::Field(field)] if field == "generation" => object.generation.map(Value::from),
        [Step::Field(field), Step::Field(name)] if field == "annotations" => {
            object.annotations.get(name).map(|text| Value::from(text.as_str()))
        }
        _ => None,
    }
}

/// Returns whether two values are equal. `1` and `1.0` are.
pub(super) fn is_same(one: &Value, other: &Value) -> bool {
    one == other || one.as_f64().is_some_and(|number| other.as_f64() == Some(number))
}

/// Returns a value as it is shown in a message.
pub(super) fn shown(value: Option<&Value>) -> String {
    match value {
        None => "not set".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(_)) => "a list".to_owned(),
        Some(Value::Object(_)) => "an object".to_owned(),
        Some(value) => value.to_string(),
    }
}
