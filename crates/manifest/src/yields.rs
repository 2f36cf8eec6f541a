//! Fields that a manifest yields to other field managers: set when the object is created, and not changed afterwards.
//!
//! `brokkr.io/yield: spec.replicas` on a Deployment leaves that field to an autoscaler. Paths are separated by commas. A
//! path cannot contain a list, because list items have no name.

use std::fmt;

use serde_json::Value;

use crate::error::Problem;

/// The annotation that names the yielded fields.
pub const YIELD: &str = "brokkr.io/yield";

const RULE: &str = "a comma-separated list of field paths such as `spec.replicas`, without list items, and outside \
                    apiVersion, kind, metadata and status";
const SECRET: &str = "absent on a Secret, because Brokkr does not read the data of live Secrets";

/// The path of a field, such as `spec.replicas`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath(Vec<String>);

impl FieldPath {
    /// Returns the names from the root to the field; never empty.
    pub fn names(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

/// Returns the fields that this object yields.
pub fn paths(body: &Value) -> Result<Vec<FieldPath>, &'static str> {
    let annotations = body.get("metadata").and_then(|metadata| metadata.get("annotations"));
    let Some(list) = annotations.and_then(|annotations| annotations.get(YIELD)?.as_str()) else {
        return Ok(Vec::new());
    };
    if body.get("kind").and_then(Value::as_str) == Some("Secret")
        && body.get("apiVersion").and_then(Value::as_str) == Some("v1")
    {
        return Err(SECRET);
    }
    list.split(',').map(|path| path_in(path.trim(), body).ok_or(RULE)).collect()
}

fn path_in(path: &str, body: &Value) -> Option<FieldPath> {
    let is_name = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && name.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_'))
    };
    let names: Vec<String> = path.split('.').map(str::to_owned).collect();
    let is_reserved = matches!(names[0].as_str(), "apiVersion" | "kind" | "metadata" | "status");
    if is_reserved || !names.iter().all(|name| is_name(name)) {
        return None;
    }
    // Fields that the manifest does not contain may exist in the live object.
    let mut value = Some(body);
    for name in &names {
        value = match value {
            Some(Value::Object(fields)) => fields.get(name),
            None => None,
            Some(_) => return None,
        };
    }
    Some(FieldPath(names))
}

/// Reports invalid paths, which would otherwise be ignored silently.
pub(crate) fn problem(body: &Value) -> Option<Problem> {
    let rule = paths(body).err()?;
    Some(Problem::Malformed { field: format!("metadata.annotations[{YIELD}]"), rule })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(list: &str) -> Result<Vec<String>, &'static str> {
        let body = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"annotations": {YIELD: list}},
            "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "app"}]}}},
        });
        paths(&body).map(|paths| paths.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn paths_are_separated_by_commas() {
        assert_eq!(read("spec.replicas").unwrap(), ["spec.replicas"]);
        assert_eq!(read(" spec.replicas , spec.paused ").unwrap(), ["spec.replicas", "spec.paused"]);
        assert_eq!(
            read("spec.strategy.type").unwrap(),
            ["spec.strategy.type"],
            "the manifest does not contain it"
        );
        assert_eq!(paths(&json!({"metadata": {}})).unwrap(), []);
    }

    #[test]
    fn invalid_paths_are_refused() {
        for list in [
            "",
            "spec.replicas,",
            "spec..replicas",
            ".spec.replicas",
            "spec/replicas",
            "spec.template.spec.containers.0.image",
            "spec.template.spec.containers.image",
            "spec.template.spec.containers[0].image",
            "spec.replicas.count",
            "metadata.labels.app",
            "status.replicas",
            "kind",
        ] {
            assert_eq!(read(list), Err(RULE), "{list}");
        }
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"annotations": {YIELD: "data.password"}},
        });
        assert_eq!(paths(&secret), Err(SECRET));
    }
}
