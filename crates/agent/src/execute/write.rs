//! Writes for one stack: apply, dry run, delete, release, with the identity of its grant.

use brokkr_manifest::Key;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::absence::ObjectRequest;
use super::classify;
use super::request::{APPLY, Cluster, JSON, METADATA, OutgoingRequest, Reply};
use crate::grant::ActingAs;
use crate::model::{DesiredObject, Failure, StepResult, Uid};
use crate::ownership::{self, FIELD_MANAGER, Stamp, apply_metadata};
use crate::resource::{Kind, is_job, is_prerequisite};
use crate::yields;

const MERGE: &str = "application/merge-patch+json";

/// Writes for one stack, as one identity.
#[derive(Clone)]
pub struct Writes {
    cluster: Cluster,
    /// The account to impersonate; none for the agent's own.
    user: Option<String>,
}

impl Cluster {
    /// Returns the writes for a stack, made with the identity of its grant.
    #[must_use]
    pub fn acting_as(&self, acting: &ActingAs) -> Writes {
        Writes::new(self.clone(), acting)
    }
}

impl Writes {
    pub(super) fn new(cluster: Cluster, acting: &ActingAs) -> Self {
        Self { cluster, user: acting.user() }
    }

    /// Returns the impersonated account; none for the agent's own.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Returns the client that uses the agent's own account.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        accept: &str,
        body: Vec<u8>,
    ) -> Result<Reply, Failure> {
        let user = self.user.as_deref();
        self.cluster.exchange(OutgoingRequest { method, path, content_type, accept, user }, body).await
    }

    async fn patch(
        &self,
        desired: &DesiredObject,
        uid: Option<&Uid>,
        stamp: &Stamp,
        dry_run: bool,
    ) -> Result<Reply, Failure> {
        let dry = if dry_run { "&dryRun=All" } else { "" };
        let path = format!(
            "{}?fieldManager={FIELD_MANAGER}&force=true&fieldValidation=Strict{dry}",
            desired.kind.object_path(&desired.key)
        );
        let body = desired.body.to_value();
        let body = if dry_run { body } else { self.yielding(desired, body).await? };
        let body = apply_metadata(body, &desired.key, stamp, uid).to_string().into_bytes();
        let reply = self.send(Method::PATCH, &path, APPLY, Cluster::accept(&desired.kind), body).await?;
        if reply.status.is_success() { Ok(reply) } else { Err(reply.refusal(&desired.kind)) }
    }

    /// Returns the body without the fields that the manifest yields to other managers.
    async fn yielding(&self, desired: &DesiredObject, body: Value) -> Result<Value, Failure> {
        // A manifest with invalid paths was refused as a whole.
        let paths = brokkr_manifest::yields::paths(&body).unwrap_or_default();
        if paths.is_empty() {
            return Ok(body);
        }
        let live = self.cluster.read(&desired.kind.object_path(&desired.key)).await?;
        Ok(match live {
            Some(live) => yields::yielded(body, &live, &paths),
            None => body,
        })
    }

    /// B2: validates an object with a dry run.
    pub async fn dry_run(&self, desired: &DesiredObject, uid: Option<&Uid>, stamp: &Stamp) -> StepResult {
        match self.patch(desired, uid, stamp, true).await {
            // An object that would be created does not exist.
            Ok(reply) => StepResult::Valid { exists: reply.status != StatusCode::CREATED },
            Err(failure) => StepResult::Failed(failure),
        }
    }

    /// Returns the field managers that own our fields: a dry run without force is refused with their names.
    pub async fn rivals(&self, desired: &DesiredObject, stamp: &Stamp) -> StepResult {
        let path =
            format!("{}?fieldManager={FIELD_MANAGER}&dryRun=All", desired.kind.object_path(&desired.key));
        let body =
            apply_metadata(desired.body.to_value(), &desired.key, stamp, None).to_string().into_bytes();
        match self.send(Method::PATCH, &path, APPLY, METADATA, body).await {
            Ok(reply) if reply.status == StatusCode::CONFLICT => {
                StepResult::RivalsFound(classify::rivals(&reply.body))
            }
            Ok(_) => StepResult::RivalsFound(Vec::new()),
            Err(failure) => StepResult::Failed(failure),
        }
    }

    /// B3: server-side apply with force, as field manager `brokkr`.
    pub async fn apply(&self, desired: &DesiredObject, uid: Option<&Uid>, stamp: &Stamp) -> StepResult {
        let result = self.patch(desired, uid, stamp, false).await.and_then(|reply| {
            // A request of an earlier run may have created it, and its answer was lost. Only for these does it matter.
            let created = reply.status == StatusCode::CREATED
                || is_prerequisite(&desired.key) && is_written_by_us_alone(&reply.body);
            Ok(StepResult::Applied { seen: reply.seen(&desired.kind)?, created })
        });
        result.unwrap_or_else(StepResult::Failed)
    }

    /// Deletes exactly the object that was seen, not another one with the same name. A Job goes after its Pods, so that they do not run
    /// beside those of the Job that replaces it.
    pub async fn delete(&self, kind: &Kind, key: &Key, uid: &Uid) -> StepResult {
        let propagation = if is_job(key) { "Foreground" } else { "Background" };
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": {"uid": uid}, "propagationPolicy": propagation,
        });
        let (method, query, content_type) = (Method::DELETE, "", JSON);
        let request = self.on_object(method, query, content_type, &options);
        self.change(kind, key, &request, StepResult::DeleteAccepted).await
    }

    /// Removes our metadata; all other fields stay.
    pub async fn release(&self, kind: &Kind, key: &Key, uid: &Uid) -> StepResult {
        let query = format!("?fieldManager={FIELD_MANAGER}");
        let request = self.on_object(Method::PATCH, &query, MERGE, &ownership::remove_metadata(uid));
        self.change(kind, key, &request, StepResult::Released).await
    }

    fn on_object<'a>(
        &'a self,
        method: Method,
        query: &'a str,
        content_type: &'a str,
        body: &Value,
    ) -> ObjectRequest<'a> {
        let body = body.to_string().into_bytes();
        ObjectRequest { method, query, content_type, accept: METADATA, user: self.user(), body }
    }

    async fn change(
        &self,
        kind: &Kind,
        key: &Key,
        request: &ObjectRequest<'_>,
        done: StepResult,
    ) -> StepResult {
        match self.cluster.for_object(kind, key, request).await {
            Err(failure) => StepResult::Failed(failure),
            Ok(None) => StepResult::Gone,
            Ok(Some(reply)) if reply.status.is_success() => done,
            Ok(Some(reply)) => StepResult::Failed(reply.refusal(kind)),
        }
    }
}

/// Returns whether no other client has ever written the object, apart from its status: then Brokkr has created it.
fn is_written_by_us_alone(object: &[u8]) -> bool {
    let object: Value = serde_json::from_slice(object).unwrap_or_default();
    let entries = object["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut writers = entries.iter().filter(|entry| entry["subresource"].as_str().is_none_or(str::is_empty));
    writers.clone().next().is_some() && writers.all(|entry| entry["manager"] == FIELD_MANAGER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d6_an_object_counts_as_created_by_us_only_if_nobody_else_has_written_it() {
        let alone = |managers: &[(&str, &str)]| {
            let entry = |(manager, subresource): &(&str, &str)| json!({"manager": manager, "subresource": subresource});
            let fields: Vec<Value> = managers.iter().map(entry).collect();
            is_written_by_us_alone(json!({"metadata": {"managedFields": fields}}).to_string().as_bytes())
        };
        assert!(alone(&[("brokkr", "")]));
        assert!(alone(&[("brokkr", ""), ("kube-apiserver", "status")]));
        assert!(!alone(&[("brokkr", ""), ("kubectl-create", "")]));
        assert!(!alone(&[("brokkr", ""), ("before-first-apply", "")]));
        assert!(!alone(&[]), "unknown");
        assert!(!is_written_by_us_alone(b"not JSON"));
    }
}
