//! Lists the objects in a namespace, or of a definition, just before it is deleted.

use brokkr_api::reason::Reason;
use brokkr_manifest::Key;
use serde::Deserialize;

use super::classify::Status;
use super::request::{Cluster, JSON};
use crate::automatic::{is_automatic, is_openshift_marker};
use crate::model::{Failure, FailureClass, StepResult};
use crate::resource::{Kind, KindName, Served};

/// The number of objects that are named; the rest are counted.
const NAMED: usize = 3;
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    metadata: ListMetadata,
    /// The API server writes null for an empty list.
    items: Option<Vec<Item>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ListMetadata {
    r#continue: String,
}

#[derive(Deserialize)]
struct Item {
    metadata: ItemMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ItemMetadata {
    name: String,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    owner_references: Vec<serde::de::IgnoredAny>,
}

impl Cluster {
    /// Lists the objects that would be deleted with a namespace or definition.
    pub async fn list_contained(&self, key: &Key) -> StepResult {
        match foreign(self, key).await {
            Ok(foreign) => StepResult::Contained(foreign),
            Err(failure) => StepResult::Failed(failure),
        }
    }
}

/// Returns the names of the objects of others; empty if there are none. The stack's own objects are already
/// deleted, so every object counts, except those that appear in every namespace and those that have an owner.
async fn foreign(cluster: &Cluster, key: &Key) -> Result<Vec<String>, Failure> {
    let name = KindName::of(key);
    let (kinds, namespace) = if name.is_namespace() {
        (namespaced_kinds(cluster).await?, Some(key.name.as_str()))
    } else {
        (defined_kind(cluster, key).await?, None)
    };
    let mut found = Vec::new();
    for kind in &kinds {
        let items = list(cluster, kind, namespace).await?.into_iter();
        found.extend(items.filter(|item| item.owner_references.is_empty()).map(|item| (kind, item)));
    }
    let on_openshift =
        found.iter().any(|(kind, item)| is_openshift_marker(&kind.group, &kind.kind, &item.name));
    let (mut named, mut more) = (Vec::new(), 0);
    for (kind, item) in found {
        let object = (kind.group.as_str(), kind.kind.as_str(), item.name.as_str());
        if is_automatic(object, on_openshift, cluster.automatic_objects()) {
            continue;
        }
        let place = item.namespace.filter(|_| namespace.is_none());
        let label = place.map_or_else(
            || format!("{} {}", kind.kind, item.name),
            |place| format!("{} {place}/{}", kind.kind, item.name),
        );
        if named.len() < NAMED { named.push(label) } else { more += 1 }
    }
    if more > 0 {
        named.push(format!("{more} more"));
    }
    Ok(named)
}

async fn namespaced_kinds(cluster: &Cluster) -> Result<Vec<Kind>, Failure> {
    let mut kinds = Vec::new();
    for root in ["/api", "/apis"] {
        let reply = cluster.get(root, AGGREGATED).await?;
        if !reply.status.is_success() {
            return Err(unreadable(&format!("discovery at {root} returned {}", reply.status)));
        }
        let served: Groups = serde_json::from_slice(&reply.body).map_err(|error| {
            unreadable(&format!("failed to parse the discovery document of {root}: {error}"))
        })?;
        for group in served.items {
            kinds.extend(group.namespaced()?);
        }
    }
    Ok(kinds)
}

/// The groups that the API server serves. Not read with kube's discovery, which does not show that a group is
/// missing because its API server is unavailable.
#[derive(Deserialize)]
struct Groups {
    items: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    metadata: GroupMetadata,
    /// The preferred version first.
    versions: Vec<Version>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct GroupMetadata {
    name: String,
}

#[derive(Deserialize)]
struct Version {
    version: String,
    #[serde(default)]
    resources: Vec<Resource>,
    #[serde(default)]
    freshness: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    resource: String,
    scope: String,
    verbs: Vec<String>,
    response_kind: ResponseKind,
}

#[derive(Deserialize)]
struct ResponseKind {
    kind: String,
}

impl Group {
    /// Returns each namespaced resource once, in its first version.
    fn namespaced(self) -> Result<Vec<Kind>, Failure> {
        let group = self.metadata.name;
        let mut kinds: Vec<Kind> = Vec::new();
        for version in self.versions {
            if version.freshness == "Stale" {
                let what = format!("the server of {group}/{} is unavailable", version.version);
                return Err(unreadable(&format!("{what}, so its objects cannot be listed")));
            }
            for resource in version.resources {
                let listed =
                    resource.scope == "Namespaced" && resource.verbs.iter().any(|verb| verb == "list");
                if listed && kinds.iter().all(|kind| kind.plural != resource.resource) {
                    kinds.push(Kind::from(Served {
                        group: group.clone(),
                        version: version.version.clone(),
                        kind: resource.response_kind.kind,
                        plural: resource.resource,
                        namespaced: true,
                    }));
                }
            }
        }
        Ok(kinds)
    }
}

/// Returns the kind of a definition.
async fn defined_kind(cluster: &Cluster, key: &Key) -> Result<Vec<Kind>, Failure> {
    let reply = cluster.get(&definition_path(&key.name), JSON).await?;
    if reply.status == http::StatusCode::NOT_FOUND && is_status(&reply.body) {
        return Ok(Vec::new());
    }
    if !reply.status.is_success() {
        return Err(unreadable(&format!("reading {} returned {}", key.name, reply.status)));
    }
    let definition: serde_json::Value =
        serde_json::from_slice(&reply.body).map_err(|error| unreadable(&error.to_string()))?;
    let spec = &definition["spec"];
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let served = spec["versions"].as_array().into_iter().flatten().find(|version| version["served"] == true);
    let version =
        served.ok_or_else(|| unreadable("it serves no version, so its objects cannot be listed"))?;
    Ok(vec![Kind::from(Served {
        group: text(&spec["group"]),
        version: text(&version["name"]),
        kind: text(&spec["names"]["kind"]),
        plural: text(&spec["names"]["plural"]),
        namespaced: spec["scope"] == "Namespaced",
    })])
}

async fn list(cluster: &Cluster, kind: &Kind, namespace: Option<&str>) -> Result<Vec<ItemMetadata>, Failure> {
    let mut found = Vec::new();
    let mut next = String::new();
    loop {
        let path = format!("{}?limit=500{next}", kind.path(namespace, None));
        let reply = cluster.get(&path, METADATA_LIST).await?;
        match reply.status.as_u16() {
            200 => {
                let list: List = serde_json::from_slice(&reply.body)
                    .map_err(|error| unreadable(&format!("failed to parse the list of {kind}: {error}")))?;
                found.extend(list.items.into_iter().flatten().map(|item| item.metadata));
                if list.metadata.r#continue.is_empty() {
                    return Ok(found);
                }
                next = format!("&continue={}", list.metadata.r#continue);
            }
            // The server of this kind says that there is nothing to list.
            404 | 405 if is_status(&reply.body) => return Ok(found),
            code => return Err(unreadable(&format!("listing {kind} returned {code}"))),
        }
    }
}

/// Returns whether the API server itself has answered. A proxy, or the API server for a path that it does not serve, answers with
/// a plain text, which proves nothing.
fn is_status(body: &[u8]) -> bool {
    Status::parse(body).kind == "Status"
}

/// Returns the path of a definition at the API server.
pub(super) fn definition_path(name: &str) -> String {
    format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")
}

/// A namespace or definition that cannot be inspected is not deleted.
fn unreadable(what: &str) -> Failure {
    Failure::with_words(FailureClass::Transient, Reason::CannotInspect, what)
}
