//! Health rules in the cluster: one Secret of the agent's namespace for each scope.
//!
//! They are Secrets like the cached content, so that the agent needs no further permission.

use std::collections::BTreeMap;

use brokkr_api::AgentId;
use brokkr_api::ids::Checksum;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;
use kube::{Api, Client, ResourceExt as _};

use super::{RuleScope, RuleSet, parse};
use crate::own_objects::{KEPT_BY, RequestError, list, put, remove, tail, with_deadline};

/// The label with the id of the stack, or [`INSTALLATION`].
const RULES_OF: &str = "brokkr.io/health-rules-of";
const INSTALLATION: &str = "installation";
const CHECKSUM: &str = "brokkr.io/checksum";
const SECRET_TYPE: &str = "brokkr.io/health-rules";
const RULES: &str = "rules";

#[derive(Clone)]
pub struct RuleStore {
    api: Api<Secret>,
    agent: AgentId,
}

impl RuleStore {
    #[must_use]
    pub fn new(client: &Client, namespace: &str, agent: AgentId) -> Self {
        Self { api: Api::namespaced(client.clone(), namespace), agent }
    }

    /// Returns all stored rules. Damaged ones count as absent: they are fetched again.
    pub async fn load(&self) -> Result<Vec<(RuleScope, RuleSet)>, RequestError> {
        let mut found = Vec::new();
        for stored in list(&self.api, &format!("{KEPT_BY}={},{RULES_OF}", self.agent)).await? {
            let name = stored.name_any();
            let Some(secret) = with_deadline(self.api.get_opt(&name)).await? else { continue };
            match read(secret) {
                Some(rules) => found.push(rules),
                None => tracing::warn!(
                    secret = name,
                    "failed to read stored health rules; treating them as absent"
                ),
            }
        }
        Ok(found)
    }

    /// Stores the rules of a scope: exactly the bytes that the broker sent.
    pub async fn store(
        &self,
        scope: RuleScope,
        checksum: Checksum,
        bytes: &[u8],
    ) -> Result<(), RequestError> {
        let labels: BTreeMap<String, String> =
            [(KEPT_BY.to_owned(), self.agent.to_string()), (RULES_OF.to_owned(), label(scope))].into();
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(name(scope)),
                labels: Some(labels),
                annotations: Some([(CHECKSUM.to_owned(), checksum.to_string())].into()),
                ..ObjectMeta::default()
            },
            type_: Some(SECRET_TYPE.to_owned()),
            data: Some([(RULES.to_owned(), ByteString(bytes.to_vec()))].into()),
            ..Secret::default()
        };
        put(&self.api, &secret).await
    }

    pub async fn forget(&self, scope: RuleScope) -> Result<(), RequestError> {
        remove(&self.api, &name(scope)).await
    }
}

fn name(scope: RuleScope) -> String {
    match scope {
        RuleScope::Installation => "brokkr-health-rules".to_owned(),
        RuleScope::Stack(stack) => format!("brokkr-health-rules-{}", tail(stack)),
    }
}

fn label(scope: RuleScope) -> String {
    match scope {
        RuleScope::Installation => INSTALLATION.to_owned(),
        RuleScope::Stack(stack) => stack.to_string(),
    }
}

fn read(secret: Secret) -> Option<(RuleScope, RuleSet)> {
    let scope = match secret.labels().get(RULES_OF)?.as_str() {
        INSTALLATION => RuleScope::Installation,
        stack => RuleScope::Stack(stack.parse().ok()?),
    };
    let checksum = secret.annotations().get(CHECKSUM)?.parse().ok()?;
    let bytes = secret.data?.remove(RULES)?.0;
    Some((scope, parse(&bytes, checksum).ok()?))
}

#[cfg(test)]
mod tests {
    use brokkr_api::StackId;
    use serde_json::json;

    use super::*;

    fn stored(scope: RuleScope, bytes: &[u8], checksum: Checksum) -> Secret {
        let mut secret: Secret = serde_json::from_value(json!({ "metadata": {
            "labels": { RULES_OF: label(scope) }, "annotations": { CHECKSUM: checksum.to_string() } } }))
        .unwrap();
        secret.data = Some([(RULES.to_owned(), ByteString(bytes.to_vec()))].into());
        secret
    }

    #[test]
    fn stored_rules_are_read_back_and_damaged_ones_count_as_absent() {
        for scope in [RuleScope::Installation, RuleScope::Stack(StackId::generate())] {
            let found = read(stored(scope, b"[]", Checksum::of(b"[]")));
            assert_eq!(found.map(|(scope, set)| (scope, set.checksum)), Some((scope, Checksum::of(b"[]"))));
            assert!(read(stored(scope, b"[ ]", Checksum::of(b"[]"))).is_none());
        }
    }
}
