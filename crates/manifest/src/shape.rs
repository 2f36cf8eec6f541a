//! Checks that a value is a Kubernetes object, and returns its identity.
//!
//! Checks only what Brokkr relies on: an identity that fits into a key, a URL and an inventory, and labels and annotations
//! that are strings. The API server checks the schema.

use serde_json::{Map, Value};

use crate::error::Problem;
use crate::identity::Identity;

/// Returns whether the value is a `List`, or a typed list such as `ConfigMapList`. Unlike a list, a custom resource with
/// a kind that ends in "List" has a name.
pub fn is_list(value: &Value) -> bool {
    let Some(kind) = value.get("kind").and_then(Value::as_str) else { return false };
    let unnamed = value.pointer("/metadata/name").is_none();
    let core = value.get("apiVersion").and_then(Value::as_str) == Some("v1");
    (kind == "List" && core && unnamed)
        || (kind.ends_with("List") && unnamed && value.get("items").is_some_and(Value::is_array))
}

/// Returns the identity of an object, or all problems with its apiVersion, kind and metadata.
pub fn identify(body: &Value) -> Result<Identity, Vec<Problem>> {
    let Some(fields) = body.as_object() else { return Err(vec![Problem::NotAnObject]) };
    let mut problems = vec![];

    let api_version = text(fields, "apiVersion", "apiVersion", &mut problems);
    let kind = text(fields, "kind", "kind", &mut problems);
    let (group, version) = api_version.map(split_api_version).unwrap_or_default();
    if api_version.is_some() && !(is_label(version) && (group.is_empty() || is_subdomain(group))) {
        problems.push(malformed(
            "apiVersion",
            "a version such as `v1`, or a group and a version such as `apps/v1`",
        ));
    }
    if kind.is_some_and(|kind| !is_kind(kind)) {
        problems.push(malformed("kind", "a word of letters and digits, such as `Deployment`"));
    }

    let empty = Map::new();
    let metadata = match fields.get("metadata") {
        Some(Value::Object(metadata)) => metadata,
        None | Some(Value::Null) => &empty,
        Some(_) => {
            problems.push(Problem::NotAMapping { field: "metadata" });
            return Err(problems);
        }
    };
    let named = metadata.get("name").is_some_and(|name| !name.is_null());
    let name = if !named && metadata.get("generateName").is_some_and(|name| !name.is_null()) {
        problems.push(Problem::GenerateName);
        None
    } else {
        text(metadata, "name", "metadata.name", &mut problems)
    };
    if name.is_some_and(|name| !is_path_segment(name)) {
        problems.push(malformed(
            "metadata.name",
            "at most 253 characters, without `/`, `%`, spaces or control characters",
        ));
    }
    let namespace = namespace(metadata, &mut problems);
    check_strings(metadata, "labels", "metadata.labels", &mut problems);
    check_strings(metadata, "annotations", "metadata.annotations", &mut problems);

    match (kind, name) {
        (Some(kind), Some(name)) if problems.is_empty() => Ok(Identity {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        }),
        _ => Err(problems),
    }
}

/// Returns a name for an object without a valid identity, for error messages.
pub fn description(body: &Value) -> Option<String> {
    let kind = body.get("kind")?.as_str().filter(|kind| is_kind(kind))?;
    let name = body.pointer("/metadata/name").and_then(Value::as_str).filter(|name| is_path_segment(name));
    Some(name.map_or_else(|| kind.to_owned(), |name| format!("{kind} {name}")))
}

fn text<'a>(
    fields: &'a Map<String, Value>,
    key: &str,
    path: &'static str,
    problems: &mut Vec<Problem>,
) -> Option<&'a str> {
    match fields.get(key) {
        Some(Value::String(text)) if !text.is_empty() => return Some(text),
        None | Some(Value::Null | Value::String(_)) => problems.push(Problem::Missing { field: path }),
        Some(_) => problems.push(Problem::NotText { field: path.to_owned() }),
    }
    None
}

fn namespace<'a>(metadata: &'a Map<String, Value>, problems: &mut Vec<Problem>) -> Option<&'a str> {
    match metadata.get("namespace")? {
        Value::Null => None,
        Value::String(namespace) if namespace.is_empty() => None,
        Value::String(namespace) => {
            if !is_label(namespace) {
                let rule =
                    "at most 63 lower-case letters, digits and `-`, and start and end with a letter or digit";
                problems.push(malformed("metadata.namespace", rule));
            }
            Some(namespace)
        }
        _ => {
            problems.push(Problem::NotText { field: "metadata.namespace".to_owned() });
            None
        }
    }
}

/// Checks that the values are strings. `version: 1.0` or `enabled: true` without quotes is the most common mistake.
fn check_strings(
    metadata: &Map<String, Value>,
    field: &'static str,
    path: &'static str,
    problems: &mut Vec<Problem>,
) {
    match metadata.get(field) {
        None | Some(Value::Null) => {}
        Some(Value::Object(entries)) => problems.extend(
            entries
                .iter()
                .filter(|(_, value)| !value.is_string() && !value.is_null())
                .map(|(name, _)| Problem::NotText { field: format!("{path}[{name}]") }),
        ),
        Some(_) => problems.push(Problem::NotAMapping { field: path }),
    }
}

fn malformed(field: &str, rule: &'static str) -> Problem {
    Problem::Malformed { field: field.to_owned(), rule }
}

fn split_api_version(api_version: &str) -> (&str, &str) {
    match api_version.split_once('/') {
        // `/v1` is not the core group: return a group that is invalid.
        Some(("", _)) => ("/", ""),
        Some((group, version)) => (group, version),
        None => ("", api_version),
    }
}

fn is_kind(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.len() <= 253
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn is_label(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
}

fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label)
}

/// Returns whether the API server accepts the text as the last part of a URL. Kinds such as Role allow more than DNS
/// names.
fn is_path_segment(text: &str) -> bool {
    !matches!(text, "" | "." | "..")
        && text.len() <= 253
        && !text.contains(|each: char| matches!(each, '/' | '%') || each.is_whitespace() || each.is_control())
}
