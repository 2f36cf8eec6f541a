//! The normal form of an object, which is compared, hashed and applied.
//!
//! Fields that only the server may write are dropped: sending them is useless at best, and causes a write on every
//! apply at worst. `stringData` of a Secret becomes `data`, as on the server; otherwise drift in it would be missed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value};

use crate::error::Problem;
use crate::identity::Identity;

const SERVER_FIELDS: [&str; 6] =
    ["managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink"];

/// Brings an object into its normal form, and returns the problems that prevent it.
pub fn normalise(identity: &Identity, body: &mut Value) -> Vec<Problem> {
    normalise_values(body);
    let Some(fields) = body.as_object_mut() else { return vec![] };
    fields.remove("status");
    if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
        for field in SERVER_FIELDS {
            metadata.remove(field);
        }
        if identity.namespace.is_none() {
            metadata.remove("namespace");
        }
    }
    if is_secret(&identity.group, &identity.kind) { encode_secret(fields) } else { vec![] }
}

/// Returns whether the kind holds secret values.
pub(crate) fn is_secret(group: &str, kind: &str) -> bool {
    group.is_empty() && kind == "Secret"
}

/// At every depth, writes numbers as Go does (`1.0` is `1`), and removes the null `creationTimestamp` that
/// `kubectl create --dry-run` leaves in templates.
fn normalise_values(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::Object(metadata)) = fields.get_mut("metadata")
                && metadata.get("creationTimestamp").is_some_and(Value::is_null)
            {
                metadata.remove("creationTimestamp");
            }
            fields.values_mut().for_each(normalise_values);
        }
        Value::Array(items) => items.iter_mut().for_each(normalise_values),
        Value::Number(number) => {
            if let Some(integer) = to_integer(number) {
                *number = integer;
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn to_integer(number: &Number) -> Option<Number> {
    // 2^53: up to here, every integer is exactly one float.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let float = number.as_f64().filter(|_| number.is_f64())?;
    (float.fract() == 0.0 && float.abs() <= EXACT).then(|| Number::from(float as i64))
}

fn encode_secret(fields: &mut Map<String, Value>) -> Vec<Problem> {
    let mut problems = vec![];
    let plain = match fields.remove("stringData") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(plain)) => plain,
        Some(_) => return vec![Problem::NotAMapping { field: "stringData" }],
    };
    if fields.get("data").is_some_and(Value::is_null) {
        fields.remove("data");
    }
    match fields.get("data") {
        None => {}
        Some(Value::Object(data)) => {
            problems.extend(data.iter().filter_map(|(key, value)| base64_problem(key, value)));
        }
        Some(_) => return vec![Problem::NotAMapping { field: "data" }],
    }
    if plain.is_empty() {
        return problems;
    }
    let data = fields.entry("data").or_insert_with(|| Value::Object(Map::new()));
    for (key, value) in plain {
        let text = match &value {
            Value::String(text) => text.as_str(),
            Value::Null => "",
            _ => {
                problems.push(Problem::NotText { field: format!("stringData[{key}]") });
                continue;
            }
        };
        data[key] = Value::String(STANDARD.encode(text));
    }
    problems
}

/// Checks that a value is base64. The API server checks it too, but only after other objects have been applied.
fn base64_problem(key: &str, value: &Value) -> Option<Problem> {
    let valid = match value {
        Value::Null => true,
        // Go's decoder skips line breaks, which block scalars contain.
        Value::String(text) => STANDARD.decode(text.replace(['\r', '\n'], "")).is_ok(),
        _ => false,
    };
    (!valid).then(|| Problem::Malformed {
        field: format!("data[{key}]"),
        rule: "base64; to write it as plain text, use stringData",
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn normal(mut body: Value) -> Value {
        let identity = crate::shape::identify(&body).unwrap();
        assert_eq!(normalise(&identity, &mut body), []);
        body
    }

    #[test]
    fn server_fields_are_dropped() {
        let body = normal(json!({
            "apiVersion": "v1", "kind": "Pod", "status": { "phase": "Running" },
            "metadata": {
                "name": "web", "namespace": "", "uid": "1", "resourceVersion": "2", "generation": 3,
                "creationTimestamp": null, "selfLink": "/", "managedFields": [], "labels": { "app": "web" },
            },
            "spec": { "template": { "metadata": { "creationTimestamp": null, "name": "x" } }, "weight": 2.0, "half": 0.5 },
        }));
        assert_eq!(
            body,
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": { "name": "web", "labels": { "app": "web" } },
                "spec": { "template": { "metadata": { "name": "x" } }, "weight": 2, "half": 0.5 },
            })
        );
    }

    #[test]
    fn string_data_overrides_data_as_on_the_server() {
        let body = normal(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" },
            "data": { "a": "YQ==", "b": "Yg==\n" }, "stringData": { "b": "new", "c": "é" },
        }));
        assert_eq!(body["data"], json!({ "a": "YQ==", "b": "bmV3", "c": "w6k=" }));
        assert_eq!(body.get("stringData"), None);
    }

    #[test]
    fn a_secret_that_is_not_base64_is_named_but_never_quoted() {
        let mut body = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" },
            "data": { "password": "hunter2!" }, "stringData": { "pin": 1234 },
        });
        let identity = crate::shape::identify(&body).unwrap();
        let problems = normalise(&identity, &mut body);
        let messages: Vec<_> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            messages,
            [
                "data[password] must be base64; to write it as plain text, use stringData",
                "stringData[pin] must be text; put quotes around the value",
            ]
        );
    }
}
