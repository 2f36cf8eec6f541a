//! Selects the Pods of a workload with a query to the API server.

use brokkr_manifest::Key;
use serde_json::Value;

use crate::resource::Kind;

/// Returns the query that selects the Pods of this workload; none for kinds without Pods.
pub(super) fn pods_of(kind: &Kind, key: &Key, body: &Value) -> Option<String> {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("apps", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet") => {
            Some(query("labelSelector", &labels(&body["spec"]["selector"])?))
        }
        ("", "ReplicationController") => {
            Some(query("labelSelector", &equalities(body["spec"]["selector"].as_object()?)))
        }
        // The API server generates the selector of a Job; its controller sets this label.
        ("batch", "Job") => Some(query("labelSelector", &format!("job-name={}", key.name))),
        ("", "Pod") => Some(query("fieldSelector", &format!("metadata.name={}", key.name))),
        _ => None,
    }
}

pub(super) fn events_of(name: &str) -> String {
    query("fieldSelector", &format!("involvedObject.name={name}"))
}

/// Returns none for a selector without requirements, which would select every Pod of the namespace.
fn labels(selector: &Value) -> Option<String> {
    let mut requirements = Vec::new();
    if let Some(labels) = selector.get("matchLabels").and_then(Value::as_object) {
        requirements.push(equalities(labels));
    }
    for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
        let name = expression["key"].as_str()?;
        let values: Vec<&str> =
            expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        requirements.push(match expression["operator"].as_str()? {
            "In" => format!("{name} in ({})", values.join(",")),
            "NotIn" => format!("{name} notin ({})", values.join(",")),
            "Exists" => name.to_owned(),
            "DoesNotExist" => format!("!{name}"),
            _ => return None,
        });
    }
    requirements.retain(|requirement| !requirement.is_empty());
    (!requirements.is_empty()).then(|| requirements.join(","))
}

fn equalities(labels: &serde_json::Map<String, Value>) -> String {
    let pairs = labels.iter().map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()));
    pairs.collect::<Vec<_>>().join(",")
}

/// Returns the parameter percent-encoded, because selectors contain `=`, `,`, spaces and parentheses.
fn query(parameter: &str, value: &str) -> String {
    let mut encoded = format!("{parameter}=");
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}
