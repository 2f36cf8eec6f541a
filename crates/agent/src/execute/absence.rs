//! Requests about one object, and proof of its absence.
//!
//! A 404 alone proves nothing: the API server returns it also for a version that it no longer serves, and so does any proxy
//! in between. It counts only if its `Status` names the object. Otherwise the kind is looked up again: its objects live on if
//! it is served in another version.

use brokkr_api::reason::Reason;
use brokkr_manifest::Key;
use http::{Method, StatusCode};

use super::classify::{self, Status};
use super::contained::definition_path;
use super::request::{Cluster, DEADLINE, JSON, OutgoingRequest, Reply};
use crate::model::{Failure, FailureClass, StepResult};
use crate::observe::served;
use crate::resource::Kind;

/// A request about one object; the path depends on the version in which its kind is served.
pub(super) struct ObjectRequest<'a> {
    pub method: Method,
    pub query: &'a str,
    pub content_type: &'a str,
    pub accept: &'a str,
    /// The account to act as; none for the agent's own.
    pub user: Option<&'a str>,
    pub body: Vec<u8>,
}

impl Cluster {
    pub async fn read_object(&self, kind: &Kind, key: &Key) -> StepResult {
        let accept = Self::accept(kind);
        let (method, query, content_type) = (Method::GET, "", JSON);
        let request = ObjectRequest { method, query, content_type, accept, user: None, body: Vec::new() };
        match self.for_object(kind, key, &request).await {
            Err(failure) => StepResult::Failed(failure),
            Ok(None) => StepResult::ObjectRead(None),
            Ok(Some(reply)) if reply.status.is_success() => match reply.seen(kind) {
                Ok(seen) => StepResult::ObjectRead(Some(seen)),
                Err(failure) => StepResult::Failed(failure),
            },
            Ok(Some(reply)) => StepResult::Failed(reply.refusal(kind)),
        }
    }

    /// Sends a request about one object. Returns none only if the object certainly does not exist.
    pub(super) async fn for_object(
        &self,
        kind: &Kind,
        key: &Key,
        request: &ObjectRequest<'_>,
    ) -> Result<Option<Reply>, Failure> {
        let reply = self.send_in_version(kind, key, request).await?;
        if reply.status != StatusCode::NOT_FOUND {
            return Ok(Some(reply));
        }
        if names_object(&reply.body, kind, key) {
            return Ok(None);
        }
        let found = served::find(self.client(), kind, DEADLINE).await;
        match found.map_err(|refusal| classify::unreachable(&refusal))? {
            // It was just removed or added, or something else than the API server answered.
            Some(same) if same == *kind => Err(unproven(kind)),
            Some(other) => {
                let reply = self.send_in_version(&other, key, request).await?;
                match reply.status {
                    StatusCode::NOT_FOUND if names_object(&reply.body, &other, key) => Ok(None),
                    StatusCode::NOT_FOUND => Err(unproven(kind)),
                    _ => Ok(Some(reply)),
                }
            }
            None if self.is_undefined(kind).await? => Ok(None),
            None => Err(unproven(kind)),
        }
    }

    async fn send_in_version(
        &self,
        kind: &Kind,
        key: &Key,
        request: &ObjectRequest<'_>,
    ) -> Result<Reply, Failure> {
        let path = format!("{}{}", kind.object_path(key), request.query);
        let &ObjectRequest { content_type, accept, user, .. } = request;
        let outgoing =
            OutgoingRequest { method: request.method.clone(), path: &path, content_type, accept, user };
        self.exchange(outgoing, request.body.clone()).await
    }

    /// Returns whether no definition of the kind exists. The objects of a deleted definition are deleted as well; those of a
    /// definition that serves no version are not.
    async fn is_undefined(&self, kind: &Kind) -> Result<bool, Failure> {
        let name = format!("{}.{}", kind.plural, kind.group);
        let reply = self.get(&definition_path(&name), JSON).await?;
        match reply.status {
            StatusCode::NOT_FOUND => Ok(Status::parse(&reply.body).details.name == name),
            status if status.is_success() => Ok(false),
            // Most accounts may not read definitions. Discovery has shown that no version is served.
            StatusCode::FORBIDDEN => Ok(true),
            _ => Err(reply.refusal(kind)),
        }
    }
}

fn names_object(body: &[u8], kind: &Kind, key: &Key) -> bool {
    let details = Status::parse(body).details;
    details.name == key.name && [&kind.plural, &kind.kind].contains(&&details.kind)
}

/// Returns the failure for an object of which it is unknown whether it exists.
fn unproven(kind: &Kind) -> Failure {
    Failure::new(FailureClass::Transient, Reason::UnknownKind { kind: kind.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Served;

    #[test]
    fn j3_a_404_proves_absence_only_if_it_names_the_object() {
        let kind = Kind::from(Served {
            group: "shop.example.com".into(),
            version: "v1".into(),
            kind: "Counter".into(),
            plural: "counters".into(),
            namespaced: true,
        });
        let key: Key = "shop.example.com/Counter/shop/front".parse().unwrap();
        let named = |body: &str| names_object(body.as_bytes(), &kind, &key);
        assert!(named(r#"{"kind":"Status","details":{"name":"front","kind":"counters"}}"#));
        assert!(!named(r#"{"kind":"Status","details":{"name":"back","kind":"counters"}}"#));
        assert!(!named(r#"{"kind":"Status","details":{"name":"front","kind":"namespaces"}}"#));
        assert!(!named(r#"{"kind":"Status","details":{}}"#), "the version is not served");
        assert!(!named("404 page not found\n"));
        assert!(!named("<html>please log in</html>"));
    }
}
