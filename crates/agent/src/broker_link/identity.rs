//! The identity of the agent: a key that is generated in the cluster and registered once with a join token.
//!
//! The key is stored before it is registered, so that a lost response does no harm: registering the same key with
//! the same token again returns the same result.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, bail};
use brokkr_client::{AgentIdentity, AgentKey, Client as Broker};
use brokkr_install::IDENTITY;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;

pub(super) const KEY: &str = "key.pem";
/// The next key, which replaces the current one once it is registered: see `keys`.
pub(super) const NEXT_KEY: &str = "next-key.pem";
/// When the key came into use; by default, when the Secret was created.
pub(super) const KEY_SINCE: &str = "key-since";
const AGENT_ID: &str = "agent-id";
const INSTALLATION_ID: &str = "installation-id";

/// The identity of this agent, with the age of its key.
#[derive(Clone, Debug)]
pub struct StoredIdentity {
    pub identity: AgentIdentity,
    pub key_since: Timestamp,
    /// Whether the next key is stored; it may already be registered.
    pub has_next_key: bool,
}

/// Reads the identity from the cluster, or creates one and registers it with the join token.
pub async fn identify(
    client: &Client,
    namespace: &str,
    broker: &Broker,
    join_token: Option<&Path>,
) -> anyhow::Result<StoredIdentity> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let stored = match secrets.get_opt(IDENTITY).await.context("read the agent's identity")? {
        Some(secret) => secret,
        None => store_new_key(&secrets, namespace).await?,
    };
    if let Some(identity) = joined_as(&stored, namespace)? {
        return Ok(identity);
    }
    let (key, key_since, has_next_key) = stored_key(&stored, namespace)?;
    let Some(file) = join_token else {
        bail!(
            "this agent has not joined yet and has no join token; create one with \
             `brokkr agent join-token NAME` and pass it with --join-token-file"
        );
    };
    // Read each time: a wrong token may have been replaced.
    let token = std::fs::read_to_string(file).map(SecretString::from);
    let token = token.with_context(|| format!("read the join token from {}", file.display()))?;
    let registration = key.registration(token.expose_secret().trim()).context("sign the registration")?;
    let registered = broker.register_agent(&registration).await.context("join the broker")?;
    let patch = json!({"stringData": {
        AGENT_ID: registered.agent_id.to_string(),
        INSTALLATION_ID: registered.installation_id.to_string(),
        "name": registered.name.to_string(),
    }});
    secrets
        .patch(IDENTITY, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .context("store the agent's id")?;
    tracing::info!(agent.id = %registered.agent_id, agent.name = %registered.name, "joined the broker");
    let identity =
        AgentIdentity { agent_id: registered.agent_id, installation_id: registered.installation_id, key };
    Ok(StoredIdentity { identity, key_since, has_next_key })
}

/// Reads the identity of an agent that has joined, and writes nothing.
pub async fn joined(client: &Client, namespace: &str) -> anyhow::Result<StoredIdentity> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let stored = secrets.get_opt(IDENTITY).await.context("read the agent's identity")?;
    let stored = stored.with_context(|| format!("there is no Secret {namespace}/{IDENTITY}"))?;
    joined_as(&stored, namespace)?.context("this agent has not joined yet")
}

fn joined_as(stored: &Secret, namespace: &str) -> anyhow::Result<Option<StoredIdentity>> {
    let id = |field| stored.data.as_ref().and_then(|data| text(data, field));
    let (Some(agent), Some(installation)) = (id(AGENT_ID), id(INSTALLATION_ID)) else { return Ok(None) };
    let (key, key_since, has_next_key) = stored_key(stored, namespace)?;
    let identity = AgentIdentity {
        agent_id: agent.parse().context("read the agent's id")?,
        installation_id: installation.parse().context("read the installation's id")?,
        key,
    };
    Ok(Some(StoredIdentity { identity, key_since, has_next_key }))
}

/// Returns the key, since when it is in use, and whether the next one is stored.
fn stored_key(stored: &Secret, namespace: &str) -> anyhow::Result<(AgentKey, Timestamp, bool)> {
    let key = key_in(stored, KEY)?.with_context(|| format!("Secret {namespace}/{IDENTITY} has no {KEY}"))?;
    let created = stored.metadata.creation_timestamp.as_ref().map(|created| created.0);
    let since = stored.data.as_ref().and_then(|data| text(data, KEY_SINCE));
    let since = since.and_then(|since| since.parse().ok()).or(created).unwrap_or_else(Timestamp::now);
    let has_next = stored.data.as_ref().is_some_and(|data| data.contains_key(NEXT_KEY));
    Ok((key, since, has_next))
}

async fn store_new_key(secrets: &Api<Secret>, namespace: &str) -> anyhow::Result<Secret> {
    let key = AgentKey::generate().context("generate a key")?;
    let pem = key.to_pkcs8_pem();
    let secret: Secret = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": IDENTITY, "namespace": namespace},
        "stringData": {KEY: pem.expose_secret()},
    }))?;
    secrets.create(&PostParams::default(), &secret).await.context("store the agent's key")
}

/// Reads the key in this field of the Secret, if there is one.
pub(super) fn key_in(secret: &Secret, field: &str) -> anyhow::Result<Option<AgentKey>> {
    let pem = secret.data.as_ref().and_then(|data| text(data, field));
    pem.map(|pem| AgentKey::from_pkcs8_pem(&pem)).transpose().context("read the agent's key")
}

fn text(data: &BTreeMap<String, ByteString>, field: &str) -> Option<String> {
    String::from_utf8(data.get(field)?.0.clone()).ok()
}
