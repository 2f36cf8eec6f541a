//! Lets a few agents join as usual: with a join token each, and a key that is registered with it.

use anyhow::{Context as _, Result};
use brokkr_api::tokens::CreateJoinToken;
use brokkr_api::{InstallationId, Labels};
use brokkr_client::{Client, Credential};
use futures::{StreamExt as _, TryStreamExt as _};

use crate::identity::Identity;

const AT_A_TIME: usize = 8;

/// Lets agents `0..count` of the seed join. The client has to be an administrator's.
pub async fn join(
    admin: &Client,
    seed: u64,
    count: usize,
    labels: impl Fn(usize) -> Labels,
) -> Result<(InstallationId, Vec<Identity>)> {
    let joined: Vec<(InstallationId, Identity)> = futures::stream::iter(0..count)
        .map(|number| join_one(admin, seed, number, labels(number)))
        .buffered(AT_A_TIME)
        .try_collect()
        .await?;
    let installation = joined.first().context("no agents were requested")?.0;
    Ok((installation, joined.into_iter().map(|(_, identity)| identity).collect()))
}

async fn join_one(
    admin: &Client,
    seed: u64,
    number: usize,
    labels: Labels,
) -> Result<(InstallationId, Identity)> {
    let identity = Identity::derive(seed, number);
    let request = serde_json::json!({"agent_name": format!("swarm-{seed}-{number}"), "labels": labels});
    let request: CreateJoinToken = serde_json::from_value(request)?;
    let token = admin.create_join_token(&request).await.context("cannot create a join token")?;
    let anonymous = admin.with_credential(Credential::None);
    let registration = identity.registration(&token.token)?;
    let registered = anonymous.register_agent(&registration).await.context("cannot register the agent")?;
    Ok((registered.installation_id, identity.joined(registered.agent_id)))
}
