//! Fields that a manifest yields to other field managers: set when the object is created, and not changed afterwards.
//!
//! `brokkr.io/yield: spec.replicas` on a Deployment leaves that field to an autoscaler. Paths are separated by commas.
//!
//! | part of a path                  | what it selects                                        |
//! |---------------------------------|--------------------------------------------------------|
//! | `spec.replicas`                 | fields                                                 |
//! | `containers[name=app]`          | the item of a list with these values of its keys       |
//! | `annotations[example.com/*]`    | keys of a map, at the end of a path; `*` is any text   |

use std::fmt;

use serde_json::Value;

use crate::error::Problem;

/// The annotation that names the yielded fields.
pub const YIELD: &str = "brokkr.io/yield";

/// Brokkr's own labels and annotations, which are never yielded.
const OWN: &str = "brokkr.io/";

const RULE: &str = "a comma-separated list of field paths such as `spec.replicas`, `containers[name=app].image` below a \
                    list, or `metadata.annotations[example.com/*]`; outside apiVersion, kind, status and other metadata";
const SECRET: &str = "absent on a Secret, because Brokkr does not read the data of live Secrets";

/// The path of yielded fields, such as `spec.replicas`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath(Vec<PathStep>);

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathStep {
    Field(String),
    /// The item of a list with these fields.
    Item(Vec<(String, String)>),
    /// The keys of a map that match this pattern. Only at the end.
    Keys(String),
}

impl FieldPath {
    /// Returns the steps from the root to the field; never empty.
    #[must_use]
    pub fn steps(&self) -> &[PathStep] {
        &self.0
    }

    /// Returns whether it covers a field as the API server names it in a conflict, such as
    /// `.spec.template.spec.containers[name="app"].image`.
    #[must_use]
    pub fn covers(&self, field: &str) -> bool {
        let field = field.replace('"', "");
        let mut rest = field.as_str();
        for step in &self.0 {
            let after = match step {
                PathStep::Field(name) => {
                    rest.strip_prefix('.').and_then(|rest| rest.strip_prefix(name.as_str()))
                }
                PathStep::Item(keys) => {
                    rest.strip_prefix('[').and_then(|rest| rest.split_once(']')).and_then(|(found, after)| {
                        let has = |(key, value): &(String, String)| {
                            found.split(',').any(|pair| pair == format!("{key}={value}"))
                        };
                        keys.iter().all(has).then_some(after)
                    })
                }
                PathStep::Keys(pattern) => {
                    return rest.strip_prefix('.').is_some_and(|key| matches_pattern(pattern, key));
                }
            };
            match after {
                Some(after) if after.is_empty() || after.starts_with(['.', '[']) => rest = after,
                _ => return false,
            }
        }
        true
    }
}

impl PathStep {
    /// Returns whether a list item is selected. A field that it does not set has a default, such as the protocol of a port.
    #[must_use]
    pub fn is_item(&self, item: &Value) -> bool {
        let Self::Item(keys) = self else { return false };
        let has = |(key, value): &(String, String)| item.get(key).map(|found| is_text(found, value));
        let found: Vec<Option<bool>> = keys.iter().map(has).collect();
        !found.contains(&Some(false)) && found.contains(&Some(true))
    }

    /// Returns whether a key of a map is selected.
    #[must_use]
    pub fn is_key(&self, key: &str) -> bool {
        matches!(self, Self::Keys(pattern) if matches_pattern(pattern, key) && !key.starts_with(OWN))
    }
}

fn is_text(value: &Value, text: &str) -> bool {
    value.as_str().map_or_else(|| format!("{value}") == text, |found| found == text)
}

/// `*` stands for any text, also for none.
fn matches_pattern(pattern: &str, key: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == key };
    let Some(mut key) = key.strip_prefix(first) else { return false };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return key.ends_with(part);
        }
        match key.find(part) {
            Some(at) => key = &key[at + part.len()..],
            None => return false,
        }
    }
    true
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            match step {
                PathStep::Field(name) if at == 0 => f.write_str(name)?,
                PathStep::Field(name) => write!(f, ".{name}")?,
                PathStep::Item(keys) => {
                    let pairs: Vec<String> =
                        keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
                    write!(f, "[{}]", pairs.join(","))?;
                }
                PathStep::Keys(pattern) => write!(f, "[{pattern}]")?,
            }
        }
        Ok(())
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
    let is_valid = |path: &FieldPath| is_allowed(path) && is_in(path, body);
    split(list).map(|path| parsed(path.trim()).filter(is_valid).ok_or(RULE)).collect()
}

/// Splits at commas outside brackets.
fn split(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    list.split(move |character| {
        match character {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ',' && depth == 0
    })
}

fn parsed(path: &str) -> Option<FieldPath> {
    let (mut steps, mut rest) = (Vec::new(), path);
    loop {
        let (name, after) = rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len()));
        steps.push(PathStep::Field(is_name(name).then(|| name.to_owned())?));
        rest = after;
        if let Some(inside) = rest.strip_prefix('[') {
            let (inside, after) = inside.split_once(']')?;
            steps.push(bracket(inside)?);
            rest = after;
            if rest.is_empty() {
                return Some(FieldPath(steps));
            }
            if matches!(steps.last(), Some(PathStep::Keys(_))) {
                return None;
            }
        }
        if rest.is_empty() {
            return Some(FieldPath(steps));
        }
        rest = rest.strip_prefix('.')?;
    }
}

fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_'))
}

/// Parses `name=app` or a pattern of keys.
fn bracket(inside: &str) -> Option<PathStep> {
    if !inside.contains('=') {
        let is_pattern = !inside.is_empty()
            && inside.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_./*".contains(letter));
        return (is_pattern && !inside.starts_with(OWN)).then(|| PathStep::Keys(inside.to_owned()));
    }
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=')?;
        let is_value = !value.is_empty() && !value.contains(['"', '[', '=']);
        (is_name(key) && is_value).then(|| (key.to_owned(), value.to_owned()))
    };
    inside.split(',').map(pair).collect::<Option<Vec<_>>>().map(PathStep::Item)
}

fn is_allowed(path: &FieldPath) -> bool {
    let PathStep::Field(root) = &path.0[0] else { return false };
    let is_map_of_metadata = matches!(&path.0[1..],
        [PathStep::Field(map), PathStep::Keys(_)] if matches!(map.as_str(), "annotations" | "labels"));
    // An item is found by its key, so the key itself cannot be yielded.
    let is_key = path.0.windows(2).any(|pair| match pair {
        [PathStep::Item(keys), PathStep::Field(name)] => keys.iter().any(|(key, _)| key == name),
        _ => false,
    });
    match root.as_str() {
        "apiVersion" | "kind" | "status" => false,
        "metadata" => is_map_of_metadata,
        _ => !is_key,
    }
}

/// Returns whether the path fits the manifest. Fields that it does not contain may exist in the live object.
fn is_in(path: &FieldPath, body: &Value) -> bool {
    let mut value = Some(body);
    for step in &path.0 {
        value = match (step, value) {
            (_, None) => None,
            (PathStep::Field(name), Some(Value::Object(fields))) => fields.get(name),
            (PathStep::Item(_), Some(Value::Array(items))) => items.iter().find(|item| step.is_item(item)),
            (PathStep::Keys(_), Some(Value::Object(_))) => None,
            _ => return false,
        };
    }
    true
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

    fn body(list: &str) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"annotations": {YIELD: list}},
            "spec": {"replicas": 2, "template": {"spec": {"containers": [
                {"name": "app", "ports": [{"containerPort": 80}]}]}}},
        })
    }

    fn read(list: &str) -> Result<Vec<String>, &'static str> {
        paths(&body(list)).map(|paths| paths.iter().map(ToString::to_string).collect())
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
    fn paths_lead_to_items_of_lists_and_to_keys_of_maps() {
        for path in [
            "spec.template.spec.containers[name=app].image",
            "spec.template.spec.containers[name=app].ports[containerPort=80,protocol=TCP].hostPort",
            "spec.template.spec.containers[name=sidecar]",
            "metadata.annotations[example.com/*]",
            "metadata.labels[team]",
            "spec.template.metadata.annotations[kubectl.kubernetes.io/restartedAt]",
        ] {
            assert_eq!(read(path).unwrap(), [path]);
            assert_eq!(read(&format!("{path},spec.replicas")).unwrap(), [path, "spec.replicas"]);
        }
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
            "spec.template.spec.containers[name=app].name",
            "spec.template.spec.containers[name=].image",
            "spec.template.spec[name=app].image",
            "spec.template.spec.containers[name=app",
            "spec.replicas.count",
            "metadata.labels.app",
            "metadata.annotations",
            "metadata.annotations[brokkr.io/*]",
            "metadata.ownerReferences[uid=1].name",
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

    #[test]
    fn patterns_match_keys_but_never_those_of_brokkr() {
        let is_key = |pattern: &str, key: &str| PathStep::Keys(pattern.into()).is_key(key);
        assert!(
            is_key("example.com/*", "example.com/a") && is_key("*/a", "example.com/a") && is_key("*", "a")
        );
        assert!(is_key("a*c*e", "abcde") && is_key("a", "a"));
        assert!(!is_key("example.com/*", "example.org/a") && !is_key("a*c*e", "abde") && !is_key("a", "ab"));
        assert!(!is_key("*", "brokkr.io/stack-id"));
    }

    #[test]
    fn a_path_covers_the_fields_that_the_api_server_names() {
        let covers = |path: &str, field: &str| {
            let paths = paths(&body(path)).unwrap();
            paths[0].covers(field)
        };
        assert!(covers("spec.replicas", ".spec.replicas") && covers("spec.strategy", ".spec.strategy.type"));
        assert!(!covers("spec.replicas", ".spec.replicasets"));
        let image = "spec.template.spec.containers[name=app].image";
        assert!(covers(image, r#".spec.template.spec.containers[name="app"].image"#));
        assert!(!covers(image, r#".spec.template.spec.containers[name="other"].image"#));
        assert!(covers("metadata.annotations[example.com/*]", ".metadata.annotations.example.com/a"));
        assert!(!covers("metadata.annotations[example.com/*]", ".metadata.annotations.example.org/a"));
    }
}
