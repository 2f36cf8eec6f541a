//! What changes something for one stack: apply, dry run, delete, release. Made as one identity, which only a grant gives.

use brokkr_manifest::Key;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::classify;
use super::request::{Ask, Cluster, JSON, METADATA, Reply};
use crate::grant::Acting;
use crate::marks::{self, FIELD_MANAGER, Stamp, dress};
use crate::plan::steps::Answer;
use crate::plan::types::{Failure, Uid, Wanted};
use crate::resource::Kind;
use crate::yields;

pub(super) const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";

/// Writes for one stack, as one identity.
#[derive(Clone)]
pub struct Writes {
    cluster: Cluster,
    /// Whom to act as; none for the agent itself.
    user: Option<String>,
}

impl Writes {
    pub(super) fn new(cluster: Cluster, acting: &Acting) -> Self {
        Self { cluster, user: acting.user() }
    }

    /// Whom it acts as; none for the agent itself.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The API server as the agent itself sees it.
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
        self.cluster.exchange(Ask { method, path, content_type, accept, user }, body).await
    }

    async fn patch(
        &self,
        wanted: &Wanted,
        uid: Option<&Uid>,
        stamp: &Stamp,
        dry_run: bool,
    ) -> Result<Reply, Failure> {
        let dry = if dry_run { "&dryRun=All" } else { "" };
        let path = format!(
            "{}?fieldManager={FIELD_MANAGER}&force=true&fieldValidation=Strict{dry}",
            wanted.kind.object_path(&wanted.key)
        );
        let body = wanted.body.to_value();
        let body = if dry_run { body } else { self.yielding(wanted, body).await? };
        let body = dress(body, &wanted.key, stamp, uid).to_string().into_bytes();
        let reply = self.send(Method::PATCH, &path, APPLY, Cluster::accept(&wanted.kind), body).await?;
        if reply.status.is_success() { Ok(reply) } else { Err(reply.refusal(&wanted.kind)) }
    }

    /// What to send of the manifest's object where fields of it are left to others.
    async fn yielding(&self, wanted: &Wanted, body: Value) -> Result<Value, Failure> {
        // What cannot be read as paths was refused with the whole manifest.
        let paths = brokkr_manifest::yields::paths(&body).unwrap_or_default();
        if paths.is_empty() {
            return Ok(body);
        }
        let live = self.cluster.read(&wanted.kind.object_path(&wanted.key)).await?;
        Ok(match live {
            Some(live) => yields::yielded(body, &live, &paths),
            None => body,
        })
    }

    /// B2: would it be accepted?
    pub async fn dry_run(&self, wanted: &Wanted, uid: Option<&Uid>, stamp: &Stamp) -> Answer {
        match self.patch(wanted, uid, stamp, true).await {
            // What would be created is not there.
            Ok(reply) => Answer::Valid { exists: reply.status != StatusCode::CREATED },
            Err(failure) => Answer::Failed(failure),
        }
    }

    /// Who holds fields of ours: a dry run that does not insist is refused with their names.
    pub async fn rivals(&self, wanted: &Wanted, stamp: &Stamp) -> Answer {
        let path =
            format!("{}?fieldManager={FIELD_MANAGER}&dryRun=All", wanted.kind.object_path(&wanted.key));
        let body = dress(wanted.body.to_value(), &wanted.key, stamp, None).to_string().into_bytes();
        match self.send(Method::PATCH, &path, APPLY, METADATA, body).await {
            Ok(reply) if reply.status == StatusCode::CONFLICT => {
                Answer::Contended(classify::rivals(&reply.body))
            }
            Ok(_) => Answer::Contended(Vec::new()),
            Err(failure) => Answer::Failed(failure),
        }
    }

    /// B3: server-side apply, force on, as the field manager `brokkr`.
    pub async fn apply(&self, wanted: &Wanted, uid: Option<&Uid>, stamp: &Stamp) -> Answer {
        let answer = self.patch(wanted, uid, stamp, false).await.and_then(|reply| {
            let created = reply.status == StatusCode::CREATED;
            Ok(Answer::Applied { seen: reply.seen(&wanted.kind)?, created })
        });
        answer.unwrap_or_else(Answer::Failed)
    }

    /// Deletes exactly the object that was seen: another one under the same name is left alone.
    pub async fn delete(&self, kind: &Kind, key: &Key, uid: &Uid) -> Answer {
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": {"uid": uid}, "propagationPolicy": "Background",
        });
        self.change(Method::DELETE, kind, &kind.object_path(key), JSON, &options, Answer::DeleteAccepted)
            .await
    }

    /// Takes our marks off; every value stays.
    pub async fn release(&self, kind: &Kind, key: &Key, uid: &Uid) -> Answer {
        let path = format!("{}?fieldManager={FIELD_MANAGER}", kind.object_path(key));
        self.change(Method::PATCH, kind, &path, MERGE, &marks::undress(uid), Answer::Released).await
    }

    async fn change(
        &self,
        method: Method,
        kind: &Kind,
        path: &str,
        content_type: &str,
        body: &Value,
        done: Answer,
    ) -> Answer {
        match self.send(method, path, content_type, METADATA, body.to_string().into_bytes()).await {
            Err(failure) => Answer::Failed(failure),
            Ok(reply) if reply.status == StatusCode::NOT_FOUND => Answer::Gone,
            Ok(reply) if reply.status.is_success() => done,
            Ok(reply) => Answer::Failed(reply.refusal(kind)),
        }
    }
}
