//! Key rotation: on request, and automatically when a key is old.

use anyhow::{Context as _, Result, ensure};
use brokkr_api::ErrorCode;
use brokkr_client::{AgentIdentity, AgentKey, Client, ClientError, Credential};
use brokkr_install::IDENTITY;
use brokkr_testkit::{Attempt, eventually};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use brokkr_testkit::world::{WAIT_TIMEOUT, World};

const KEY: &str = "key.pem";

fn secrets(world: &World) -> Api<Secret> {
    Api::namespaced(world.client.clone(), world.agent.namespace())
}

async fn field(world: &World, name: &str) -> Result<String> {
    let stored = secrets(world).get(IDENTITY).await?;
    let value = stored.data.and_then(|mut data| data.remove(name));
    Ok(String::from_utf8(value.with_context(|| format!("the Secret has {name}"))?.0)?)
}

/// Returns the identity in the agent's current Secret, as a thief would have it.
async fn thief(world: &World) -> Result<AgentIdentity> {
    Ok(AgentIdentity {
        agent_id: field(world, "agent-id").await?.parse()?,
        installation_id: field(world, "installation-id").await?.parse()?,
        key: AgentKey::from_pkcs8_pem(&field(world, KEY).await?)?,
    })
}

/// Sends a request as the agent, with a new assertion.
async fn request_as(world: &World, thief: &AgentIdentity) -> Result<Result<(), ClientError>> {
    let client = Client::builder(world.fleet.broker.url().parse()?)
        .ca_pem(world.fleet.authority().pem())
        .credential(Credential::Agent(thief.clone()))
        .build()?;
    Ok(client.targets_all(&thief.agent_id.to_string()).await.map(|_| ()))
}

#[tokio::test]
async fn an_agent_gets_a_new_key_with_one_command_and_the_old_one_ends() -> Result<()> {
    let world = World::start().await?;
    let thief = thief(&world).await?;
    request_as(&world, &thief).await?.context("the key is valid")?;

    let rotated = world.fleet.brokkr(["agent", "rotate", "shop-1"]).await?.ok()?;
    assert!(rotated.stdout.contains("agent shop-1 has a new key"), "{rotated:?}");
    assert_ne!(field(&world, KEY).await?, *secret(&thief));
    request_as(&world, &thief).await?.context("the old key is valid for another hour")?;
    let mut connection = world.fleet.database().connect().await?;
    sqlx::query("UPDATE agents SET old_key_until = now()").execute(&mut connection).await?;
    eventually(WAIT_TIMEOUT, "the old key to be refused", async || match request_as(&world, &thief).await {
        Ok(Err(error)) if error.code() == Some(ErrorCode::BRK1001) => Attempt::Done(()),
        other => Attempt::NotYet(format!("{other:?}")),
    })
    .await?;

    // The agent has the valid key, now and after a restart.
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    world.agent.restart()?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "2")])).await?;
    let shown = world.fleet.brokkr(["agent", "show", "shop-1"]).await?.ok()?;
    assert!(!shown.stdout.contains("rotation requested"), "{shown:?}");
    Ok(())
}

#[tokio::test]
async fn an_old_key_is_replaced_automatically_and_once() -> Result<()> {
    let world = World::start().await?;
    let old = thief(&world).await?;
    let aged = json!({"stringData": {"key-since": "2020-02-20T20:20:20Z"}});
    secrets(&world).patch(IDENTITY, &PatchParams::default(), &Patch::Merge(aged)).await?;
    world.agent.restart()?;
    eventually(WAIT_TIMEOUT, "a new key", async || {
        let now = field(&world, KEY).await?;
        ensure!(now != *secret(&old), "still the old one");
        Ok(())
    })
    .await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    let new = field(&world, KEY).await?;
    world.agent.restart()?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "2")])).await?;
    assert_eq!(field(&world, KEY).await?, new, "a recent key is kept");
    Ok(())
}

#[tokio::test]
async fn an_offline_agent_rotates_its_key_when_it_returns() -> Result<()> {
    let world = World::start().await?;
    let old = thief(&world).await?;
    world.agent.kill9();
    let asked = world.fleet.brokkr(["agent", "rotate", "shop-1", "--timeout", "1s"]).await?;
    assert_eq!(asked.code, 124, "{asked:?}");
    assert!(asked.stderr.contains("the request stays open"), "{asked:?}");
    let shown = world.fleet.brokkr(["agent", "show", "shop-1"]).await?.ok()?;
    assert!(shown.stdout.contains("rotation requested"), "{shown:?}");
    world.agent.start()?;
    world.fleet.brokkr(["agent", "rotate", "shop-1"]).await?.ok()?;
    // The agent stores the new key under this name once the broker has it.
    eventually(WAIT_TIMEOUT, "the new key to be in use", async || {
        field(&world, KEY).await.is_ok_and(|key| key != *secret(&old))
    })
    .await?;

    world.fleet.brokkr(["agent", "revoke", "shop-1", "--yes"]).await?.ok()?;
    let refused = world.fleet.brokkr(["agent", "rotate", "shop-1"]).await?;
    assert_eq!(refused.code, 6, "{refused:?}");
    assert!(refused.stderr.contains("agent join shop-1 --rejoin"), "{refused:?}");
    Ok(())
}

fn secret(identity: &AgentIdentity) -> Box<str> {
    use secrecy::ExposeSecret as _;
    identity.key.to_pkcs8_pem().expose_secret().into()
}
