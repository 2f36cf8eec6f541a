//! Keys are rotated, a stack is deleted, the audit log is read, and a token is replaced.

use anyhow::{Context as _, Result};
use brokkr_api::audit::AuditHead;
use brokkr_api::protocol::header;
use brokkr_api::tokens::NewApiToken;
use brokkr_broker::store::presence::{SeenAgent, presence_store};
use brokkr_testkit::eventually;
use reqwest::Method;
use serde_json::json;

use super::{SOON, Tour, manifest, submit};
use crate::harness::{Agent, Caller, Key, read};

pub async fn walk(tour: &Tour, owner: &Caller, us: &Agent) -> Result<()> {
    seen(tour, us).await?;
    tour.post(&tour.ops, "agents/us-1/rotation", json!({})).await?;
    let wanted = json!(us.signer().key_change(&Key::generate()?)?);
    tour.post(&us.caller(), &us.path("keys"), wanted).await?;
    tour.delete(&tour.ops, "agents/us-1/keys").await?;
    tour.post(&tour.ops, "agents/us-1/join-tokens", json!({ "ttl_seconds": 24 * 3600 })).await?;

    tour.post(&tour.ops, "agents/us-1/retirement", json!({})).await?;
    tour.post(&tour.ops, "agents/us-1/abandonment", json!({ "reason": "the shop has closed" })).await?;
    tour.delete(&tour.ops, "agents/us-1").await?;

    owner.send(Method::PUT, "stacks/banner", &json!({})).await?.error_for_status()?;
    submit(owner, "banner", &manifest("banner", "1.0.0")).await?;
    tour.delete(owner, "stacks/banner").await?;
    let purge = tour.ops.request(Method::POST, "stacks/banner/purge").header(header::PROJECT, "shop");
    tour.recorder.ask(purge.json(&json!({ "reason": "contained the address of a customer" }))).await?;

    chained(tour, owner).await?;
    let what = "POST%20/api/v1/stacks/%7Bstack%7D/deployment-objects";
    tour.get(owner, &format!("audit?what={what}")).await?;
    tour.get(owner, "audit/head").await?;
    tour.get(owner, "audit/verify").await?;

    let wanted = json!({ "name": "dashboard", "role": "viewer" });
    let spare: NewApiToken = read(owner.send(Method::POST, "api-tokens", &wanted).await?).await?;
    let path = format!("api-tokens/{}/rotate", spare.info.id);
    tour.post(owner, &path, json!({ "overlap_seconds": 3600 })).await?;
    Ok(())
}

/// Stores when the agent was last seen, as each replica does every ten seconds: the response to a revocation
/// shows the stored time.
async fn seen(tour: &Tour, us: &Agent) -> Result<()> {
    us.poll().await?.envelope()?;
    let broker = &tour.harness.server.broker;
    let at = broker.presence.last_seen(us.id).context("it was seen")?;
    let seen = SeenAgent { agent: us.id, at, poll_seconds: 30, allows_upgrades: false };
    presence_store(&broker.pool, &[seen]).await?;
    Ok(())
}

/// Waits until every entry of the project has its link.
async fn chained(tour: &Tour, owner: &Caller) -> Result<()> {
    let mut connection = tour.harness.database.connect().await?;
    let entries: i64 = sqlx::query_scalar("SELECT count(*) FROM audit WHERE project = 'shop'")
        .fetch_one(&mut connection)
        .await?;
    eventually(SOON, "the entries to be chained", async || {
        owner.get_json::<AuditHead>("audit/head").await.is_ok_and(|head| head.number == entries)
    })
    .await
}
