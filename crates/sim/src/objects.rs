//! Resources as in manifests: real bodies, so that the real API server accepts them too.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use brokkr_agent::model::{Body, DesiredObject};
use brokkr_agent::resource::{Kind, KindName, KindRef, Served};
use brokkr_api::ids::Checksum;
use brokkr_api::reason::Wave;
use brokkr_manifest::order::Rank;
use brokkr_manifest::{Hook, Key};
use serde_json::{Value, json};

/// The definition that stacks here contain, and the kind that it defines.
pub const DEFINITION: &str = "apiextensions.k8s.io/CustomResourceDefinition//widgets.example.com";
pub const WIDGET: &str = "Widget";
/// The version that a definition may serve besides `v1`.
pub const BETA: &str = "v1beta1";

#[must_use]
pub fn key(text: &str) -> Key {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[must_use]
pub fn namespace_key(name: &str) -> Key {
    Key { group: String::new(), kind: "Namespace".into(), namespace: None, name: name.into() }
}

#[must_use]
pub fn kind_of(key: &Key) -> Kind {
    Kind::from(Served {
        group: key.group.clone(),
        version: "v1".into(),
        kind: key.kind.clone(),
        plural: format!("{}s", key.kind.to_lowercase()),
        namespaced: key.namespace.is_some(),
    })
}

/// Returns whether this definition defines this kind.
#[must_use]
pub fn defines(definition: &Key, kind: &KindName) -> bool {
    KindRef::of(definition).is_definition()
        && definition.name == format!("{}s.{}", kind.kind.to_lowercase(), kind.group)
}

/// A resource as users write it into a manifest.
#[derive(Clone, PartialEq, Eq)]
pub struct Item {
    pub key: Key,
    pub value: u8,
    /// Whether it has one more field, which changes managedFields.
    pub wide: bool,
    pub wave: i64,
    pub keep: bool,
    /// Whether its data is immutable.
    pub immutable: bool,
    /// Whether the API server rejects it as invalid.
    pub broken: bool,
    /// Whether it may be recreated to change immutable data.
    pub replace: bool,
    /// For a custom resource: whether it is written as `v1beta1`. For a definition: whether it serves that version, too.
    pub beta: bool,
    /// Whether it is a Job that is deleted some time after it has finished.
    pub ttl: bool,
    /// The Helm hook that it is.
    pub hook: Option<Hook>,
}

/// Prints the key and the value, and the properties that differ from the default.
impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)?;
        if self.wave != 0 {
            write!(f, " wave {}", self.wave)?;
        }
        let special = [
            ("wide", self.wide),
            ("keep", self.keep),
            ("immutable", self.immutable),
            ("broken", self.broken),
            ("replace", self.replace),
            ("beta", self.beta),
            ("ttl", self.ttl),
        ];
        if let Some(hook) = self.hook {
            write!(f, " {hook:?}")?;
        }
        special.iter().filter(|(_, is)| *is).try_for_each(|(name, _)| write!(f, " {name}"))
    }
}

impl Item {
    #[must_use]
    pub fn new(text: &str, value: u8) -> Self {
        let key = key(text);
        Self {
            key,
            value,
            wide: false,
            wave: 0,
            keep: false,
            immutable: false,
            broken: false,
            replace: false,
            beta: false,
            ttl: false,
            hook: None,
        }
    }

    fn kind(&self) -> Kind {
        let kind = kind_of(&self.key);
        if !self.beta || KindName::of(&self.key).is_definition() {
            return kind;
        }
        Kind::from(Served {
            group: kind.group.clone(),
            version: BETA.into(),
            kind: kind.kind.clone(),
            plural: kind.plural.clone(),
            namespaced: kind.namespaced,
        })
    }

    #[must_use]
    pub fn body(&self) -> Value {
        let kind = self.kind();
        let mut annotations = json!({});
        if self.replace {
            annotations["brokkr.io/replace"] = json!("recreate");
        }
        if self.keep {
            annotations["brokkr.io/prune"] = json!("keep");
        }
        if self.wave != 0 {
            annotations["brokkr.io/wave"] = json!(self.wave.to_string());
        }
        let mut body = json!({
            "apiVersion": kind.api_version(),
            "kind": kind.kind,
            "metadata": {"name": self.key.name, "annotations": annotations},
        });
        let value = self.value.to_string();
        let name = KindName::of(&self.key);
        if name.is_definition() {
            body["spec"] = definition_spec(&self.key, &value, self.beta);
        } else if name.is_namespace() {
            body["metadata"]["labels"] = json!({"value": value});
        } else {
            let mut data = json!({"value": value});
            if self.wide {
                data["more"] = json!("more");
            }
            if self.broken {
                data["no key!"] = json!("the API server allows no such name");
            }
            let field = if self.key.group.ends_with("example.com") { "spec" } else { "data" };
            body[field] = data;
        }
        if self.ttl {
            body["spec"] = json!({"ttlSecondsAfterFinished": 2});
        }
        if self.immutable {
            body["immutable"] = json!(true);
        }
        body
    }

    #[must_use]
    pub fn desired(&self) -> Arc<DesiredObject> {
        let body = self.body();
        Arc::new(DesiredObject {
            kind: self.kind(),
            key: self.key.clone(),
            digest: Checksum::of(body.to_string().as_bytes()),
            binds: None,
            defines: KindName::of(&self.key).is_definition().then(|| KindName {
                group: body["spec"]["group"].as_str().unwrap_or_default().into(),
                kind: body["spec"]["names"]["kind"].as_str().unwrap_or_default().into(),
            }),
            body: Body::new(&body),
            wave: Wave::Number(self.wave),
            rank: Rank::of(&self.key.group, &self.key.kind),
            replace: self.replace,
            hook: self.hook,
        })
    }
}

fn definition_spec(key: &Key, value: &str, beta: bool) -> Value {
    let (plural, group) = key.name.split_once('.').unwrap_or((&key.name, "example.com"));
    let kind = if plural == "widgets" { WIDGET.to_owned() } else { plural.trim_end_matches('s').to_owned() };
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": {
                "type": "object", "description": value,
                "properties": {"spec": {"type": "object", "additionalProperties": {"type": "string"}}},
            }},
        })
    };
    let mut versions = vec![version("v1", true)];
    if beta {
        versions.push(version(BETA, false));
    }
    json!({
        "group": group,
        "scope": "Namespaced",
        "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
        "versions": versions,
    })
}

/// Returns the objects of a deployment object, by key.
#[must_use]
pub fn objects(items: &[Item]) -> BTreeMap<Key, Arc<DesiredObject>> {
    items.iter().map(|item| (item.key.clone(), item.desired())).collect()
}
